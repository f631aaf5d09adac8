//! Traces, as a collector of OpenTelemetry gets them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::http::request::Parts;
use hyper::{Request, Response};
use kube::ResourceExt as _;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1;
use prost::Message as _;
use provisioner_conformance::proxy::{Described, Pending, Upstream, respond};

use crate::support::World;
use crate::support::operator::Binary;
use crate::support::proxy::{Proxy, Verdict};
use provisioner_conformance::assert_hidden;

/// Spans are sent soon, because the tests wait for them.
const SOON: (&str, &str) = ("OTEL_BSP_SCHEDULE_DELAY", "50");

/// All attributes that spans of a claim without problems have; docs/metrics.md#traces explains them.
const ATTRIBUTES: [&str; 10] = [
    "attempt",
    "claim.name",
    "claim.namespace",
    "claim.uid",
    "class",
    "http.response.status_code",
    "operation",
    "resource",
    "result",
    "service",
];

/// What it has got: bodies of requests.
#[derive(Clone, Default)]
pub(crate) struct Collector(Arc<Mutex<Vec<Bytes>>>);

impl Upstream for Collector {
    fn describe(&self, parts: &Parts, _: &Bytes) -> Described {
        Described { name: format!("{} {}", parts.method, parts.uri.path()), mutates: true, note: None }
    }

    fn send(&self, request: Request<Full<Bytes>>) -> Pending {
        let got = Arc::clone(&self.0);
        Box::pin(async move {
            let body = request.into_body().collect().await?.to_bytes();
            got.lock().unwrap().push(body);
            Ok(respond(Response::new(Bytes::new())))
        })
    }
}

/// A span, as it is read.
#[derive(Debug)]
pub(crate) struct Span {
    name: String,
    id: Vec<u8>,
    parent: Vec<u8>,
    pub(crate) trace: String,
    begin: u64,
    end: u64,
    attributes: BTreeMap<String, String>,
    /// Why it failed.
    error: Option<String>,
    /// The service of the resource.
    of: String,
}

impl Span {
    fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }
}

impl Collector {
    pub(crate) async fn start() -> Proxy<Self> {
        Proxy::start(Self::default()).await
    }

    fn bytes(&self) -> Vec<Bytes> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        let mut spans = Vec::new();
        for body in self.bytes() {
            for resource in ExportTraceServiceRequest::decode(body).unwrap().resource_spans {
                let service = resource.resource.map(|resource| attributes(resource.attributes)).unwrap_or_default();
                for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                    let failed = span.status.filter(|status| status.code == v1::status::StatusCode::Error as i32);
                    spans.push(Span {
                        name: span.name,
                        id: span.span_id,
                        parent: span.parent_span_id,
                        trace: span.trace_id.iter().map(|byte| format!("{byte:02x}")).collect(),
                        begin: span.start_time_unix_nano,
                        end: span.end_time_unix_nano,
                        attributes: attributes(span.attributes),
                        error: failed.map(|status| status.message),
                        of: service.get("service.name").cloned().unwrap_or_default(),
                    });
                }
            }
        }
        spans
    }
}

