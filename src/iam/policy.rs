//! The inline policy of a claim's user: it allows reading, writing, listing, multipart uploads and versions on one
//! bucket, and nothing else.

use serde_json::{Map, Value, json};

use crate::class::region::partition;
use crate::class::target::Target;
use bucket_provisioner::store::Mode;

/// Name of the inline policy.
pub(crate) const POLICY_NAME: &str = "bucket-access";

/// The policy document that limits a user to the bucket of its record.
pub(crate) fn of(target: &Target<'_>) -> String {
    document(target, target.bucket_account(), Scope::of(target), Dialect::of(target))
}

/// What an app can do. Earlier versions of the operator allowed less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Everything, on a bucket that was created for the claim.
    Created,
    /// The same without deleting object versions, on a bucket that existed before: the versions are its owner's.
    Granted,
    /// What earlier versions allowed: no tags and no ACLs.
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

/// What a store supports in a policy document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    /// Everything.
    Aws,
    /// Some stores refuse a document because of one action that they do not know. SeaweedFS does not know the actions
    /// about multipart uploads and attributes, but supports patterns. It denies everything under a condition with
    /// `IfExists`.
    Foreign,
}

impl Dialect {
    fn of(target: &Target<'_>) -> Self {
        if target.endpoints.iam_is_foreign() { Self::Foreign } else { Self::Aws }
    }

    /// Replaces actions by the patterns that match them.
    fn actions(self, mut actions: Vec<&'static str>, patterns: &[&'static str]) -> Vec<&'static str> {
        if self == Self::Foreign {
            let matches =
                |action: &&str| patterns.iter().any(|pattern| action.starts_with(pattern.trim_end_matches('*')));
            actions.retain(|action| !matches(action));
            actions.extend(patterns);
        }
        actions
    }

    /// Alternative conditions: the bucket is in this account, or the store does not return its account.
    fn in_account(self, account: Option<&str>) -> Vec<Map<String, Value>> {
        const KEY: &str = "aws:ResourceAccount";
        let condition = |operator: &str, value: &str| Map::from_iter([(operator.to_owned(), json!({ KEY: value }))]);
        match (account, self) {
            (None, _) => vec![Map::new()],
            (Some(account), Self::Aws) => vec![condition("StringEqualsIfExists", account)],
            (Some(account), Self::Foreign) => vec![condition("StringEquals", account), condition("Null", "true")],
        }
    }
}

/// The policy document that limits a user to the bucket of a record. The region decides the partition of the ARNs.
///
/// A bucket of this name in another account than `account` is somebody else's, who took the name after it became free.
/// Stores that do not know the key of the condition ignore it.
///
/// IAM allows 2,048 characters without white space for all inline policies of a user.
fn document(target: &Target<'_>, account: Option<&str>, scope: Scope, dialect: Dialect) -> String {
    let bucket = format!("arn:{}:s3:::{}", partition(&target.endpoints.region).id, target.bucket());
    let objects = format!("{bucket}/*");
    let (mut on_bucket, mut on_objects) = (ON_BUCKET.to_vec(), ON_OBJECTS.to_vec());
    if scope != Scope::Earlier {
        on_bucket.push("s3:GetBucketVersioning");
        on_objects.extend(ON_TAGS_AND_ACLS);
    }
    if scope == Scope::Granted {
        on_objects.retain(|action| *action != "s3:DeleteObjectVersion");
    }
    let on_bucket = dialect.actions(on_bucket, &PATTERNS_ON_BUCKET);
    let on_objects = dialect.actions(on_objects, &PATTERNS_ON_OBJECTS);
    // Tools set these two by themselves. Other ACLs would make an object public.
    let acls = ("s3:x-amz-acl".to_owned(), json!(["private", "bucket-owner-full-control"]));

    let mut allowed = vec![(on_bucket, &bucket, None), (on_objects, &objects, None)];
    if scope != Scope::Earlier {
        allowed.push((vec!["s3:PutObjectAcl"], &objects, Some(acls)));
    }
    let mut statements = Vec::new();
    for (actions, resource, only) in allowed {
        for mut condition in dialect.in_account(account) {
            if let Some((key, values)) = only.clone() {
                let equals = condition.entry("StringEquals").or_insert_with(|| json!({}));
                equals[key] = values;
            }
            let mut statement = json!({ "Effect": "Allow", "Action": actions, "Resource": resource });
            if !condition.is_empty() {
                statement["Condition"] = Value::Object(condition);
            }
            statements.push(statement);
        }
    }
    json!({ "Version": "2012-10-17", "Statement": statements }).to_string()
}

