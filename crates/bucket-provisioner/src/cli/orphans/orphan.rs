//! An orphan, as it is shown, and the actions that it allows. Pure.

use serde::{Serialize, Serializer};

use crate::api::ObjectBucket;
use crate::cli::output;
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
    /// A claim's access by the role of a ServiceAccount, that no ObjectBucket records.
    Role,
    /// A claim without its ObjectBucket, or without its bucket.
    ObjectBucketClaim,
}

/// Something whose claim, ObjectBucket or bucket is missing.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Orphan {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    #[serde(flatten, serialize_with = "claim")]
    pub(crate) claim: ClaimId,
    pub(crate) bucket: Option<String>,
    /// The user, or the role of the ServiceAccount.
    pub(crate) user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) service_account: Option<String>,
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

fn claim<S: Serializer>(claim: &ClaimId, serializer: S) -> Result<S::Ok, S::Error> {
    let ClaimId { namespace, name, uid } = claim;
    serializer.collect_map([("claimNamespace", namespace), ("claimName", name), ("claimUid", uid)])
}

impl Orphan {
    /// Kind and name, as `kubectl -o name` prints them.
    pub(crate) fn full_name(&self) -> String {
        let kind = match self.kind {
            Kind::ObjectBucket => "objectbucket.objectbucket.io",
            Kind::Bucket => "bucket",
            Kind::User => "user",
            Kind::Role => "role",
            Kind::ObjectBucketClaim => return output::claim_name(&self.name),
        };
        format!("{kind}/{}", self.name)
    }

    /// Whether an admin means this one by a name, with or without the kind.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.name == name || self.full_name() == name
    }

    /// One without an action.
    pub(crate) fn new(kind: Kind, name: String, claim: ClaimId, reason: &str, message: String) -> Self {
        Self {
            kind,
            name,
            claim,
            bucket: None,
            user: None,
            service_account: None,
            account: None,
            reason: reason.to_owned(),
            message,
            actions: Vec::new(),
            annotation: None,
            object: None,
            present_uid: None,
            place: None,
        }
    }

    /// Whether a user or a role of its claim is known.
    pub(crate) fn has_access(&self) -> bool {
        self.user.is_some() || self.service_account.is_some()
    }

    /// Why somebody may still need what this action deletes. Such an action needs `--only`.
    pub(crate) fn risk(&self, action: Action) -> Option<String> {
        if !matches!(action, Action::Remove | Action::Revoke) {
            return None;
        }
        if self.object.as_ref().is_some_and(|object| record::cluster_uid(object).is_none()) {
            let risk = "the ObjectBucket does not record its cluster: if it is a copy, another cluster still uses bucket and user";
            return Some(risk.to_owned());
        }
        if self.kind == Kind::Role {
            let risk = "other clusters may share this role: if one of them has the claim, its pods lose the bucket";
            return Some(risk.to_owned());
        }
        if self.kind == Kind::Bucket && action == Action::Remove && !self.has_access() {
            let risk = "no user or role of its claim was found: perhaps the bucket was kept on purpose, because its reclaimPolicy was Retain";
            return Some(risk.to_owned());
        }
        let waits = format!("claim {} exists, and may be a restored claim that waits for `adopt`", self.claim);
        self.present_uid.as_ref().map(|_| waits)
    }

    /// Whether an admin must choose an action. Otherwise the bucket is deleted at the time that the class has set.
    pub(crate) fn needs_decision(&self) -> bool {
        ![reason::SCHEDULED, reason::BUCKET_IN_USE].contains(&self.reason.as_str())
    }

    pub(crate) fn allows(&self, action: Action) -> bool {
        self.actions.contains(&action.word())
    }
}
