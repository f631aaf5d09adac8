//! Anything at any time: claims come, change and go while the operator is killed, servers fail and watches end.
//! After each round all of that stops, and everything has to settle.
//!
//! One short round runs with the other tests; `hack/chaos.sh` runs more. The seed decides what is done and which
//! calls fail, as far as calls come in the same order: timing is the machine's, so a seed makes a failure likely to
//! show again, not certain.
//!
//! | variable | default | meaning |
//! |---|---|---|
//! | `CHAOS_SEED` | random | where the dice begin |
//! | `CHAOS_ROUNDS` | 1 | how many rounds |

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::json;

use crate::support::World;
use crate::support::aws_proxy::Strictness;
use crate::support::footprint::Footprint;
use crate::support::operator::{Binary, Log};
use crate::support::proxy::{Call, Ending, Verdict};

/// Things that are done in a round.
const DEEDS: usize = 24;
/// Claims that exist at the same time, at most.
const CLAIMS: usize = 8;

/// What the names of buckets begin with that may outlive their claims.
const KEPT: &str = "kept";

#[tokio::test]
async fn every_claim_recovers_once_the_faults_stop() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let seed = number("CHAOS_SEED").unwrap_or_else(rand::random);
    let rounds = number("CHAOS_ROUNDS").unwrap_or(1);
    println!("chaos: CHAOS_SEED={seed} CHAOS_ROUNDS={rounds}");
    let mut chaos = Chaos::begin(seed).await;
    for round in 1..=rounds {
        chaos.history.push(format!("round {round}"));
        for _ in 0..DEEDS {
            chaos.do_something().await;
        }
        chaos.stop().await;
        chaos.assert_all_well().await;
        println!("chaos: round {round} of {rounds}: {} claims are well", chaos.claims.len());
    }
    chaos.end().await;
}

/// What a class gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Greenfield,
    Brownfield,
    Retain,
}

const KINDS: [Kind; 3] = [Kind::Greenfield, Kind::Brownfield, Kind::Retain];

struct Chaos {
    world: World,
    seed: u64,
    dice: StdRng,
    operator: Option<Binary>,
    /// Of all operators so far.
    logs: Vec<Log>,
    /// The claims that should exist.
    claims: BTreeMap<String, Kind>,
    /// The claims that should not, any more.
    deleted: BTreeSet<String>,
    made: usize,
    before: Footprint,
    /// What was done.
    history: Vec<String>,
}

impl Drop for Chaos {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let logs: Vec<_> = self.logs.iter().map(|log| log.borrow().clone()).collect();
            eprintln!("the logs of all operators:\n{}", logs.join("--- killed, and started again\n"));
            eprintln!("what was done: {:#?}\nchaos: failed with CHAOS_SEED={}", self.history, self.seed);
        }
    }
}

impl Chaos {
    async fn begin(seed: u64) -> Self {
        let world = World::new().await;
        world.create_unrelated_objects().await;
        let archive = world.unique("archive");
        world.account.create_bucket(&archive).await;
        let late = Duration::from_secs(2);
        world.aws.upstream().strict(Strictness { key_delay: late, lag: late, name_delay: late, ..Strictness::PROMPT });
        let mut chaos = Self {
            before: Footprint::default(),
            seed,
            dice: StdRng::seed_from_u64(seed),
            operator: None,
            logs: Vec::new(),
            claims: BTreeMap::new(),
            deleted: BTreeSet::new(),
            made: 0,
            history: Vec::new(),
            world,
        };
        chaos.before = chaos.footprint().await;
        for kind in KINDS {
            chaos.class(kind).await;
        }
        chaos.start();
        chaos
    }

    /// All but the classes, which come and go.
    async fn footprint(&self) -> Footprint {
        let mut found = self.world.footprint().await;
        found.objects.retain(|name, _| !name.starts_with("StorageClass "));
        found
    }

    fn start(&mut self) {
        let operator = Binary::start(&self.world, &["-v=2"], &[]);
        self.logs.push(operator.log_so_far());
        self.operator = Some(operator);
    }

    async fn class(&self, kind: Kind) -> String {
        match kind {
            Kind::Greenfield => self.world.class("greenfield").await,
            Kind::Brownfield => {
                let archive = self.world.unique("archive");
                self.world.class_with("brownfield", "Delete", &[("bucketName", &archive)]).await
            }
            Kind::Retain => self.world.class_with("retain", "Retain", &[]).await,
        }
    }

    fn class_name(&self, kind: Kind) -> String {
        self.world.unique(match kind {
            Kind::Greenfield => "greenfield",
            Kind::Brownfield => "brownfield",
            Kind::Retain => "retain",
        })
    }

    async fn do_something(&mut self) {
        let pause = self.dice.random_range(0..400);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        match self.dice.random_range(0..100) {
            0..30 => self.submit().await,
            30..45 => self.delete().await,
            45..50 => self.edit().await,
            50..60 => self.harm_outputs().await,
            60..72 => self.kill().await,
            72..84 => self.let_calls_fail(),
            84..88 => self.deny(),
            88..92 => self.end_watches(),
            92..96 => self.take_down().await,
            _ => self.replace_class().await,
        }
    }

