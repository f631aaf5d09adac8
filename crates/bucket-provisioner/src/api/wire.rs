//! Names on the wire, each written once.
//!
//! Sources: lib-bucket-provisioner (`objectbucket.io/v1alpha1`), which Rook, NooBaa and the Go
//! aws-s3-provisioner share; and the environment variables that AWS SDKs read.

use sha2::{Digest as _, Sha256};

/// API group of claims and bucket records.
pub const GROUP: &str = "objectbucket.io";
/// API version of claims and bucket records.
pub const VERSION: &str = "v1alpha1";
/// `apiVersion` of claims and bucket records.
pub const API_VERSION: &str = "objectbucket.io/v1alpha1";
/// Kind of a claim.
pub const CLAIM_KIND: &str = "ObjectBucketClaim";
/// Kind of a bucket record.
pub const RECORD_KIND: &str = "ObjectBucket";
/// Name of the CustomResourceDefinition of claims.
pub const CLAIM_CRD: &str = "objectbucketclaims.objectbucket.io";
/// Names of the CustomResourceDefinitions of ObjectBucketClaims and ObjectBuckets.
pub const CRDS: [&str; 2] = [CLAIM_CRD, "objectbuckets.objectbucket.io"];
/// Keeps a claim and its ObjectBucket until everything that was created for the claim is deleted. All provisioners of
/// these claims use the same finalizer, so it does not identify the provisioner.
pub const FINALIZER: &str = "objectbucket.io/finalizer";
/// Label on claim, ObjectBucket, Secret and ConfigMap; see [`provisioner_label`].
pub const PROVISIONER_LABEL: &str = "bucket-provisioner";

/// Label on an ObjectBucket: the name of its bucket, so that other ObjectBuckets with this bucket are found; see
/// [`bucket_label`].
pub const BUCKET_LABEL: &str = "objectbucket.io/bucket";

/// Annotations.
pub mod annotation {
    /// On a claim, set by its user: the keys are rotated whenever the value changes, a time for example. On the claim's
    /// Secret: the value for which its keys were issued.
    pub const ROTATE_KEYS: &str = "objectbucket.io/rotate-keys";
    /// On a claim: what failed is retried at once whenever the value changes.
    pub const RETRY: &str = "objectbucket.io/retry";
    /// On a claim, set by its user when the claim is created: `yes` asks for the bucket of the deleted claim of this
    /// namespace, name and class, if its deletion is still scheduled.
    pub const UNDO_DELETE: &str = "objectbucket.io/undo-delete";
    /// On the claim's Secret: when its keys were issued (RFC 3339).
    pub const KEYS_ISSUED_AT: &str = "objectbucket.io/keys-issued-at";
    /// On the claim's Secret: id of the previous access key, while it works.
    pub const RETIRING_KEY: &str = "objectbucket.io/retiring-key";
    /// On the claim's Secret: when the previous access key is deleted (RFC 3339).
    pub const RETIRE_KEY_AT: &str = "objectbucket.io/retire-key-at";
    /// On the claim's Secret: `yes` if the previous access key is deactivated already.
    pub const RETIRING_KEY_INACTIVE: &str = "objectbucket.io/retiring-key-inactive";
    /// On the claim's Secret: when lost keys are looked for and deleted (RFC 3339). It is set for a short time after a
    /// later attempt issued keys, because an earlier attempt may have lost some.
    pub const REVIEW_KEYS_AT: &str = "objectbucket.io/review-keys-at";
    /// On the claim's Secret: the resourceVersion of the provisioning Secret from which shared keys were copied.
    pub const SHARED_FROM: &str = "objectbucket.io/shared-from";
    /// On the claim's Secret and ConfigMap: a digest of `outputLabels` and `outputAnnotations` of the claim, and the keys that were
    /// written for them: `DIGEST LABELS ANNOTATIONS`, each list separated by commas.
    pub const OUTPUT_METADATA: &str = "objectbucket.io/output-metadata";
    /// On an ObjectBucket, set by an admin: what to do with a record whose claim no longer exists, or was created in
    /// another cluster: one of [`ORPHAN_ACTIONS`].
    pub const ORPHAN: &str = "objectbucket.io/orphan";
    /// Remove what is recorded: access, and the bucket if it was created and its reclaimPolicy is Delete.
    pub const ORPHAN_REMOVE: &str = "remove";
    /// Remove the access and keep the bucket.
    pub const ORPHAN_REVOKE: &str = "revoke";
    /// Delete only the record; bucket and user stay. If the record still belongs to its claim: when the claim is
    /// deleted.
    pub const ORPHAN_FORGET: &str = "forget";
    /// Give the record to the claim that now has the recorded namespace and name.
    pub const ORPHAN_ADOPT: &str = "adopt";
    /// On a CRD that is being deleted, set by an admin: `yes` allows the operator to delete what its claims had at the
    /// store.
    pub const CONFIRM_DELETION: &str = "objectbucket.io/confirm-deletion";
    /// All values of [`ORPHAN`].
    pub const ORPHAN_ACTIONS: [&str; 4] = [ORPHAN_REMOVE, ORPHAN_REVOKE, ORPHAN_FORGET, ORPHAN_ADOPT];
}