/// Without `s3:Get*`, which would show the configuration of the bucket.
const PATTERNS_ON_BUCKET: [&str; 1] = ["s3:List*"];
const PATTERNS_ON_OBJECTS: [&str; 2] = ["s3:Get*", "s3:List*"];

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

/// What `aws s3 cp` and `aws s3 sync` need for objects with tags.
const ON_TAGS_AND_ACLS: [&str; 5] = [
    "s3:DeleteObjectTagging",
    "s3:GetObjectAcl",
    "s3:GetObjectTagging",
    "s3:GetObjectVersionTagging",
    "s3:PutObjectTagging",
];

/// What a document that IAM returned is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// The current one.
    Wanted,
    /// That of an earlier version, or from a time when the account was not known.
    Earlier,
    /// That of an earlier version, which allowed deleting object versions of a bucket that existed before.
    Wider,
    /// Something else.
    Other,
}

/// Compares a document that IAM returned (percent-encoded, RFC 3986) with the one of a record.
pub(crate) fn compare(found: &str, target: &Target<'_>) -> Found {
    let json = |text: &str| serde_json::from_str(text).ok().map(without_lists_of_one);
    let found = percent_encoding::percent_decode_str(found).decode_utf8().ok().and_then(|found| json(&found));
    let is = |document: String| found.is_some() && found == json(&document);
    let was = |scope| {
        let accounts = [target.bucket_account(), None];
        let all = accounts.iter().flat_map(|account| [(account, Dialect::Aws), (account, Dialect::Foreign)]);
        all.into_iter().any(|(account, dialect)| is(document(target, *account, scope, dialect)))
    };
    if is(of(target)) {
        Found::Wanted
    } else if was(Scope::Earlier) && target.record.plan.mode == Mode::Granted {
        Found::Wider
    } else if was(Scope::of(target)) || was(Scope::Earlier) {
        Found::Earlier
    } else {
        Found::Other
    }
}

