//! `objectLock`: objects that cannot be deleted for a while. It is never made weaker: S3 lets an admin lengthen it by hand, and
//! what should be kept would be lost.

use std::fmt;

use aws_sdk_s3::types as sdk;
use aws_sdk_s3::types::{ObjectLockEnabled, ObjectLockRetentionMode as Mode};

use super::sub_resource::SubResource;
use crate::class::target::{BucketRef, Target};
use crate::client::call::{CallError, Operation, Resource};
use crate::client::error::Error;
use crate::client::store::Store;

/// Longest retentions ("DefaultRetention", Amazon S3 API reference).
const MOST_DAYS: i32 = 36_500;
const MOST_YEARS: i32 = 100;

/// How long new objects are kept, unless their writer asks for more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Retention {
    mode: Mode,
    period: Period,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Period {
    Days(i32),
    Years(i32),
}

impl Period {
    fn days(self) -> i32 {
        match self {
            Self::Days(days) => days,
            Self::Years(years) => years.saturating_mul(365),
        }
    }
}

impl Retention {
    fn parse(text: &str) -> Option<Self> {
        let (mode, period) = text.split_once(':')?;
        let mode = match mode {
            "GOVERNANCE" => Mode::Governance,
            "COMPLIANCE" => Mode::Compliance,
            _ => return None,
        };
        let number = |text: &str, most| text.parse().ok().filter(|number| (1..=most).contains(number));
        let days = period.strip_suffix('d').and_then(|days| number(days, MOST_DAYS)).map(Period::Days);
        let years = || period.strip_suffix('y').and_then(|years| number(years, MOST_YEARS)).map(Period::Years);
        Some(Self { mode, period: days.or_else(years)? })
    }

    fn of_sdk(found: &sdk::DefaultRetention) -> Option<Self> {
        let period = found.days.map(Period::Days).or(found.years.map(Period::Years))?;
        Some(Self { mode: found.mode.clone()?, period })
    }

    /// Whether it keeps objects at least as long, and as surely: anybody can be allowed to end the mode `GOVERNANCE`.
    fn covers(&self, other: &Self) -> bool {
        let is_final = |retention: &Self| retention.mode == Mode::Compliance;
        is_final(self) >= is_final(other) && self.period.days() >= other.period.days()
    }
}

impl fmt::Display for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.period {
            Period::Days(days) => write!(f, "{}:{days}d", self.mode),
            Period::Years(years) => write!(f, "{}:{years}y", self.mode),
        }
    }
}

/// Whether objects of the bucket can be locked, and how long new ones are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectLock(Option<Retention>);

impl ObjectLock {
    pub(super) const VALUES: &'static str = "Enabled, GOVERNANCE:30d or COMPLIANCE:1y";

    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "Enabled" => Some(Self(None)),
            text => Retention::parse(text).map(|retention| Self(Some(retention))),
        }
    }

    /// Whether nobody can end it.
    pub(super) fn is_of_compliance(&self) -> bool {
        self.0.as_ref().is_some_and(|retention| retention.mode == Mode::Compliance)
    }

    /// Whether CreateBucket of AWS has done all.
    pub(super) fn is_only_enabled(&self) -> bool {
        self.0.is_none()
    }

    /// Applies it after an edit. Returns what the bucket keeps instead, because something in it would become weaker.
    ///
    /// # Errors
    /// Any refusal of the store.
    pub(super) async fn edit(&self, store: &Store, target: &Target<'_>) -> Result<Option<String>, Error> {
        let found = Self::read(store, target.bucket_ref()).await?;
        if !self.is_in(&found) {
            self.write(store, target.bucket_ref(), Some(&found)).await?;
            return Ok(None);
        }
        let kept = found.as_ref().and_then(retention).filter(|found| self.0.as_ref() != Some(found));
        Ok(kept.map(|kept| {
            format!("the object lock of bucket {:?} stays {kept}, because a lock is never made weaker", target.bucket())
        }))
    }
}

fn retention(found: &sdk::ObjectLockConfiguration) -> Option<Retention> {
    Retention::of_sdk(found.rule.as_ref()?.default_retention.as_ref()?)
}

impl SubResource for ObjectLock {
    /// `None`: no object can be locked.
    type Found = Option<sdk::ObjectLockConfiguration>;