fn attributes(all: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |value| match value {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    all.into_iter().filter_map(|entry| Some((entry.key, text(entry.value?.value?)))).collect()
}

/// Requires a span of this name in one of that name.
pub(crate) fn assert_child(spans: &[Span], name: &str, parent: &str) {
    let is_parent = |id: &[u8]| spans.iter().any(|span| span.id == id && span.name == parent);
    let is_there = spans.iter().any(|span| span.name == name && is_parent(&span.parent));
    assert!(is_there, "no {name:?} in {parent:?}: {spans:#?}");
}

pub(crate) fn trace_of(uid: &str) -> String {
    uid.replace('-', "")
}

fn start(world: &World, collector: &Proxy<Collector>, args: &[&str], environment: &[(&str, &str)]) -> Binary {
    let args = [&["--otlp-endpoint", &collector.url], args].concat();
    Binary::start(world, &args, &[&[SOON], environment].concat())
}

async fn stop(mut operator: Binary) -> String {
    operator.terminate();
    operator.ended(Duration::from_secs(10)).await;
    operator.log()
}

#[tokio::test]
async fn all_spans_of_a_claim_are_one_trace_with_its_uid() {
    let (world, collector) = (World::new().await, Collector::start().await);
    let owner_key = format!("owner-secret-{}", world.id);
    world.owner_secret("owner", &[("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", &owner_key)]).await;
    let class = world.class("greenfield").await;
    // The most talkative log there is: what libraries tell is not sent all the same.
    let operator = start(&world, &collector, &["-v=9"], &[("RUST_LOG", "trace")]);
    let uid = world.claim("photos", &class).await.uid().unwrap();
    world.wait_bound("photos").await;
    let key = world.environment("photos").await["AWS_SECRET_ACCESS_KEY"].clone();
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    // What is left is sent before it ends.
    let log = stop(operator).await;

    let spans = collector.upstream().spans();
    let foreign: Vec<_> = spans.iter().filter(|span| span.trace != trace_of(&uid)).collect();
    assert!(foreign.is_empty() && !spans.is_empty(), "{foreign:#?}");
    assert!(spans.iter().all(|span| span.of == "aws-s3-provisioner"), "{spans:#?}");
    let ids: BTreeMap<_, _> = spans.iter().map(|span| (span.id.as_slice(), span)).collect();
    for span in &spans {
        let Some(parent) = ids.get(span.parent.as_slice()) else {
            assert!(span.parent.is_empty() && ["attempt", "wait for keys"].contains(&&*span.name), "{span:#?}");
            assert_eq!(span.attribute("claim.namespace"), world.namespace, "{span:#?}");
            assert_eq!((span.attribute("claim.name"), span.attribute("class")), ("photos", &*class), "{span:#?}");
            continue;
        };
        assert!(
            parent.begin <= span.begin && span.begin <= span.end && span.end <= parent.end,
            "{span:#?} {parent:#?}"
        );
        // Libraries would tell more of a call.
        assert_eq!(parent.attribute("service"), "", "{span:#?} {parent:#?}");
    }
    let names: BTreeSet<_> = spans.iter().flat_map(|span| span.attributes.keys().map(String::as_str)).collect();
    assert_eq!(names, ATTRIBUTES.into());
    let child_of = |name, parent| assert_child(&spans, name, parent);
    for step in ["Look", "AddFinalizer", "Execute(Provision)", "Probe", "UpdateStatus", "Undo(Delete)", "Release"] {
        child_of(step, "attempt");
    }
    child_of("s3 CreateBucket", "Execute(Provision)");
    child_of("iam CreateUser", "Execute(Provision)");
    child_of("s3 DeleteBucket", "Undo(Delete)");
    child_of("kubernetes patch objectbucketclaims/status", "UpdateStatus");
    child_of("kubernetes post secrets", "WriteSecret");
    // Each call to AWS, and no other.
    let traced = spans.iter().filter(|span| ["s3", "iam", "sts"].contains(&span.attribute("service")));
    let mut traced: Vec<_> = traced.map(|span| span.attribute("operation").to_owned()).collect();
    let mut called = world.aws.names();
    traced.sort();
    called.sort();
    assert_eq!(traced, called);

    let sent = format!("{:?}", collector.upstream().bytes());
    assert_hidden(&key, &[("traces".to_owned(), sent.clone())]);
    assert_hidden(&owner_key, &[("traces".to_owned(), sent)]);
    assert!(!log.contains("provisioner_traces") && !log.contains("attempt{otel"), "lines are as without traces: {log}");
}

#[tokio::test]
async fn a_trace_shows_what_failed_and_why() {
    let (world, collector) = (World::new().await, Collector::start().await);
    let class = world.class("greenfield").await;
    world.aws.inject(|call| match call.name.as_str() {
        "CreateUser" => Verdict::Answer(
            403,
            "<ErrorResponse><Error><Code>AccessDenied</Code><Message>not you</Message></Error></ErrorResponse>".into(),
        ),
        _ => Verdict::Pass,
    });
    // As collectors that are injected tell it.
    let variables = [SOON, ("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url), ("OTEL_SERVICE_NAME", "buckets")];
    let operator = Binary::start(&world, &[], &variables);
    let uid = world.claim("photos", &class).await.uid().unwrap();
    world.wait_reason("photos", "AccessDenied").await;
    stop(operator).await;

    let spans = collector.upstream().spans();
    let find = |name: &str| {
        let failed = spans.iter().find(|span| span.name == name && span.error.is_some());
        failed.unwrap_or_else(|| panic!("no failed {name:?}: {spans:#?}"))
    };
    let call = find("iam CreateUser");
    assert_eq!(call.error.as_deref(), Some("AccessDenied: not you"));
    assert_eq!((call.attribute("error.type"), call.attribute("http.response.status_code")), ("denied", "403"));
    for name in ["Execute(Provision)", "attempt"] {
        let span = find(name);
        assert_eq!(span.attribute("error.type"), "AccessDenied", "{span:#?}");
        assert!(span.error.as_ref().unwrap().contains("iam:CreateUser"), "{span:#?}");
    }
    assert_eq!(find("attempt").attribute("result"), "failed");
    assert_child(&spans, "kubernetes patch objectbucketclaims/status", "attempt");
    assert!(spans.iter().any(|span| span.name == "s3 CreateBucket" && span.error.is_none()), "{spans:#?}");
    assert!(spans.iter().all(|span| span.of == "buckets" && span.trace == trace_of(&uid)), "{spans:#?}");
    assert_eq!(collector.calls()[0].target, "/v1/traces");
}

#[tokio::test]
async fn an_unreachable_collector_is_logged_once_and_stops_nothing() {
    let (world, collector) = (World::new().await, Collector::start().await);
    let class = world.class("greenfield").await;
    collector.inject(|_| Verdict::Hang);
    let operator = start(&world, &collector, &[], &[("OTEL_EXPORTER_OTLP_TIMEOUT", "100")]);
    world.claim("first", &class).await;
    world.wait_bound("first").await;
    operator.wait_log("traces are lost, because").await;
    world.delete_claim("first").await;
    world.wait_gone("first").await;
    collector.wait_until("some requests", |calls| calls.len() > 2).await;
    // It answers again.
    collector.leave_alone();
    world.claim("second", &class).await;
    world.wait_bound("second").await;
    operator.wait_log("the collector takes traces; spans were lost before").await;
    assert_eq!(operator.log().matches("traces are lost").count(), 1, "{}", operator.log());

    stop(operator).await;

    // An operator that ends does not wait as long as for an answer.
    collector.clear();
    collector.inject(|_| Verdict::Hang);
    let operator = start(&world, &collector, &[], &[("OTEL_EXPORTER_OTLP_TIMEOUT", "600000")]);
    world.delete_claim("second").await;
    world.wait_gone("second").await;
    collector.wait_until("a request", |calls| !calls.is_empty()).await;
    stop(operator).await;
}

#[tokio::test]
async fn a_standby_and_a_disabled_exporter_send_nothing() {
    let (world, collector, silence) = (World::new().await, Collector::start().await, Collector::start().await);
    let class = world.class("greenfield").await;
    let lease = ["--leader-elect=true", "--lease-namespace", &world.namespace];
    let leader = start(&world, &collector, &lease, &[]);
    leader.wait_log("serving claims").await;
    let standby = start(&world, &silence, &lease, &[]);
    standby.wait_log("on standby: another process leads").await;
    let uid = world.claim("photos", &class).await.uid().unwrap();
    world.wait_bound("photos").await;
    stop(standby).await;
    stop(leader).await;
    let traces: BTreeSet<_> = collector.upstream().spans().into_iter().map(|span| span.trace).collect();
    assert_eq!(traces, [trace_of(&uid)].into());
    let told_off = Binary::start(&world, &["--otlp-endpoint=off"], &[("OTEL_EXPORTER_OTLP_ENDPOINT", &silence.url)]);
    told_off.wait_log("serving claims").await;
    world.claim("documents", &class).await;
    world.wait_bound("documents").await;
    stop(told_off).await;
    assert!(silence.calls().is_empty(), "{:?}", silence.calls());
}

/// And claims are served.
#[tokio::test]
async fn an_unusable_collector_address_is_logged_with_the_remedy() {
    let world = World::new().await;
    let operator = Binary::start(&world, &["--otlp-endpoint=http://me:geheim@otel:4318"], &[]);
    operator.wait_log("traces are not exported: --otlp-endpoint: write the URL without user and password").await;
    operator.wait_log("serving claims").await;
    assert!(!operator.log().contains("geheim"), "{}", operator.log());
    // Somebody may have set that for all pods.
    let operator = Binary::start(&world, &[], &[("OTEL_EXPORTER_OTLP_ENDPOINT", "otel:4317")]);
    operator.wait_log("traces are not exported: OTEL_EXPORTER_OTLP_ENDPOINT is not usable").await;
    operator.wait_log("serving claims").await;
}
