//! What class and claim set for a bucket, parsed and checked.

use super::access_logs::AccessLogs;
use super::cors::Cors;
use super::encryption::{ALGORITHMS, Encryption};
use super::event_bridge::EventBridge;
use super::lifecycle::{self, Lifecycle};
use super::object_lock::ObjectLock;
use super::ownership::{self, Ownership};
use super::public_access::Blocked;
use super::sub_resource::{SubResource, put, repair};
use super::table::{
    ABORT_UPLOADS, ACCESS_LOGS, BYPASS_GOVERNANCE, CORS, ENCRYPTION, EVENT_BRIDGE, EXPIRE, EXPIRE_NONCURRENT, KMS_KEY,
    LIFECYCLE, OBJECT_LOCK, OBJECT_OWNERSHIP, PUBLIC_ACCESS, REQUIRE_TLS, VERSIONING,
};
use super::tags;
use super::transport::RequireTls;
use super::versioning::Versioning;
use crate::class::region::partition;
use crate::class::target::Target;
use crate::client::call::Operation;
use crate::client::error::{Error, SetBy};
use crate::client::store::Store;
use bucket_provisioner::store::{Mode, Plan, SettingError, Settings};

/// The parameters of which lifecycle rules are made.
pub(super) const LIFECYCLES: [&str; 4] = [LIFECYCLE, EXPIRE, EXPIRE_NONCURRENT, ABORT_UPLOADS];

/// One that takes calls of its own.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Set {
    Ownership(Ownership),
    Encryption(Encryption),
    Versioning(Versioning),
    ObjectLock(ObjectLock),
    Lifecycle(Lifecycle),
    PublicAccess(Blocked),
    Cors(Cors),
    EventBridge(EventBridge),
    AccessLogs(AccessLogs),
    RequireTls(RequireTls),
}

/// The same for each of them.
macro_rules! of_each {
    ($this:expr, $set:ident => $then:expr) => {
        match $this {
            Self::Ownership($set) => $then,
            Self::Encryption($set) => $then,
            Self::Versioning($set) => $then,
            Self::ObjectLock($set) => $then,
            Self::Lifecycle($set) => $then,
            Self::PublicAccess($set) => $then,
            Self::Cors($set) => $then,
            Self::EventBridge($set) => $then,
            Self::AccessLogs($set) => $then,
            Self::RequireTls($set) => $then,
        }
    };
}

impl Set {
    /// The parameters that set it.
    pub(super) fn keys(&self) -> &'static [&'static str] {
        match self {
            Self::Ownership(_) => &[OBJECT_OWNERSHIP],
            Self::Encryption(_) => &[ENCRYPTION, KMS_KEY],
            Self::Versioning(_) => &[VERSIONING],
            Self::ObjectLock(_) => &[OBJECT_LOCK],
            Self::Lifecycle(_) => &LIFECYCLES,
            Self::PublicAccess(_) => &[PUBLIC_ACCESS],
            Self::Cors(_) => &[CORS],
            Self::EventBridge(_) => &[EVENT_BRIDGE],
            Self::AccessLogs(_) => &[ACCESS_LOGS],
            Self::RequireTls(_) => &[REQUIRE_TLS],
        }
    }

    pub(super) fn operations(&self) -> [Operation; 2] {
        of_each!(self, set => operations_of(set))
    }

    pub(super) async fn put(&self, store: &Store, target: &Target<'_>) -> Result<(), Error> {
        let answer = of_each!(self, set => put(store, target, set).await);
        answer.map_err(|error| self.refused(target, error))
    }

    pub(super) async fn repair(&self, store: &Store, target: &Target<'_>) -> Result<Option<String>, Error> {
        let answer = of_each!(self, set => repair(store, target, set).await);
        answer.map_err(|error| self.refused(target, error))
    }

    /// The error about a value that S3 does not accept.
    pub(super) fn refused(&self, target: &Target<'_>, error: Error) -> Error {
        let Settings { of_claim, .. } = &target.record.plan.settings;
        match error {
            Error::Rejected { code, message, .. } if is_about_value(&code) => {
                let of_claim = self.keys().iter().find(|key| of_claim.contains_key(**key));
                let set = |key: &&str| target.record.plan.settings.get(key).is_some();
                let setting = of_claim.or_else(|| self.keys().iter().find(|key| set(key))).copied().unwrap_or_default();
                let place = if of_claim.is_some() { SetBy::Claim } else { SetBy::Class };
                Error::SettingRefused { setting, place, code, message }
            }
            error => error,
        }
    }
}