    const NAME: &'static str = "the object lock";
    const READ: Operation = Operation::GetObjectLockConfiguration;
    const WRITE: Operation = Operation::PutObjectLockConfiguration;

    async fn read(store: &Store, bucket: BucketRef<'_>) -> Result<Self::Found, CallError> {
        let call = store.s3.get_object_lock_configuration().bucket(bucket.name);
        let call = call.set_expected_bucket_owner(bucket.account());
        let send = || call.clone().send();
        let found = match store.call(Self::READ, Resource::bucket(bucket.name), send).await {
            Ok(answer) => answer.object_lock_configuration,
            Err(error) if error.code() == "ObjectLockConfigurationNotFoundError" => None,
            Err(error) => return Err(error),
        };
        Ok(found.filter(|found| found.object_lock_enabled == Some(ObjectLockEnabled::Enabled)))
    }

    /// What would make it weaker in any respect is not wanted.
    fn is_in(&self, found: &Self::Found) -> bool {
        let Some(found) = found else { return false };
        match (&self.0, retention(found)) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(wanted), Some(found)) => found.covers(wanted) || !wanted.covers(&found),
        }
    }

    async fn write(&self, store: &Store, bucket: BucketRef<'_>, found: Option<&Self::Found>) -> Result<(), CallError> {
        // Whatever else is set beside the retention stays.
        let found = found.and_then(|found| found.as_ref()?.rule.as_ref()?.default_retention.clone());
        let rule = self.0.as_ref().map(|Retention { mode, period }| {
            let mut retention = found.unwrap_or_else(|| sdk::DefaultRetention::builder().build());
            retention.mode = Some(mode.clone());
            (retention.days, retention.years) = match *period {
                Period::Days(days) => (Some(days), None),
                Period::Years(years) => (None, Some(years)),
            };
            sdk::ObjectLockRule::builder().default_retention(retention).build()
        });
        let configuration = sdk::ObjectLockConfiguration::builder().object_lock_enabled(ObjectLockEnabled::Enabled);
        let call = store.s3.put_object_lock_configuration().bucket(bucket.name);
        let call = call.object_lock_configuration(configuration.set_rule(rule).build());
        let call = call.set_expected_bucket_owner(bucket.account());
        store.call(Self::WRITE, Resource::bucket(bucket.name), || call.clone().send()).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn lock(text: &str) -> ObjectLock {
        ObjectLock::parse(text).unwrap()
    }

    #[test]
    fn what_s3_would_refuse_is_refused_before() {
        for text in [
            "",
            "enabled",
            "GOVERNANCE",
            "GOVERNANCE:",
            "GOVERNANCE:0d",
            "GOVERNANCE:36501d",
            "COMPLIANCE:101y",
            "LEGAL:1d",
            "GOVERNANCE:30",
        ] {
            assert_eq!(ObjectLock::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_lock_is_never_made_weaker() {
        for (wanted, found, is_in) in [
            ("Enabled", "GOVERNANCE:1d", true),
            ("GOVERNANCE:1d", "Enabled", false),
            ("GOVERNANCE:30d", "GOVERNANCE:7d", false),
            ("GOVERNANCE:7d", "GOVERNANCE:30d", true),
            ("GOVERNANCE:1y", "GOVERNANCE:365d", true),
            ("GOVERNANCE:10y", "COMPLIANCE:1d", true),
            ("COMPLIANCE:1d", "GOVERNANCE:10y", true),
            ("COMPLIANCE:1d", "COMPLIANCE:10y", true),
            ("COMPLIANCE:1y", "GOVERNANCE:30d", false),
        ] {
            let retention = Retention::parse(found).map(|Retention { mode, period }| {
                sdk::DefaultRetention::builder().mode(mode).days(period.days()).build()
            });
            let rule = retention.map(|retention| sdk::ObjectLockRule::builder().default_retention(retention).build());
            let found = sdk::ObjectLockConfiguration::builder().set_rule(rule).build();
            let (wanted, found) = (lock(wanted), Some(found));
            assert_eq!(wanted.is_in(&found), is_in, "{wanted:?} in {found:?}");
        }
        assert!(!lock("Enabled").is_in(&None));
        assert!(lock("COMPLIANCE:1y").is_of_compliance() && !lock("GOVERNANCE:1y").is_of_compliance());
    }
}
