//! The reasons on claims and ObjectBuckets that do not depend on the store. The command `reasons` prints them.

use crate::store::Reason;

/// The reasons that do not depend on the store.
pub(crate) fn all() -> impl Iterator<Item = &'static Reason> {
    TABLE.iter().chain(orphaned::TABLE).copied()
}

crate::reasons! {
    Progress {
        BOUND = "Bound": "the bucket can be used", "";
        WAITING_FOR_CREDENTIALS = "WaitingForCredentials": "the store does not know the new key yet, which takes seconds", "wait; a key that the store does not have after about one and a half minutes is replaced";
        KEYS_INACTIVE = "KeysInactive": "somebody deactivated the claim's access key at the store; apps cannot use the bucket", "for a new key, change the claim's annotation `objectbucket.io/rotate-keys`; or an admin activates the key";
        CREDENTIALS_UNUSABLE = "CredentialsUnusable": "the store knows the claim's key and denies what apps need; or it does not accept the key although it was issued minutes ago", "check what denies access, as the message says";
        SETTLING = "Settling": "the claim was deleted or edited soon after something was created for it, and not all of it was found; the operator looks once more, because the store may not show it yet", "wait, mostly up to two minutes";
        REMOVING = "Removing": "the claim is deleted, and what was created for it is being removed", "wait";
        PURGING = "Purging": "a large bucket is being emptied before it is deleted; the message counts the objects", "wait";
    }
    Claim {
        CLAIM_UNREADABLE = "ClaimUnreadable": "`spec` is missing, has a wrong type, or names both `bucketName` and `generateBucketName`", "correct `spec`, or delete the claim";
        BUCKET_NAME_MISSING = "BucketNameMissing": "neither name is set, and the class names no bucket", "set `generateBucketName`, or use a brownfield class";
        INVALID_BUCKET_NAME = "InvalidBucketName": "the name or prefix breaks a naming rule of the store, which the message names", "choose another";
        BUCKET_NAME_NOT_ALLOWED = "BucketNameNotAllowed": "the class does not let claims choose names (`explicitNames`), or not with this beginning (`bucketNamePrefix`)", "as the message says";
        NAMESPACE_NOT_ALLOWED = "NamespaceNotAllowed": "the class does not serve the claim's namespace (`allowedNamespaces`)", "use another class, or ask an admin";
        BUCKET_NOT_OF_CLASS = "BucketNotOfClass": "the claim asks for another bucket than its brownfield class gives", "leave `bucketName` out";
        OUTPUT_EXISTS = "OutputExists": "a Secret or ConfigMap of the claim's name exists and belongs to somebody else", "rename or delete it, or create the claim under another name";
        OBJECT_BUCKET_TAKEN = "ObjectBucketTaken": "the claim needs an ObjectBucket of a certain name, and that ObjectBucket belongs to another claim", "delete that ObjectBucket if nobody needs it, or create the claim under another name";
        OBJECT_BUCKET_AMBIGUOUS = "ObjectBucketAmbiguous": "the ObjectBucket lost the name of its claim, and more than one claim is possible", "an admin writes the uid of the right claim into its `spec.additionalState.claimUID`";
        OBJECT_BUCKET_DAMAGED = "ObjectBucketDamaged": "the ObjectBucket lost some of its fields, and the operator cannot repair it, because it does not find bucket and user of this claim", "an admin restores it from a backup, or corrects the field that the message names; to delete the claim and keep everything else, annotate the ObjectBucket with `objectbucket.io/orphan=forget` and delete the claim";
        OBJECT_BUCKET_UNREADABLE = "ObjectBucketUnreadable": "the claim's ObjectBucket was edited, or was written by something else", "correct the field that the message names";
        ADOPTION_NEEDED = "AdoptionNeeded": "the claim was bound once (`spec.objectBucketName`), and its ObjectBucket belongs to a former claim of its name, or is gone: the claim was restored from a backup, moved or copied", "as the message says: an admin annotates the ObjectBucket with `objectbucket.io/orphan=adopt`, after restoring it if it is gone; for a new and empty bucket create the claim without that field";
        ACCOUNT_CHANGED = "AccountChanged": "the owner's credentials belong to another account than bucket and user; nothing is done for this claim", "put credentials of the former account back into the Secret that the message names";
        BUCKET_NOT_EMPTY = "BucketNotEmpty": "the claim or its class was edited, but the bucket of the plan before is not empty: its keys were never published, so what it holds is somebody else's, and it is not deleted", "undo the edit; or empty the bucket; or delete the claim, whose ObjectBucket then stays with the bucket until an admin decides";
        BUCKET_CONFLICT = "BucketConflict": "the claim and its ObjectBucket name different buckets, and one of them was edited", "as the message says. Do not tag the other bucket";
        NOTHING_TO_UNDO = "NothingToUndo": "the claim has the annotation `objectbucket.io/undo-delete`, but no deletion of a bucket of its namespace, name and class is scheduled", "as the message says; for a new and empty bucket remove the annotation";
        BUCKET_IN_USE = "BucketInUse": "another ObjectBucket names the bucket of a deleted claim; the bucket is deleted when no other claim uses it", "delete the other claims, or wait; if no other claim uses it, correct the ObjectBucket that the operator's log names";
    }
    Class {
        STORAGE_CLASS_NOT_FOUND = "StorageClassNotFound": "there is no such class", "create it, or name another class in a new claim";
        INVALID_CLASS_PARAMETER = "InvalidClassParameter": "a parameter is unknown or has a bad value; the message names it", "recreate the class, because Kubernetes does not let parameters be edited";
        INVALID_OWNER_SECRET = "InvalidOwnerSecret": "a key in the owner's Secret is missing, empty, or contains white space; or the class names no Secret, and the store needs one", "correct it";
        OWNER_SECRET_NOT_FOUND = "OwnerSecretNotFound": "the Secret with the owner's credentials does not exist: the class names it, or the ObjectBucket of a deleted claim", "create it";
    }
    Store {
        RECORDED_PARAMETERS_UNREADABLE = "RecordedParametersUnreadable": "the parameters that were recorded for the claim are not those of this version", "go back to the version that recorded them, or correct `spec.additionalState` of the ObjectBucket";
        WAITING_FOR_STORE = "WaitingForStore": "claims take turns at the store, and this one waits for its own: the store limits how fast an account may call it; or it did not answer, or refused the owner's credentials, several times in a row, and only one claim at a time calls it. The message says which", "wait, or see other claims of the class; this one continues by itself";
    }
    Operator {
        CRD_DELETING = "CRDDeleting": "a CustomResourceDefinition of ObjectBucketClaims or ObjectBuckets is being deleted, which deletes all claims; nothing is deleted at the store", "an admin decides: annotate the CRD with `objectbucket.io/confirm-deletion=yes` to delete what the claims had, or the ObjectBuckets with `objectbucket.io/orphan=forget` to keep it";
        INVALID_OUTPUT = "InvalidOutput": "the entries that the store adds to the claim's Secret or ConfigMap cannot be written: one has a standard key, a key that Kubernetes does not accept, or a key that both have, or they are too many or too large. A Secret is written without them, and this is a Warning event. Or the state of a store's plan has an entry that cannot be recorded", "report it to the operator's developers, with the message";
        KUBERNETES_ERROR = "KubernetesError": "the API server refused a request or did not answer; the message says which", "if a permission is missing, compare with what the command `rbac` prints";
        TIMED_OUT = "TimedOut": "an attempt did not end within two minutes", "wait";
        INTERNAL_ERROR = "InternalError": "a bug", "report it with the operator's log";
    }
    Event {
        REMOVED = "Removed": "everything that was created for the deleted claim is gone; the message says what was kept", "";
        KEYS_ROTATED = "KeysRotated": "the claim's Secret holds new keys; the message says until when the former one works, if it still does", "restart apps that read their keys only once";
        KEY_DEACTIVATED = "FormerKeyDeactivated": "the former key does not work any more, and is deleted soon; the message says when", "if an app still needs it, an admin activates it in IAM; restart the app";
        KEYS_RETIRED = "KeysRetired": "the former key is deleted", "";
        ADOPTED = "Adopted": "the claim adopted an ObjectBucket, with its bucket and user", "";
    }
    Warning {
        LEFT_IN_PLACE = "LeftInPlace": "something was not removed, because nothing proves that it belongs to the claim", "delete it by hand if nobody needs it";
        OWNER_CREDENTIALS_SHARED = "OwnerCredentialsShared": "`createBucketUser` is `no`: the claim's Secret holds the owner's own keys", "";
        ROTATION_FAILED = "RotationFailed": "keys could not be rotated; the present keys still work, and the operator retries. Also the condition `KeysCurrent`", "as the message says";
        ROTATION_PENDING = "RotationPending": "new keys were requested while the former key still exists, and a user has two keys at most; they are issued when the former key is deleted. Also the condition `KeysCurrent`", "wait; if a key has leaked, delete the Secret, which replaces both keys at once";
        KEY_IN_USE = "FormerKeyInUse": "an app used the former key although its time is over; the key works a while longer, and the message says until when at the latest", "restart the apps that have it";
        REPAIRED = "Repaired": "something was changed by somebody else, and was repaired: a policy, tags, a key that the operator did not issue, an ObjectBucket that was deleted or damaged", "find out who changed it";
        CHECK_FAILED = "CheckFailed": "bucket and user could not be checked, mostly because a permission is missing; the operator retries with the next check (`--resync`)", "as the message says";
        CONFIG_IGNORED = "ConfigIgnored": "keys of `spec.additionalConfig` have no effect on this store; the bucket is created without them. Also the condition `UpToDate`", "remove them";
        EDIT_IGNORED = "EditIgnored": "a bound claim was edited; the edit has no effect. Also the condition `UpToDate`", "as the message says; nothing has to be done for the claim to work on";
    }
}

