//! The session policy of an association: what pods of a ServiceAccount may do, of what the role allows that they get sessions of.
//! It has statements for each claim, whose ids begin with the uid of the claim. Pure.
//!
//! It is short, because it has 2,048 characters for all claims of a ServiceAccount: the role limits the actions as well ("Session
//! policies", IAM user guide).

use serde_json::{Value, json};

use crate::class::region::partition;
use crate::class::target::Target;
use crate::iam::document::without_lists_of_one;
use crate::s3::settings;
use bucket_provisioner::store::{Access, AccessMode, Mode};

/// CreatePodIdentityAssociation, EKS API reference.
const LENGTH_MAX: usize = 2048;

/// Letters and digits in a uid.
const UID: usize = 32;

/// On buckets that were created for a claim, and on their objects.
const EVERYTHING: [&str; 5] = ["s3:Get*", "s3:List*", "s3:PutObject*", "s3:DeleteObject*", "s3:AbortMultipartUpload"];
/// The same without deleting object versions, which are those of the owner of a bucket that existed before.
const WITHOUT_VERSIONS: [&str; 6] =
    ["s3:Get*", "s3:List*", "s3:PutObject*", "s3:DeleteObject", "s3:DeleteObjectTagging", "s3:AbortMultipartUpload"];
const READING: [&str; 2] = ["s3:Get*", "s3:List*"];
const WRITING: [&str; 5] = [
    "s3:GetBucketLocation",
    "s3:PutObject",
    "s3:PutObjectTagging",
    "s3:AbortMultipartUpload",
    "s3:ListMultipartUploadParts",
];
/// Instead of `s3:List*`, if the claim may list only what begins with a prefix.
const LISTING_BUCKET: [&str; 2] = ["s3:ListBucket", "s3:ListBucketVersions"];
const LISTING_PARTS: &str = "s3:ListMultipartUploadParts";

/// The statements of a session policy.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SessionPolicy(Vec<Value>);

impl SessionPolicy {
    /// Reads a policy as EKS returns it; none is one without statements.
    pub(crate) fn read(text: Option<&str>) -> Option<Self> {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Some(Self::default()) };
        let mut document: Value = serde_json::from_str(text).ok()?;
        match document["Statement"].take() {
            Value::Array(statements) => Some(Self(statements)),
            statement @ Value::Object(_) => Some(Self(vec![statement])),
            _ => None,
        }
    }

    /// That of one claim alone.
    pub(crate) fn of(target: &Target<'_>, uid: &str) -> Self {
        Self(statements(target, &id(uid)))
    }

    /// Whether it has statements of the claim with this uid.
    pub(crate) fn has(&self, uid: &str) -> bool {
        self.0.iter().any(|statement| sid(statement).starts_with(&id(uid)))
    }

    /// The same without the statements of the claim.
    pub(crate) fn without(mut self, uid: &str) -> Self {
        self.0.retain(|statement| !sid(statement).starts_with(&id(uid)));
        self
    }

    /// The same with the statements that the claim has now. Those of others stay as they are.
    pub(crate) fn with(self, target: &Target<'_>, uid: &str) -> Self {
        let Self(mut all) = self.without(uid);
        all.extend(statements(target, &id(uid)));
        all.sort_by(|one, other| sid(one).cmp(sid(other)));
        Self(all)
    }

    /// Whether both have the same statements, in whatever order.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let plain = |Self(all): &Self| all.iter().cloned().map(without_lists_of_one).collect::<Vec<_>>();
        let (one, other) = (plain(self), plain(other));
        one.len() == other.len() && one.iter().all(|statement| other.contains(statement))
    }

    /// Whether it has statements that are not those of the claim.
    pub(crate) fn is_of_others(&self, uid: &str) -> bool {
        self.0.iter().any(|statement| !sid(statement).starts_with(&id(uid)))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The uids of the claims that have statements.
    pub(crate) fn uids(&self) -> Vec<String> {
        let mut uids: Vec<_> = self.0.iter().filter_map(|statement| uid_of(sid(statement))).collect();
        uids.sort_unstable();
        uids.dedup();
        uids
    }

    /// Whether EKS would refuse it.
    pub(crate) fn is_too_long(&self) -> bool {
        self.text().chars().count() > LENGTH_MAX
    }

    pub(crate) fn text(&self) -> String {
        json!({ "Version": "2012-10-17", "Statement": self.0 }).to_string()
    }
}

