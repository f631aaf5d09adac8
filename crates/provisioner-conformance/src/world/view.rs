//! What an operator is shown lags behind, and every kind on its own: a list shows how things were, the watch that follows
//! is held back, while what is asked for by name is answered as it is. When the watch comes through, it repeats all that
//! happened since.

use std::collections::BTreeMap;

use hyper::{Request, Response};

use super::World;
use crate::proxy::{Call, Gate, Verdict};

/// What is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Watched {
    /// The claims of the namespace.
    Claims,
    /// ObjectBuckets.
    Records,
    /// StorageClasses.
    Classes,
    /// The claims' Secrets.
    Secrets,
    /// The claims' ConfigMaps.
    ConfigMaps,
}

impl Watched {
    fn plural(self) -> &'static str {
        match self {
            Self::Claims => "objectbucketclaims",
            Self::Records => "objectbuckets",
            Self::Classes => "storageclasses",
            Self::Secrets => "secrets",
            Self::ConfigMaps => "configmaps",
        }
    }

    /// Whether a call lists or watches it; owners' Secrets are watched by name, and the ObjectBuckets of a bucket are
    /// listed before it is emptied.
    pub fn is(self, call: &Call, verb: &str) -> bool {
        let others = ["fieldSelector", "objectbucket.io%2Fbucket"];
        call.name == format!("{verb} {}", self.plural()) && !others.iter().any(|part| call.target.contains(part))
    }
}

/// How things are, as the operator lists them.
#[derive(Debug, Clone, Default)]
pub struct View(BTreeMap<Watched, String>);

impl View {
    /// Reads the present state.
    pub async fn of(world: &World, kinds: &[Watched]) -> Self {
        let mut view = Self::default();
        let (namespace, label) = (&world.namespace, world.provisioner.replace('/', "-"));
        for kind in kinds {
            let plural = kind.plural();
            let (path, accept) = match kind {
                Watched::Claims => {
                    (format!("/apis/objectbucket.io/v1alpha1/namespaces/{namespace}/{plural}"), "application/json")
                }
                Watched::Records => (format!("/apis/objectbucket.io/v1alpha1/{plural}"), "application/json"),
                Watched::Classes => (format!("/apis/storage.k8s.io/v1/{plural}"), "application/json"),
                Watched::Secrets | Watched::ConfigMaps => (
                    format!("/api/v1/namespaces/{namespace}/{plural}?labelSelector=bucket-provisioner%3D{label}"),
                    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                ),
            };
            let request = Request::get(path).header("Accept", accept).body(Vec::new()).unwrap();
            view.0.insert(*kind, world.client.request_text(request).await.unwrap());
        }
        view
    }

    /// Has the operator see this, and nothing of these kinds that comes later until the gate is opened. From then on it sees
    /// what is: the API server may no longer have all that happened since, and then the operator lists again.
    pub fn show(self, world: &World) -> Gate {
        let gate = Gate::closed();
        let held = gate.clone();
        world.kubernetes.inject(move |call| {
            let kind = |verb| self.0.keys().find(|kind| kind.is(call, verb));
            if let Some(kind) = kind("list").filter(|_| !held.is_open()) {
                let answer = Response::builder().header("Content-Type", "application/json");
                return Verdict::AnswerWith(answer.body(self.0[kind].clone()).unwrap());
            }
            if kind("watch").is_some() { Verdict::Hold(held.clone()) } else { Verdict::Pass }
        });
        gate
    }
}
