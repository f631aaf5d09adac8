//! Leader election with a Lease of `coordination.k8s.io/v1`: one of several processes works, the others are on standby.
//!
//! The algorithm and the written fields are those of client-go's `leaderelection`, so `kubectl get lease` and other
//! tools show what they usually show:
//!
//! | file | what it holds |
//! |---|---|
//! | `election` | decides what to do about the lease. Pure |
//! | `elector` | reads, writes and watches the Lease |
//! | `log` | the log lines about the lease |
//! | `others` | finds Leases of the same name in other namespaces |
//! | [`Term`] | the right to work, which ends by itself unless it is renewed |
//! | [`Timing`] | the durations |
//! | [`name`] | the name of a Lease, and the identity of its holder |
//!
//! ```no_run
//! # async fn serve(_: kube::Client) {}
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use operator_runtime::{lease, signals};
//!
//! let config = kube::Config::infer().await?;
//! let options = lease::Options {
//!     namespace: config.default_namespace.clone(),
//!     name: lease::name("example.com/disk", None),
//!     identity: lease::identity(),
//!     timing: lease::Timing::default(),
//! };
//! // The client must not retry by itself, because its retries would pass the fence.
//! let client = lease::client(&config)?;
//! lease::lead(lease::client(&config)?, options, signals::shutdown(), |term| serve(term.fence(client))).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! At most one process is in a term, if all clocks run at the same speed: a term ends `renew_deadline` after its last
//! renewal was *sent*, and another process takes over `lease_duration` after it *saw* that renewal, at the earliest.
//! Each process measures with its own monotonic clock. Wall clocks do not matter; the times in the Lease are for
//! people.
//!
//! # Limits
//!
//! A call that was sent before a term ended can take effect later. It has `lease_duration - renew_deadline` (5 s by
//! default) to arrive before another process takes over. A suspended machine does not count the time; its process may
//! start calls until the first renewal shows that somebody else holds the lease. A Lease that is edited by hand
//! guarantees nothing. So the work must survive being repeated, and being interrupted anywhere; the lease makes this rare.

mod election;
mod elector;
mod log;
mod name;
mod others;
mod term;
#[cfg(test)]
mod tests;
mod timing;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use futures::future::{Either, select};
use kube::Client;
use tokio::time::Instant;

pub use self::election::version_of_holder;
use self::elector::Elector;
pub use self::elector::{Lost, Options};
pub use self::name::{identity, name};
use self::others::Others;
pub use self::term::{Term, TermOver};
pub use self::timing::{BadTiming, Timing};
use crate::observe::Observer;

/// A client for [`lead`] only. It has its own connections, which other work does not keep busy, and does not retry by
/// itself, because the election does.
///
/// # Errors
/// The configuration cannot be used, as in [`Client::try_from`].
pub fn client(config: &kube::Config) -> Result<Client, kube::Error> {
    let mut config = config.clone();
    config.default_retry = false;
    Client::try_from(config)
}

/// Waits for the lease, does `work` while this process holds it, and releases it.
///
/// # Flow
/// 1. Stands by until the lease is free, or its holder has been silent for the lease's duration, and nobody holds a lease
///    of the same name in another namespace. Only then is `work` called. A watch shows at once when the lease is
///    released.
/// 2. Calls `work` with the [`Term`], and renews the lease until it ends. `stop` is ignored from now on: `work` decides
///    when to end, and the lease is held until then.
/// 3. Releases the lease, so that the next process does not have to wait. This takes 1.5 s at most.
///
/// Returns what `work` returned, or `None` if `stop` completed before this process had the lease.
///
/// Problems (no permission, no namespace, no answer) are logged, once for each change, and retried.
///
/// # Assumptions
/// `work` makes its calls through the term: [`Term::fence`] for Kubernetes, [`Term::is_over`] for others. The client
/// needs the permissions `get`, `list`, `watch` and `update` on this Lease, `create` on leases in its namespace, and `list`
/// on Leases of this name in all namespaces, without which it does not look there.
///
/// # Errors
/// [`Lost`]: the term ended before `work` did, and `work` was dropped. The caller should end the process, because tasks
/// and threads that `work` started may still run.
pub async fn lead<W: Future>(
    client: Client,
    options: Options,
    stop: impl Future<Output = ()>,
    work: impl FnOnce(Term) -> W,
) -> Result<Option<W::Output>, Lost> {
    lead_observed(client, options, &Observer::default(), stop, work).await
}

/// As [`lead`], and shows what it does.
pub async fn lead_observed<W: Future>(
    client: Client,
    options: Options,
    observer: &Observer,
    stop: impl Future<Output = ()>,
    work: impl FnOnce(Term) -> W,
) -> Result<Option<W::Output>, Lost> {
    let Options { name, namespace, timing, .. } = &options;
    let others = Others::new(client.clone(), name, namespace, timing.attempt_timeout());
    let mut elector = Elector::new(client, options, observer.clone());
    let acquired = match select(pin!(acquire_alone(&mut elector, &others)), pin!(stop)).await {
        Either::Left((since, _)) => Some(since),
        Either::Right(((), _)) => None,
    };
    let Some(since) = acquired else {
        elector.withdraw().await;
        tracing::info!("stopped while standing by");
        return Ok(None);
    };
    observer.leads(true);
    let (deadline, term) = Term::begin(since + elector.timing().renew_deadline());
    let ended = {
        let mut work = pin!(work(term.clone()));
        let mut keep = pin!(elector.keep(&deadline));
        poll_fn(|cx| {
            // The clock comes first: after a suspension, `work` may be ready to continue although the term is over.
            let lost = match keep.as_mut().poll(cx) {
                Poll::Ready(lost) => Some(Some(lost)),
                Poll::Pending => term.is_over().then_some(None),
            };
            if let Some(lost) = lost {
                // Dropping the work takes time, so the term ends before that.
                deadline.end();
                return Poll::Ready(Err(lost));
            }
            work.as_mut().poll(cx).map(Ok)
        })
        .await
    };
    deadline.end();
    observer.leads(false);
    match ended {
        Ok(done) => {
            elector.release().await;
            Ok(Some(done))
        }
        Err(lost) => Err(lost.unwrap_or_else(|| elector.not_renewed())),
    }
}

/// Waits until the lease is ours, and nobody holds one of the same name elsewhere; returns since when it is. Each writes its
/// own lease before it looks, so of two that start together at least one sees the other.
async fn acquire_alone(elector: &mut Elector, others: &Others) -> Instant {
    loop {
        let since = elector.acquire().await;
        match others.leader().await {
            Some(leader) => elector.yield_to(&leader).await,
            None => return since,
        }
    }
}
