//! Which trace a span is in. All attempts for one claim are one trace, whose id is the claim's uid: both are 128 bits. So
//! anybody who has the claim finds its trace, and attempts of different processes meet.

use std::cell::Cell;

use opentelemetry::trace::{Link, SpanBuilder, SpanId, SpanKind, TraceContextExt as _, TraceId, Tracer};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, SamplingResult, SdkTracer, ShouldSample, Span};

use crate::observe::spans::CLAIM_UID;

thread_local! {
    /// The id of the trace that begins next. The SDK passes nothing about the span to a generator of ids.
    static NEXT: Cell<Option<TraceId>> = const { Cell::new(None) };
}

/// Begins spans; those without a parent in the trace of their claim.
#[derive(Debug)]
pub(super) struct ClaimTracer(SdkTracer);

impl ClaimTracer {
    pub(super) fn new(tracer: SdkTracer) -> Self {
        Self(tracer)
    }
}

impl Tracer for ClaimTracer {
    type Span = Span;

    fn build_with_context(&self, builder: SpanBuilder, parent: &Context) -> Span {
        if parent.span().span_context().is_valid() {
            return self.0.build_with_context(builder, parent);
        }
        let uid = builder.attributes.iter().flatten().find(|attribute| attribute.key.as_str() == CLAIM_UID);
        let Some(id) = uid.and_then(|uid| trace_id(&uid.value.as_str())) else {
            // A call that belongs to no attempt.
            return self.0.build_with_context(builder, &parent.with_telemetry_suppressed());
        };
        NEXT.set(Some(id));
        let span = self.0.build_with_context(builder, parent);
        NEXT.set(None);
        span
    }
}

/// The uid as the id of a trace.
fn trace_id(uid: &str) -> Option<TraceId> {
    let digits = uid.replace('-', "");
    let id = TraceId::from_hex(&digits).ok()?;
    (digits.len() == 32 && id != TraceId::INVALID).then_some(id)
}

/// Gives the next trace the id that is meant for it.
#[derive(Debug, Default)]
pub(super) struct ClaimIds(RandomIdGenerator);

impl IdGenerator for ClaimIds {
    fn new_trace_id(&self) -> TraceId {
        NEXT.take().unwrap_or_else(|| self.0.new_trace_id())
    }

    fn new_span_id(&self) -> SpanId {
        self.0.new_span_id()
    }
}

/// Samples by the part of the id that is random. A ratio compares the id's second half with a threshold, beginning with
/// its highest bits, and in a uid these say which kind of uid it is (RFC 9562: 10 in binary, always).
#[derive(Debug, Clone)]
pub(super) struct ClaimSampler(Box<dyn ShouldSample>);

impl ClaimSampler {
    pub(super) fn new(sampler: Box<dyn ShouldSample>) -> Self {
        Self(sampler)
    }
}

impl ShouldSample for ClaimSampler {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        id: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        let id = u128::from_be_bytes(id.to_bytes());
        // Without the byte that has these bits.
        let random = TraceId::from(id & !u128::from(u64::MAX) | id << 8 & u128::from(u64::MAX));
        self.0.should_sample(parent, random, name, kind, attributes, links)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use opentelemetry_sdk::trace::{Sampler, SamplingDecision};

    use super::*;

    #[test]
    fn the_id_of_a_trace_is_the_uid_of_its_claim() {
        let id = trace_id("0189f7e5-6c1a-4d3b-9f00-00a1b2c3d4e5").unwrap();
        assert_eq!(id.to_string(), "0189f7e56c1a4d3b9f0000a1b2c3d4e5");
        for odd in ["", "photos", "00000000-0000-0000-0000-000000000000", "0189f7e5"] {
            assert_eq!(trace_id(odd), None, "{odd}");
        }
    }

    #[test]
    fn a_ratio_is_one_of_uids_too() {
        let sampler = ClaimSampler::new(Box::new(Sampler::TraceIdRatioBased(0.25)));
        let sampled = (0..1000).filter(|_| {
            // Version 4, variant 10, as the API server makes them.
            let uid = rand::random::<u128>() & !(0xf << 76) & !(0b11 << 62) | 4 << 76 | 0b10 << 62;
            let result = sampler.should_sample(None, TraceId::from(uid), "attempt", &SpanKind::Internal, &[], &[]);
            result.decision == SamplingDecision::RecordAndSample
        });
        let sampled = sampled.count();
        assert!((150..350).contains(&sampled), "{sampled} of 1000");
    }
}
