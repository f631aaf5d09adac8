//! Waits for what must happen: to claims and what belongs to them, to keys, and to events.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use kube::runtime::wait::await_condition;
use kube::runtime::{WatchStreamExt as _, watcher};

use super::{World, entries, phase, ready};
use crate::base::patience;
use bucket_provisioner::api::{ClaimPhase, ObjectBucketClaim};

/// Between a watch that failed and the next.
const PAUSE: Duration = Duration::from_millis(50);

/// Waits until an object, or its absence, is as wanted, and returns it. A watch that the API server ends, as
/// it does when a CRD changes, is restarted.
pub async fn seen<K>(
    api: &Api<K>,
    name: &str,
    wanted: impl Fn(Option<&K>) -> bool,
) -> Result<Option<K>, tokio::time::error::Elapsed>
where
    K: kube::Resource + Clone + std::fmt::Debug + Send + serde::de::DeserializeOwned + 'static,
{
    let watching = async {
        loop {
            if let Ok(found) = await_condition(api.clone(), name, &wanted).await {
                return found;
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(patience(), watching).await
}

impl World {
    /// Waits until a claim looks as wanted, and returns it.
    pub async fn wait_claim(
        &self,
        name: &str,
        what: &str,
        wanted: impl Fn(&ObjectBucketClaim) -> bool + Send + Sync,
    ) -> ObjectBucketClaim {
        let condition = |claim: Option<&ObjectBucketClaim>| claim.is_some_and(&wanted);
        match seen(&self.claims(), name, condition).await {
            Ok(claim) => claim.unwrap(),
            Err(_) => {
                panic!("claim {name} is not {what}: {}", self.dump(name).await)
            }
        }
    }

    /// A claim as it is now, without what the API server notes about its fields.
    async fn dump(&self, name: &str) -> String {
        let claim = self.claims().get_opt(name).await.map(|claim| {
            claim.map(|mut claim| {
                claim.metadata.managed_fields = None;
                claim
            })
        });
        format!("{claim:#?}")
    }

    /// Waits until a claim is bound, and returns it.
    pub async fn wait_bound(&self, name: &str) -> ObjectBucketClaim {
        self.wait_claim(name, "bound", |claim| phase(claim) == Some(ClaimPhase::Bound)).await
    }

    /// Waits until the Ready condition gives this reason; returns its message.
    pub async fn wait_reason(&self, name: &str, reason: &str) -> String {
        let has_reason = |claim: &ObjectBucketClaim| ready(claim).is_some_and(|c| c.reason == reason);
        let claim = self.wait_claim(name, &format!("reported as {reason}"), has_reason).await;
        ready(&claim).unwrap().message.clone()
    }

    /// Waits until a claim no longer exists.
    pub async fn wait_gone(&self, name: &str) {
        let gone = |claim: Option<&ObjectBucketClaim>| claim.is_none();
        if seen(&self.claims(), name, gone).await.is_err() {
            panic!("claim {name} is still there: {}", self.dump(name).await);
        }
    }

    /// Waits until the claim's Secret exists and its entries are as wanted.
    pub async fn wait_secret(&self, name: &str, wanted: impl Fn(&BTreeMap<String, String>) -> bool + Send + Sync) {
        let condition = |secret: Option<&Secret>| secret.is_some_and(|s| wanted(&entries(s.data.clone())));
        if seen(&self.secrets(), name, condition).await.is_err() {
            panic!("the Secret {name} is not as wanted: {}, {:?}", self.dump(name).await, self.events(name).await);
        }
    }

    /// Waits until the claim's ConfigMap exists and its entries are as wanted.
    pub async fn wait_config_map(&self, name: &str, wanted: impl Fn(&BTreeMap<String, String>) -> bool + Send + Sync) {
        let condition = |map: Option<&ConfigMap>| map.and_then(|map| map.data.as_ref()).is_some_and(&wanted);
        let waited = seen(&self.config_maps(), name, condition).await;
        waited.unwrap_or_else(|_| panic!("the ConfigMap {name} is not as wanted"));
    }

    /// Waits for an event on a claim with this reason, and returns the latest such.
    pub async fn wait_event(&self, claim: &str, reason: &str) -> (String, String) {
        self.wait_event_with(claim, reason, "").await
    }

    /// As [`wait_event`](Self::wait_event), with this text in its note.
    pub async fn wait_event_with(&self, claim: &str, reason: &str, text: &str) -> (String, String) {
        self.wait_event_about(&self.namespace, claim, reason, text).await
    }

    /// Waits for an event on an ObjectBucket with this reason. It has no namespace.
    pub async fn wait_event_on_record(&self, record: &str, reason: &str) {
        self.wait_event_about("default", record, reason, "").await;
    }

    /// As [`wait_event_on_record`](Self::wait_event_on_record), with this text in its note, which is returned.
    pub async fn wait_event_on_record_with(&self, record: &str, reason: &str, text: &str) -> String {
        self.wait_event_about("default", record, reason, text).await.1
    }

    async fn wait_event_about(&self, namespace: &str, name: &str, reason: &str, text: &str) -> (String, String) {
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let mut watch = watcher(events, watcher::Config::default().fields(&about(name))).applied_objects().boxed();
        let seen = async {
            loop {
                // A watch that ends with an error is restarted when it is polled again.
                let Ok(event) = watch.try_next().await else {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                };
                if event.is_none_or(|event| event.reason.as_deref() != Some(reason)) {
                    continue;
                }
                let mut events = self.events_about(namespace, name).await.into_iter();
                if let Some((type_, _, note)) = events.rfind(|(_, r, n)| r == reason && n.contains(text)) {
                    return (type_, note);
                }
            }
        };
        match tokio::time::timeout(patience(), seen).await {
            Ok(found) => found,
            Err(_) => panic!("no event {reason} on {name}: {:?}", self.events_about(namespace, name).await),
        }
    }

    /// All events on a claim, as `(type, reason, note)`, oldest first.
    pub async fn events(&self, claim: &str) -> Vec<(String, String, String)> {
        self.events_about(&self.namespace, claim).await
    }

    /// All events on an ObjectBucket, as `(type, reason, note)`, oldest first.
    pub async fn events_on_record(&self, record: &str) -> Vec<(String, String, String)> {
        self.events_about("default", record).await
    }

    async fn events_about(&self, namespace: &str, name: &str) -> Vec<(String, String, String)> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let mut found: Vec<_> = events.list(&ListParams::default().fields(&about(name))).await.unwrap().items;
        found.sort_by_key(|e| e.event_time.clone().map(|t| t.0));
        found
            .into_iter()
            .map(|e| (e.type_.unwrap_or_default(), e.reason.unwrap_or_default(), e.note.unwrap_or_default()))
            .collect()
    }
}

/// Selects the events on objects of this name: in the namespace of those on ObjectBuckets are thousands, of all worlds.
fn about(name: &str) -> String {
    format!("regarding.name={name}")
}
