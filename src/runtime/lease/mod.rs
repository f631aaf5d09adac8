//! One of several processes works, the others stand by: election by a Lease of `coordination.k8s.io/v1`.
//!
//! The algorithm and what is written are those of client-go's `leaderelection`, so `kubectl get lease` and
//! other tools read it as usual:
//!
//! | file | what it holds |
//! |---|---|
//! | `election` | what to do about the lease, from what was seen of it and when. Pure |
//! | `elector` | reads, writes and watches the Lease, and tells in the log what is in the way |
//! | [`Term`] | the right to work, which ends by itself unless it is renewed |
//! | [`Timing`] | how long everything may take |
//! | [`name`] | what a Lease is called |
//!
//! ```no_run
//! # async fn serve(_: kube::Client) {}
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use bucket_provisioner::runtime::{lease, signals};
//!
//! let config = kube::Config::infer().await?;
//! let options = lease::Options {
//!     namespace: config.default_namespace.clone(),
//!     name: lease::name("example.com/disk", None),
//!     identity: lease::identity(),
//!     timing: lease::Timing::default(),
//! };
//! // A client without retries of its own: they would pass the fence.
//! let client = lease::client(&config)?;
//! lease::lead(lease::client(&config)?, options, signals::shutdown(), |term| serve(term.fence(client))).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! At most one process is in a term, as far as clocks run at the same speed: a term ends `renew_deadline`
//! after its last renewal was *sent*, and another process takes over no earlier than `lease_duration` after
//! it *saw* that renewal. Both are measured by the monotonic clock of the process itself. What clocks show
//! does not matter; the times in the Lease are for people.
//!
//! # What remains
//!
//! A call that was sent before a term ended can take effect afterwards. Between the two limits lie
//! `lease_duration - renew_deadline` (5 s by default) for it to arrive. A machine that sleeps as a whole does
//! not count that time; its process sees at the first renewal that the lease is somebody else's, and until
//! then may begin calls. A Lease that is edited by hand holds for nobody. So work must survive being repeated
//! and being cut off anywhere, as that of [`controller::run`](crate::controller::run) does; the lease keeps
//! this from being the ordinary case.

mod election;
mod elector;
mod name;
mod term;
#[cfg(test)]
mod tests;
mod timing;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures::future::{Either, select};
use kube::Client;

use self::elector::Elector;
pub use self::name::{identity, name};
pub use self::term::{Term, TermOver};
pub use self::timing::{BadTiming, Timing};

/// Which lease, and as whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Namespace of the Lease. It must exist.
    pub namespace: String,
    /// Name of the Lease, a DNS subdomain; [`name()`] makes one. It is created when it does not exist.
    pub name: String,
    /// Who this process is, different from every other process; [`identity()`] makes one.
    pub identity: String,
    /// How long everything may take.
    pub timing: Timing,
}

/// The lease was lost: another process works now, or soon will.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The last renewal is too long ago.
    #[error("lease {lease} is lost: it could not be renewed within {} s: {problem}", .deadline.as_secs_f64())]
    NotRenewed {
        /// `namespace/name`.
        lease: String,
        /// The renew deadline.
        deadline: Duration,
        /// What was in the way.
        problem: String,
    },
    /// Somebody else took it, or was given it by hand.
    #[error("lease {lease} is lost: {holder} holds it")]
    Taken {
        /// `namespace/name`.
        lease: String,
        /// Identity of the holder.
        holder: String,
    },
}

/// A client for [`lead`] alone: it has connections of its own, which other work does not keep busy, and leaves
/// it to the election when to try again.
///
/// # Errors
/// As [`Client::try_from`]: the configuration cannot be used.
pub fn client(config: &kube::Config) -> Result<Client, kube::Error> {
    let mut config = config.clone();
    config.default_retry = false;
    Client::try_from(config)
}

/// Waits for the lease, does `work` while this process holds it, and gives it back.
///
/// # Flow
/// 1. Stands by until the lease is free or its holder has been silent for the lease's duration. `work` is not
///    called before that. A Lease that is given back is noticed at once, by a watch.
/// 2. Calls `work` with the [`Term`], awaits what it returns, and renews the lease meanwhile. `stop` means
///    nothing any more: `work` decides when it has ended, and the lease is held until then.
/// 3. Gives the lease back, so that the next process need not wait; takes 1.5 s at most.
///
/// Returns what `work` returned, or `None` if `stop` completed before this process had the lease.
///
/// What is in the way (no permission, no namespace, no answer) is told in the log, once for each change, and
/// waited out.
///
/// # Assumptions
/// `work` makes its calls through the term: [`Term::fence`] for Kubernetes, [`Term::is_over`] for others. The
/// permissions of the client are `get`, `list`, `watch` and `update` on this Lease, and `create` on leases in
/// its namespace.
///
/// # Errors
/// [`Lost`]: the term ended before the work did. `work` has been dropped; whoever gets this error should end
/// the process, because what the work left running elsewhere (tasks, threads) is not known here.
pub async fn lead<W: Future>(
    client: Client,
    options: Options,
    stop: impl Future<Output = ()>,
    work: impl FnOnce(Term) -> W,
) -> Result<Option<W::Output>, Lost> {
    let mut elector = Elector::new(client, options);
    let acquired = match select(pin!(elector.acquire()), pin!(stop)).await {
        Either::Left((since, _)) => Some(since),
        Either::Right(((), _)) => None,
    };
    let Some(since) = acquired else {
        elector.withdraw().await;
        tracing::info!("stopped while standing by");
        return Ok(None);
    };
    let (deadline, term) = Term::begin(since + elector.timing().renew_deadline());
    let ended = {
        let mut work = pin!(work(term.clone()));
        let mut keep = pin!(elector.keep(&deadline));
        poll_fn(|cx| {
            // The clock comes first: after a process was suspended, whatever it waited for may be there,
            // and the timer that ends the term may not have been looked at.
            let lost = match keep.as_mut().poll(cx) {
                Poll::Ready(lost) => Some(Some(lost)),
                Poll::Pending => term.is_over().then_some(None),
            };
            if let Some(lost) = lost {
                // Before the work is dropped, which takes its time.
                deadline.end();
                return Poll::Ready(Err(lost));
            }
            work.as_mut().poll(cx).map(Ok)
        })
        .await
    };
    deadline.end();
    match ended {
        Ok(done) => {
            elector.release().await;
            Ok(Some(done))
        }
        Err(lost) => Err(lost.unwrap_or_else(|| elector.not_renewed())),
    }
}
