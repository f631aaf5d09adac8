//! The HTTP server for those who run the operator: probes and metrics.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::observe::Observer;

const PORT: u16 = 8080;
/// Connections at the same time. Anybody in the cluster can connect, and each takes memory; the oldest has to go.
const CONNECTIONS: usize = 256;
/// How long a connection may take, for one request.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// Connections that wait until they are accepted.
const BACKLOG: i32 = 128;
/// After an error of the system, such as too many open files.
const PAUSE: Duration = Duration::from_secs(1);
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const INDEX: &str = "/healthz  whether the process works\n/readyz   whether claims are served, or this process is on standby\n/metrics  in the format of OpenMetrics\n";

/// Where the server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// Nobody has chosen.
    Default,
    /// Nowhere.
    Off,
    /// At the first of these that can be had.
    At(Vec<SocketAddr>),
}

impl Address {
    /// Where to listen; the first that can be had. In a pod the kubelet and Prometheus ask from outside, anywhere else nobody
    /// does.
    fn candidates(&self, is_in_pod: bool) -> Vec<SocketAddr> {
        match self {
            Self::Default if is_in_pod => everywhere(PORT),
            Self::Default => vec![(Ipv4Addr::LOCALHOST, PORT).into()],
            Self::Off => Vec::new(),
            Self::At(addresses) => addresses.clone(),
        }
    }
}

/// IPv6 takes connections by IPv4, too; some systems have only that.
fn everywhere(port: u16) -> Vec<SocketAddr> {
    let any: [IpAddr; 2] = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
    any.map(|address| (address, port).into()).into()
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => return Ok(Self::Default),
            "off" => return Ok(Self::Off),
            _ => {}
        }
        let everywhere = text.strip_prefix(':').and_then(|port| port.parse().ok()).map(everywhere);
        let there = || text.parse().ok().map(|address| vec![address]);
        everywhere.or_else(there).map(Self::At).ok_or_else(|| {
            "write IP:PORT, such as 127.0.0.1:8080; :PORT for all addresses of this machine; or off".into()
        })
    }
}

/// Begins to serve. Where nobody has chosen the address, claims are served without it, too.
///
/// # Errors
/// The chosen address cannot be had.
pub async fn start(address: &Address, observer: &Observer) -> Result<(), Box<dyn Error>> {
    // As kube finds out whether it runs in a pod.
    let addresses = address.candidates(std::env::var_os("KUBERNETES_SERVICE_HOST").is_some());
    let Some(shown) = addresses.first() else { return Ok(()) };
    let listener = match listen(&addresses) {
        Ok(listener) => listener,
        Err(error) if *address != Address::Default => {
            return Err(
                format!("--admin-address: cannot listen at {shown}: {error}; choose another one, or off").into()
            );
        }
        Err(error) => {
            tracing::warn!("no probes and no metrics: cannot listen at {shown}: {error}; choose with --admin-address");
            return Ok(());
        }
    };
    tracing::info!(address = %listener.local_addr()?, "serving probes and metrics");
    // Ends with the program.
    tokio::spawn(serve(listener, observer.clone()));
    Ok(())
}

