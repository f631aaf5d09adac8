//! How much of what an account may call the operator uses, where AWS limits the calls to IAM.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use serde_json::json;

use crate::kubernetes::CLASS;
use crate::load::{self, Times};
use crate::network::{Counts, Kind, Network, Proxy};
use crate::operator::Operator;
use crate::parts::Bench;
use crate::{Failure, say};

/// Calls to IAM that a claim needs: user, policy and key; and for its deletion two reads of the user and its keys, then
/// key, policy and user.
const CREATION: usize = 3;
const DELETION: usize = 5;
/// Claims that are served at once: before as many are done, the turns of single claims say nothing.
const AT_ONCE: usize = 32;
/// Milliseconds that each call takes.
const DELAY: u64 = 50;
/// The class and the claims of the other account.
const OTHER: &str = "other";
const OTHERS: usize = 10;

/// The limit on calls to IAM a second, and the one after half of the claims.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits(pub(crate) f64, pub(crate) f64);

impl Limits {
    /// The least time for so many calls.
    fn time(self, calls: usize) -> f64 {
        calls as f64 / 2.0 / self.0 + calls as f64 / 2.0 / self.1
    }
}

/// The head of the table.
pub(crate) fn header() -> String {
    line(["", "claims", "seconds", "a second", "of limit", "calls", "latest", "other acct"])
        + "\n"
        + &line(["", "", "", "", "", "needed 1", "turn 1", "alone 1"])
}

impl Bench {
    /// `n` claims are created and deleted where an account may make so many calls to IAM a second. With `others`, ten
    /// claims of another account are bound meanwhile.
    pub(crate) async fn limited(&mut self, n: usize, limits: Limits, others: bool) -> Result<(), Failure> {
        say(&format!("{n} claims at {} and {} calls to IAM a second", limits.0, limits.1));
        let mut proxy = Proxy::start(Network { delay: DELAY, ..Network::default() }, &self.url)?;
        let operator = Operator::start(&proxy.url).await?;
        let name = match limits {
            Limits(a, b) if a == b => format!("{a}/s"),
            Limits(a, b) => format!("{a}/s, then {b}/s"),
        };
        let alone = if others { Some(operator.during(self.others()).await?) } else { None };

        proxy.limit(Kind::Iam, limits.0)?;
        proxy.counts(Kind::Iam)?;
        let names: Vec<_> = (1..=n).map(|number| format!("c{number}")).collect();
        let other = async {
            match alone {
                // When the limit is learnt, and the account is busy.
                Some(alone) => {
                    tokio::time::sleep(Duration::from_secs(5)).await;
                    Ok(Some(self.others().await?.as_secs_f64() / alone.as_secs_f64()))
                }
                None => Ok::<_, Failure>(None),
            }
        };
        let work = load::create_named(&self.kubernetes, CLASS, names.clone(), change_at(n / 2, &mut proxy, limits.1));
        let (created, slowed) = operator.during(async { tokio::try_join!(work, other) }).await?;
        print(&format!("created, {name}"), &created, limits, CREATION, proxy.counts(Kind::Iam)?, slowed);

        operator.settle().await?;
        proxy.limit(Kind::Iam, limits.0)?;
        proxy.counts(Kind::Iam)?;
        let work = load::delete_named(&self.kubernetes, names, change_at(n / 2, &mut proxy, limits.1));
        let deleted = operator.during(work).await?;
        print(&format!("deleted, {name}"), &deleted, limits, DELETION, proxy.counts(Kind::Iam)?, None);
        operator.stop().await?;
        self.check_nothing_left().await
    }

    /// Binds claims of another account one after another and deletes them; returns how long it took until all were bound.
    async fn others(&self) -> Result<Duration, Failure> {
        let mut took = Duration::ZERO;
        for number in 0..OTHERS {
            let name = format!("{OTHER}-{number}");
            took += load::one(&self.kubernetes, &name, OTHER).await?.bound;
        }
        Ok(took)
    }

    /// The class of the other account: there, a key id of twelve digits is an account of its own.
    pub(crate) async fn other_account(&self) -> Result<(), Failure> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "other-owner" },
            "stringData": { "AWS_ACCESS_KEY_ID": "111111111111", "AWS_SECRET_ACCESS_KEY": "secret" },
        });
        self.kubernetes.send(Method::POST, "/api/v1/namespaces/default/secrets", Some(&secret)).await?;
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": OTHER },
            "provisioner": "aws-s3.io/bucket", "reclaimPolicy": "Delete",
            "parameters": { "region": "us-west-1", "secretName": "other-owner", "secretNamespace": "default" },
        });
        self.kubernetes.send(Method::POST, "/apis/storage.k8s.io/v1/storageclasses", Some(&class)).await?;
        Ok(())
    }
}

/// Sets another limit when so many claims are done.
fn change_at(half: usize, proxy: &mut Proxy, limit: f64) -> impl FnMut(usize) -> Result<(), Failure> {
    move |done| if done == half { proxy.limit(Kind::Iam, limit) } else { Ok(()) }
}

fn print(name: &str, times: &Times, limits: Limits, calls: usize, counts: Counts, slowed: Option<f64>) {
    let (n, seconds) = (times.order.len(), times.took.as_secs_f64());
    let latest = (limits.0 == limits.1).then(|| latest(&times.order, &times.each, calls as f64 / limits.0));
    let (latest, late) = latest.unzip();
    let two = |number: Option<f64>| number.map_or_else(String::new, |number| format!("{number:.2}"));
    println!(
        "{}",
        line([
            name,
            &n.to_string(),
            &format!("{seconds:.1}"),
            &two(Some(n as f64 / seconds)),
            &two(Some(limits.time(n * calls) / seconds)),
            &two(Some(counts.sent as f64 / (n * calls) as f64)),
            &two(latest),
            &two(slowed),
        ])
    );
    let late = late.map_or_else(String::new, |late| format!(", the latest claim was {late}"));
    say(&format!("{name}: {} calls, {} of them refused{late}", counts.sent, counts.refused));
}

/// The latest claim, compared with its position in the queue, where each position takes `each` seconds: the ratio, and
/// the claim's name.
fn latest<'a>(order: &'a [String], times: &BTreeMap<String, Duration>, each: f64) -> (f64, &'a str) {
    let late = order.iter().enumerate().map(|(before, name)| {
        let position = (before + 1).max(AT_ONCE) as f64;
        (times.get(name).map_or(f64::INFINITY, |time| time.as_secs_f64() / (position * each)), name.as_str())
    });
    late.max_by(|(one, _), (other, _)| one.total_cmp(other)).unwrap_or_default()
}

fn line([name, claims, seconds, a_second, share, calls, latest, other]: [&str; 8]) -> String {
    format!("{name:<26} {claims:>7} {seconds:>8} {a_second:>9} {share:>9} {calls:>9} {latest:>7} {other:>11}")
}
