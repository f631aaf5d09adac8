//! Attempts and their steps, as traces show them.

use std::pin::Pin;

use tracing::{Instrument as _, Span};

use crate::error::Error;
use crate::store::{ClaimId, Failure as _};
use operator_runtime::observe::spans::{self, SpanTarget};

/// An attempt for this claim. `class`: the name of its class; empty if it is not known.
pub(super) fn attempt(what: &'static str, claim: &ClaimId, class: &str) -> Span {
    let ClaimId { namespace, name, uid } = claim;
    spans::attempt(what, SpanTarget { namespace, name, uid, class })
}

/// The step before the first: what there is, and what is to be done.
#[derive(Debug)]
pub(super) struct Look;

/// Does one step of an attempt, whose future stays where it was made: it holds all that the step may ever need, and each
/// move would copy that.
///
/// # Errors
/// Its own.
pub(super) async fn traced<T>(span: Span, work: Pin<&mut impl Future<Output = Result<T, Error>>>) -> Result<T, Error> {
    let done = work.instrument(span.clone()).await;
    if let Err(problem) = &done {
        failed(&span, problem);
    }
    done
}

/// An attempt, or a step of it, has failed.
pub(super) fn failed(span: &Span, problem: &Error) {
    // Somebody wrote at the same time, and what they wrote is read: nothing is wrong.
    if !problem.is_race() {
        spans::failed(span, problem.reason(), problem);
    }
}
