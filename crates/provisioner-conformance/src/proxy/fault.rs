//! What can become of a call.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use hyper::{Request, Response};

use super::gate::Gate;
use super::{Answer, Fault, Upstream, plain, respond};

/// What becomes of a call.
pub enum Verdict {
    /// Nothing special.
    Pass,
    /// The proxy answers instead of the server.
    Answer(u16, String),
    /// The same after a while, in which other calls can come.
    AnswerLater(Duration, u16, String),
    /// The proxy answers instead of the server, with these headers.
    AnswerWith(Response<String>),
    /// The server gets another body.
    Rewrite(fn(&[u8]) -> Vec<u8>),
    /// The server's answer is changed on its way.
    Distort(fn(Response<Bytes>) -> Response<Bytes>),
    /// The connection ends after so many bytes of the answer's body.
    Truncate(usize),
    /// It never reaches the server and is never answered.
    Hang,
    /// It never reaches the server: the connection ends.
    Reset,
    /// The server does what was asked, but its answer is lost: the connection ends.
    LoseAnswer,
    /// It reaches the server later.
    Delay(Duration),
    /// It reaches the server when the gate is opened.
    Hold(Gate),
    /// The server does what was asked; its answer waits for the gate to be opened.
    HoldAnswer(Gate),
}

/// Carries a verdict out. `lost` is called when the server has done something and its answer is dropped.
pub(super) async fn apply(
    verdict: Verdict,
    upstream: &impl Upstream,
    request: Request<Full<Bytes>>,
    lost: impl FnOnce(),
) -> Result<Answer, Fault> {
    match verdict {
        Verdict::Pass => Ok(pass(upstream, request).await),
        Verdict::Answer(status, text) => Ok(plain(status, text)),
        Verdict::AnswerLater(time, status, text) => {
            tokio::time::sleep(time).await;
            Ok(plain(status, text))
        }
        Verdict::AnswerWith(answer) => Ok(respond(answer)),
        Verdict::Rewrite(rewrite) => {
            let (mut parts, body) = request.into_parts();
            parts.headers.remove(hyper::header::CONTENT_LENGTH);
            let body = body.collect().await?.to_bytes();
            upstream.send(Request::from_parts(parts, Full::new(rewrite(&body).into()))).await
        }
        Verdict::Distort(distort) => {
            let (parts, body) = upstream.send(request).await?.into_parts();
            let mut answer = Response::from_parts(parts, body.collect().await?.to_bytes());
            // The proxy's server sets the length of the new body.
            answer.headers_mut().remove(hyper::header::CONTENT_LENGTH);
            Ok(respond(distort(answer)))
        }
        Verdict::Truncate(length) => {
            let (parts, body) = upstream.send(request).await?.into_parts();
            let bytes = body.collect().await?.to_bytes();
            let begin = bytes.slice(..length.min(bytes.len()));
            let frames = [Ok(Frame::data(begin)), Err(Fault::from("the answer was cut off by the kit"))];
            Ok(Response::from_parts(parts, StreamBody::new(futures::stream::iter(frames)).boxed_unsync()))
        }
        Verdict::Hang => std::future::pending().await,
        Verdict::Reset => Err("the connection was ended by the kit".into()),
        Verdict::LoseAnswer => {
            upstream.send(request).await?;
            lost();
            Err("the answer was dropped by the kit".into())
        }
        Verdict::Delay(time) => {
            tokio::time::sleep(time).await;
            Ok(pass(upstream, request).await)
        }
        Verdict::Hold(gate) => {
            gate.pass().await;
            Ok(pass(upstream, request).await)
        }
        Verdict::HoldAnswer(gate) => {
            let (parts, body) = upstream.send(request).await?.into_parts();
            // All of it, so that nothing of the answer comes through before.
            let answer = Response::from_parts(parts, body.collect().await?.to_bytes());
            gate.pass().await;
            Ok(respond(answer))
        }
    }
}

async fn pass(upstream: &impl Upstream, request: Request<Full<Bytes>>) -> Answer {
    upstream.send(request).await.unwrap_or_else(|error| plain(502, error.to_string()))
}
