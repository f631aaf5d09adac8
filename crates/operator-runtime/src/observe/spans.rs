//! The spans of which traces consist, each defined here once: attempts, and in them steps, and in these calls. What they
//! say is explained in `docs/metrics.md#traces`.
//!
//! Without an exporter they are disabled, and cost as much as a log line that nobody wants.

use std::fmt::{Debug, Display};

use tracing::field::{Empty, display};
use tracing::{Span, info_span};

/// The target of these spans, and of no others. Those of libraries are never exported, because they can hold secrets; and
/// logs do not show these.
pub const TARGET: &str = "provisioner_traces";
/// The attribute of [`attempt`] that makes a trace of all attempts for one claim.
#[cfg(feature = "otel")]
pub const CLAIM_UID: &str = "claim.uid";

/// The claim that an attempt is for.
#[derive(Debug, Clone, Copy)]
pub struct SpanTarget<'a> {
    /// The namespace of the claim.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its uid: all attempts for one claim are one trace.
    pub uid: &'a str,
    /// The name of its class; empty if it is not known.
    pub class: &'a str,
}

/// An attempt at what is due for a claim. `what` is the kind of the attempt, and the name of the span.
pub fn attempt(what: &'static str, target: SpanTarget<'_>) -> Span {
    info_span!(
        target: TARGET,
        "attempt",
        otel.name = what,
        claim.namespace = target.namespace,
        claim.name = target.name,
        claim.uid = target.uid,
        class = target.class,
        attempt = Empty,
        result = Empty,
        error.type = Empty,
        otel.status_description = Empty,
    )
}

/// A step of an attempt, which has the name of the step in the code.
pub fn step(step: &dyn Debug) -> Span {
    info_span!(target: TARGET, "step", otel.name = ?step, error.type = Empty, otel.status_description = Empty)
}

/// A call within a step. `resource`: what it is about.
pub fn call(service: &'static str, operation: &dyn Display, resource: &dyn Display) -> Span {
    info_span!(
        target: TARGET,
        "call",
        otel.name = %format_args!("{service} {operation}"),
        otel.kind = "client",
        service,
        operation = %operation,
        resource = %resource,
        http.response.status_code = Empty,
        error.type = Empty,
        otel.status_description = Empty,
    )
}

/// It has failed. `kind`: one of few, such as the reason that a claim shows.
pub fn failed(span: &Span, kind: &str, problem: &dyn Display) {
    span.record("error.type", kind);
    // This sets the status, too.
    span.record("otel.status_description", display(problem));
}
