//! The operator is killed at every call that changes something, and started again; see [`crash_everywhere`].

use super::{block_on, has};
use crate::conformance::backend::{Ability, Backend};
use crate::conformance::crash::{Act, Flow, Kind, Pace, crash_everywhere};

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

/// A claim whose record an admin has forgotten takes nothing along.
pub fn killed_while_a_forgotten_claim_is_deleted<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Inventory], Flow::of(Kind::Generated, Act::Forget));
}
