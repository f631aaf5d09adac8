//! Settings of buckets: which there are, how they are applied to a new bucket, and how they are repaired.
//!
//! S3 refuses changes of one bucket at the same time (`OperationAborted`), so they are applied one after the other, before the
//! app's keys exist. Only what is set is read and compared.

mod access_logs;
mod encryption;
mod lifecycle;
mod ownership;
mod public_access;
mod rule;
mod sub_resource;
mod table;
pub(crate) mod tags;
mod transport;
mod versioning;

use aws_sdk_s3::types::ObjectOwnership;

use self::access_logs::AccessLogs;
use self::encryption::{ALGORITHMS, Encryption};
use self::lifecycle::Lifecycle;
use self::ownership::Ownership;
use self::public_access::Blocked;
use self::sub_resource::{NOT_KEPT, SubResource, put, repair};
pub(crate) use self::table::SETTINGS;
use self::table::{
    ABORT_UPLOADS, ACCESS_LOGS, ENCRYPTION, EXPIRE, EXPIRE_NONCURRENT, KMS_KEY, LIFECYCLE, OBJECT_OWNERSHIP,
    PUBLIC_ACCESS, REQUIRE_TLS, VERSIONING,
};
use self::transport::RequireTls;
use self::versioning::Versioning;
use crate::class::region::partition;
use crate::class::target::Target;
use crate::client::call::{Operation, Resource};
use crate::client::error::{Error, SetBy};
use crate::client::store::Store;
use crate::s3::tagging;
use crate::s3::tags::{Tags, completed};
use bucket_provisioner::store::{Checkup, Mode, Plan, SettingError, Settings};

/// The parameters of which lifecycle rules are made.
const LIFECYCLES: [&str; 4] = [LIFECYCLE, EXPIRE, EXPIRE_NONCURRENT, ABORT_UPLOADS];

/// One that takes calls of its own.
#[derive(Debug, PartialEq, Eq)]
enum Set {
    Ownership(Ownership),
    Encryption(Encryption),
    Versioning(Versioning),
    Lifecycle(Lifecycle),
    PublicAccess(Blocked),
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
            Self::Lifecycle($set) => $then,
            Self::PublicAccess($set) => $then,
            Self::AccessLogs($set) => $then,
            Self::RequireTls($set) => $then,
        }
    };
}

