//! An API server in memory: as much of it as the operator uses, for objects of any kind. What it does not know, it answers
//! with 501, and [`ApiServer::unexpected`] reports it.

mod contract;
mod objects;
mod request;
mod tests;
mod writes;

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use http::Response;
use http_body_util::StreamBody;
use hyper::body::Frame;
use kube::Client;
use kube::client::Body;
use operator_runtime::cluster::ANSWER_LIMIT;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{sleep, sleep_until, timeout};
use tower::BoxError;

pub use self::objects::Key;
use self::objects::{Objects, Selection};
use self::request::{Request, Verb};
use self::writes::{Patch, Write};
use crate::calls::{Calls, Failed};

type Lines = BoxStream<'static, Result<Frame<Bytes>, BoxError>>;
type Answer = Response<StreamBody<Lines>>;

#[derive(Clone, Default)]
pub struct ApiServer(Arc<Shared>);

#[derive(Default)]
struct Shared {
    objects: Mutex<Objects>,
    unexpected: Mutex<Vec<String>>,
    /// Watches may have something to show.
    changed: watch::Sender<()>,
}

impl ApiServer {
    /// A client whose calls become what the rule of `calls` decides. As the operator's own client, it does not wait forever
    /// for an answer.
    pub fn client(&self, calls: &Calls) -> Client {
        let (server, calls) = (self.clone(), calls.clone());
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (server, calls) = (server.clone(), calls.clone());
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await?;
                let Some(request) = Request::parse(&head, &body) else {
                    let unknown = format!("{} {}", head.method, head.uri);
                    server.0.unexpected.lock().push(unknown.clone());
                    return Ok(failure(501, &format!("not implemented: {unknown}")));
                };
                let answer = calls.make(request.to_string(), || server.answer(&request));
                match timeout(ANSWER_LIMIT, answer).await? {
                    Ok(answer) => Ok(answer),
                    Err(Failed::Status(status)) => Ok(failure(status, "this call was failed by the test")),
                    Err(Failed::Lost) => Err(BoxError::from("the connection is lost")),
                }
            }
        });
        Client::new(service, "default")
    }

    /// What was asked for and is not implemented, and writes without a field manager.
    pub fn unexpected(&self) -> Vec<String> {
        self.0.unexpected.lock().clone()
    }

    // What users and admins do. It succeeds.

    pub fn create(&self, plural: &str, namespace: &str, object: Value) {
        let name = object["metadata"]["name"].as_str().expect("a name");
        let write = Write { key: key(plural, namespace, name), body: &object, manager: "kubectl", dry_run: false };
        writes::create(&mut self.0.objects.lock(), write).expect("nothing of that name");
        self.0.changed.send_replace(());
    }

    /// By a merge patch.
    pub fn edit(&self, plural: &str, namespace: &str, name: &str, patch: &Value) {
        let write = Write { key: key(plural, namespace, name), body: patch, manager: "kubectl", dry_run: false };
        writes::patch(&mut self.0.objects.lock(), write, Patch::Merge).expect("an object of that name");
        self.0.changed.send_replace(());
    }

    /// The status, by a merge patch.
    pub fn edit_status(&self, plural: &str, namespace: &str, name: &str, status: &Value) {
        let body = &json!({ "status": status });
        let write = Write { key: key(plural, namespace, name), body, manager: "kubectl", dry_run: false };
        writes::patch(&mut self.0.objects.lock(), write, Patch::MergeStatus).expect("an object of that name");
        self.0.changed.send_replace(());
    }

    pub fn delete(&self, plural: &str, namespace: &str, name: &str) {
        let key = key(plural, namespace, name);
        writes::delete(&mut self.0.objects.lock(), key, &Value::Null).expect("an object of that name");
        self.0.changed.send_replace(());
    }

    /// Deletes an object, whatever finalizers it has.
    pub fn delete_by_force(&self, plural: &str, namespace: &str, name: &str) {
        self.edit(plural, namespace, name, &json!({ "metadata": { "finalizers": null } }));
        self.delete(plural, namespace, name);
    }

    /// Deletes the objects whose owner no longer exists.
    pub fn collect_garbage(&self) {
        let objects = self.objects();
        let exists = |uid: &Value| objects.iter().any(|(_, object)| object["metadata"]["uid"] == *uid);
        let is_garbage = |object: &Value| {
            let owners = object["metadata"]["ownerReferences"].as_array();
            owners.is_some_and(|owners| !owners.iter().any(|owner| exists(&owner["uid"])))
        };
        for (Key { plural, namespace, name }, _) in objects.iter().filter(|(_, object)| is_garbage(object)) {
            self.delete(plural, namespace, name);
        }
    }

    // What there is.

    /// All objects.
    pub fn objects(&self) -> Vec<(Key, Value)> {
        self.0.objects.lock().all().map(|(key, object)| (key.clone(), object.clone())).collect()
    }

    pub fn get(&self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        self.0.objects.lock().get(&key(plural, namespace, name)).cloned()
    }

    /// Reports each change from now on.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }

    /// The present version.
    pub fn version(&self) -> usize {
        self.0.objects.lock().version()
    }

    /// The cluster is set back to this version.
    pub fn set_back(&self, version: usize) {
        self.0.objects.lock().set_back(version);
        self.0.changed.send_replace(());
    }

    /// The CRD of claims is another project's: it gives a new claim no condition.
    pub fn drop_default_condition(&self) {
        self.0.objects.lock().has_default_condition = false;
    }

    /// From now on, lists and watches show each change this much later than a get.
    pub fn set_lag(&self, lag: Duration) {
        self.0.objects.lock().lag = lag;
    }

    /// Lists and watches of this kind show no later version; with `None` they show all.
    pub fn freeze(&self, plural: &str, version: impl Into<Option<usize>>) {
        let frozen = &mut self.0.objects.lock().frozen;
        match version.into() {
            Some(version) => drop(frozen.insert(plural.to_owned(), version)),
            None => drop(frozen.remove(plural)),
        }
        self.0.changed.send_replace(());
    }

    fn answer(&self, request: &Request) -> Answer {
        let shown = |object: Value| success(&shown(request, object));
        let objects = &mut *self.0.objects.lock();
        let (key, body, dry_run) = (request.key.clone(), &request.body, request.is_dry_run());
        let write = Write { key: key.clone(), body, manager: request.manager().unwrap_or("unnamed"), dry_run };
        if request.is_anonymous() {
            self.0.unexpected.lock().push(format!("{request}, without a field manager"));
        }
        let answer = match request.verb {
            Verb::Get => match objects.get(&key) {
                Some(object) => Ok(object.clone()),
                None => Err((404, format!("{} {:?} not found", key.plural, key.name))),
            },
            Verb::List => return success(&list(objects, request)),
            Verb::Watch => return self.watch(request),
            Verb::Create => writes::create(objects, write),
            Verb::Patch(how) => writes::patch(objects, write, how),
            Verb::Delete => {
                let deleted = writes::delete(objects, key, &body["preconditions"]);
                deleted.map(|object| object.unwrap_or_else(|| json!({ "kind": "Status", "status": "Success" })))
            }
        };
        self.0.changed.send_replace(());
        answer.map_or_else(|(status, message)| failure(status, &message), shown)
    }

    /// The events since the version that is asked for, until the time is over.
    fn watch(&self, request: &Request) -> Answer {
        let selection = request.selection();
        let from = request.number("resourceVersion").expect("a watch follows a list");
        let limit = Duration::from_secs(request.number("timeoutSeconds").expect("kube limits watches") as u64);
        let metadata_only = request.metadata_only;
        let events = stream::unfold((self.clone(), selection, from), move |(server, selection, from)| async move {
            let (version, kind, object) = server.next_event(&selection, from).await;
            let object = if metadata_only { metadata_of(&object) } else { object };
            let line = format!("{}\n", json!({ "type": kind, "object": object }));
            Some((Ok(Frame::data(Bytes::from(line))), (server, selection, version)))
        });
        Response::new(StreamBody::new(events.take_until(sleep(limit)).boxed()))
    }

    async fn next_event(&self, selection: &Selection, from: usize) -> (usize, &'static str, Value) {
        let mut changed = self.changes();
        loop {
            let more = {
                let objects = self.0.objects.lock();
                if let Some(event) = objects.event_after(selection, from) {
                    return event;
                }
                objects.shows_more_at(&selection.plural)
            };
            let later = async {
                match more {
                    Some(at) => sleep_until(at).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                _ = changed.changed() => {}
                () = later => {}
            }
        }
    }
}