/// Reasons of problems that somebody must correct in the claim's ObjectBucket.
pub(crate) const MENDED_IN_THE_RECORD: [&str; 4] =
    [OBJECT_BUCKET_DAMAGED, OBJECT_BUCKET_UNREADABLE, BUCKET_CONFLICT, BUCKET_IN_USE];

/// Condition: the bucket can be used.
pub(crate) const READY: &str = "Ready";
/// Condition: the bound bucket is what the spec asks for. Present only after an edit that has no effect.
pub(crate) const UP_TO_DATE: &str = "UpToDate";
/// The condition of a claim about its keys.
pub(crate) const KEYS_CURRENT: &str = "KeysCurrent";
/// Condition of an ObjectBucket: its claim does not exist, and an admin has to decide.
pub(crate) const ORPHANED: &str = "Orphaned";
/// Condition of an ObjectBucket: its claim was deleted, and its bucket will be.
pub(crate) const DELETION_SCHEDULED: &str = "DeletionScheduled";

/// Reasons of the conditions of ObjectBuckets, and of the events that go with them.
pub(crate) mod orphaned {

    crate::reasons! {
        Orphaned {
            CLAIM_GONE = "ClaimGone": "no claim has the recorded namespace and name", "annotate it";
            CLAIM_REPLACED = "ClaimReplaced": "another claim has the recorded namespace and name", "annotate it";
            SCHEDULED = "Scheduled": "the claim was deleted, and its bucket will be at the time that the message says (`onDelete` of the class)", "to undo it, create the claim again with the annotation `objectbucket.io/undo-delete: \"yes\"`, or annotate the ObjectBucket";
            BUCKET_NOT_EMPTY = "BucketNotEmpty": "the claim was deleted, and its bucket is kept because it is not empty: the class says `onDelete: ifEmpty`, or the claim was never Bound", "annotate it";
            CLAIM_VANISHED = "ClaimVanished": "somebody removed the claim's finalizer, and the claim was deleted without the operator. Its access is deleted; the bucket is kept", "annotate it; find out who removed the finalizer";
            USER_UNPROVEN = "UserUnproven": "the claim was deleted, and nothing proves that the recorded user is the claim's. The user was left in place; if its name ends in the claim's uid, its keys were deactivated", "check the user at the store, delete it by hand if it is the claim's; then annotate the ObjectBucket";
            BUCKET_CONFLICT = "BucketConflict": "the claim was deleted, and named another bucket than its ObjectBucket, so no bucket was deleted", "delete the bucket by hand if nobody needs it, and annotate the ObjectBucket with `forget`";
            AWAITS_CLAIM = "AwaitsClaim": "the claim of the recorded namespace and name will adopt the ObjectBucket when it exists and nothing keeps it from that", "create the claim, or see its status";
            PURGING = "Purging": "the bucket of a claim that is gone is being emptied before it is deleted; the message counts the objects", "wait";
            OTHER_CLUSTER = "OtherCluster": "the ObjectBucket was created in another cluster", "annotate it";
            RECORD_DAMAGED = "RecordDamaged": "the ObjectBucket lost fields that the operator needs; the message says which", "restore it from a backup";
            UNKNOWN_ACTION = "UnknownAction": "the annotation has an unknown value; the message lists the known ones", "correct the annotation";
            ACTION_REFUSED = "ActionRefused": "the operator could not follow the annotation, and removed it; the message says why", "as the message says";
            CRD_DELETING = "CRDDeleting": "a CustomResourceDefinition of ObjectBucketClaims or ObjectBuckets is being deleted, so nothing is deleted at the store", "an admin decides: annotate the CRD with `objectbucket.io/confirm-deletion=yes` to delete what the claims had, or the ObjectBuckets with `objectbucket.io/orphan=forget` to keep it";
            IN_PROGRESS = "InProgress": "the operator does what the annotation requests, or what is due", "wait";
            REMOVAL_FAILED = "RemovalFailed": "bucket or access could not be removed; the message says why; the operator retries", "as the message says";
            ADOPTED = "Adopted": "the claim of the recorded namespace and name adopted the ObjectBucket; the condition is False", "";
            CLAIM_EXISTS = "ClaimExists": "the claim exists: the annotation was removed, or takes effect when the claim is deleted; the condition is False", "";
        }
    }
}
