//! What S3 refuses and shows late, where the emulator does not.
//!
//! | rule | source |
//! |---|---|
//! | a bucket just created is unknown for some time | "Amazon S3 data consistency model", S3 user guide: bucket configurations are eventually consistent |
//! | tags in CreateBucket are unsupported, in some regions | hashicorp/terraform-provider-aws, issues 45566 and 45784 |
//! | buckets are listed in pages, in accounts with a large quota | ListBuckets, S3 API reference |
//! | PutBucketTagging cannot remove tags of AWS | "System Tags cannot be removed by requester", hashicorp/terraform-provider-aws, issue 7323 |
//! | a bucket with ABAC gets its tags by TagResource alone | "Enabling ABAC in general purpose buckets", S3 user guide |
//! | a new bucket has no ACLs | "Controlling ownership of objects and disabling ACLs", S3 user guide |
//! | a bucket of another account than expected is refused | "Verifying bucket ownership with bucket owner condition", S3 user guide |

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::time::Instant;

use provisioner_conformance::proxy::{Answer, plain};

use super::AwsCall;
use super::strict::{Strictness, refuse};
use crate::support::account::Account;

/// The account that the emulator serves.
const ACCOUNT: &str = "000000000000";

/// What is remembered of the buckets that went through.
#[derive(Default)]
pub(super) struct Buckets {
    made: Mutex<HashMap<String, Instant>>,
    abac: Mutex<HashSet<String>>,
}

impl Buckets {
    /// A call went through.
    pub(super) fn done(&self, call: &AwsCall) {
        let Some(bucket) = &call.bucket else { return };
        match call.operation.as_str() {
            "CreateBucket" => drop(self.made.lock().unwrap().insert(bucket.clone(), Instant::now())),
            "DeleteBucket" => drop(self.made.lock().unwrap().remove(bucket)),
            _ => {}
        }
    }

    /// How S3 answers the call, mostly that it refuses it; `None` where the emulator answers as S3 does.
    pub(super) async fn answer(&self, call: &AwsCall, strictness: &Strictness, account: &Account) -> Option<Answer> {
        let Some(bucket) = &call.bucket else {
            let unpaged = call.operation == "ListBuckets" && !call.query.contains("max-buckets=");
            return (strictness.pages_buckets && unpaged).then(|| refuse(call, 400, "InvalidRequest"));
        };
        let made = self.made.lock().unwrap().get(bucket).copied();
        match call.operation.as_str() {
            "CreateBucket" if strictness.refuses_tags && call.body_contains("<Tag>") => {
                return Some(refuse(call, 400, "UnsupportedArgument"));
            }
            "CreateBucket" => return None,
            _ if made.is_some_and(|made| made.elapsed() < strictness.bucket_lag) => {
                return Some(refuse(call, 404, "NoSuchBucket"));
            }
            _ => {}
        }
        if call.expected_owner.as_ref().is_some_and(|expected| expected != ACCOUNT) {
            return Some(refuse(call, 403, "AccessDenied"));
        }
        match call.operation.as_str() {
            // The emulator takes it for CreateBucket.
            "PutBucketAbac" => {
                self.abac.lock().unwrap().insert(bucket.clone());
                Some(plain(200, String::new()))
            }
            "PutBucketTagging" if self.abac.lock().unwrap().contains(bucket) => {
                Some(refuse(call, 405, "MethodNotAllowed"))
            }
            "PutBucketTagging" => {
                let found = account.s3.get_bucket_tagging().bucket(bucket).send().await;
                let found = found.map(|found| found.tag_set).unwrap_or_default();
                let mut of_aws = found.iter().map(|tag| tag.key()).filter(|key| key.starts_with("aws:"));
                let removes = of_aws.any(|key| !call.body_contains(&format!("<Key>{key}</Key>")));
                removes.then(|| refuse(call, 400, "InvalidTag"))
            }
            "PutObject"
                if made.is_some() && call.acl.as_ref().is_some_and(|acl| acl != "bucket-owner-full-control") =>
            {
                Some(refuse(call, 400, "AccessControlListNotSupported"))
            }
            _ => None,
        }
    }
}
