//! Whether the stores would accept what the classes demand. Classes that use the same Secret and store share the calls,
//! and their problems are explained at the first of them.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use serde_json::Value;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout_at};

use super::ANSWER_LIMIT;
use crate::cli::accounts::{Accounts, credentials};
use crate::cli::session::Session;
use crate::controller::{Owner, read_owner};
use crate::decide::sample::{Sample, has_same_credentials};
use crate::store::{Finding, OwnerRef, Plan, Provisioner, Record, Verdict};

/// Classes whose stores are examined at the same time.
const AT_ONCE: usize = 8;
/// Longest time for the store of one class.
const LIMIT: Duration = ANSWER_LIMIT;
/// The subject of findings about the Secret, or the identity of the pod.
const OWNER: &str = "owner";
const STORE: &str = "store";
/// "Service account issuer discovery", Kubernetes documentation.
const ISSUER: &str = "/.well-known/openid-configuration";

/// A class by name, and what a claim of it would get; `None` if the class cannot be used.
pub(super) type Planned<'a> = (String, Option<&'a Sample>);

/// The findings about the store of each class. `accounts`: what ObjectBuckets record, if they can be listed.
pub(super) async fn examine<P: Provisioner>(
    session: &Session<P>,
    classes: &[Planned<'_>],
    accounts: Option<&Accounts>,
) -> Vec<Vec<Finding>> {
    let samples = classes.iter().filter_map(|(_, sample)| *sample);
    let is_keyless = samples.into_iter().any(|sample| sample.record.plan.service_account.is_some());
    let issuer = if is_keyless { issuer(session).await } else { None };
    let issuer = issuer.as_deref();
    let accesses: Vec<_> = classes.iter().map(|_| OnceCell::new()).collect();
    let examined = classes.iter().enumerate().map(|(at, (_, sample))| {
        // Of classes with the same demands on the same store, only the first one is examined.
        let sample = sample.filter(|_| first(classes, at, Sample::is_like) == at);
        let access = accesses.get(first(classes, at, |one, other| has_same_credentials(&one.record, &other.record)));
        async move {
            let Some((sample, access)) = sample.zip(access) else { return Vec::new() };
            let end = Instant::now() + LIMIT;
            let access = access.get_or_init(|| access_to(session, &sample.record, accounts, end)).await;
            store(&session.store, &sample.record, access, (issuer, end)).await
        }
    });
    let examined: Vec<_> = stream::iter(examined).buffered(AT_ONCE).collect().await;
    let of = |at: usize| examined.get(first(classes, at, Sample::is_like)).map_or(&[][..], Vec::as_slice);
    (0..classes.len()).map(|at| shortened::<P>(classes, at, of)).collect()
}

/// The first class that `holds` together with the class at this index; that class itself if there is no other.
fn first(classes: &[Planned<'_>], at: usize, holds: fn(&Sample, &Sample) -> bool) -> usize {
    let Some((_, Some(sample))) = classes.get(at) else { return at };
    classes.iter().position(|(_, other)| other.is_some_and(|other| holds(other, sample))).unwrap_or(at)
}

/// Credentials for a store.
struct Access<P: Provisioner> {
    /// With the account that they belong to. `None`: they cannot be used for other calls.
    usable: Option<(Owner<P>, Option<String>)>,
    findings: Vec<Finding>,
}

/// Reads the credentials, and checks whether the store accepts them. A store that hangs does not delay the report.
async fn access_to<P: Provisioner>(
    session: &Session<P>,
    record: &Record,
    accounts: Option<&Accounts>,
    end: Instant,
) -> Access<P> {
    let owner = match read_owner::<P>(&session.client, record).await {
        Ok(owner) => owner,
        Err(error) => return Access { usable: None, findings: vec![super::failed::<P>(OWNER, &error)] },
    };
    let mut findings: Vec<_> = source::<P>(&record.plan.owner).into_iter().collect();
    let usable = match timeout_at(end, session.store.account(&owner.call(record))).await {
        Ok(Ok(account)) => {
            findings.extend(has_owner::<P>().then(|| accepted(account.as_deref())));
            let other = account.as_deref().zip(accounts).map(|(now, accounts)| of_others(accounts, record, now));
            let other = other.unwrap_or_default();
            // The answers to calls with credentials of another account would be misleading.
            let usable = other.is_empty().then_some((owner, account));
            findings.extend(other);
            usable
        }
        Ok(Err(error)) => {
            findings.push(super::failed::<P>("credentials", &error));
            // The store is examined nevertheless: perhaps the clocks differ.
            Some((owner, None))
        }
        Err(_elapsed) => {
            findings.push(silent(record));
            None
        }
    };
    Access { usable, findings }
}

/// What a success proves: only if it has an account, it comes from the store.
fn accepted(account: Option<&str>) -> Finding {
    let about = Finding::about("credentials");
    match account {
        Some(account) => about.good(format!("the store accepts the provisioning credentials, of account {account}")),
        None => about
            .unknown("this store does not report whether it accepts the provisioning credentials")
            .with_remedy("create a claim to test them"),
    }
}

/// The ObjectBuckets that use these credentials and record another account than `now`.
fn of_others(accounts: &Accounts, record: &Record, now: &str) -> Vec<Finding> {
    let owner = &record.plan.owner;
    let (same, others): (Vec<_>, Vec<_>) = accounts.of(record).partition(|(account, _)| *account == now);
    let same = same.first().map_or_else(String::new, |(_, same)| format!("; {same}"));
    let of_others = others.into_iter().map(|(account, those)| {
        let message = format!("{}, but {those}: their claims are not processed{same}", credentials(owner, now));
        let (put, new) = match owner {
            OwnerRef { role: Some(_), .. } => {
                (format!("let the operator assume a role of account {account}"), "another ownerRole")
            }
            OwnerRef { secret: Some(_), .. } => {
                (format!("put a key of account {account} into the Secret"), "a new Secret")
            }
            _ => (format!("give the operator an identity of account {account}"), "an ownerRole"),
        };
        let remedy = format!(
            "{put}, and run this again; the account of a class cannot be changed: to use account {now}, create a class with {new}"
        );
        Finding::about("account").bad(message).with_remedy(remedy)
    });
    of_others.collect()
}

/// The issuer of the cluster's tokens, if the API server shows it.
async fn issuer<P>(session: &Session<P>) -> Option<String> {
    let request = http::Request::get(ISSUER).body(Vec::new()).ok()?;
    let configuration: Value = session.client.request(request).await.ok()?;
    configuration["issuer"].as_str().map(str::to_owned)
}

/// Whether the store would accept what a class demands.
async fn store<P: Provisioner>(
    provisioner: &P,
    planned: &Record,
    access: &Access<P>,
    (issuer, end): (Option<&str>, Instant),
) -> Vec<Finding> {
    let mut findings = access.findings.clone();
    if let Some((owner, account)) = &access.usable {
        let record = Record { account: account.clone(), ..planned.clone() };
        match timeout_at(end, provisioner.examine(&owner.call(&record).with_issuer(issuer))).await {
            Ok(found) => findings.extend(found),
            Err(_elapsed) => findings.push(silent(&record)),
        }
    }
    let is_of_pod = |finding: &Finding| finding.what == OWNER && finding.verdict == Verdict::Unknown;
    if findings.iter().any(is_of_pod) {
        // The findings are about another identity than the operator's.
        for finding in findings.iter_mut().filter(|finding| finding.verdict == Verdict::Bad) {
            finding.verdict = Verdict::Unknown;
        }
    }
    findings
}

fn silent(record: &Record) -> Finding {
    let place = format!("{}:{}", record.plan.endpoint.host, record.plan.endpoint.port);
    let message = format!("the store at {place} did not answer within {} s", LIMIT.as_secs());
    let remedy = "check the endpoint in the class, and whether a network policy, a proxy or a firewall keeps the store from answering";
    Finding::about(STORE).bad(message).with_remedy(remedy)
}

/// Where the credentials come from; `None` if the store needs none.
fn source<P: Provisioner>(owner: &OwnerRef) -> Option<Finding> {
    let about = Finding::about(OWNER);
    let assume = owner.role.as_ref().map_or_else(String::new, |role| format!(", which assume role {role}"));
    Some(match &owner.secret {
        Some(secret) => about.good(format!("Secret {secret} has the provisioning credentials{assume}")),
        None if !has_owner::<P>() => return None,
        // Kubernetes sets the variable in every pod.
        None if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() => {
            about.good(format!("the provisioning credentials are the operator's own identity{assume}"))
        }
        None => about
            .unknown("the provisioning credentials are the identity of the operator's pod, which cannot be seen from here; the checks below use the identity of this process")
            .with_remedy("run this in the operator's pod, with `kubectl exec`"),
    })
}

/// Whether the store needs credentials.
fn has_owner<P: Provisioner>() -> bool {
    TypeId::of::<P::Owner>() != TypeId::of::<()>()
}

/// The findings of a class, without those that an earlier class with the same Secret or store has explained.
fn shortened<'f, P: Provisioner>(
    classes: &[Planned<'_>],
    at: usize,
    of: impl Fn(usize) -> &'f [Finding],
) -> Vec<Finding> {
    let Some((_, Some(sample))) = classes.get(at) else { return Vec::new() };
    let earlier = classes.iter().take(at).enumerate().filter_map(|(index, (name, other))| {
        let shared = shared::<P>(&sample.record.plan, &(*other)?.record.plan)?;
        Some(((name.as_str(), shared), of(index)))
    });
    let earlier: Vec<_> = earlier.collect();
    let is_alike = first(classes, at, Sample::is_like) != at;
    let mut left = Vec::new();
    let mut known: BTreeMap<(&str, &str), Vec<&Finding>> = BTreeMap::new();
    for finding in of(at) {
        match earlier.iter().find(|(_, theirs)| theirs.contains(finding)) {
            Some((there, _)) if finding.verdict != Verdict::Good => known.entry(*there).or_default().push(finding),
            Some(_) if is_alike => {}
            _ => left.push(finding.clone()),
        }
    }
    left.extend(known.iter().map(|(there, findings)| reference(*there, findings)));
    if let Some((name, _)) = classes.get(first(classes, at, Sample::is_like)).filter(|_| is_alike && left.is_empty()) {
        left.push(Finding::about(STORE).good(format!("the same as for StorageClass {name:?}")));
    }
    left
}

/// What two classes share; `None` if the problems of one do not affect the other.
fn shared<P: Provisioner>(one: &Plan, other: &Plan) -> Option<&'static str> {
    let is_same_store = one.endpoint == other.endpoint;
    match &one.owner.secret {
        _ if one.owner != other.owner => None,
        Some(_) if is_same_store => Some("Secret and store"),
        Some(_) => Some("Secret"),
        None if is_same_store && has_owner::<P>() => Some("identity and store"),
        None => is_same_store.then_some("store"),
    }
}

/// Findings that are explained at another class. Each class is counted, because each has claims that do not work.
fn reference((class, shared): (&str, &str), findings: &[&Finding]) -> Finding {
    let mut about: Vec<_> = findings.iter().map(|finding| finding.what.as_str()).collect();
    about.dedup();
    let message = format!("the same as for StorageClass {class:?}: {}", about.join(", "));
    let remedy = format!("see StorageClass {class:?}, which uses the same {shared}");
    let has = |verdict| findings.iter().any(|finding| finding.verdict == verdict);
    let verdict = [Verdict::Bad, Verdict::Warning].into_iter().find(|verdict| has(*verdict));
    Finding {
        verdict: verdict.unwrap_or(Verdict::Unknown),
        ..Finding::about(STORE).unknown(message).with_remedy(remedy)
    }
}
