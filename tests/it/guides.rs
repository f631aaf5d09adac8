//! The guides: their commands, run as they are written there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::ResourceExt as _;
use kube::api::PostParams;
use serde_json::json;
use tokio::process::Command;

use crate::support::operator::{Kind, Operator};
use crate::support::other::OtherCluster;
use crate::support::{World, needed, seen};

const GUIDE: &str = include_str!("../../docs/disaster-recovery.md");
const CLAIM: &str = "photos";

/// The commands of a guide by their names. Each block of shell has one.
pub(crate) fn blocks(guide: &str) -> BTreeMap<&str, &str> {
    let mut blocks = BTreeMap::new();
    let mut rest = guide;
    while let Some((before, after)) = rest.split_once("```sh\n") {
        let (commands, after) = after.split_once("```\n").expect("a block ends");
        let name = before.trim_end().rsplit_once("<!-- run: ").and_then(|(_, name)| name.strip_suffix(" -->"));
        let name =
            name.filter(|name| !name.contains('\n')).unwrap_or_else(|| panic!("a block without a name: {commands}"));
        assert!(blocks.insert(name, commands).is_none(), "two blocks are called {name}");
        rest = after;
    }
    blocks
}

/// A cluster, as the guide reaches it and as the test does.
struct Cluster<'a> {
    kubeconfig: String,
    world: &'a World,
}

/// Somebody who follows the guide, in one cluster at a time, with files of their own.
struct Reader {
    folder: PathBuf,
    /// What the guide calls them, and what they are called here.
    names: Vec<(&'static str, String)>,
    followed: Vec<&'static str>,
}

impl Reader {
    fn new(world: &World) -> Self {
        let folder = std::env::temp_dir().join(format!("aws-s3-provisioner-guide-{}", world.id));
        std::fs::create_dir(&folder).unwrap();
        let names = vec![
            ("shop", world.namespace.clone()),
            ("s3-owner --namespace aws-s3-provisioner", format!("owner --namespace {}", world.namespace)),
            ("kubectl obc", "aws-s3-provisioner".to_owned()),
            ("s3-buckets", world.unique("greenfield")),
            ("s3-owner", "owner".to_owned()),
            ("aws-s3.io-bucket", world.provisioner.replace('/', "-")),
        ];
        Self { folder, names, followed: Vec::new() }
    }

