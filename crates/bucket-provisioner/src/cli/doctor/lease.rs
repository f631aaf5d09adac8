//! Which operator leads, and its version.

use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::{Api, ResourceExt as _};

use crate::cli::lease::{self, age, leads, valid};
use crate::cli::session::{Session, pages};
use crate::store::Finding;
use operator_runtime::kubernetes::answers::{describe, status_code};
use operator_runtime::lease::{Options, version_of_holder};

/// How often a Lease that looks stale is read again, and the pause: the clock of its holder may be wrong.
const READS: u32 = 6;
const PAUSE: Duration = Duration::from_secs(1);

/// The namespace of the Lease, if it is known, and the findings about each Lease of that name.
pub(super) async fn examine<P>(session: &Session<P>) -> (Option<String>, Vec<(String, Vec<Finding>)>) {
    let about = || Finding::about("holder");
    let Some(wanted) = &session.lease else {
        let message = "without leader election, this command cannot see whether an operator runs";
        return (None, vec![(String::new(), vec![about().unknown(message).with_remedy("check its pod")])]);
    };
    let here = if wanted.namespace.is_empty() { &session.config.default_namespace } else { &wanted.namespace };
    let alone = |finding| (Some(here.clone()), vec![(wanted.name.clone(), vec![finding])]);
    let found = match find(session, wanted, here).await {
        Ok(found) if found.is_empty() => return alone(absent(wanted, &others(session, wanted).await)),
        Ok(found) => found,
        Err(error) => {
            let message = format!("Lease {} cannot be read: {}", wanted.name, describe(&error));
            let remedy = "run this as a user who may read Leases, or set --lease-namespace";
            return alone(about().unknown(message).with_remedy(remedy));
        }
    };
    // Concurrently, because each is compared with the time at which it was read.
    let leases: Vec<(Lease, Timestamp)> = join_all(found.into_iter().map(|lease| settled(session, lease))).await;
    let leaders = leases.iter().filter(|(lease, read)| leads(lease, *read)).count();
    let leader = leases.iter().find(|(lease, read)| leads(lease, *read)).or(leases.first());
    let place = leader.and_then(|(lease, _)| lease.namespace());
    let findings = leases.iter().map(|(lease, read)| {
        let subject = format!("{}/{}", lease.namespace().unwrap_or_default(), lease.name_any());
        if leaders > 0 && !leads(lease, *read) {
            return (subject, vec![abandoned(lease)]);
        }
        let version = version(lease, session);
        let findings = [holder(lease, *read)].into_iter().chain(version).chain((leaders > 1).then(two_leaders));
        (subject, findings.collect())
    });
    (place, findings.collect())
}

