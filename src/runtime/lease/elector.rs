//! Reads, writes and watches the Lease, and tells in the log what is in the way.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout, timeout_at};

use super::election::{Election, Step};
use super::term::Deadline;
use super::timing::{JITTER, Timing};
use super::{Lost, Options};

/// How long giving the lease back may take: who stops the process does not wait long.
const RELEASE: Duration = Duration::from_millis(1500);

type Changes = BoxStream<'static, watcher::Result<Option<Lease>>>;

pub(super) struct Elector {
    api: Api<Lease>,
    options: Options,
    election: Election,
    knowledge: Knowledge,
    story: Story,
}

/// What is known of the Lease in the cluster.
#[derive(Clone, Copy, PartialEq)]
enum Knowledge {
    /// It is as this process wrote it last, unless somebody else wrote since, which a write will tell.
    Current,
    /// It has to be read before it is written.
    Stale,
    /// A write was begun whose answer has not come; it may have taken effect.
    Unanswered,
}

/// What came of a try.
enum Try {
    /// The lease is ours, counted from before the write was sent.
    Ours { since: Instant },
    /// It is somebody else's.
    Theirs { holder: String },
    /// Neither is known.
    Failed,
}

impl Elector {
    pub(super) fn new(client: Client, options: Options) -> Self {
        let lease = format!("{}/{}", options.namespace, options.name);
        Self {
            api: Api::namespaced(client, &options.namespace),
            election: Election::new(&options.name, &options.identity, options.timing.lease_seconds()),
            knowledge: Knowledge::Stale,
            story: Story { lease, holder: None, problem: None },
            options,
        }
    }

    pub(super) fn timing(&self) -> Timing {
        self.options.timing
    }

    /// Stands by until the lease is ours; returns since when it is.
    pub(super) async fn acquire(&mut self) -> Instant {
        let mut changes = self.changes();
        loop {
            // What others wrote is only known by reading.
            self.knowledge = self.knowledge.to_be_read();
            if let Try::Ours { since } = self.attempt().await {
                tracing::info!(lease = self.story.lease, identity = self.options.identity, "leading");
                return since;
            }
            self.stand_by(&mut changes).await;
        }
    }

    /// Renews the lease until it is lost; a term that is renewed grows.
    pub(super) async fn keep(&mut self, deadline: &Deadline) -> Lost {
        let timing = self.timing();
        let mut tick = interval(timing.retry_period());
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first one comes at once, and the lease was written just now.
        tick.tick().await;
        loop {
            let renewal = async {
                tick.tick().await;
                self.attempt().await
            };
            match timeout_at(deadline.at(), renewal).await {
                Ok(Try::Ours { since }) => deadline.extend(since + timing.renew_deadline()),
                Ok(Try::Theirs { holder }) => return Lost::Taken { lease: self.story.lease.clone(), holder },
                Ok(Try::Failed) => {}
                Err(_elapsed) => return self.not_renewed(),
            }
        }
    }

    pub(super) fn not_renewed(&self) -> Lost {
        Lost::NotRenewed {
            lease: self.story.lease.clone(),
            deadline: self.timing().renew_deadline(),
            problem: self.story.problem.clone().unwrap_or_else(|| "there was no answer in time".to_owned()),
        }
    }

    /// Gives back what a write that was not answered may have brought.
    pub(super) async fn withdraw(&mut self) {
        if self.knowledge == Knowledge::Unanswered {
            self.release().await;
        }
    }

    /// Gives the lease back, if it is ours.
    pub(super) async fn release(&mut self) {
        let lease = self.story.lease.clone();
        let problem = match timeout(RELEASE, self.try_release()).await {
            Ok(Ok(())) => return tracing::info!(lease, "the lease is given back"),
            Ok(Err(error)) => describe(&error),
            Err(_elapsed) => no_answer(RELEASE),
        };
        let seconds = self.options.timing.lease_seconds();
        tracing::warn!(lease, problem, "the lease is not given back: another process waits {seconds} s for it");
    }

    async fn try_release(&mut self) -> kube::Result<()> {
        loop {
            if self.knowledge != Knowledge::Current {
                self.read().await?;
            }
            let Some(released) = self.election.release(Timestamp::now()) else { return Ok(()) };
            match self.api.replace(&self.options.name, &PostParams::default(), &released).await {
                // A renewal that was cut off arrived late, or somebody else wrote.
                Err(error) if is_race(&error) => self.knowledge = Knowledge::Stale,
                done => return done.map(drop),
            }
        }
    }

    /// One try to take or renew the lease, told if it fails, and bounded: a call may hang for ever.
    async fn attempt(&mut self) -> Try {
        let limit = self.timing().try_timeout();
        let problem = match timeout(limit, self.take_or_renew()).await {
            Ok(Ok(done)) => {
                self.story.well();
                if let Try::Theirs { holder } = &done {
                    self.story.held_by(holder);
                }
                return done;
            }
            Ok(Err(error)) => describe(&error),
            Err(_elapsed) => no_answer(limit),
        };
        self.story.tell(problem);
        Try::Failed
    }

