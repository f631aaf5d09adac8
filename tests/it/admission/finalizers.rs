//! Who may remove the finalizer of a claim or ObjectBucket.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::admission::{
    DryRun, Policy, Values, acting_as, cluster_admin, create, delete, dry_create, grant, held, label, patch, read,
    unfinalized,
};
use crate::support::other::OtherCluster;
use crate::support::{World, api_of, seen, shipped};

const CLAIM: &str = "ObjectBucketClaim";
const RECORD: &str = "ObjectBucket";
const FINALIZER: &str = "objectbucket.io/finalizer";
const FOREIGN: &str = "example.com/hold";

/// A world with the policy, and the users that it distinguishes.
struct Scene {
    world: World,
    policy: Policy,
    /// Has the role `edit` in the namespace.
    tenant: Client,
    /// May do everything, and is in none of the groups that may remove the finalizer.
    admin: Client,
    /// Is in one of these groups.
    member: Client,
    operator: Client,
}

impl Scene {
    async fn new() -> Self {
        Self::with(World::new().await, "", &[]).await
    }

    /// With `watchNamespaces`, and with more groups that may remove the finalizer.
    async fn with(world: World, watched: &str, groups: &[&str]) -> Self {
        let (operator, tenant, group) = (user(&world, "operator"), user(&world, "tenant"), world.unique("keepers"));
        grant(&world, None, &shipped::rules("ClusterRole", 0), &operator).await;
        let edit = shipped::rules_of("ClusterRole", "aws-s3-provisioner-claims-edit");
        grant(&world, Some(&world.namespace), &edit, &tenant).await;
        let groups = [&[group.as_str()], groups].concat();
        let policy = Policy::finalizers(&world, &Values { operator: &operator, watched, groups: &groups }).await;
        Self {
            policy,
            tenant: acting_as(&world, &tenant, &[]),
            admin: cluster_admin(&world).await,
            // Whose role is another one's, because only the group differs.
            member: acting_as(&world, &world.unique("admin"), &[&world.unique("keepers")]),
            operator: acting_as(&world, &operator, &[]),
            world,
        }
    }

    /// An object with label and finalizer, in the cluster.
    async fn held(&self, kind: &str) -> Value {
        let object = held(&self.world, kind, "photos");
        create(&self.world.client, &object).await.unwrap();
        object
    }

    /// Who may write objects of this kind, and is not exempt.
    fn writer(&self, kind: &str) -> &Client {
        if kind == CLAIM { &self.tenant } else { &self.admin }
    }

    async fn end(self) {
        self.policy.remove(&self.world.client).await;
    }
}

fn user(world: &World, name: &str) -> String {
    format!("system:serviceaccount:{}:{}", world.namespace, world.unique(name))
}

fn finalizers(all: &[&str]) -> Patch<Value> {
    Patch::Merge(json!({ "metadata": { "finalizers": all } }))
}

fn labelled(value: Option<&str>) -> Patch<Value> {
    Patch::Merge(json!({ "metadata": { "labels": { "bucket-provisioner": value } } }))
}

/// What removes the finalizer, alone or together with the label, or with an object that does not have it.
fn removals(object: &Value) -> [Patch<Value>; 4] {
    let both = json!([
        { "op": "remove", "path": "/metadata/labels" },
        { "op": "remove", "path": "/metadata/finalizers" },
    ]);
    let mut bare = object.clone();
    bare["metadata"]["finalizers"] = json!(null);
    bare["metadata"]["labels"] = json!(null);
    [unfinalized(), finalizers(&[FOREIGN]), Patch::Json(serde_json::from_value(both).unwrap()), Patch::Merge(bare)]
}

#[rstest]
#[case::of_a_claim(CLAIM)]
#[case::of_an_object_bucket(RECORD)]
#[tokio::test]
async fn only_operator_and_named_groups_remove_the_finalizer(#[case] kind: &str) {
    let scene = Scene::new().await;
    let object = scene.held(kind).await;
    let writer = scene.writer(kind);
    for removal in removals(&object) {
        let message = scene.policy.refused(patch(writer, &object, &removal, DryRun::No).await);
        let exempt = format!("only the operator and members of {} may", scene.world.unique("keepers"));
        assert!(message.contains(&exempt), "{message}");
        assert!(message.contains("delete the ObjectBucketClaim, and wait"), "{message}");
    }
    let found = read(&scene.world.client, &object).await.unwrap().unwrap();
    assert_eq!(found.finalizers(), [FINALIZER]);
    patch(&scene.operator, &object, &unfinalized(), DryRun::Yes).await.unwrap();
    patch(&scene.member, &object, &unfinalized(), DryRun::No).await.unwrap();
    scene.end().await;
}

