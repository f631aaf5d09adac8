//! The operator is killed at every single call that it makes, and started again.
//!
//! The calls of a flow are found by a run in which nothing happens, so that a call that is new in the source
//! is covered without anybody adding it here. Then for each of them, in worlds of their own: the operator, the
//! real one, is killed with SIGKILL when the call is about to reach the server, and once more when the server has
//! done what was asked and has not answered yet. After a restart the claim has to come to where it would have
//! come, and in the end nothing is doubled, left behind, or touched that is somebody else's.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod.rs` | the flows |
//! | `matrix` | finds the crash points of a flow and runs them all |
//! | `point` | one moment of one call |
//! | `scene` | what a flow plays in, and what must be true of it |

mod matrix;
mod point;
mod scene;

use rstest::rstest;

use matrix::crash_everywhere;
use scene::{Act, Kind};

#[rstest]
#[case::generated(Kind::Generated)]
#[case::named(Kind::Named)]
#[case::brownfield(Kind::Brownfield)]
#[case::retain(Kind::Retain)]
#[case::shared_keys(Kind::SharedKeys)]
#[tokio::test]
async fn a_claim_is_bound_wherever_the_operator_was_killed(#[case] kind: Kind) {
    crash_everywhere(kind, Act::Provide).await;
}

#[rstest]
#[case::generated(Kind::Generated)]
#[case::named(Kind::Named)]
#[case::brownfield(Kind::Brownfield)]
#[case::retain(Kind::Retain)]
#[case::shared_keys(Kind::SharedKeys)]
#[tokio::test]
async fn a_deleted_claim_leaves_nothing_wherever_the_operator_was_killed(#[case] kind: Kind) {
    crash_everywhere(kind, Act::Remove).await;
}

#[rstest]
#[case::generated(Kind::Generated)]
#[case::brownfield(Kind::Brownfield)]
#[tokio::test]
async fn a_deleted_secret_comes_back_with_one_key_wherever_the_operator_was_killed(#[case] kind: Kind) {
    crash_everywhere(kind, Act::Repair).await;
}
