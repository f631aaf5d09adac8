//! The reason codes of claims that come from AWS. `docs/reasons.md` is generated from them.

use bucket_provisioner::store::Reason;

bucket_provisioner::reasons! {
    Claim {
        BUCKET_TAKEN = "BucketTaken": "a bucket of that name exists and is not this claim's", "choose another name; for a bucket of your own, use a class for existing buckets", "bucket names are unique across all accounts of AWS. [Use a bucket that exists](existing-buckets.md)";
        TAGS_NOT_KEPT = "TagsNotKept": "the store keeps no tags, so nothing can prove that a bucket of a chosen name is the claim's", "use `generateBucketName`, and delete the empty bucket";
    }
    Warning {
        REGION_NOT_NAMED = "RegionNotNamed": "neither the StorageClass nor the operator's `AWS_REGION` names a region, so the buckets are in us-west-1. An event on the class", "recreate the class with `region`; bound claims keep their buckets";
    }
    Class {
        NOTHING_TO_SHARE = "NothingToShare": "the claim shares the provisioning credentials (`createBucketUser: \"no\"`), but its ObjectBucket names no Secret", "restore `secretName` and `secretNamespace` in `spec.additionalState` of the ObjectBucket (admin)";
        PREFIX_TOO_LONG = "PrefixTooLong": "the `prefix` of the class makes the policy of the claim's user longer than IAM allows", "shorten the prefix in a new class (100 characters always fit), or the claim's name if the prefix contains it";
        BUCKET_MISSING = "BucketMissing": "the bucket that the class names does not exist", "create it, or recreate the class with the right `bucketName`", "a typing error, or another account?";
        BUCKET_CLAIMED = "BucketClaimed": "the bucket that the class names was created for another claim, and may be deleted with it", "recreate the class with another bucket, or with `allowClaimedBucket: \"yes\"` if this is intended";
        BUCKET_GONE = "BucketGone": "somebody deleted the claim's bucket, or the one that it shares; it is not recreated without its content", "delete the claim and create a new one; copy the content from a backup", "CloudTrail's event `DeleteBucket`; `kubectl obc retry` checks the bucket again";
        OWNERSHIP_LOST = "OwnershipLost": "the claim's bucket, or the one that it shares, has lost its tags, or is older than the claim", "if the bucket is the claim's, add the tag that the message names (PutBucketTagging replaces all tags); if the ObjectBucket was edited, restore it, and tag nothing", "creation date and content of the bucket";
        WRONG_REGION = "WrongRegion": "the bucket is in another region", "use a class for that region", "`aws s3api get-bucket-location --bucket NAME`; null is us-east-1";
    }
    Store {
        CREDENTIALS_REFUSED = "CredentialsRefused": "AWS does not know the access key, or its signature is wrong", "write a valid key of the same account into the Secret; check the node's clock", "`SignatureDoesNotMatch` usually means a wrong secret key. [Rotate the provisioning credentials](rotation.md)";
        CREDENTIALS_EXPIRED = "CredentialsExpired": "the session of the provisioning credentials has expired", "renew the Secret", "does what writes `AWS_SESSION_TOKEN` into the Secret still run?";
        CREDENTIALS_UNAVAILABLE = "CredentialsUnavailable": "the class names no Secret, and the operator has no AWS identity", "give the operator an identity and recreate its pods, or recreate the class with a Secret", "[identity on EKS](install-eks.md)";
        OWNER_ROLE_REFUSED = "OwnerRoleRefused": "AWS does not let the operator, or the keys in `secretName`, assume the role of `ownerRole`", "correct the trust policy of the role or its external id; on both sides, allow `sts:AssumeRole`, with Pod Identity also `sts:TagSession`", "`AROA…` in the trust policy is a deleted role. [Buckets in another account](several-clusters.md)";
        ACCESS_DENIED = "AccessDenied": "the provisioning credentials lack a permission", "attach the provisioning policy of this version; if it requires a permissions boundary or a prefix of buckets, name it in the class, for a bound claim the boundary in `spec.additionalState` of its ObjectBucket", "`kubectl obc doctor`; a service control policy may deny, too. [The policies](permissions.md)";
        QUOTA_EXCEEDED = "QuotaExceeded": "the account has reached a quota, such as that of buckets or users", "raise the quota (not possible for users), clean up orphans, or use several accounts", "[AWS quotas](classes.md#stay-within-aws-quotas); [orphans](deleted-claims.md)";
        USER_TAKEN = "UserTaken": "an IAM user of the claim's name exists without its tag", "if the user is the claim's, add the tag that the message names; otherwise delete it if nobody needs it", "the name of a claim's user ends in the claim's uid";
        NOT_SUPPORTED = "NotSupported": "the store lacks an operation", "use a store, or a version of it, that has it", "[what a store needs](install-other-stores.md#what-the-store-needs)";
        OIDC_PROVIDER_MISSING = "OidcProviderMissing": "the account has no identity provider for the issuer of the cluster's tokens", "create it, or correct `oidcProvider` in a new class", "`kubectl get --raw /.well-known/openid-configuration`, `aws iam list-open-id-connect-providers`. [Set it up](keyless.md#set-it-up)";
        OIDC_PROVIDER_MISMATCH = "OidcProviderMismatch": "the identity provider of the class does not accept the tokens of the cluster", "compare `oidcProvider` with the cluster's issuer, and `oidcAudience` with the provider's client ids; the issuer's keys must be public", "`aws iam get-open-id-connect-provider`; `curl https://ISSUER/.well-known/openid-configuration` from outside of the network";
        ROLE_TAKEN = "RoleTaken": "an IAM role of the ServiceAccount's name exists without its tags", "restore its tags if it is the operator's, or delete it if nobody needs it";
        ROLE_FULL = "RoleFull": "the role of the ServiceAccount has no room for the policy of one more claim", "use another ServiceAccount for the claim";
        ASSOCIATION_TAKEN = "AssociationTaken": "somebody else made or changed the Pod Identity association of the claim's ServiceAccount, or it is for another cluster or `podRole`", "use another ServiceAccount for the claim; delete the association only if nobody needs it", "`aws eks list-pod-identity-associations`";
        ASSOCIATION_FULL = "AssociationFull": "the Pod Identity association of the ServiceAccount has no room for one more claim", "use another ServiceAccount for the claim";
        POD_ROLE_REFUSED = "PodRoleRefused": "AWS does not let the provisioning credentials assume `podRole`, to test the access of claims", "correct the trust policy of the role, and allow `sts:AssumeRole`", "[the trust policy](../deploy/aws/pod-role-trust-policy.json)";
        KEY_UNUSABLE = "KeyUnusable": "the claim's keys cannot use the KMS key of the class (`kmsKey`)", "enable the key, allow the account's IAM policies in its policy, or correct `kmsKey` in a new class";
        REJECTED = "Rejected": "AWS refused for another reason, which is in the message", "follow the text of AWS, or correct the endpoint of the class";
        THROTTLED = "Throttled": "AWS limits the rate of calls; all clients of the account share that of IAM", "wait";
        STORE_BUSY = "StoreBusy": "the store is busy with something that excludes this call", "wait; the name of a deleted bucket can be busy for an hour";
        STORE_FAILING = "StoreFailing": "the store answers with server errors", "wait", "the status page of AWS; the cluster's proxies (`HTTPS_PROXY`) and gateways";
        STORE_UNREACHABLE = "StoreUnreachable": "the store cannot be reached", "correct NetworkPolicy, proxy, DNS, endpoint or region", "a private network needs endpoints for S3, IAM (one for all regions) and STS";
        NOT_VISIBLE_YET = "NotVisibleYet": "AWS does not show yet what was just created", "wait; stop pods that still write into a bucket that is being deleted";
        BUCKET_NOT_FOUND = "BucketNotFound": "AWS does not show the bucket, which may be new", "wait; after some minutes, check that the bucket exists";
        OBJECTS_NOT_DELETED = "ObjectsNotDeleted": "objects of a deleted claim's bucket cannot be deleted; all others are deleted", "remove the policy or the lock, or allow `s3:DeleteObjectVersion`; to keep the bucket, annotate the ObjectBucket with `objectbucket.io/orphan=forget` (admin)", "`aws s3api get-bucket-policy`, `get-object-retention`, `get-object-legal-hold`";
        OBJECTS_LOCKED = "ObjectsLocked": "objects of a deleted claim's bucket are locked", "wait until the time in the message; to keep the bucket, annotate the ObjectBucket with `objectbucket.io/orphan=forget` (admin)", "[`bypassGovernance`](classes.md#configure-buckets)";
        OBJECTS_KEEP_ARRIVING = "ObjectsKeepArriving": "a deleted claim's bucket was emptied three times, and something still writes to it", "stop server access logs, replication rules, apps with other keys or signed URLs; to keep the bucket, annotate the ObjectBucket with `objectbucket.io/orphan=forget` (admin)", "the newest objects";
        HAS_ACCESS_POINTS = "BucketHasAccessPoints": "S3 does not delete a bucket with access points", "delete the access points; to keep the bucket, annotate the ObjectBucket with `objectbucket.io/orphan=forget` (admin)", "without [`s3:ListAccessPoints`](permissions.md), the content was deleted before";
        ACCESS_STILL_WORKS = "AccessStillWorks": "the user of a deleted claim is not found, but the key in its Secret works: the user may be in another account", "wait; if it stays, use provisioning credentials of the user's account", "`spec.additionalState.accountID` of the ObjectBucket";
    }
    Operator {
        INVALID_ENVIRONMENT = "InvalidEnvironment": "an endpoint variable of the operator is not a URL, or a switch is neither true nor false", "correct the Deployment", "`AWS_ENDPOINT_URL…`, `AWS_USE_FIPS_ENDPOINT`, `AWS_USE_DUALSTACK_ENDPOINT`";
    }
}

/// What an admin should know about a class whose buckets are in this region, because nothing names one.
pub(crate) fn region_not_named(region: &str) -> Option<(&'static Reason, String)> {
    let reason = TABLE.iter().find(|reason| reason.name == REGION_NOT_NAMED)?;
    let message =
        "the class names no region, and AWS_REGION is not set in the environment of this program, so buckets are in";
    Some((reason, format!("{message} {region}: name the region in the class")))
}
