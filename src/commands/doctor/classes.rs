//! The StorageClasses of this provisioner: what they say, who may use them, and whether their stores would do it.

use std::any::TypeId;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::{Client, ResourceExt as _};

use super::{ANSWER_LIMIT, listed};
use crate::controller::decide::class::Class;
use crate::controller::decide::sample::Sample;
use crate::controller::{Options, read_owner};
use crate::provisioner::{Failure as _, Finding, Mode, Namespaces, Provisioner, ReclaimPolicy, SecretRef, Verdict};

/// Stores that are examined at the same time.
const AT_ONCE: usize = 8;
/// Longest time for the store of one class.
const LIMIT: Duration = ANSWER_LIMIT;
/// The annotation of the class that PersistentVolumeClaims get that name none.
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// What was seen of the cluster before.
#[derive(Debug)]
pub(super) struct Seen {
    /// Its uid.
    pub(super) cluster: String,
    /// All namespaces; `None` if they cannot be listed.
    pub(super) namespaces: Option<Vec<String>>,
}

/// What is found about each class of this provisioner, by name.
pub(super) async fn examine<P: Provisioner>(
    client: &Client,
    provisioner: &P,
    options: &Options,
    classes: &[StorageClass],
    seen: &Seen,
) -> Vec<(String, Vec<Finding>)> {
    let ours: Vec<_> = classes.iter().filter(|class| class.provisioner == options.provisioner_name).collect();
    if ours.is_empty() {
        let message =
            format!("no StorageClass has the provisioner {:?}, so nobody can submit a claim", options.provisioner_name);
        let remedy = "create one (docs/parameters.md), or name the operator's provisioner with --provisioner-name";
        return vec![(String::new(), vec![Finding::warning("classes", message, remedy)])];
    }
    let uid = random_uid();
    let samples: Vec<_> =
        ours.iter().map(|class| Sample::of(provisioner, &Class::read(class), &uid, &seen.cluster)).collect();
    // Of classes that ask the same of the same store the first one is examined for all.
    let first_like =
        |sample: &Sample| samples.iter().position(|other| other.as_ref().is_ok_and(|other| other.is_like(sample)));
    let examined = samples.iter().enumerate().map(|(at, sample)| {
        let sample = sample.as_ref().ok();
        let first = sample.and_then(first_like).filter(|first| *first != at);
        let like = first.and_then(|first| ours.get(first)).map(|class| class.name_any());
        async move {
            match (sample, like) {
                (Some(_), Some(like)) => vec![Finding::good("store", format!("the same as of StorageClass {like}"))],
                (Some(sample), None) => store(client, provisioner, sample).await,
                (None, _) => Vec::new(),
            }
        }
    });
    let stores: Vec<_> = stream::iter(examined).buffered(AT_ONCE).collect().await;
    let found = ours.iter().zip(&samples).zip(stores);
    found
        .map(|((class, sample), store)| {
            let mut findings = match sample {
                Ok(sample) => said(class, sample, seen),
                Err(error) => vec![Finding::failed("parameters", error, super::remedy::<P>(error.reason()))],
            };
            findings.extend(store);
            (class.name_any(), findings)
        })
        .collect()
}

