//! Reads, writes and watches the Lease.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout, timeout_at};

use super::Refused;
use super::election::{Election, Step};
use super::log::{LeaseLog, describe, is_namespace, no_answer};
use super::name::cluster_name;
use super::term::Deadline;
use super::timing::{JITTER, Timing};
use crate::engine::version_number;
use crate::kubernetes::answers::status_code;
use crate::observe::Observer;

/// How long releasing the lease may take, because whoever stops the process does not wait long.
const RELEASE: Duration = Duration::from_millis(1500);

type Changes = BoxStream<'static, watcher::Result<Option<Lease>>>;

/// Which lease, and with which identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Namespace of the Lease. It must exist.
    pub namespace: String,
    /// Name of the Lease, a DNS subdomain, for example from [`name()`](super::name()). It is created if it does not
    /// exist.
    pub name: String,
    /// Identity of this process, different from every other process, for example from
    /// [`identity()`](super::identity()).
    pub identity: String,
    /// The durations.
    pub timing: Timing,
    /// Of the processes with a Lease of this name, only one works, in whichever namespaces they are installed. For that, it
    /// holds another Lease, in [`CLUSTER_NAMESPACE`].
    pub one_in_cluster: bool,
}

/// Where the Lease is that is shared by installations in different namespaces. Tenants cannot write there.
pub const CLUSTER_NAMESPACE: &str = "kube-system";

impl Options {
    /// The Lease that is shared by all installations.
    pub(super) fn of_cluster(&self) -> Option<Self> {
        // Its holder is the installation: whichever replica holds their own lease holds this one as well, without waiting.
        let (name, identity) = (cluster_name(&self.name), self.namespace.clone());
        self.one_in_cluster.then(|| Self { namespace: CLUSTER_NAMESPACE.into(), name, identity, ..self.clone() })
    }
}

/// The lease was lost: another process works now, or will soon.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The last renewal is too long ago.
    #[error("lease {lease} is lost: it could not be renewed within {} s: {problem}", .deadline.as_secs_f64())]
    NotRenewed {
        /// `namespace/name`.
        lease: String,
        /// The renew deadline.
        deadline: Duration,
        /// Why it could not be renewed.
        problem: String,
    },
    /// Somebody else holds it, perhaps because the Lease was edited by hand.
    #[error("lease {lease} is lost: {holder} holds it")]
    Taken {
        /// `namespace/name`.
        lease: String,
        /// Identity of the holder.
        holder: String,
    },
}

/// Why a term ended.
pub(super) enum Ended {
    Lost(Lost),
    /// A snapshot of etcd was restored. What this process has in its caches, and the versions from which it watches, are of
    /// a time that the cluster has not seen.
    SetBack,
}

pub(super) struct Elector {
    api: Api<Lease>,
    options: Options,
    election: Election,
    knowledge: Knowledge,
    /// The version of the Lease that was last read or written. They only grow.
    version: u64,
    is_set_back: bool,
    log: LeaseLog,
    observer: Observer,
}

/// What is known about the Lease in the cluster.
#[derive(Clone, Copy, PartialEq)]
enum Knowledge {
    /// It is as this process wrote it last. If somebody else has written since, the next write fails.
    Current,
    /// It must be read before it is written.
    Stale,
    /// A write has not been answered; it may have taken effect.
    Unanswered,
}

/// The outcome of an attempt.
enum Attempt {
    /// The lease is ours, from the time before the write was sent.
    Ours { since: Instant },
    /// Somebody else holds it.
    Theirs { holder: String },
    /// It is not known who holds it.
    Failed,
    /// Nor may this account know or hold it.
    Refused { problem: String },
}

impl Elector {
    pub(super) fn new(client: Client, options: Options, observer: Observer) -> Self {
        let lease = format!("{}/{}", options.namespace, options.name);
        Self {
            api: Api::namespaced(client, &options.namespace),
            election: Election::new(&options.name, &options.identity, options.timing.lease_seconds())
                .with_version(observer.version()),
            knowledge: Knowledge::Stale,
            version: 0,
            is_set_back: false,
            log: LeaseLog::new(lease, options.namespace == CLUSTER_NAMESPACE),
            observer,
            options,
        }
    }

