//! The StorageClasses of this provisioner: their parameters, and the namespaces that may use them.

use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt as _;

use super::stores;
use crate::cli::accounts::Accounts;
use crate::cli::output::listed;
use crate::cli::session::Session;
use crate::cli::view::Classes;
use crate::decide::class::Class;
use crate::decide::request;
use crate::decide::sample::Sample;
use crate::error::Error;
use crate::store::{Finding, Mode, Namespaces, OnDelete, Provisioner, ReclaimPolicy};

/// The annotation of the class that PersistentVolumeClaims get that name none.
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// The findings about each class of this provisioner, by name. `accounts`: what ObjectBuckets record, if they can be
/// listed.
pub(super) async fn examine<P: Provisioner>(
    session: &Session<P>,
    classes: &Classes,
    cluster: &str,
    accounts: Option<&Accounts>,
) -> Vec<(String, Vec<Finding>)> {
    let uid = random_uid();
    let ours: Vec<_> = classes.served_by(&session.provisioner).collect();
    let samples = ours.iter().map(|class| {
        let sample = Sample::of(&session.store, &Class::read(class), &uid, cluster)?;
        request::check_settings::<P>(&sample.record.plan, &sample.record.class_name)?;
        Ok::<_, Error>(sample)
    });
    let samples: Vec<_> = samples.collect();
    if ours.is_empty() {
        let provisioner = &session.provisioner;
        let message = format!("no StorageClass has the provisioner {provisioner:?}, so there are no new claims for it");
        let remedy = "create one (the command `parameters` lists its parameters), or set --provisioner-name to that of the operator";
        return vec![(String::new(), vec![Finding::about("classes").warning(message).with_remedy(remedy)])];
    }
    let namespaces = super::namespaces(session).await;
    let named: Vec<_> =
        ours.iter().map(|class| class.name_any()).zip(samples.iter().map(|sample| sample.as_ref().ok())).collect();
    let stores = stores::examine(session, &named, accounts).await;
    let found = ours.iter().zip(&samples).zip(stores);
    let findings = found.map(|((class, sample), store)| {
        let mut findings = match sample {
            Ok(sample) => settings(class, sample, namespaces.as_deref()),
            // The heading names the class.
            Err(error) => vec![Finding { message: error.of_named_class(), ..super::failed::<P>("parameters", error) }],
        };
        findings.extend(store);
        (class.name_any(), findings)
    });
    findings.collect()
}

