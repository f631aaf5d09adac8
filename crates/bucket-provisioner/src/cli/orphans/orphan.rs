//! An orphan, as it is shown, and the actions that it allows. Pure.

use serde::Serialize;

use crate::api::ObjectBucket;
use crate::decide::action::Action;
use crate::decide::record;
use crate::reasons::orphaned as reason;
use crate::store::ClaimId;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) enum Kind {
    /// An ObjectBucket without its claim.
    ObjectBucket,
    /// A bucket that no ObjectBucket records.
    Bucket,
    /// A user that no ObjectBucket records.
    User,
    /// A claim without its ObjectBucket, or without its bucket.
    ObjectBucketClaim,
}

/// Something whose claim, ObjectBucket or bucket is missing.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Orphan {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) claim_namespace: String,
    pub(crate) claim_name: String,
    pub(crate) claim_uid: String,
    pub(crate) bucket: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) account: Option<String>,
    pub(crate) reason: String,
    pub(crate) message: String,
    /// The possible actions.
    pub(crate) actions: Vec<&'static str>,
    /// The action with which an admin has annotated it already.
    pub(crate) annotation: Option<String>,
    /// The ObjectBucket, as it was read.
    #[serde(skip)]
    pub(crate) object: Option<Box<ObjectBucket>>,
    /// UID of the claim that now has the recorded name.
    #[serde(skip)]
    pub(crate) present_uid: Option<String>,
    /// Index of the place in which it was found.
    #[serde(skip)]
    pub(crate) place: Option<usize>,
}

impl Orphan {
    pub(crate) fn claim(&self) -> ClaimId {
        ClaimId { namespace: self.claim_namespace.clone(), name: self.claim_name.clone(), uid: self.claim_uid.clone() }
    }

    /// Why something else may still use what this action deletes. Such an action needs `--only`.
    pub(crate) fn risk(&self, action: Action) -> Option<String> {
        if !matches!(action, Action::Remove | Action::Revoke) {
            return None;
        }
        if self.object.as_ref().is_some_and(|object| record::cluster_uid(object).is_none()) {
            let risk = "the ObjectBucket does not record its cluster: if it is a copy, another cluster still uses bucket and user";
            return Some(risk.to_owned());
        }
        let Self { claim_namespace: namespace, claim_name: name, .. } = self;
        let waits = |_| format!("claim {namespace}/{name} exists, and may be a restored claim that waits for `adopt`");
        self.present_uid.as_ref().map(waits)
    }

    /// Whether an admin must choose an action. Otherwise the bucket is deleted at the time that the class has set.
    pub(crate) fn needs_decision(&self) -> bool {
        self.reason != reason::SCHEDULED
    }

    pub(crate) fn allows(&self, action: Action) -> bool {
        self.actions.contains(&action.word())
    }
}