    async fn take_or_renew(&mut self) -> kube::Result<Try> {
        match self.write().await {
            // Somebody else wrote: what he wrote decides.
            Err(error) if is_race(&error) => {
                self.knowledge = Knowledge::Stale;
                self.write().await
            }
            done => done,
        }
    }

    async fn write(&mut self) -> kube::Result<Try> {
        if self.knowledge != Knowledge::Current {
            self.read().await?;
        }
        // The term counts from here, for whoever sees the write starts counting later.
        let sent = Instant::now();
        let step = self.election.step(sent, Timestamp::now());
        let params = PostParams::default();
        self.knowledge = Knowledge::Unanswered;
        let written = match &step {
            Step::Create(lease) => self.api.create(&params, lease).await,
            Step::Replace(lease) => self.api.replace(&self.options.name, &params, lease).await,
            Step::Wait { holder, .. } => {
                self.knowledge = Knowledge::Stale;
                return Ok(Try::Theirs { holder: holder.clone() });
            }
        };
        if matches!(written, Err(kube::Error::Api(_))) {
            self.knowledge = Knowledge::Stale;
        }
        self.election.observe(Some(written?), Instant::now());
        self.knowledge = Knowledge::Current;
        Ok(Try::Ours { since: sent })
    }

    async fn read(&mut self) -> kube::Result<()> {
        let found = self.api.get_opt(&self.options.name).await?;
        self.election.observe(found, Instant::now());
        Ok(())
    }

    /// Waits until it is time for another try: when the retry period is over, when the holder has been silent
    /// for too long, or at once when the watch tells that nobody holds the lease.
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
                // The tries go on without it; they tell what is wrong, and the watch begins itself anew.
                Ok(Some(Err(error))) => tracing::debug!(%error, lease = self.story.lease, "watching the lease"),
                Ok(None) => *changes = self.changes(),
                Err(_elapsed) => return,
            }
        }
    }

    /// What the Lease becomes. Only a hint when to look: it may be late, or silent.
    fn changes(&self) -> Changes {
        watcher::watch_object(self.api.clone(), &self.options.name).default_backoff().boxed()
    }
}

impl Knowledge {
    /// An unanswered write stays one until it is known what came of it.
    fn to_be_read(self) -> Self {
        match self {
            Self::Unanswered => Self::Unanswered,
            Self::Current | Self::Stale => Self::Stale,
        }
    }
}

/// Tells in the log what changes, once.
struct Story {
    /// `namespace/name`.
    lease: String,
    holder: Option<String>,
    problem: Option<String>,
}

impl Story {
    fn held_by(&mut self, holder: &str) {
        if self.holder.as_deref() != Some(holder) {
            tracing::info!(lease = self.lease, holder, "standing by: another process leads");
            self.holder = Some(holder.to_owned());
        }
    }

    fn tell(&mut self, problem: String) {
        if self.problem.as_deref() != Some(&problem) {
            tracing::warn!(lease = self.lease, problem, "the lease can neither be taken nor renewed; trying again");
            self.problem = Some(problem);
        }
    }

    fn well(&mut self) {
        if self.problem.take().is_some() {
            tracing::info!(lease = self.lease, "what was in the way of the lease is gone");
        }
    }
}

/// client-go's: 1 to 2.2 periods, so that processes which started together do not ask together.
fn jittered(period: Duration) -> Duration {
    period.mul_f64(1.0 + rand::random::<f64>() * JITTER)
}

/// Somebody else wrote, created or deleted it since it was read.
fn is_race(error: &kube::Error) -> bool {
    // A missing namespace is a 404, too, and no race: nothing was there before either.
    matches!(error, kube::Error::Api(status) if status.code == 409 || status.code == 404 && !is_namespace(status))
}

fn is_namespace(status: &kube::core::Status) -> bool {
    status.details.as_ref().is_some_and(|details| details.kind == "namespaces")
}

fn no_answer(limit: Duration) -> String {
    format!("the API server has not answered within {} s", limit.as_secs_f64())
}

/// What is wrong, the same for the same cause, and what to do about it.
fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 => format!(
            "{}: give this account the Role of deploy/operator.yaml, with the name and the namespace of this lease",
            status.message
        ),
        kube::Error::Api(status) if is_namespace(status) => {
            format!("{}: create it, or name another one for the lease", status.message)
        }
        kube::Error::Api(status) => format!("{} ({})", status.message, status.code),
        // With the innermost cause; those around it only say that there is one.
        error => {
            let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
            let cause = causes.last().map(ToString::to_string).unwrap_or_default();
            format!("the API server cannot be reached: {cause}")
        }
    }
}
