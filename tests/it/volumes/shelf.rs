//! A store of volumes in memory, which several operators can share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::{NFSVolumeSource, PersistentVolumeSpec, TopologySelectorTerm};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::watch;
use volume_provisioner::{
    ProvisionedVolume, SelectedNode, VolumeError, VolumeProvisioner, VolumeRequest, VolumeToDelete,
};

/// On a PersistentVolume: the shelf that has the volume.
pub(super) const SHELF: &str = "shelf";

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Parameters {
    /// What the volume is made of.
    #[serde(default)]
    pub(super) material: String,
}

/// What becomes of a call.
#[derive(Debug, Clone)]
pub(super) enum Outcome {
    /// It does what it is for.
    Works,
    /// It changes nothing and fails.
    Fails(VolumeError),
    /// It panics.
    Panics,
    /// It is never done, and never returns.
    HangsBefore,
    /// It is done, and never returns.
    HangsAfter,
}

type Rule = Box<dyn FnMut(&str) -> Outcome + Send>;

/// One instance. Clones are the same.
#[derive(Clone)]
pub(super) struct Shelf {
    identity: String,
    takes: fn(Option<&SelectedNode>) -> bool,
    /// It does not check which instance a volume is of.
    careless: bool,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// The volumes there are.
    volumes: Mutex<BTreeSet<String>>,
    /// How often each volume was made, also those that were deleted.
    made: Mutex<BTreeMap<String, usize>>,
    /// `provision NAME` and `delete NAME`, in the order of their arrival.
    calls: watch::Sender<Vec<String>>,
    rule: Mutex<Option<Rule>>,
    /// The nodes for which volumes were asked.
    nodes: Mutex<Vec<Option<SelectedNode>>>,
    /// The topologies in which volumes were allowed.
    topologies: Mutex<Vec<TopologySelectorTerm>>,
}

impl Shelf {
    pub(super) fn new(identity: &str) -> Self {
        Self { identity: identity.to_owned(), takes: |_| true, careless: false, state: Arc::default() }
    }

    /// One that leaves the claims that this does not want.
    pub(super) fn choosy(identity: &str, takes: fn(Option<&SelectedNode>) -> bool) -> Self {
        Self { takes, ..Self::new(identity) }
    }

    /// One whose author has written an identity and no `check_owner`.
    pub(super) fn careless(identity: &str) -> Self {
        Self { careless: true, ..Self::new(identity) }
    }

    pub(super) fn volumes(&self) -> Vec<String> {
        self.state.volumes.lock().unwrap().iter().cloned().collect()
    }

    /// How often each volume was made.
    pub(super) fn made(&self) -> Vec<usize> {
        self.state.made.lock().unwrap().values().copied().collect()
    }

    pub(super) fn calls(&self) -> Vec<String> {
        self.state.calls.borrow().clone()
    }

    pub(super) fn nodes(&self) -> Vec<Option<SelectedNode>> {
        self.state.nodes.lock().unwrap().clone()
    }

    pub(super) fn topologies(&self) -> Vec<TopologySelectorTerm> {
        self.state.topologies.lock().unwrap().clone()
    }

    /// Decides from now on what becomes of each call.
    pub(super) fn inject(&self, rule: impl FnMut(&str) -> Outcome + Send + 'static) {
        *self.state.rule.lock().unwrap() = Some(Box::new(rule));
    }

    pub(super) fn leave_alone(&self) {
        *self.state.rule.lock().unwrap() = None;
    }

    /// Waits until the calls look as wanted.
    pub(super) async fn wait_calls(&self, what: &str, wanted: impl Fn(&[String]) -> bool) {
        let mut calls = self.state.calls.subscribe();
        let seen = calls.wait_for(|calls| wanted(calls));
        if tokio::time::timeout(crate::support::PATIENCE, seen).await.is_err() {
            panic!("not seen: {what}; calls were {:?}", self.calls());
        }
    }

    async fn call(&self, verb: &str, name: &str, work: impl FnOnce(&mut BTreeSet<String>)) -> Result<(), VolumeError> {
        let outcome = self.state.rule.lock().unwrap().as_mut().map_or(Outcome::Works, |rule| rule(verb));
        if matches!(outcome, Outcome::Works | Outcome::HangsAfter) {
            work(&mut self.state.volumes.lock().unwrap());
        }
        self.state.calls.send_modify(|calls| calls.push(format!("{verb} {name}")));
        match outcome {
            Outcome::Works => Ok(()),
            Outcome::Fails(error) => Err(error),
            Outcome::Panics => panic!("on purpose"),
            Outcome::HangsBefore | Outcome::HangsAfter => std::future::pending().await,
        }
    }
}

impl VolumeProvisioner for Shelf {
    type Parameters = Parameters;

    fn identity(&self) -> &str {
        &self.identity
    }

    fn should_provision(&self, request: &VolumeRequest<Parameters>) -> Result<bool, VolumeError> {
        match &*request.parameters.material {
            "glass" => panic!("on purpose"),
            "ice" => Err(VolumeError::terminal("parameter material: \"ice\" melts on every shelf; choose another one")),
            _ => Ok((self.takes)(request.selected_node.as_ref())),
        }
    }

    async fn provision(&self, request: &VolumeRequest<Parameters>) -> Result<ProvisionedVolume, VolumeError> {
        let name = &request.pv_name;
        self.state.nodes.lock().unwrap().push(request.selected_node.clone());
        self.state.topologies.lock().unwrap().extend(request.allowed_topologies.clone());
        let make = |volumes: &mut BTreeSet<String>| {
            // A second call finds it.
            if volumes.insert(name.clone()) {
                *self.state.made.lock().unwrap().entry(name.clone()).or_default() += 1;
            }
        };
        self.call("provision", name, make).await?;
        let source = NFSVolumeSource {
            server: "shelf.example.com".to_owned(),
            path: format!("/{name}{}", request.parameters.material),
            read_only: None,
        };
        let spec = PersistentVolumeSpec { nfs: Some(source), ..PersistentVolumeSpec::default() };
        let volume = ProvisionedVolume::new(spec).with_annotation(SHELF, &self.identity).with_note("made of paper");
        let again = self.calls().iter().filter(|call| **call == format!("provision {name}")).count() > 1;
        // Kubernetes binds no volume that is too small.
        Ok(if request.parameters.material == "wet paper" && !again { volume.with_capacity(1) } else { volume })
    }

    fn check_owner(&self, volume: &VolumeToDelete) -> Result<(), VolumeError> {
        match volume.annotation(SHELF) {
            _ if self.careless => Ok(()),
            Some(shelf) if shelf == self.identity => Ok(()),
            Some(_) => Err(VolumeError::ignored("another shelf has it")),
            None => Err(VolumeError::terminal("the annotation shelf is missing")),
        }
    }

    async fn delete(&self, volume: &VolumeToDelete) -> Result<(), VolumeError> {
        self.call("delete", volume.pv_name(), |volumes| {
            volumes.remove(volume.pv_name());
        })
        .await
    }
}
