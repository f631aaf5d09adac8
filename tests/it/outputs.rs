//! Secret and ConfigMap of a claim where others limit what can be written: immutable ones, and admission policies.

use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use provisioner_conformance::PATIENCE;

use crate::support::operator::{Kind, Operator};
use crate::support::{World, bucket_of};

async fn annotate(world: &World, claim: &str, annotation: &str, value: &str) {
    let patch = json!({ "metadata": { "annotations": { annotation: value } } });
    world.claims().patch(claim, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// What others added to it is kept.
#[tokio::test]
async fn an_immutable_secret_is_replaced_together_with_its_keys() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    let previous = world.environment("photos").await;
    let edit = json!({
        "metadata": { "labels": { "tier": "gold" }, "annotations": { "team": "a" } },
        "stringData": { "EXTRA": "kept" }, "immutable": true,
    });
    let before = world.secrets().patch("photos", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();

    annotate(&world, "photos", "objectbucket.io/rotate-keys", "1").await;
    world.wait_secret("photos", |keys| keys["AWS_ACCESS_KEY_ID"] != previous["AWS_ACCESS_KEY_ID"]).await;
    let after = world.secrets().get("photos").await.unwrap();
    assert_ne!(after.uid(), before.uid());
    assert_eq!((after.labels()["tier"].as_str(), after.annotations()["team"].as_str()), ("gold", "a"));
    assert_eq!(world.environment("photos").await["EXTRA"], "kept");
    world.app("photos").await.put(&bucket, "a").await.unwrap();
    world.account_of(&previous).put(&bucket, "b").await.expect("the previous key works until its grace period is over");
    let issued = world.aws.names().iter().filter(|name| *name == "CreateAccessKey").count();
    assert_eq!(issued, 2, "{:?}", world.aws.names());
}

#[tokio::test]
async fn an_immutable_config_map_that_is_wrong_is_replaced() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    let edit = json!({ "data": { "BUCKET_NAME": "another" }, "immutable": true });
    world.config_maps().patch("photos", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
    world.wait_config_map("photos", |map| map["BUCKET_NAME"] == bucket).await;
    world.wait_reason("photos", "Bound").await;
}

/// A policy of the cluster that refuses every Secret of the claim's name in this namespace.
struct Policy {
    kinds: [Api<kube::api::DynamicObject>; 2],
    name: String,
}

impl Policy {
    async fn new(world: &World) -> Self {
        let name = world.unique("no-secrets");
        let spec = json!({
            "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"], "operations": ["CREATE", "UPDATE"],
            }] },
            "matchConditions": [{
                "name": "here",
                "expression": format!("request.namespace == {:?} && request.name in ['photos', 'fixed', 'late']", world.namespace),
            }],
            "validations": [{ "expression": "false", "message": "Secrets come from the vault" }],
        });
        let binding = json!({ "policyName": name, "validationActions": ["Deny"] });
        let mut kinds = Vec::new();
        for (kind, spec) in [("ValidatingAdmissionPolicy", spec), ("ValidatingAdmissionPolicyBinding", binding)] {
            let gvk = kube::api::GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
            let resource = kube::api::ApiResource::from_gvk(&gvk);
            let api: Api<kube::api::DynamicObject> = Api::all_with(world.client.clone(), &resource);
            let object = kube::api::DynamicObject::new(&name, &resource).data(json!({ "spec": spec }));
            api.create(&PostParams::default(), &object).await.unwrap();
            kinds.push(api);
        }
        let policy = Self { kinds: kinds.try_into().unwrap(), name };
        policy.wait(world, true).await;
        policy
    }

    /// The API server takes a moment until it enforces a policy, or no longer does.
    async fn wait(&self, world: &World, enforced: bool) {
        let probe: Value = json!({ "metadata": { "name": "late", "namespace": world.namespace } });
        let params = PostParams { dry_run: true, ..PostParams::default() };
        let is_refused =
            async || world.secrets().create(&params, &serde_json::from_value(probe.clone()).unwrap()).await.is_err();
        let takes_effect = async {
            while is_refused().await != enforced {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(PATIENCE, takes_effect).await.expect("the policy takes effect");
    }

    async fn delete(self, world: &World) {
        for api in &self.kinds {
            api.delete(&self.name, &DeleteParams::default()).await.unwrap();
        }
        self.wait(world, false).await;
    }
}

#[tokio::test]
async fn no_keys_are_issued_that_cannot_be_published() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    let key = world.environment("photos").await["AWS_ACCESS_KEY_ID"].clone();
    world.claim("fixed", &class).await;
    world.wait_bound("fixed").await;
    let immutable = Patch::Merge(json!({ "immutable": true }));
    let fixed = world.secrets().patch("fixed", &PatchParams::default(), &immutable).await.unwrap();
    let policy = Policy::new(&world).await;
    world.aws.clear();

    world.claim("late", &class).await;
    let message = world.wait_reason("late", "KubernetesError").await;
    assert!(message.contains("Secrets come from the vault"), "{message}");
    for claim in ["photos", "fixed"] {
        annotate(&world, claim, "objectbucket.io/rotate-keys", "1").await;
        let (_, note) = world.wait_event(claim, "RotationFailed").await;
        assert!(note.contains("Secrets come from the vault") && note.contains("present keys still work"), "{note}");
    }
    let created: Vec<_> = world.aws.names().into_iter().filter(|name| name.starts_with("Create")).collect();
    assert!(created.is_empty(), "{created:?}");
    assert_eq!(world.environment("photos").await["AWS_ACCESS_KEY_ID"], key);
    assert_eq!(
        world.secrets().get("fixed").await.unwrap().uid(),
        fixed.uid(),
        "it is not deleted before it can be replaced"
    );

    policy.delete(&world).await;
    annotate(&world, "photos", "objectbucket.io/retry", "1").await;
    world.wait_secret("photos", |keys| keys["AWS_ACCESS_KEY_ID"] != key).await;
    world.app("photos").await.put(&bucket, "a").await.unwrap();
    world.retry("late", "1").await;
    world.wait_bound("late").await;
}
