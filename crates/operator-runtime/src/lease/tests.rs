//! The whole election, with an API server in memory and time that the tests control. Long, because all of them share that
//! server.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::client::Body;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};
use tower::BoxError;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Stores one Lease in each namespace like the API server: refuses a write with an outdated resource version.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    leases: BTreeMap<String, Lease>,
    version: u64,
    weather: Weather,
    /// The account may use no Lease in this namespace.
    forbidden: Option<&'static str>,
    /// The calls, with their times.
    calls: Vec<(Instant, Method)>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
enum Weather {
    #[default]
    Fine,
    /// Writes take effect at once, and are answered three seconds later.
    Slow,
    /// Calls are never answered, and have no effect.
    Hangs,
    /// Writes take effect, and are never answered.
    LosesAnswers,
    Refuses(StatusCode),
}

impl Server {
    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let is_watch = parts.uri.query().is_some_and(|query| query.contains("watch"));
                let body = body.collect().await?.to_bytes();
                let weather = server.with(|state| state.weather);
                if is_watch || weather == Weather::Hangs {
                    std::future::pending::<()>().await;
                }
                let answer = server.answer(&parts.method, parts.uri.path(), &body);
                if weather == Weather::Slow && parts.method != Method::GET {
                    sleep(3 * SECOND).await;
                }
                if weather == Weather::LosesAnswers && parts.method != Method::GET {
                    std::future::pending::<()>().await;
                }
                Ok::<_, BoxError>(answer)
            }
        });
        Client::new(service, "ns")
    }

    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> Response<Body> {
        let namespace = path.split('/').skip_while(|part| *part != "namespaces").nth(1).unwrap();
        let is_named = !path.ends_with("/leases");
        self.with(|state| {
            if is_named || *method != Method::GET {
                state.calls.push((Instant::now(), method.clone()));
            }
            if let Weather::Refuses(status) = state.weather {
                return failure(status);
            }
            if state.forbidden == Some(namespace) {
                return failure(StatusCode::FORBIDDEN);
            }
            let (has, mut sent) = (state.leases.get(namespace).cloned(), serde_json::from_slice::<Lease>(body).ok());
            match (method, is_named, &mut sent) {
                (&Method::GET, false, _) => {
                    let list = serde_json::json!({
                        "apiVersion": "coordination.k8s.io/v1", "kind": "LeaseList",
                        "metadata": { "resourceVersion": "1" }, "items": Vec::from_iter(has),
                    });
                    Response::new(Body::from(list.to_string().into_bytes()))
                }
                (&Method::GET, ..) => has.map_or_else(|| failure(StatusCode::NOT_FOUND), |lease| success(&lease)),
                (&Method::POST, _, Some(lease)) if has.is_none() => state.store(namespace, lease),
                (&Method::PUT, _, Some(lease)) => match has {
                    Some(has) if has.metadata.resource_version == lease.metadata.resource_version => {
                        state.store(namespace, lease)
                    }
                    Some(_) => failure(StatusCode::CONFLICT),
                    None => failure(StatusCode::NOT_FOUND),
                },
                _ => failure(StatusCode::CONFLICT),
            }
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }

    fn weather(&self, weather: Weather) {
        self.with(|state| state.weather = weather);
    }

    /// Another process takes the Lease.
    fn held_by(&self, holder: &str) {
        self.with(|state| {
            let mut lease = state.leases.get("ns").cloned().unwrap_or_default();
            lease.metadata.name = Some("l".to_owned());
            let record = lease.spec.get_or_insert_default();
            record.holder_identity = Some(holder.to_owned());
            record.lease_duration_seconds = Some(15);
            state.store("ns", &mut lease);
        });
    }

    fn holder(&self) -> Option<String> {
        self.holder_in("ns")
    }

    fn holder_in(&self, namespace: &str) -> Option<String> {
        self.with(|state| state.leases.get(namespace)?.spec.clone()?.holder_identity)
    }
}

impl State {
    fn store(&mut self, namespace: &str, lease: &mut Lease) -> Response<Body> {
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        self.leases.insert(namespace.to_owned(), lease.clone());
        success(lease)
    }
}

fn success(lease: &Lease) -> Response<Body> {
    Response::new(Body::from(serde_json::to_vec(lease).unwrap()))
}

fn failure(status: StatusCode) -> Response<Body> {
    let body = serde_json::json!({
        "kind": "Status", "status": "Failure", "message": "no", "code": status.as_u16(),
        "reason": status.canonical_reason().unwrap().replace(' ', ""),
    });
    let mut answer = Response::new(Body::from(body.to_string().into_bytes()));
    *answer.status_mut() = status;
    answer
}

fn options(identity: &str) -> Options {
    Options {
        namespace: "ns".to_owned(),
        name: "l".to_owned(),
        identity: identity.to_owned(),
        timing: Timing::default(),
        one_in_cluster: false,
    }
}

/// Leads until it is stopped; reports when the term began and why it was lost.
struct Leader {
    began: mpsc::UnboundedReceiver<(Instant, Term)>,
    stop: Option<oneshot::Sender<()>>,
    task: tokio::task::JoinHandle<Result<Option<()>, Lost>>,
}

impl Leader {
    fn start(server: &Server, identity: &str) -> Self {
        Self::with(server, options(identity))
    }

    /// One of an installation in this namespace, of which one works in the cluster.
    fn of_installation(server: &Server, namespace: &str) -> Self {
        Self::with(server, Options { namespace: namespace.to_owned(), one_in_cluster: true, ..options("pod") })
    }

    fn with(server: &Server, options: Options) -> Self {
        let (begin, began) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let client = server.client();
        let stopped = async move { drop(stopped.await) }.shared();
        let task = tokio::spawn(async move {
            lead(client, options, stopped.clone(), |term| {
                begin.send((Instant::now(), term)).unwrap();
                stopped.clone()
            })
            .await
        });
        Self { began, stop: Some(stop), task }
    }

    async fn began(&mut self) -> (Instant, Term) {
        timeout(600 * SECOND, self.began.recv()).await.expect("it leads").unwrap()
    }

    async fn lost(&mut self) -> Lost {
        let ended = timeout(600 * SECOND, &mut self.task).await.expect("it ends");
        ended.unwrap().expect_err("it was not asked to stop")
    }

    async fn stop(&mut self) -> Result<Option<()>, Lost> {
        self.stop.take().unwrap().send(()).unwrap();
        (&mut self.task).await.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_acquired_at_once() {
    let server = Server::default();
    let mut first = Leader::start(&server, "first");
    first.began().await;
    let mut second = Leader::start(&server, "second");
    sleep(100 * SECOND).await;
    assert_eq!(server.holder().as_deref(), Some("first"), "it is renewed");
    assert!(second.began.try_recv().is_err(), "nobody else works");
    assert_eq!(first.stop().await, Ok(Some(())));
    let released = Instant::now();
    let (began, _) = second.began().await;
    // The server's watch is silent, so the next attempt sees it, at the latest 2.2 retry periods later.
    assert!(began - released <= 5 * SECOND, "{:?}", began - released);
    let transitions = server.with(|state| state.leases["ns"].spec.as_ref().unwrap().lease_transitions);
    assert_eq!(transitions, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_silent_leader_has_stopped_before_another_starts() {
    for weather in [
        Weather::Hangs,
        Weather::LosesAnswers,
        Weather::Refuses(StatusCode::INTERNAL_SERVER_ERROR),
        Weather::Refuses(StatusCode::FORBIDDEN),
    ] {
        let server = Server::default();
        let mut first = Leader::start(&server, "first");
        let (began, term) = first.began().await;
        // Not at the time of a renewal.
        sleep(SECOND * 9 / 2).await;
        server.weather(weather);
        let lost = first.lost().await;
        assert!(matches!(lost, Lost::NotRenewed { .. }), "{weather:?}: {lost}");
        assert!(term.is_over());
        let last = began + 4 * SECOND + 10 * SECOND;
        assert_eq!(Instant::now(), last, "{weather:?}: ten seconds after the last renewal that is known");
        server.weather(Weather::Fine);
        let mut second = Leader::start(&server, "second");
        assert!(second.began().await.0 > last);
    }
}

/// Not from when it was answered.
#[tokio::test(start_paused = true)]
async fn a_term_counts_from_when_the_renewal_was_sent() {
    let server = Server::default();
    server.weather(Weather::Slow);
    let mut leader = Leader::start(&server, "first");
    let sent = Instant::now();
    let (began, _) = leader.began().await;
    assert_eq!(began - sent, 3 * SECOND);
    server.weather(Weather::Hangs);
    leader.lost().await;
    assert_eq!(sent.elapsed(), 10 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_costs_nobody_the_lease() {
    let server = Server::default();
    let mut leader = Leader::start(&server, "first");
    leader.began().await;
    for weather in [Weather::Hangs, Weather::LosesAnswers, Weather::Refuses(StatusCode::SERVICE_UNAVAILABLE)] {
        server.weather(weather);
        sleep(6 * SECOND).await;
        server.weather(Weather::Fine);
        sleep(20 * SECOND).await;
        assert!(!leader.task.is_finished(), "{weather:?}");
    }
    assert_eq!(leader.stop().await, Ok(Some(())));
    assert_eq!(server.holder().as_deref(), Some(""));
}

#[tokio::test(start_paused = true)]
async fn a_lease_held_by_another_is_lost_at_the_next_renewal() {
    let server = Server::default();
    let mut leader = Leader::start(&server, "first");
    let (_, term) = leader.began().await;
    server.held_by("other");
    let lost = timeout(3 * SECOND, &mut leader.task).await.unwrap().unwrap();
    assert_eq!(lost, Err(Lost::Taken { lease: "ns/l".to_owned(), holder: "other".to_owned() }));
    assert!(term.is_over());
    assert_eq!(server.holder().as_deref(), Some("other"), "it is not given back by who does not hold it");
}

#[tokio::test(start_paused = true)]
async fn a_foreign_write_that_keeps_the_holder_does_no_harm() {
    let server = Server::default();
    let mut leader = Leader::start(&server, "first");
    leader.began().await;
    server.held_by("first");
    sleep(20 * SECOND).await;
    // The Lease is deleted.
    server.with(|state| state.leases.clear());
    sleep(20 * SECOND).await;
    assert_eq!(server.holder().as_deref(), Some("first"));
    server.held_by("first");
    assert_eq!(leader.stop().await, Ok(Some(())));
    assert_eq!(server.holder().as_deref(), Some(""), "it is given back nevertheless");
}

#[tokio::test(start_paused = true)]
async fn slow_work_keeps_the_lease_until_it_has_ended() {
    let server = Server::default();
    let server_meanwhile = &server;
    let led = lead(server.client(), options("first"), std::future::pending(), |_| async move {
        sleep(60 * SECOND).await;
        server_meanwhile.holder()
    });
    assert_eq!(led.await, Ok(Some(Some("first".to_owned()))));
    assert_eq!(server.holder().as_deref(), Some(""));
}

/// Not even if the write that acquired it was never answered.
#[tokio::test(start_paused = true)]
async fn a_standby_that_stops_holds_no_lease() {
    let server = Server::default();
    server.held_by("other");
    let mut waiting = Leader::start(&server, "first");
    sleep(SECOND).await;
    assert_eq!(waiting.stop().await, Ok(None));
    assert_eq!(server.holder().as_deref(), Some("other"));

    // The write that takes the lease succeeds, but is never answered.
    let server = Server::default();
    server.weather(Weather::LosesAnswers);
    let mut taking = Leader::start(&server, "first");
    sleep(SECOND).await;
    assert_eq!(server.holder().as_deref(), Some("first"));
    server.weather(Weather::Fine);
    assert_eq!(taking.stop().await, Ok(None));
    assert_eq!(server.holder().as_deref(), Some(""));
}

#[tokio::test(start_paused = true)]
async fn releasing_the_lease_takes_limited_time() {
    let server = Server::default();
    let mut leader = Leader::start(&server, "first");
    leader.began().await;
    server.weather(Weather::Hangs);
    let asked = Instant::now();
    assert_eq!(leader.stop().await, Ok(Some(())));
    assert!(asked.elapsed() <= 2 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_standby_reads_the_lease_once_every_retry_period() {
    let server = Server::default();
    server.weather(Weather::Refuses(StatusCode::FORBIDDEN));
    let _waiting = Leader::start(&server, "first");
    sleep(200 * SECOND).await;
    let looks = server.with(|state| state.calls.len());
    assert!((45..=101).contains(&looks), "{looks} reads in 100 retry periods");
}

/// A snapshot of etcd is restored under a running process.
#[tokio::test(start_paused = true)]
async fn in_a_cluster_that_is_set_back_work_begins_anew() {
    let server = Server::default();
    let mut leader = Leader::start(&server, "a");
    let (_, first) = leader.began().await;
    let snapshot = server.with(|state| (state.version, state.leases.clone()));
    sleep(20 * SECOND).await;
    server.with(|state| (state.version, state.leases) = snapshot);
    let since = Instant::now();
    let (again, second) = leader.began().await;
    assert!(again - since <= 2 * SECOND, "at the next renewal: {:?}", again - since);
    assert!(first.is_over() && !second.is_over());
    assert_eq!(leader.stop().await, Ok(Some(())));
}

#[tokio::test(start_paused = true)]
async fn of_two_installations_one_works() {
    let server = Server::default();
    let mut first = Leader::of_installation(&server, "ns");
    first.began().await;
    assert_eq!(server.holder_in("kube-system").as_deref(), Some("ns"));
    let mut second = Leader::of_installation(&server, "elsewhere");
    sleep(100 * SECOND).await;
    assert!(second.began.try_recv().is_err(), "it stands by");
    assert_eq!(server.holder().as_deref(), Some("pod"));
    assert_eq!(first.stop().await, Ok(Some(())));
    second.began().await;
    assert_eq!(server.holder().as_deref(), Some(""), "both of its leases are released");
}

/// Its replicas are one installation: none of them waits for the lease of the cluster as well.
#[tokio::test(start_paused = true)]
async fn a_killed_leader_of_an_installation_is_replaced_in_time() {
    let server = Server::default();
    let replica = |identity| Options { one_in_cluster: true, ..options(identity) };
    let mut first = Leader::with(&server, replica("first"));
    first.began().await;
    let mut second = Leader::with(&server, replica("second"));
    sleep(20 * SECOND).await;
    first.task.abort();
    let killed = Instant::now();
    let (began, _) = second.began().await;
    assert!(began - killed <= 20 * SECOND, "{:?}", began - killed);
}

/// Whatever it is: of an API server that is slow or fails, nobody learns who works.
#[tokio::test(start_paused = true)]
async fn nobody_works_while_another_installation_may() {
    let server = Server::default();
    server.weather(Weather::Refuses(StatusCode::INTERNAL_SERVER_ERROR));
    let mut leader = Leader::of_installation(&server, "ns");
    sleep(100 * SECOND).await;
    assert!(leader.began.try_recv().is_err());
    server.weather(Weather::Fine);
    leader.began().await;
}

/// As before there was that lease.
#[tokio::test(start_paused = true)]
async fn without_rights_in_kube_system_its_own_lease_counts() {
    let server = Server::default();
    server.with(|state| state.forbidden = Some("kube-system"));
    let mut leader = Leader::of_installation(&server, "ns");
    leader.began().await;
    assert_eq!(server.holder().as_deref(), Some("pod"));
}

/// Its own may be renewed still.
#[tokio::test(start_paused = true)]
async fn a_term_is_over_with_the_lease_of_the_cluster() {
    let server = Server::default();
    let mut leader = Leader::of_installation(&server, "ns");
    let (_, term) = leader.began().await;
    server.with(|state| state.forbidden = Some("kube-system"));
    assert!(matches!(leader.lost().await, Lost::NotRenewed { lease, .. } if lease.starts_with("kube-system/")));
    assert!(term.is_over());
}
