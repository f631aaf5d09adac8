//! What lies between the operator and AWS, as a proxy: the time that each call takes, the limits on the calls of an
//! account, and the time until new keys work. Requests are forwarded unchanged, so that signatures stay valid.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::convert::Infallible;
use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::Failure;

/// How AWS behaves.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Network {
    /// Milliseconds that each call takes.
    pub(crate) delay: u64,
    /// Milliseconds after which a new key is accepted.
    pub(crate) new_keys: u64,
}

/// Calls that are limited together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Iam,
    DeleteObjects,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Iam, Self::DeleteObjects];

    fn name(self) -> &'static str {
        match self {
            Self::Iam => "iam",
            Self::DeleteObjects => "deletions",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    fn of(service: &str, request: &Request<Incoming>) -> Option<Self> {
        let deletes = || request.uri().query().is_some_and(|query| query.split('&').any(|part| part == "delete"));
        match service {
            "iam" => Some(Self::Iam),
            "s3" if request.method() == Method::POST && deletes() => Some(Self::DeleteObjects),
            _ => None,
        }
    }

    /// The throttling error of AWS.
    fn refusal(self) -> Response<Body> {
        match self {
            Self::Iam => refusal(
                StatusCode::BAD_REQUEST,
                "<ErrorResponse><Error><Type>Sender</Type><Code>Throttling</Code>\
                 <Message>Rate exceeded</Message></Error></ErrorResponse>",
            ),
            Self::DeleteObjects => refusal(
                StatusCode::SERVICE_UNAVAILABLE,
                "<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>",
            ),
        }
    }
}

/// A proxy in a process of its own, because processor time is measured in this one. It is killed when this is
/// dropped.
pub(crate) struct Proxy {
    child: Child,
    pub(crate) url: String,
}

/// The calls of a kind that came since they were last counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) sent: usize,
    pub(crate) refused: usize,
}

impl Counts {
    pub(crate) fn and(self, other: Self) -> Self {
        Self { sent: self.sent + other.sent, refused: self.refused + other.refused }
    }
}

impl Proxy {
    pub(crate) fn start(network: Network, upstream: &str) -> Result<Self, Failure> {
        let (delay, new_keys) = (network.delay.to_string(), network.new_keys.to_string());
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["network", &delay, &new_keys, upstream]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut proxy = Self { child: command.spawn()?, url: String::new() };
        proxy.url = proxy.line()?;
        Ok(proxy)
    }

    /// From now on, an account may make this many calls of a kind a second, and as many at once.
    pub(crate) fn limit(&mut self, kind: Kind, a_second: f64) -> Result<(), Failure> {
        self.ask(&format!("limit {} {a_second}", kind.name())).map(drop)
    }

    /// Those with the provisioning credentials.
    pub(crate) fn counts(&mut self, kind: Kind) -> Result<Counts, Failure> {
        let counts = self.ask(&format!("counts {} {}", kind.name(), std::env::var("AWS_ACCESS_KEY_ID")?))?;
        let (sent, refused) = counts.split_once(' ').ok_or("no counts")?;
        Ok(Counts { sent: sent.parse()?, refused: refused.parse()? })
    }

    fn ask(&mut self, what: &str) -> Result<String, Failure> {
        writeln!(self.child.stdin.as_mut().ok_or("no standard input")?, "{what}")?;
        self.line()
    }

    fn line(&mut self) -> Result<String, Failure> {
        // Byte by byte, so that nothing is read beyond the line.
        let stdout = self.child.stdout.as_mut().ok_or("no standard output")?;
        let mut line = Vec::new();
        for byte in std::io::Read::bytes(stdout) {
            match byte? {
                b'\n' => return Ok(String::from_utf8(line)?),
                byte => line.push(byte),
            }
        }
        Err("the proxy has ended".into())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

type Body = BoxBody<Bytes, hyper::Error>;

/// The process.
struct Server {
    network: Network,
    upstream: String,
    client: Client<HttpConnector, BoxBody<Bytes, hyper::Error>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    limits: HashMap<Kind, f64>,
    /// For each key, the calls that it may make at once, and when that was so.
    rooms: HashMap<(Kind, String), (f64, Instant)>,
    /// Calls by each key: how many were sent, and how many of them refused.
    calls: HashMap<(Kind, String), (usize, usize)>,
    /// When each key was issued.
    keys: HashMap<String, Instant>,
}

impl State {
    /// Whether the account of a key may make such a call now.
    fn accepts(&mut self, kind: Kind, key: &str) -> bool {
        let whose = (kind, key.to_owned());
        let calls = self.calls.entry(whose.clone()).or_default();
        calls.0 += 1;
        let Some(&limit) = self.limits.get(&kind) else { return true };
        let (room, since) = self.rooms.remove(&whose).unwrap_or((limit, Instant::now()));
        let room = (room + since.elapsed().as_secs_f64() * limit).min(limit);
        let accepts = room >= 1.0;
        calls.1 += usize::from(!accepts);
        self.rooms.insert(whose, (if accepts { room - 1.0 } else { room }, Instant::now()));
        accepts
    }
}

/// Prints its URL, and serves until it is killed. Each line of its standard input is a command.
pub(crate) async fn serve(network: Network, upstream: &str) -> Result<(), Failure> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let server = Arc::new(Server {
        network,
        upstream: upstream.trim_end_matches('/').to_owned(),
        client: Client::builder(TokioExecutor::new()).build(connector),
        state: Mutex::default(),
    });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}", listener.local_addr()?);
    tokio::spawn(answer(Arc::clone(&server)));
    loop {
        let (client, _) = listener.accept().await?;
        client.set_nodelay(true)?;
        tokio::spawn(connection(Arc::clone(&server), client));
    }
}

