//! A proxy that adds a delay to each answer, as a network in between would. Host, path and body go through
//! unchanged, so that AWS signatures hold.

use std::time::Duration;

use http::Uri;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

use crate::Failure;

pub(crate) async fn serve(delay: Duration, upstream: &str) -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}", listener.local_addr()?);
    let client = Client::builder(TokioExecutor::new()).build_http::<Incoming>();
    let upstream = upstream.trim_end_matches('/').to_owned();
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (client, upstream) = (client.clone(), upstream.clone());
        let service = service_fn(move |request| pass(client.clone(), upstream.clone(), delay, request));
        tokio::spawn(async move {
            // A connection that breaks is the business of whoever made it.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn pass(
    client: Client<HttpConnector, Incoming>,
    upstream: String,
    delay: Duration,
    mut request: Request<Incoming>,
) -> Result<Response<Incoming>, Failure> {
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    *request.uri_mut() = format!("{upstream}{target}").parse::<Uri>()?;
    let answer = client.request(request).await?;
    tokio::time::sleep(delay).await;
    Ok(answer)
}