/// Nothing can have been created for a claim with this uid.
fn random_uid() -> String {
    let digits = format!("{:032x}", rand::random::<u128>());
    let part = |from, to| digits.get(from..to).unwrap_or_default();
    [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-")
}

/// The findings about the class itself, without its store.
fn settings(class: &StorageClass, sample: &Sample, namespaces: Option<&[String]>) -> Vec<Finding> {
    let (plan, policy) = (&sample.record.plan, sample.record.reclaim_policy);
    let at = plan.endpoint.url.as_deref().unwrap_or(&plan.endpoint.host);
    let place = format!("at {at} in region {:?}", plan.endpoint.region);
    let gets = match (plan.mode, policy, plan.on_delete) {
        (Mode::Granted, ..) => format!("access to bucket {:?} {place}, which is never deleted", plan.bucket),
        (_, ReclaimPolicy::Retain, _) => format!("new buckets {place}, which stay when claims are deleted"),
        (_, _, OnDelete::Purge) => format!("new buckets {place}, which are deleted with them"),
        (_, _, OnDelete::IfEmpty) => format!("new buckets {place}, which are deleted with them if they are empty"),
        (_, _, after @ OnDelete::After(_)) => {
            format!("new buckets {place}, which are deleted some time after them (onDelete: {after})")
        }
    };
    let mut findings = vec![Finding::about("parameters").good(format!("claims get {gets}"))];
    if let Some((reason, message)) = &sample.warning {
        findings.push(Finding::about("parameters").warning(message.as_str()).with_remedy(reason.remedy));
    }
    if plan.user.is_none() {
        let message = "claims get the provisioning credentials themselves, with all their permissions";
        let remedy = "if the store can create users, recreate the class so that each claim gets its own";
        findings.push(Finding::about("credentials of claims").warning(message).with_remedy(remedy));
    }
    if class.annotations().get(DEFAULT_CLASS).is_some_and(|value| value == "true") {
        let message =
            "it is the cluster's default class, so PersistentVolumeClaims that name no class wait for it forever";
        let remedy = format!("remove the annotation {DEFAULT_CLASS}");
        findings.push(Finding::about("default class").warning(message).with_remedy(remedy));
    }
    if let Some(selector) = &sample.common.namespace_selector {
        let message = format!("claims may use it of namespaces with these labels: {selector}");
        findings.push(Finding::about("labels of namespaces").good(message));
    }
    findings.extend(usable_in(sample.common.namespaces.as_ref(), namespaces));
    findings
}

/// The namespaces whose claims may use the class.
fn usable_in(allowed: Option<&Namespaces>, existing: Option<&[String]>) -> Vec<Finding> {
    const WHAT: &str = "namespaces";
    let Some(allowed) = allowed else {
        return vec![Finding::about(WHAT).good("claims of every namespace may use it")];
    };
    let Some(existing) = existing else {
        let message = format!("claims of these namespaces may use it: {allowed}; which of them exist is unknown");
        return vec![Finding::about(WHAT).unknown(message).with_remedy("run this as a user who may list namespaces")];
    };
    let mut findings = Vec::new();
    let matching: Vec<_> = existing.iter().filter(|namespace| allowed.contain(namespace)).cloned().collect();
    if !matching.is_empty() {
        let message = format!("claims of these namespaces may use it: {}", listed(&matching, super::NAMED));
        findings.push(Finding::about(WHAT).good(message));
    }
    let unused = allowed.patterns().filter(|pattern| !existing.iter().any(|namespace| pattern.contain(namespace)));
    let unused: Vec<_> = unused.map(|pattern| format!("{:?}", pattern.to_string())).collect();
    if !unused.is_empty() {
        let message = format!("no namespace matches {} of allowedNamespaces", unused.join(", "));
        let remedy = "create the namespace; if the name is wrong, recreate the class, because Kubernetes does not let parameters be edited";
        findings.push(Finding::about(WHAT).warning(message).with_remedy(remedy));
    }
    findings
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::store::{Capabilities, CommonParameters, NameRules, Verdict};

    fn allowed(value: &str) -> Option<Namespaces> {
        let written = [("allowedNamespaces".to_owned(), value.to_owned())].into();
        CommonParameters::parse(&written, NameRules::S3, Capabilities::NONE).unwrap().namespaces
    }

    #[test]
    fn a_pattern_that_matches_no_namespace_is_a_warning() {
        let existing = ["shop", "team-a", "team-b"].map(str::to_owned);
        let seen = |value: &str| usable_in(allowed(value).as_ref(), Some(&existing));
        assert_eq!(
            seen("shop,team-*"),
            [Finding::about("namespaces").good("claims of these namespaces may use it: shop, team-a, team-b")]
        );
        let findings = seen("shop,taem-*,ops");
        assert_eq!(findings[0].message, "claims of these namespaces may use it: shop");
        assert_eq!(findings[1].message, "no namespace matches \"taem-*\", \"ops\" of allowedNamespaces");
        assert_eq!(findings[1].verdict, Verdict::Warning);
        assert_eq!(usable_in(allowed("shop").as_ref(), None)[0].verdict, Verdict::Unknown);
        assert_eq!(usable_in(None, None)[0].verdict, Verdict::Good);
    }

    #[test]
    fn each_examination_has_a_uid_of_its_own() {
        assert_eq!(crate::store::names::uid_in(&format!("a-{}", random_uid())).map(str::len), Some(36));
        assert_ne!(random_uid(), random_uid());
    }
}
