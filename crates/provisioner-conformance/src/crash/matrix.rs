//! Finds the crash points of a flow and runs them all.

use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::time::Instant;

use futures::FutureExt as _;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::flow::{Flow, Step};
use super::point::{Point, recorded};
use super::scene::Scene;
use crate::backend::{Ability, Backend};
use crate::base::patience;
use crate::program::{Log, Running};
use crate::sample::sampled;
use crate::stage::{Stage, has};
use crate::world::panic_text;

/// How many runs are busy at the same time, of all flows together: more of them only make each other slow. A run is busy
/// until its second operator has started; that one mostly waits, for its second check of the store.
static BUSY: Semaphore = Semaphore::const_new(6);
/// How many scenes a flow has. In each of them one run follows another.
const SCENES: usize = 8;

/// How soon a store shows what was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// At once.
    AtOnce,
    /// After a while. An operator that is killed later finds another store, and the number of polls varies; so the points
    /// are those of a store that shows all at once.
    Slow,
}

/// Kills the operator at every point of a flow. `make` makes a backend of this pace.
pub async fn crash_everywhere<B: Backend>(flow: Flow, pace: Pace, make: &impl AsyncFn(Pace) -> B) {
    let began = Instant::now();
    let backend = make(Pace::AtOnce).await;
    let uses_http = has(&backend, Ability::Http);
    let mut points = crash_points(flow.undisturbed(), pace, backend).await;
    let changes = points.iter().filter(|point| point.is_after()).count();
    assert!(changes > 0, "{flow}: the calls were not seen: {points:#?}");
    let at_store = points.iter().filter(|point| point.is_at_store()).count();
    if matches!(flow.step, Step::Provide) {
        assert!(
            at_store > 0 || !uses_http,
            "{flow}: no call came to the store through its proxy: do classes have the proxy's URL?"
        );
    }
    if matches!(flow.step, Step::Vanish) {
        // Whether the operator still tries to add the finalizer to a claim that is being deleted is a matter of timing.
        points.retain(|point| !point.is_on("objectbucketclaims"));
    }
    if flow.at_store_only {
        points.retain(Point::is_at_store);
        assert!(points.len() >= 2, "{flow}: the calls to the store were not seen: {points:#?}");
    }
    let all = points.len();
    let points = sampled(&flow.to_string(), points);
    // A slow store remembers names and keys for a while: there, every run has a scene of its own.
    let scenes = if pace == Pace::Slow { points.len() } else { SCENES.min(points.len()) };
    let left = Mutex::new(points.iter());
    let make = &async || make(pace).await;
    let runs = (0..scenes).map(|_| crash_at_each(flow, make, &left));
    let failures = futures::future::join_all(runs).await.concat();
    let (failed, tried) = (failures.len(), points.len());
    println!("{flow}: {tried} of {all} crash points, {} s", began.elapsed().as_secs());
    assert!(failures.is_empty(), "{failed} of {tried} crash points of {flow}:\n{}", failures.join("\n\n"));
}

/// Runs points in one scene until none is left; returns the failures. After a failure what is left may be anything: it is
/// cleared away, and the next point has a new scene.
async fn crash_at_each<B: Backend>(
    flow: Flow,
    make: &impl AsyncFn() -> B,
    left: &Mutex<std::slice::Iter<'_, Point>>,
) -> Vec<String> {
    let (mut failures, mut scene) = (Vec::new(), None);
    loop {
        let Some(point) = left.lock().unwrap().next() else { break };
        let turn = BUSY.acquire().await.unwrap();
        let mut there = match scene.take() {
            Some(scene) => scene,
            None => Scene::on(Stage::set(make().await).await, flow),
        };
        match crash_at(&mut there, point, turn).await {
            Ok(()) => scene = Some(there),
            Err(failure) => {
                failures.push(format!("{flow}, {point}: {failure}"));
                there.clear().await;
            }
        }
    }
    if let Some(scene) = scene {
        scene.clear().await;
    }
    failures
}

/// A run in which nothing happens; the points of its calls, for a store of this pace.
async fn crash_points<B: Backend>(flow: Flow, pace: Pace, backend: B) -> Vec<Point> {
    let _turn = BUSY.acquire().await.unwrap();
    let mut scene = Scene::on(Stage::set(backend).await, flow);
    let run = AssertUnwindSafe(async {
        scene.set().await;
        let operator = scene.prepare().await;
        forget_calls(&scene.stage);
        scene.begin(operator.as_ref()).await;
        let mut operator = operator.unwrap_or_else(|| scene.stage.start());
        scene.wait_for_end().await;
        operator.terminate();
        operator.ended(patience()).await;
        recorded(&scene.stage, pace == Pace::AtOnce)
    });
    let points = run.catch_unwind().await;
    scene.clear().await;
    points.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Runs one point in a scene, and leaves that as it was; the error has the failure, the calls and the logs.
async fn crash_at<B: Backend>(scene: &mut Scene<B>, point: &Point, turn: SemaphorePermit<'_>) -> Result<(), String> {
    let scenario = Scenario::default();
    let run = AssertUnwindSafe(survive(scene, point, turn, &scenario)).catch_unwind().await;
    run.map_err(|panic| format!("{}\n{}", panic_text(&*panic), scenario.report()))
}

async fn survive<B: Backend>(scene: &mut Scene<B>, point: &Point, turn: SemaphorePermit<'_>, scenario: &Scenario) {
    scene.set().await;
    let scene = &*scene;
    let stage = &scene.stage;
    let operator = scene.prepare().await;
    forget_calls(stage);
    let gate = point.arm(stage);
    scene.begin(operator.as_ref()).await;
    let operator = operator.unwrap_or_else(|| stage.start());
    scenario.follow("the operator that was killed", &operator);
    let came = gate.reached().await;
    scenario.note_calls("calls until it was killed", stage);
    assert!(came, "the call did not come");
    operator.kill().await;

    stage.leave_alone();
    forget_calls(stage);
    scene.meanwhile().await;
    let operator = stage.start();
    scenario.follow("the operator after it", &operator);
    drop(turn);
    let ending = AssertUnwindSafe(async {
        stage.watched().await;
        scene.wait_for().await;
        scene.assert_well().await
    });
    let ended = ending.catch_unwind().await;
    scenario.note_calls("calls after it", stage);
    let left = ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    operator.kill().await;
    scene.reset(left).await;
}

fn forget_calls<B: Backend>(stage: &Stage<B>) {
    stage.world.kubernetes.clear();
    stage.forget_store_calls();
}

/// The details that are reported of a run that failed.
#[derive(Default)]
struct Scenario {
    logs: Mutex<Vec<(&'static str, Log)>>,
    calls: Mutex<Vec<String>>,
}

impl Scenario {
    fn follow(&self, what: &'static str, operator: &Running) {
        self.logs.lock().unwrap().push((what, operator.log_so_far()));
    }

    fn note_calls<B: Backend>(&self, what: &str, stage: &Stage<B>) {
        let to_store: Vec<_> = stage.store.iter().flat_map(|store| store.names()).collect();
        let calls = format!("{what}: {:#?}\n{to_store:#?}", stage.world.kubernetes.names());
        self.calls.lock().unwrap().push(calls);
    }

    fn report(&self) -> String {
        let logs = self.logs.lock().unwrap();
        let logs = logs.iter().map(|(what, log)| format!("log of {what}:\n{}", log.borrow().as_str()));
        logs.chain(self.calls.lock().unwrap().iter().cloned()).collect::<Vec<_>>().join("\n")
    }
}
