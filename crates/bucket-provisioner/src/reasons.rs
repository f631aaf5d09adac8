//! The reasons on claims and ObjectBuckets that do not depend on the store. The command `reasons` prints them.

use crate::store::{Provisioner, Reason, Topic};

/// The reasons that only an edit of the claim ends, or another claim; and not what an admin does.
const ENDED_BY_THE_CLAIM: [&str; 12] = [
    CLAIM_UNREADABLE,
    BUCKET_NAME_MISSING,
    INVALID_BUCKET_NAME,
    BUCKET_NAME_NOT_ALLOWED,
    BUCKET_NOT_OF_CLASS,
    ACCESS_MODE_NOT_ALLOWED,
    INVALID_SETTING,
    SETTING_NOT_ALLOWED,
    SERVICE_ACCOUNT_MISSING,
    BUCKET_CLAIM_NOT_SHAREABLE,
    BUCKET_CONFLICT,
    NOTHING_TO_UNDO,
];

/// Whether the claim itself must be changed: by the reasons of the library, and those about claims of the store.
pub(crate) fn must_change_claim<P: Provisioner>(reason: &str) -> bool {
    let is_about_claim = |known: &&Reason| known.name == reason && known.topic == Topic::Claim;
    ENDED_BY_THE_CLAIM.contains(&reason) || P::REASONS.iter().copied().any(|known| is_about_claim(&known))
}

/// The reasons that do not depend on the store.
pub(crate) fn all() -> impl Iterator<Item = &'static Reason> {
    TABLE.iter().chain(orphaned::TABLE).copied()
}