#[rstest]
#[case::of_a_claim(CLAIM)]
#[case::of_an_object_bucket(RECORD)]
#[tokio::test]
async fn the_label_stays_while_the_finalizer_exists(#[case] kind: &str) {
    let scene = Scene::new().await;
    let object = scene.held(kind).await;
    for value in [None, Some("another")] {
        let answer = patch(scene.writer(kind), &object, &labelled(value), DryRun::No).await;
        let message = scene.policy.refused(answer);
        assert!(message.contains(&format!("keep the value {}", label(&scene.world))), "{message}");
        patch(&scene.operator, &object, &labelled(value), DryRun::Yes).await.unwrap();
        patch(&scene.member, &object, &labelled(value), DryRun::Yes).await.unwrap();
    }
    // Without the finalizer, nothing depends on the label.
    patch(&scene.member, &object, &unfinalized(), DryRun::No).await.unwrap();
    patch(scene.writer(kind), &object, &labelled(None), DryRun::No).await.unwrap();
    scene.end().await;
}

#[rstest]
#[case::of_a_claim(CLAIM)]
#[case::of_an_object_bucket(RECORD)]
#[tokio::test]
async fn edits_deletion_and_restores_are_not_refused(#[case] kind: &str) {
    let scene = Scene::new().await;
    let object = scene.held(kind).await;
    let writer = scene.writer(kind);
    let edits = [
        json!({ "metadata": { "annotations": { "objectbucket.io/retry": "1" }, "labels": { "team": "a" } } }),
        json!({ "metadata": { "finalizers": [FOREIGN, FINALIZER] } }),
        json!({ "metadata": { "finalizers": [FINALIZER] } }),
        json!({ "spec": { "additionalConfig": { "a": "b" }, "reclaimPolicy": "Retain" } }),
    ];
    for edit in edits {
        patch(writer, &object, &Patch::Merge(edit), DryRun::No).await.unwrap();
    }
    delete(writer, &object, DryRun::No).await.unwrap();
    let found = read(&scene.world.client, &object).await.unwrap().expect("the finalizer keeps it");
    assert!(found.metadata.deletion_timestamp.is_some());
    scene.policy.refused(patch(writer, &object, &unfinalized(), DryRun::No).await);
    patch(&scene.member, &object, &unfinalized(), DryRun::No).await.unwrap();
    assert!(read(&scene.world.client, &object).await.unwrap().is_none());
    // As tools for backups do.
    dry_create(writer, &object).await.unwrap();
    scene.end().await;
}

