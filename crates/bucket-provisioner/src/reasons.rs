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
        PENDING = "Pending": "no operator has processed the claim: none runs, or the class belongs to another provisioner", "wait some seconds; then check class and operator", "does the class name this operator (`kubectl get storageclass CLASS`, column PROVISIONER), and [does the operator serve](troubleshooting.md#an-operator-that-does-not-serve-claims)?";
        PROVISIONING = "Provisioning": "the bucket and the access to it are being created", "wait", "`kubectl describe obc NAME` shows a cause if it lasts longer than a minute";
        BOUND = "Bound": "the bucket can be used", "";
        WAITING_FOR_CREDENTIALS = "WaitingForCredentials": "the store does not accept the new key yet, which usually takes seconds", "wait; after about 90 seconds the operator checks whether IAM has the key, and replaces it only if not", "5 to 20 s are usual; `obc_provisioner_time_to_bound_seconds` shows how long it takes";
        KEYS_INACTIVE = "KeysInactive": "the claim's access key was deactivated at the store, not by the operator; apps cannot use the bucket", "for a new key, change the claim's annotation `objectbucket.io/rotate-keys` and restart its pods; or activate the key at the store, then set `objectbucket.io/retry`", "CloudTrail's event `UpdateAccessKey` shows who deactivated it; the key may have leaked";
        CREDENTIALS_UNUSABLE = "CredentialsUnusable": "the store accepts the claim's key and denies what apps need; or it does not accept a key that was issued minutes ago", "correct that policy; the operator replaces no key that exists in IAM, because the next one would be denied, too", "find the policy that denies `s3:ListBucket` or `s3:GetObject` to the user: the permissions boundary, a service or resource control policy, the policy of a brownfield bucket, or that of its KMS key. CloudTrail's event of the denied call names its type";
        SETTLING = "Settling": "the claim was deleted or edited soon after something was created for it, and not all of it was found; the operator checks once more, because the store may not show it yet", "wait, usually up to two minutes";
        REMOVING = "Removing": "the claim is deleted, and its bucket and access are being deleted", "wait";
        PURGING = "Purging": "a large bucket is being emptied before it is deleted; the message counts the objects", "wait; for many millions of objects, a lifecycle rule that expires everything is cheaper", "S3 deletes some 3,500 objects a second under one prefix, versions included; [large removals](command-line.md#large-removals) wait for each other";
        EDIT_PENDING = "EditPending": "an edit of a bound claim is not applied yet. Only in the condition `UpToDate`", "wait; if it stays, see the event `CheckFailed`";
    }
    Claim {
        CLAIM_UNREADABLE = "ClaimUnreadable": "`spec` is missing, has a wrong type, or names both `bucketName` and `generateBucketName`", "correct `spec`, or delete the claim", "`kubectl get obc NAME --output yaml`; our `crds/` refuse such claims";
        BUCKET_NAME_MISSING = "BucketNameMissing": "neither name is set, and the class names no bucket", "set `generateBucketName`, or use a brownfield class";
        INVALID_BUCKET_NAME = "InvalidBucketName": "the name or prefix breaks a naming rule of the store, which the message names", "choose another; while the claim is not bound, it can be edited";
        BUCKET_NAME_NOT_ALLOWED = "BucketNameNotAllowed": "the class does not let claims choose names (`explicitNames`), or not with this prefix (`bucketNamePrefix`)", "use `generateBucketName`, with the prefix of the class if it has one";
        NAMESPACE_NOT_ALLOWED = "NamespaceNotAllowed": "the class does not serve the claim's namespace (`allowedNamespaces`, `allowedNamespaceSelector`)", "use another class; or an admin recreates the class with the namespace in it, which does not change bound claims", "`kubectl get storageclass CLASS --output yaml`";
        BUCKET_NOT_OF_CLASS = "BucketNotOfClass": "the claim names another bucket than its brownfield class", "remove `bucketName`, or use the class of the other bucket";
        SERVICE_ACCOUNT_MISSING = "ServiceAccountMissing": "the class gives access to ServiceAccounts (`authentication`), and the claim names none", "set `serviceAccountName` in `spec.additionalConfig` to the ServiceAccount of the pods that use the bucket";
        SERVICE_ACCOUNT_NOT_FOUND = "ServiceAccountNotFound": "the ServiceAccount that the claim names does not exist in its namespace", "create it, or correct `serviceAccountName`; the claim continues by itself", "`kubectl get serviceaccounts`; bucket and role exist by now";
        ACCESS_MODE_NOT_ALLOWED = "AccessModeNotAllowed": "the claim asks for an access mode that its class, or the store, does not allow", "see the message: ask for less, or use another class";
        INVALID_SETTING = "InvalidSetting": "a setting in `spec.additionalConfig` has an invalid value, or does not exist; the message names it", "correct it", "[the settings](parameters.md#settings-of-a-claim)";
        SETTING_NOT_ALLOWED = "SettingNotAllowed": "the class does not let claims set this setting (`claimsMaySet`)", "remove it, or use another class", "`kubectl get storageclass CLASS --output jsonpath='{.parameters.claimsMaySet}'`";
        BUCKET_CLAIM_NOT_FOUND = "BucketClaimNotFound": "the claim that `bucketClaimName` names does not exist in this namespace, or is not Bound yet", "wait, create that claim, or correct the name", "`kubectl get obc` in this namespace; claims of other namespaces do not count";
        BUCKET_CLAIM_NOT_SHAREABLE = "BucketClaimNotShareable": "the claim that `bucketClaimName` names has no bucket that can be shared: it is being deleted, its bucket was not created for it, or is at another store, in another region or account", "name the claim for which the bucket was created, use its class, and set neither `bucketName` nor `generateBucketName`";
        OUTPUT_EXISTS = "OutputExists": "a Secret or ConfigMap of the claim's name exists and does not belong to the claim", "create the claim under another name; delete the Secret or ConfigMap only if no app uses it", "`kubectl get secret NAME --output jsonpath='{.metadata}'` shows its owner. After a restore see [disaster recovery](disaster-recovery.md#restore)";
        OBJECT_BUCKET_TAKEN = "ObjectBucketTaken": "the claim needs an ObjectBucket of a certain name, and that ObjectBucket belongs to another claim", "create the claim under another name; or, if that ObjectBucket is an orphan, annotate it with `objectbucket.io/orphan=forget` (admin)", "`kubectl describe objectbucket NAME`: `claimRef`, and whether it is [an orphan](deleted-claims.md)";
        OBJECT_BUCKET_AMBIGUOUS = "ObjectBucketAmbiguous": "the ObjectBucket does not name its claim, and more than one claim is possible", "write the uid of the right claim into its `spec.additionalState.claimUID` (admin)", "the bucket's tag `objectbucket.io/claim-uid`";
        OBJECT_BUCKET_DAMAGED = "ObjectBucketDamaged": "fields of the ObjectBucket are missing, and the operator cannot repair it, because it does not find bucket and user of this claim", "restore it from a backup, or correct the field that the message names (admin); to delete the claim and keep everything else, annotate the ObjectBucket with `objectbucket.io/orphan=forget` and delete the claim", "`kubectl obc rebuild-objectbucket NAMESPACE/NAME` prints the ObjectBucket that the tags in AWS describe";
        OBJECT_BUCKET_UNREADABLE = "ObjectBucketUnreadable": "the claim's ObjectBucket has an invalid field: it was edited, or another program wrote it", "correct the field that the message names", "`kubectl get objectbucket NAME --output yaml`";
        ADOPTION_NEEDED = "AdoptionNeeded": "the claim was bound before (`spec.objectBucketName`), and its ObjectBucket belongs to a previous claim of its name, or no longer exists: the claim was restored from a backup, moved or copied", "restore the ObjectBucket if it no longer exists, and annotate it with `objectbucket.io/orphan=adopt` (admin); for a new and empty bucket, create the claim without that field", "[restore](disaster-recovery.md#restore). Keep `spec.objectBucketName`, and `bucketName` beside `generateBucketName`, out of Git";
        ACCOUNT_CHANGED = "AccountChanged": "the provisioning credentials belong to another account than bucket and user; nothing is done for this claim", "write credentials of the previous account into the Secret that the message names; for buckets in another account, write another class with another Secret", "`spec.additionalState.accountID` of the ObjectBucket; `kubectl obc doctor` shows both accounts";
        BUCKET_NOT_EMPTY = "BucketNotEmpty": "the claim or its class was edited, but the bucket created before the edit is not empty: its keys were never published, so its content is not the claim's, and it is not deleted", "undo the edit; or delete the claim: its ObjectBucket and bucket are kept until an admin decides. Empty the bucket only if nobody needs its content", "`aws s3api list-object-versions` and `list-multipart-uploads`: versions, delete markers and unfinished uploads count";
        BUCKET_CONFLICT = "BucketConflict": "the claim and its ObjectBucket name different buckets, and one of them was edited", "restore `spec.endpoint.bucketName` and the label `objectbucket.io/bucket` of the ObjectBucket. Do not tag the other bucket: what has the tag is deleted with the claim", "the claim's bucket is that in its ConfigMap, and has the tag `objectbucket.io/claim-uid` with its uid";
        NOTHING_TO_UNDO = "NothingToUndo": "the claim has the annotation `objectbucket.io/undo-delete`, but no deletion of a bucket of its namespace, name and class is scheduled", "use the class of the deleted claim; of several ObjectBuckets, write the right one into `spec.objectBucketName`; for a new and empty bucket, remove the annotation", "`kubectl get objectbuckets --output wide`, column DELETE-AT";
        BUCKET_IN_USE = "BucketInUse": "another ObjectBucket names the bucket of a deleted claim; the bucket is deleted when no other claim uses it", "wait: the bucket is deleted when the other claims no longer exist. To keep it, annotate the ObjectBucket of the deleted claim with `objectbucket.io/orphan=forget` (admin). If no other claim uses it, correct the ObjectBucket that the operator's log names", "`kubectl get objectbuckets --output custom-columns=NAME:.metadata.name,BUCKET:.spec.endpoint.bucketName`; an ObjectBucket that cannot be read counts as well";
    }
    Class {
        STORAGE_CLASS_NOT_FOUND = "StorageClassNotFound": "the StorageClass does not exist", "create it: the claim continues by itself; or name another class in a new claim", "`kubectl get storageclasses`; in GitOps, sync classes before claims";
        INVALID_CLASS_PARAMETER = "InvalidClassParameter": "a parameter is unknown or has an invalid value; the message names it", "delete the class and create it again, because parameters cannot be edited", "`kubectl obc doctor` checks all classes. Parameters are strings: quote `\"yes\"`";
        INVALID_OWNER_SECRET = "InvalidOwnerSecret": "a key in the Secret with the provisioning credentials is missing, empty, or contains white space; or the class names no Secret, and the store needs one", "write the Secret with `stringData`, or recreate the class with a Secret", "often a line break that `echo KEY | base64` encoded; `AWS_ACCESS_KEY_ID` has 20 characters, `AWS_SECRET_ACCESS_KEY` 40";
        OWNER_SECRET_NOT_FOUND = "OwnerSecretNotFound": "the Secret with the provisioning credentials, which the class or the ObjectBucket of a deleted claim names, does not exist", "create it, with keys of the account in which the claims were created; keep it in a namespace of admins", "`kubectl get secrets --namespace NAMESPACE`, and whether the operator may read that namespace";
    }
    Store {
        RECORDED_PARAMETERS_UNREADABLE = "RecordedParametersUnreadable": "this version cannot read the parameters in the claim's ObjectBucket", "install the version that wrote them, or correct `spec.additionalState` of the ObjectBucket", "`spec.additionalState` of the ObjectBucket";
        WAITING_FOR_STORE = "WaitingForStore": "the claim waits in the queue of the store: the store limits the request rate of an account; or it did not answer, or refused the provisioning credentials, several times in a row, and only one claim at a time retries. The message shows the cause", "correct the cause; all claims continue by themselves", "one claim of the class has the cause as its reason, such as `StoreUnreachable` or `CredentialsRefused`; metrics `obc_provisioner_store_silent`, `obc_provisioner_claims_limited`";
    }
    Operator {
        CRD_DELETING = "CRDDeleting": "a CustomResourceDefinition of ObjectBucketClaims or ObjectBuckets is being deleted, which deletes all claims; nothing is deleted at the store", "annotate the CRD with `objectbucket.io/confirm-deletion=yes` to delete the claims' buckets and users, or the ObjectBuckets with `objectbucket.io/orphan=forget` to keep them (admin)", "`kubectl get crd --output custom-columns=NAME:.metadata.name,DELETED:.metadata.deletionTimestamp`, and the audit log of the API server. [If it was a mistake](deleted-claims.md)";
        INVALID_OUTPUT = "InvalidOutput": "the entries that the store adds to the claim's Secret or ConfigMap cannot be written: a key is a standard key, is in both, or is not accepted by Kubernetes; or there are too many, or they are too large. A Secret is written without them, with a Warning event. Or the state in a store's plan cannot be recorded", "report it to the operator's developers, with the message";
        KUBERNETES_ERROR = "KubernetesError": "the API server refused a request or did not answer; the message names the request", "apply the roles of the version that runs; compare with the output of `rbac`", "an admission webhook or a quota may refuse, too: each claim needs one Secret and one ConfigMap. `kubectl auth can-i create secrets --as system:serviceaccount:aws-s3-provisioner:aws-s3-provisioner`";
        TIMED_OUT = "TimedOut": "an attempt did not end within two minutes", "wait: the next attempt continues where this one stopped", "metrics `obc_provisioner_store_call_seconds` and `obc_provisioner_attempt_seconds`";
        INTERNAL_ERROR = "InternalError": "a bug of the operator", "report it with the operator's log", "the operator's log of that time. [Report it](../CONTRIBUTING.md)";
    }
    Event {
        REMOVED = "Removed": "the bucket and access of the deleted claim were deleted; the message names what was kept", "";
        KEYS_ROTATED = "KeysRotated": "the claim's Secret contains new keys; the message shows until when the previous key works, if it still does", "restart apps that read their keys only once", "if Secret, user or keys were lost or edited, the previous key works no more";
        KEY_DEACTIVATED = "FormerKeyDeactivated": "the previous key is deactivated, and is deleted at the time in the message", "restart them; to give an app more time, an admin activates the key with `aws iam update-access-key --status Active`", "apps that get `InvalidAccessKeyId`";
        KEYS_RETIRED = "KeysRetired": "the previous key was deleted", "", "an app that gets `InvalidAccessKeyId` from now on was not restarted";
        ACCESS_CHANGED = "AccessChanged": "the claim's keys may now do more or less with its bucket, because its setting `accessMode` was changed; the keys are the same", "";
        ACCESS_MOVED = "AccessMoved": "the claim's apps have access as a ServiceAccount from now on; the message shows until when the previous access works. Also the condition `KeysCurrent`", "restart the apps, so that they use the new access", "`kubectl obc status NAME` shows the previous access. [Move a claim](keyless.md#move-a-claim)";
        PREVIOUS_ACCESS_DELETED = "PreviousAccessDeleted": "the access that the claim had before it was moved was deleted. Also the condition `KeysCurrent`", "", "an app that gets `InvalidAccessKeyId` or `AccessDenied` from now on was not restarted";
        SETTINGS_APPLIED = "SettingsApplied": "edited settings of the claim were applied to its bucket", "";
        SETTING_RELEASED = "SettingReleased": "the claim no longer sets something that cannot be undone; the bucket keeps it, and the operator no longer repairs it", "write `bucketVersioning: Suspended` if no more versions are to be kept";
        ADOPTED = "Adopted": "the claim adopted an ObjectBucket, with its bucket and user", "";
    }
    Warning {
        LEFT_IN_PLACE = "LeftInPlace": "something was not deleted, because nothing proves that it belongs to the claim", "delete it by hand if it is unused", "the bucket or user that the event names, and its tags";
        OWNER_CREDENTIALS_SHARED = "OwnerCredentialsShared": "`createBucketUser` is `no`: the claim's Secret contains the provisioning credentials", "if it is not intended, recreate class and claims without the parameter", "[what that means](permissions.md)";
        ROTATION_FAILED = "RotationFailed": "the keys could not be rotated; the present keys still work, and the operator retries. Also the condition `KeysCurrent`", "correct what the message names; create no keys for users of claims, because the operator deletes them", "the message, usually a missing permission. A new key that a policy denies is kept and tested again";
        ROTATION_PENDING = "RotationPending": "new keys were requested while the previous key still exists, and a user has two keys at most; they are issued when the previous key is deleted. Also the condition `KeysCurrent`", "wait; if a key has leaked, delete the Secret, which replaces both keys at once", "the message names the previous key, and when it is deleted";
        KEY_IN_USE = "FormerKeyInUse": "an app used the previous key after its grace period; the key works at most until the time in the message", "restart the apps that use it", "pods that are older than the rotation, and keys copied out of the cluster; CloudTrail shows from where the key is used";
        REPAIRED = "Repaired": "a change that the operator did not make was repaired: of a policy, tags, or keys, or an ObjectBucket that was deleted or damaged", "find out who changed it", "CloudTrail's events of the user, or the audit log of the API server";
        NOT_TRIED = "NotTried": "the claim is Bound, but its access was not tested: the operator may not request tokens of ServiceAccounts", "grant `create` on `serviceaccounts/token` (`rbac --keyless`), or test the access in a pod";
        CHECK_FAILED = "CheckFailed": "bucket and user could not be checked, usually because a permission is missing; the operator retries with the next check (`--resync`)", "allow what the message names; upgrade the provisioning policy together with the operator", "without `iam:GetAccessKeyLastUsed` or `iam:UpdateAccessKey`, a previous key works for twice its grace period";
        CONFIG_IGNORED = "ConfigIgnored": "keys of `spec.additionalConfig` have no effect on this store; the bucket is created without them. Also the condition `UpToDate`", "remove them", "they are for other stores, such as Rook's quotas. [The settings that have an effect](parameters.md#settings-of-a-claim)";
        EDIT_IGNORED = "EditIgnored": "a bound claim was edited; the edit has no effect. Also the condition `UpToDate`", "undo the edit, or create a new claim and copy the data; the claim continues to work", "the message names the field and its value in the ObjectBucket. [Move a claim](keyless.md#move-a-claim) to another access";
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
            CLAIM_GONE = "ClaimGone": "no claim has the recorded namespace and name", "restore the claim and annotate `adopt`; or annotate `remove`, `revoke` or `forget`", "its finalizer was removed while no operator ran, or only ObjectBuckets were restored";
            CLAIM_REPLACED = "ClaimReplaced": "another claim has the recorded namespace and name", "annotate `adopt` if that claim is to get the bucket", "does the claim report `AdoptionNeeded`?";
            SCHEDULED = "Scheduled": "the claim was deleted, and its bucket will be deleted at the time in the message (`onDelete` of the class)", "to undo it, create the claim again with the annotation `objectbucket.io/undo-delete: \"yes\"`, or annotate the ObjectBucket", "if the time is over, the reason shows why the bucket still exists. A time that passed while no operator ran is postponed by up to a day";
            BUCKET_NOT_EMPTY = "BucketNotEmpty": "the claim was deleted, and its bucket is kept because it is not empty: the class has `onDelete: ifEmpty`, or the claim was never Bound", "annotate `adopt` or `forget`; or `remove`, which deletes the content. If the claim was never Bound, `remove` deletes only an empty bucket";
            CLAIM_VANISHED = "ClaimVanished": "the claim's finalizer was removed, so the claim was deleted without the operator. Its access is deleted; the bucket is kept", "annotate `adopt` and create the claim; or annotate `forget` or `remove`", "the audit log of the API server: who removed `objectbucket.io/finalizer`? [An admission policy](permissions.md) prevents it";
            USER_UNPROVEN = "UserUnproven": "the claim was deleted, and nothing proves that the recorded user is the claim's. The user was left in place; if its name ends in the claim's uid, its keys were deactivated", "delete the user by hand if it is the claim's, otherwise activate its keys; then annotate `forget`, or `remove` if the user no longer exists", "`aws iam get-user` and `list-user-tags`";
            BUCKET_CONFLICT = "BucketConflict": "the claim was deleted, and named another bucket than its ObjectBucket, so no bucket was deleted", "delete the bucket by hand if it is unused, and annotate the ObjectBucket with `forget`";
            AWAITS_CLAIM = "AwaitsClaim": "the claim of the recorded namespace and name will adopt the ObjectBucket when it exists and nothing prevents it", "create the claim, or see its status; to cancel, remove the annotation", "`spec.claimRef` has namespace and name. A scheduled deletion waits meanwhile";
            PURGING = "Purging": "the bucket of a deleted claim is being emptied before it is deleted; the message counts the objects", "wait";
            OTHER_CLUSTER = "OtherCluster": "the ObjectBucket was created in another cluster", "annotate `adopt` here and `forget` there", "does the previous cluster still run? [Move claims](disaster-recovery.md#move-claims-to-another-cluster)";
            RECORD_DAMAGED = "RecordDamaged": "fields that the operator needs are missing in the ObjectBucket; the message names them", "restore it from a backup", "`kubectl obc rebuild-objectbucket NAMESPACE/NAME`. A CRD of other software may drop fields: apply our `crds/`";
            UNKNOWN_ACTION = "UnknownAction": "the annotation has an unknown value; the message lists the known ones", "correct the annotation";
            ACTION_REFUSED = "ActionRefused": "the operator refused the annotation and removed it; the message shows why", "correct what the message names, and annotate again";
            CRD_DELETING = "CRDDeleting": "a CustomResourceDefinition of ObjectBucketClaims or ObjectBuckets is being deleted, so nothing is deleted at the store", "to keep the bucket, annotate the ObjectBucket with `objectbucket.io/orphan=forget` (admin). `objectbucket.io/confirm-deletion=yes` on the CRD deletes the buckets and users of all claims", "[If the deletion was a mistake](deleted-claims.md#restore-deleted-crds), annotate nothing";
            IN_PROGRESS = "InProgress": "the operator applies the annotation, or the scheduled deletion", "wait";
            REMOVAL_FAILED = "RemovalFailed": "bucket or access could not be deleted; the message shows why; the operator retries", "correct the cause, and the operator retries; or annotate `forget`", "the cause is that of a claim: see its reason above";
            ADOPTED = "Adopted": "the claim of the recorded namespace and name adopted the ObjectBucket; the condition is False", "";
            CLAIM_EXISTS = "ClaimExists": "the claim exists: the annotation was removed, or takes effect when the claim is deleted; or the ObjectBucket was deleted, and is kept until the claim is deleted. The condition is False", "";
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
