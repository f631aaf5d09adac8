//! The guides: their commands, run as they stand there.

use std::collections::BTreeMap;
use std::path::PathBuf;

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
fn blocks(guide: &str) -> BTreeMap<&str, &str> {
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
            ("s3-buckets", world.unique("greenfield")),
            ("s3-owner", "owner".to_owned()),
            ("aws-s3.io-bucket", world.provisioner.replace('/', "-")),
        ];
        Self { folder, names, followed: Vec::new() }
    }

    /// Runs the commands of a block in the cluster of this kubeconfig; returns what they printed.
    async fn follow(&mut self, kubeconfig: &str, world: &World, block: &'static str) -> String {
        self.followed.push(block);
        let mut commands = (*blocks(GUIDE).get(block).unwrap_or_else(|| panic!("no block {block}"))).to_owned();
        for (there, here) in &self.names {
            commands = commands.replace(there, here);
        }
        let binary = PathBuf::from(env!("CARGO_BIN_EXE_aws-s3-provisioner"));
        let path = [PathBuf::from(needed("KUBEBUILDER_ASSETS")), binary.parent().unwrap().to_owned()];
        let path = path.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(":");
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", &commands])
            .current_dir(&self.folder)
            .env("KUBECONFIG", kubeconfig)
            .env("PATH", format!("{path}:{}", std::env::var("PATH").unwrap()))
            .env("PROVISIONER_NAME", &world.provisioner)
            .output()
            .await
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{block}:\n{commands}\n{}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }
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

#[tokio::test]
async fn the_guide_to_disaster_recovery_does_what_it_says() {
    let other = OtherCluster::take().await;
    let (here, there) = (needed("KUBECONFIG"), needed("OTHER_KUBECONFIG"));
    let world = World::new().await;
    let new_world = other.twin_of(&world).await;
    deployment(&world).await;
    let record = world.record_name(CLAIM);
    let mut reader = Reader::new(&world);
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let before = used(&world, &class).await;
    reader.follow(&here, &world, "back-up").await;
    operator.stop().await;

    // The same cluster, where all was lost; records first.
    world.lose(CLAIM).await;
    world.delete_class(&class).await;
    world.secrets().delete("owner", &Default::default()).await.unwrap();
    let operator = Operator::start(&world, Kind::InProcess).await;
    reader.follow(&here, &world, "restore-class").await;
    reader.follow(&here, &world, "freshen").await;
    reader.follow(&here, &world, "restore-records").await;
    world.wait_orphaned(&record, "ClaimGone").await;
    reader.follow(&here, &world, "restore-claims").await;
    world.wait_reason(CLAIM, "AdoptionNeeded").await;
    world.wait_orphaned(&record, "ClaimReplaced").await;
    let told = reader.follow(&here, &world, "look").await;
    assert!(told.contains("AdoptionNeeded") && told.contains("ClaimReplaced"), "{told}");
    assert!(told.contains("objectbucket.io/orphan"), "{told}");
    reader.follow(&here, &world, "adopt").await;
    // Events of former adoptions are there still.
    world.wait_word_off(&record).await;
    world.wait_event(CLAIM, "Adopted").await;
    assert_same(&world, &before).await;

    // To another cluster; claims first.
    reader.follow(&here, &world, "back-up").await;
    reader.follow(&here, &world, "stop-operator").await;
    operator.stop().await;
    new_world.class("greenfield").await;
    let new_operator = Operator::start(&new_world, Kind::InProcess).await;
    reader.follow(&there, &new_world, "freshen").await;
    reader.follow(&there, &new_world, "restore-claims").await;
    new_world.wait_reason(CLAIM, "AdoptionNeeded").await;
    reader.follow(&there, &new_world, "restore-records").await;
    new_world.wait_orphaned(&record, "OtherCluster").await;
    reader.follow(&there, &new_world, "adopt").await;
    new_world.wait_word_off(&record).await;
    new_world.wait_event(CLAIM, "Adopted").await;
    assert_same(&new_world, &before).await;
    reader.follow(&here, &world, "let-go").await;
    world.assert_no_objects(CLAIM).await;
    assert_same(&new_world, &before).await;

    // And back, with both operators running.
    let operator = Operator::start(&world, Kind::InProcess).await;
    reader.follow(&there, &new_world, "back-up").await;
    for step in ["freshen", "restore-records", "restore-claims"] {
        reader.follow(&here, &world, step).await;
    }
    reader.follow(&here, &world, "adopt").await;
    // Events of former adoptions are there still.
    world.wait_word_off(&record).await;
    world.wait_event(CLAIM, "Adopted").await;
    reader.follow(&there, &new_world, "forget").await;
    new_world.wait_record_gone(&record).await;
    new_world.assert_no_objects(CLAIM).await;
    assert_same(&world, &before).await;
    new_operator.stop().await;

    // The record is in no backup.
    let backup = world.back_up(CLAIM).await;
    operator.stop().await;
    world.lose(CLAIM).await;
    world.restore(&backup.secret).await;
    world.restore(&backup.claim).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_reason(CLAIM, "AdoptionNeeded").await;
    reader.follow(&here, &world, "recall").await;
    // Events of former adoptions are there still.
    world.wait_word_off(&record).await;
    world.wait_event(CLAIM, "Adopted").await;
    assert_same(&world, &before).await;

    // Nobody wants them back.
    for (word, stays) in [("revoke", true), ("remove", false)] {
        let bucket = match stays {
            true => before.0.clone(),
            false => used(&world, &class).await.0,
        };
        world.forget_object(&world.claims(), CLAIM).await;
        seen(&world.records(), &record, |record| record.is_some()).await.unwrap();
        reader.follow(&here, &world, word).await;
        assert_eq!(world.account.bucket_exists(&bucket).await, stays, "{word}");
    }
    operator.stop().await;
    let unused: Vec<_> = blocks(GUIDE).into_keys().filter(|name| !reader.followed.contains(name)).collect();
    assert!(unused.is_empty(), "not run: {unused:?}");
    assert!(world.claims().get_opt(CLAIM).await.unwrap().is_none_or(|claim| claim.uid().is_none()));
}
