//! What a claim will get. Pure: from the claim, its class and the provisioner's own plan to a record.

use std::time::Duration;

use super::claim::{Claim, wanted};
use super::error::Error;
use super::record::{Author, Found, Stored};
use super::resolve::{Class, ClassLookup};
use crate::provisioner::{Mode, Provisioner, ReclaimPolicy, Record, Request};

/// The record that the claim should have by what it and its class say now.
///
/// # Errors
/// A claim that cannot be read, or that asks for what its class cannot give.
pub(crate) fn record<P: Provisioner>(provisioner: &P, claim: &Claim, class: &Class) -> Result<Record, Error> {
    let request = Request {
        claim: &claim.id,
        bucket: wanted(claim.spec()?, &claim.id.uid)?,
        class_name: &class.name,
        parameters: &class.parameters,
    };
    let plan = provisioner.plan(&request).map_err(Error::store)?;
    // What existed before is retained, whatever the class says of what it creates.
    let reclaim_policy = match plan.mode {
        Mode::Created => class.reclaim_policy,
        Mode::Granted => ReclaimPolicy::Retain,
    };
    Ok(Record { claim: claim.id.clone(), class_name: class.name.clone(), reclaim_policy, plan })
}

/// What is to be done first for a claim that should have a bucket.
#[derive(Debug)]
pub(crate) enum Intent {
    /// Nothing is recorded: record this, under this name.
    Record { name: String, record: Box<Record> },
    /// It is recorded so: go on from there.
    Proceed(Box<Stored>),
    /// Something else is recorded, made from a claim or class that was edited since: undo that.
    UndoFirst(Box<Stored>),
}

/// Compares what is recorded with what the claim and its class say.
///
/// What is bound keeps what it was bound to, whatever became of its class.
///
/// # Errors
/// There is no class to plan by, or as [`record`].
pub(crate) fn intent<P: Provisioner>(
    provisioner: &P,
    provisioner_name: &str,
    claim: &Claim,
    class: &ClassLookup,
    found: Found,
) -> Result<Intent, Error> {
    let found = match found {
        // The Go provisioner wrote its records last: what they name was handed over, and may be in use.
        Found::Mine(stored) if stored.bound || stored.author == Author::GoProvisioner => {
            return Ok(Intent::Proceed(stored));
        }
        found => found,
    };
    let planned = match class {
        ClassLookup::Found(class) if class.provisioner == provisioner_name => record(provisioner, claim, class)?,
        other => return Err(no_class(other, claim)),
    };
    Ok(match found {
        Found::None { free_name } => Intent::Record { name: free_name, record: Box::new(planned) },
        Found::Mine(stored) if stored.record == planned => Intent::Proceed(stored),
        Found::Mine(stored) => Intent::UndoFirst(stored),
    })
}

/// Why there is no class to go by. A claim that cannot be read at all may name none.
pub(crate) fn no_class(class: &ClassLookup, claim: &Claim) -> Error {
    let class = match class {
        ClassLookup::Found(Class { name, .. }) | ClassLookup::Missing { name } => name.clone(),
        ClassLookup::Unnamed => String::new(),
    };
    claim.spec().err().unwrap_or(Error::StorageClassNotFound { class })
}

/// How a claim is undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Undo {
    /// Access goes, the bucket stays.
    Revoke,
    /// Access and bucket go.
    Delete,
}

/// Decides how a record is undone. `handed_over`: an app may have used the bucket.
///
/// A bucket that was there before is never deleted. Retain keeps a bucket for what an app may have put
/// into it; one that nobody was ever given goes with its claim, lest a failed claim leaves it behind.
pub(crate) fn undo(record: &Record, handed_over: bool) -> Undo {
    match (record.plan.mode, record.reclaim_policy) {
        (Mode::Granted, _) => Undo::Revoke,
        (Mode::Created, ReclaimPolicy::Delete) => Undo::Delete,
        (Mode::Created, ReclaimPolicy::Retain) if handed_over => Undo::Revoke,
        (Mode::Created, ReclaimPolicy::Retain) => Undo::Delete,
    }
}

/// How long what was just made may not be seen yet: IAM reads lag behind writes.
pub(crate) const SETTLING: Duration = Duration::from_secs(10);

/// How long a record that was undone must be kept, to look once more; `quiet` is the time since something may
/// have been made for it. What is bound was seen to be there, so that it is looked at twice only if it is `missing`.
pub(crate) fn settles_in(bound: bool, missing: bool, quiet: Duration) -> Option<Duration> {
    let left = SETTLING.saturating_sub(quiet);
    ((missing || !bound) && !left.is_zero()).then_some(left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provisioner::{ClaimId, Endpoint, Plan, Rotation};

    fn recorded(mode: Mode, reclaim_policy: ReclaimPolicy) -> Record {
        Record {
            claim: ClaimId { namespace: "ns".into(), name: "c".into(), uid: "u".into() },
            class_name: "class".into(),
            reclaim_policy,
            plan: Plan {
                bucket: "b".into(),
                mode,
                endpoint: Endpoint { host: "h".into(), port: 443, region: "r".into(), url: None },
                owner_secret: None,
                user: None,
                rotation: Rotation::default(),
                state: std::collections::BTreeMap::new(),
            },
        }
    }

    #[test]
    fn a_bucket_that_existed_before_is_never_deleted() {
        for policy in [ReclaimPolicy::Delete, ReclaimPolicy::Retain] {
            for handed_over in [true, false] {
                assert_eq!(undo(&recorded(Mode::Granted, policy), handed_over), Undo::Revoke);
            }
        }
    }

    #[test]
    fn what_was_begun_just_now_is_looked_at_twice() {
        let seconds = Duration::from_secs;
        assert_eq!(settles_in(false, false, seconds(3)), Some(seconds(7)));
        assert_eq!(settles_in(false, true, seconds(10)), None);
        assert_eq!(settles_in(true, false, seconds(3)), None);
        assert_eq!(settles_in(true, true, seconds(3)), Some(seconds(7)));
    }

    #[test]
    fn retain_keeps_what_an_app_may_have_used_and_nothing_else() {
        assert_eq!(undo(&recorded(Mode::Created, ReclaimPolicy::Retain), true), Undo::Revoke);
        assert_eq!(undo(&recorded(Mode::Created, ReclaimPolicy::Retain), false), Undo::Delete);
        assert_eq!(undo(&recorded(Mode::Created, ReclaimPolicy::Delete), true), Undo::Delete);
    }
}
