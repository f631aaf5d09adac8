//! The right to work, for as long as this process certainly holds the lease.

use std::sync::Arc;

use http::Request;
use kube::Client;
use kube::client::Body;
use kube::client::retry::RetryPolicy;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tower::retry::RetryLayer;
use tower::timeout::TimeoutLayer;
use tower::{BoxError, ServiceBuilder};

use crate::cluster::ANSWER_LIMIT;

/// The time for which this process holds the lease. Each renewal extends it, and without renewals it ends by itself.
/// Clones are the same term.
#[derive(Debug, Clone)]
pub struct Term {
    deadline: watch::Receiver<Instant>,
    /// That of another lease, which this process has to hold as well.
    outer: Option<Box<Term>>,
}

/// The error of a call that starts after the end of the term. Nothing was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this process no longer holds the lease")]
pub struct TermOver;

/// The end of a term, for the one that renews the lease. When it is dropped, the term is over.
pub(super) struct Deadline(watch::Sender<Instant>);

/// The terms of a process, of which the latest counts. Clones are the same terms.
#[derive(Debug, Clone, Default)]
pub(crate) struct Terms(Arc<Mutex<Option<Term>>>);

impl Terms {
    pub(crate) fn begin(&self, term: Term) {
        *self.0.lock() = Some(term);
    }

    pub(crate) fn is_leading(&self) -> bool {
        self.0.lock().as_ref().is_some_and(|term| !term.is_over())
    }
}

impl Deadline {
    pub(super) fn at(&self) -> Instant {
        *self.0.borrow()
    }

    pub(super) fn extend(&self, until: Instant) {
        self.0.send_replace(until);
    }

    pub(super) fn end(&self) {
        self.0.send_replace(Instant::now());
    }
}

impl Term {
    pub(super) fn begin(until: Instant) -> (Deadline, Self) {
        let (sender, deadline) = watch::channel(until);
        (Deadline(sender), Self { deadline, outer: None })
    }

    /// This term, over when the outer one is.
    pub(super) fn within(mut self, outer: Option<Self>) -> Self {
        self.outer = outer.map(Box::new);
        self
    }

    /// Whether somebody else may hold the lease by now. Ask directly before each call that only the leader may make;
    /// this only reads the clock.
    pub fn is_over(&self) -> bool {
        self.deadline.has_changed().is_err()
            || Instant::now() >= *self.deadline.borrow()
            || self.outer.as_ref().is_some_and(|outer| outer.is_over())
    }

    /// `client`, but a call that starts after the end of the term fails with [`TermOver`] and is not sent. `client`
    /// must not retry by itself (`default_retry` of its configuration), because its retries would pass the fence. Calls
    /// that the API server postpones (429, 503, 504) are retried in front of the fence.
    pub fn fence(&self, client: Client) -> Client {
        let (namespace, valid_until) = (client.default_namespace().to_owned(), *client.valid_until());
        let term = self.clone();
        let fenced = tower::service_fn(move |request: Request<Body>| {
            let (client, term) = (client.clone(), term.clone());
            async move {
                if term.is_over() {
                    return Err(BoxError::from(TermOver));
                }
                client.send(request).await.map_err(BoxError::from)
            }
        });
        let patient = ServiceBuilder::new()
            .layer(TimeoutLayer::new(ANSWER_LIMIT))
            .layer(RetryLayer::new(RetryPolicy::server_retry()))
            .service(fenced);
        Client::new::<_, Body, _>(patient, namespace).with_valid_until(valid_until)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use http::Response;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_term_ends_by_itself_unless_it_is_renewed() {
        let (deadline, term) = Term::begin(Instant::now() + 10 * SECOND);
        tokio::time::advance(9 * SECOND).await;
        assert!(!term.is_over());
        deadline.extend(Instant::now() + 10 * SECOND);
        tokio::time::advance(9 * SECOND).await;
        assert!(!term.is_over());
        tokio::time::advance(SECOND).await;
        assert!(term.is_over());
    }

    #[tokio::test(start_paused = true)]
    async fn a_term_nobody_can_renew_is_over() {
        let (deadline, term) = Term::begin(Instant::now() + 10 * SECOND);
        drop(deadline);
        assert!(term.is_over());
    }

    #[tokio::test(start_paused = true)]
    async fn a_fenced_client_sends_nothing_after_the_term() {
        let sent = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&sent);
        let server = tower::service_fn(move |_: Request<Body>| {
            count.fetch_add(1, Ordering::SeqCst);
            async { Ok::<_, BoxError>(Response::new(Body::empty())) }
        });
        let (deadline, term) = Term::begin(Instant::now() + SECOND);
        let client = term.fence(Client::new(server, "here"));
        assert_eq!(client.default_namespace(), "here");
        let get = || Request::get("/").body(Body::empty()).unwrap();
        client.send(get()).await.unwrap();
        deadline.end();
        let refused = client.send(get()).await.unwrap_err();
        assert!(matches!(&refused, kube::Error::Service(why) if why.is::<TermOver>()), "{refused:?}");
        assert_eq!(sent.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn postponed_calls_are_retried_but_not_after_the_term() {
        let sent = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&sent);
        let server = tower::service_fn(move |_: Request<Body>| {
            count.fetch_add(1, Ordering::SeqCst);
            let later = Response::builder().status(429).header("Retry-After", "1").body(Body::empty());
            async { Ok::<_, BoxError>(later.unwrap()) }
        });
        let (_deadline, term) = Term::begin(Instant::now() + 3 * SECOND - SECOND / 2);
        let client = term.fence(Client::new(server, "here"));
        let refused = client.send(Request::get("/").body(Body::empty()).unwrap()).await.unwrap_err();
        assert!(matches!(&refused, kube::Error::Service(why) if why.is::<TermOver>()), "{refused:?}");
        assert_eq!(sent.load(Ordering::SeqCst), 3, "at 0, 1 and 2 s");
    }
}
