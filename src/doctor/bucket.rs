//! The bucket that a class names.

use super::Examined;
use crate::class::values::ClaimedBucket;
use crate::client::call::{CallError, Cause, Operation, Resource};
use crate::s3::tagging;
use crate::s3::tags::{CLAIM_UID, value};
use bucket_provisioner::store::Finding;

const WHAT: &str = "bucket";

pub(crate) async fn examine(examined: &Examined<'_>) -> Vec<Finding> {
    let Examined { store, target, caller, .. } = examined;
    let name = target.bucket();
    let region = target.endpoints.region.as_str();
    let head = |owner: Option<&str>| {
        let call = store.s3.head_bucket().bucket(name).set_expected_bucket_owner(owner.map(str::to_owned));
        async move { store.call(Operation::HeadBucket, Resource::bucket(name), || call.clone().send()).await }
    };
    let found = match head(None).await {
        Ok(answer) => answer,
        Err(error) => return vec![unusable(name, region, error)],
    };
    if let Some(there) = found.bucket_region().filter(|there| *there != region && !target.endpoints.s3_is_foreign()) {
        return vec![elsewhere(name, region, there)];
    }
    let account = caller.account().filter(|_| !target.endpoints.s3_is_foreign());
    let is_anothers = match account {
        Some(account) => matches!(head(Some(account)).await, Err(error) if error.status() == 403),
        None => false,
    };
    let whose = if is_anothers {
        ", and belongs to another account, whose bucket policy has to allow each claim's user"
    } else {
        ""
    };
    let mut findings =
        vec![Finding::about(WHAT).good(format!("bucket {name:?} is in region {region} and can be reached{whose}"))];
    findings.extend(claimed(examined).await);
    findings
}

fn elsewhere(name: &str, region: &str, there: &str) -> Finding {
    let remedy = format!("recreate the class with the parameter region: {there}");
    Finding::about(WHAT)
        .bad(format!("bucket {name:?} is in region {there}, but the class has region {region}"))
        .with_remedy(remedy)
}

/// The answer to HEAD has no body, only a status and headers.
fn unusable(name: &str, region: &str, error: CallError) -> Finding {
    if let Cause::Answer { status, region: there, .. } = &error.cause {
        match (status, there) {
            (301 | 307 | 400 | 403, Some(there)) if there != region => return elsewhere(name, region, there),
            (404, _) => {
                let remedy = "create the bucket, or recreate the class with another bucketName";
                return Finding::about(WHAT).bad(format!("bucket {name:?} does not exist")).with_remedy(remedy);
            }
            (403, _) => {
                let remedy = "allow the provisioning credentials s3:ListBucket on the bucket; if the bucket belongs to another account, its bucket policy has to allow it, too";
                return Finding::about(WHAT)
                    .bad(format!("bucket {name:?} exists, but the provisioning credentials may not use it"))
                    .with_remedy(remedy);
            }
            (301 | 307, None) => {
                let remedy = "recreate the class with the right region";
                return Finding::about(WHAT)
                    .bad(format!("bucket {name:?} is in another region than {region}"))
                    .with_remedy(remedy);
            }
            _ => {}
        }
    }
    super::failed(WHAT, error)
}

/// Whether the bucket was created for a claim, which the class has to allow.
async fn claimed(Examined { store, target, .. }: &Examined<'_>) -> Option<Finding> {
    const WHAT: &str = "bucket's claim";
    let tags = tagging::read(store, target.bucket_ref()).await.ok()?;
    value(&tags, CLAIM_UID)?;
    let name = target.bucket();
    let message = format!("bucket {name:?} was created for a claim, and may be deleted with that claim");
    Some(match target.claimed_bucket {
        ClaimedBucket::Refused => Finding::about(WHAT)
            .bad(format!("{message}; claims of this class are refused (BucketClaimed)"))
            .with_remedy(
                "name another bucket; if this one is intended, recreate the class with allowClaimedBucket: \"yes\"",
            ),
        ClaimedBucket::Allowed => Finding::about(WHAT)
            .warning(message)
            .with_remedy("make sure that the claim stays, or that its class has reclaimPolicy Retain"),
    })
}
