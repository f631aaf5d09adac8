//! One attempt at what is due, and what follows from its failure.

use std::time::{Duration, Instant};

use tracing::{Instrument as _, Span};

use crate::decide::retry::Retry;
use crate::error::{VolumeError, VolumeErrorKind};
use crate::provisioner::VolumeProvisioner;
use crate::state::Context;
use crate::volume::VolumeToDelete;
use crate::wire;
use operator_runtime::engine::clock::AttemptClock;
use operator_runtime::engine::{self, Interrupted};
use operator_runtime::kubernetes::answers::{describe, status_code};
use operator_runtime::observe::spans;

/// Longest time a verb may take.
const TIME_LIMIT: Duration = Duration::from_secs(120);
/// Longest time of an attempt, in which three verbs may be called.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(420);
/// After a write at the same time, which wakes the claim anyway.
const RACE: Duration = Duration::from_secs(1);

/// Why an attempt ended.
#[derive(Debug)]
pub(crate) enum Failed {
    /// By a verb, or because of what the claim asks for.
    Verb(VolumeError),
    /// By Kubernetes: what was to be done there.
    Kubernetes(&'static str, kube::Error),
}

impl Failed {
    pub(crate) fn kubernetes(what: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |error| Self::Kubernetes(what, error)
    }

    /// What users read.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Verb(error) => error.to_string(),
            Self::Kubernetes(what, error) => format!("cannot {what}: {}", describe(error)),
        }
    }

    /// Somebody else may have written, so that this is seen again with what they wrote.
    fn may_be_race(&self) -> bool {
        matches!(self, Self::Kubernetes(_, error) if matches!(status_code(error), Some(404 | 409)))
    }

    /// Its kind, for traces.
    fn word(&self) -> &'static str {
        match self {
            Self::Kubernetes(..) => "Kubernetes",
            Self::Verb(error) => match error.kind() {
                VolumeErrorKind::InProgress => "InProgress",
                VolumeErrorKind::Ignored => "Ignored",
                VolumeErrorKind::Terminal => "Terminal",
                VolumeErrorKind::WrongNode => "WrongNode",
                VolumeErrorKind::Retryable => "Retryable",
                VolumeErrorKind::Refused => "Refused",
            },
        }
    }

    pub(crate) fn kind(&self) -> VolumeErrorKind {
        match self {
            Self::Verb(error) => error.kind(),
            Self::Kubernetes(..) => VolumeErrorKind::Retryable,
        }
    }
}

/// Volumes have no rate limiter.
fn clock() -> AttemptClock {
    AttemptClock::new(false, |_| {})
}

/// Whether a PersistentVolume is this instance's: by its annotation, and then by the provisioner's own check.
///
/// # Errors
/// Ignored if it is another instance's; any other error if that is unknown.
pub(crate) fn check_owner<P: VolumeProvisioner>(ctx: &Context<P>, volume: &VolumeToDelete) -> Result<(), VolumeError> {
    match volume.annotation(wire::IDENTITY) {
        Some(identity) if identity != ctx.who.identity => {
            Err(VolumeError::ignored(format!("the volume is that of instance {identity:?}")))
        }
        _ => ctx.provisioner.check_owner(volume),
    }
}

/// Does an attempt, whose panic ends no other. `traced`: its span.
///
/// # Errors
/// Its own, or a retryable one.
pub(crate) async fn guarded<T>(traced: Span, work: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
    let done = engine::guarded(clock(), ATTEMPT_LIMIT, work.instrument(traced.clone())).await;
    let done = done.unwrap_or_else(|interrupted| {
        Err(Failed::Verb(VolumeError::retryable(match interrupted {
            Interrupted::Panicked => "the provisioner panicked; see its log".to_owned(),
            Interrupted::Working | Interrupted::Waiting => {
                format!("Kubernetes did not answer within {} s", ATTEMPT_LIMIT.as_secs())
            }
        })))
    });
    if let Err(failed) = &done
        && failed.kind() != VolumeErrorKind::Ignored
        && !failed.may_be_race()
    {
        spans::failed(&traced, failed.word(), &failed.message());
    }
    done
}

/// Awaits a verb for a volume of this class: at most for two minutes, and whatever it does. If none of a class returns in
/// time, its claims get few workers, until one does.
///
/// # Errors
/// The verb's own, or a retryable one.
pub(crate) async fn verb<P, T>(
    ctx: &Context<P>,
    class: &str,
    name: &str,
    verb: impl Future<Output = Result<T, VolumeError>>,
) -> Result<T, Failed> {
    if !ctx.options.permit.holds() {
        return Err(Failed::Verb(VolumeError::retryable("this process no longer holds the lease")));
    }
    // Boxed, because a verb can be large.
    let verb = Box::pin(verb).instrument(spans::step(&format_args!("{name}")));
    let (asked, began) = (ctx.workers.ask(class.into()), Instant::now());
    let answer = match engine::guarded(clock(), TIME_LIMIT, verb).await {
        Ok(answer) => {
            asked.answered();
            answer
        }
        Err(Interrupted::Panicked) => {
            asked.answered();
            Err(VolumeError::retryable(format!("{name} panicked; see the provisioner's log")))
        }
        Err(Interrupted::Working | Interrupted::Waiting) => {
            asked.failed();
            Err(VolumeError::retryable(format!("{name} took longer than {} s", TIME_LIMIT.as_secs())))
        }
    };
    let (metrics, took) = (&ctx.metrics, began.elapsed());
    let is_over = |error: &VolumeError| !matches!(error.kind(), VolumeErrorKind::InProgress | VolumeErrorKind::Ignored);
    if answer.as_ref().err().is_none_or(is_over) {
        match name {
            "delete" => metrics.deleted(class, answer.is_ok(), took),
            _ => metrics.provisioned(class, answer.is_ok(), took),
        }
    }
    if let Some(source) = answer.as_ref().err().and_then(std::error::Error::source) {
        tracing::debug!(class, verb = name, "caused by: {source}");
    }
    answer.map_err(Failed::Verb)
}

/// When to try again after a failure, and the message of its event, if there is one. `namespace` is that of the claim.
pub(crate) fn after<P>(
    ctx: &Context<P>,
    uid: &str,
    namespace: &str,
    failed: &Failed,
    retry: &Retry,
) -> (Option<Duration>, Option<String>) {
    if failed.may_be_race() && ctx.memory.raced(uid) {
        return (Some(RACE), None);
    }
    let (message, resync) = (failed.message(), ctx.options.resync_period);
    match failed.kind() {
        VolumeErrorKind::Ignored => {
            ctx.memory.set_wait(uid, resync);
            (Some(resync), None)
        }
        VolumeErrorKind::InProgress => {
            let (wait, is_first) = ctx.memory.polled(uid, retry);
            // The message may change each time.
            (Some(wait), Some(message).filter(|_| is_first))
        }
        VolumeErrorKind::Terminal | VolumeErrorKind::WrongNode => {
            ctx.memory.set_wait(uid, resync);
            (Some(resync), Some(message))
        }
        VolumeErrorKind::Retryable | VolumeErrorKind::Refused => {
            let (wait, given_up) = ctx.memory.failed(uid, namespace, retry, resync);
            let message = match given_up {
                true => format!("{message}; giving up after {} attempts", retry.threshold.unwrap_or_default()),
                false => message,
            };
            (Some(wait), Some(message))
        }
    }
}
