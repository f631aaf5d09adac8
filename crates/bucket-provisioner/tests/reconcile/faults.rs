//! Each call of a flow fails once, in each way; and pairs of calls.

use std::time::Duration;

use rstest::rstest;

use crate::calls::{EXPIRED, Nth, Verdict};
use crate::flow::{Flow, Kind, Step};
use crate::run::Verdicts;

/// How a call to Kubernetes or to the store can fail. For a read, a lost answer is none; and nothing depends on events.
fn faults_of(call: &Nth) -> Vec<Verdict> {
    use Verdict::{Answer, Hang, LoseAnswer, Panic};
    let is = |verb: &str| call.name.starts_with(verb);
    if call.is_event() {
        return vec![Answer(500), Hang];
    }
    let mut faults = vec![Answer(500), Answer(403), Hang];
    if is("list ") || is("watch ") {
        faults.push(EXPIRED);
    }
    if is("store ") {
        faults.push(Panic);
    }
    if call.changes_something() {
        faults.extend([LoseAnswer, Answer(409)]);
    }
    // The namespace is being deleted, or the kind does not exist yet.
    if is("create ") {
        faults.push(Answer(404));
    }
    faults
}

/// How long a flow may take with this fault: one that somebody must correct is retried later, and a call without an answer
/// is given up.
fn limit(fault: Verdict) -> Duration {
    Duration::from_secs(match fault {
        Verdict::Hang => 150,
        Verdict::Answer(403 | 404 | 409) => 30,
        _ => 15,
    })
}

async fn meet(flow: Flow, faults: Verdicts, calls: usize, limit: Duration) {
    println!("{flow:?}, {faults:?}");
    let run = flow.survives_with(&[], faults, Duration::ZERO).await;
    println!("took {:?}, {} calls", run.took, run.calls.len());
    assert!(run.took <= limit, "{:?}", run.took);
    assert!(run.calls.len() <= 4 * calls, "{} calls", run.calls.len());
}

#[rstest]
#[case::created(Kind::Generated, Step::Provide)]
#[case::deleted(Kind::Generated, Step::Remove)]
#[case::repaired(Kind::Named, Step::Repair)]
#[case::rotated(Kind::Named, Step::Rotate)]
#[case::limited(Kind::Named, Step::Limit)]
#[case::painted(Kind::Named, Step::Paint)]
#[case::shared(Kind::Shared, Step::Provide)]
#[tokio::test(start_paused = true)]
async fn each_call_may_fail_in_every_way(#[case] kind: Kind, #[case] step: Step) {
    let flow = Flow { kind, step };
    let calls = flow.undisturbed().await.calls;
    for call in &calls {
        for fault in faults_of(call) {
            meet(flow, vec![(call.clone(), fault)], calls.len(), limit(fault)).await;
        }
    }
}

#[rstest]
#[case::granted(Kind::Brownfield, Step::Provide)]
#[case::left(Kind::Shared, Step::Remove)]
#[case::kept(Kind::IfEmpty, Step::Remove)]
#[case::retained(Kind::Retain, Step::Remove)]
#[case::edited(Kind::Named, Step::Edit)]
#[case::adopted(Kind::Generated, Step::Adopt)]
#[case::orphan_removed(Kind::Generated, Step::RemoveOrphan)]
#[case::forgotten(Kind::Generated, Step::Forget)]
#[case::vanished(Kind::Generated, Step::Vanish)]
#[case::deleted_later(Kind::Later, Step::DeleteLater)]
#[case::undone(Kind::Later, Step::Undo)]
#[tokio::test(start_paused = true)]
async fn each_change_may_fail_or_lose_its_answer(#[case] kind: Kind, #[case] step: Step) {
    let flow = Flow { kind, step };
    let calls = flow.undisturbed().await.calls;
    for call in calls.iter().filter(|call| call.changes_something() && !call.is_event()) {
        for fault in [Verdict::Answer(500), Verdict::Answer(409), Verdict::LoseAnswer] {
            meet(flow, vec![(call.clone(), fault)], calls.len(), limit(fault)).await;
        }
    }
}

/// The answers of two changes are lost, or that of one, and the operator is stopped at the other.
#[rstest]
#[case::created(Kind::Generated, Step::Provide)]
#[case::deleted(Kind::Generated, Step::Remove)]
#[tokio::test(start_paused = true)]
async fn two_changes_may_fail(#[case] kind: Kind, #[case] step: Step) {
    let flow = Flow { kind, step };
    let calls = flow.undisturbed().await.calls;
    let changes: Vec<_> = calls.iter().filter(|call| call.changes_something()).cloned().collect();
    for (at, first) in changes.iter().enumerate() {
        for second in changes.iter().skip(at + 1) {
            let lost = (first.clone(), Verdict::LoseAnswer);
            let both = vec![lost.clone(), (second.clone(), Verdict::LoseAnswer)];
            meet(flow, both, calls.len(), 2 * limit(Verdict::LoseAnswer)).await;
            println!("{flow:?}, {lost:?}, stopped after {second}");
            flow.survives(&[vec![lost, (second.clone(), Verdict::StopAfter)]], Duration::ZERO).await;
        }
    }
}
