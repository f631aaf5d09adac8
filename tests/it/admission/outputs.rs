//! Which Secrets and ConfigMaps the operator's ServiceAccount may write.

use kube::api::{DynamicObject, Patch};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::support::admission::{
    DryRun, Policy, Values, acting_as, create, delete, dry_create, grant, held, label, patch, read, unfinalized,
};
use crate::support::{World, shipped};

const ROOK: &str = "rook-ceph.ceph.rook.io-bucket";
const TOKEN: &str = "kubernetes.io/service-account-token";
/// How an object differs from an output.
type Change = fn(&Scene, &mut Value);

const KINDS: [&str; 2] = ["Secret", "ConfigMap"];

/// A world with the policy, and its operator, who has the permissions that are shipped.
struct Scene {
    world: World,
    policy: Policy,
    operator: Client,
    /// Owner references to the claim, to one that represents a previous claim of its name, and to what is no claim. All
    /// exist, because the garbage collector deletes what has an owner that does not exist.
    owner: Value,
    previous: Value,
    other: Value,
}

impl Scene {
    async fn new() -> Self {
        let world = World::new().await;
        let user = format!("system:serviceaccount:{}:{}", world.namespace, world.unique("operator"));
        grant(&world, None, &shipped::rules("ClusterRole", 0), &user).await;
        let policy = Policy::outputs(&world, &Values { operator: &user, watched: "", groups: &[] }).await;
        let [owner, previous, other] = [
            held(&world, "ObjectBucketClaim", "photos"),
            held(&world, "ObjectBucketClaim", "previous"),
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a", "namespace": world.namespace } }),
        ];
        let owner_reference = async |owner| controlled_by(&create(&world.client, &owner).await.unwrap());
        Self {
            policy,
            operator: acting_as(&world, &user, &[]),
            owner: owner_reference(owner).await,
            previous: owner_reference(previous).await,
            other: owner_reference(other).await,
            world,
        }
    }

    /// What the operator creates for the claim `photos`.
    fn output(&self, kind: &str) -> Value {
        let mut output = json!({
            "apiVersion": "v1",
            "kind": kind,
            "metadata": {
                "name": "photos",
                "namespace": self.world.namespace,
                "labels": { "bucket-provisioner": label(&self.world) },
                "ownerReferences": [self.owner],
            },
        });
        if kind == "Secret" {
            output["type"] = json!("Opaque");
        }
        output
    }

    /// The same with a change.
    fn changed(&self, kind: &str, change: Change) -> Value {
        let mut output = self.output(kind);
        change(self, &mut output);
        output
    }

    /// Makes an object the claim's, as an adoption does.
    fn adoption(&self, kind: &str) -> Patch<Value> {
        let labels = self.output(kind)["metadata"]["labels"].clone();
        Patch::Merge(json!({ "metadata": { "labels": labels, "ownerReferences": [self.owner] } }))
    }

    /// How somebody with the operator's token could change an object.
    fn attempts(&self, kind: &str) -> [Patch<Value>; 3] {
        let freed = json!({ "metadata": { "labels": null, "ownerReferences": null, "finalizers": ["a.io/b"] } });
        [data(), self.adoption(kind), Patch::Merge(freed)]
    }

    async fn end(self) {
        self.policy.remove(&self.world.client).await;
    }
}

/// An owner reference to an object.
fn controlled_by(owner: &DynamicObject) -> Value {
    let types = owner.types.as_ref().unwrap();
    json!({
        "apiVersion": types.api_version, "kind": types.kind, "name": owner.name_any(), "uid": owner.uid(),
        "controller": true,
    })
}

fn data() -> Patch<Value> {
    Patch::Merge(json!({ "data": { "a": "YQ==" } }))
}

#[tokio::test]
async fn the_operator_mints_no_tokens() {
    let scene = Scene::new().await;
    let mint: Change = |_, output| {
        output["type"] = json!(TOKEN);
        output["metadata"]["annotations"] = json!({ "kubernetes.io/service-account.name": "default" });
    };
    let message = scene.policy.refused(dry_create(&scene.operator, &scene.changed("Secret", mint)).await);
    assert!(message.contains("only Secrets of type Opaque, not kubernetes.io/service-account-token"), "{message}");
    // Nor does it write such a Secret that somebody else created under the name of a claim's.
    let token = scene.changed("Secret", mint);
    create(&scene.world.client, &token).await.unwrap();
    scene.policy.refused(patch(&scene.operator, &token, &data(), DryRun::No).await);
    delete(&scene.operator, &token, DryRun::Yes).await.unwrap();
    scene.end().await;
}

