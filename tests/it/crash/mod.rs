//! The operator is killed in every world that its calls can leave behind, and started again.
//!
//! The calls of a flow are found by a run in which nothing happens, so that a call that is new in the source
//! is covered without anybody adding it here. Then for each of them that changes something: the operator, the
//! real one, is killed with SIGKILL when the server has done what was asked and has not answered yet, and for the
//! first also when the call is about to reach the server (`point` says why not for all). After a restart the claim has
//! to come to where it would have come, and in the end nothing is doubled, left behind, or touched that is somebody
//! else's.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod.rs` | the tests, and which flows each has |
//! | `flow` | a kind of claim, and what happens to it |
//! | `matrix` | finds the crash points of a flow and runs them all |
//! | `point` | one moment of one call |
//! | `scene` | what a flow plays in, and what must be true of it |

mod flow;
mod matrix;
mod point;
mod scene;

use std::time::Duration;

use rstest::rstest;

use crate::support::proxy::Strictness;
use flow::{Act, Flow, Kind};
use matrix::crash_everywhere;

/// An AWS that is in no hurry, so that an operator that comes back at once finds it behind.
const SLOW: Strictness = slow(2);
/// Slower, for claims that are deleted at once.
const SLOWER: Strictness = slow(5);

/// What is shown lags no more than what is valid: a user whose key works is seen.
const fn slow(seconds: u64) -> Strictness {
    let time = Duration::from_secs(seconds);
    Strictness { key_delay: time, lag: time, name_delay: time }
}

#[rstest]
#[case::generated(Flow::of(Kind::Generated, Act::Provide))]
#[case::named(Flow::of(Kind::Named, Act::Provide))]
#[case::brownfield(Flow::of(Kind::Brownfield, Act::Provide))]
#[case::retain(Flow::of(Kind::Retain, Act::Provide))]
#[case::shared_keys(Flow::of(Kind::SharedKeys, Act::Provide))]
#[case::slow_aws(Flow::of(Kind::Generated, Act::Provide).with(SLOW))]
#[tokio::test]
async fn a_claim_is_bound_wherever_the_operator_was_killed(#[case] flow: Flow) {
    crash_everywhere(flow).await;
}

#[rstest]
#[case::named(Flow::of(Kind::Named, Act::Abandon))]
#[case::brownfield(Flow::of(Kind::Brownfield, Act::Abandon))]
#[case::slow_aws(Flow::of(Kind::Generated, Act::Abandon).with(SLOWER))]
#[tokio::test]
async fn a_claim_deleted_after_a_crash_leaves_nothing_wherever_the_operator_was_killed(#[case] flow: Flow) {
    crash_everywhere(flow).await;
}

#[rstest]
#[case::generated(Flow::of(Kind::Generated, Act::Remove))]
#[case::named(Flow::of(Kind::Named, Act::Remove))]
#[case::brownfield(Flow::of(Kind::Brownfield, Act::Remove))]
#[case::retain(Flow::of(Kind::Retain, Act::Remove))]
#[case::shared_keys(Flow::of(Kind::SharedKeys, Act::Remove))]
#[tokio::test]
async fn a_deleted_claim_leaves_nothing_wherever_the_operator_was_killed(#[case] flow: Flow) {
    crash_everywhere(flow).await;
}

#[rstest]
#[case::generated(Flow::of(Kind::Generated, Act::Repair))]
#[case::slow_aws(Flow::of(Kind::Generated, Act::Repair).with(SLOW))]
#[tokio::test]
async fn a_deleted_secret_comes_back_with_one_key_wherever_the_operator_was_killed(#[case] flow: Flow) {
    crash_everywhere(flow).await;
}

#[tokio::test]
async fn keys_are_replaced_and_one_is_left_wherever_the_operator_was_killed() {
    crash_everywhere(Flow::of(Kind::Generated, Act::Rotate)).await;
}

#[tokio::test]
async fn a_claim_is_bound_wherever_the_operator_was_killed_for_the_second_time() {
    crash_everywhere(Flow::of(Kind::Generated, Act::Recover)).await;
}

#[tokio::test]
async fn a_claim_deleted_before_it_was_bound_leaves_nothing_wherever_the_operator_was_killed() {
    crash_everywhere(Flow::of(Kind::Named, Act::Withdraw).with(SLOWER)).await;
}

#[tokio::test]
async fn a_claim_edited_before_it_was_bound_has_one_bucket_wherever_the_operator_was_killed() {
    crash_everywhere(Flow::of(Kind::Named, Act::Edit)).await;
}

#[rstest]
#[case::with_its_secret(Flow::of(Kind::Generated, Act::Adopt))]
#[case::brownfield_without_its_secret(Flow::of(Kind::Brownfield, Act::Adopt))]
#[tokio::test]
async fn a_restored_claim_goes_on_with_what_it_had_wherever_the_operator_was_killed(#[case] flow: Flow) {
    crash_everywhere(flow).await;
}

#[tokio::test]
async fn a_claim_whose_record_is_to_be_forgotten_takes_nothing_along_wherever_the_operator_was_killed() {
    crash_everywhere(Flow::of(Kind::Generated, Act::Forget)).await;
}

#[tokio::test]
async fn an_orphan_leaves_nothing_at_an_admins_word_wherever_the_operator_was_killed() {
    crash_everywhere(Flow::of(Kind::Generated, Act::RemoveOrphan)).await;
}

/// Killed at the calls to the store. A bucket with a name that its claim chose is left out: between its creation and its
/// tags, which SeaweedFS takes in a call of their own, nothing tells it from somebody else's.
#[rstest]
#[case::generated(Flow::of(Kind::Generated, Act::Provide))]
#[case::brownfield(Flow::of(Kind::Brownfield, Act::Provide))]
#[case::abandoned(Flow::of(Kind::Generated, Act::Abandon))]
#[case::removed(Flow::of(Kind::Generated, Act::Remove))]
#[case::retained(Flow::of(Kind::Retain, Act::Remove))]
#[case::keys_rotated(Flow::of(Kind::Generated, Act::Rotate))]
#[case::secret_deleted(Flow::of(Kind::Generated, Act::Repair))]
#[case::adopted(Flow::of(Kind::Generated, Act::Adopt))]
#[case::orphan_removed(Flow::of(Kind::Generated, Act::RemoveOrphan))]
#[tokio::test]
async fn nothing_is_doubled_or_left_on_seaweedfs_wherever_the_operator_was_killed(#[case] flow: Flow) {
    crash_everywhere(flow.on_seaweedfs()).await;
}