fn operations_of<S: SubResource>(_: &S) -> [Operation; 2] {
    [S::READ, S::WRITE]
}

/// Whether a code means that S3 does not accept a value ("Error responses", Amazon S3 API reference).
fn is_about_value(code: &str) -> bool {
    matches!(
        code,
        "MalformedXML"
            | "MalformedPolicy"
            | "InvalidArgument"
            | "InvalidRequest"
            | "InvalidBucketState"
            | "InvalidTargetBucketForLogging"
            | "InvalidStorageClass"
            | "InvalidTag"
    )
}

/// What is set for a bucket beside tags, in the order in which it is applied.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted(pub(super) Vec<Set>);

impl Wanted {
    /// Parses what class and claim set.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub(crate) fn of(plan: &Plan) -> Result<Self, SettingError> {
        let settings = &plan.settings;
        tags::parse(settings)?;
        let ownership = one(settings, OBJECT_OWNERSHIP, Ownership::parse, &ownership::VALUES.join(", "))?;
        let versioning = one(settings, VERSIONING, Versioning::parse, "Enabled or Suspended")?;
        let public_access = one(settings, PUBLIC_ACCESS, Blocked::parse, "blocked")?;
        let access_logs = one(settings, ACCESS_LOGS, AccessLogs::parse, "a bucket and a prefix, such as logs/photos/")?;
        let event_bridge = one(settings, EVENT_BRIDGE, |text| (text == "true").then_some(EventBridge), "true")?;
        one(settings, BYPASS_GOVERNANCE, |text| ["yes", "no"].contains(&text).then_some(()), "yes or no")?;
        let all = [
            ownership.map(Set::Ownership),
            encryption(plan)?.map(Set::Encryption),
            versioning.map(Set::Versioning),
            object_lock(settings)?.map(Set::ObjectLock),
            lifecycle(settings)?.map(Set::Lifecycle),
            public_access.map(Set::PublicAccess),
            cors(settings)?.map(Set::Cors),
            event_bridge.map(Set::EventBridge),
            access_logs.map(Set::AccessLogs),
            // Last, because it can lock out who calls without TLS.
            require_tls(plan)?.map(Set::RequireTls),
        ];
        Ok(Self(all.into_iter().flatten().collect()))
    }

    /// The same for a claim that is planned.
    ///
    /// # Errors
    /// The first setting that cannot be used, or has no effect. An ObjectBucket that was recreated may have such.
    pub(crate) fn planned(plan: &Plan) -> Result<Self, SettingError> {
        let wanted = Self::of(plan)?;
        let is_of_compliance = |set: &Set| matches!(set, Set::ObjectLock(lock) if lock.is_of_compliance());
        if plan.settings.of_claim.contains_key(OBJECT_LOCK) && wanted.0.iter().any(is_of_compliance) {
            let problem = "would keep objects that nobody could delete, which only admins decide";
            return Err(SettingError::new(OBJECT_LOCK, problem, "write Enabled or GOVERNANCE:30d"));
        }
        let uses_kms = wanted.0.iter().any(|set| matches!(set, Set::Encryption(encryption) if encryption.uses_kms()));
        if plan.mode == Mode::Created && kms_key(plan).is_some() && !uses_kms {
            let remedy = "set encryption to aws:kms or aws:kms:dsse";
            return Err(SettingError::new(KMS_KEY, "has no effect without encryption by KMS", remedy));
        }
        Ok(wanted)
    }

    /// What is set for a record.
    ///
    /// # Errors
    /// [`Error::SettingUnusable`]: it was checked when the claim was planned, and somebody has edited the record.
    pub(super) fn of_target(target: &Target<'_>) -> Result<Self, Error> {
        if target.record.plan.settings.is_empty() || target.record.plan.mode == Mode::Granted {
            return Ok(Self::default());
        }
        Self::of(&target.record.plan).map_err(|SettingError { key, problem, remedy, .. }| Error::SettingUnusable {
            key,
            problem: format!("{problem}; {remedy}"),
        })
    }
}

/// The key of KMS that the claim's keys need.
pub(crate) fn kms_key(plan: &Plan) -> Option<&str> {
    plan.settings.get(KMS_KEY)
}

/// Parses one setting.
fn one<T>(
    settings: &Settings,
    key: &str,
    parse: impl FnOnce(&str) -> Option<T>,
    values: &str,
) -> Result<Option<T>, SettingError> {
    let Some(text) = settings.get(key) else { return Ok(None) };
    match parse(text) {
        Some(value) => Ok(Some(value)),
        None => Err(SettingError::new(key, "is not a value of this setting", format!("write {values}"))),
    }
}

