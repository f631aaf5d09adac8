//! Words on the wire, each written once.
//!
//! Sources: lib-bucket-provisioner (`objectbucket.io/v1alpha1`), which Rook, NooBaa and the Go
//! aws-s3-provisioner share; and the environment variables that AWS SDKs read.

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
/// Holds a claim and its bucket record until everything made for it is gone. All provisioners of the
/// ecosystem use the same one, so its presence does not say whose claim it is.
pub const FINALIZER: &str = "objectbucket.io/finalizer";
/// Label on claim, bucket record, Secret and ConfigMap; see [`provisioner_label`].
pub const PROVISIONER_LABEL: &str = "bucket-provisioner";
/// Provisioner name by default, as in `StorageClass.provisioner`.
pub const DEFAULT_PROVISIONER: &str = "aws-s3.io/bucket";

/// Annotations.
pub mod annotation {
    /// On a claim, set by its user: keys are replaced whenever the value changes, as a time does. On the
    /// claim's Secret: the value that its keys answer.
    pub const ROTATE_KEYS: &str = "objectbucket.io/rotate-keys";
    /// On a claim: what failed is tried again at once whenever the value changes.
    pub const RETRY: &str = "objectbucket.io/retry";
    /// On the claim's Secret: when its keys were issued (RFC 3339).
    pub const KEYS_ISSUED_AT: &str = "objectbucket.io/keys-issued-at";
    /// On the claim's Secret: id of the former access key, as long as it works.
    pub const RETIRING_KEY: &str = "objectbucket.io/retiring-key";
    /// On the claim's Secret: when the former access key is deleted (RFC 3339).
    pub const RETIRE_KEY_AT: &str = "objectbucket.io/retire-key-at";
    /// On the claim's Secret: when keys that nobody has are looked for and deleted (RFC 3339). It stands there for
    /// some seconds after keys were issued by other than the first attempt, for that one may have lost some.
    pub const REVIEW_KEYS_AT: &str = "objectbucket.io/review-keys-at";
    /// On the claim's Secret: the version of the owner's Secret that shared keys were taken from.
    pub const SHARED_FROM: &str = "objectbucket.io/shared-from";
    /// On an ObjectBucket, set by an admin: what becomes of a record whose claim is gone, or was made in another
    /// cluster: one of [`ORPHAN_ACTIONS`].
    pub const ORPHAN: &str = "objectbucket.io/orphan";
    /// Undo what is recorded: access, and the bucket if it was created and its reclaimPolicy is Delete.
    pub const ORPHAN_REMOVE: &str = "remove";
    /// Take the access away and keep the bucket.
    pub const ORPHAN_REVOKE: &str = "revoke";
    /// Delete the record alone; bucket and user stay. On a record that is its claim's still: when that is deleted.
    pub const ORPHAN_FORGET: &str = "forget";
    /// Give the record to the claim that has the recorded namespace and name now.
    pub const ORPHAN_ADOPT: &str = "adopt";
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
    /// URL of the S3 endpoint, as AWS SDKs read it; only for endpoints that are not AWS's own.
    pub const AWS_ENDPOINT_URL_S3: &str = "AWS_ENDPOINT_URL_S3";
}

/// Keys of `ObjectBucket.spec.additionalState` that the controller writes. A store adds its own.
/// They repeat what `claimRef` says, because some CRDs prune `claimRef` to `{}`.
pub mod state {
    /// Namespace of the claim.
    pub const CLAIM_NAMESPACE: &str = "claimNamespace";
    /// Name of the claim.
    pub const CLAIM_NAME: &str = "claimName";
    /// UID of the claim: what decides to whom a bucket record belongs.
    pub const CLAIM_UID: &str = "claimUID";
    /// Name of the provisioner that wrote the record, in full: the label of two names can be the same.
    pub const PROVISIONER: &str = "provisioner";
    /// UIDs of the claims that had the record before this one, separated by commas, oldest first. Names and tags
    /// may still hold them.
    pub const FORMER_CLAIM_UIDS: &str = "formerClaimUIDs";
    /// UID of the namespace `kube-system` of the cluster in which the record was made or adopted.
    pub const CLUSTER_UID: &str = "clusterUID";
    /// Account of the owner's credentials, as the store names it, where it is known.
    pub const ACCOUNT_ID: &str = "accountID";
    /// `true` once the claim's keys were seen to work: from then on an app may have used the bucket. The status
    /// says so as well, but backups leave it out.
    pub const HANDED_OVER: &str = "handedOver";
    /// `created` or `granted`.
    pub const MODE: &str = "mode";
    /// Namespace of the owner's Secret.
    pub const SECRET_NAMESPACE: &str = "secretNamespace";
    /// Name of the owner's Secret.
    pub const SECRET_NAME: &str = "secretName";
    /// URL of an S3 endpoint that an SDK cannot derive from the region.
    pub const ENDPOINT_URL: &str = "endpointURL";
    /// Age at which keys are replaced, in seconds.
    pub const ROTATE_KEYS_EVERY: &str = "rotateKeysEvery";
    /// How long replaced keys are kept, in seconds.
    pub const KEY_GRACE_PERIOD: &str = "keyGracePeriod";
    /// The user issued to the claim (the Go provisioner's key, kept).
    pub const USER_NAME: &str = "UserName";
    /// The managed policy that the Go provisioner attached to the user. This operator writes none: the key says who
    /// wrote the record.
    pub const GO_POLICY_ARN: &str = "ARN";
}

/// The value of [`PROVISIONER_LABEL`] for a provisioner name: `/` becomes `-`, cut to the 63 characters
/// that a label value may have.
pub fn provisioner_label(provisioner: &str) -> String {
    let cut: String = provisioner.replace('/', "-").chars().take(63).collect();
    cut.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_label_is_the_one_the_go_provisioner_wrote() {
        assert_eq!(provisioner_label(DEFAULT_PROVISIONER), "aws-s3.io-bucket");
    }

    #[test]
    fn a_long_provisioner_name_still_makes_a_valid_label() {
        let label = provisioner_label(&format!("example.com/{}-tail", "x".repeat(50)));
        assert!(label.len() <= 63 && label.ends_with('x'), "{label}");
    }
}
