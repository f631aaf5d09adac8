//! An orphan, as it is shown, and what can be said about it. Pure.

use serde::Serialize;

use crate::api::ObjectBucket;
use crate::decide::action::Action;
use crate::decide::record;
use crate::reasons::orphaned as reason;
use crate::store::ClaimId;

/// What an orphan is.
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

/// Something whose other half is missing.
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
    /// The words that can be said about it.
    pub(crate) actions: Vec<&'static str>,
    /// The word that an admin has said already.
    pub(crate) annotation: Option<String>,
    /// The ObjectBucket, as it was read.
    #[serde(skip)]
    pub(crate) object: Option<Box<ObjectBucket>>,
    /// UID of the claim that has the recorded name now.
    #[serde(skip)]
    pub(crate) present_uid: Option<String>,
    /// Where it was found in the store: an index of the places.
    #[serde(skip)]
    pub(crate) place: Option<usize>,
}

impl Orphan {
    pub(crate) fn claim(&self) -> ClaimId {
        ClaimId { namespace: self.claim_namespace.clone(), name: self.claim_name.clone(), uid: self.claim_uid.clone() }
    }

    /// Why something else may still use what this word deletes; then it is said only of an orphan that the admin names.
    pub(crate) fn risk(&self, action: Action) -> Option<String> {
        if !matches!(action, Action::Remove | Action::Revoke) {
            return None;
        }
        if self.object.as_ref().is_some_and(|object| record::cluster_uid(object).is_none()) {
            let risk = "the ObjectBucket does not say from which cluster it comes: if it is a copy, that cluster still uses bucket and user";
            return Some(risk.to_owned());
        }
        let Self { claim_namespace: namespace, claim_name: name, .. } = self;
        let waits = |_| format!("claim {namespace}/{name} exists, and may be a restored one that waits for `adopt`");
        self.present_uid.as_ref().map(waits)
    }

    /// Whether somebody has to decide about it: otherwise its bucket is deleted at the time that its claim's class has set.
    pub(crate) fn needs_decision(&self) -> bool {
        self.reason != reason::SCHEDULED
    }

    /// Whether this can be said about it.
    pub(crate) fn allows(&self, action: Action) -> bool {
        self.actions.contains(&action.word())
    }
}
