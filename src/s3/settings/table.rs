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
    Setting::new(tags::TAGS, "Tags of the IAM user and of a new bucket, such as `team=${namespace},env=prod`; the keys `aws:…` and `objectbucket.io/…` cannot be used. Claims may add `tags.KEY`, if `claimsMaySet` has `tags.KEY` or `tags.*`, and cannot change those of the class.").of_users(),
    Setting::family(tags::FAMILY, "One more tag."),
    Setting::new(VERSIONING, "`Enabled` or `Suspended`. Without it, versioning is not managed. It cannot be turned off again, only suspended. AWS advises not to write for 15 minutes after it was enabled for the first time.").of_claims(),
    Setting::new(ENCRYPTION, "The default encryption: `AES256`, `aws:kms` or `aws:kms:dsse`."),
    Setting::new(KMS_KEY, "ARN of the KMS key of new buckets (with `encryption`), or of the existing bucket (with `bucketName`). Claims may use it through S3; [its policy](classes.md#configure-buckets) has to allow IAM policies.").of_existing_buckets(),
    Setting::new(EXPIRE, "Objects are deleted after so many days, such as `30d`; in a bucket with versions they become noncurrent ones.").of_claims(),
    Setting::new(EXPIRE_NONCURRENT, "Versions that were replaced or deleted are deleted after so many days.").of_claims(),
    Setting::new(ABORT_UPLOADS, "Multipart uploads that were not completed are aborted after so many days.").of_claims(),
    Setting::new(LIFECYCLE, "Lifecycle rules, as JSON in the form of the AWS CLI: `{\"Rules\":[…]}`. Excludes the three parameters in days.").of_claims(),
    Setting::new(REQUIRE_TLS, "`true`: a statement of the bucket policy denies calls without TLS; other statements stay. Not with an endpoint `http://…`."),
    Setting::new(PUBLIC_ACCESS, "`blocked`: all four settings of the public access block. New buckets of AWS have them anyway; with it, the operator restores them."),
    Setting::new(OBJECT_OWNERSHIP, "`BucketOwnerEnforced`, `BucketOwnerPreferred` or `ObjectWriter`. CreateBucket names it, which some organizations demand; without the parameter it names `BucketOwnerEnforced`."),
    Setting::new(ACCESS_LOGS, "Bucket and prefix for server access logs, such as `logs/${namespace}/`. The bucket is yours, in the same account and region, and lets S3 write."),
    Setting::new(OBJECT_LOCK, "`Enabled`: objects can be locked, not by keys of claims. `GOVERNANCE:30d`, `COMPLIANCE:1y`: new objects are. Includes versioning; is never removed or weakened. [A bucket with locked objects stays](classes.md#configure-buckets). Claims cannot set `COMPLIANCE`, which nobody can end.").of_claims(),
    Setting::new(BYPASS_GOVERNANCE, "`yes`: objects that are locked in the mode `GOVERNANCE` are deleted with the bucket of a deleted claim."),
    Setting::new(CORS, "Rules for web pages of other origins, as JSON in the form of the AWS CLI: `{\"CORSRules\":[…]}`.").of_claims(),
    Setting::new(EVENT_BRIDGE, "`true`: S3 sends the events of the bucket to EventBridge. Other notifications stay."),
];