/// The Leases of this name, in one namespace or in all.
async fn find<P>(session: &Session<P>, wanted: &Options, here: &str) -> kube::Result<Vec<Lease>> {
    if wanted.namespace.is_empty() {
        let everywhere: Api<Lease> = Api::all(session.client.clone());
        match everywhere.list(&ListParams::default().fields(&format!("metadata.name={}", wanted.name))).await {
            Ok(list) => return Ok(list.items),
            Err(error) if status_code(&error) == Some(403) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(session.of::<Lease>(here).get_opt(&wanted.name).await?.into_iter().collect())
}

/// The Leases that may be meant, by namespace and name: in another namespace, or of operators for the same provisioner
/// that serve other namespaces. None if they cannot be listed.
async fn others<P>(session: &Session<P>, wanted: &Options) -> Vec<(String, String)> {
    let everywhere = operator_runtime::lease::name(&session.provisioner, None);
    let may_be_meant = |name: &str| {
        let of_namespace = name.strip_prefix(&everywhere).is_some_and(|rest| rest.starts_with(NAMESPACE));
        name == everywhere || name == wanted.name || of_namespace
    };
    let keep = |lease: PartialObjectMeta<Lease>| {
        let name = lease.metadata.name.filter(|name| may_be_meant(name))?;
        Some((lease.metadata.namespace.unwrap_or_default(), name))
    };
    let api: Api<Lease> = Api::all(session.client.clone());
    pages(ListParams::default(), async |params| api.list_metadata(&params).await, keep).await.unwrap_or_default()
}

/// What precedes the namespace in the name of a Lease.
const NAMESPACE: &str = "--";

fn absent(wanted: &Options, others: &[(String, String)]) -> Finding {
    let place = match wanted.namespace.as_str() {
        "" => String::new(),
        namespace => format!(" in namespace {namespace}"),
    };
    let message = format!("there is no Lease {}{place}: no operator has run, or it serves other claims", wanted.name);
    let about = Finding::about("holder");
    let is_called = |other: &&(String, String)| other.1 == wanted.name;
    let Some((namespace, name)) = others.iter().find(is_called).or(others.first()) else {
        let remedy = "start the operator; if it runs, give this command the operator's --provisioner-name, --namespace, --lease-name and --lease-namespace, or --leader-elect=false";
        return about.bad(message).with_remedy(remedy);
    };
    let remedy = format!(
        "start the operator; if you mean that of Lease {namespace}/{name}, give this command its --namespace, and --lease-namespace {namespace}"
    );
    about.bad(format!("{message}; there is a Lease {namespace}/{name}")).with_remedy(remedy)
}

/// Reads a Lease that looks stale again: its holder may renew it by another clock. Also returns when it was read.
async fn settled<P>(session: &Session<P>, mut lease: Lease) -> (Lease, Timestamp) {
    let mut read = Timestamp::now();
    let api = session.of::<Lease>(&lease.namespace().unwrap_or_default());
    let first = lease.metadata.resource_version.clone();
    for _ in 0..READS {
        if leads(&lease, read) || lease::holder(&lease).is_none() {
            break;
        }
        tokio::time::sleep(PAUSE).await;
        match api.get_opt(&lease.name_any()).await {
            Ok(Some(now)) => (lease, read) = (now, Timestamp::now()),
            Ok(None) | Err(_) => break,
        }
        if lease.metadata.resource_version != first {
            // It is renewed: only the clocks differ.
            if let Some(spec) = &mut lease.spec {
                spec.renew_time = Some(MicroTime(read));
            }
            break;
        }
    }
    (lease, read)
}

fn holder(lease: &Lease, now: Timestamp) -> Finding {
    const WHAT: &str = "holder";
    const REMEDY: &str = "check the operator's pods and their logs (`kubectl get pods`, `kubectl logs`)";
    let Some(holder) = lease::holder(lease) else {
        let message = "nobody holds the lease: the last operator has stopped, and no other has started";
        return Finding::about(WHAT).bad(message).with_remedy(REMEDY);
    };
    let (age, valid) = (age(lease, now), valid(lease));
    if age > valid {
        let ago = match age {
            Duration::MAX => "has never renewed it".to_owned(),
            age => format!("renewed it {} s ago", age.as_secs()),
        };
        let message = format!(
            "{holder} holds the lease, but {ago}, and it is valid for {} s: no operator serves",
            valid.as_secs()
        );
        return Finding::about(WHAT).bad(message).with_remedy(REMEDY);
    }
    Finding::about(WHAT).good(format!("{holder} leads, and renewed the lease {} s ago", age.as_secs()))
}

fn version<P>(lease: &Lease, session: &Session<P>) -> Option<Finding> {
    const WHAT: &str = "version";
    let (ours, program) = (session.version.as_str(), session.program.as_str());
    lease::holder(lease).filter(|_| !ours.is_empty())?;
    Some(match version_of_holder(lease) {
        Some(version) if version == ours => {
            Finding::about(WHAT).good(format!("the leader is version {version}, as this program is"))
        }
        Some(version) => Finding::about(WHAT).warning(format!(
                "the leader is version {version}, and this program is {ours}: some findings may not apply to that version"
            )).with_remedy(format!("use the `{program}` of the leader's version, or upgrade the operator")),
        None => {
            Finding::about(WHAT).unknown("the leader does not report its version").with_remedy("check the image of the operator's pods")
        }
    })
}

/// An operator led in this namespace, perhaps on an admin's machine, and another one leads in another namespace.
fn abandoned(lease: &Lease) -> Finding {
    let (name, namespace) = (lease.name_any(), lease.namespace().unwrap_or_default());
    Finding::about("holder")
        .warning("its last holder no longer leads; another operator leads in another namespace")
        .with_remedy(format!("if that operator will not return: `kubectl delete lease {name} --namespace {namespace}`"))
}

fn two_leaders() -> Finding {
    Finding::about("leaders")
        .bad("Leases of this name are held in several namespaces: all holders serve the same claims")
        .with_remedy("stop one of the operators, or give one another --provisioner-name")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::store::Verdict;

    fn now() -> Timestamp {
        "2026-01-01T00:01:00Z".parse().unwrap()
    }

    fn lease(holder: &str, renewed: &str) -> Lease {
        serde_json::from_value(json!({
            "metadata": { "name": "l", "namespace": "ops" },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed },
        }))
        .unwrap()
    }

    #[test]
    fn a_leader_that_has_not_renewed_in_time_is_bad() {
        let finding = |lease: &Lease| holder(lease, now());
        assert_eq!(finding(&lease("pod-1", "2026-01-01T00:00:45.000000Z")).verdict, Verdict::Good);
        // A clock that is ahead.
        assert_eq!(finding(&lease("pod-1", "2026-01-01T00:10:00.000000Z")).verdict, Verdict::Good);
        let stale = finding(&lease("pod-1", "2026-01-01T00:00:44.000000Z"));
        assert_eq!(stale.verdict, Verdict::Bad);
        assert!(stale.message.contains("pod-1") && stale.message.contains("16 s ago"), "{}", stale.message);
        let free = finding(&lease("", "2026-01-01T00:00:59.000000Z"));
        assert!(free.verdict == Verdict::Bad && free.message.contains("nobody"), "{}", free.message);
        let leading = |holder, renewed| leads(&lease(holder, renewed), now());
        assert!(leading("pod-1", "2026-01-01T00:00:45.000000Z"));
        assert!(!leading("pod-1", "2026-01-01T00:00:44.000000Z") && !leading("", "2026-01-01T00:00:59.000000Z"));
    }
}
