//! The inline policy of a claim's user: reading, writing, listing, multipart uploads and versions, on one
//! bucket and nothing else.

use serde_json::json;

use super::region::partition;

/// Name of the inline policy.
pub(crate) const POLICY_NAME: &str = "bucket-access";

/// The policy document that limits a user to `bucket`. A region decides the partition of the ARNs.
///
/// IAM counts at most 2,048 characters without white space for all inline policies of a user.
pub(crate) fn document(bucket: &str, region: &str) -> String {
    let bucket_arn = format!("arn:{}:s3:::{bucket}", partition(region).id);
    json!({
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": [
                    "s3:GetBucketLocation",
                    "s3:ListBucket",
                    "s3:ListBucketMultipartUploads",
                    "s3:ListBucketVersions",
                ],
                "Resource": bucket_arn,
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
                ],
                "Resource": format!("{bucket_arn}/*"),
            },
        ],
    })
    .to_string()
}

/// Whether a document that IAM gave back (percent-encoded, RFC 3986) says the same as `wanted`.
pub(crate) fn same(found: &str, wanted: &str) -> bool {
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
    let found = percent_encoding::percent_decode_str(found).decode_utf8().ok();
    found.and_then(|found| json(&found)).is_some_and(|found| Some(found) == json(wanted))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_user_may_use_its_bucket_and_nothing_else() {
        let document: serde_json::Value = serde_json::from_str(&document("photos", "eu-central-1")).unwrap();
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
            assert!(document("photos", region).contains(arn));
        }
    }

    #[test]
    fn the_longest_name_fits_into_what_iam_allows() {
        assert!(document(&"b".repeat(63), "us-gov-east-1").len() < 2048);
    }

    #[test]
    fn a_document_is_known_again_as_iam_gives_it_back() {
        let wanted = document("photos", "eu-central-1");
        let encoded = percent_encoding::utf8_percent_encode(&wanted, percent_encoding::NON_ALPHANUMERIC).to_string();
        assert!(same(&encoded, &wanted) && same(&wanted, &wanted));
        assert!(!same(&encoded, &document("others", "eu-central-1")) && !same("", &wanted));
    }
}