#[tokio::test]
async fn the_operator_creates_outputs_only() {
    let changes: [(&str, Change); 5] = [
        ("without an owner", |_, output| output["metadata"]["ownerReferences"] = json!(null)),
        ("of another owner", |scene, output| output["metadata"]["ownerReferences"] = json!([scene.other])),
        ("of no controller", |_, output| output["metadata"]["ownerReferences"][0]["controller"] = json!(false)),
        ("without the label", |_, output| output["metadata"]["labels"] = json!(null)),
        ("of another provisioner", |_, output| output["metadata"]["labels"]["bucket-provisioner"] = json!(ROOK)),
    ];
    let scene = Scene::new().await;
    for kind in KINDS {
        dry_create(&scene.operator, &scene.output(kind)).await.unwrap();
        for (what, change) in changes {
            println!("{kind} {what}");
            let other = scene.changed(kind, change);
            let message = scene.policy.refused(dry_create(&scene.operator, &other).await);
            assert!(message.contains("may write only Secrets and ConfigMaps that are controlled by"), "{message}");
            // Of other users, nothing is demanded.
            dry_create(&scene.world.client, &other).await.unwrap();
        }
    }
    scene.end().await;
}

#[tokio::test]
async fn the_operator_neither_changes_nor_deletes_others() {
    let others: [(&str, Change); 4] = [
        ("nobodys", |_, other| {
            other["metadata"]["ownerReferences"] = json!(null);
            other["metadata"]["labels"] = json!(null);
        }),
        ("of-another-owner", |scene, other| other["metadata"]["ownerReferences"] = json!([scene.other])),
        ("rooks", |_, other| other["metadata"]["labels"]["bucket-provisioner"] = json!(ROOK)),
        ("rooks-restored", |_, other| {
            other["metadata"]["ownerReferences"] = json!(null);
            other["metadata"]["labels"]["bucket-provisioner"] = json!(ROOK);
        }),
    ];
    let scene = Scene::new().await;
    for kind in KINDS {
        for (name, change) in others {
            println!("{kind} {name}");
            let mut other = scene.changed(kind, change);
            other["metadata"]["name"] = json!(name);
            create(&scene.world.client, &other).await.unwrap();
            for attempt in scene.attempts(kind) {
                scene.policy.refused(patch(&scene.operator, &other, &attempt, DryRun::Yes).await);
            }
            let message = scene.policy.refused(delete(&scene.operator, &other, DryRun::Yes).await);
            assert!(message.contains("may change and delete only Secrets and ConfigMaps of its claims"), "{message}");
            // Of other users, nothing is demanded.
            patch(&scene.world.client, &other, &data(), DryRun::Yes).await.unwrap();
        }
    }
    scene.end().await;
}

#[tokio::test]
async fn the_operator_repairs_adopts_and_deletes_outputs() {
    let outputs: [(&str, Change); 6] = [
        ("as it was created", |_, _| {}),
        ("without the label", |_, output| output["metadata"]["labels"] = json!(null)),
        ("restored without an owner", |_, output| output["metadata"]["ownerReferences"] = json!(null)),
        ("of a previous claim", |scene, output| output["metadata"]["ownerReferences"] = json!([scene.previous])),
        ("of the Go provisioner", |_, output| {
            output["metadata"]["finalizers"] = json!(["objectbucket.io/finalizer"]);
        }),
        ("of the Go provisioner, restored", |_, output| {
            output["metadata"]["finalizers"] = json!(["objectbucket.io/finalizer"]);
            output["metadata"]["ownerReferences"] = json!(null);
        }),
    ];
    let scene = Scene::new().await;
    for kind in KINDS {
        for (what, change) in outputs {
            println!("{kind} {what}");
            let output = scene.changed(kind, change);
            create(&scene.world.client, &output).await.unwrap();
            patch(&scene.operator, &output, &scene.adoption(kind), DryRun::Yes).await.unwrap();
            // What a change leaves is an output.
            for lost in ["labels", "ownerReferences"] {
                let loss = Patch::Merge(json!({ "metadata": { lost: null } }));
                scene.policy.refused(patch(&scene.operator, &output, &loss, DryRun::Yes).await);
            }
            delete(&scene.operator, &output, DryRun::No).await.unwrap();
            if output["metadata"]["finalizers"].is_array() {
                patch(&scene.operator, &output, &unfinalized(), DryRun::No).await.unwrap();
            }
            assert!(read(&scene.world.client, &output).await.unwrap().is_none(), "{kind} {what}");
        }
    }
    scene.end().await;
}
