//! A proxy that adds a delay to each answer, as a network in between would. What goes through is unchanged, so that
//! AWS signatures hold.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::Failure;

/// A proxy in a process of its own, because processor time is measured in this one. It is killed when this is
/// dropped.
pub(crate) struct Proxy {
    child: Child,
    pub(crate) url: String,
}

impl Proxy {
    pub(crate) fn start(delay: Duration, upstream: &str) -> Result<Self, Failure> {
        let delay = delay.as_millis().to_string();
        let arguments = ["delay", &delay, upstream];
        let mut command = Command::new(std::env::current_exe()?);
        let child = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut proxy = Self { child, url: String::new() };
        let said = proxy.child.stdout.take().ok_or("no standard output")?;
        std::io::BufRead::read_line(&mut std::io::BufReader::new(said), &mut proxy.url)?;
        proxy.url.truncate(proxy.url.trim_end().len());
        Ok(proxy)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The process: prints its URL, and serves until it is killed.
pub(crate) async fn serve(delay: Duration, upstream: &str) -> Result<(), Failure> {
    let upstream = upstream.strip_prefix("http://").ok_or("a URL with http:// is needed")?.trim_end_matches('/');
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}", listener.local_addr()?);
    loop {
        let (client, _) = listener.accept().await?;
        let server = TcpStream::connect(upstream).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
        // A connection that breaks is the business of whoever made it.
        tokio::spawn(pass(Duration::ZERO, from_client, to_server));
        tokio::spawn(pass(delay, from_server, to_client));
    }
}

/// Hands on what comes, `delay` later, however much of it is under way.
async fn pass(delay: Duration, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let (arrive, mut arrived) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let write = async move {
        while let Some((due, bytes)) = arrived.recv().await {
            tokio::time::sleep_until(due).await;
            if to.write_all(&bytes).await.is_err() {
                break;
            }
        }
        // Tells the other side that no more comes.
        let _ = to.shutdown().await;
    };
    let read = async move {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            if arrive.send((Instant::now() + delay, buffer[..length].to_vec())).is_err() {
                break;
            }
        }
    };
    tokio::join!(write, read);
}
