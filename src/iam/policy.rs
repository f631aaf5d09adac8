//! The inline policy of a claim's user: it allows reading, writing, listing, multipart uploads and versions on one
//! bucket, or a part of that by access mode and prefix, and nothing else.

use serde_json::{Map, Value, json};

use crate::class::environment::Environment;
use crate::class::region::partition;
use crate::class::target::Target;
use crate::client::error::Error;
use crate::iam::document::{self, without_lists_of_one};
use crate::s3::settings;
use bucket_provisioner::store::{Access, AccessMode, Mode, Plan, ReclaimPolicy, Record, Request};

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

    /// Replaces actions by the patterns that match them. Who may only write gets no pattern: it would allow reading.
    fn actions(self, mut actions: Vec<&'static str>, patterns: &[&'static str], mode: AccessMode) -> Vec<&'static str> {
        if self == Self::Foreign {
            let matches =
                |action: &&str| patterns.iter().any(|pattern| action.starts_with(pattern.trim_end_matches('*')));
            actions.retain(|action| !matches(action));
            actions.extend(patterns.iter().filter(|_| mode.reads()));
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
fn document(target: &Target<'_>, account: Option<&str>, scope: Scope, dialect: Dialect) -> String {
    let Access { mode, prefix, .. } = &target.record.plan.access;
    let bucket = format!("arn:{}:s3:::{}", partition(&target.endpoints.region).id, target.bucket());
    let of_claim = format!("{}*", prefix.as_deref().unwrap_or_default());
    let objects = format!("{bucket}/{of_claim}");
    let (mut on_bucket, on_objects) = actions(*mode, scope);
    // The keys of uploads that others began under their prefixes cannot be left out.
    let listing = match prefix {
        Some(_) => on_bucket.extract_if(.., |action| action.starts_with("s3:List")).collect(),
        None => Vec::new(),
    };
    let listing = listing.into_iter().filter(|action| *action != "s3:ListBucketMultipartUploads").collect();
    let listing = dialect.actions(listing, &[], *mode);
    let on_bucket = match prefix {
        Some(_) => on_bucket,
        None => dialect.actions(on_bucket, &PATTERNS_ON_BUCKET, *mode),
    };
    let on_objects = dialect.actions(on_objects, &PATTERNS_ON_OBJECTS, *mode);
    let in_prefix = ("StringLike", "s3:prefix", json!(of_claim));
    // Tools set these two by themselves. Other ACLs would make an object public.
    let acls = ("StringEquals", "s3:x-amz-acl", json!(["private", "bucket-owner-full-control"]));

    let mut allowed = vec![(on_bucket, &bucket, None), (on_objects, &objects, None)];
    if !listing.is_empty() {
        allowed.push((listing, &bucket, Some(in_prefix)));
    }
    if scope != Scope::Earlier && mode.writes() {
        allowed.push((vec!["s3:PutObjectAcl"], &objects, Some(acls)));
    }
    let mut statements = Vec::new();
    for (actions, resource, only) in allowed {
        for mut condition in dialect.in_account(account) {
            if let Some((operator, key, values)) = only.clone() {
                let compared = condition.entry(operator).or_insert_with(|| json!({}));
                compared[key] = values;
            }
            let mut statement = json!({ "Effect": "Allow", "Action": actions, "Resource": resource });
            if !condition.is_empty() {
                statement["Condition"] = Value::Object(condition);
            }
            statements.push(statement);
        }
    }
    if let Some(key) = settings::kms_key(&target.record.plan).filter(|_| scope != Scope::Earlier) {
        statements.push(of_key(key, *mode));
    }
    json!({ "Version": "2012-10-17", "Statement": statements }).to_string()
}

/// Lets S3 use a key of KMS for the user. S3 calls KMS where the bucket is ("Using IAM policies with AWS KMS", AWS KMS developer
/// guide); a multipart upload needs both actions.
fn of_key(key: &str, mode: AccessMode) -> Value {
    let region = key.split(':').nth(3).unwrap_or_default();
    let service = format!("s3.{region}.{}", partition(region).dns_suffix);
    let actions = if mode.writes() { json!(["kms:Decrypt", "kms:GenerateDataKey"]) } else { json!("kms:Decrypt") };
    let through = json!({ "StringEquals": { "kms:ViaService": service } });
    json!({ "Effect": "Allow", "Action": actions, "Resource": key, "Condition": through })
}

/// For all inline policies of a user, without white space ("IAM and AWS STS quotas", IAM user guide).
const LENGTH_MAX: usize = 2048;

/// Fails if the policy of the claim could become longer than IAM allows. Without a prefix, the longest names fit.
///
/// # Errors
/// [`Error::PrefixTooLong`].
pub(crate) fn check_length<T>(request: &Request<'_, T>, plan: &Plan, environment: &Environment) -> Result<(), Error> {
    let Access { most, prefix: Some(prefix), .. } = &plan.access else { return Ok(()) };
    let mut record = Record::new(request.claim.clone(), request.class_name, ReclaimPolicy::Retain, plan.clone());
    record.plan.access.mode = *most;
    let length = of(&Target::of(&record, environment)).len();
    let (prefix, max) = (prefix.clone(), LENGTH_MAX);
    if length > max { Err(Error::PrefixTooLong { prefix, length, max }) } else { Ok(()) }
}

/// What a mode allows on the bucket, and on its objects.
fn actions(mode: AccessMode, scope: Scope) -> (Vec<&'static str>, Vec<&'static str>) {
    match mode {
        AccessMode::ReadOnly => return (READING_BUCKET.to_vec(), READING_OBJECTS.to_vec()),
        AccessMode::WriteOnly => return (vec!["s3:GetBucketLocation"], WRITING_OBJECTS.to_vec()),
        AccessMode::ReadWrite => {}
    }
    let (mut on_bucket, mut on_objects) = (ON_BUCKET.to_vec(), ON_OBJECTS.to_vec());
    if scope != Scope::Earlier {
        on_bucket.push("s3:GetBucketVersioning");
        on_objects.extend(ON_TAGS_AND_ACLS);
    }
    if scope == Scope::Granted {
        on_objects.retain(|action| *action != "s3:DeleteObjectVersion");
    }
    (on_bucket, on_objects)
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

const READING_BUCKET: [&str; 4] =
    ["s3:GetBucketLocation", "s3:GetBucketVersioning", "s3:ListBucket", "s3:ListBucketVersions"];

const READING_OBJECTS: [&str; 7] = [
    "s3:GetObject",
    "s3:GetObjectAcl",
    "s3:GetObjectAttributes",
    "s3:GetObjectTagging",
    "s3:GetObjectVersion",
    "s3:GetObjectVersionAttributes",
    "s3:GetObjectVersionTagging",
];

/// A multipart upload needs its parts to be listed, and can be aborted.
const WRITING_OBJECTS: [&str; 4] =
    ["s3:AbortMultipartUpload", "s3:ListMultipartUploadParts", "s3:PutObject", "s3:PutObjectTagging"];

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
    let found = document::read(found);
    let json = |text: &str| serde_json::from_str(text).ok().map(without_lists_of_one);
    let is = |document: String| found.is_some() && found == json(&document);
    let was = |scope| {
        let accounts = [target.bucket_account(), None];
        let all = accounts.iter().flat_map(|account| [(account, Dialect::Aws), (account, Dialect::Foreign)]);
        all.into_iter().any(|(account, dialect)| is(document(target, *account, scope, dialect)))
    };
    let access = &target.record.plan.access;
    if is(of(target)) {
        Found::Wanted
    } else if !access.is_full() {
        if was(Scope::of(target)) { Found::Earlier } else { Found::Other }
    } else if was(Scope::Earlier) && target.record.plan.mode == Mode::Granted {
        Found::Wider
    } else if was(Scope::of(target)) || was(Scope::Earlier) {
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
    use crate::AwsProvisioner;
    use crate::class::params::ClassParameters;
    use crate::class::plan;
    use crate::testing::{UID, at_foreign_iam, granted, named, planned_as, record, without_account};
    use bucket_provisioner::store::{
        ClaimId, CommonParameters, Failure as _, FailureClass, NameRules, Parameters as _, Provisioner as _,
        RawParameters, SharedFrom,
    };

    fn written(record: &Record) -> String {
        of(&Target::of(record, &Environment::default()))
    }

    #[test]
    fn a_shared_bucket_is_that_of_the_account() {
        let mut shared = granted();
        shared.account = Some("123456789012".into());
        assert!(!written(&shared).contains("123456789012"), "one that existed before may be in any account");
        shared.plan.shared_from = Some(SharedFrom::new("loader", ["1".to_owned()]));
        let document = written(&shared);
        assert!(document.contains("aws:ResourceAccount") && document.contains("123456789012"), "{document}");
        assert!(!document.contains("s3:DeleteObjectVersion"), "versions are those of the other claim");
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
            assert!(written.len() < LENGTH_MAX && written.contains("123456789012"), "{}: {written}", written.len());
        }
    }

    /// In each group of regions with long names, of the longest form that ARNs of keys have.
    #[test]
    fn the_longest_name_fits_with_a_key_of_kms() {
        for region in ["us-gov-east-1", "us-isof-south-1", "us-isob-east-1", "ap-southeast-1"] {
            let key = format!("arn:{}:kms:{region}:123456789012:key/mrk-{}", partition(region).id, "0".repeat(32));
            let mut longest = named(region);
            longest.plan.bucket = "b".repeat(63);
            longest.account = Some("123456789012".into());
            longest.plan.settings.of_class.insert("kmsKey".into(), key.clone());
            for record in [longest.clone(), at_foreign_iam(longest)] {
                let written = written(&record);
                assert!(written.len() <= LENGTH_MAX && written.contains(&key), "{}: {written}", written.len());
            }
        }
    }

    /// Plans a claim of this namespace, of a class with these parameters: how long the policy of its user is, and whether
    /// it is allowed.
    fn planned(namespace: &str, parameters: &[(&str, &str)]) -> (usize, Result<(), Error>) {
        let written = parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let (common, own) = CommonParameters::split(&written, NameRules::S3, AwsProvisioner::CAPABILITIES).unwrap();
        let class = ClassParameters::parse(&RawParameters::new(&own, &common)).unwrap();
        let claim = ClaimId { namespace: namespace.into(), name: "photos".into(), uid: UID.into() };
        let bucket = common.bucket.clone().unwrap();
        let request = Request::new(&claim, "archive", bucket, Mode::Granted, "user", (&class, &own, &common));
        let environment = Environment::default();
        let plan = plan::plan(&request, &environment);
        let checked = check_length(&request, &plan, &environment);
        let record = Record::new(claim.clone(), "archive", ReclaimPolicy::Retain, plan);
        (of(&Target::of(&record, &environment)).len(), checked)
    }

    /// A bucket and a prefix with which the policy gets exactly this length. It contains the prefix three times, and the
    /// bucket four times.
    fn names_for(length: usize, more: &[(&str, &str)]) -> (String, String) {
        let found = (60..63).find_map(|count| {
            let bucket = "b".repeat(count);
            let shortest = planned("shop", &[&[("bucketName", bucket.as_str()), ("prefix", "p/")], more].concat()).0;
            let missing = length - shortest;
            missing.is_multiple_of(3).then(|| (bucket, format!("{}/", "p".repeat(1 + missing / 3))))
        });
        found.unwrap()
    }

    #[test]
    fn a_prefix_is_refused_from_the_first_character_too_many() {
        const KEY: &str = "arn:aws:kms:us-west-1:123456789012:key/0123-abcd";
        for more in [&[][..], &[("kmsKey", KEY)]] {
            let planned_with = |length| {
                let (bucket, prefix) = names_for(length, more);
                let names = [("bucketName", bucket.as_str()), ("prefix", prefix.as_str())];
                let (found, checked) = planned("shop", &[&names, more].concat());
                assert_eq!(found, length);
                (prefix, checked)
            };
            let (_, checked) = planned_with(LENGTH_MAX);
            assert!(checked.is_ok(), "{checked:?}");
            let (long, checked) = planned_with(LENGTH_MAX + 1);
            let refused = checked.unwrap_err();
            assert_eq!((refused.reason(), refused.class()), ("PrefixTooLong", FailureClass::Terminal));
            assert!(
                matches!(&refused, Error::PrefixTooLong { prefix, length: 2049, max: 2048 } if *prefix == long),
                "{refused:?}"
            );
        }
    }

    /// Its class can be used by claims of other namespaces.
    #[test]
    fn a_prefix_is_as_long_as_the_namespace_makes_it() {
        let (bucket, prefix) = names_for(LENGTH_MAX, &[]);
        // In place of as many characters as the first namespace has.
        let prefix = prefix.replacen("pppp", "${namespace}", 1);
        let parameters = [("bucketName", bucket.as_str()), ("prefix", prefix.as_str())];
        assert!(planned("shop", &parameters).1.is_ok());
        let refused = planned("shops", &parameters).1.unwrap_err();
        assert!(matches!(&refused, Error::PrefixTooLong { prefix, .. } if prefix.contains("shops")), "{refused:?}");
    }

    fn limited(mode: AccessMode, prefix: Option<&str>) -> Record {
        let mut record = granted();
        record.plan.access = Access::of_mode(mode);
        record.plan.access.prefix = prefix.map(str::to_owned);
        record
    }

    fn allowed(record: &Record) -> Vec<(String, String, String)> {
        let document: Value = serde_json::from_str(&written(record)).unwrap();
        let statements = document["Statement"].as_array().unwrap().iter();
        let shown = |value: &Value| value.to_string().replace("s3:", "").replace('"', "");
        statements.map(|s| (shown(&s["Action"]), shown(&s["Resource"]), shown(&s["Condition"]))).collect()
    }

    #[test]
    fn a_mode_allows_reading_or_writing() {
        let actions = |mode| allowed(&limited(mode, None)).into_iter().map(|(actions, ..)| actions).collect::<Vec<_>>();
        assert_eq!(
            actions(AccessMode::ReadOnly),
            [
                "[GetBucketLocation,GetBucketVersioning,ListBucket,ListBucketVersions]",
                "[GetObject,GetObjectAcl,GetObjectAttributes,GetObjectTagging,GetObjectVersion,GetObjectVersionAttributes,GetObjectVersionTagging]"
            ]
        );
        assert_eq!(
            actions(AccessMode::WriteOnly),
            [
                "[GetBucketLocation]",
                "[AbortMultipartUpload,ListMultipartUploadParts,PutObject,PutObjectTagging]",
                "[PutObjectAcl]"
            ]
        );
        for record in [limited(AccessMode::ReadOnly, None), at_foreign_iam(limited(AccessMode::ReadOnly, None))] {
            assert!(!written(&record).contains("Put") && !written(&record).contains("Delete"), "{}", written(&record));
        }
        for record in [limited(AccessMode::WriteOnly, None), at_foreign_iam(limited(AccessMode::WriteOnly, None))] {
            assert!(!written(&record).contains("GetObject") && !written(&record).contains("*\",\"s3:"));
            assert!(!written(&record).contains("ListBucket") && !written(&record).contains("s3:List*"));
        }
    }

    #[test]
    fn a_prefix_limits_objects_and_listings() {
        let shown = allowed(&limited(AccessMode::ReadWrite, Some("shop/")));
        let on: Vec<_> = shown.iter().map(|(_, resource, _)| resource.as_str()).collect();
        assert_eq!(on, ["arn:aws:::photos", "arn:aws:::photos/shop/*", "arn:aws:::photos", "arn:aws:::photos/shop/*"]);
        assert_eq!(shown[0].0, "[GetBucketLocation,GetBucketVersioning]");
        assert_eq!(
            (shown[2].0.as_str(), shown[2].2.as_str()),
            ("[ListBucket,ListBucketVersions]", "{StringLike:{prefix:shop/*}}")
        );
        let patterns = written(&at_foreign_iam(limited(AccessMode::ReadOnly, Some("shop/"))));
        assert!(!patterns.contains(r#""Resource":"arn:aws:s3:::photos""#) || patterns.contains("s3:prefix"));
    }

    /// Beside that, an earlier version's document would be taken for a narrower one.
    #[test]
    fn only_full_access_knows_the_documents_of_earlier_versions() {
        let reader = limited(AccessMode::ReadOnly, None);
        let target = Target::of(&reader, &Environment::default());
        assert_eq!(compare(&written(&granted()), &target), Found::Other);
        assert_eq!(compare(&of(&target), &target), Found::Wanted);
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