/// With what the ids of a claim's statements begin: they have letters and digits only.
fn id(uid: &str) -> String {
    uid.chars().filter(char::is_ascii_alphanumeric).collect()
}

fn sid(statement: &Value) -> &str {
    statement["Sid"].as_str().unwrap_or_default()
}

/// The uid of a claim, by the id of one of its statements.
fn uid_of(sid: &str) -> Option<String> {
    let id = sid.get(..UID).filter(|id| id.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    let parts = [id.get(..8)?, id.get(8..12)?, id.get(12..16)?, id.get(16..20)?, id.get(20..)?];
    Some(parts.join("-"))
}

fn statements(target: &Target<'_>, id: &str) -> Vec<Value> {
    let Access { mode, prefix, .. } = &target.record.plan.access;
    let bucket = format!("arn:{}:s3:::{}", partition(&target.endpoints.region).id, target.bucket());
    let of_claim = format!("{}*", prefix.as_deref().unwrap_or_default());
    let mut actions = match (mode, target.record.plan.mode) {
        (AccessMode::ReadOnly, _) => READING.to_vec(),
        (AccessMode::WriteOnly, _) => WRITING.to_vec(),
        (AccessMode::ReadWrite, Mode::Created) => EVERYTHING.to_vec(),
        (AccessMode::ReadWrite, Mode::Granted) => WITHOUT_VERSIONS.to_vec(),
    };
    let mut all = Vec::new();
    if prefix.is_some() && mode.reads() {
        actions.iter_mut().filter(|action| **action == "s3:List*").for_each(|action| *action = LISTING_PARTS);
        all.push(json!({
            "Sid": format!("{id}List"), "Effect": "Allow", "Action": LISTING_BUCKET, "Resource": bucket,
            "Condition": { "StringLike": { "s3:prefix": of_claim } },
        }));
    }
    let resources = [bucket.clone(), format!("{bucket}/{of_claim}")];
    all.insert(0, json!({ "Sid": id, "Effect": "Allow", "Action": actions, "Resource": resources }));
    if let Some(key) = settings::kms_key(&target.record.plan) {
        let actions = if mode.writes() { json!(["kms:Decrypt", "kms:GenerateDataKey"]) } else { json!("kms:Decrypt") };
        all.push(json!({ "Sid": format!("{id}Key"), "Effect": "Allow", "Action": actions, "Resource": key }));
    }
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::class::environment::Environment;
    use crate::testing::{UID, granted, named};
    use bucket_provisioner::store::Record;

    const OTHER: &str = "0a1b2c3d-0000-4000-8000-000000000001";

    fn of(record: &Record) -> SessionPolicy {
        SessionPolicy::of(&Target::of(record, &Environment::default()), UID)
    }

    #[test]
    fn pods_may_use_the_bucket_of_the_claim_and_nothing_else() {
        insta::assert_snapshot!(of(&named("eu-central-1")).text(), @r#"{"Version":"2012-10-17","Statement":[{"Sid":"f30e0389068948a2bfaa74d1bf1fd950","Effect":"Allow","Action":["s3:Get*","s3:List*","s3:PutObject*","s3:DeleteObject*","s3:AbortMultipartUpload"],"Resource":["arn:aws:s3:::photos","arn:aws:s3:::photos/*"]}]}"#);
        let limited = |mode, prefix: Option<&str>| {
            let mut record = granted();
            record.plan.access.mode = mode;
            record.plan.access.prefix = prefix.map(str::to_owned);
            record.plan.settings.of_class.insert("kmsKey".into(), "arn:aws:kms:us-west-1:123456789012:key/1".into());
            of(&record).text()
        };
        insta::assert_snapshot!(limited(AccessMode::ReadWrite, Some("shop/")), @r#"{"Version":"2012-10-17","Statement":[{"Sid":"f30e0389068948a2bfaa74d1bf1fd950","Effect":"Allow","Action":["s3:Get*","s3:ListMultipartUploadParts","s3:PutObject*","s3:DeleteObject","s3:DeleteObjectTagging","s3:AbortMultipartUpload"],"Resource":["arn:aws:s3:::photos","arn:aws:s3:::photos/shop/*"]},{"Sid":"f30e0389068948a2bfaa74d1bf1fd950List","Effect":"Allow","Action":["s3:ListBucket","s3:ListBucketVersions"],"Resource":"arn:aws:s3:::photos","Condition":{"StringLike":{"s3:prefix":"shop/*"}}},{"Sid":"f30e0389068948a2bfaa74d1bf1fd950Key","Effect":"Allow","Action":["kms:Decrypt","kms:GenerateDataKey"],"Resource":"arn:aws:kms:us-west-1:123456789012:key/1"}]}"#);
        insta::assert_snapshot!(limited(AccessMode::WriteOnly, Some("shop/")), @r#"{"Version":"2012-10-17","Statement":[{"Sid":"f30e0389068948a2bfaa74d1bf1fd950","Effect":"Allow","Action":["s3:GetBucketLocation","s3:PutObject","s3:PutObjectTagging","s3:AbortMultipartUpload","s3:ListMultipartUploadParts"],"Resource":["arn:aws:s3:::photos","arn:aws:s3:::photos/shop/*"]},{"Sid":"f30e0389068948a2bfaa74d1bf1fd950Key","Effect":"Allow","Action":["kms:Decrypt","kms:GenerateDataKey"],"Resource":"arn:aws:kms:us-west-1:123456789012:key/1"}]}"#);
        let read_only = limited(AccessMode::ReadOnly, None);
        assert!(!read_only.contains("Put") && !read_only.contains("GenerateDataKey"), "{read_only}");
        let versions = limited(AccessMode::ReadWrite, None);
        assert!(!versions.contains("DeleteObject*") && !versions.contains("DeleteObjectVersion"), "{versions}");
    }

    #[test]
    fn claims_of_a_service_account_keep_each_their_own() {
        let record = named("eu-central-1");
        let target = Target::of(&record, &Environment::default());
        let one = SessionPolicy::default().with(&target, UID);
        let both = one.clone().with(&target, OTHER);
        assert!(both.has(UID) && both.has(OTHER) && !one.has(OTHER));
        assert_eq!(both.uids(), [OTHER, UID]);
        let read = SessionPolicy::read(Some(&both.text())).unwrap();
        assert!(read.is_same(&both) && !read.is_same(&one));
        assert!(both.clone().with(&target, UID).is_same(&both), "it is written once");
        assert!(both.without(OTHER).is_same(&one) && one.without(UID).is_empty());
        assert_eq!(SessionPolicy::read(None), Some(SessionPolicy::default()));
        assert_eq!(SessionPolicy::read(Some("{}")), None, "nothing of it is known");
        let by_hand = r#"{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"s3:*","Resource":"*"}}"#;
        assert_eq!(SessionPolicy::read(Some(by_hand)).unwrap().uids(), Vec::<String>::new());
    }

    #[test]
    fn several_buckets_of_the_longest_names_fit() {
        let mut record = named("us-gov-east-1");
        record.plan.bucket = "b".repeat(63);
        let target = Target::of(&record, &Environment::default());
        let of = |count: u32| {
            (0..count).fold(SessionPolicy::default(), |policy, nth| policy.with(&target, &format!("{nth:032x}")))
        };
        assert!(!of(5).is_too_long(), "{}", of(5).text().len());
        assert!(of(8).is_too_long(), "{}", of(8).text().len());
    }
}
