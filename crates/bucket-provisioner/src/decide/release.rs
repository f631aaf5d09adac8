//! ObjectBuckets that stay after their claim was deleted: why, until when, and whether the deletion can be undone. Pure.
//!
//! The release is written before the claim's finalizer is removed, in the spec, because backups leave out the status.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::ObjectBucket;
use crate::api::wire::state;
use crate::error::CannotUndo;
use crate::reasons::orphaned as reason;

/// An ObjectBucket whose claim was deleted, and whose access was removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Release {
    /// When the claim was deleted.
    pub(crate) at: Timestamp,
    pub(crate) why: Retained,
    /// The deletion of the bucket has begun, so nothing brings it back; or that of a vanished claim's access, which is not
    /// over.
    pub(crate) deleting: bool,
}

/// Why an ObjectBucket outlives its claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Retained {
    /// The bucket is deleted at a later time.
    Scheduled(Schedule),
    /// The bucket was to be deleted only if it is empty.
    NotEmpty,
    /// Nothing proves that the recorded user is the claim's.
    UserUnproven,
    /// The claim was deleted without the operator: somebody removed its finalizer.
    ClaimVanished,
    /// Claim and ObjectBucket named different buckets.
    BucketConflict,
}

/// When a bucket is deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) at: Timestamp,
    /// Uid of the claim's namespace: a user of a later namespace of that name cannot undo the deletion.
    pub(crate) namespace_uid: Option<String>,
}

impl Retained {
    /// The reason that is recorded, and reported on the ObjectBucket.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Scheduled(_) => reason::SCHEDULED,
            Self::NotEmpty => reason::BUCKET_NOT_EMPTY,
            Self::UserUnproven => reason::USER_UNPROVEN,
            Self::ClaimVanished => reason::CLAIM_VANISHED,
            Self::BucketConflict => reason::BUCKET_CONFLICT,
        }
    }
}

/// A claim that asks for its deleted bucket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UndoRequest<'a> {
    /// Uid of its namespace; `None` if it is not known.
    pub(crate) namespace_uid: Option<&'a str>,
    pub(crate) class: &'a str,
    /// When it was created.
    pub(crate) asked_at: Timestamp,
}

impl Release {
    /// The time at which the bucket is deleted, if it is scheduled.
    pub(crate) fn delete_at(&self) -> Option<Timestamp> {
        match &self.why {
            Retained::Scheduled(schedule) => Some(schedule.at),
            _ => None,
        }
    }

    /// Whether the access was removed before.
    pub(crate) fn access_is_gone(&self) -> bool {
        match self.why {
            Retained::Scheduled(_) | Retained::NotEmpty | Retained::BucketConflict => true,
            Retained::ClaimVanished => !self.deleting,
            Retained::UserUnproven => false,
        }
    }

    /// Whether the deletion of the bucket has begun.
    pub(crate) fn is_final(&self) -> bool {
        self.deleting && self.delete_at().is_some()
    }

    /// Whether a claim of the recorded namespace and name may undo the deletion. `class`: that of the deleted claim.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn undo(&self, request: &UndoRequest<'_>, class: &str) -> Result<(), CannotUndo> {
        let Retained::Scheduled(schedule) = &self.why else { return Err(CannotUndo::NotScheduled) };
        if self.deleting || request.asked_at >= schedule.at {
            return Err(CannotUndo::TooLate);
        }
        if schedule.namespace_uid.is_none() || schedule.namespace_uid.as_deref() != request.namespace_uid {
            return Err(CannotUndo::OtherNamespace);
        }
        if class != request.class {
            return Err(CannotUndo::OtherClass);
        }
        Ok(())
    }

    /// Reads and removes what [`write`](Self::write) has written; `None` if the claim was not deleted.
    ///
    /// # Errors
    /// A value that cannot be read.
    pub(crate) fn read(entries: &mut BTreeMap<String, String>) -> Result<Option<Self>, String> {
        let mut take = |key: &str| entries.remove(key);
        let (at, why) = (take(state::RELEASED_AT), take(state::RELEASE_REASON));
        let (delete_at, namespace_uid) = (take(state::DELETE_AT), take(state::NAMESPACE_UID));
        let deleting = flag(state::DELETION_STARTED, take(state::DELETION_STARTED))?;
        let Some(why) = why else { return Ok(None) };
        let why = match why.as_str() {
            reason::SCHEDULED => {
                Retained::Scheduled(Schedule { at: time(state::DELETE_AT, delete_at)?, namespace_uid })
            }
            reason::BUCKET_NOT_EMPTY => Retained::NotEmpty,
            reason::USER_UNPROVEN => Retained::UserUnproven,
            reason::CLAIM_VANISHED => Retained::ClaimVanished,
            reason::BUCKET_CONFLICT => Retained::BucketConflict,
            other => {
                return Err(format!("spec.additionalState.{} has the unknown value {other:?}", state::RELEASE_REASON));
            }
        };
        Ok(Some(Self { at: time(state::RELEASED_AT, at)?, why, deleting }))
    }

    /// The entries of `additionalState` to write; those of `None` are removed.
    pub(crate) fn write(release: Option<&Self>) -> Value {
        let schedule = release.and_then(|release| match &release.why {
            Retained::Scheduled(schedule) => Some(schedule),
            _ => None,
        });
        json!({
            state::RELEASED_AT: release.map(|release| text(release.at)),
            state::RELEASE_REASON: release.map(|release| release.why.reason()),
            state::DELETE_AT: schedule.map(|schedule| text(schedule.at)),
            state::NAMESPACE_UID: schedule.and_then(|schedule| schedule.namespace_uid.as_deref()),
            state::DELETION_STARTED: release.filter(|release| release.deleting).map(|_| "true"),
        })
    }
}

