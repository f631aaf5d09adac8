//! The inline policy of a claim's user: reading, writing, listing, multipart uploads and versions, on one
//! bucket and nothing else.

use serde_json::json;

use super::plan::Target;
use super::region::partition;
use crate::provisioner::Mode;

/// Name of the inline policy.
pub(crate) const POLICY_NAME: &str = "bucket-access";

/// The policy document that limits a user to the bucket of its record.
pub(crate) fn of(target: &Target<'_>) -> String {
    document(target.bucket(), &target.endpoints.region, target.bucket_account(), Scope::of(target))
}

/// What an app may do. Versions before wrote less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// All that an app may do with a bucket that was created for it.
    Created,
    /// The same with a bucket of others: what they keep as versions stays theirs.
    Granted,
    /// What was written before tags and ACLs were thought of.
    Earlier,
}

impl Scope {
    fn of(target: &Target<'_>) -> Self {
        match target.record.plan.mode {
            Mode::Created => Self::Created,
            Mode::Granted => Self::Granted,
        }
    }
}

/// The policy document that limits a user to `bucket`. A region decides the partition of the ARNs.
///
/// A bucket of that name in another account than `account` is not the one that was meant: its name became free, and
/// somebody else took it. Stores that do not know the condition's key let it pass.
///
/// IAM counts at most 2,048 characters without white space for all inline policies of a user.
fn document(bucket: &str, region: &str, account: Option<&str>, scope: Scope) -> String {
    let bucket_arn = format!("arn:{}:s3:::{bucket}", partition(region).id);
    let objects_arn = format!("{bucket_arn}/*");
    let statement = |actions: &[&str], resource: &str, condition: Option<serde_json::Value>| {
        let mut statement = json!({ "Effect": "Allow", "Action": actions, "Resource": resource });
        if let Some(account) = account {
            statement["Condition"]["StringEqualsIfExists"] = json!({ "aws:ResourceAccount": account });
        }
        if let Some(condition) = condition {
            statement["Condition"]["StringEquals"] = condition;
        }
        statement
    };
    let (mut on_bucket, mut on_objects) = (ON_BUCKET.to_vec(), ON_OBJECTS.to_vec());
    let mut statements = Vec::new();
    if scope != Scope::Earlier {
        on_bucket.push("s3:GetBucketVersioning");
        on_objects.extend(ON_TAGS_AND_ACLS);
        // Tools write these two of their own accord. Others would open an object to strangers.
        let acls = json!({ "s3:x-amz-acl": ["private", "bucket-owner-full-control"] });
        statements.push(statement(&["s3:PutObjectAcl"], &objects_arn, Some(acls)));
    }
    if scope == Scope::Granted {
        on_objects.retain(|action| *action != "s3:DeleteObjectVersion");
    }
    let plain = [statement(&on_bucket, &bucket_arn, None), statement(&on_objects, &objects_arn, None)];
    statements.splice(..0, plain);
    json!({ "Version": "2012-10-17", "Statement": statements }).to_string()
}

const ON_BUCKET: [&str; 4] =
    ["s3:GetBucketLocation", "s3:ListBucket", "s3:ListBucketMultipartUploads", "s3:ListBucketVersions"];

const ON_OBJECTS: [&str; 9] = [
    "s3:AbortMultipartUpload",
    "s3:DeleteObject",
    "s3:DeleteObjectVersion",
    "s3:GetObject",
    "s3:GetObjectAttributes",
    "s3:GetObjectVersion",
    "s3:GetObjectVersionAttributes",
    "s3:ListMultipartUploadParts",
    "s3:PutObject",
];

/// What `aws s3 cp` and `sync` call for objects that have tags.
const ON_TAGS_AND_ACLS: [&str; 5] = [
    "s3:DeleteObjectTagging",
    "s3:GetObjectAcl",
    "s3:GetObjectTagging",
    "s3:GetObjectVersionTagging",
    "s3:PutObjectTagging",
];

/// What a document that IAM gave back turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// What is written today.
    Wanted,
    /// What was written by an earlier version, or while the account was not known.
    Earlier,
    /// Something else.
    Other,
}

