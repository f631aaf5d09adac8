//! The operator is killed at every call that changes something, and started again; see [`crash_everywhere`].

use super::{block_on, has};
use crate::backend::{Ability, Backend};
use crate::crash::{Act, Flow, Kind, Pace, crash_everywhere};

fn run<B: Backend>(make: &impl AsyncFn() -> B, needs: &[Ability], flow: Flow) {
    block_on(async {
        if has(&make().await, &[needs, &[Ability::Persistence]].concat()) {
            crash_everywhere(flow, Pace::AtOnce, &async |_| make().await).await;
        }
    });
}

/// A submitted claim is bound.
pub fn killed_while_a_bucket_is_created<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield], Flow::of(Kind::Generated, Act::Provide));
}

/// A submitted claim of a class that retains is bound.
pub fn killed_while_a_retained_bucket_is_created<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Inventory], Flow::of(Kind::Retain, Act::Provide));
}

/// A submitted claim that chose its bucket's name is bound.
pub fn killed_while_a_named_bucket_is_created<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Tags], Flow::of(Kind::Named, Act::Provide));
}

/// A submitted claim for a bucket that exists is bound.
pub fn killed_while_access_is_given<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Brownfield, Ability::Inventory], Flow::of(Kind::Brownfield, Act::Provide));
}

/// A claim that is deleted before the operator is back leaves nothing.
pub fn killed_before_its_claim_was_deleted<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Tags], Flow::of(Kind::Named, Act::Abandon));
}

/// The same, with a bucket that exists, which stays.
pub fn killed_before_its_claim_of_an_existing_bucket_was_deleted<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Brownfield, Ability::Inventory], Flow::of(Kind::Brownfield, Act::Abandon));
}

/// A deleted claim goes, with all that it had.
pub fn killed_while_a_bucket_is_deleted<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield], Flow::of(Kind::Generated, Act::Remove));
}

/// A deleted claim that chose its bucket's name goes, with all that it had.
pub fn killed_while_a_named_bucket_is_deleted<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Tags], Flow::of(Kind::Named, Act::Remove));
}

/// A deleted claim for a bucket that exists goes, and the bucket stays.
pub fn killed_while_access_is_taken<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Brownfield, Ability::Inventory], Flow::of(Kind::Brownfield, Act::Remove));
}

/// A deleted claim whose class retains goes, and its bucket stays.
pub fn killed_while_a_retained_claim_is_deleted<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Inventory], Flow::of(Kind::Retain, Act::Remove));
}

/// A deleted Secret comes back, with one key.
pub fn killed_while_a_secret_is_restored<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield], Flow::of(Kind::Generated, Act::Repair));
}

/// Keys are replaced, and one is left.
pub fn killed_while_keys_are_rotated<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Rotation], Flow::of(Kind::Generated, Act::Rotate));
}

/// A claim that met a kill before is bound, with one key.
pub fn killed_for_the_second_time<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield], Flow::of(Kind::Generated, Act::Recover));
}

/// A restored claim goes on with what it had.
pub fn killed_while_a_restored_claim_is_adopted<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield], Flow::of(Kind::Generated, Act::Adopt));
}

/// A restored claim for a bucket that exists gets new keys, for its Secret was not in the backup.
pub fn killed_while_a_restored_claim_without_its_secret_is_adopted<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Brownfield, Ability::Inventory], Flow::of(Kind::Brownfield, Act::Adopt));
}

/// What a claim left that was forced out goes at an admin's word.
pub fn killed_while_an_orphan_is_removed<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Inventory], Flow::of(Kind::Generated, Act::RemoveOrphan));
}

/// A deleted claim whose class keeps a bucket that is not empty goes, and the bucket stays with its record.
pub fn killed_while_a_claim_of_a_full_bucket_is_deleted<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &KEPT, Flow::of(Kind::IfEmpty, Act::Remove));
}

/// A deleted claim whose bucket is deleted later goes, and the bucket stays with its record.
pub fn killed_while_a_deletion_is_scheduled<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &KEPT, Flow::of(Kind::Later, Act::Remove));
}

/// When its time has come, the bucket of a deleted claim goes with its record.
pub fn killed_while_a_scheduled_deletion_is_done<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &KEPT, Flow::of(Kind::Later, Act::DeleteLater));
}

/// A claim that is created again has its bucket back, with new keys.
pub fn killed_while_a_deletion_is_undone<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &KEPT, Flow::of(Kind::Later, Act::Undo));
}

/// Of a claim that goes without the operator, bucket and record stay.
pub fn killed_while_a_vanished_claim_loses_its_access<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &KEPT, Flow::of(Kind::Generated, Act::Vanish));
}

/// A claim that a snapshot has set back to before it was bound takes no content along when it is deleted.
pub fn killed_while_a_claim_that_was_set_back_is_deleted<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &KEPT, Flow::of(Kind::Generated, Act::SetBack));
}

/// What has to be seen of a bucket that outlives its claim.
const KEPT: [Ability; 3] = [Ability::Greenfield, Ability::Inventory, Ability::Apps];

/// A claim whose record an admin has forgotten takes nothing along.
pub fn killed_while_a_forgotten_claim_is_deleted<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Inventory], Flow::of(Kind::Generated, Act::Forget));
}