fn key(plural: &str, namespace: &str, name: &str) -> Key {
    let [plural, namespace, name] = [plural, namespace, name].map(str::to_owned);
    Key { plural, namespace, name }
}

/// A page of a list.
fn list(objects: &Objects, request: &Request) -> Value {
    let selection = request.selection();
    let (version, from) = request.continued().unwrap_or_else(|| (objects.shown(&selection.plural), 0));
    let all = objects.list(&selection, version);
    let to = all.len().min(from + request.number("limit").unwrap_or(all.len()));
    let next = (to < all.len()).then(|| format!("{version}/{to}"));
    let items: Vec<_> = all.into_iter().take(to).skip(from).map(|object| shown(request, object)).collect();
    let metadata = json!({ "resourceVersion": version.to_string(), "continue": next });
    json!({ "kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items })
}

/// The object, or what is asked for of it.
fn shown(request: &Request, object: Value) -> Value {
    if request.metadata_only { metadata_of(&object) } else { object }
}

fn metadata_of(object: &Value) -> Value {
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"] })
}

fn success(body: &Value) -> Answer {
    Response::new(whole(body))
}

fn failure(status: u16, message: &str) -> Answer {
    let reason = match status {
        404 => "NotFound",
        409 if message.ends_with("already exists") => "AlreadyExists",
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        _ => "",
    };
    let field = message.split_once(": ").filter(|_| status == 422).map(|(field, _)| field);
    let causes: Vec<_> = field.into_iter().map(|field| json!({ "field": field, "message": message })).collect();
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": status,
        "details": { "causes": causes },
    });
    Response::builder().status(status).body(whole(&body)).expect("a status")
}

fn whole(body: &Value) -> StreamBody<Lines> {
    StreamBody::new(stream::iter([Ok(Frame::data(Bytes::from(body.to_string())))]).boxed())
}
