//! Finds the crash points of a flow and runs them all.

use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::time::Instant;

use futures::FutureExt as _;
use tokio::sync::Semaphore;

use super::flow::{Flow, StoreKind};
use super::point::{Point, recorded};
use super::scene::Scene;
use crate::support::operator::{Binary, Log};
use crate::support::{PATIENCE, World, panic_text};

/// How many runs are busy at the same time, of all flows together: more of them only make each other slow. A run is busy
/// until its second operator has started; that one mostly waits, for its second look at the store.
static BUSY: Semaphore = Semaphore::const_new(6);
/// How many scenes a flow has. In each of them one run follows another.
const SCENES: usize = 8;

/// Kills the operator at every point of a flow.
pub(super) async fn crash_everywhere(flow: Flow) {
    let began = Instant::now();
    let mut points = crash_points(flow.undisturbed(), flow.aws.is_none()).await;
    let changes = points.iter().filter(|point| point.is_after()).count();
    assert!(changes >= 5, "{flow}: the calls were not seen: {points:#?}");
    if flow.store == StoreKind::SeaweedFs {
        // Those to Kubernetes are the same with every store.
        points.retain(Point::is_at_store);
        assert!(points.len() >= 2, "{flow}: the calls to the store were not seen: {points:#?}");
    }
    // A slow AWS remembers names and keys for a while: there, every run has a scene of its own.
    let scenes = if flow.aws.is_some() { points.len() } else { SCENES };
    let left = Mutex::new(points.iter());
    let runs = (0..scenes).map(|_| crash_at_each(flow, &left));
    let failures = futures::future::join_all(runs).await.concat();
    println!("{flow}: {} crash points, {} s", points.len(), began.elapsed().as_secs());
    let (failed, all) = (failures.len(), points.len());
    assert!(failures.is_empty(), "{failed} of {all} crash points of {flow}:\n{}", failures.join("\n\n"));
}

/// Runs points in one scene until none is left; says what is wrong.
async fn crash_at_each(flow: Flow, left: &Mutex<std::slice::Iter<'_, Point>>) -> Vec<String> {
    let (mut failures, mut scene) = (Vec::new(), None);
    loop {
        let Some(point) = left.lock().unwrap().next() else { break };
        match crash_at(flow, point, scene.take()).await {
            Ok(again) => scene = Some(again),
            // What is left of it may be anything.
            Err(failure) => failures.push(format!("{flow}, {point}: {failure}")),
        }
    }
    if let Some(scene) = scene {
        scene.world.clear_away().await;
    }
    failures
}

/// A run in which nothing happens; the points of its calls, at an AWS that does all at once or takes its time.
async fn crash_points(flow: Flow, at_once: bool) -> Vec<Point> {
    let _turn = BUSY.acquire().await.unwrap();
    let scene = Scene::set(flow).await;
    let operator = scene.prepare().await;
    forget_calls(&scene.world);
    scene.begin().await;
    let mut operator = operator.unwrap_or_else(|| start_now(&scene.world));
    scene.wait_for_end().await;
    operator.terminate();
    operator.ended(PATIENCE).await;
    let points = recorded(&scene.world, at_once);
    scene.world.clear_away().await;
    points
}

/// Runs one point, in this scene or in a new one, and leaves the scene as it was; says what is wrong, with all that is
/// known.
async fn crash_at(flow: Flow, point: &Point, scene: Option<Scene>) -> Result<Scene, String> {
    let story = Story::default();
    let run = AssertUnwindSafe(survive(flow, point, scene, &story)).catch_unwind().await;
    run.map_err(|panic| format!("{}\n{}", panic_text(&*panic), story.tell()))
}

async fn survive(flow: Flow, point: &Point, scene: Option<Scene>, story: &Story) -> Scene {
    let turn = BUSY.acquire().await.unwrap();
    let scene = match scene {
        Some(scene) => scene,
        None => Scene::set(flow).await,
    };
    let world = &scene.world;
    let operator = scene.prepare().await;
    forget_calls(world);
    let gate = point.arm(world);
    scene.begin().await;
    let operator = operator.unwrap_or_else(|| start_now(world));
    story.follow("the operator that was killed", &operator);
    let came = gate.reached().await;
    story.note_calls("calls until it was killed", world);
    assert!(came, "the call did not come");
    operator.kill().await;

    world.kubernetes.leave_alone();
    world.aws.leave_alone();
    forget_calls(world);
    scene.meanwhile().await;
    let operator = start_now(world);
    story.follow("the operator after it", &operator);
    drop(turn);
    let ending = AssertUnwindSafe(async {
        scene.wait_for().await;
        scene.assert_well().await
    });
    let ended = ending.catch_unwind().await;
    story.note_calls("calls after it", world);
    let left = ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    operator.kill().await;
    scene.reset(left).await;
    scene
}

fn start_now(world: &World) -> Binary {
    Binary::start(world, &["-v=2"], &[])
}

fn forget_calls(world: &World) {
    world.kubernetes.clear();
    world.aws.clear();
}

/// What is told of a run that failed.
#[derive(Default)]
struct Story {
    logs: Mutex<Vec<(&'static str, Log)>>,
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
        let logs = logs.iter().map(|(what, log)| format!("log of {what}:\n{}", log.borrow().as_str()));
        logs.chain(self.calls.lock().unwrap().iter().cloned()).collect::<Vec<_>>().join("\n")
    }
}
