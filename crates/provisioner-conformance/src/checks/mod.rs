//! What is checked. Each function is one check; [`conformance_tests!`](crate::conformance_tests) makes a test of each.

pub mod adoption;
pub mod crash;
pub mod creation;
pub mod doctor;
pub mod faults;
pub mod foreign;
pub mod input;
pub mod keys;
pub mod lifecycle;
pub mod removal;
pub mod repair;
pub mod restart;
pub mod secrecy;
pub mod stale;
mod steps;

use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;

use super::backend::{Ability, Backend};
use super::base::report;
use super::report::note_claims;
use super::stage::Stage;

/// Runs a check on a stage of its own, which is cleared afterwards; skips it, and reports this, if the backend
/// lacks an ability that it needs.
fn run<B: Backend>(make: &impl AsyncFn() -> B, needs: &[Ability], check: impl AsyncFnOnce(&Stage<B>)) {
    block_on(run_on_stage(make, needs, check));
}

async fn run_on_stage<B: Backend>(make: &impl AsyncFn() -> B, needs: &[Ability], check: impl AsyncFnOnce(&Stage<B>)) {
    let backend = make().await;
    if !has(&backend, needs) {
        return;
    }
    let stage = Stage::set(backend).await;
    let outcome = AssertUnwindSafe(check(&stage)).catch_unwind().await;
    if outcome.is_err() {
        note_claims(&stage.world).await;
    }
    let cleared = AssertUnwindSafe(stage.clear()).catch_unwind().await;
    if let Err(panic) = outcome.and(cleared) {
        std::panic::resume_unwind(panic);
    }
}

/// Whether the backend has the abilities; if not, reports which it lacks.
fn has(backend: &impl Backend, needs: &[Ability]) -> bool {
    let abilities = backend.abilities();
    let lacking: Vec<_> = needs.iter().filter(|need| !abilities.contains(need)).map(ToString::to_string).collect();
    if !lacking.is_empty() {
        report(&format!("skipped, for want of {}", lacking.join(", ")));
    }
    lacking.is_empty()
}

fn block_on(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(work);
}
