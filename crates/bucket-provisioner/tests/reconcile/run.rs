//! A flow from its beginning to its end, with calls that fail and operators that are stopped.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::calls::{Calls, Nth, Verdict, at};
use crate::flow::Flow;

/// How long the calls of a flow take, if one of them fails.
const ALL_CALLS: Duration = Duration::from_secs(600);

/// What one operator meets: some of its calls, and what becomes of them.
pub type Verdicts = Vec<(Nth, Verdict)>;

/// What the last operator needed.
pub struct Run {
    pub calls: Vec<Nth>,
    pub took: Duration,
}

impl Flow {
    /// Without a failure. Of a flow whose first operator is stopped: its calls until then.
    pub async fn undisturbed(self) -> Run {
        self.until_stopped().survives(&[], Duration::ZERO).await
    }

    /// Runs one operator after the other. Each meets its verdicts and is stopped by one of them; the last one finishes. All
    /// must be well then. `lag`: how much later the lists and watches of all but the first operator show a change.
    pub async fn survives(self, stopped: &[Verdicts], lag: Duration) -> Run {
        self.survives_with(stopped, Verdicts::new(), lag).await
    }

    /// The same, and the last operator meets verdicts, too.
    pub async fn survives_with(self, stopped: &[Verdicts], last: Verdicts, lag: Duration) -> Run {
        let (world, mut calls) = (self.world(), Calls::default());
        let first = stopped.first().unwrap_or(&last).clone();
        let mut operator = self.begin(&world, &calls, at(first)).await;
        let mut was_published = true;
        for next in stopped.iter().skip(1).chain([&last]).take(stopped.len()) {
            // A few calls are not made in each run: then it stops when all is done.
            let _ = timeout(ALL_CALLS, calls.stopped()).await;
            drop(operator);
            world.api.set_lag(lag);
            if self.has_one_claim() {
                world.assert_nothing_forgotten();
            }
            was_published = world.is_published();
            self.meanwhile(&world);
            calls = Calls::default();
            calls.begin(at(next.clone()));
            operator = world.start(&calls);
        }
        let began = Instant::now();
        self.reach_end(&world).await;
        let took = began.elapsed();
        world.afterwards().await;
        let made = calls.all();
        self.assert_well(&world, was_published).await;
        drop(operator);
        Run { calls: made, took }
    }
}