/// The namespace whose uid identifies a cluster: every cluster has it, and it cannot be deleted.
pub const CLUSTER_NAMESPACE: &str = "kube-system";

/// Keys of the claim's Secret.
pub mod secret {
    /// Access key id of the claim's user.
    pub const ACCESS_KEY_ID: &str = "AWS_ACCESS_KEY_ID";
    /// Secret access key of the claim's user.
    pub const SECRET_ACCESS_KEY: &str = "AWS_SECRET_ACCESS_KEY";
    /// The entries that every Secret has.
    pub const ALL: [&str; 2] = [ACCESS_KEY_ID, SECRET_ACCESS_KEY];
    /// Session token; only where temporary owner credentials are shared.
    pub const SESSION_TOKEN: &str = "AWS_SESSION_TOKEN";
}

/// Keys of the claim's ConfigMap.
pub mod config {
    /// Name of the bucket.
    pub const BUCKET_NAME: &str = "BUCKET_NAME";
    /// Host of the S3 endpoint.
    pub const BUCKET_HOST: &str = "BUCKET_HOST";
    /// Port of the S3 endpoint.
    pub const BUCKET_PORT: &str = "BUCKET_PORT";
    /// Region of the bucket.
    pub const BUCKET_REGION: &str = "BUCKET_REGION";
    /// Always empty; kept for apps that expect the key.
    pub const BUCKET_SUBREGION: &str = "BUCKET_SUBREGION";
    /// Region, as AWS SDKs read it.
    pub const AWS_REGION: &str = "AWS_REGION";
    /// Region, as older AWS SDKs and the AWS CLI read it.
    pub const AWS_DEFAULT_REGION: &str = "AWS_DEFAULT_REGION";
    /// The entries that every ConfigMap has.
    pub const ALL: [&str; 7] =
        [BUCKET_NAME, BUCKET_HOST, BUCKET_PORT, BUCKET_REGION, BUCKET_SUBREGION, AWS_REGION, AWS_DEFAULT_REGION];
    /// How the keys of the objects begin that the app may use; only for classes with `prefix`.
    pub const BUCKET_PREFIX: &str = "BUCKET_PREFIX";
    /// URL of the S3 endpoint, as AWS SDKs read it; only for other endpoints than AWS's default one.
    pub const AWS_ENDPOINT_URL_S3: &str = "AWS_ENDPOINT_URL_S3";
    /// How apps address the bucket: `path` of the URL, or `virtual` host. The name that COSI, Boto and Django have for it;
    /// only where the store adds it.
    pub const AWS_S3_ADDRESSING_STYLE: &str = "AWS_S3_ADDRESSING_STYLE";
}

/// Whether a key of Secret or ConfigMap is a standard one. What a store adds has other keys, in both, because apps read
/// both as one environment.
pub fn is_standard_output(key: &str) -> bool {
    secret::ALL.contains(&key)
        || config::ALL.contains(&key)
        || [secret::SESSION_TOKEN, config::AWS_ENDPOINT_URL_S3, config::BUCKET_PREFIX].contains(&key)
}

