//! The reason codes of claims that come from AWS. `docs/reasons.md` is generated from them.

use bucket_provisioner::store::Reason;

bucket_provisioner::reasons! {
    Claim {
        BUCKET_TAKEN = "BucketTaken": "a bucket of that name exists and is not this claim's", "choose another name; or, for a bucket of your own, write a brownfield class";
        TAGS_NOT_KEPT = "TagsNotKept": "the store keeps no tags, so nothing can prove that a bucket of a chosen name is the claim's", "use `generateBucketName`";
    }
    Warning {
        REGION_NOT_NAMED = "RegionNotNamed": "the StorageClass names no `region`, and the operator's environment has no `AWS_REGION`: its buckets are in us-west-1, where the Go provisioner put them. An event on the class", "recreate the class with the parameter `region`; bound claims keep their buckets";
    }
    Class {
        NOTHING_TO_SHARE = "NothingToShare": "`createBucketUser` is `no`, but the class names no Secret whose keys claims could share", "name a Secret in a new class";
        PREFIX_TOO_LONG = "PrefixTooLong": "with the class's `prefix`, the policy of the claim's user would be longer than IAM allows", "shorten the prefix, in a new class; or the name of the claim, if the prefix contains it";
        BUCKET_MISSING = "BucketMissing": "the bucket that the class names does not exist", "create it, or correct the class";
        BUCKET_CLAIMED = "BucketClaimed": "the bucket that a brownfield class names was created for another claim", "name another bucket; or set `allowClaimedBucket: \"yes\"` if that is meant";
        BUCKET_GONE = "BucketGone": "somebody deleted the bucket that was created for the claim, or for that whose bucket it shares; it is not recreated without its content", "delete the claim and create a new one";
        OWNERSHIP_LOST = "OwnershipLost": "the bucket that was created for the claim, or for that whose bucket it shares, no longer has its tags; or the ObjectBucket names a bucket that is older than the claim", "follow the message; without the tags a bucket stays when the claim is deleted";
        WRONG_REGION = "WrongRegion": "the bucket is in another region", "use a class for that region";
    }
    Store {
        CREDENTIALS_REFUSED = "CredentialsRefused": "AWS does not know the access key, or its signature is wrong", "put a valid key into the Secret; check the node's clock";
        CREDENTIALS_EXPIRED = "CredentialsExpired": "the session of the provisioning credentials has expired", "renew the Secret";
        CREDENTIALS_UNAVAILABLE = "CredentialsUnavailable": "the class names no Secret, and the operator has no AWS identity; the message has the innermost cause", "give the operator's pod an identity, or name a Secret";
        OWNER_ROLE_REFUSED = "OwnerRoleRefused": "AWS does not let the operator, or the keys in `secretName`, assume the role of `ownerRole`", "correct the trust policy of the role or its external id, and allow `sts:AssumeRole`; [Buckets in another account](admin-guide.md#buckets-in-another-account)";
        ACCESS_DENIED = "AccessDenied": "the provisioning credentials lack a permission, which the message names", "allow it; [the provisioning policy](security.md#provisioning-policy) allows everything that claims need. If it requires a permissions boundary, the class has to name it";
        QUOTA_EXCEEDED = "QuotaExceeded": "there are too many buckets, users or the like in the account", "raise the quota of buckets, or clean up; an account can have 5,000 users, and no more";
        USER_TAKEN = "UserTaken": "an IAM user of the claim's name exists without its tag", "delete that user";
        NOT_SUPPORTED = "NotSupported": "the store lacks an operation", "use a store that has it";
        OIDC_PROVIDER_MISSING = "OidcProviderMissing": "the account has no identity provider for the issuer of the cluster's tokens (`oidcProvider`)", "create it, or correct `oidcProvider` in a new class";
        OIDC_PROVIDER_MISMATCH = "OidcProviderMismatch": "the identity provider of the class does not accept the tokens of the cluster", "compare `oidcProvider` with the cluster's issuer, and `oidcAudience` with the provider's client ids; the issuer's keys must be public";
        ROLE_TAKEN = "RoleTaken": "an IAM role of the ServiceAccount's name exists without its tags", "delete that role";
        ROLE_FULL = "RoleFull": "the role of the ServiceAccount has no room for the policy of one more claim", "use another ServiceAccount for the claim";
        ASSOCIATION_TAKEN = "AssociationTaken": "the ServiceAccount has a Pod Identity association that the operator has not made", "delete that association, or use another ServiceAccount";
        ASSOCIATION_FULL = "AssociationFull": "the Pod Identity association of the ServiceAccount has no room for one more claim", "use another ServiceAccount for the claim";
        POD_ROLE_REFUSED = "PodRoleRefused": "AWS does not let the provisioning credentials assume the role of `podRole`, with which the access of claims is tried", "correct the trust policy of the role, and allow `sts:AssumeRole`";
        KEY_UNUSABLE = "KeyUnusable": "the claim's keys cannot use the KMS key of the class (`kmsKey`)", "enable the key, correct `kmsKey`, or allow the account's IAM policies in the key's policy";
        REJECTED = "Rejected": "AWS refused for another reason; the message has the error code and text of AWS", "follow that text; if it does not help, check that the endpoint of the class is that of the store";
        THROTTLED = "Throttled": "AWS limits the rate of calls", "wait: the operator queues the calls and continues by itself";
        STORE_BUSY = "StoreBusy": "the store is busy with something that excludes this call", "wait";
        STORE_FAILING = "StoreFailing": "the store answers with server errors", "wait";
        STORE_UNREACHABLE = "StoreUnreachable": "the store cannot be reached", "wait; if it stays, check the endpoint and the network";
        NOT_VISIBLE_YET = "NotVisibleYet": "AWS does not show yet what was just created", "wait";
        BUCKET_NOT_FOUND = "BucketNotFound": "AWS does not show the bucket, which may be new", "wait";
        OBJECTS_NOT_DELETED = "ObjectsNotDeleted": "objects of a deleted claim's bucket cannot be deleted; the message names the first", "check for an object lock or a bucket policy";
        OBJECTS_LOCKED = "ObjectsLocked": "objects of a deleted claim's bucket are locked; the message names the first, and until when", "wait until then; or annotate the ObjectBucket with `objectbucket.io/orphan=forget` to keep the bucket (admin)";
        OBJECTS_KEEP_ARRIVING = "ObjectsKeepArriving": "a deleted claim's bucket was emptied three times, and something writes to it still", "stop what writes to it: server access logs, a replication rule, an application with other keys";
        HAS_ACCESS_POINTS = "BucketHasAccessPoints": "S3 does not delete a bucket with access points. They are searched for before anything in it is deleted, if the provisioning credentials may list them (`s3:ListAccessPoints`)", "delete the access points that the message names";
        ACCESS_STILL_WORKS = "AccessStillWorks": "the user of a deleted claim is not found, but the key in its Secret works: the user may be in another account", "wait; if it stays, check to which account the provisioning credentials belong";
    }
    Operator {
        INVALID_ENVIRONMENT = "InvalidEnvironment": "an endpoint variable of the operator is not a URL, or a switch is neither true nor false", "correct the Deployment";
    }
}

/// What an admin should know about a class whose buckets are in this region, because nothing names one.
pub(crate) fn region_not_named(region: &str) -> Option<(&'static Reason, String)> {
    let reason = TABLE.iter().find(|reason| reason.name == REGION_NOT_NAMED)?;
    let message =
        "the class names no region, and AWS_REGION is not set in the environment of this program, so buckets are in";
    Some((reason, format!("{message} {region}: name the region in the class")))
}