/// Compares a document that IAM gave back (percent-encoded, RFC 3986) with that of a record.
pub(crate) fn compare(found: &str, target: &Target<'_>) -> Found {
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
    let found = percent_encoding::percent_decode_str(found).decode_utf8().ok().and_then(|found| json(&found));
    let is = |document: String| found.is_some() && found == json(&document);
    let (bucket, region, account) = (target.bucket(), &target.endpoints.region, target.bucket_account());
    let mut earlier = [(Scope::of(target), None), (Scope::Earlier, account), (Scope::Earlier, None)].into_iter();
    if is(of(target)) {
        Found::Wanted
    } else if earlier.any(|(scope, account)| is(document(bucket, region, account, scope))) {
        Found::Earlier
    } else {
        Found::Other
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use percent_encoding::NON_ALPHANUMERIC;

    use super::*;
    use crate::aws::plan::Environment;
    use crate::aws::testing::{granted, record};
    use crate::provisioner::Record;

    #[test]
    fn a_user_may_use_its_bucket_and_nothing_else() {
        let document: serde_json::Value =
            serde_json::from_str(&document("photos", "eu-central-1", None, Scope::Created)).unwrap();
        insta::assert_snapshot!(serde_json::to_string_pretty(&document).unwrap(), @r#"
        {
          "Version": "2012-10-17",
          "Statement": [
            {
              "Effect": "Allow",
              "Action": [
                "s3:GetBucketLocation",
                "s3:ListBucket",
                "s3:ListBucketMultipartUploads",
                "s3:ListBucketVersions",
                "s3:GetBucketVersioning"
              ],
              "Resource": "arn:aws:s3:::photos"
            },
            {
              "Effect": "Allow",
              "Action": [
                "s3:AbortMultipartUpload",
                "s3:DeleteObject",
                "s3:DeleteObjectVersion",
                "s3:GetObject",
                "s3:GetObjectAttributes",
                "s3:GetObjectVersion",
                "s3:GetObjectVersionAttributes",
                "s3:ListMultipartUploadParts",
                "s3:PutObject",
                "s3:DeleteObjectTagging",
                "s3:GetObjectAcl",
                "s3:GetObjectTagging",
                "s3:GetObjectVersionTagging",
                "s3:PutObjectTagging"
              ],
              "Resource": "arn:aws:s3:::photos/*"
            },
            {
              "Effect": "Allow",
              "Action": [
                "s3:PutObjectAcl"
              ],
              "Resource": "arn:aws:s3:::photos/*",
              "Condition": {
                "StringEquals": {
                  "s3:x-amz-acl": [
                    "private",
                    "bucket-owner-full-control"
                  ]
                }
              }
            }
          ]
        }
        "#);
    }

    #[test]
    fn versions_of_a_bucket_that_existed_before_stay_its_owners() {
        let granted = document("photos", "eu-central-1", None, Scope::Granted);
        assert!(!granted.contains("s3:DeleteObjectVersion") && granted.contains("s3:GetObjectVersion"));
    }

    #[test]
    fn arns_are_of_the_partition_of_the_region() {
        for (region, arn) in [
            ("us-gov-east-1", "\"arn:aws-us-gov:s3:::photos\""),
            ("cn-north-1", "\"arn:aws-cn:s3:::photos/*\""),
            ("eusc-de-east-1", "\"arn:aws-eusc:s3:::photos\""),
        ] {
            assert!(document("photos", region, None, Scope::Granted).contains(arn));
        }
    }

    #[test]
    fn the_longest_name_fits_into_what_iam_allows() {
        assert!(document(&"b".repeat(63), "us-gov-east-1", Some("123456789012"), Scope::Created).len() < 2048);
    }

    #[test]
    fn a_bucket_that_was_created_has_to_be_in_the_owners_account_and_one_that_existed_may_be_anywhere() {
        let in_account = Record { account: Some("123456789012".into()), ..record() };
        let of = |record: &Record| of(&Target::of(record, &Environment::default()));
        let condition = r#""StringEqualsIfExists":{"aws:ResourceAccount":"123456789012"}"#;
        assert_eq!(of(&in_account).matches(condition).count(), 3, "{}", of(&in_account));
        let granted = Record { plan: granted().plan, ..in_account };
        let unknown = Record { account: None, ..record() };
        assert!(!of(&granted).contains("aws:ResourceAccount") && !of(&unknown).contains("aws:ResourceAccount"));
    }

    #[test]
    fn a_document_is_known_again_as_iam_gives_it_back() {
        let record = Record { account: Some("123456789012".into()), ..record() };
        let target = Target::of(&record, &Environment::default());
        let encoded = |text: &str| percent_encoding::utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        assert_eq!(compare(&encoded(&of(&target)), &target), Found::Wanted);
        assert_eq!(compare(&of(&target), &target), Found::Wanted);
        let earlier = |account, scope| document(target.bucket(), &target.endpoints.region, account, scope);
        for (account, scope) in [(None, Scope::Created), (None, Scope::Earlier), (Some("123456789012"), Scope::Earlier)]
        {
            assert_eq!(compare(&encoded(&earlier(account, scope)), &target), Found::Earlier);
        }
        for other in ["", "{}", &encoded(&document("others", "us-west-1", None, Scope::Created))] {
            assert_eq!(compare(other, &target), Found::Other);
        }
    }
}
