//! The reasons that claims and ObjectBuckets give, whatever the store. `docs/reasons.md` is made from them.

use crate::provisioner::reasons;

reasons! {
    Progress {
        BOUND = "Bound": "the bucket can be used", "";
        WAITING_FOR_CREDENTIALS = "WaitingForCredentials": "AWS does not know the new key yet, which takes seconds", "wait; after about one and a half minutes the operator replaces the key";
        CREDENTIALS_UNUSABLE = "CredentialsUnusable": "the store refuses the new key, and the one that replaced it as well", "check whether a permissions boundary, a service control policy or the bucket's policy denies access";
        SETTLING = "Settling": "the claim was deleted or edited soon after its bucket was begun; what was made is removed, and the operator looks once more, because AWS may not show the newest things yet", "wait some seconds";
        PURGING = "Purging": "a large bucket is being emptied before it is deleted; the message counts the objects", "wait";
    }
    Claim {
        CLAIM_UNREADABLE = "ClaimUnreadable": "`spec` is missing, has a wrong type, or names both `bucketName` and `generateBucketName`", "correct `spec`, or delete the claim";
        OUTPUT_EXISTS = "OutputExists": "a Secret or ConfigMap of the claim's name exists and belongs to somebody else", "rename or delete it, or give the claim another name";
        OBJECT_BUCKET_TAKEN = "ObjectBucketTaken": "an ObjectBucket of the name that this claim's would have belongs to another claim", "delete that ObjectBucket if nothing needs it, or give the claim another name";
        OBJECT_BUCKET_AMBIGUOUS = "ObjectBucketAmbiguous": "the ObjectBucket lost the name of its claim, and more than one claim may be the right one", "an admin writes the uid of the right claim into its `spec.additionalState.claimUID`";
        OBJECT_BUCKET_DAMAGED = "ObjectBucketDamaged": "the ObjectBucket lost what was recorded in it, and bucket or user are not found as this claim's", "an admin restores it from a backup, or corrects the field that the message names; to delete the claim and keep everything else, annotate the ObjectBucket with `objectbucket.io/orphan=forget` and delete the claim";
        OBJECT_BUCKET_UNREADABLE = "ObjectBucketUnreadable": "the claim's ObjectBucket was edited, or was written by something else", "restore the field that the message names";
        ADOPTION_NEEDED = "AdoptionNeeded": "the claim was bound once (`spec.objectBucketName`), and its ObjectBucket was made for a former claim of its name, or is gone: the claim was restored from a backup, moved or copied", "see [disaster recovery](disaster-recovery.md); for a new and empty bucket create the claim without that field";
        ACCOUNT_CHANGED = "AccountChanged": "the owner's credentials are those of another AWS account than the one in which bucket and user were made; nothing is done there for this claim", "put credentials of the former account back into the Secret that the message names";
        BUCKET_IN_USE = "BucketInUse": "another ObjectBucket names the bucket of a deleted claim; the deletion goes on when no other claim uses it", "delete the other claims, or wait";
    }
    Class {
        STORAGE_CLASS_NOT_FOUND = "StorageClassNotFound": "there is no such class", "create it, or name another class in a new claim";
        OWNER_SECRET_NOT_FOUND = "OwnerSecretNotFound": "the Secret that the class names, or that a claim to be deleted was made with, does not exist", "create it";
    }
    Store {
        WAITING_FOR_STORE = "WaitingForStore": "the store did not answer, or refused its owner, several times in a row: one claim at a time asks it, and this one waits for its turn", "read what other claims of the class say; this one goes on by itself when the store answers";
    }
    Operator {
        KUBERNETES_ERROR = "KubernetesError": "the API server refused something; the message has its words", "mostly permissions: compare with `deploy/`";
        TIMED_OUT = "TimedOut": "an attempt did not end within two minutes", "wait";
        INTERNAL_ERROR = "InternalError": "a bug", "report it with the operator's log";
    }
    Event {
        REMOVED = "Removed": "everything that was made for the deleted claim is gone; the message says what was kept", "";
        KEYS_ROTATED = "KeysRotated": "the claim's Secret holds new keys; the message says until when the former one works", "restart apps that read their keys once";
        KEYS_RETIRED = "KeysRetired": "the former key is deleted", "";
        ADOPTED = "Adopted": "the claim took over an ObjectBucket, with its bucket and user", "";
    }
    Warning {
        LEFT_IN_PLACE = "LeftInPlace": "something was not removed, because it is not proven to be the claim's", "delete it by hand if nobody needs it";
        OWNER_CREDENTIALS_SHARED = "OwnerCredentialsShared": "`createBucketUser` is `no`: the claim's Secret holds the owner's own keys", "";
        ROTATION_FAILED = "RotationFailed": "keys could not be replaced; the present ones go on working, and the operator retries", "as the message says";
        REPAIRED = "Repaired": "something was not as it was made, and was repaired: a policy, tags, a key that the operator did not hand out, an ObjectBucket that was deleted or damaged", "find out who changed it";
        CHECK_FAILED = "CheckFailed": "it could not be checked whether everything is as it was made, mostly because a permission is missing; the operator retries with the next check (`--resync`)", "as the message says";
        CONFIG_IGNORED = "ConfigIgnored": "keys of `spec.additionalConfig` have no effect on this store; the bucket is made without them. Also the condition `UpToDate`", "remove them";
        EDIT_IGNORED = "EditIgnored": "a bound claim was edited; it stays what it was. Also the condition `UpToDate`", "undo the edit, or delete the claim and create a new one";
    }
}

/// Reasons of problems that somebody mends in the claim's ObjectBucket.
pub(crate) const MENDED_IN_THE_RECORD: [&str; 2] = [OBJECT_BUCKET_DAMAGED, OBJECT_BUCKET_UNREADABLE];

/// Condition: the bucket can be used.
pub(crate) const READY: &str = "Ready";
/// Condition: what is bound is what the spec says. Present only after an edit that cannot be honoured.
pub(crate) const UP_TO_DATE: &str = "UpToDate";
/// Condition of an ObjectBucket: its claim is not there.
pub(crate) const ORPHANED: &str = "Orphaned";

/// Reasons of the condition `Orphaned`, and of the events that go with it.
pub(crate) mod orphaned {
    use crate::provisioner::reasons;

    reasons! {
        Orphaned {
            CLAIM_GONE = "ClaimGone": "no claim has the recorded namespace and name", "annotate it";
            CLAIM_REPLACED = "ClaimReplaced": "another claim has the recorded namespace and name", "annotate it";
            OTHER_CLUSTER = "OtherCluster": "the ObjectBucket was made in another cluster", "annotate it";
            RECORD_DAMAGED = "RecordDamaged": "the ObjectBucket lost what is needed to act upon it; the message says what", "restore it from a backup";
            UNKNOWN_ACTION = "UnknownAction": "the annotation has a value that is not known; the message lists those that are", "correct the annotation";
            ACTION_REFUSED = "ActionRefused": "the annotation could not be followed, and was taken off; the message says why", "as the message says";
            IN_PROGRESS = "InProgress": "what the annotation says is being done", "wait";
            REMOVAL_FAILED = "RemovalFailed": "what was made could not be removed; the message says why; the operator retries", "as the message says";
            ADOPTED = "Adopted": "the claim that has its name took the ObjectBucket over; the condition is False", "";
            CLAIM_EXISTS = "ClaimExists": "the claim exists: the annotation was taken off, or is followed when the claim is deleted; the condition is False", "";
        }
    }
}