    /// Runs the commands of a block in a cluster; returns what they printed.
    async fn follow(&mut self, cluster: &Cluster<'_>, block: &'static str) -> String {
        self.followed.push(block);
        let mut commands = (*blocks(GUIDE).get(block).unwrap_or_else(|| panic!("no block {block}"))).to_owned();
        for (there, here) in &self.names {
            commands = commands.replace(there, here);
        }
        let mut command = shell(&commands, &self.folder, &cluster.kubeconfig);
        command.env("PROVISIONER_NAME", &cluster.world.provisioner);
        printed(command, &format!("{block}:\n{commands}")).await
    }
}

/// Commands that find the programs of the stack and ours, in a folder and in a cluster.
pub(crate) fn shell(commands: &str, folder: &Path, kubeconfig: &str) -> Command {
    let binary = PathBuf::from(env!("CARGO_BIN_EXE_aws-s3-provisioner"));
    let path = [PathBuf::from(needed("KUBEBUILDER_ASSETS")), binary.parent().unwrap().to_owned()];
    let path = path.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(":");
    let mut command = Command::new("bash");
    command
        .args(["-euo", "pipefail", "-c", commands])
        .current_dir(folder)
        .env("KUBECONFIG", kubeconfig)
        .env("PATH", format!("{path}:{}", std::env::var("PATH").unwrap()));
    command
}

/// Runs a command, which must succeed, and returns what it printed.
pub(crate) async fn printed(mut command: Command, what: &str) -> String {
    let output = command.output().await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{what}\n{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A claim in use: its bucket and its key.
async fn used(world: &World, class: &str) -> (String, String) {
    world.claim(CLAIM, class).await;
    world.wait_bound(CLAIM).await;
    let environment = world.environment(CLAIM).await;
    let bucket = environment["BUCKET_NAME"].clone();
    world.app(CLAIM).await.put(&bucket, "precious").await.unwrap();
    (bucket, environment["AWS_ACCESS_KEY_ID"].clone())
}

async fn assert_same(world: &World, (bucket, key): &(String, String)) {
    let environment = world.environment(CLAIM).await;
    assert_eq!((&environment["BUCKET_NAME"], &environment["AWS_ACCESS_KEY_ID"]), (bucket, key));
    assert_eq!(world.app(CLAIM).await.list(bucket).await.unwrap(), ["precious"]);
}

/// As `deploy/` has it. Nothing runs it here.
async fn deployment(world: &World) {
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let namespace = serde_json::from_value(json!({ "metadata": { "name": "aws-s3-provisioner" } })).unwrap();
    let _ = namespaces.create(&PostParams::default(), &namespace).await;
    let text = include_str!("../../deploy/operator.yaml");
    let shipped = text.split("\n---\n").map(|document| serde_saphyr::from_str::<serde_json::Value>(document).unwrap());
    let shipped = shipped.into_iter().find(|document| document["kind"] == "Deployment").unwrap();
    let deployment: Deployment = serde_json::from_value(shipped).unwrap();
    let deployments: Api<Deployment> = Api::namespaced(world.client.clone(), "aws-s3-provisioner");
    if let Err(error) = deployments.create(&PostParams::default(), &deployment).await {
        assert!(error.to_string().contains("already exists"), "{error}");
    }
}

/// Waits until the operator has done what the annotation asks. The event alone does not show it: those of earlier
/// adoptions are still there.
async fn wait_adopted(world: &World) {
    world.wait_action_removed(&world.record_name(CLAIM)).await;
    world.wait_event(CLAIM, "Adopted").await;
}

#[tokio::test]
async fn the_commands_of_the_disaster_recovery_guide_work() {
    let other = OtherCluster::take().await;
    let world = World::new().await;
    let new_world = other.twin_of(&world).await;
    let here = Cluster { kubeconfig: needed("KUBECONFIG"), world: &world };
    let there = Cluster { kubeconfig: needed("OTHER_KUBECONFIG"), world: &new_world };
    deployment(&world).await;
    let mut reader = Reader::new(&world);
    let class = world.class_with("greenfield", "Delete", &[("onDelete", "after:7d")]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let before = used(&world, &class).await;
    reader.follow(&here, "back-up").await;
    operator.stop().await;

    let operator = restore_in_the_same_cluster(&mut reader, &here, &class).await;
    assert_same(&world, &before).await;

    let before = restore_a_deleted_namespace(&mut reader, &here, before).await;
    assert_same(&world, &before).await;

    let new_operator = move_to_another_cluster(&mut reader, &here, &there, operator).await;
    assert_same(&new_world, &before).await;
    reader.follow(&here, "let-go").await;
    // The operator is stopped, so Kubernetes deletes them.
    seen(&world.secrets(), CLAIM, |secret| secret.is_none()).await.unwrap();
    seen(&world.config_maps(), CLAIM, |config_map| config_map.is_none()).await.unwrap();
    world.assert_no_objects(CLAIM).await;
    assert_same(&new_world, &before).await;

    let operator = move_back(&mut reader, &here, &there).await;
    assert_same(&world, &before).await;
    new_operator.stop().await;

    let operator = recall(&mut reader, &here, operator).await;
    assert_same(&world, &before).await;

    give_up(&mut reader, &here, &class, before.0).await;
    operator.stop().await;
    let unused: Vec<_> = blocks(GUIDE).into_keys().filter(|name| !reader.followed.contains(name)).collect();
    assert!(unused.is_empty(), "not run: {unused:?}");
    assert!(world.claims().get_opt(CLAIM).await.unwrap().is_none_or(|claim| claim.uid().is_none()));
}

/// All is lost; ObjectBuckets are restored first. Returns the new operator.
async fn restore_in_the_same_cluster(reader: &mut Reader, here: &Cluster<'_>, class: &str) -> Operator {
    let (world, record) = (here.world, here.world.record_name(CLAIM));
    world.lose(CLAIM).await;
    world.delete_class(class).await;
    world.secrets().delete("owner", &Default::default()).await.unwrap();
    let operator = Operator::start(world, Kind::InProcess).await;
    reader.follow(here, "restore-class").await;
    reader.follow(here, "freshen").await;
    reader.follow(here, "restore-records").await;
    world.wait_orphaned(&record, "ClaimGone").await;
    reader.follow(here, "restore-claims").await;
    world.wait_reason(CLAIM, "AdoptionNeeded").await;
    world.wait_orphaned(&record, "ClaimReplaced").await;
    let output = reader.follow(here, "look").await;
    assert!(output.contains("AdoptionNeeded") && output.contains("ClaimReplaced"), "{output}");
    assert!(output.contains("objectbucket.io/orphan"), "{output}");
    reader.follow(here, "adopt").await;
    wait_adopted(world).await;
    operator
}

/// The claim is deleted, as Kubernetes does with its namespace. Returns its bucket, and the new key.
async fn restore_a_deleted_namespace(
    reader: &mut Reader,
    here: &Cluster<'_>,
    (bucket, old_key): (String, String),
) -> (String, String) {
    let world = here.world;
    reader.follow(here, "back-up").await;
    world.delete_claim(CLAIM).await;
    world.wait_gone(CLAIM).await;
    reader.follow(here, "hold").await;
    reader.follow(here, "restore-namespace").await;
    world.wait_bound(CLAIM).await;
    let key = world.environment(CLAIM).await["AWS_ACCESS_KEY_ID"].clone();
    assert_ne!(key, old_key);
    (bucket, key)
}

/// Claims come back first. Stops the operator here, and returns the one there.
async fn move_to_another_cluster(
    reader: &mut Reader,
    here: &Cluster<'_>,
    there: &Cluster<'_>,
    operator: Operator,
) -> Operator {
    reader.follow(here, "back-up").await;
    reader.follow(here, "stop-operator").await;
    operator.stop().await;
    there.world.class("greenfield").await;
    let new_operator = Operator::start(there.world, Kind::InProcess).await;
    reader.follow(there, "freshen").await;
    reader.follow(there, "restore-claims").await;
    there.world.wait_reason(CLAIM, "AdoptionNeeded").await;
    reader.follow(there, "restore-records").await;
    there.world.wait_orphaned(&there.world.record_name(CLAIM), "OtherCluster").await;
    reader.follow(there, "adopt").await;
    wait_adopted(there.world).await;
    new_operator
}

/// Both operators run meanwhile. Returns the one here.
async fn move_back(reader: &mut Reader, here: &Cluster<'_>, there: &Cluster<'_>) -> Operator {
    let operator = Operator::start(here.world, Kind::InProcess).await;
    reader.follow(there, "back-up").await;
    for step in ["freshen", "restore-records", "restore-claims"] {
        reader.follow(here, step).await;
    }
    reader.follow(here, "adopt").await;
    wait_adopted(here.world).await;
    reader.follow(there, "forget").await;
    there.world.wait_record_gone(&there.world.record_name(CLAIM)).await;
    there.world.assert_no_objects(CLAIM).await;
    operator
}

/// The ObjectBucket is lost, and is in no backup. Returns the new operator.
async fn recall(reader: &mut Reader, here: &Cluster<'_>, operator: Operator) -> Operator {
    let world = here.world;
    let backup = world.back_up(CLAIM).await;
    reader.follow(here, "back-up").await;
    operator.stop().await;
    world.lose(CLAIM).await;
    world.restore(&backup.secret).await;
    reader.follow(here, "restore-namespace").await;
    let operator = Operator::start(world, Kind::InProcess).await;
    world.wait_reason(CLAIM, "AdoptionNeeded").await;
    reader.follow(here, "recall").await;
    wait_adopted(world).await;
    operator
}

/// Nobody wants the claim back. First the access is revoked and its bucket stays, then a new claim is deleted with all
/// it had.
async fn give_up(reader: &mut Reader, here: &Cluster<'_>, class: &str, bucket: String) {
    let (world, record) = (here.world, here.world.record_name(CLAIM));
    for (action, stays) in [("revoke", true), ("remove", false)] {
        let bucket = match stays {
            true => bucket.clone(),
            false => used(world, class).await.0,
        };
        world.forget_object(&world.claims(), CLAIM).await;
        seen(&world.records(), &record, |record| record.is_some()).await.unwrap();
        reader.follow(here, action).await;
        assert_eq!(world.account.bucket_exists(&bucket).await, stays, "{action}");
    }
}