fn require_tls(plan: &Plan) -> Result<Option<RequireTls>, SettingError> {
    let is_true = |text: &str| (text == "true").then_some(());
    let set = one(&plan.settings, REQUIRE_TLS, is_true, "true, or remove it")?;
    if set.is_some() && plan.endpoint.url.as_deref().is_some_and(|url| url.starts_with("http:")) {
        let problem = "would deny all calls to the endpoint of the class, which has no TLS";
        return Err(SettingError::new(REQUIRE_TLS, problem, "remove it, or use an https endpoint"));
    }
    Ok(set.map(|()| RequireTls::new(partition(&plan.endpoint.region).id)))
}

fn encryption(plan: &Plan) -> Result<Option<Encryption>, SettingError> {
    let (settings, key) = (&plan.settings, plan.settings.get(KMS_KEY));
    if key.is_some_and(|key| !is_key_arn(key)) {
        let remedy = "write an ARN such as arn:aws:kms:eu-central-1:123456789012:key/ID";
        // An alias or an id means the key of the account that calls.
        return Err(SettingError::new(KMS_KEY, "is not the ARN of a KMS key", remedy));
    }
    // Other stores name their regions as they like.
    let is_elsewhere = |key: &str| key.split(':').nth(3) != Some(&plan.endpoint.region);
    if plan.endpoint.url.is_none() && key.is_some_and(is_elsewhere) {
        let remedy = format!("name a key in {}", plan.endpoint.region);
        return Err(SettingError::new(KMS_KEY, "is in another region than the bucket", remedy));
    }
    let parse = |algorithm: &str| Encryption::parse(algorithm, key);
    let encryption = one(settings, ENCRYPTION, parse, &ALGORITHMS.join(", "))?;
    Ok(encryption)
}

/// `arn:<partition>:kms:<region>:<account>:key/<id>`.
fn is_key_arn(text: &str) -> bool {
    let parts: Vec<&str> = text.splitn(6, ':').collect();
    let is_plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    matches!(parts.as_slice(), ["arn", partition, "kms", region, account, resource]
        if is_plain(partition) && is_plain(region) && account.len() == 12 && is_plain(account)
            && resource.strip_prefix("key/").is_some_and(is_plain))
}

/// Longest time that S3 accepts.
const MOST_DAYS: i32 = i32::MAX;

fn lifecycle(settings: &Settings) -> Result<Option<Lifecycle>, SettingError> {
    let days = |key| {
        let parse = |text: &str| text.strip_suffix('d')?.parse().ok().filter(|days| (1..=MOST_DAYS).contains(days));
        one(settings, key, parse, "a number of days, such as 30d")
    };
    let of_days = Lifecycle::of_days(days(EXPIRE)?, days(EXPIRE_NONCURRENT)?, days(ABORT_UPLOADS)?);
    let Some(text) = settings.get(LIFECYCLE) else { return Ok(of_days) };
    if of_days.is_some() {
        // Of the two, the claim's is the one that can be changed.
        let of_claim = LIFECYCLES.into_iter().find(|key| settings.of_claim.contains_key(*key));
        let problem =
            format!("cannot be combined: {LIFECYCLE} excludes {EXPIRE}, {EXPIRE_NONCURRENT} and {ABORT_UPLOADS}");
        return Err(SettingError::new(of_claim.unwrap_or(LIFECYCLE), problem, "set one or the other"));
    }
    match Lifecycle::parse(text) {
        Ok(lifecycle) => Ok(Some(lifecycle)),
        Err(lifecycle::Problem(problem)) => {
            let remedy = "write rules as for aws s3api put-bucket-lifecycle-configuration";
            Err(SettingError::new(LIFECYCLE, problem, remedy))
        }
    }
}

fn object_lock(settings: &Settings) -> Result<Option<ObjectLock>, SettingError> {
    let lock = one(settings, OBJECT_LOCK, ObjectLock::parse, ObjectLock::VALUES)?;
    if lock.is_some() && settings.get(VERSIONING) == Some("Suspended") {
        // Of the two, the claim's is the one that can be changed.
        let of_claim = [VERSIONING, OBJECT_LOCK].into_iter().find(|key| settings.of_claim.contains_key(*key));
        let problem = format!("cannot be combined: {OBJECT_LOCK} needs versions, and {VERSIONING} is \"Suspended\"");
        return Err(SettingError::new(of_claim.unwrap_or(VERSIONING), problem, "remove one of both"));
    }
    Ok(lock)
}