impl Set {
    /// The parameters that set it.
    fn keys(&self) -> &'static [&'static str] {
        match self {
            Self::Ownership(_) => &[OBJECT_OWNERSHIP],
            Self::Encryption(_) => &[ENCRYPTION, KMS_KEY],
            Self::Versioning(_) => &[VERSIONING],
            Self::Lifecycle(_) => &LIFECYCLES,
            Self::PublicAccess(_) => &[PUBLIC_ACCESS],
            Self::AccessLogs(_) => &[ACCESS_LOGS],
            Self::RequireTls(_) => &[REQUIRE_TLS],
        }
    }

    fn operations(&self) -> [Operation; 2] {
        of_each!(self, set => operations_of(set))
    }

    async fn put(&self, store: &Store, target: &Target<'_>) -> Result<(), Error> {
        let answer = of_each!(self, set => put(store, target, set).await);
        answer.map_err(|error| self.refused(target, error))
    }

    async fn repair(&self, store: &Store, target: &Target<'_>) -> Result<Option<String>, Error> {
        let answer = of_each!(self, set => repair(store, target, set).await);
        answer.map_err(|error| self.refused(target, error))
    }

    /// The error about a value that S3 does not accept.
    fn refused(&self, target: &Target<'_>, error: Error) -> Error {
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
pub(crate) struct Wanted(Vec<Set>);

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
        let all = [
            ownership.map(Set::Ownership),
            encryption(plan)?.map(Set::Encryption),
            versioning.map(Set::Versioning),
            lifecycle(settings)?.map(Set::Lifecycle),
            public_access.map(Set::PublicAccess),
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
    fn of_target(target: &Target<'_>) -> Result<Self, Error> {
        if target.record.plan.settings.is_empty() || target.record.plan.mode == Mode::Granted {
            return Ok(Self::default());
        }
        Self::of(&target.record.plan).map_err(|SettingError { key, problem, remedy, .. }| Error::SettingUnusable {
            key,
            problem: format!("{problem}; {remedy}"),
        })
    }
}

/// The ownership of objects that CreateBucket names.
pub(crate) fn object_ownership(target: &Target<'_>) -> Option<ObjectOwnership> {
    Wanted::of_target(target).unwrap_or_default().0.into_iter().find_map(|set| match set {
        Set::Ownership(Ownership(ownership)) => Some(ownership),
        _ => None,
    })
}

/// The operations with which the settings of a class are read and written, and those that its claims may set.
pub(crate) fn needs(target: &Target<'_>) -> Vec<Operation> {
    let may_set = &target.record.plan.settings.claims_may_set;
    let versioning = may_set.contains(VERSIONING).then_some([Versioning::READ, Versioning::WRITE]);
    let lifecycle = LIFECYCLES.iter().any(|key| may_set.contains(key)).then_some([Lifecycle::READ, Lifecycle::WRITE]);
    let Wanted(all) = Wanted::of_target(target).unwrap_or_default();
    all.iter().map(Set::operations).chain(versioning).chain(lifecycle).flatten().collect()
}

/// Whether claims may set tags, which a user may lose again.
pub(crate) fn claims_may_tag(target: &Target<'_>) -> bool {
    let may_set = &target.record.plan.settings.claims_may_set;
    // Also if only one is allowed.
    may_set.to_string().split(", ").any(|key| key.starts_with(tags::FAMILY))
}

/// Whether a new bucket needs more calls than CreateBucket.
pub(crate) fn need_calls(target: &Target<'_>) -> bool {
    let wanted = Wanted::of_target(target);
    wanted.map_or(true, |Wanted(all)| all.iter().any(|set| is_applied(set, target))) || must_keep_tags(target)
}

/// CreateBucket of AWS has set the ownership.
fn is_applied(set: &Set, target: &Target<'_>) -> bool {
    target.endpoints.s3_is_foreign() || !matches!(set, Set::Ownership(_))
}

/// Other stores may drop the tags of CreateBucket.
fn must_keep_tags(target: &Target<'_>) -> bool {
    target.endpoints.s3_is_foreign() && !tags::of(&target.record.plan.settings).is_empty()
}

/// Sets what is set for a new bucket. `applied`: how much of it earlier calls have.
pub(crate) async fn apply(store: &Store, target: &Target<'_>, tags: &Tags, applied: &mut usize) -> Result<(), Error> {
    let Wanted(all) = Wanted::of_target(target)?;
    if *applied == 0 && must_keep_tags(target) {
        keep_tags(store, target, tags).await?;
    }
    for set in all.iter().filter(|set| is_applied(set, target)).skip(*applied) {
        set.put(store, target).await?;
        *applied += 1;
    }
    Ok(())
}

/// Writes all tags of a bucket if the store has dropped them.
async fn keep_tags(store: &Store, target: &Target<'_>, wanted: &Tags) -> Result<(), Error> {
    let bucket = target.bucket_ref();
    let found = tagging::read(store, bucket).await?;
    let Some(all) = completed(&found, wanted) else { return Ok(()) };
    tagging::replace(store, target, &all).await?;
    if completed(&tagging::read(store, bucket).await?, wanted).is_none() {
        return Ok(());
    }
    let (operation, resource) = (Operation::PutBucketTagging, Resource::bucket(bucket.name));
    Err(Error::NotSupported { operation, resource, code: NOT_KEPT.to_owned(), message: None })
}

/// Compares the bucket of a bound claim with what is set, and repairs it; or applies what was changed. Tags aside. One that fails
/// does not keep the others from being tried.
pub(crate) async fn check(store: &Store, target: &Target<'_>, mut checkup: Checkup) -> Checkup {
    let Wanted(all) = match Wanted::of_target(target) {
        Ok(wanted) => wanted,
        Err(error) => return checkup.with_problem(&error, true),
    };
    let (mut of_change, mut of_others, is_changed) = (None, None, target.record.plan.changes.settings);
    for set in &all {
        let is_of_change = is_changed && set.keys().iter().any(|key| is_of_claims(key));
        // Reading first could show what it was before an earlier change.
        let answer = match is_of_change {
            true => set.put(store, target).await.map(|()| None),
            false => set.repair(store, target).await,
        };
        match answer {
            Ok(repaired) => checkup.repaired.extend(repaired),
            Err(error) if is_of_change => of_change = of_change.or(Some(error)),
            Err(error) => of_others = of_others.or(Some(error)),
        }
    }
    let Settings { released, .. } = &target.record.plan.settings;
    let has_lifecycle = all.iter().any(|set| matches!(set, Set::Lifecycle(_)));
    if !has_lifecycle && LIFECYCLES.iter().any(|key| released.contains(*key)) {
        let deleted = lifecycle::delete(store, target.bucket_ref()).await;
        of_change = of_change.or(deleted.err().map(Error::from));
    }
    if released.contains(VERSIONING) {
        checkup.kept.push(format!(
            "the claim no longer sets {VERSIONING}; the versioning of bucket {:?} stays as it is, and is no longer managed",
            target.bucket()
        ));
    }
    match (of_change, of_others) {
        (Some(error), _) => checkup.with_problem(&error, true),
        (None, Some(error)) => checkup.with_problem(&error, false),
        (None, None) => checkup,
    }
}

fn is_of_claims(key: &str) -> bool {
    SETTINGS.iter().any(|setting| setting.name == key && setting.is_of_claims)
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
        None => Err(SettingError::new(key, "is no value of this setting", format!("write {values}"))),
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

/// The key of KMS that the claim's keys need.
pub(crate) fn kms_key(plan: &Plan) -> Option<&str> {
    plan.settings.get(KMS_KEY)
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