crate::reasons! {
    Progress {
        PENDING = "Pending": "no operator has processed the claim: none runs, or the class belongs to another provisioner", "wait some seconds; then correct the class, or start the operator", "[a claim without a phase](troubleshooting.md#a-claim-without-a-phase)";
        PROVISIONING = "Provisioning": "the bucket and the access to it are being created", "wait";
        BOUND = "Bound": "the bucket can be used", "";
        WAITING_FOR_CREDENTIALS = "WaitingForCredentials": "the store does not accept the new key yet, which usually takes 5 to 20 s", "wait; after about 90 s, the operator replaces the key if IAM does not have it";
        KEYS_INACTIVE = "KeysInactive": "somebody deactivated the claim's access key at the store", "change the claim's annotation `objectbucket.io/rotate-keys` and restart its pods; or activate the key (admin) and change `objectbucket.io/retry`", "CloudTrail's event `UpdateAccessKey`: did the key leak?";
        CREDENTIALS_UNUSABLE = "CredentialsUnusable": "the store accepts the claim's key and denies what apps need, or does not accept a key that is minutes old", "correct the policy that denies `s3:ListBucket` or `s3:GetObject` (admin); a new key would be denied, too", "CloudTrail's event names the type of the policy";
        SETTLING = "Settling": "something was created just before the claim was deleted or edited, and the store may not show it yet", "wait, usually up to two minutes";
        REMOVING = "Removing": "the claim was deleted, and its bucket and access are being deleted", "wait";
        PURGING = "Purging": "a large bucket is being emptied before it is deleted", "wait while the number of objects in the message changes, and otherwise read the operator's log; for many millions of objects, a lifecycle rule that expires everything is cheaper", "S3 deletes some 3,500 versions a second; [large removals](command-line.md#large-removals) wait for each other";
        EDIT_PENDING = "EditPending": "an edit of a bound claim is not applied yet (condition `UpToDate`)", "wait; if it stays, see the event `CheckFailed`";
    }
    Claim {
        CLAIM_UNREADABLE = "ClaimUnreadable": "`spec` is missing, has a wrong type, or names both `bucketName` and `generateBucketName`", "correct `spec`, or delete the claim";
        BUCKET_NAME_MISSING = "BucketNameMissing": "neither the claim nor its class names a bucket", "set `generateBucketName`, or use a class for an existing bucket";
        INVALID_BUCKET_NAME = "InvalidBucketName": "the name or prefix breaks a naming rule of the store", "edit it as the message shows";
        BUCKET_NAME_NOT_ALLOWED = "BucketNameNotAllowed": "the class does not let claims choose this name (`explicitNames`, `bucketNamePrefix`)", "use `generateBucketName`, with the prefix of the class if it has one";
        NAMESPACE_NOT_ALLOWED = "NamespaceNotAllowed": "the class does not serve the claim's namespace (`allowedNamespaces`, `allowedNamespaceSelector`)", "use another class; or recreate the class with this namespace (admin)";
        BUCKET_NOT_OF_CLASS = "BucketNotOfClass": "the claim names another bucket than its class", "remove `bucketName`, or use the class of that bucket";
        SERVICE_ACCOUNT_MISSING = "ServiceAccountMissing": "the class gives access to ServiceAccounts, and the claim names none", "set `serviceAccountName` in `spec.additionalConfig` to the ServiceAccount of the pods";
        SERVICE_ACCOUNT_NOT_FOUND = "ServiceAccountNotFound": "the claim's ServiceAccount does not exist in its namespace", "create it, or correct `serviceAccountName`";
        ACCESS_MODE_NOT_ALLOWED = "AccessModeNotAllowed": "the class, or the store, does not allow the claim's access mode", "correct `accessMode`, or use another class";
        INVALID_SETTING = "InvalidSetting": "a setting in `spec.additionalConfig` does not exist or has an invalid value", "correct it", "[the settings](parameters.md#settings-of-a-claim)";
        SETTING_NOT_ALLOWED = "SettingNotAllowed": "the class does not let claims set this setting (`claimsMaySet`)", "remove it, or use another class";
        BUCKET_CLAIM_NOT_FOUND = "BucketClaimNotFound": "the claim in `bucketClaimName` does not exist in this namespace, or is not Bound yet", "wait, create that claim, or correct the name";
        BUCKET_CLAIM_NOT_SHAREABLE = "BucketClaimNotShareable": "the claim in `bucketClaimName` has no bucket that this claim can share", "name the claim for which the bucket was created, use its class, and set neither `bucketName` nor `generateBucketName`";
        OUTPUT_EXISTS = "OutputExists": "a Secret or ConfigMap of the claim's name exists and does not belong to the claim", "create the claim under another name; delete the Secret or ConfigMap only if no app uses it", "[after a restore](disaster-recovery.md#restore)";
        OBJECT_BUCKET_TAKEN = "ObjectBucketTaken": "the ObjectBucket that the claim needs belongs to another claim", "create the claim under another name; or, if the ObjectBucket is an orphan, annotate it with `objectbucket.io/orphan=forget` (admin)", "[orphans](deleted-claims.md)";
        OBJECT_BUCKET_AMBIGUOUS = "ObjectBucketAmbiguous": "the ObjectBucket does not name its claim, and more than one claim is possible", "write the uid of the right claim into its `spec.additionalState.claimUID` (admin)", "the bucket's tag `objectbucket.io/claim-uid`";
        OBJECT_BUCKET_DAMAGED = "ObjectBucketDamaged": "fields of the ObjectBucket are missing, and the operator cannot repair it", "restore it from a backup, or correct the field (admin); to keep everything at the store, annotate the ObjectBucket with `objectbucket.io/orphan=forget` and delete the claim", "`kubectl obc rebuild-objectbucket NAMESPACE/NAME` prints it from tags";
        OBJECT_BUCKET_UNREADABLE = "ObjectBucketUnreadable": "the claim's ObjectBucket has an invalid field", "correct the field (admin)";
        ADOPTION_NEEDED = "AdoptionNeeded": "the claim was restored, moved or copied: its `spec.objectBucketName` names no ObjectBucket of its own", "restore the ObjectBucket if it is missing, and annotate it with `objectbucket.io/orphan=adopt` (admin); for a new bucket, create the claim without `spec.objectBucketName` and `spec.bucketName`", "[restore](disaster-recovery.md#restore); [leave these fields out of Git](gitops.md)";
        ACCOUNT_CHANGED = "AccountChanged": "the provisioning credentials belong to another account than bucket and user, so nothing is done", "write credentials of the previous account into the Secret; for another account, create another class and Secret", "`kubectl obc doctor` shows both accounts";
        BUCKET_NOT_EMPTY = "BucketNotEmpty": "the claim, or its class, was edited before the claim was Bound, and the first bucket is not empty", "undo the edit; or empty the bucket, if nobody needs its content; or delete the claim, and an admin decides about the bucket", "`aws s3api list-object-versions`, `list-multipart-uploads`";
        BUCKET_CONFLICT = "BucketConflict": "the claim and its ObjectBucket name different buckets, because one was edited", "restore `spec.endpoint.bucketName` and the label `objectbucket.io/bucket` of the ObjectBucket (admin). Do not tag the other bucket, or it is deleted with the claim", "the claim's ConfigMap; the bucket's tag `objectbucket.io/claim-uid`";
        NOTHING_TO_UNDO = "NothingToUndo": "the claim asks for the bucket of a deleted claim of its namespace, name and class, but none is scheduled for deletion, or several are", "write the previous class into the claim, or of several ObjectBuckets the right one into `spec.objectBucketName`; an admin can give it any of them with `kubectl obc adopt`; for a new bucket, remove the annotation `objectbucket.io/undo-delete`", "column DELETE-AT of `kubectl get objectbuckets --output wide`";
        BUCKET_IN_USE = "BucketInUse": "another ObjectBucket names the bucket of the deleted claim, or cannot be read", "wait until the other claims are deleted, or correct that ObjectBucket if no claim uses the bucket; to keep the bucket, annotate the deleted claim's ObjectBucket with `objectbucket.io/orphan=forget` (admin)", "`kubectl get objectbuckets --output custom-columns=NAME:.metadata.name,BUCKET:.spec.endpoint.bucketName`";
    }
    Class {
        STORAGE_CLASS_NOT_FOUND = "StorageClassNotFound": "the StorageClass does not exist", "create it, or correct `storageClassName`";
        INVALID_CLASS_PARAMETER = "InvalidClassParameter": "a parameter is unknown or has an invalid value", "delete the class and create it again, because parameters cannot be edited", "`kubectl obc doctor` checks all classes";
        INVALID_OWNER_SECRET = "InvalidOwnerSecret": "a key in the Secret with the provisioning credentials is missing, empty or contains white space; or the class names no Secret", "write the Secret with `stringData`, or recreate the class with a Secret", "often a line break from `echo KEY | base64`";
        OWNER_SECRET_NOT_FOUND = "OwnerSecretNotFound": "the Secret with the provisioning credentials does not exist", "create it with keys of the account of the claims, in a namespace of admins";
    }
    Store {
        RECORDED_PARAMETERS_UNREADABLE = "RecordedParametersUnreadable": "this version cannot read the parameters in the claim's ObjectBucket", "install the version that wrote them, or correct `spec.additionalState` of the ObjectBucket (admin)";
        WAITING_FOR_STORE = "WaitingForStore": "the claim waits in a queue, because the store limits the request rate, did not answer, or refused the provisioning credentials", "wait; correct what other claims of the class report";
    }
    Operator {
        CRD_DELETING = "CRDDeleting": "the CRD of ObjectBucketClaims or ObjectBuckets is being deleted, and with it all claims; nothing is deleted at the store", "if it was a mistake, annotate nothing; to delete the claims' buckets and users, annotate each CRD that is being deleted with `objectbucket.io/confirm-deletion=yes`; to keep them, the ObjectBuckets with `objectbucket.io/orphan=forget` (admin)", "[restore deleted CRDs](deleted-claims.md#restore-deleted-crds)";
        INVALID_OUTPUT = "InvalidOutput": "what the store adds to the claim's Secret, ConfigMap or ObjectBucket cannot be written", "report it to the operator's developers, with the message";
        KUBERNETES_ERROR = "KubernetesError": "the API server refused a request or did not answer", "apply the roles that `rbac` of this version prints, or correct an admission webhook or quota: a claim needs one Secret and one ConfigMap", "`kubectl auth can-i create secrets --as system:serviceaccount:aws-s3-provisioner:aws-s3-provisioner`";
        TIMED_OUT = "TimedOut": "an attempt did not end within two minutes", "wait: the next attempt continues where this one stopped";
        INTERNAL_ERROR = "InternalError": "a bug of the operator", "report it with the operator's log", "[how to report it](../CONTRIBUTING.md)";
    }
    Event {
        REMOVED = "Removed": "the bucket and access of the deleted claim were deleted; the message names what was kept", "";
        KEYS_ROTATED = "KeysRotated": "the claim's Secret contains new keys; the message shows until when the previous key works", "restart apps that read their keys only once";
        KEY_DEACTIVATED = "FormerKeyDeactivated": "the previous key is deactivated, and is deleted at the time in the message", "restart apps that get `InvalidAccessKeyId`; for more time, activate the key with `aws iam update-access-key --status Active` (admin)";
        KEYS_RETIRED = "KeysRetired": "the previous key was deleted", "restart apps that get `InvalidAccessKeyId`";
        ACCESS_CHANGED = "AccessChanged": "`accessMode` was edited, so the same keys may do more or less", "";
        ACCESS_MOVED = "AccessMoved": "the claim's apps have access as a ServiceAccount; the message shows until when the previous access works", "restart the apps", "[move a claim](keyless.md#move-a-claim)";
        PREVIOUS_ACCESS_DELETED = "PreviousAccessDeleted": "the access that the claim had before it was moved was deleted", "restart apps that get `InvalidAccessKeyId` or `AccessDenied`";
        SETTINGS_APPLIED = "SettingsApplied": "edited settings of the claim were applied to its bucket", "";
        SETTING_RELEASED = "SettingReleased": "the claim no longer sets something that cannot be undone; the bucket keeps it, and the operator no longer repairs it", "set `bucketVersioning: Suspended` if no more versions are to be kept";
        ADOPTED = "Adopted": "the claim adopted an ObjectBucket, with its bucket and user", "";
    }
    Warning {
        LEFT_IN_PLACE = "LeftInPlace": "something was not deleted, because nothing proves that it is the claim's", "delete it by hand if nobody needs it", "the tags of the bucket or user";
        OWNER_CREDENTIALS_SHARED = "OwnerCredentialsShared": "`createBucketUser` is `no`: the claim's Secret contains the provisioning credentials", "if this is not intended, recreate class and claims without the parameter";
        ROTATION_FAILED = "RotationFailed": "the keys could not be rotated; the present keys still work", "correct what the message names, usually a missing permission; create no keys for users of claims, because the operator deletes them";
        ROTATION_PENDING = "RotationPending": "a user has two keys at most, so new ones are issued when the previous key is deleted", "wait until the previous key is deleted; if a key has leaked, delete the Secret, which replaces both keys at once";
        KEY_IN_USE = "FormerKeyInUse": "an app used the previous key after its grace period; the key works at most until the time in the message", "restart the apps that use it", "pods older than the rotation; CloudTrail shows from where the key is used";
        REPAIRED = "Repaired": "the operator repaired a policy, tags, keys or an ObjectBucket that somebody else changed", "find out who changed it", "CloudTrail; the audit log of the API server";
        NOT_TRIED = "NotTried": "the access was not tested, because the operator may not request tokens of ServiceAccounts; a claim that is being moved keeps its previous access", "grant `create` on `serviceaccounts/token` (`rbac --keyless`), or test the access in a pod";
        CHECK_FAILED = "CheckFailed": "bucket and user could not be checked", "allow what the message names; upgrade the provisioning policy together with the operator", "without `iam:GetAccessKeyLastUsed` or `iam:UpdateAccessKey`, a previous key works for twice its grace period";
        CONFIG_IGNORED = "ConfigIgnored": "keys of `spec.additionalConfig`, such as Rook's quotas, have no effect on this store", "remove them", "[the settings](parameters.md#settings-of-a-claim)";
        EDIT_IGNORED = "EditIgnored": "the edit of a bound claim has no effect", "undo the edit, or create a new claim and copy the data", "[move a claim](keyless.md#move-a-claim) to another access";
    }
}