/// Keys of `ObjectBucket.spec.additionalState` that the controller writes. A store adds its own. Some repeat
/// `claimRef`, because some CRDs prune `claimRef` to `{}`.
pub mod state {
    /// Namespace of the claim.
    pub const CLAIM_NAMESPACE: &str = "claimNamespace";
    /// Name of the claim.
    pub const CLAIM_NAME: &str = "claimName";
    /// UID of the claim to which the bucket record belongs.
    pub const CLAIM_UID: &str = "claimUID";
    /// Full name of the provisioner that wrote the record, because two names can have the same label.
    pub const PROVISIONER: &str = "provisioner";
    /// UIDs of the claims that had the record before this one, separated by commas, oldest first. Names and tags may
    /// still contain them.
    pub const FORMER_CLAIM_UIDS: &str = "formerClaimUIDs";
    /// UID of the namespace `kube-system` of the cluster in which the record was created or adopted.
    pub const CLUSTER_UID: &str = "clusterUID";
    /// Account of the provisioning credentials, if it is known.
    pub const ACCOUNT_ID: &str = "accountID";
    /// `true` once the claim's keys have worked: from then on an app may have used the bucket. The status has the
    /// same, but backups do not contain it.
    pub const HANDED_OVER: &str = "handedOver";
    /// `created` or `granted`.
    pub const MODE: &str = "mode";
    /// Namespace of the Secret with the provisioning credentials.
    pub const SECRET_NAMESPACE: &str = "secretNamespace";
    /// Name of the Secret with the provisioning credentials.
    pub const SECRET_NAME: &str = "secretName";
    /// The role that the provisioning credentials assume; absent for none.
    pub const OWNER_ROLE: &str = "ownerRole";
    /// Its external id; absent for none.
    pub const OWNER_ROLE_EXTERNAL_ID: &str = "ownerRoleExternalId";
    /// What the claim's keys may do: `ReadOnly` or `WriteOnly`; absent for `ReadWrite`.
    pub const ACCESS_MODE: &str = "accessMode";
    /// The most that the class allowed, in the same words.
    pub const CLASS_ACCESS_MODE: &str = "classAccessMode";
    /// How the keys of the objects begin that the claim may use; absent for all.
    pub const PREFIX: &str = "prefix";
    /// What was changed here for a bound claim, until the store has applied it: `access`, `settings`, or both.
    pub const CHANGES: &str = "changes";
    /// Begins the keys of what the class has set for the bucket.
    pub const SETTING: &str = "setting.";
    /// Begins the keys of what the claim has set for the bucket.
    pub const CLAIM_SETTING: &str = "claimSetting.";
    /// What the claim may set, as the class parameter of this name.
    pub const CLAIMS_MAY_SET: &str = "claimsMaySet";
    /// What the claim no longer sets, until the store has applied that; separated by commas.
    pub const RELEASED_SETTINGS: &str = "releasedSettings";
    /// What the store has appended to the name of the bucket that was asked for; absent for nothing.
    pub const NAME_SUFFIX: &str = "nameSuffix";
    /// The claim whose bucket this one shares: its name, as the claim names it.
    pub const BUCKET_CLAIM_NAME: &str = "bucketClaimName";
    /// The uids of that claim, the present one first; separated by commas.
    pub const BUCKET_CLAIM_UIDS: &str = "bucketClaimUIDs";
    /// The ServiceAccount as which the claim's apps have access; absent if they have keys.
    pub const SERVICE_ACCOUNT_NAME: &str = "serviceAccountName";
    /// The audience of its tokens; absent if the store needs none.
    pub const TOKEN_AUDIENCE: &str = "tokenAudience";
    /// Access that the claim had before it was moved to another class or cluster, until it is revoked; JSON.
    pub const PREVIOUS_ACCESS: &str = "previousAccess";
    /// URL of an S3 endpoint that an SDK cannot derive from the region.
    pub const ENDPOINT_URL: &str = "endpointURL";
    /// Age at which keys are rotated, in seconds.
    pub const ROTATE_KEYS_EVERY: &str = "rotateKeysEvery";
    /// How long the previous keys are kept after they were replaced, in seconds.
    pub const KEY_GRACE_PERIOD: &str = "keyGracePeriod";
    /// What happens to the bucket when the claim is deleted, as the class parameter of this name; absent for `purge`.
    pub const ON_DELETE: &str = "onDelete";
    /// When the claim was created (RFC 3339).
    pub const CLAIM_CREATED_AT: &str = "claimCreatedAt";
    /// When the claim was deleted and its access removed, if the ObjectBucket outlives the claim (RFC 3339).
    pub const RELEASED_AT: &str = "releasedAt";
    /// Why the ObjectBucket outlives its claim: a reason of its conditions.
    pub const RELEASE_REASON: &str = "releaseReason";
    /// When the bucket is deleted (RFC 3339).
    pub const DELETE_AT: &str = "deleteAt";
    /// `true` once the deletion of the bucket has begun: from then on it cannot be undone.
    pub const DELETION_STARTED: &str = "deletionStarted";
    /// UID of the deleted claim's namespace.
    pub const NAMESPACE_UID: &str = "namespaceUID";
    /// Begins the keys of what a store adds to the claim's ConfigMap.
    pub const OUTPUT: &str = "output.";
    /// The user issued to the claim (the Go provisioner's key, kept).
    pub const USER_NAME: &str = "UserName";
    /// The managed policy that the Go provisioner attached to the user. This operator creates none, so the key shows
    /// who wrote the record.
    pub const GO_POLICY_ARN: &str = "ARN";
    /// Begin the keys of several entries.
    pub const FAMILIES: [&str; 3] = [OUTPUT, SETTING, CLAIM_SETTING];
    /// The keys that a store must not use; nor those that begin with one of [`FAMILIES`].
    pub const ALL: [&str; 37] = [
        PREVIOUS_ACCESS,
        SERVICE_ACCOUNT_NAME,
        TOKEN_AUDIENCE,
        NAME_SUFFIX,
        BUCKET_CLAIM_NAME,
        BUCKET_CLAIM_UIDS,
        CLAIMS_MAY_SET,
        RELEASED_SETTINGS,
        CLAIM_NAMESPACE,
        CLAIM_NAME,
        CLAIM_UID,
        PROVISIONER,
        FORMER_CLAIM_UIDS,
        CLUSTER_UID,
        ACCOUNT_ID,
        HANDED_OVER,
        MODE,
        SECRET_NAMESPACE,
        SECRET_NAME,
        OWNER_ROLE,
        OWNER_ROLE_EXTERNAL_ID,
        ACCESS_MODE,
        CLASS_ACCESS_MODE,
        PREFIX,
        CHANGES,
        ENDPOINT_URL,
        ROTATE_KEYS_EVERY,
        KEY_GRACE_PERIOD,
        ON_DELETE,
        CLAIM_CREATED_AT,
        RELEASED_AT,
        RELEASE_REASON,
        DELETE_AT,
        DELETION_STARTED,
        NAMESPACE_UID,
        USER_NAME,
        GO_POLICY_ARN,
    ];
}