fn cors(settings: &Settings) -> Result<Option<Cors>, SettingError> {
    let Some(text) = settings.get(CORS) else { return Ok(None) };
    let remedy = "write rules as for aws s3api put-bucket-cors";
    Cors::parse(text).map(Some).map_err(|problem| SettingError::new(CORS, problem, remedy))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::{granted, record};

    const KEY: &str = "arn:aws:kms:us-west-1:123456789012:key/0123-abcd";

    fn plan(entries: &[(&str, &str)]) -> Plan {
        let mut plan = record().plan;
        plan.settings.of_class = entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        plan
    }

    #[test]
    fn each_value_is_checked_before_the_first_call() {
        for (entries, key, problem) in [
            (&[(VERSIONING, "enabled")][..], VERSIONING, "Enabled or Suspended"),
            (&[(ENCRYPTION, "kms")], ENCRYPTION, "aws:kms"),
            (&[(KMS_KEY, "alias/mine"), (ENCRYPTION, "aws:kms")], KMS_KEY, "arn:aws:kms"),
            (&[(KMS_KEY, "arn:aws:kms:eu-west-1:123456789012:key/1"), (ENCRYPTION, "aws:kms")], KMS_KEY, "us-west-1"),
            (&[(KMS_KEY, KEY)], KMS_KEY, "set encryption"),
            (&[(KMS_KEY, KEY), (ENCRYPTION, "AES256")], KMS_KEY, "set encryption"),
            (&[(EXPIRE, "0d")], EXPIRE, "30d"),
            (&[(EXPIRE, "30")], EXPIRE, "30d"),
            (&[(ABORT_UPLOADS, "-1d")], ABORT_UPLOADS, "30d"),
            (&[(EXPIRE, "1d"), (LIFECYCLE, "{}")], LIFECYCLE, "one or the other"),
            (&[(LIFECYCLE, "{}")], LIFECYCLE, "put-bucket-lifecycle-configuration"),
            (&[(REQUIRE_TLS, "yes")], REQUIRE_TLS, "true"),
            (&[(PUBLIC_ACCESS, "off")], PUBLIC_ACCESS, "blocked"),
            (&[(OBJECT_OWNERSHIP, "Me")], OBJECT_OWNERSHIP, "BucketOwnerEnforced"),
            (&[(ACCESS_LOGS, "Logs/x")], ACCESS_LOGS, "logs/photos/"),
            (&[(OBJECT_LOCK, "GOVERNANCE")], OBJECT_LOCK, "GOVERNANCE:30d"),
            (&[(OBJECT_LOCK, "Enabled"), (VERSIONING, "Suspended")], VERSIONING, "remove one of both"),
            (&[(BYPASS_GOVERNANCE, "true")], BYPASS_GOVERNANCE, "yes or no"),
            (&[(CORS, "{}")], CORS, "put-bucket-cors"),
            (&[(EVENT_BRIDGE, "yes")], EVENT_BRIDGE, "true"),
        ] {
            let SettingError { key: named, remedy, .. } = Wanted::planned(&plan(entries)).unwrap_err();
            assert!(named == key && remedy.contains(problem), "{entries:?}: {named} {remedy}");
        }
        assert_eq!(Wanted::of(&plan(&[])).unwrap(), Wanted::default());
        let all =
            [(VERSIONING, "Enabled"), (KMS_KEY, KEY), (ENCRYPTION, "aws:kms"), (EXPIRE, "30d"), (REQUIRE_TLS, "true")];
        assert_eq!(Wanted::planned(&plan(&all)).unwrap().0.len(), 4);
    }

    #[test]
    fn calls_without_tls_are_not_denied_where_there_is_none() {
        let mut plan = plan(&[(REQUIRE_TLS, "true")]);
        plan.endpoint.url = Some("http://store:9000".into());
        assert!(Wanted::of(&plan).unwrap_err().problem.contains("no TLS"));
    }

    #[test]
    fn of_an_existing_bucket_only_the_key_matters() {
        let mut plan = granted().plan;
        plan.settings.of_class.insert(KMS_KEY.into(), KEY.into());
        assert_eq!(Wanted::planned(&plan).unwrap(), Wanted::default());
        assert_eq!(kms_key(&plan), Some(KEY));
    }
}