/// Reasons of problems that somebody must correct in the claim's ObjectBucket.
pub(crate) const CORRECTED_IN_OBJECT_BUCKET: [&str; 4] =
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

/// Reasons of the conditions of ObjectBuckets, and of the events with them.
pub(crate) mod orphaned {

    crate::reasons! {
        Orphaned {
            CLAIM_GONE = "ClaimGone": "its claim does not exist: the finalizer was removed while no operator ran, or only ObjectBuckets were restored", "restore the claim, or create it with the name of the ObjectBucket in `spec.objectBucketName`, then annotate `adopt`; or annotate `remove`, `revoke` or `forget`";
            CLAIM_REPLACED = "ClaimReplaced": "another claim has the namespace and name of its claim", "annotate `adopt` if that claim is to get the bucket", "does the claim report `AdoptionNeeded`?";
            SCHEDULED = "Scheduled": "the claim was deleted, and its bucket will be deleted at the time in the message", "to undo it, create the claim again with the annotation `objectbucket.io/undo-delete: \"yes\"`, or annotate `adopt` or `forget`", "[why a bucket stays after that time](deleted-claims.md#decide-about-an-objectbucket)";
            BUCKET_NOT_EMPTY = "BucketNotEmpty": "the deleted claim's bucket is kept because it is not empty: the class has `onDelete: ifEmpty`, or the claim was never Bound", "annotate `adopt` or `forget`; or `remove`, which deletes the content, except if the claim was never Bound";
            CLAIM_VANISHED = "ClaimVanished": "the claim's finalizer was removed; its access is deleted, and the bucket is kept", "annotate `adopt` and create the claim; or annotate `forget` or `remove`", "the audit log of the API server; [an admission policy](permissions.md) prevents it";
            USER_UNPROVEN = "UserUnproven": "nothing proves that the recorded user is the deleted claim's, so it was not deleted; its keys were deactivated if its name ends in the claim's uid", "delete the user if it is the claim's, otherwise activate its keys; then annotate `forget`, or `remove` if the user was deleted", "`aws iam list-user-tags`";
            BUCKET_CONFLICT = "BucketConflict": "the deleted claim named another bucket than its ObjectBucket, so no bucket was deleted", "delete the bucket by hand if nobody needs it, and annotate `forget`";
            AWAITS_CLAIM = "AwaitsClaim": "the claim in `spec.claimRef` will adopt the ObjectBucket; a scheduled deletion waits meanwhile", "create the claim, or see its status; to cancel, remove the annotation: then a scheduled deletion continues";
            BUCKET_IN_USE = "BucketInUse": "other claims use the bucket of the deleted claim, so it is deleted with the last of them", "wait; or annotate `adopt`, which gives the bucket to a new claim of this name, or `forget`", "as for `BucketInUse` of claims";
            PURGING = "Purging": "the bucket of a deleted claim is being emptied before it is deleted", "wait";
            OTHER_CLUSTER = "OtherCluster": "the ObjectBucket was created in another cluster", "annotate `adopt` here and `forget` there", "does the previous cluster still run? [Move claims](disaster-recovery.md#move-claims-to-another-cluster)";
            RECORD_DAMAGED = "RecordDamaged": "fields that the operator needs are missing in the ObjectBucket", "restore it from a backup; if a CRD of other software drops fields, apply our `crds/`", "as for `ObjectBucketDamaged`";
            UNKNOWN_ACTION = "UnknownAction": "the annotation has an unknown value", "use one of the values in the message";
            ACTION_REFUSED = "ActionRefused": "the operator refused the annotation and removed it", "correct what the message names, and annotate again";
            CRD_DELETING = "CRDDeleting": "a CRD is being deleted, so nothing is deleted at the store", "annotate nothing if it was a mistake; to keep the bucket, annotate `forget`; to delete it, see the same reason of claims", "[restore deleted CRDs](deleted-claims.md#restore-deleted-crds)";
            IN_PROGRESS = "InProgress": "the operator applies the annotation, or the scheduled deletion", "wait";
            REMOVAL_FAILED = "RemovalFailed": "bucket or access could not be deleted", "correct what the message names, and the operator retries; or annotate `forget`";
            ADOPTED = "Adopted": "the claim adopted the ObjectBucket", "";
            CLAIM_EXISTS = "ClaimExists": "the claim exists: the annotation was removed, or takes effect when the claim is deleted; a deleted ObjectBucket is kept until then, so `kubectl delete objectbucket` waits for that", "none is needed, interrupt kubectl; to delete bucket and access, delete the claim";
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::testing::Shelf;

    /// Tools take `Failed` for the end.
    #[test]
    fn what_others_must_correct_does_not_fail_the_claim() {
        let others = [Topic::Class, Topic::Store, Topic::Operator];
        let known = all().chain(Shelf::REASONS.iter().copied());
        let corrected: Vec<_> = known.filter(|known| others.contains(&known.topic)).map(|known| known.name).collect();
        assert!(corrected.contains(&STORAGE_CLASS_NOT_FOUND) && corrected.contains(&"ShelfFull"), "{corrected:?}");
        for reason in corrected.into_iter().chain([NAMESPACE_NOT_ALLOWED]) {
            assert!(!must_change_claim::<Shelf>(reason), "{reason}");
        }
        assert!(must_change_claim::<Shelf>(INVALID_BUCKET_NAME));
    }
}
