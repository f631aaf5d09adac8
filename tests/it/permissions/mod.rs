//! The operator under the permissions that are shipped, for Kubernetes and for AWS: they are enough, and each is
//! needed. The admission policies of the chart are enforced meanwhile: they refuse the operator nothing.
//!
//! | file | what it holds |
//! |---|---|
//! | `walk` | all that an operator does |
//! | `stage` | where it does so: a ServiceAccount and an AWS user with the permissions that are shipped |
//! | `account` | a ServiceAccount with certain permissions |
//! | `audit` | what the API server saw of it |
//! | `grants` | what roles allow, compared with that |
//! | `aws` | the provisioning policies, compared with what the proxy in front of AWS saw |

mod account;
mod audit;
pub(crate) mod aws;
mod grants;
mod stage;
mod walk;

use std::collections::BTreeSet;

use aws_s3_provisioner::PROVISIONER_NAME;
use operator_runtime::lease;
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::owner_policy::{BOUNDED, PLAIN};
use crate::support::shipped;
use account::Account;
use grants::{Permission, granted, resource};
use stage::{Scope, Stage};

/// Checked by an admission plugin, and so in no audit log. See
/// [`outputs_need_the_permission_for_finalizers`].
fn is_checked_at_admission(rule: &Permission) -> bool {
    rule.verb == "update" && rule.resource == resource("objectbucket.io", "objectbucketclaims/finalizers")
}

#[rstest]
#[case::in_all_namespaces(Scope::AllNamespaces, PLAIN)]
#[case::in_one_namespace_with_the_boundary(Scope::OneNamespace, BOUNDED)]
#[tokio::test]
async fn what_is_shipped_is_needed_and_what_is_needed_is_shipped(#[case] scope: Scope, #[case] policy: &str) {
    let stage = Stage::new(scope, policy).await;
    let legacy = walk::serve(&stage, policy).await;
    walk::recover(&stage).await;

    aws::assert_minimal(&stage, policy, &legacy);
    if let Some(audit) = &stage.audit {
        let rules: BTreeSet<_> =
            granted(&stage.objects).into_iter().filter(|rule| !is_checked_at_admission(rule)).collect();
        let differences = audit.differences(&stage.account.user, &rules).await;
        assert!(differences.is_empty(), "{differences:#?}");
    }
    stage.end().await;
}

#[tokio::test]
async fn the_manifest_has_the_rules_that_were_walked_with() {
    let stage = Stage::new(Scope::AllNamespaces, PLAIN).await;
    let mine = lease::name(&stage.world.provisioner, None);
    let its = lease::name(PROVISIONER_NAME, None);
    for (kind, nth) in [("ClusterRole", 0), ("Role", 0), ("Role", 1)] {
        let walked = stage.objects.iter().filter(|object| object["kind"] == kind).nth(nth).unwrap();
        let mut shipped = shipped::rules(kind, nth);
        for rule in &mut shipped {
            for (its, mine) in [(&its, &mine), (&lease::cluster_name(&its), &lease::cluster_name(&mine))] {
                if rule["resourceNames"] == json!([its]) {
                    rule["resourceNames"] = json!([mine]);
                }
            }
        }
        // In any order, as neither gives nor takes a permission.
        let walked = walked["rules"].as_array().unwrap();
        assert!(
            shipped.len() == walked.len() && shipped.iter().all(|rule| walked.contains(rule)),
            "{kind}: {walked:#?}"
        );
    }
    stage.end().await;
}

/// As OpenShift does; so does the cluster of the tests.
/// Where the API server checks owner references.
#[tokio::test]
async fn outputs_need_the_permission_for_finalizers() {
    let mut stage = Stage::new(Scope::AllNamespaces, PLAIN).await;
    let Some(audit) = stage.audit.take() else { return };
    let all = stage.objects.iter_mut().find(|object| object["kind"] == "ClusterRole").unwrap();
    let rules = all["rules"].as_array_mut().unwrap();
    let before = rules.len();
    rules.retain(|rule: &Value| rule["resources"] != json!(["objectbucketclaims/finalizers"]));
    assert_eq!(rules.len(), before - 1);
    stage.account = Account::of(&stage.world, &stage.objects).await;
    let class = stage.class("created", &[]).await;
    let _operator = stage.start();
    stage.world.claim("photos", &class).await;
    let message = stage.world.wait_reason("photos", "KubernetesError").await;
    assert!(message.contains("finalizers") || message.contains("forbidden"), "{message}");
    let refused = audit.witness(&stage.account.user).refused;
    assert!(refused.iter().all(|call| call.contains("set finalizers on")) && !refused.is_empty(), "{refused:#?}");
    stage.end().await;
}