async fn answer(server: Arc<Server>) {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let mut state = server.state.lock();
        let mut words = line.split(' ');
        let (what, kind, value) = (words.next(), words.next().and_then(Kind::named), words.next());
        match (what, kind, value) {
            (Some("limit"), Some(kind), Some(limit)) => {
                state.limits.extend(limit.parse().ok().map(|limit| (kind, limit)));
                println!("so it is");
            }
            (Some("counts"), Some(kind), Some(key)) => {
                let (sent, refused) = state.calls.remove(&(kind, key.to_owned())).unwrap_or_default();
                println!("{sent} {refused}");
            }
            _ => println!("what?"),
        }
    }
}

async fn connection(server: Arc<Server>, client: TcpStream) {
    let service = service_fn(move |request| {
        let server = Arc::clone(&server);
        async move { Ok::<_, Infallible>(server.pass(request).await) }
    });
    // A connection that breaks is the business of whoever made it.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(client), service).await;
}

impl Server {
    async fn pass(&self, request: Request<Incoming>) -> Response<Body> {
        let began = tokio::time::Instant::now();
        let (key, service) = signer(request.headers().get(header::AUTHORIZATION));
        let answer = match self.refuse(Kind::of(&service, &request), &key) {
            Some(answer) => answer,
            None => self.ask(request, service == "iam").await.unwrap_or_else(|_| {
                let mut answer = Response::new(Full::from("").map_err(|never| match never {}).boxed());
                *answer.status_mut() = StatusCode::BAD_GATEWAY;
                answer
            }),
        };
        tokio::time::sleep_until(began + Duration::from_millis(self.network.delay)).await;
        answer
    }

    fn refuse(&self, kind: Option<Kind>, key: &str) -> Option<Response<Body>> {
        let mut state = self.state.lock();
        if let Some(kind) = kind.filter(|&kind| !state.accepts(kind, key)) {
            return Some(kind.refusal());
        }
        let age = state.keys.get(key)?.elapsed();
        let body =
            "<Error><Code>InvalidAccessKeyId</Code><Message>The AWS access key ID does not exist</Message></Error>";
        (age < Duration::from_millis(self.network.new_keys)).then(|| refusal(StatusCode::FORBIDDEN, body))
    }

    async fn ask(&self, request: Request<Incoming>, is_iam: bool) -> Result<Response<Body>, Failure> {
        let (mut head, body) = request.into_parts();
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        head.uri = format!("{}{path}", self.upstream).parse()?;
        if !is_iam {
            let answer = self.client.request(Request::from_parts(head, body.boxed())).await?;
            return Ok(answer.map(http_body_util::BodyExt::boxed));
        }
        let body = body.collect().await?.to_bytes();
        let issues = body.starts_with(b"Action=CreateAccessKey");
        let body = Full::new(body).map_err(|never| match never {}).boxed();
        let (head, body) = self.client.request(Request::from_parts(head, body)).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        if issues {
            let text = String::from_utf8_lossy(&body);
            let id = text.split("<AccessKeyId>").nth(1).and_then(|text| text.split('<').next());
            self.state.lock().keys.extend(id.map(|id| (id.to_owned(), Instant::now())));
        }
        Ok(Response::from_parts(head, Full::new(body).map_err(|never| match never {}).boxed()))
    }
}

fn refusal(status: StatusCode, body: &'static str) -> Response<Body> {
    let mut answer = Response::new(Full::from(body).map_err(|never| match never {}).boxed());
    *answer.status_mut() = status;
    answer
}

/// Key and service of a signature: `AWS4-HMAC-SHA256 Credential=KEY/DATE/REGION/SERVICE/aws4_request, ...`.
fn signer(authorization: Option<&HeaderValue>) -> (String, String) {
    let text = authorization.and_then(|value| value.to_str().ok()).unwrap_or_default();
    let scope = text.split("Credential=").nth(1).unwrap_or_default();
    let mut parts = scope.split([',', '/']);
    (parts.next().unwrap_or_default().to_owned(), parts.nth(2).unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_names_the_signer() {
        let signature = HeaderValue::from_static(
            "AWS4-HMAC-SHA256 Credential=AKIA1/20260101/us-east-1/iam/aws4_request, SignedHeaders=host, Signature=0",
        );
        assert_eq!(signer(Some(&signature)), ("AKIA1".to_owned(), "iam".to_owned()));
        assert_eq!(signer(None), (String::new(), String::new()));
    }

    #[test]
    fn an_account_may_make_as_many_calls_at_once_as_in_a_second() {
        let mut state = State { limits: HashMap::from([(Kind::Iam, 5.0)]), ..State::default() };
        assert_eq!((0..20).filter(|_| state.accepts(Kind::Iam, "one")).count(), 5);
        assert!(state.accepts(Kind::Iam, "another") && state.accepts(Kind::DeleteObjects, "one"));
        let calls = |kind, key: &str| state.calls[&(kind, key.to_owned())];
        assert_eq!((calls(Kind::Iam, "one"), calls(Kind::Iam, "another")), ((20, 15), (1, 0)));
        assert_eq!(calls(Kind::DeleteObjects, "one"), (1, 0));
    }
}
