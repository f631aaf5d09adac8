//! Finds the crash points of a flow and runs them all.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use futures::{FutureExt as _, StreamExt as _};
use tokio::sync::Semaphore;

use super::point::{Point, recorded};
use super::scene::{Act, Kind, Scene};
use crate::support::World;
use crate::support::operator::Binary;

/// Runs at the same time, of all flows together. Each has an operator of its own; more of them than this only
/// make each other slow.
static AT_ONCE: Semaphore = Semaphore::const_new(6);

/// Kills the operator at every point of an act.
pub(super) async fn crash_everywhere(kind: Kind, act: Act) {
    let flow = format!("{act:?} {kind:?}");
    let began = Instant::now();
    let points = crash_points(kind, act).await;
    assert!(points.len() > 10, "{flow}: the calls were not seen: {points:#?}");
    let run = async |point: &Point| {
        let _turn = AT_ONCE.acquire().await.unwrap();
        crash_at(kind, act, point).await.err().map(|failure| format!("{flow}, {point}: {failure}"))
    };
    let runs = points.iter().map(run);
    let failures: Vec<String> = futures::stream::iter(runs)
        .buffer_unordered(points.len())
        .filter_map(|failure| async { failure })
        .collect()
        .await;
    println!("{flow}: {} crash points, {} s", points.len(), began.elapsed().as_secs());
    assert!(
        failures.is_empty(),
        "{} of {} crash points of {flow}:\n{}",
        failures.len(),
        points.len(),
        failures.join("\n\n")
    );
}

/// A run in which nothing happens; its calls.
async fn crash_points(kind: Kind, act: Act) -> Vec<Point> {
    let _turn = AT_ONCE.acquire().await.unwrap();
    let scene = Scene::set(kind).await;
    let mut operator = start(&scene.world).await;
    scene.prepare(act).await;
    forget_calls(&scene.world);
    scene.begin(act).await;
    scene.wait_for_end(act).await;
    operator.terminate();
    operator.ended(crate::support::PATIENCE).await;
    recorded(&scene.world)
}

/// Runs one point; says what is wrong, with all that is known.
async fn crash_at(kind: Kind, act: Act, point: &Point) -> Result<(), String> {
    let story = Story::default();
    let run = AssertUnwindSafe(survive(kind, act, point, &story)).catch_unwind().await;
    run.map_err(|panic| {
        let said = panic.downcast_ref::<String>().cloned();
        let said = said.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        format!("{}\n{}", said.unwrap_or_default(), story.tell())
    })
}

async fn survive(kind: Kind, act: Act, point: &Point, story: &Story) {
    let scene = Scene::set(kind).await;
    let world = &scene.world;
    let operator = start(world).await;
    story.follow("the operator that was killed", &operator);
    scene.prepare(act).await;
    forget_calls(world);
    let gate = point.arm(world);
    scene.begin(act).await;
    let came = gate.reached().await;
    story.note_calls("calls until it was killed", world);
    assert!(came, "the call did not come");
    operator.kill().await;

    world.kubernetes.leave_alone();
    world.aws.leave_alone();
    forget_calls(world);
    let operator = Binary::start(world, &["-v=2"], &[]);
    story.follow("the operator after it", &operator);
    let ending = AssertUnwindSafe(async {
        scene.wait_for(act).await;
        if act != Act::Remove {
            scene.assert_usable().await;
            scene.remove().await;
        }
        scene.assert_nothing_left().await;
    });
    let ended = ending.catch_unwind().await;
    story.note_calls("calls after it", world);
    if let Err(panic) = ended {
        std::panic::resume_unwind(panic);
    }
    scene.clear_away().await;
}

/// Starts an operator, and waits until it has begun to watch: what it calls from then on, it calls for a claim.
async fn start(world: &World) -> Binary {
    let operator = Binary::start(world, &["-v=2"], &[]);
    let watched = ["objectbucketclaims", "objectbuckets", "storageclasses", "secrets", "configmaps"];
    world
        .kubernetes
        .wait_until("all watches", |calls| {
            watched.iter().all(|resource| calls.iter().any(|call| call.name == format!("watch {resource}")))
        })
        .await;
    operator
}

fn forget_calls(world: &World) {
    world.kubernetes.clear();
    world.aws.clear();
}

/// What is told of a run that failed.
#[derive(Default)]
struct Story {
    logs: Mutex<Vec<(&'static str, Arc<Mutex<String>>)>>,
    calls: Mutex<Vec<String>>,
}

impl Story {
    fn follow(&self, what: &'static str, operator: &Binary) {
        self.logs.lock().unwrap().push((what, operator.log_so_far()));
    }

    fn note_calls(&self, what: &str, world: &World) {
        let calls = format!("{what}: {:#?}\n{:#?}", world.kubernetes.names(), world.aws.names());
        self.calls.lock().unwrap().push(calls);
    }

    fn tell(&self) -> String {
        let logs = self.logs.lock().unwrap();
        let logs = logs.iter().map(|(what, log)| format!("log of {what}:\n{}", log.lock().unwrap()));
        logs.chain(self.calls.lock().unwrap().iter().cloned()).collect::<Vec<_>>().join("\n")
    }
}
