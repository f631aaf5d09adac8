//! The operator is stopped before and after each call of a flow, and another one starts.

use std::time::Duration;

use rstest::rstest;

use crate::calls::{Nth, Verdict};
use crate::flow::{Flow, Kind, Step};

/// Where an operator that makes these calls is stopped: before the first that changes something, and after each. Before a
/// later one, all is as after the one before.
fn stops(calls: Vec<Nth>) -> Vec<(Nth, Verdict)> {
    let changes: Vec<_> = calls.into_iter().filter(Nth::changes_something).collect();
    assert!(!changes.is_empty(), "there are such calls");
    let first = changes.first().cloned().map(|call| (call, Verdict::StopBefore));
    first.into_iter().chain(changes.into_iter().map(|call| (call, Verdict::StopAfter))).collect()
}

async fn stop_everywhere(flow: Flow, lag: Duration) {
    for stop in stops(flow.undisturbed().await.calls) {
        println!("{flow:?}, {stop:?}");
        flow.survives(&[vec![stop]], lag).await;
    }
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn all_is_well_wherever_the_operator_was_stopped(
    #[values(Kind::Generated, Kind::Named, Kind::Brownfield, Kind::Shared, Kind::Retain, Kind::IfEmpty)] kind: Kind,
    #[values(Step::Provide, Step::Abandon, Step::Remove)] step: Step,
) {
    stop_everywhere(Flow { kind, step }, Duration::ZERO).await;
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn there_is_one_key_wherever_the_operator_was_stopped(
    #[values(Kind::Generated, Kind::Brownfield, Kind::Shared)] kind: Kind,
    #[values(Step::Repair, Step::Rotate, Step::Limit)] step: Step,
) {
    stop_everywhere(Flow { kind, step }, Duration::ZERO).await;
}

/// What admins decide, and what becomes of buckets that outlive their claims.
#[rstest]
#[case::edited(Kind::Named, Step::Edit)]
#[case::adopted(Kind::Generated, Step::Adopt)]
#[case::adopted_brownfield(Kind::Brownfield, Step::Adopt)]
#[case::adopted_shared(Kind::Shared, Step::Adopt)]
#[case::painted(Kind::Generated, Step::Paint)]
#[case::orphan_removed(Kind::Generated, Step::RemoveOrphan)]
#[case::forgotten(Kind::Generated, Step::Forget)]
#[case::vanished(Kind::Generated, Step::Vanish)]
#[case::scheduled(Kind::Later, Step::Remove)]
#[case::deleted_later(Kind::Later, Step::DeleteLater)]
#[case::undone(Kind::Later, Step::Undo)]
#[tokio::test(start_paused = true)]
async fn decisions_hold_wherever_the_operator_was_stopped(#[case] kind: Kind, #[case] step: Step) {
    stop_everywhere(Flow { kind, step }, Duration::ZERO).await;
}

/// What the next operator lists is some seconds old, so it does not show what the one before has done.
#[rstest]
#[case::provided(Kind::Generated, Step::Provide)]
#[case::abandoned(Kind::Generated, Step::Abandon)]
#[case::removed(Kind::Generated, Step::Remove)]
#[case::kept(Kind::IfEmpty, Step::Remove)]
#[case::repaired(Kind::Generated, Step::Repair)]
#[case::rotated(Kind::Generated, Step::Rotate)]
#[case::limited(Kind::Generated, Step::Limit)]
#[case::shared(Kind::Shared, Step::Provide)]
#[case::shared_removed(Kind::Shared, Step::Remove)]
#[case::painted(Kind::Generated, Step::Paint)]
#[case::edited(Kind::Named, Step::Edit)]
#[case::adopted(Kind::Generated, Step::Adopt)]
#[case::undone(Kind::Later, Step::Undo)]
#[tokio::test(start_paused = true)]
async fn all_is_well_if_the_next_operator_sees_the_past(#[case] kind: Kind, #[case] step: Step) {
    stop_everywhere(Flow { kind, step }, Duration::from_secs(5)).await;
}

#[rstest]
#[case::provided(Kind::Generated, Step::Provide)]
#[case::removed(Kind::Generated, Step::Remove)]
#[tokio::test(start_paused = true)]
async fn all_is_well_wherever_two_operators_were_stopped(#[case] kind: Kind, #[case] step: Step) {
    let flow = Flow { kind, step };
    for first in stops(flow.undisturbed().await.calls) {
        let next = flow.survives(&[vec![first.clone()]], Duration::ZERO).await.calls;
        let changes = next.into_iter().filter(Nth::changes_something);
        for second in changes.map(|call| (call, Verdict::StopAfter)) {
            println!("{flow:?}, {first:?}, then {second:?}");
            flow.survives(&[vec![first.clone()], vec![second]], Duration::ZERO).await;
        }
    }
}