    fn note(&mut self, what: impl Into<String>) {
        self.history.push(what.into());
    }

    async fn submit(&mut self) {
        if self.claims.len() >= CLAIMS {
            return;
        }
        self.made += 1;
        let (name, kind) = (format!("claim-{}", self.made), *KINDS.choose(&mut self.dice).unwrap());
        let mut spec = json!({ "storageClassName": self.class_name(kind) });
        match kind {
            Kind::Brownfield => {}
            Kind::Greenfield if self.dice.random() => spec["bucketName"] = json!(self.world.unique(&name)),
            Kind::Greenfield => spec["generateBucketName"] = json!(self.world.unique("b")),
            Kind::Retain => spec["generateBucketName"] = json!(self.world.unique(KEPT)),
        }
        self.note(format!("submit {name}: {spec}"));
        self.world.claim_with(&name, spec).await;
        self.claims.insert(name, kind);
    }

    fn any_claim(&mut self) -> Option<String> {
        let names: Vec<_> = self.claims.keys().cloned().collect();
        names.choose(&mut self.dice).cloned()
    }

    async fn delete(&mut self) {
        let Some(name) = self.any_claim() else { return };
        self.note(format!("delete {name}"));
        self.world.delete_claim(&name).await;
        self.claims.remove(&name);
        self.deleted.insert(name);
    }

    /// Asks for another bucket. Of a bound claim the API server refuses that.
    async fn edit(&mut self) {
        let Some(name) = self.any_claim() else { return };
        let claim = self.world.claims().get(&name).await.unwrap();
        if claim.spec.generate_bucket_name.is_some() || claim.spec.bucket_name.is_none() {
            return;
        }
        let edit = json!({ "spec": { "bucketName": self.world.unique(&format!("{name}-{}", self.history.len())) } });
        let edited = self.world.claims().patch(&name, &PatchParams::default(), &Patch::Merge(edit)).await;
        self.note(format!("edit {name}: {}", edited.map_or_else(|refused| refused.to_string(), |_| "done".to_owned())));
    }

    async fn harm_outputs(&mut self) {
        let Some(name) = self.any_claim() else { return };
        let lacking = |key: &str| Patch::Merge(json!({ "data": { key: null } }));
        let (secrets, config_maps, now) = (self.world.secrets(), self.world.config_maps(), PatchParams::default());
        let what = self.dice.random_range(0..4);
        // There may be none yet.
        let harmed = match what {
            0 => secrets.delete(&name, &DeleteParams::default()).await.is_ok(),
            1 => config_maps.delete(&name, &DeleteParams::default()).await.is_ok(),
            2 => secrets.patch(&name, &now, &lacking("AWS_SECRET_ACCESS_KEY")).await.is_ok(),
            _ => config_maps.patch(&name, &now, &lacking("BUCKET_NAME")).await.is_ok(),
        };
        let what = ["delete the Secret", "delete the ConfigMap", "harm the Secret", "harm the ConfigMap"][what];
        self.note(format!("{what} of {name}: {harmed}"));
    }

    async fn kill(&mut self) {
        self.note("kill");
        if let Some(operator) = self.operator.take() {
            operator.kill().await;
        }
        self.start();
    }

    /// Some of the next calls fail, each in its own way.
    fn let_calls_fail(&mut self) {
        let share = self.dice.random_range(0.1..0.5);
        let mut dice = StdRng::seed_from_u64(self.dice.random());
        let is_aws = self.dice.random();
        let rule = move |_: &Call| match dice.random_bool(share) {
            true => any_fault(&mut dice, is_aws),
            false => Verdict::Pass,
        };
        if is_aws {
            self.note(format!("{share:.2} of the calls to AWS fail"));
            self.world.aws.inject(rule);
        } else {
            self.note(format!("{share:.2} of the calls to Kubernetes fail"));
            self.world.kubernetes.inject(rule);
        }
    }

    /// The provisioning credentials lack one permission.
    fn deny(&mut self) {
        let operations = ["CreateBucket", "CreateUser", "PutUserPolicy", "CreateAccessKey", "GetUser", "DeleteUser"];
        let denied = *operations.choose(&mut self.dice).unwrap();
        self.note(format!("deny {denied}"));
        self.world.aws.inject(move |call| match call.name == denied {
            true => error(403, "AccessDenied", true),
            false => Verdict::Pass,
        });
    }

    fn end_watches(&mut self) {
        let ending = *[Ending::Closed, Ending::Broken, Ending::Expired].choose(&mut self.dice).unwrap();
        self.note(format!("end watches: {ending:?}"));
        self.world.kubernetes.end_watches(ending);
    }