/// Listens at the first address that can be had.
fn listen(addresses: &[SocketAddr]) -> io::Result<TcpListener> {
    let mut failed = io::ErrorKind::AddrNotAvailable.into();
    for address in addresses {
        match listen_at(*address) {
            Ok(listener) => return Ok(listener),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn listen_at(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.ip() == Ipv6Addr::UNSPECIFIED {
        // Whatever the sysctl net.ipv6.bindv6only is set to: kubelets often probe by IPv4.
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

async fn serve(listener: TcpListener, observer: Observer) {
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                open.retain(|connection| !connection.is_finished());
                // A client that has its answer disconnects at once. So the oldest connection is not the kubelet's, and
                // idle clients cannot block its probes.
                if open.len() >= CONNECTIONS
                    && let Some(oldest) = open.pop_front()
                {
                    oldest.abort();
                }
                // Whoever does not ask in time gets no answer.
                let answered = timeout(TIME_LIMIT, connection(stream, observer.clone()));
                open.push_back(tokio::spawn(answered).abort_handle());
            }
            Err(error) => {
                tracing::debug!(%error, "a connection for probes and metrics failed");
                sleep(PAUSE).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, observer: Observer) -> hyper::Result<()> {
    let answer = service_fn(move |request| {
        let answer = answer(&request, &observer);
        async move { Ok::<_, Infallible>(answer) }
    });
    let mut server = http1::Builder::new();
    server.keep_alive(false).timer(TokioTimer::new()).header_read_timeout(TIME_LIMIT);
    server.serve_connection(TokioIo::new(stream), answer).await
}

fn answer(request: &Request<Incoming>, observer: &Observer) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
    }
    let ok_if = |ok| if ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    match request.uri().path() {
        "/healthz" => match observer.health().stalled_for() {
            None => plain(StatusCode::OK, "ok\n"),
            Some(still) => plain(ok_if(false), format!("the work has not moved for {} s\n", still.as_secs())),
        },
        "/readyz" => {
            let ready = observer.health().ready();
            plain(ok_if(ready.is_ready), format!("{}\n", ready.why))
        }
        "/metrics" => {
            let mut answer = plain(StatusCode::OK, Bytes::from_owner(Text(observer.text())));
            answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(OPEN_METRICS));
            answer
        }
        "/" => plain(StatusCode::OK, INDEX),
        _ => plain(StatusCode::NOT_FOUND, INDEX),
    }
}

/// All who read it share it: many may read it slowly.
struct Text(Arc<str>);

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(text.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_address_is_one_or_all_or_none() {
        let at = |text: &str| text.parse::<Address>();
        assert_eq!(at("127.0.0.1:0").unwrap(), Address::At(vec![([127, 0, 0, 1], 0).into()]));
        assert_eq!(at(":8080").unwrap(), Address::At(Address::Default.candidates(true)));
        assert_eq!(at("").unwrap(), Address::Default, "an empty variable chooses nothing");
        assert_eq!(at("[::1]:9").unwrap(), Address::At(vec!["[::1]:9".parse().unwrap()]));
        assert_eq!(at("off").unwrap(), Address::Off);
        for odd in ["8080", "localhost:8080", "127.0.0.1", ":", ":70000"] {
            assert!(at(odd).unwrap_err().contains("IP:PORT"), "{odd:?}");
        }
    }

    #[test]
    fn only_in_a_pod_everybody_can_connect() {
        let is_open = |is_in_pod| Address::Default.candidates(is_in_pod).iter().any(|at| !at.ip().is_loopback());
        assert!(is_open(true) && !is_open(false));
    }

    #[tokio::test]
    async fn all_addresses_are_those_of_both_protocols() {
        let listener = listen(&everywhere(0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        for here in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            // This machine may lack IPv6.
            let is_had = std::net::TcpListener::bind((here, 0)).is_ok();
            assert_eq!(TcpStream::connect((here, port)).await.is_ok(), is_had, "{here}");
        }
    }

    async fn asked(observer: &Observer, request: &str) -> String {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let server = tokio::spawn(serve(listener, observer.clone()));
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        server.abort();
        answer
    }

    #[tokio::test]
    async fn probes_and_metrics_are_answered() {
        let observer = Observer::new("operator", "a-provisioner", "1.2.3");
        let get = async |path: &str| asked(&observer, &format!("GET {path} HTTP/1.1\r\nhost: here\r\n\r\n")).await;
        assert!(get("/healthz").await.starts_with("HTTP/1.1 200"));
        let starting = get("/readyz").await;
        assert!(starting.starts_with("HTTP/1.1 503") && starting.contains("who holds the lease"), "{starting}");
        observer.stands_by("another");
        let standby = get("/readyz").await;
        assert!(standby.starts_with("HTTP/1.1 200") && standby.ends_with("on standby: another holds the lease\n"));
        let metrics = get("/metrics").await;
        assert!(metrics.contains("openmetrics-text") && metrics.ends_with("# EOF\n"), "{metrics}");
        let info = "operator_build_info{program=\"a-provisioner\",version=\"1.2.3\"} 1\n";
        assert!(metrics.contains(info), "{metrics}");
        assert!(get("/").await.contains("/metrics") && get("/secret").await.starts_with("HTTP/1.1 404"));
        assert!(asked(&observer, "POST /metrics HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 405"));
    }

    #[tokio::test]
    async fn who_connects_and_asks_nothing_keeps_nobody_out() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(serve(listener, Observer::new("operator", "a-provisioner", "1.2.3")));
        let mut silent = Vec::new();
        for _ in 0..CONNECTIONS + 44 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let mut kubelet = TcpStream::connect(address).await.unwrap();
        kubelet.write_all(b"GET /healthz HTTP/1.1\r\nhost: here\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        kubelet.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        // The oldest had to go, at once; the others have their time.
        assert_eq!(silent[0].read(&mut [0]).await.unwrap_or_default(), 0);
        let waits = silent[100].try_read(&mut [0]).unwrap_err();
        assert_eq!(waits.kind(), io::ErrorKind::WouldBlock);
        server.abort();
    }
}
