//! The checks of `doctor`: whether claims of a class can work. Every call here reads.
//!
//! | file | what it holds |
//! |---|---|
//! | `asked` | what was asked before, for classes that share it |
//! | `caller` | the identity of the provisioning credentials, and how far the clocks are apart |
//! | `needs` | which permissions the operator needs, and on what. Pure |
//! | `simulate` | simulates in IAM whether the provisioning credentials have them |
//! | `reads` | tries those that can be tried by reading, where IAM cannot simulate |
//! | `bucket` | the bucket that a class names |
//! | `boundary` | the permissions boundary that a class names |
//! | `provider` | the identity provider that a class names |
//! | `pod_identity` | the EKS cluster and the role that a class names |
//! | `quotas` | how much room the account has |

mod asked;
mod boundary;
mod bucket;
mod caller;
mod needs;
mod pod_identity;
mod provider;
mod quotas;
mod reads;
mod simulate;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use self::asked::Answers;
pub(crate) use self::asked::Asked;
use self::caller::Caller;
use super::reasons;
use crate::class::target::{Sts, Target};
use crate::client::call::CallError;
use crate::client::error::Error;
use crate::client::store::Store;
use bucket_provisioner::store::{Failure as _, Finding, Mode};

/// What is known about the provisioning credentials, and what is asked with them.
struct Examined<'a> {
    store: &'a Store,
    asked: Arc<Answers>,
    target: &'a Target<'a>,
    caller: Caller,
    /// Whether there is an IAM for these credentials: not if only the S3 of another store is configured.
    has_iam: bool,
}

/// Checks everything that claims of the class need.
/// `issuer`: of the cluster's tokens, if it is known.
pub(crate) async fn examine(
    asked: &Asked,
    store: &Arc<Store>,
    target: &Target<'_>,
    issuer: Option<&str>,
) -> Vec<Finding> {
    let findings = findings(asked, store, target, issuer).await;
    findings.into_iter().map(|finding| linked(finding, option_env!("SOURCE"))).collect()
}

async fn findings(asked: &Asked, store: &Arc<Store>, target: &Target<'_>, issuer: Option<&str>) -> Vec<Finding> {
    let has_iam = target.has_own_access() || target.endpoints.sts != Sts::Unknown;
    let asked = asked.with(store, &target.record.claim.uid);
    let (caller, mut findings) = asked.caller.get_or_init(|| caller::ask(store, has_iam)).await.clone();
    let Some(caller) = caller else { return findings };
    let examined = Examined { store, asked, target, caller, has_iam };
    let permissions = async {
        match simulate::permissions(&examined).await {
            Ok(findings) => findings,
            Err(why) => reads::permissions(&examined, &why).await,
        }
    };
    // Boxed, because the futures of the SDK are large.
    let (permissions, bucket, boundary, provider, pods, quotas) = tokio::join!(
        Box::pin(permissions),
        Box::pin(async {
            match target.record.plan.mode {
                Mode::Granted => bucket::examine(&examined).await,
                Mode::Created => Vec::new(),
            }
        }),
        Box::pin(boundary::examine(&examined)),
        Box::pin(provider::examine(&examined, issuer)),
        Box::pin(pod_identity::examine(&examined, issuer)),
        Box::pin(quotas::examine(&examined)),
    );
    findings.extend([permissions, bucket, boundary, provider, pods, quotas].into_iter().flatten());
    findings
}

/// Files of the repository that the remedy names become links, if the program was built with the address of its source: to
/// the files of this version.
fn linked(finding: Finding, source: Option<&str>) -> Finding {
    let Some(source) = source.filter(|source| source.starts_with("https://")) else { return finding };
    let docs = format!("{source}/blob/v{}/docs/", env!("CARGO_PKG_VERSION"));
    let remedy = finding.remedy.replace("docs/", &docs);
    finding.with_remedy(remedy)
}

/// A call failed that should not.
fn failed(what: &str, error: CallError) -> Finding {
    let error = Error::from(error);
    let reason = reasons::TABLE.iter().find(|reason| reason.name == error.reason());
    Finding::about(what).failed(&error).with_remedy(reason.map_or("", |reason| reason.remedy))
}

/// The remedy where a permission is missing that only this examination needs.
fn allow_doctor(action: &str) -> String {
    format!("allow {action}, as docs/owner-iam-policy-doctor.json does, and run this again")
}

/// The actions that claims of a class need.
#[cfg(test)]
pub(crate) fn needed(target: &Target<'_>) -> std::collections::BTreeSet<String> {
    needs::actions(&needs::of(target)).into_iter().map(str::to_owned).collect()
}