    async fn take_down(&mut self) {
        let time = Duration::from_millis(self.dice.random_range(50..1000));
        if self.dice.random() {
            self.note(format!("AWS is down for {time:?}"));
            self.world.aws.down().await;
            tokio::time::sleep(time).await;
            self.world.aws.up();
        } else {
            self.note(format!("Kubernetes is down for {time:?}"));
            self.world.kubernetes.down().await;
            tokio::time::sleep(time).await;
            self.world.kubernetes.up();
        }
    }

    async fn replace_class(&mut self) {
        let kind = *KINDS.choose(&mut self.dice).unwrap();
        let gone = Duration::from_millis(self.dice.random_range(0..500));
        self.note(format!("the class {kind:?} is deleted for {gone:?}"));
        let classes: Api<StorageClass> = Api::all(self.world.client.clone());
        classes.delete(&self.class_name(kind), &DeleteParams::default()).await.unwrap();
        tokio::time::sleep(gone).await;
        self.class(kind).await;
    }

    /// Nothing fails any more. A new operator does not know the backoff of the one before: up to minutes after what an
    /// admin has to fix.
    async fn stop(&mut self) {
        self.world.aws.leave_alone();
        self.world.kubernetes.leave_alone();
        self.kill().await;
    }

    async fn assert_all_well(&self) {
        for name in &self.deleted {
            self.world.wait_gone(name).await;
            self.world.assert_no_objects(name).await;
        }
        for name in self.claims.keys() {
            self.assert_well(name).await;
        }
        let made = self.made().await;
        assert_eq!(made.store.users.len(), self.claims.len(), "a user for each claim: {made:#?}");
        let greenfield = self.claims.values().filter(|kind| **kind == Kind::Greenfield).count();
        let buckets = made.store.buckets.keys().filter(|name| !self.is_kept(name)).count();
        assert_eq!(buckets, greenfield, "a bucket for each claim that has one of its own: {made:#?}");
    }

    /// What there is now and was not before. What was before must be as it was, but for the bucket that claims share.
    async fn made(&self) -> Footprint {
        let (mut now, mut before) = (self.footprint().await, self.before.clone());
        let archive = self.world.unique("archive");
        now.store.buckets.remove(&archive).expect("the archive");
        before.store.buckets.remove(&archive);
        now.beyond(&before)
    }

    /// Whether a bucket is of a claim whose class retains.
    fn is_kept(&self, bucket: &str) -> bool {
        bucket.starts_with(&self.world.unique(KEPT))
    }

    /// Requires that a claim is bound and usable, with one user and one key.
    async fn assert_well(&self, name: &str) {
        let world = &self.world;
        let claim = world.wait_bound(name).await;
        world
            .wait_secret(name, |keys| {
                ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].iter().all(|key| keys.contains_key(*key))
            })
            .await;
        world.wait_config_map(name, |data| data.contains_key("BUCKET_NAME")).await;
        world.wait_reason(name, "Bound").await;
        let users = world.account.users_with(&claim.uid().unwrap()).await;
        assert_eq!(users.len(), 1, "one user for {name}: {users:?}");
        let environment = world.environment(name).await;
        let (app, bucket) = (world.app(name).await, &environment["BUCKET_NAME"]);
        app.put(bucket, name).await.unwrap_or_else(|code| panic!("{name} cannot write: {code}"));
        let objects = app.list(bucket).await.unwrap_or_else(|code| panic!("{name} cannot list: {code}"));
        assert!(objects.contains(&name.to_owned()), "{objects:?}");
        world.wait_keys(&users[0], &[&environment["AWS_ACCESS_KEY_ID"]]).await;
    }

    /// Deletes what is left, and requires that nothing of it stays but what is retained.
    async fn end(&mut self) {
        self.note("the end");
        for name in std::mem::take(&mut self.claims).into_keys() {
            self.world.delete_claim(&name).await;
            self.deleted.insert(name);
        }
        self.assert_all_well().await;
        let mut left = self.made().await;
        left.store.buckets.retain(|name, _| !self.is_kept(name));
        assert_eq!(left, Footprint::default());
        self.world.clear_away().await;
    }
}

fn any_fault(dice: &mut StdRng, is_aws: bool) -> Verdict {
    match dice.random_range(0..8) {
        0 => Verdict::Reset,
        1 => Verdict::LoseAnswer,
        2 => Verdict::Delay(Duration::from_millis(dice.random_range(1..500))),
        3 => Verdict::Truncate(dice.random_range(0..200)),
        4 => error(503, "SlowDown", is_aws),
        5 => error(429, "TooManyRequests", is_aws),
        _ => error(500, "InternalError", is_aws),
    }
}

/// An error as S3 and IAM, or Kubernetes, write it.
fn error(status: u16, reason: &str, is_aws: bool) -> Verdict {
    let error = format!("<Error><Code>{reason}</Code><Message>chaos</Message></Error>");
    let text = match is_aws {
        // S3 reads the inner element, IAM the outer one.
        true => format!("<ErrorResponse>{error}<Code>{reason}</Code></ErrorResponse>"),
        false => json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason,
            "message": "chaos", "code": status,
        })
        .to_string(),
    };
    Verdict::Answer(status, text)
}
