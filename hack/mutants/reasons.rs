//! The reasons of claims that fail.

use bucket_provisioner::store::{Reason, Topic};

pub(crate) const TAKEN: Reason = Reason::new("BucketTaken", Topic::Claim)
    .meaning("a bucket of that name exists, and is not this claim's")
    .remedy("choose another name");
pub(crate) const USER_TAKEN: Reason = Reason::new("UserTaken", Topic::Claim)
    .meaning("a user of the claim's name exists, and is not this claim's")
    .remedy("delete that user, or rename it");
pub(crate) const CLAIMED: Reason = Reason::new("BucketClaimed", Topic::Class)
    .meaning("the bucket that the class names was created for another claim")
    .remedy("name another bucket");
pub(crate) const MISSING: Reason = Reason::new("BucketMissing", Topic::Class)
    .meaning("the bucket that the class names does not exist")
    .remedy("create it");
pub(crate) const GONE: Reason = Reason::new("BucketGone", Topic::Claim)
    .meaning("the bucket that was created for the claim no longer exists, or is somebody else's")
    .remedy("delete the claim and create a new one");
pub(crate) const UNAUTHORIZED: Reason = Reason::new("TokenRefused", Topic::Class)
    .meaning("the store does not accept the owner's token")
    .remedy("correct the token in the Secret that the class names");
pub(crate) const FAILING: Reason =
    Reason::new("StoreFailing", Topic::Store).meaning("the store has not done what it was asked");

/// What the provisioner declares.
pub(crate) const ALL: &[&Reason] = &[&TAKEN, &USER_TAKEN, &CLAIMED, &MISSING, &GONE, &UNAUTHORIZED, &FAILING];

/// Not in [`ALL`].
pub(crate) const UNDOCUMENTED: Reason = Reason::new("SomethingElse", Topic::Store);