/// A list of one element means the same as the element, and some stores return one for the other.
fn without_lists_of_one(value: Value) -> Value {
    match value {
        Value::Array(mut values) if values.len() == 1 => values.pop().map_or(Value::Null, without_lists_of_one),
        Value::Array(values) => values.into_iter().map(without_lists_of_one).collect(),
        Value::Object(entries) => {
            Value::Object(entries.into_iter().map(|(key, value)| (key, without_lists_of_one(value))).collect())
        }
        value => value,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use percent_encoding::NON_ALPHANUMERIC;

    use super::*;
    use crate::class::environment::Environment;
    use crate::testing::{at_foreign_iam, granted, named, planned_as, record, without_account};
    use bucket_provisioner::store::Record;

    fn written(record: &Record) -> String {
        of(&Target::of(record, &Environment::default()))
    }

    #[test]
    fn a_user_may_use_its_bucket_and_nothing_else() {
        let record = without_account(named("eu-central-1"));
        let document: Value = serde_json::from_str(&written(&record)).unwrap();
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
        let granted = written(&granted());
        assert!(!granted.contains("s3:DeleteObjectVersion") && granted.contains("s3:GetObjectVersion"));
    }

    #[test]
    fn arns_are_of_the_partition_of_the_region() {
        for (region, arn) in [
            ("us-gov-east-1", "\"arn:aws-us-gov:s3:::photos\""),
            ("cn-north-1", "\"arn:aws-cn:s3:::photos/*\""),
            ("eusc-de-east-1", "\"arn:aws-eusc:s3:::photos\""),
        ] {
            assert!(written(&named(region)).contains(arn));
        }
    }

    #[test]
    fn the_longest_name_fits_into_what_iam_allows() {
        let mut longest = named("us-gov-east-1");
        longest.plan.bucket = "b".repeat(63);
        longest.account = Some("123456789012".into());
        for record in [longest.clone(), at_foreign_iam(longest)] {
            let written = written(&record);
            assert!(written.len() < 2048 && written.contains("123456789012"), "{}: {written}", written.len());
        }
    }

    /// A bucket that existed before may be in any account.
    #[test]
    fn only_a_created_bucket_has_to_be_in_the_same_account() {
        let in_account = record().with_account("123456789012");
        let of = written;
        let condition = r#""StringEqualsIfExists":{"aws:ResourceAccount":"123456789012"}"#;
        assert_eq!(of(&in_account).matches(condition).count(), 3, "{}", of(&in_account));
        let granted = planned_as(in_account, granted().plan);
        let unknown = without_account(record());
        assert!(!of(&granted).contains("aws:ResourceAccount") && !of(&unknown).contains("aws:ResourceAccount"));
    }

    #[test]
    fn a_document_is_known_again_as_iam_gives_it_back() {
        let record = record().with_account("123456789012");
        let target = Target::of(&record, &Environment::default());
        let encoded = |text: &str| percent_encoding::utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        assert_eq!(compare(&encoded(&of(&target)), &target), Found::Wanted);
        assert_eq!(compare(&of(&target), &target), Found::Wanted);
        let earlier = |account, scope| document(&target, account, scope, Dialect::Aws);
        for (account, scope) in [(None, Scope::Created), (None, Scope::Earlier), (Some("123456789012"), Scope::Earlier)]
        {
            assert_eq!(compare(&encoded(&earlier(account, scope)), &target), Found::Earlier);
        }
        for other in ["", "{}", &encoded(&written(&named("us-west-1")))] {
            assert_eq!(compare(other, &target), Found::Other);
        }
    }

    /// Patterns of actions, and no conditions that another store may not know.
    #[test]
    fn policies_for_other_stores_have_only_common_elements() {
        let record = at_foreign_iam(record().with_account("123456789012"));
        let document: Value = serde_json::from_str(&written(&record)).unwrap();
        let conditions: Vec<_> = document["Statement"].as_array().unwrap().iter().map(|s| &s["Condition"]).collect();
        let here = json!({ "StringEquals": { "aws:ResourceAccount": "123456789012" } });
        let nowhere = json!({ "Null": { "aws:ResourceAccount": "true" } });
        assert_eq!(conditions[..4], [&here, &nowhere, &here, &nowhere]);
        for (condition, in_account) in conditions[4..].iter().zip([here, nowhere]) {
            assert_eq!(condition["StringEquals"]["s3:x-amz-acl"], json!(["private", "bucket-owner-full-control"]));
            assert_eq!(
                condition["StringEquals"].get("aws:ResourceAccount"),
                in_account["StringEquals"].get("aws:ResourceAccount")
            );
            assert_eq!(condition.get("Null"), in_account.get("Null"));
        }
        let actions = |at: usize| document["Statement"][at]["Action"].to_string();
        assert_eq!(actions(0), r#"["s3:GetBucketLocation","s3:GetBucketVersioning","s3:List*"]"#);
        assert_eq!(
            actions(2),
            r#"["s3:AbortMultipartUpload","s3:DeleteObject","s3:DeleteObjectVersion","s3:PutObject","s3:DeleteObjectTagging","s3:PutObjectTagging","s3:Get*","s3:List*"]"#
        );
        let granted = at_foreign_iam(granted());
        assert!(!written(&granted).contains("s3:DeleteObjectVersion"));
    }

    /// They were written before patterns.
    #[test]
    fn old_policies_for_other_stores_are_recognized() {
        let (created, granted) = (at_foreign_iam(record()), at_foreign_iam(granted()));
        for (record, scope, expected) in [
            (&created, Scope::Created, Found::Earlier),
            (&created, Scope::Earlier, Found::Earlier),
            (&granted, Scope::Granted, Found::Earlier),
            (&granted, Scope::Earlier, Found::Wider),
        ] {
            let target = Target::of(record, &Environment::default());
            for account in [target.bucket_account(), None] {
                assert_eq!(compare(&document(&target, account, scope, Dialect::Aws), &target), expected, "{scope:?}");
            }
            assert_eq!(compare(&of(&target), &target), Found::Wanted);
        }
    }

    #[test]
    fn a_list_of_one_that_comes_back_as_its_element_is_the_same() {
        let record = at_foreign_iam(record());
        let target = Target::of(&record, &Environment::default());
        let given_back = of(&target).replace(r#"["s3:PutObjectAcl"]"#, r#""s3:PutObjectAcl""#);
        assert_ne!(given_back, of(&target));
        assert_eq!(compare(&given_back, &target), Found::Wanted);
    }
}
