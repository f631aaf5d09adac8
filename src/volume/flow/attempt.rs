//! One attempt at what is due, and what follows from its failure.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt as _;
use kube::runtime::controller::Action;

use crate::kubernetes::answers::{describe, status_code};
use crate::volume::decide::retry::Retry;
use crate::volume::error::{VolumeError, VolumeErrorKind};
use crate::volume::state::Context;

/// Longest time a verb may take.
const TIME_LIMIT: Duration = Duration::from_secs(120);
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

    /// Somebody else has written, so that this is seen again with what they wrote.
    pub(crate) fn is_race(&self) -> bool {
        matches!(self, Self::Kubernetes(_, error) if matches!(status_code(error), Some(404 | 409)))
    }

    pub(crate) fn kind(&self) -> VolumeErrorKind {
        match self {
            Self::Verb(error) => error.kind(),
            Self::Kubernetes(..) => VolumeErrorKind::Retryable,
        }
    }
}

/// Awaits a verb: at most for two minutes, and whatever it does.
///
/// # Errors
/// The verb's own, or a retryable one.
pub(crate) async fn verb<P, T>(
    ctx: &Context<P>,
    name: &str,
    verb: impl Future<Output = Result<T, VolumeError>>,
) -> Result<T, Failed> {
    if !ctx.options.permit.holds() {
        return Err(Failed::Verb(VolumeError::retryable("this process no longer holds the lease")));
    }
    // Boxed, because a verb can be large.
    let verb = AssertUnwindSafe(Box::pin(verb)).catch_unwind();
    let answer = match tokio::time::timeout(TIME_LIMIT, verb).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_panic)) => Err(VolumeError::retryable(format!("{name} panicked; see the provisioner's log"))),
        Err(_elapsed) => Err(VolumeError::retryable(format!("{name} took longer than {} s", TIME_LIMIT.as_secs()))),
    };
    answer.map_err(Failed::Verb)
}

/// When to try again after a failure, and what is to be said about it, if anything.
pub(crate) fn after<P>(ctx: &Context<P>, uid: &str, failed: &Failed, retry: &Retry) -> (Action, Option<String>) {
    if failed.is_race() {
        return (Action::requeue(RACE), None);
    }
    let (message, resync) = (failed.message(), ctx.options.resync_period);
    match failed.kind() {
        VolumeErrorKind::Ignored => {
            ctx.memory.rests(uid, resync);
            (Action::requeue(resync), None)
        }
        VolumeErrorKind::InBackground => {
            let (wait, is_first) = ctx.memory.polled(uid, retry);
            // What it says may change each time.
            (Action::requeue(wait), Some(message).filter(|_| is_first))
        }
        VolumeErrorKind::Terminal | VolumeErrorKind::WrongNode => {
            ctx.memory.rests(uid, resync);
            (Action::requeue(resync), Some(message))
        }
        VolumeErrorKind::Retryable => {
            let (wait, given_up) = ctx.memory.failed(uid, retry, resync);
            let message = match given_up {
                true => format!("{message}; giving up after {} attempts", ctx.memory.failures(uid)),
                false => message,
            };
            (Action::requeue(wait), Some(message))
        }
    }
}