/// Whether the claim of an ObjectBucket was deleted, and the ObjectBucket outlives it.
pub(crate) fn is_released(object: &ObjectBucket) -> bool {
    object.spec.additional_state.as_ref().is_some_and(|entries| entries.contains_key(state::RELEASE_REASON))
}

/// Whether the deletion of the bucket of an ObjectBucket has begun.
pub(crate) fn deletion_began(object: &ObjectBucket) -> bool {
    object.spec.additional_state.as_ref().is_some_and(|entries| entries.contains_key(state::DELETION_STARTED))
}

/// When the bucket of an ObjectBucket is deleted, if that is scheduled.
pub(crate) fn delete_at(object: &ObjectBucket) -> Option<Timestamp> {
    object.spec.additional_state.as_ref()?.get(state::DELETE_AT)?.parse().ok()
}

/// A time in whole seconds, as it is recorded and shown.
pub(crate) fn text(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// What is written once something was done. Other values there may be edits, and prove nothing.
pub(super) fn flag(key: &str, value: Option<String>) -> Result<bool, String> {
    match value.as_deref() {
        None => Ok(false),
        Some("true") => Ok(true),
        Some(other) => Err(format!("spec.additionalState.{key} is {other:?}, which is not \"true\"")),
    }
}

fn time(key: &str, value: Option<String>) -> Result<Timestamp, String> {
    let value = value.ok_or_else(|| format!("spec.additionalState.{key} is missing"))?;
    value.parse().map_err(|_| format!("spec.additionalState.{key} is {value:?}, which is not a time in RFC 3339"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn scheduled() -> Release {
        let schedule = Schedule { at: at(100), namespace_uid: Some("ns".into()) };
        Release { at: at(0), why: Retained::Scheduled(schedule), deleting: false }
    }

    fn request(namespace_uid: Option<&str>, now: i64) -> UndoRequest<'_> {
        UndoRequest { namespace_uid, class: "fast", asked_at: at(now) }
    }

    #[test]
    fn a_release_is_read_back_as_it_was_written() {
        for release in [
            scheduled(),
            Release { deleting: true, ..scheduled() },
            Release { at: at(0), why: Retained::NotEmpty, deleting: false },
            Release { at: at(0), why: Retained::UserUnproven, deleting: false },
            Release { at: at(0), why: Retained::ClaimVanished, deleting: false },
            Release { at: at(0), why: Retained::BucketConflict, deleting: false },
        ] {
            let Value::Object(written) = Release::write(Some(&release)) else { unreachable!() };
            let mut entries: BTreeMap<_, _> =
                written.into_iter().filter_map(|(key, value)| Some((key, value.as_str()?.to_owned()))).collect();
            assert_eq!(Release::read(&mut entries), Ok(Some(release)));
            assert!(entries.is_empty(), "{entries:?}");
        }
    }

    #[test]
    fn an_unreadable_time_is_named_and_never_due() {
        let read = |entries: &[(&str, &str)]| {
            let mut entries = entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            Release::read(&mut entries)
        };
        assert_eq!(read(&[("deleteAt", "2020-01-01T00:00:00Z")]), Ok(None), "its claim was not deleted");
        let scheduled = [("releaseReason", "Scheduled"), ("releasedAt", "2020-01-01T00:00:00Z")];
        assert!(read(&scheduled).unwrap_err().contains("deleteAt is missing"));
        let soon = [&scheduled[..], &[("deleteAt", "soon")]].concat();
        assert!(read(&soon).unwrap_err().contains("\"soon\""));
        assert!(read(&[("releaseReason", "Whim")]).unwrap_err().contains("\"Whim\""));
    }

    #[test]
    fn only_the_operator_records_that_the_deletion_began() {
        let read = |key: &str, value: &str| flag(key, Some(value.to_owned()));
        assert_eq!(read(state::DELETION_STARTED, "true"), Ok(true));
        let refused = read(state::DELETION_STARTED, "false").unwrap_err();
        assert_eq!(refused, r#"spec.additionalState.deletionStarted is "false", which is not "true""#);
        let entries = [("releaseReason", "ClaimVanished"), ("deletionStarted", "false")];
        let mut entries = entries.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        assert_eq!(Release::read(&mut entries), Err(refused));
    }

    #[test]
    fn a_deletion_is_undone_by_namespace_class_and_time() {
        let undo = |release: &Release, request: UndoRequest<'_>, class: &str| release.undo(&request, class);
        assert_eq!(undo(&scheduled(), request(Some("ns"), 99), "fast"), Ok(()));
        assert_eq!(undo(&scheduled(), request(Some("ns"), 100), "fast"), Err(CannotUndo::TooLate));
        assert_eq!(undo(&scheduled(), request(Some("other"), 9), "fast"), Err(CannotUndo::OtherNamespace));
        assert_eq!(undo(&scheduled(), request(None, 9), "fast"), Err(CannotUndo::OtherNamespace));
        assert_eq!(undo(&scheduled(), request(Some("ns"), 9), "slow"), Err(CannotUndo::OtherClass));
        let begun = Release { deleting: true, ..scheduled() };
        assert_eq!(undo(&begun, request(Some("ns"), 9), "fast"), Err(CannotUndo::TooLate));
        let kept = Release { why: Retained::NotEmpty, ..scheduled() };
        assert_eq!(undo(&kept, request(Some("ns"), 9), "fast"), Err(CannotUndo::NotScheduled));
    }
}
