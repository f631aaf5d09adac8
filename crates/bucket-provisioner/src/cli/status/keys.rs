//! The keys of one claim: how old they are, and when they are replaced. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::cli::output::{ago, cell, until};
use crate::decide::keys::{self, KeyNotes};
use crate::store::Plan;

/// What is part of a claim's row.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KeyTimes {
    pub(crate) keys_issued_at: Option<Time>,
    pub(crate) rotation_due_at: Option<Time>,
    pub(crate) former_key_deleted_at: Option<Time>,
}

impl KeyTimes {
    /// The columns of [`cells`](Self::cells).
    pub(crate) const HEAD: [&str; 2] = ["KEY-AGE", "ROTATION"];

    /// The times of the claim with this uid. `plan`: `None` without an ObjectBucket that can be read.
    pub(crate) fn new(uid: &str, plan: Option<&Plan>, notes: Option<&KeyNotes>, now: Timestamp) -> Self {
        let notes = notes.cloned().unwrap_or_default().clamp(plan, now);
        let later = |at: Timestamp, wait| at.checked_add(SignedDuration::try_from(wait).ok()?).ok();
        let due = notes.issued_at.zip(plan.and_then(|plan| plan.rotation.every));
        Self {
            keys_issued_at: notes.issued_at.map(Time),
            rotation_due_at: due.and_then(|(at, every)| later(at, keys::period(every, uid))).map(Time),
            former_key_deleted_at: notes.retiring.map(|key| Time(key.at)),
        }
    }

    pub(crate) fn cells(&self, now: Timestamp) -> [String; 2] {
        [cell(&ago(self.keys_issued_at.as_ref(), now)), cell(&until(self.rotation_due_at.as_ref(), now))]
    }

    /// As part of a sentence about the present key.
    pub(crate) fn text(&self, now: Timestamp) -> String {
        let age = self.keys_issued_at.as_ref().map(|at| format!(", issued {} ago", ago(Some(at), now)));
        let due = self.rotation_due_at.as_ref().map(|at| format!(", replaced in {}", until(Some(at), now)));
        let due = due.unwrap_or_default().replace("replaced in now", "replaced now");
        format!("{}{due}", age.unwrap_or_default())
    }
}
