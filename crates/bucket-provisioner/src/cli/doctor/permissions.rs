//! What the operator may do in the cluster, from access reviews of the API server. A review changes nothing.

use std::collections::BTreeMap;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::PostParams;

use super::Account;
use crate::api::wire::CLUSTER_NAMESPACE;
use crate::cli::rbac::{self, Rules};
use crate::cli::session::Session;
use crate::store::Finding;
use operator_runtime::kubernetes::answers::describe;

const WHAT: &str = "cluster";
/// Reviews that run at the same time.
const AT_ONCE: usize = 8;
/// The cluster-scoped resources of the rules.
const IN_NO_NAMESPACE: [&str; 4] = ["objectbuckets", "objectbuckets/status", "storageclasses", CRDS];
const CRDS: &str = "customresourcedefinitions";
const NAMESPACES: &str = "namespaces";

/// Whether the account has each permission that the operator needs. `lease`: the namespace of the Lease, if there is
/// one.
pub(super) async fn examine<P>(
    session: &Session<P>,
    lease: Option<&str>,
    account: Option<&Account>,
) -> serde_json::Result<Vec<Finding>> {
    let lease_name = session.lease.as_ref().map(|lease| lease.name.as_str());
    let rules = rbac::rules(lease_name.unwrap_or_default())?;
    let reviewed = stream::iter(needed(&rules, session.namespace.as_deref(), lease)).map(async |attributes| {
        let allowed = review(session, account, attributes.clone()).await;
        (attributes, allowed)
    });
    let answers: Vec<_> = reviewed.buffered(AT_ONCE).collect().await;
    Ok(judge(answers, &remedy(session, lease_name.zip(lease), account), account))
}

/// How the operator gets missing permissions. The roles that are applied replace its own, so they must be made for this
/// operator.
fn remedy<P>(session: &Session<P>, lease: Option<(&str, &str)>, account: Option<&Account>) -> String {
    let mut rbac = format!("{} rbac --provisioner-name {}", session.program, session.provisioner);
    let mut more = "";
    if let Some(namespace) = &session.namespace {
        rbac.push_str(&format!(" --namespace {namespace}"));
        more = ", with each --owner-secret and --owner-namespace with which it was installed";
    }
    if let Some((name, namespace)) = lease {
        rbac.push_str(&format!(" --lease-name {name} --lease-namespace {namespace}"));
    }
    match account {
        Some((of, name)) => format!(
            "if Helm installed it, `helm upgrade`; if not, `{rbac} --operator-namespace {of} --service-account {name} | \
             kubectl apply --filename -`{more}"
        ),
        None => format!("apply the output of `{rbac}`{more}, and bind it to the account that runs the operator"),
    }
}

/// Each permission as one review. `served`: the only namespace that the operator serves.
fn needed(rules: &Rules, served: Option<&str>, lease: Option<&str>) -> Vec<ResourceAttributes> {
    let everywhere = expand(&rules.everywhere, |resource| served.filter(|_| !IN_NO_NAMESPACE.contains(&resource)));
    let everywhere = everywhere.into_iter().flat_map(|attributes| match (served, attributes.resource.as_deref()) {
        (Some(served), Some(NAMESPACES)) => {
            [CLUSTER_NAMESPACE, served].map(|name| one_namespace(&attributes, name)).to_vec()
        }
        _ => vec![attributes],
    });
    let of_the_lease = lease.map(|lease| expand(&rules.of_the_lease, |_| Some(lease)));
    let of_all = lease.map(|_| expand(&rules.of_the_cluster_lease, |_| Some(CLUSTER_NAMESPACE)));
    everywhere.chain(of_the_lease.into_iter().flatten()).chain(of_all.into_iter().flatten()).collect()
}

/// In a review, a namespace is an object in itself.
fn one_namespace(attributes: &ResourceAttributes, name: &str) -> ResourceAttributes {
    let name = Some(name.to_owned());
    ResourceAttributes { namespace: name.clone(), name, ..attributes.clone() }
}

fn expand<'a>(rules: &[PolicyRule], namespace: impl Fn(&str) -> Option<&'a str>) -> Vec<ResourceAttributes> {
    let mut all = Vec::new();
    for rule in rules {
        let names = rule.resource_names.iter().flatten().cloned().map(Some).collect::<Vec<_>>();
        let names = if names.is_empty() { vec![None] } else { names };
        let resources = || rule.resources.iter().flatten();
        for (group, full) in rule.api_groups.iter().flatten().flat_map(|group| resources().map(move |it| (group, it))) {
            let (resource, subresource) =
                full.split_once('/').map_or((full.as_str(), None), |(it, sub)| (it, Some(sub)));
            for (verb, name) in rule.verbs.iter().flat_map(|verb| names.iter().map(move |name| (verb, name))) {
                all.push(ResourceAttributes {
                    group: Some(group.clone()),
                    resource: Some(resource.to_owned()),
                    subresource: subresource.map(str::to_owned),
                    verb: Some(verb.clone()),
                    name: name.clone(),
                    namespace: namespace(full).map(str::to_owned),
                    ..ResourceAttributes::default()
                });
            }
        }
    }
    all
}

