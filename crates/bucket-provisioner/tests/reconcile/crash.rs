//! The operator is stopped before and after each call of a flow, and another one starts.

use std::time::Duration;

use rstest::rstest;
use tokio::time::timeout;

use crate::calls::{Calls, Nth, Verdict, at};
use crate::flow::{Flow, Kind, Step};

/// How long the calls of a flow take in which none fails.
const ALL_CALLS: Duration = Duration::from_secs(60);

/// The calls of a flow in which nothing happens, and where the operator is stopped: before the first that changes something
/// and after each. Before a later one, all is as after the one before.
async fn stops(flow: Flow) -> Vec<(Nth, Verdict)> {
    // The first operator of a claim that is abandoned creates all for it.
    let flow = if flow.step == Step::Abandon { Flow { step: Step::Provide, ..flow } } else { flow };
    let (world, calls) = (flow.world(), Calls::default());
    let _operator = flow.begin(&world, &calls, |_| Verdict::Pass).await;
    flow.end(&world).await;
    let changes: Vec<_> = calls.all().into_iter().filter(Nth::changes_something).collect();
    flow.assert_well(&world, true).await;
    let first = changes.first().cloned().map(|call| (call, Verdict::StopBefore));
    first.into_iter().chain(changes.into_iter().map(|call| (call, Verdict::StopAfter))).collect()
}

/// Stops an operator at a call, and has another one finish. Returns whether the call was made.
async fn survives(flow: Flow, stop: (Nth, Verdict)) -> bool {
    let (world, calls) = (flow.world(), Calls::default());
    let operator = flow.begin(&world, &calls, at(vec![stop])).await;
    let is_stopped = timeout(ALL_CALLS, calls.stopped()).await.is_ok();
    drop(operator);
    if flow.has_one_claim() {
        world.assert_nothing_forgotten();
    }
    let was_published = world.is_published();
    flow.meanwhile(&world);
    let _operator = world.start(&Calls::default());
    flow.end(&world).await;
    flow.assert_well(&world, was_published).await;
    is_stopped
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn all_is_well_wherever_the_operator_was_stopped(
    #[values(Kind::Generated, Kind::Named, Kind::Brownfield, Kind::Retain, Kind::IfEmpty)] kind: Kind,
    #[values(Step::Provide, Step::Abandon, Step::Remove, Step::Repair, Step::Rotate)] step: Step,
) {
    all_is_well(Flow { kind, step }).await;
}

/// What admins decide, and what becomes of buckets that outlive their claims.
#[rstest]
#[case::edited(Kind::Named, Step::Edit)]
#[case::adopted(Kind::Generated, Step::Adopt)]
#[case::adopted_brownfield(Kind::Brownfield, Step::Adopt)]
#[case::orphan_removed(Kind::Generated, Step::RemoveOrphan)]
#[case::forgotten(Kind::Generated, Step::Forget)]
#[case::vanished(Kind::Generated, Step::Vanish)]
#[case::scheduled(Kind::Later, Step::Remove)]
#[case::deleted_later(Kind::Later, Step::DeleteLater)]
#[case::undone(Kind::Later, Step::Undo)]
#[tokio::test(start_paused = true)]
async fn decisions_hold_wherever_the_operator_was_stopped(#[case] kind: Kind, #[case] step: Step) {
    all_is_well(Flow { kind, step }).await;
}

async fn all_is_well(flow: Flow) {
    for (call, verdict) in stops(flow).await {
        println!("{flow:?}, {verdict:?} {call}");
        let is_stopped = survives(flow, (call, verdict)).await;
        assert!(is_stopped, "this call is not made in each run");
    }
}
