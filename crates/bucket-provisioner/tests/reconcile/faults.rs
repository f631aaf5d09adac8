//! Each call of a flow fails once, in each way; and pairs of them.

use rstest::rstest;
use tokio::time::Instant;

use crate::calls::{Calls, Nth, Verdict, at};
use crate::flow::{Flow, Kind, Step};

/// How a call to Kubernetes or to the store can fail.
fn faults_of(call: &Nth) -> Vec<Verdict> {
    use Verdict::{Answer, Hang, LoseAnswer, Panic};
    let is = |verb: &str| call.name.starts_with(verb);
    let mut faults = vec![Answer(500), Answer(403), LoseAnswer, Hang];
    if is("store ") {
        faults.push(Panic);
    } else if is("list ") || is("watch ") {
        faults.push(Answer(410));
    } else if call.changes_something() {
        faults.push(Answer(409));
    }
    // The namespace is being deleted, or the kind does not exist yet.
    if is("create ") {
        faults.push(Answer(404));
    }
    faults
}

/// The calls of a flow in which none fails.
async fn calls_of(flow: Flow) -> Vec<Nth> {
    let (world, calls) = (flow.world(), Calls::default());
    let _operator = flow.begin(&world, &calls, |_| Verdict::Pass).await;
    flow.end(&world).await;
    calls.all()
}

/// Has calls fail, and requires that the flow comes to its end.
async fn survives(flow: Flow, failing: Vec<(Nth, Verdict)>) -> usize {
    let (world, calls) = (flow.world(), Calls::default());
    let _operator = flow.begin(&world, &calls, at(failing)).await;
    flow.end(&world).await;
    let made = calls.names().len();
    flow.assert_well(&world, true).await;
    made
}

#[rstest]
#[case::created(Kind::Generated, Step::Provide)]
#[case::granted(Kind::Brownfield, Step::Provide)]
#[case::deleted(Kind::Generated, Step::Remove)]
#[case::kept(Kind::IfEmpty, Step::Remove)]
#[case::repaired(Kind::Named, Step::Repair)]
#[case::rotated(Kind::Named, Step::Rotate)]
#[tokio::test(start_paused = true)]
async fn each_call_may_fail_in_every_way(#[case] kind: Kind, #[case] step: Step) {
    let flow = Flow { kind, step };
    let calls = calls_of(flow).await;
    for call in &calls {
        for fault in faults_of(call) {
            print!("{flow:?}, {call}: {fault:?}");
            let began = Instant::now();
            let made = survives(flow, vec![(call.clone(), fault)]).await;
            println!(", {made} calls {:?}", began.elapsed());
            assert!(made <= 4 * calls.len(), "{made} calls");
        }
    }
}
