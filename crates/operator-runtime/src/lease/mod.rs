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
//!     one_in_cluster: false,
//! };
//! // The client must not retry by itself, because its retries would pass the fence.
//! let client = lease::client(&config)?;
//! lease::lead(lease::client(&config)?, options, signals::shutdown(), |term| serve(term.fence(client.clone()))).await?;
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
mod term;
#[cfg(test)]
mod tests;
mod timing;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use futures::FutureExt as _;
use futures::future::{Either, select};
use kube::Client;
use parking_lot::Mutex;

pub use self::election::version_of_holder;
pub use self::elector::{CLUSTER_NAMESPACE, Lost, Options};
use self::elector::{Elector, Ended};
pub use self::name::{cluster_name, identity, name};
pub(crate) use self::term::Terms;
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
/// 1. Stands by until the lease is free, or its holder has been silent for the lease's duration. Only then is `work` called. A
///    watch shows at once when the lease is released.
/// 2. Calls `work` with the [`Term`], and renews the lease until it ends. `stop` is ignored from now on: `work` decides
///    when to end, and the lease is held until then.
/// 3. Releases the lease, so that the next process does not have to wait. This takes 1.5 s at most.
///
/// If a snapshot of etcd is restored meanwhile, the term ends, `work` is dropped, and all begins once more with another term: what
/// `work` has read, and the versions from which it watches, are of a time that the cluster has not seen.
///
/// Returns what `work` returned, or `None` if `stop` completed before this process had the lease.
///
/// Problems (no permission, no namespace, no answer) are logged, once for each change, and retried.
///
/// # Assumptions
/// `work` makes its calls through the term: [`Term::fence`] for Kubernetes, [`Term::is_over`] for others. The client
/// needs the permissions `get`, `list`, `watch` and `update` on this Lease, and `create` on leases in its namespace; with
/// [`Options::one_in_cluster`] the same in [`CLUSTER_NAMESPACE`], without which it works nevertheless, with a warning.
///
/// # Errors
/// [`Lost`]: the term ended before `work` did, and `work` was dropped. The caller should end the process, because tasks
/// and threads that `work` started may still run.
pub async fn lead<W: Future>(
    client: Client,
    options: Options,
    stop: impl Future<Output = ()>,
    work: impl FnMut(Term) -> W,
) -> Result<Option<W::Output>, Lost> {
    lead_observed(client, options, &Observer::default(), stop, work).await
}

/// As [`lead`], and shows what it does.
pub async fn lead_observed<W: Future>(
    client: Client,
    options: Options,
    observer: &Observer,
    stop: impl Future<Output = ()>,
    work: impl FnMut(Term) -> W,
) -> Result<Option<W::Output>, Lost> {
    let stop = pin!(stop);
    let (stop, work) = (stop.shared(), Mutex::new(work));
    let work_within = |outer: Option<Term>, term: Term| {
        observer.leads(true);
        work.lock()(term.within(outer))
    };
    let of_cluster = options.of_cluster();
    // Replicas compete for their own lease. Its holder competes for that of the cluster, for all of them.
    let led =
        hold(Elector::new(client.clone(), options, observer.clone()), stop.clone(), Refused::Retry, |own: Term| {
            let (client, of_cluster, stop) = (client.clone(), of_cluster.clone(), stop.clone());
            let work_within = &work_within;
            async move {
                let Some(of_cluster) = of_cluster else { return Ok(Held::Done(work_within(None, own).await)) };
                let elector = Elector::new(client, of_cluster, observer.clone());
                let outer = own.clone();
                match hold(elector, stop, Refused::GiveUp, move |term| work_within(Some(outer.clone()), term)).await {
                    Ok(Held::Refused) => Ok(Held::Done(work_within(None, own).await)),
                    led => led,
                }
            }
        });
    let led = led.await;
    observer.leads(false);
    match led? {
        Held::Done(led) => match led? {
            Held::Done(done) => Ok(Some(done)),
            Held::Stopped | Held::Refused => Ok(None),
        },
        Held::Stopped | Held::Refused => Ok(None),
    }
}

/// What to do where this account may not use a Lease.
#[derive(Clone, Copy, PartialEq)]
enum Refused {
    /// Whoever has to grant it may do so at any time.
    Retry,
    GiveUp,
}

/// How holding a lease ended.
enum Held<T> {
    Done(T),
    /// Before it was held.
    Stopped,
    Refused,
}

/// Does `work` while this process holds the lease.
async fn hold<W: Future>(
    mut elector: Elector,
    mut stop: impl Future<Output = ()> + Unpin,
    refused: Refused,
    mut work: impl FnMut(Term) -> W,
) -> Result<Held<W::Output>, Lost> {
    loop {
        let acquired = match select(pin!(elector.acquire(refused)), &mut stop).await {
            Either::Left((Some(since), _)) => Some(since),
            Either::Left((None, _)) => return Ok(Held::Refused),
            Either::Right(((), _)) => None,
        };
        let Some(since) = acquired else {
            elector.withdraw().await;
            tracing::info!("stopped while on standby");
            return Ok(Held::Stopped);
        };
        let (deadline, term) = Term::begin(since + elector.timing().renew_deadline());
        let ended = {
            let mut work = pin!(work(term.clone()));
            let mut keep = pin!(elector.keep(&deadline));
            poll_fn(|cx| {
                // The clock comes first: after a suspension, `work` may be ready to continue although the term is over.
                let ended = match keep.as_mut().poll(cx) {
                    Poll::Ready(ended) => Some(Some(ended)),
                    Poll::Pending => term.is_over().then_some(None),
                };
                if let Some(ended) = ended {
                    // Dropping the work takes time, so the term ends before that.
                    deadline.end();
                    return Poll::Ready(Err(ended));
                }
                work.as_mut().poll(cx).map(Ok)
            })
            .await
        };
        deadline.end();
        match ended {
            Ok(done) => {
                elector.release().await;
                return Ok(Held::Done(done));
            }
            Err(Some(Ended::SetBack)) => {
                tracing::warn!("the cluster was set back to an earlier state: everything is read again");
            }
            Err(Some(Ended::Lost(lost))) => return Err(lost),
            Err(None) => return Err(elector.not_renewed()),
        }
    }
}