/// Whether the account, or else the user of this command, has a permission.
async fn review<P>(
    session: &Session<P>,
    account: Option<&Account>,
    attributes: ResourceAttributes,
) -> kube::Result<bool> {
    let (resource_attributes, params) = (Some(attributes), PostParams::default());
    let Some((namespace, name)) = account else {
        let spec = SelfSubjectAccessReviewSpec { resource_attributes, ..Default::default() };
        let review = SelfSubjectAccessReview { spec, ..Default::default() };
        let answer = session.all().create(&params, &review).await?;
        return Ok(answer.status.is_some_and(|status| status.allowed));
    };
    // The groups that the API server gives every ServiceAccount ("Authenticating", Kubernetes documentation).
    let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}"), "system:authenticated"];
    let spec = SubjectAccessReviewSpec {
        user: Some(format!("system:serviceaccount:{namespace}:{name}")),
        groups: Some(groups.map(str::to_owned).to_vec()),
        resource_attributes,
        ..Default::default()
    };
    let answer = session.all().create(&params, &SubjectAccessReview { spec, ..Default::default() }).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

fn judge(
    answers: Vec<(ResourceAttributes, kube::Result<bool>)>,
    remedy: &str,
    account: Option<&Account>,
) -> Vec<Finding> {
    let number = answers.len();
    let mut missing: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut unanswered = None;
    for (attributes, allowed) in answers {
        match allowed {
            Ok(true) => {}
            Ok(false) => {
                missing.entry(describe_object(&attributes)).or_default().push(attributes.verb.unwrap_or_default())
            }
            Err(error) => unanswered = Some(describe(&error)),
        }
    }
    let (may, has) = match account {
        Some((of, name)) => (format!("ServiceAccount {of}/{name} may"), format!("ServiceAccount {of}/{name} has")),
        None => ("you may".to_owned(), "you have".to_owned()),
    };
    let mut findings: Vec<_> = missing
        .iter()
        .map(|(object, verbs)| {
            Finding::about(WHAT).bad(format!("{may} not {} {object}", verbs.join(", "))).with_remedy(remedy)
        })
        .collect();
    if let Some(problem) = unanswered {
        let remedy = "run this as a user who may create SubjectAccessReviews, such as a cluster admin";
        let message = format!("not every permission could be checked: {problem}");
        findings.push(Finding::about(WHAT).unknown(message).with_remedy(remedy));
    }
    if findings.is_empty() {
        let hint = match account {
            Some(_) => String::new(),
            None => "; to check those of the operator, set --service-account to its account".to_owned(),
        };
        findings
            .push(Finding::about(WHAT).good(format!("{has} all {number} permissions that the operator needs{hint}")));
    }
    findings
}

/// Such as `secrets in namespace shop`.
fn describe_object(attributes: &ResourceAttributes) -> String {
    let part = |text: &Option<String>, before: &str| match text.as_deref() {
        None | Some("") => String::new(),
        Some(text) => format!("{before}{text}"),
    };
    format!(
        "{}{}{}{}{}",
        part(&attributes.resource, ""),
        part(&attributes.group, "."),
        part(&attributes.subresource, "/"),
        part(&attributes.name, " "),
        part(
            &attributes.namespace.clone().filter(|_| attributes.resource.as_deref() != Some(NAMESPACES)),
            " in namespace "
        ),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn attributes() -> Vec<ResourceAttributes> {
        let rules: Vec<PolicyRule> = serde_json::from_value(json!([
            { "apiGroups": [""], "resources": ["secrets", "namespaces"], "verbs": ["get", "list"] },
            { "apiGroups": ["x.io"], "resources": ["leases/status"], "resourceNames": ["mine"], "verbs": ["update"] },
        ]))
        .unwrap();
        expand(&rules, |resource| (!IN_NO_NAMESPACE.contains(&resource)).then_some("shop"))
    }

    #[test]
    fn each_permission_of_a_rule_is_reviewed() {
        let shown: Vec<_> = attributes()
            .iter()
            .map(|attributes| format!("{} {}", attributes.verb.as_deref().unwrap(), describe_object(attributes)))
            .collect();
        assert_eq!(
            shown,
            [
                "get secrets in namespace shop",
                "list secrets in namespace shop",
                "get namespaces",
                "list namespaces",
                "update leases.x.io/status mine in namespace shop",
            ]
        );
    }

    #[test]
    fn what_is_missing_is_named_with_object_and_verbs() {
        let answers = attributes().into_iter().map(|attributes| {
            let allowed = attributes.resource.as_deref() != Some("secrets");
            (attributes, Ok(allowed))
        });
        let account = ("ops".to_owned(), "s3".to_owned());
        let findings = judge(answers.collect(), "do it", Some(&account));
        assert_eq!(
            findings,
            [Finding::about(WHAT)
                .bad("ServiceAccount ops/s3 may not get, list secrets in namespace shop")
                .with_remedy("do it")]
        );
        let all = judge(attributes().into_iter().map(|attributes| (attributes, Ok(true))).collect(), "", None);
        assert!(all[0].message.starts_with("you have all 5 permissions"), "{}", all[0].message);
    }
}
