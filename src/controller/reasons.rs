//! The reasons that claims and ObjectBuckets give.

pub(crate) const OBJECT_BUCKET_DAMAGED: &str = "ObjectBucketDamaged";

pub(crate) const OBJECT_BUCKET_UNREADABLE: &str = "ObjectBucketUnreadable";

/// Reasons of problems that somebody mends in the claim's ObjectBucket.
pub(crate) const MENDED_IN_THE_RECORD: [&str; 2] = [OBJECT_BUCKET_DAMAGED, OBJECT_BUCKET_UNREADABLE];

/// Reason of the Ready condition of a bound claim.
pub(crate) const BOUND: &str = "Bound";

/// Reason while issued credentials do not work yet.
pub(crate) const WAITING_FOR_CREDENTIALS: &str = "WaitingForCredentials";

/// Reason while a large bucket is emptied.
pub(crate) const PURGING: &str = "Purging";

/// Reason between the removal of what was begun just before and a second look for it.
pub(crate) const SETTLING: &str = "Settling";

/// Reason after an edit that cannot be honoured.
pub(crate) const EDIT_IGNORED: &str = "EditIgnored";

/// Keys of `additionalConfig` that mean nothing here.
pub(crate) const CONFIG_IGNORED: &str = "ConfigIgnored";

/// Event: the owner's own credentials were handed to the claim.
pub(crate) const OWNER_CREDENTIALS_SHARED: &str = "OwnerCredentialsShared";

/// Event: something was not removed because it is not proven to be the claim's.
pub(crate) const LEFT_IN_PLACE: &str = "LeftInPlace";

/// Event: new keys took the place of the former ones.
pub(crate) const KEYS_ROTATED: &str = "KeysRotated";

/// Event: the former keys are gone.
pub(crate) const KEYS_RETIRED: &str = "KeysRetired";

/// Event: keys could not be replaced; the present ones go on working.
pub(crate) const ROTATION_FAILED: &str = "RotationFailed";

/// Event: something was not as it was made, and was set right.
pub(crate) const REPAIRED: &str = "Repaired";

/// Event: it could not be seen whether all is as it was made.
pub(crate) const CHECK_FAILED: &str = "CheckFailed";

/// Event: all that was made for the claim is gone.
pub(crate) const REMOVED: &str = "Removed";

/// Event: the claim took over what was made for a former one.
pub(crate) const ADOPTED: &str = "Adopted";

/// Condition: the bucket can be used.
pub(crate) const READY: &str = "Ready";

/// Condition: what is bound is what the spec says. Present only after an edit that cannot be honoured.
pub(crate) const UP_TO_DATE: &str = "UpToDate";

/// Condition of an ObjectBucket: its claim is not there.
pub(crate) const ORPHANED: &str = "Orphaned";

/// Reasons of the condition `Orphaned`, and of the events that go with it.
pub(crate) mod orphaned {
    /// No claim has the recorded namespace and name.
    pub(crate) const CLAIM_GONE: &str = "ClaimGone";
    /// Another claim has them.
    pub(crate) const CLAIM_REPLACED: &str = "ClaimReplaced";
    /// The record was made in another cluster.
    pub(crate) const OTHER_CLUSTER: &str = "OtherCluster";
    /// The annotation has a value that is not known.
    pub(crate) const UNKNOWN_ACTION: &str = "UnknownAction";
    /// The annotation cannot be followed.
    pub(crate) const ACTION_REFUSED: &str = "ActionRefused";
    /// The record lost what is needed to act upon it.
    pub(crate) const RECORD_DAMAGED: &str = "RecordDamaged";
    /// The admin's word is being carried out.
    pub(crate) const IN_PROGRESS: &str = "InProgress";
    /// What is recorded could not be removed; it is tried again.
    pub(crate) const REMOVAL_FAILED: &str = "RemovalFailed";
    /// The record was given to the claim that has its name now.
    pub(crate) const ADOPTED: &str = "Adopted";
    /// Its claim stands.
    pub(crate) const CLAIM_EXISTS: &str = "ClaimExists";
}
