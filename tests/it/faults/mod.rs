//! Every call of every flow, failed in every way. The calls are those of a clean run, so that a new one is
//! covered by itself. Whatever fails, the claim arrives, reports meanwhile what it waits for, costs a bounded number
//! of calls, and holds nobody up. (For the calls to AWS see `aws`, for those to Kubernetes `kubernetes`.)

mod aws;
mod kubernetes;

use std::collections::HashMap;
use std::fmt;

use futures::{FutureExt as _, StreamExt as _};

use crate::support::panic_text;

/// The nth call of a name since the flow began, from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Nth {
    name: String,
    nth: usize,
}

/// The calls of a clean run.
fn enumerate(names: Vec<String>) -> Vec<Nth> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut nth = |name: String| {
        let count = seen.entry(name.clone()).or_default();
        *count += 1;
        Nth { nth: *count - 1, name }
    };
    names.into_iter().map(&mut nth).collect()
}

/// Calls of one flow, failed in one way.
#[derive(Debug, Clone)]
struct Case<W, F> {
    flow: W,
    calls: Vec<Nth>,
    fault: F,
}

impl<W: fmt::Debug, F: fmt::Debug> fmt::Display for Case<W, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {:?}", self.flow, self.fault)?;
        self.calls.iter().try_for_each(|Nth { name, nth }| write!(f, ", {name} #{nth}"))
    }
}

/// Runs all cases, some at a time, and tells all that failed.
async fn run_all<W: fmt::Debug, F: fmt::Debug, T>(
    cases: Vec<Case<W, F>>,
    at_a_time: usize,
    run: impl AsyncFn(usize, &Case<W, F>) -> T,
) -> Vec<T> {
    let run = &run;
    let outcomes: Vec<_> = futures::stream::iter(cases.iter().enumerate())
        .map(async |(number, case)| {
            let outcome = std::panic::AssertUnwindSafe(run(number, case)).catch_unwind().await;
            outcome.map_err(|panic| format!("{case}: {}", panic_text(&*panic)))
        })
        .buffer_unordered(at_a_time)
        .collect()
        .await;
    let (done, failed): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    let failed: Vec<_> = failed.into_iter().filter_map(Result::err).collect();
    assert!(failed.is_empty(), "{} of {} failed:\n{}", failed.len(), cases.len(), failed.join("\n\n"));
    done.into_iter().filter_map(Result::ok).collect()
}
