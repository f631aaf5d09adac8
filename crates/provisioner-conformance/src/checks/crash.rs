//! The operator is killed at every call that changes something, and started again; see [`crash_everywhere`].

use super::{block_on, has};
use crate::backend::{Ability, Backend};
use crate::crash::{Flow, Kind, Pace, Step, crash_everywhere};

const SHARED: [Ability; 3] = [Ability::SharedBuckets, Ability::Inventory, Ability::Apps];

fn run<B: Backend>(make: &impl AsyncFn() -> B, needs: &[Ability], flow: Flow) {
    block_on(async {
        if has(&make().await, &[needs, &[Ability::Persistence]].concat()) {
            crash_everywhere(flow, Pace::AtOnce, &async |_| make().await).await;
        }
    });
}

/// A submitted claim is bound.
pub fn killed_while_a_bucket_is_created<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield], Flow::of(Kind::Generated, Step::Provide));
}

/// A submitted claim of a class with `Retain` is bound.
pub fn killed_while_a_retained_bucket_is_created<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Inventory], Flow::of(Kind::Retain, Step::Provide));
}

/// A submitted claim that chose its bucket's name is bound.
pub fn killed_while_a_named_bucket_is_created<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Tags], Flow::of(Kind::Named, Step::Provide));
}

/// A submitted claim for a bucket that exists is bound.
pub fn killed_while_access_is_granted<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Brownfield, Ability::Inventory], Flow::of(Kind::Brownfield, Step::Provide));
}

/// A submitted claim for the bucket of another claim is bound.
pub fn killed_while_access_to_a_shared_bucket_is_granted<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &SHARED, Flow::of(Kind::Shared, Step::Provide));
}

/// A claim that is deleted before the operator is back leaves nothing.
pub fn killed_before_its_claim_was_deleted<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Tags], Flow::of(Kind::Named, Step::Abandon));
}

/// The same, with a bucket that exists, which stays.
pub fn killed_before_its_claim_of_an_existing_bucket_was_deleted<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Brownfield, Ability::Inventory], Flow::of(Kind::Brownfield, Step::Abandon));
}

/// A deleted claim no longer exists, nor do its bucket and user.
pub fn killed_while_a_bucket_is_deleted<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield], Flow::of(Kind::Generated, Step::Remove));
}

/// The same for a claim that chose its bucket's name.
pub fn killed_while_a_named_bucket_is_deleted<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Tags], Flow::of(Kind::Named, Step::Remove));
}

/// A deleted claim for an existing bucket no longer exists, and the bucket stays.
pub fn killed_while_access_is_revoked<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Brownfield, Ability::Inventory], Flow::of(Kind::Brownfield, Step::Remove));
}

/// A deleted claim for the bucket of another claim no longer exists, and the bucket stays.
pub fn killed_while_access_to_a_shared_bucket_is_revoked<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &SHARED, Flow::of(Kind::Shared, Step::Remove));
}

/// A deleted claim of a class with `Retain` no longer exists, and its bucket stays.
pub fn killed_while_a_retained_claim_is_deleted<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Inventory], Flow::of(Kind::Retain, Step::Remove));
}

/// A deleted Secret is recreated, and there is one key.
pub fn killed_while_a_secret_is_restored<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield], Flow::of(Kind::Generated, Step::Repair));
}

/// Keys are replaced, and one is left.
pub fn killed_while_keys_are_rotated<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Rotation], Flow::of(Kind::Generated, Step::Rotate));
}

/// A claim whose operator was killed once before is bound, with one key.
pub fn killed_for_the_second_time<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield], Flow::of(Kind::Generated, Step::Recover));
}

/// A restored claim adopts its bucket and user.
pub fn killed_while_a_restored_claim_is_adopted<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield], Flow::of(Kind::Generated, Step::Adopt));
}

/// A restored claim for a bucket that exists gets new keys, because its Secret was not in the backup.
pub fn killed_while_a_restored_claim_without_its_secret_is_adopted<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Brownfield, Ability::Inventory], Flow::of(Kind::Brownfield, Step::Adopt));
}

/// Bucket and user of a claim that was deleted by force are deleted when an admin sets the annotation.
pub fn killed_while_an_orphan_is_removed<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Inventory], Flow::of(Kind::Generated, Step::RemoveOrphan));
}

/// A deleted claim of a class with `onDelete: ifEmpty` no longer exists; its bucket, which is not empty, and its
/// ObjectBucket stay.
pub fn killed_while_a_claim_of_a_full_bucket_is_deleted<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &KEPT, Flow::of(Kind::IfEmpty, Step::Remove));
}

/// A deleted claim of a class with `onDelete: after:1h` no longer exists; its bucket and its ObjectBucket stay.
pub fn killed_while_a_deletion_is_scheduled<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &KEPT, Flow::of(Kind::Later, Step::Remove));
}

/// At the scheduled time the bucket of a deleted claim is deleted with its ObjectBucket.
pub fn killed_while_a_scheduled_deletion_runs<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &KEPT, Flow::of(Kind::Later, Step::DeleteLater));
}

/// A claim that is created again gets its bucket back, with new keys.
pub fn killed_while_a_deletion_is_undone<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &KEPT, Flow::of(Kind::Later, Step::Undo));
}

/// Bucket and ObjectBucket of a claim that was deleted without the operator stay.
pub fn killed_while_a_vanished_claim_loses_its_access<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &KEPT, Flow::of(Kind::Generated, Step::Vanish));
}

/// A claim that a snapshot of etcd has restored to before it was bound is deleted, and the content of its bucket is not.
pub fn killed_while_a_claim_that_was_set_back_is_deleted<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &KEPT, Flow::of(Kind::Generated, Step::SetBack));
}

/// What is needed to inspect a bucket that outlives its claim.
const KEPT: [Ability; 3] = [Ability::Greenfield, Ability::Inventory, Ability::Apps];

/// A claim whose ObjectBucket has the annotation `forget` is deleted; its bucket and user are not.
pub fn killed_while_a_forgotten_claim_is_deleted<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Inventory], Flow::of(Kind::Generated, Step::Forget));
}
