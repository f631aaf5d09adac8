//! Secret and ConfigMap of a claim where others limit what can be written: immutable ones, and admission policies.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use rstest::rstest;
use serde_json::{Value, json};

use provisioner_conformance::PATIENCE;

use crate::support::operator::{Kind, Operator};
use crate::support::{World, bucket_of, seen};

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

async fn configure(world: &World, config: Value) {
    let patch = json!({ "spec": { "additionalConfig": config } });
    world.claims().patch("photos", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

fn shown(object: &impl kube::Resource, labels: [&str; 2], annotation: &str) -> [Option<String>; 3] {
    let label = |key: &str| object.labels().get(key).cloned();
    [label(labels[0]), label(labels[1]), object.annotations().get(annotation).cloned()]
}

/// A deleted Secret has them again; an edit is applied, also with long values; what others have added stays.
#[tokio::test]
async fn outputs_have_the_labels_that_the_claim_asks_for() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let long = "v".repeat(63);
    let labels = format!("team=shop, example.com/tier={long}");
    let config = json!({ "outputLabels": labels, "outputAnnotations": "example.com/note=two words" });
    let spec = json!({ "storageClassName": class, "generateBucketName": "photos", "additionalConfig": config });
    world.claim_with("photos", spec).await;
    world.wait_bound("photos").await;
    let keys = ["team", "example.com/tier"];
    let of_both = async || {
        let (secret, config_map) = tokio::join!(async { world.secrets().get("photos").await }, async {
            world.config_maps().get("photos").await
        });
        let note = "example.com/note";
        let (secret, config_map) = (shown(&secret.unwrap(), keys, note), shown(&config_map.unwrap(), keys, note));
        assert_eq!(secret, config_map);
        secret
    };
    let all = [Some("shop".to_owned()), Some(long.clone()), Some("two words".to_owned())];
    assert_eq!(of_both().await, all);

    world.secrets().delete("photos", &DeleteParams::default()).await.unwrap();
    world.wait_secret("photos", |keys| keys.contains_key("AWS_ACCESS_KEY_ID")).await;
    world.wait_reason("photos", "Bound").await;
    assert_eq!(of_both().await, all);

    let theirs = json!({ "metadata": { "labels": { "theirs": "1" } } });
    world.secrets().patch("photos", &PatchParams::default(), &Patch::Merge(theirs)).await.unwrap();
    let has_team = |team: Option<&'static str>| {
        move |map: Option<&ConfigMap>| map.is_some_and(|map| map.labels().get("team").map(String::as_str) == team)
    };
    configure(&world, json!({ "outputLabels": format!("team=warehouse,example.com/tier={long}") })).await;
    seen(&world.config_maps(), "photos", has_team(Some("warehouse"))).await.expect("the edit is applied");
    assert_eq!(of_both().await[0].as_deref(), Some("warehouse"));
    // What somebody removes is written again.
    let removed = json!({ "metadata": { "labels": { "team": null } } });
    world.secrets().patch("photos", &PatchParams::default(), &Patch::Merge(removed)).await.unwrap();
    let is_back = |secret: Option<&Secret>| secret.is_some_and(|secret| secret.labels().contains_key("team"));
    seen(&world.secrets(), "photos", is_back).await.expect("the label is written again");
    operator.stop().await;

    // Nothing of it is repeated.
    world.kubernetes.clear();
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("other", &class).await;
    world.wait_bound("other").await;
    let writes = world.kubernetes.calls().into_iter().filter(|call| call.mutates && call.target.contains("photos"));
    let writes: Vec<_> =
        writes.map(|call| call.name).filter(|name| name != "patch objectbucketclaims/status").collect();
    assert_eq!(writes, [""; 0]);

    // What cannot be written changes nothing.
    configure(&world, json!({ "outputLabels": "app.kubernetes.io/name=x" })).await;
    let (_, note) = world.wait_event("photos", "EditIgnored").await;
    assert!(note.contains("outputLabels") && note.contains("belongs to Kubernetes"), "{note}");
    assert_eq!(of_both().await[0].as_deref(), Some("warehouse"));
    configure(&world, json!({ "outputLabels": null, "outputAnnotations": null })).await;
    seen(&world.config_maps(), "photos", has_team(None)).await.expect("they are removed");
    assert_eq!(of_both().await, [None, None, None]);
    let secret = world.secrets().get("photos").await.unwrap();
    assert_eq!(secret.labels()["theirs"], "1");
    assert!(!secret.annotations().contains_key("objectbucket.io/output-metadata"));
    operator.stop().await;
}

#[rstest]
#[case::of_kubernetes("outputLabels", "app.kubernetes.io/part-of=x", "belongs to Kubernetes")]
#[case::of_the_operator(
    "outputAnnotations",
    "objectbucket.io/keys-issued-at=x",
    "belongs to Kubernetes or to the operator"
)]
#[case::no_pair("outputLabels", "team", "without \"=\"")]
#[tokio::test]
async fn labels_that_cannot_be_written_fail_a_new_claim(#[case] key: &str, #[case] text: &str, #[case] part: &str) {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let config = json!({ key: text });
    let spec = json!({ "storageClassName": class, "generateBucketName": "photos", "additionalConfig": config });
    world.claim_with("photos", spec).await;
    let message = world.wait_reason("photos", "InvalidSetting").await;
    assert!(message.contains(key) && message.contains(part), "{message}");
    assert_eq!(world.aws.names(), [""; 0]);
    operator.stop().await;
}

#[rstest]
#[case::in_the_path("true", "path")]
#[case::in_the_host("false", "virtual")]
#[tokio::test]
async fn apps_learn_how_to_address_the_bucket(#[case] force_path_style: &str, #[case] style: &str) {
    let world = World::new().await;
    let class = world.class_with("styled", "Delete", &[("forcePathStyle", force_path_style)]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    world.wait_bound("photos").await;
    assert_eq!(world.environment("photos").await["AWS_S3_ADDRESSING_STYLE"], style);
    operator.stop().await;
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
