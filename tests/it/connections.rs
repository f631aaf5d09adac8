//! The operator's connections to the API server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Version};
use kube::client::Body;
use kube::{Client, Config};
use operator_runtime::cluster;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

async fn version_of_http(client: &Client, path: &str) -> Result<Version, kube::Error> {
    let request = Request::get(path).body(Body::empty()).unwrap();
    client.send(request).await.map(|answer| answer.version())
}

/// Forwards connections to the API server, until the open ones fall silent.
struct Relay {
    url: http::Uri,
    connections: Arc<AtomicUsize>,
    silence: watch::Sender<usize>,
}

impl Relay {
    async fn to(server: http::Uri) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
        let (silence, silent) = watch::channel(0);
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                let number = count.fetch_add(1, Ordering::SeqCst) + 1;
                let address = format!("{}:{}", server.host().unwrap(), server.port_u16().unwrap());
                let mut silent = silent.clone();
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(address).await.unwrap();
                    let falls_silent = async {
                        silent.wait_for(|silent| *silent >= number).await.map(drop).unwrap();
                    };
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut server) => return,
                        () = falls_silent => {}
                    }
                    // It stays open, and nothing comes through.
                    std::future::pending::<()>().await;
                });
            }
        });
        Self { url, connections, silence }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Silences the open ones.
    fn fall_silent(&self) {
        self.silence.send_replace(self.connections());
    }
}

#[tokio::test]
async fn calls_share_a_connection_and_what_takes_long_has_its_own() {
    let mut config = Config::infer().await.unwrap();
    let relay = Relay::to(config.cluster_url.clone()).await;
    config.cluster_url = relay.url.clone();
    let client = cluster::client(config, cluster::ANSWER_LIMIT).unwrap();
    assert_eq!(version_of_http(&client, "/version").await.unwrap(), Version::HTTP_2);
    let calls = (0..20).map(|_| version_of_http(&client, "/api/v1/namespaces/default"));
    assert!(futures::future::join_all(calls).await.into_iter().all(|version| version.unwrap() == Version::HTTP_2));
    assert_eq!(relay.connections(), 1);
    for path in ["/api/v1/namespaces?limit=1", "/api/v1/namespaces?watch=true&timeoutSeconds=1"] {
        assert_eq!(version_of_http(&client, path).await.unwrap(), Version::HTTP_11);
    }
}

#[tokio::test]
async fn a_connection_that_falls_silent_is_given_up() {
    let mut config = Config::infer().await.unwrap();
    let relay = Relay::to(config.cluster_url.clone()).await;
    config.cluster_url = relay.url.clone();
    let client = cluster::client(config, Duration::from_secs(2)).unwrap();
    version_of_http(&client, "/version").await.unwrap();
    relay.fall_silent();
    // Each of them would wait on the connection that they share.
    let again = async { while version_of_http(&client, "/version").await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(60), again).await.unwrap();
    assert_eq!(relay.connections(), 2);
}