/// Nobody can have created anything for a claim with this uid.
fn random_uid() -> String {
    let digits = format!("{:032x}", rand::random::<u128>());
    let part = |from, to| digits.get(from..to).unwrap_or_default();
    [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-")
}

/// What the class itself says.
fn said(class: &StorageClass, sample: &Sample, seen: &Seen) -> Vec<Finding> {
    let (plan, policy) = (&sample.record.plan, sample.record.reclaim_policy);
    let at = plan.endpoint.url.as_deref().unwrap_or(&plan.endpoint.host);
    let place = format!("at {at} in region {:?}", plan.endpoint.region);
    let gets = match (plan.mode, policy) {
        (Mode::Granted, _) => format!("claims get access to bucket {:?} {place}, which is never deleted", plan.bucket),
        (Mode::Created, ReclaimPolicy::Delete) => {
            format!("claims get new buckets {place}, which are deleted with them")
        }
        (Mode::Created, ReclaimPolicy::Retain) => {
            format!("claims get new buckets {place}, which stay when claims are deleted")
        }
    };
    let mut findings = vec![Finding::good("parameters", gets)];
    if plan.user.is_none() {
        findings.push(Finding::warning(
            "credentials of claims",
            "claims get the owner's own keys, with all that the owner may do",
            "if the store can create users, recreate the class so that each claim gets its own",
        ));
    }
    if class.annotations().get(DEFAULT_CLASS).is_some_and(|value| value == "true") {
        let message =
            "it is the cluster's default class, so PersistentVolumeClaims that name no class wait for it forever";
        findings.push(Finding::warning("default class", message, format!("remove the annotation {DEFAULT_CLASS}")));
    }
    findings.extend(namespaces(sample.common.namespaces.as_ref(), seen.namespaces.as_deref()));
    findings
}

/// Whose claims may use the class.
fn namespaces(allowed: Option<&Namespaces>, existing: Option<&[String]>) -> Vec<Finding> {
    const WHAT: &str = "namespaces";
    let Some(allowed) = allowed else {
        return vec![Finding::good(WHAT, "claims of every namespace may use it")];
    };
    let Some(existing) = existing else {
        let message = format!("claims of these namespaces may use it: {allowed}; which of them exist cannot be seen");
        return vec![Finding::unknown(WHAT, message, "run this as somebody who may list namespaces")];
    };
    let mut findings = Vec::new();
    let matching: Vec<_> = existing.iter().filter(|namespace| allowed.contain(namespace)).cloned().collect();
    if !matching.is_empty() {
        let message = format!("claims of these namespaces may use it: {}", listed(&matching));
        findings.push(Finding::good(WHAT, message));
    }
    let unused = allowed.patterns().filter(|pattern| !existing.iter().any(|namespace| pattern.contain(namespace)));
    let unused: Vec<_> = unused.map(|pattern| format!("{:?}", pattern.to_string())).collect();
    if !unused.is_empty() {
        let message = format!("no namespace matches {} of allowedNamespaces", unused.join(", "));
        let remedy = "create the namespace; if the name is wrong, recreate the class, because Kubernetes does not let parameters be edited";
        findings.push(Finding::warning(WHAT, message, remedy));
    }
    findings
}

/// Whether the store would do what the class says. One that hangs does not hold up the report.
async fn store<P: Provisioner>(client: &Client, provisioner: &P, sample: &Sample) -> Vec<Finding> {
    let mut record = sample.record.clone();
    let owner: P::Owner = match read_owner(client, &record).await {
        Ok(owner) => owner,
        Err(error) => return vec![Finding::failed("owner", &error, super::remedy::<P>(error.reason()))],
    };
    let mut findings = Vec::new();
    let place = format!("{}:{}", record.plan.endpoint.host, record.plan.endpoint.port);
    let looks = async {
        match provisioner.account(&record, &owner).await {
            Ok(account) => {
                let of = account.as_ref().map_or_else(String::new, |account| format!(", of account {account}"));
                if has_owner::<P>() {
                    let message = format!("the store accepts the owner's credentials{of}");
                    findings.push(Finding::good("credentials", message));
                }
                record.account = account;
            }
            Err(error) => {
                findings.push(Finding::failed("credentials", &error, super::remedy::<P>(error.reason())));
            }
        }
        // Also if they were refused: perhaps the clocks differ.
        findings.extend(provisioner.examine(&record, &owner).await);
    };
    if tokio::time::timeout(LIMIT, looks).await.is_err() {
        let message = format!("the store at {place} did not answer within {} s", LIMIT.as_secs());
        let remedy = "check the endpoint in the class, and whether a network policy, a proxy or a firewall keeps the store from answering";
        findings.push(Finding::bad("store", message, remedy));
    }
    let whose = whose::<P>(record.plan.owner_secret.as_ref());
    if whose.as_ref().is_some_and(|whose| whose.verdict == Verdict::Unknown) {
        // They are about somebody else.
        for finding in findings.iter_mut().filter(|finding| finding.verdict == Verdict::Bad) {
            finding.verdict = Verdict::Unknown;
        }
    }
    whose.into_iter().chain(findings).collect()
}

/// Whose credentials are used; nothing if the store needs none.
fn whose<P: Provisioner>(secret: Option<&SecretRef>) -> Option<Finding> {
    const WHAT: &str = "owner";
    match secret {
        Some(secret) => Some(Finding::good(WHAT, format!("Secret {secret} has the owner's credentials"))),
        None if !has_owner::<P>() => None,
        None if in_pod() => Some(Finding::good(WHAT, "the owner is the operator's own identity")),
        None => Some(Finding::unknown(
            WHAT,
            "the owner is the identity of the operator's pod, which cannot be seen from here: what follows is about the identity of this process",
            "run this in the operator's pod, with `kubectl exec`",
        )),
    }
}

/// Whether the store needs credentials.
fn has_owner<P: Provisioner>() -> bool {
    TypeId::of::<P::Owner>() != TypeId::of::<()>()
}

/// Kubernetes sets the variable in every pod.
fn in_pod() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::provisioner::{CommonParameters, NameRules};

    fn allowed(value: &str) -> Option<Namespaces> {
        let written = [("allowedNamespaces".to_owned(), value.to_owned())].into();
        CommonParameters::parse(&written, NameRules::S3, false).unwrap().namespaces
    }

    #[test]
    fn namespaces_are_named_and_patterns_that_match_none_are_warned_of() {
        let existing = ["shop", "team-a", "team-b"].map(str::to_owned);
        let seen = |value: &str| namespaces(allowed(value).as_ref(), Some(&existing));
        assert_eq!(
            seen("shop,team-*"),
            [Finding::good("namespaces", "claims of these namespaces may use it: shop, team-a, team-b")]
        );
        let findings = seen("shop,taem-*,ops");
        assert_eq!(findings[0].message, "claims of these namespaces may use it: shop");
        assert_eq!(findings[1].message, "no namespace matches \"taem-*\", \"ops\" of allowedNamespaces");
        assert_eq!(findings[1].verdict, Verdict::Warning);
        assert_eq!(namespaces(allowed("shop").as_ref(), None)[0].verdict, Verdict::Unknown);
        assert_eq!(namespaces(None, None)[0].verdict, Verdict::Good);
    }

    #[test]
    fn each_examination_has_a_uid_of_its_own() {
        assert_eq!(crate::provisioner::names::uid_in(&format!("a-{}", random_uid())).map(str::len), Some(36));
        assert_ne!(random_uid(), random_uid());
    }
}
