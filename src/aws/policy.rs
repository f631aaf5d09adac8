//! The inline policy of a claim's user: reading, writing, listing, multipart uploads and versions, on one
//! bucket and nothing else.

use serde_json::json;

use super::plan::Target;
use super::region::partition;

/// Name of the inline policy.
pub(crate) const POLICY_NAME: &str = "bucket-access";

/// The policy document that limits a user to the bucket of its record.
pub(crate) fn of(target: &Target<'_>) -> String {
    document(target.bucket(), &target.endpoints.region, target.bucket_account())
}

/// The policy document that limits a user to `bucket`. A region decides the partition of the ARNs.
///
/// A bucket of that name in another account than `account` is not the one that was meant: its name became free, and
/// somebody else took it. Stores that do not know the condition's key let it pass.
///
/// IAM counts at most 2,048 characters without white space for all inline policies of a user.
fn document(bucket: &str, region: &str, account: Option<&str>) -> String {
    let bucket_arn = format!("arn:{}:s3:::{bucket}", partition(region).id);
    let statement = |actions: &[&str], resource: &str| {
        let mut statement = json!({ "Effect": "Allow", "Action": actions, "Resource": resource });
        if let Some(account) = account {
            statement["Condition"] = json!({ "StringEqualsIfExists": { "aws:ResourceAccount": account } });
        }
        statement
    };
    json!({
        "Version": "2012-10-17",
        "Statement": [statement(&ON_BUCKET, &bucket_arn), statement(&ON_OBJECTS, &format!("{bucket_arn}/*"))],
    })
    .to_string()
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

/// What a document that IAM gave back turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// What is written today.
    Wanted,
    /// What was written while the account was not known.
    Earlier,
    /// Something else.
    Other,
}

/// Compares a document that IAM gave back (percent-encoded, RFC 3986) with that of a record.
pub(crate) fn compare(found: &str, target: &Target<'_>) -> Found {
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
    let found = percent_encoding::percent_decode_str(found).decode_utf8().ok().and_then(|found| json(&found));
    let is = |document: String| found.is_some() && found == json(&document);
    match () {
        () if is(of(target)) => Found::Wanted,
        () if is(document(target.bucket(), &target.endpoints.region, None)) => Found::Earlier,
        () => Found::Other,
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
        let document: serde_json::Value = serde_json::from_str(&document("photos", "eu-central-1", None)).unwrap();
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
                "s3:ListBucketVersions"
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
                "s3:PutObject"
              ],
              "Resource": "arn:aws:s3:::photos/*"
            }
          ]
        }
        "#);
    }

    #[test]
    fn arns_are_of_the_partition_of_the_region() {
        for (region, arn) in [
            ("us-gov-east-1", "\"arn:aws-us-gov:s3:::photos\""),
            ("cn-north-1", "\"arn:aws-cn:s3:::photos/*\""),
            ("eusc-de-east-1", "\"arn:aws-eusc:s3:::photos\""),
        ] {
            assert!(document("photos", region, None).contains(arn));
        }
    }

    #[test]
    fn the_longest_name_fits_into_what_iam_allows() {
        assert!(document(&"b".repeat(63), "us-gov-east-1", Some("123456789012")).len() < 2048);
    }

    #[test]
    fn a_bucket_that_was_created_has_to_be_in_the_owners_account_and_one_that_existed_may_be_anywhere() {
        let in_account = Record { account: Some("123456789012".into()), ..record() };
        let of = |record: &Record| of(&Target::of(record, &Environment::default()));
        let condition = r#""Condition":{"StringEqualsIfExists":{"aws:ResourceAccount":"123456789012"}}"#;
        assert_eq!(of(&in_account).matches(condition).count(), 2, "{}", of(&in_account));
        let granted = Record { plan: granted().plan, ..in_account };
        let unknown = Record { account: None, ..record() };
        assert!(!of(&granted).contains("Condition") && !of(&unknown).contains("Condition"));
    }

    #[test]
    fn a_document_is_known_again_as_iam_gives_it_back() {
        let record = Record { account: Some("123456789012".into()), ..record() };
        let target = Target::of(&record, &Environment::default());
        let encoded = |text: &str| percent_encoding::utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        assert_eq!(compare(&encoded(&of(&target)), &target), Found::Wanted);
        assert_eq!(compare(&of(&target), &target), Found::Wanted);
        let earlier = document(target.bucket(), &target.endpoints.region, None);
        assert_eq!(compare(&encoded(&earlier), &target), Found::Earlier);
        for other in ["", "{}", &encoded(&document("others", "us-west-1", None))] {
            assert_eq!(compare(other, &target), Found::Other);
        }
    }
}
