//! What keeps an object of a bucket from being deleted: a legal hold, or a retention.

use std::fmt;
use std::time::{Duration, SystemTime};

use aws_sdk_s3::primitives::{DateTime, DateTimeFormat};

/// Longest time after which the deletion is tried again: an admin may have ended a retention.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Why an object cannot be deleted.
#[derive(Debug, Clone, PartialEq)]
pub enum Lock {
    /// Until somebody removes the hold.
    LegalHold,
    /// Until the application ends what it waits for.
    EventHold,
    /// It is locked in the mode `GOVERNANCE`, and the provisioning credentials may not bypass that.
    BypassDenied,
    /// Until that time. `is_final`: nobody can end it before.
    Until {
        /// When it ends.
        at: DateTime,
        /// Its mode is `COMPLIANCE`.
        is_final: bool,
    },
}

impl Lock {
    /// How long a retry cannot help.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        let Self::Until { at, .. } = self else { return None };
        let at = SystemTime::try_from(*at).ok()?;
        // S3 counts whole seconds.
        let remaining = at.duration_since(SystemTime::now()).unwrap_or_default() + Duration::from_secs(1);
        Some(remaining.min(LONGEST))
    }
}

/// What keeps the object, and the remedy, as the end of a sentence.
impl fmt::Display for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LegalHold => f.write_str("has a legal hold: remove it (s3:PutObjectLegalHold), and the operator deletes the bucket some minutes later"),
            Self::EventHold => f.write_str("has an event hold: release it, and the operator deletes the bucket when its retention is over"),
            Self::BypassDenied => f.write_str("is locked in the mode GOVERNANCE, and AWS does not let the provisioning credentials bypass that (bypassGovernance): allow s3:BypassGovernanceRetention on the objects"),
            Self::Until { at, is_final } => {
                let at = at.fmt(DateTimeFormat::DateTime).unwrap_or_default();
                let remedy = match is_final {
                    true => "nobody can end that before. To keep the bucket, and delete the claim now, annotate its ObjectBucket with objectbucket.io/orphan=forget (admin)",
                    false => "until then only who may s3:BypassGovernanceRetention can delete it. To keep the bucket, and delete the claim now, annotate its ObjectBucket with objectbucket.io/orphan=forget (admin)",
                };
                write!(f, "is locked until {at}, when the operator tries again; {remedy}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_waited_for_until_its_end() {
        let until = |seconds: u64| {
            let at = SystemTime::now() + Duration::from_secs(seconds);
            Lock::Until { at: DateTime::from(at), is_final: false }.remaining().unwrap_or_default().as_secs()
        };
        assert!((59..=61).contains(&until(60)), "{}", until(60));
        assert_eq!(until(400 * 24 * 60 * 60), LONGEST.as_secs());
        assert_eq!(Lock::LegalHold.remaining(), None);
    }

    #[test]
    fn a_final_lock_has_one_way_out() {
        let lock = |is_final| Lock::Until { at: DateTime::from_secs(1_800_000_000), is_final }.to_string();
        assert!(
            lock(true).starts_with("is locked until 2027-01-15T08:00:00Z") && lock(true).contains("nobody can end")
        );
        assert!(lock(false).contains("BypassGovernanceRetention") && lock(false).contains("orphan=forget"));
    }
}