    pub(super) fn timing(&self) -> Timing {
        self.options.timing
    }

    /// Waits until the lease is ours; returns since when. `None` if this account may not use it, and need not.
    pub(super) async fn acquire(&mut self, refused: Refused) -> Option<Instant> {
        let mut changes = self.changes();
        loop {
            // Others may have written since.
            self.knowledge = self.knowledge.to_be_read();
            match self.attempt().await {
                Attempt::Ours { since } => {
                    tracing::info!(lease = self.log.lease, identity = self.options.identity, "holding the lease");
                    return Some(since);
                }
                Attempt::Refused { problem } if refused == Refused::GiveUp => {
                    tracing::warn!(
                        lease = self.log.lease,
                        problem,
                        "cannot prevent that an operator in another namespace serves the same: grant what the command `rbac` \
                         prints for this Lease"
                    );
                    return None;
                }
                Attempt::Refused { problem } => {
                    self.log.failed(problem);
                    self.stand_by(&mut changes).await;
                }
                Attempt::Theirs { .. } | Attempt::Failed => self.stand_by(&mut changes).await,
            }
        }
    }

    /// Renews the lease until the term ends. Each renewal extends it.
    pub(super) async fn keep(&mut self, deadline: &Deadline) -> Ended {
        let timing = self.timing();
        let mut tick = interval(timing.retry_period());
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick comes at once, but the lease was written just now.
        tick.tick().await;
        self.is_set_back = false;
        loop {
            let renewal = async {
                tick.tick().await;
                self.attempt().await
            };
            let renewed = timeout_at(deadline.at(), renewal).await;
            if self.is_set_back {
                return Ended::SetBack;
            }
            match renewed {
                Ok(Attempt::Ours { since }) => deadline.extend(since + timing.renew_deadline()),
                Ok(Attempt::Theirs { holder }) => {
                    return Ended::Lost(Lost::Taken { lease: self.log.lease.clone(), holder });
                }
                Ok(Attempt::Failed) => {}
                Ok(Attempt::Refused { problem }) => self.log.failed(problem),
                Err(_elapsed) => return Ended::Lost(self.not_renewed()),
            }
        }
    }

    pub(super) fn not_renewed(&self) -> Lost {
        Lost::NotRenewed {
            lease: self.log.lease.clone(),
            deadline: self.timing().renew_deadline(),
            problem: self.log.problem.clone().unwrap_or_else(|| "the API server did not answer in time".to_owned()),
        }
    }

    /// Releases the lease that was just taken, or that an unanswered write may have taken.
    pub(super) async fn withdraw(&mut self) {
        if self.knowledge == Knowledge::Unanswered || self.election.holds() {
            self.release().await;
        }
    }

    /// Releases the lease, if it is ours.
    pub(super) async fn release(&mut self) {
        let lease = self.log.lease.clone();
        let problem = match timeout(RELEASE, self.try_release()).await {
            Ok(Ok(())) => return tracing::info!(lease, "released the lease"),
            Ok(Err(error)) => describe(&error),
            Err(_elapsed) => no_answer(RELEASE),
        };
        let seconds = self.options.timing.lease_seconds();
        tracing::warn!(lease, problem, "cannot release the lease: the next process has to wait {seconds} s for it");
    }

    async fn try_release(&mut self) -> kube::Result<()> {
        loop {
            if self.knowledge != Knowledge::Current {
                self.read().await?;
            }
            let Some(released) = self.election.release(Timestamp::now()) else { return Ok(()) };
            match self.api.replace(&self.options.name, &PostParams::default(), &released).await {
                // An earlier renewal arrived late, or somebody else has written.
                Err(error) if is_race(&error) => self.knowledge = Knowledge::Stale,
                done => return done.map(drop),
            }
        }
    }

    /// Tries once to take or renew the lease. A failure is logged. The time is limited, because a call can hang
    /// forever.
    async fn attempt(&mut self) -> Attempt {
        let limit = self.timing().attempt_timeout();
        let problem = match timeout(limit, self.take_or_renew()).await {
            Ok(Ok(done)) => {
                self.log.succeeded();
                if let Attempt::Theirs { holder } = &done {
                    self.log.held_by(holder);
                    self.observer.stands_by(holder);
                }
                return done;
            }
            Ok(Err(error)) if status_code(&error) == Some(403) => {
                return Attempt::Refused { problem: describe(&error) };
            }
            Ok(Err(error)) => describe(&error),
            Err(_elapsed) => no_answer(limit),
        };
        self.log.failed(problem);
        Attempt::Failed
    }