#[rstest]
#[case::of_a_claim(CLAIM)]
#[case::of_an_object_bucket(RECORD)]
#[tokio::test]
async fn the_status_is_written_and_changes_no_finalizer(#[case] kind: &str) {
    let scene = Scene::new().await;
    let object = scene.held(kind).await;
    let found = read(&scene.world.client, &object).await.unwrap().unwrap();
    let status = json!({ "metadata": { "finalizers": null, "labels": null }, "status": { "phase": "Bound" } });
    let api = api_of(&scene.admin, &found);
    let written = api.patch_status(&found.name_any(), &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    assert_eq!(written.data["status"]["phase"], "Bound");
    assert_eq!((written.finalizers(), written.labels()), (found.finalizers(), found.labels()));
    scene.end().await;
}

#[tokio::test]
async fn objects_of_other_provisioners_are_not_affected() {
    let scene = Scene::new().await;
    for (name, labels) in
        [("rooks", json!({ "bucket-provisioner": "rook-ceph.ceph.rook.io-bucket" })), ("nobodys", json!({}))]
    {
        let mut object = held(&scene.world, CLAIM, name);
        object["metadata"]["labels"] = labels;
        create(&scene.world.client, &object).await.unwrap();
        let ours = json!({ "bucket-provisioner": label(&scene.world) });
        let both = json!({ "metadata": { "labels": ours, "finalizers": null } });
        patch(&scene.tenant, &object, &Patch::Merge(both), DryRun::Yes).await.unwrap();
        patch(&scene.tenant, &object, &labelled(Some(&label(&scene.world))), DryRun::Yes).await.unwrap();
        patch(&scene.tenant, &object, &labelled(Some("another")), DryRun::Yes).await.unwrap();
        patch(&scene.tenant, &object, &unfinalized(), DryRun::No).await.unwrap();
    }
    scene.end().await;
}

#[tokio::test]
async fn objects_of_other_namespaces_are_not_affected() {
    let (world, elsewhere) = (World::new().await, World::new().await);
    let watched = world.namespace.clone();
    let scene = Scene::with(world, &watched, &[]).await;
    let world = &scene.world;
    let of = |name: &str, spec: Value| {
        let mut record = held(world, RECORD, name);
        record["spec"] = spec;
        record
    };
    let mut claim = held(world, CLAIM, "photos");
    let claim_here = claim.clone();
    claim["metadata"]["namespace"] = json!(elsewhere.namespace);
    let others = [
        claim,
        of("recorded", json!({ "additionalState": { "claimNamespace": elsewhere.namespace } })),
        of("referenced", json!({ "claimRef": { "namespace": elsewhere.namespace, "name": "photos" } })),
        of("unknown", json!({ "endpoint": {} })),
    ];
    for object in others {
        create(&world.client, &object).await.unwrap();
        patch(&scene.admin, &object, &unfinalized(), DryRun::No).await.unwrap();
    }
    let here = [
        claim_here,
        of("mine", json!({ "additionalState": { "claimNamespace": watched } })),
        of("of-go", json!({ "claimRef": { "namespace": watched, "name": "photos" } })),
    ];
    for object in here {
        create(&world.client, &object).await.unwrap();
        scene.policy.refused(patch(&scene.admin, &object, &unfinalized(), DryRun::No).await);
    }
    scene.end().await;
}

#[tokio::test]
async fn without_groups_only_the_operator_removes_the_finalizer() {
    let world = World::new().await;
    let operator = user(&world, "operator");
    grant(&world, None, &shipped::rules("ClusterRole", 0), &operator).await;
    let policy = Policy::finalizers(&world, &Values { operator: &operator, watched: "", groups: &[] }).await;
    let object = held(&world, CLAIM, "photos");
    create(&world.client, &object).await.unwrap();
    // A member of system:masters, which needs no permission.
    let message = policy.refused(patch(&world.client, &object, &unfinalized(), DryRun::No).await);
    assert!(message.contains("only the operator may remove"), "{message}");
    let another = acting_as(&world, &user(&world, "another"), &["system:masters"]);
    policy.refused(patch(&another, &object, &unfinalized(), DryRun::No).await);
    patch(&acting_as(&world, &operator, &[]), &object, &unfinalized(), DryRun::No).await.unwrap();
    policy.remove(&world.client).await;
}

#[tokio::test]
async fn a_namespace_with_claims_can_be_deleted() {
    let scene = Scene::new().await;
    let object = scene.held(CLAIM).await;
    let namespaces: Api<Namespace> = Api::all(scene.admin.clone());
    namespaces.delete(&scene.world.namespace, &DeleteParams::default()).await.unwrap();
    scene.world.wait_claim("photos", "being deleted", |claim| claim.metadata.deletion_timestamp.is_some()).await;
    patch(&scene.operator, &object, &unfinalized(), DryRun::No).await.unwrap();
    let gone = seen(&namespaces, &scene.world.namespace, |namespace| namespace.is_none()).await;
    gone.expect("the namespace is deleted");
    scene.end().await;
}

#[tokio::test]
async fn the_crds_can_be_deleted_while_there_are_claims() {
    let other = OtherCluster::take().await;
    // The tests' own user clears this cluster.
    let scene = Scene::with(other.world().await, "", &["system:masters"]).await;
    let objects = [scene.held(CLAIM).await, scene.held(RECORD).await];
    other.delete_crds().await;
    let leaving = |claim: &bucket_provisioner::api::ObjectBucketClaim| claim.metadata.deletion_timestamp.is_some();
    scene.world.wait_claim("photos", "being deleted", leaving).await;
    for object in objects {
        scene.policy.refused(patch(&scene.admin, &object, &unfinalized(), DryRun::No).await);
        patch(&scene.operator, &object, &unfinalized(), DryRun::No).await.unwrap();
    }
    other.wait_crds_gone().await;
    scene.end().await;
}
