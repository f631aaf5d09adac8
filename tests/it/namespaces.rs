//! Namespaces that are deleted with all that is in them. The Secret with the provisioning credentials is in another
//! one.

use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Resource, ResourceExt as _};
use serde_json::json;

use bucket_provisioner::api::{ClaimPhase, ConditionStatus, ObjectBucketClaim};

use crate::support::operator::{Kind, Operator};
use crate::support::proxy::Verdict;
use crate::support::{World, bucket_of, phase, ready, seen};

const FOREIGN: &str = "example.com/hold";

struct Doomed {
    world: World,
    /// Where the Secret with the provisioning credentials is.
    vault: World,
}

impl Doomed {
    async fn new() -> Self {
        Self { world: World::new().await, vault: World::new().await }
    }

    async fn class(&self, name: &str, bucket: &str) -> String {
        let parameters = [("secretNamespace", self.vault.namespace.as_str()), ("bucketName", bucket)];
        self.world.class_with(name, "Delete", &parameters).await
    }

    fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.world.client.clone())
    }

    async fn delete(&self) {
        self.namespaces().delete(&self.world.namespace, &DeleteParams::default()).await.unwrap();
    }

    async fn wait_gone(&self) {
        let gone = seen(&self.namespaces(), &self.world.namespace, |namespace| namespace.is_none()).await;
        if gone.is_err() {
            let namespace = self.namespaces().get(&self.world.namespace).await;
            let claims = self.world.claims().list(&ListParams::default()).await;
            panic!("the namespace is still there: {namespace:#?}\n{claims:#?}");
        }
    }

    /// Waits until no ObjectBucket records a claim of the namespace: in AWS nothing is left then.
    async fn wait_unrecorded(&self, claim: &str) {
        let gone = seen(&self.world.records(), &self.world.record_name(claim), |record| record.is_none()).await;
        gone.unwrap_or_else(|_| panic!("the record of {claim} is left; AWS calls: {:#?}", self.world.aws.names()));
    }

    /// Restarts the operator, and waits until it has reconciled what is left.
    async fn restart(&self, operator: Operator, class: &str) -> Operator {
        operator.stop().await;
        let options = Operator::options(&self.world).with_namespace(None);
        let operator = Operator::with(&self.world, options);
        // Nothing can be created in a namespace that is being deleted. When a claim in another one is bound, the
        // operator has reconciled the old ones.
        self.vault.claim("later", class).await;
        self.vault.wait_bound("later").await;
        operator
    }

    async fn assert_nothing_left(&self) {
        let records = self.world.records().list(&ListParams::default()).await.unwrap();
        let left: Vec<_> = records.iter().map(|r| r.name_any()).filter(|n| n.contains(&self.world.namespace)).collect();
        assert_eq!(left, [""; 0], "records");
        assert_eq!(self.world.account.users_with(&self.world.namespace).await, [""; 0], "users");
    }
}

async fn hold<K>(api: &Api<K>, name: &str)
where
    K: Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let object = api.get(name).await.unwrap();
    let finalizers: Vec<_> = object.finalizers().iter().cloned().chain([FOREIGN.to_owned()]).collect();
    let patch = json!({ "metadata": { "finalizers": finalizers } });
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Requires that an object is being deleted, and that only a foreign finalizer still holds it.
async fn assert_held<K>(api: &Api<K>, name: &str)
where
    K: Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let held = api.get(name).await.unwrap();
    assert_eq!(held.finalizers(), [FOREIGN], "{name}");
    assert!(held.meta().deletion_timestamp.is_some(), "{name}");
}

async fn let_go<K>(api: &Api<K>, name: &str)
where
    K: Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let object = api.get(name).await.unwrap();
    let rest: Vec<_> = object.finalizers().iter().filter(|finalizer| *finalizer != FOREIGN).collect();
    let patch = json!({ "metadata": { "finalizers": rest } });
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