    async fn take_or_renew(&mut self) -> kube::Result<Attempt> {
        match self.write().await {
            // Somebody else has written, and what they wrote decides.
            Err(error) if is_race(&error) => {
                self.knowledge = Knowledge::Stale;
                self.write().await
            }
            done => done,
        }
    }

    async fn write(&mut self) -> kube::Result<Attempt> {
        if self.knowledge != Knowledge::Current {
            self.read().await?;
        }
        // The term counts from here, because whoever sees the write starts counting later.
        let sent = Instant::now();
        let step = self.election.step(sent, Timestamp::now());
        let params = PostParams::default();
        self.knowledge = Knowledge::Unanswered;
        let written = match &step {
            Step::Create(lease) => self.api.create(&params, lease).await,
            Step::Replace(lease) => self.api.replace(&self.options.name, &params, lease).await,
            Step::Wait { holder, .. } => {
                self.knowledge = Knowledge::Stale;
                return Ok(Attempt::Theirs { holder: holder.clone() });
            }
        };
        if matches!(written, Err(kube::Error::Api(_))) {
            self.knowledge = Knowledge::Stale;
        }
        let written = written?;
        self.note_version(&written);
        self.election.observe(Some(written), Instant::now());
        self.knowledge = Knowledge::Current;
        Ok(Attempt::Ours { since: sent })
    }

    async fn read(&mut self) -> kube::Result<()> {
        let found = self.api.get_opt(&self.options.name).await?;
        if let Some(found) = &found {
            self.note_version(found);
        }
        self.election.observe(found, Instant::now());
        Ok(())
    }

    /// Reads and writes of one process follow each other, and see versions that only grow. What a watch shows may be older.
    fn note_version(&mut self, lease: &Lease) {
        let Some(version) = version_number(lease.metadata.resource_version.as_deref()) else { return };
        self.is_set_back |= version < self.version;
        self.version = version;
    }

    /// Waits until the next attempt: until the retry period is over, or the holder has been silent for too long, or the
    /// watch shows that nobody holds the lease.
    async fn stand_by(&mut self, changes: &mut Changes) {
        let retry = Instant::now() + jittered(self.timing().retry_period());
        loop {
            let until = match self.election.step(Instant::now(), Timestamp::now()) {
                Step::Wait { until, .. } => until.min(retry),
                _ => retry,
            };
            match timeout_at(until, changes.next()).await {
                Ok(Some(Ok(found))) => {
                    let now = Instant::now();
                    self.election.observe(found, now);
                    if !matches!(self.election.step(now, Timestamp::now()), Step::Wait { .. }) {
                        return;
                    }
                }
                // Attempts continue without the watch, and log what is wrong. The watch restarts itself.
                Ok(Some(Err(error))) => tracing::debug!(%error, lease = self.log.lease, "watching the lease"),
                Ok(None) => *changes = self.changes(),
                Err(_elapsed) => return,
            }
        }
    }

    /// Changes of the Lease. Only a hint when to read it, because a watch can be late or silent.
    fn changes(&self) -> Changes {
        watcher::watch_object(self.api.clone(), &self.options.name).default_backoff().boxed()
    }
}

impl Knowledge {
    /// An unanswered write stays unanswered until its outcome is known.
    fn to_be_read(self) -> Self {
        match self {
            Self::Unanswered => Self::Unanswered,
            Self::Current | Self::Stale => Self::Stale,
        }
    }
}

/// As in client-go, 1 to 2.2 periods, so that processes which started together do not call together.
fn jittered(period: Duration) -> Duration {
    period.mul_f64(1.0 + rand::random::<f64>() * JITTER)
}

/// Whether somebody else has written, created or deleted the Lease since it was read.
fn is_race(error: &kube::Error) -> bool {
    // A missing namespace is a 404, too, but not a race.
    matches!(error, kube::Error::Api(status) if status.code == 409 || status.code == 404 && !is_namespace(status))
}
