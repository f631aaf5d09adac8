//! The reconciles of all objects of a kind.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, Stream, StreamExt as _, stream};
use kube::runtime::scheduler::{ScheduleRequest, scheduler};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How long an object waits whose reconcile panicked: it may do so each time.
const PANICKED: Duration = Duration::from_secs(60);

/// Shows a reconcile that its object is triggered meanwhile.
#[derive(Debug, Clone, Default)]
pub struct Triggered(Arc<Notify>);

impl Triggered {
    /// Completes when the object was triggered since this completed last.
    pub async fn again(&self) {
        self.0.notified().await;
    }
}

/// What a trigger leads to.
pub enum Reconcile {
    /// Nothing now, but after this time; `None`: at the next trigger.
    Later(Option<Duration>),
    /// Work, in a task of its own; it returns the same.
    Now(BoxFuture<'static, Option<Duration>>),
}

/// Reconciles each object that `triggers` name, one at a time for each object: one that is triggered meanwhile is
/// reconciled once more, and its reconcile can see it. When `shutdown` completes, it waits for what runs, and ends.
///
/// kube's `Controller` does the same, but polls every running reconcile whenever one ends, or anything is triggered. This
/// costs the same, however many of them wait for a worker.
///
/// A reconcile that panics is repeated after a minute, and harms no other.
pub async fn run<T>(
    triggers: impl Stream<Item = T>,
    shutdown: impl Future<Output = ()>,
    mut reconcile: impl FnMut(&T, &Triggered) -> Reconcile,
) where
    T: Clone + Eq + Hash + Send + 'static,
{
    let at = |message, wait| ScheduleRequest { message, run_at: Instant::now() + wait };
    let (again, later) = unbounded_channel();
    let later = pin!(received(later));
    let triggered = triggers.map(|object| at(object, Duration::ZERO));
    let mut due = pin!(scheduler(stream::select(triggered, later)));
    let mut shutdown = pin!(shutdown);
    let mut running = JoinSet::new();
    // Whether each object that is reconciled was triggered meanwhile.
    let mut busy: HashMap<T, (bool, Triggered)> = HashMap::new();
    loop {
        let (object, wait) = tokio::select! {
            biased;
            () = &mut shutdown => break,
            // Nothing cancels it.
            Some(Ok((object, wait))) = running.join_next() => {
                let was_triggered = busy.remove(&object).is_some_and(|(was_triggered, _)| was_triggered);
                (object, if was_triggered { Some(Duration::ZERO) } else { wait })
            }
            Some(object) = due.next() => {
                if let Some((was_triggered, triggered)) = busy.get_mut(&object) {
                    *was_triggered = true;
                    triggered.0.notify_one();
                    continue;
                }
                let triggered = Triggered::default();
                let looked = catch_unwind(AssertUnwindSafe(|| reconcile(&object, &triggered)));
                match looked.unwrap_or(Reconcile::Later(Some(PANICKED))) {
                    Reconcile::Later(wait) => {
                        // After a list there are thousands of these.
                        tokio::task::consume_budget().await;
                        (object, wait)
                    }
                    Reconcile::Now(work) => {
                        busy.insert(object.clone(), (false, triggered));
                        let work = AssertUnwindSafe(work).catch_unwind();
                        running.spawn(async move { (object, work.await.unwrap_or(Some(PANICKED))) });
                        continue;
                    }
                }
            }
        };
        if let Some(wait) = wait {
            // The receiver lives as long as this.
            let _ = again.send(at(object, wait));
        }
    }
    while running.join_next().await.is_some() {}
}

/// What comes out of a channel, as a stream.
pub fn received<T>(channel: UnboundedReceiver<T>) -> impl Stream<Item = T> {
    stream::unfold(channel, async |mut channel| Some((channel.recv().await?, channel)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;
    use std::future::{pending, poll_fn};
    use std::task::Poll;

    use futures::FutureExt as _;
    use parking_lot::Mutex;
    use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
    use tokio::time::sleep;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Runs, and triggers what is sent.
    fn running(
        shutdown: impl Future<Output = ()> + Send + 'static,
        reconcile: impl FnMut(&&'static str, &Triggered) -> Reconcile + Send + 'static,
    ) -> (UnboundedSender<&'static str>, tokio::task::JoinHandle<()>) {
        let (trigger, triggers) = unbounded_channel();
        (trigger, tokio::spawn(async move { run(received(triggers), shutdown, reconcile).await }))
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_triggered_meanwhile_is_reconciled_once_more() {
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let shown = Arc::clone(&seen);
        let (trigger, _task) = running(pending(), move |object, _| {
            let (seen, object) = (Arc::clone(&seen), *object);
            Reconcile::Now(Box::pin(async move {
                seen.lock().push(format!("begin {object}"));
                sleep(SECOND).await;
                seen.lock().push(format!("end {object}"));
                None
            }))
        });
        trigger.send("a").unwrap();
        sleep(SECOND / 2).await;
        for object in ["a", "a", "b"] {
            trigger.send(object).unwrap();
        }
        sleep(10 * SECOND).await;
        assert_eq!(*shown.lock(), ["begin a", "begin b", "end a", "begin a", "end b", "end a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reconcile_sees_that_its_object_is_triggered() {
        let seen: Arc<Mutex<Vec<&str>>> = Arc::default();
        let shown = Arc::clone(&seen);
        let (trigger, _task) = running(pending(), move |object, triggered| {
            let (seen, object, triggered) = (Arc::clone(&seen), *object, triggered.clone());
            Reconcile::Now(Box::pin(async move {
                // Also a trigger that comes before it waits for one.
                sleep(2 * SECOND).await;
                triggered.again().await;
                seen.lock().push(object);
                None
            }))
        });
        for object in ["a", "b"] {
            trigger.send(object).unwrap();
        }
        sleep(SECOND).await;
        trigger.send("a").unwrap();
        sleep(10 * SECOND).await;
        assert_eq!(*shown.lock(), ["a"]);
        trigger.send("b").unwrap();
        sleep(SECOND).await;
        assert_eq!(*shown.lock(), ["a", "b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_at_its_time_or_with_a_trigger() {
        let began = Instant::now();
        let seen: Arc<Mutex<Vec<u64>>> = Arc::default();
        let shown = Arc::clone(&seen);
        let mut waits = vec![None, Some(5 * SECOND), Some(100 * SECOND), Some(SECOND)];
        let (trigger, _task) = running(pending(), move |_, _| {
            seen.lock().push(began.elapsed().as_secs());
            let wait = waits.pop().unwrap();
            if waits.len() % 2 == 0 { Reconcile::Later(wait) } else { Reconcile::Now(async move { wait }.boxed()) }
        });
        trigger.send("a").unwrap();
        sleep(20 * SECOND).await;
        trigger.send("a").unwrap();
        sleep(1000 * SECOND).await;
        assert_eq!(*shown.lock(), [0, 1, 20, 25]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_shutdown_waits_for_what_runs() {
        let began = Instant::now();
        let (trigger, task) = running(sleep(SECOND), move |_, _| {
            Reconcile::Now(Box::pin(async {
                sleep(5 * SECOND).await;
                Some(Duration::ZERO)
            }))
        });
        trigger.send("a").unwrap();
        sleep(2 * SECOND).await;
        trigger.send("b").unwrap();
        task.await.unwrap();
        assert_eq!(began.elapsed(), 5 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_delays_only_its_object() {
        let began = Instant::now();
        let seen: Arc<Mutex<Vec<&str>>> = Arc::default();
        let shown = Arc::clone(&seen);
        let (trigger, _task) = running(pending(), move |object, _| {
            let (object, is_first) = (*object, began.elapsed() < SECOND);
            seen.lock().push(object);
            match object {
                "look" if is_first => panic!("a mistake"),
                "work" if is_first => Reconcile::Now(Box::pin(async { panic!("another") })),
                _ => Reconcile::Later(None),
            }
        });
        let taken = || {
            let mut seen = std::mem::take(&mut *shown.lock());
            seen.sort_unstable();
            seen
        };
        for object in ["look", "work", "well"] {
            trigger.send(object).unwrap();
        }
        sleep(SECOND).await;
        assert_eq!(taken(), ["look", "well", "work"]);
        sleep(PANICKED).await;
        assert_eq!(taken(), ["look", "work"]);
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_wait_cost_nothing() {
        let polls: Arc<Mutex<BTreeMap<&str, usize>>> = Arc::default();
        let counted = Arc::clone(&polls);
        let (trigger, _task) = running(pending(), move |object, _| {
            let (polls, object) = (Arc::clone(&polls), *object);
            Reconcile::Now(Box::pin(poll_fn(move |_| {
                *polls.lock().entry(object).or_default() += 1;
                if object == "waits" { Poll::Pending } else { Poll::Ready(None) }
            })))
        });
        trigger.send("waits").unwrap();
        for _ in 0..100 {
            trigger.send("works").unwrap();
            sleep(SECOND).await;
        }
        assert_eq!(*counted.lock(), BTreeMap::from([("waits", 1), ("works", 100)]));
    }
}