#[tokio::test]
async fn deleting_a_namespace_removes_all_of_its_claims() {
    let doomed = Doomed::new().await;
    let world = &doomed.world;
    let archive = world.unique("archive");
    world.account.create_bucket(&archive).await;
    world.account.put(&archive, "kept").await.unwrap();
    let greenfield = doomed.class("greenfield", "").await;
    let brownfield = doomed.class("brownfield", &archive).await;
    world.aws.inject(|call| match call.name.as_str() {
        "ListObjectsV2" if call.target.contains("unproven") => Verdict::Answer(503, String::new()),
        "CreateBucket" if call.target.contains("begun") => Verdict::LoseAnswer,
        _ => Verdict::Pass,
    });
    let _operator = Operator::start(world, Kind::InProcess).await;
    let mut buckets = vec![];
    for claim in ["full", "empty"] {
        world.claim(claim, &greenfield).await;
        buckets.push(bucket_of(&world.wait_bound(claim).await));
    }
    world.app("full").await.put(&buckets[0], "a").await.unwrap();
    world.claim_with("granted", json!({ "storageClassName": brownfield })).await;
    world.wait_bound("granted").await;
    for claim in ["unproven", "begun", "nowhere"] {
        let class = if claim == "nowhere" { "no-such-class" } else { &greenfield };
        buckets.push(format!("{claim}-{}", world.claim(claim, class).await.uid().unwrap()));
        world.wait_claim(claim, "reported with a reason", |claim| ready(claim).is_some()).await;
    }

    doomed.delete().await;
    doomed.wait_gone().await;
    doomed.assert_nothing_left().await;
    for bucket in &buckets {
        assert!(!world.account.bucket_exists(bucket).await, "{bucket}");
    }
    assert_eq!(world.account.list(&archive).await.unwrap(), ["kept"]);
}

#[tokio::test]
async fn finalizers_of_others_hold_the_namespace_and_nothing_of_ours() {
    let doomed = Doomed::new().await;
    let world = &doomed.world;
    let class = doomed.class("greenfield", "").await;
    let operator = Operator::start(world, Kind::InProcess).await;
    let mut buckets = vec![];
    for claim in ["claim", "secret", "both", "record"] {
        world.claim(claim, &class).await;
        buckets.push(bucket_of(&world.wait_bound(claim).await));
    }
    for claim in ["claim", "both"] {
        hold(&world.claims(), claim).await;
    }
    for secret in ["secret", "both"] {
        hold(&world.secrets(), secret).await;
    }
    let record = world.record_name("record");
    hold(&world.records(), &record).await;

    doomed.delete().await;
    for claim in ["claim", "secret", "both"] {
        doomed.wait_unrecorded(claim).await;
    }
    let released = |claim: &ObjectBucketClaim| claim.finalizers() == [FOREIGN];
    for claim in ["claim", "both"] {
        let claim = world.wait_claim(claim, "let go by the operator alone", released).await;
        let ready = ready(&claim).unwrap();
        assert!(ready.reason == "Removed" && ready.status == ConditionStatus::False, "{ready:?}");
        assert!(ready.message.contains(FOREIGN), "{ready:?}");
        assert_eq!(phase(&claim), Some(ClaimPhase::Released));
    }
    for claim in ["secret", "record"] {
        world.wait_gone(claim).await;
    }
    assert_held(&world.records(), &record).await;
    let_go(&world.records(), &record).await;
    doomed.wait_unrecorded("record").await;
    doomed.assert_nothing_left().await;
    for bucket in &buckets {
        assert!(!world.account.bucket_exists(bucket).await, "{bucket}");
    }
    for secret in ["secret", "both"] {
        assert_held(&world.secrets(), secret).await;
    }

    // What is left is others' business: a restart touches it no more.
    let versions = async || {
        let (claim, secret) = (world.claims().get("both").await.unwrap(), world.secrets().get("both").await.unwrap());
        (claim.resource_version(), secret.resource_version())
    };
    let before = versions().await;
    let _operator = doomed.restart(operator, &class).await;
    assert_eq!(versions().await, before);

    for claim in ["claim", "both"] {
        let_go(&world.claims(), claim).await;
    }
    for secret in ["secret", "both"] {
        let_go::<Secret>(&world.secrets(), secret).await;
    }
    doomed.wait_gone().await;
}

/// As they are when the claim is tried.
#[tokio::test]
async fn a_class_with_a_selector_serves_namespaces_with_its_labels() {
    let world = World::new().await;
    let class = world.class_with("selected", "Delete", &[("allowedNamespaceSelector", "team=shop")]).await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    let message = world.wait_reason("photos", "NamespaceNotAllowed").await;
    assert!(message.contains("allowedNamespaceSelector"), "{message}");
    assert!(world.aws.names().is_empty(), "{:?}", world.aws.names());
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let labels = json!({ "metadata": { "labels": { "team": "shop" } } });
    namespaces.patch(&world.namespace, &PatchParams::default(), &Patch::Merge(labels)).await.unwrap();
    world.retry("photos", "labelled").await;
    world.wait_bound("photos").await;
}