/// The value of [`PROVISIONER_LABEL`] for a provisioner name: `/` becomes `-`, cut to the 63 characters of a label
/// value.
pub fn provisioner_label(provisioner: &str) -> String {
    let cut: String = provisioner.replace('/', "-").chars().take(63).collect();
    cut.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}

/// The value of [`BUCKET_LABEL`] for a bucket: its name, or a hash of a name that is no label value.
pub fn bucket_label(bucket: &str) -> String {
    let is_alphanumeric = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    let fits = bucket.len() <= 63
        && is_alphanumeric(bucket.bytes().next())
        && is_alphanumeric(bucket.bytes().last())
        && bucket.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if fits {
        return bucket.to_owned();
    }
    let digest = Sha256::digest(bucket.as_bytes());
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_label_of_a_bucket_is_its_name_or_a_hash_of_it() {
        assert_eq!(bucket_label("photos.2026-1"), "photos.2026-1");
        for name in ["", "-photos", "photos-", "sch\u{f6}n", "a/b", &"x".repeat(64)] {
            let label = bucket_label(name);
            assert!(label.len() == 32 && label.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}: {label}");
        }
        assert_ne!(bucket_label("a/b"), bucket_label("a/c"));
    }

    #[test]
    fn the_label_is_the_one_the_go_provisioner_wrote() {
        assert_eq!(provisioner_label("aws-s3.io/bucket"), "aws-s3.io-bucket");
    }

    #[test]
    fn a_long_provisioner_name_still_makes_a_valid_label() {
        let label = provisioner_label(&format!("example.com/{}-tail", "x".repeat(50)));
        assert!(label.len() <= 63 && label.ends_with('x'), "{label}");
    }
}
