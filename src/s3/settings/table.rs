//! Which settings there are.

use super::tags;
use bucket_provisioner::store::Setting;

pub(super) const VERSIONING: &str = "bucketVersioning";
pub(super) const ENCRYPTION: &str = "encryption";
/// The key of KMS with which objects are encrypted.
pub(super) const KMS_KEY: &str = "kmsKey";
pub(super) const EXPIRE: &str = "expireAfter";
pub(super) const EXPIRE_NONCURRENT: &str = "expireNoncurrentAfter";
pub(super) const ABORT_UPLOADS: &str = "abortIncompleteUploadsAfter";
pub(super) const LIFECYCLE: &str = "bucketLifecycle";
pub(super) const REQUIRE_TLS: &str = "requireTLS";
pub(super) const PUBLIC_ACCESS: &str = "publicAccess";
pub(super) const OBJECT_OWNERSHIP: &str = "objectOwnership";
pub(super) const ACCESS_LOGS: &str = "accessLogs";
pub(super) const OBJECT_LOCK: &str = "objectLock";
/// Locked objects of a deleted claim's bucket are deleted nevertheless.
pub(super) const BYPASS_GOVERNANCE: &str = "bypassGovernance";
pub(super) const CORS: &str = "bucketCors";
pub(super) const EVENT_BRIDGE: &str = "eventBridge";

/// The settings of buckets in S3.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting::new(tags::TAGS, "Tags of the IAM user and of a new bucket, such as `team=${namespace},env=prod`, but no keys `aws:…` or `objectbucket.io/…`.").of_users(),
    Setting::family(tags::FAMILY, "One more tag."),
    Setting::new(VERSIONING, "`Enabled` or `Suspended`. Once enabled, it can only be suspended. AWS advises not to write for 15 minutes after it was enabled for the first time.").of_claims(),
    Setting::new(ENCRYPTION, "Default encryption: `AES256`, `aws:kms` or `aws:kms:dsse`."),
    Setting::new(KMS_KEY, "ARN of the KMS key of new buckets (with `encryption`), or of the existing bucket (with `bucketName`). [Its policy](classes.md#configure-buckets) must let IAM policies allow its use.").of_existing_buckets(),
    Setting::new(EXPIRE, "Time after which objects are deleted, such as `30d`; in a bucket with versions they become noncurrent.").of_claims(),
    Setting::new(EXPIRE_NONCURRENT, "Time after which noncurrent versions are deleted.").of_claims(),
    Setting::new(ABORT_UPLOADS, "Time after which incomplete multipart uploads are aborted.").of_claims(),
    Setting::new(LIFECYCLE, "Lifecycle rules, as JSON of the AWS CLI: `{\"Rules\":[…]}`. Excludes the three parameters above.").of_claims(),
    Setting::new(REQUIRE_TLS, "`true`: the bucket policy denies calls without TLS. Not with an endpoint `http://…`."),
    Setting::new(PUBLIC_ACCESS, "`blocked`: the operator restores the public access block, which new buckets of AWS have anyway."),
    Setting::new(OBJECT_OWNERSHIP, "`BucketOwnerEnforced` (default of CreateBucket), `BucketOwnerPreferred` or `ObjectWriter`."),
    Setting::new(ACCESS_LOGS, "Bucket and prefix for server access logs, such as `logs/${namespace}/`. You create that bucket, in the same account and region, and let S3 write to it."),
    Setting::new(OBJECT_LOCK, "`Enabled`: objects can be locked, but not with keys of claims. `GOVERNANCE:30d`, `COMPLIANCE:1y` (not in claims): new objects are locked. Enables versioning, and is never removed or weakened. [Deletion waits](classes.md#configure-buckets) for the last lock.").of_claims(),
    Setting::new(BYPASS_GOVERNANCE, "`yes`: objects locked in the mode `GOVERNANCE` are deleted with the bucket of a deleted claim."),
    Setting::new(CORS, "CORS rules, as JSON of the AWS CLI: `{\"CORSRules\":[…]}`.").of_claims(),
    Setting::new(EVENT_BRIDGE, "`true`: S3 sends the events of the bucket to EventBridge. Other notifications stay."),
];
