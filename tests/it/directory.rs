//! The second store: `examples/directory-provisioner`, whose buckets are directories and whose S3 server is real.

use std::path::{Path, PathBuf};

use aws_sdk_s3::types::{Delete, ObjectIdentifier};
use bucket_provisioner::api::ClaimPhase;
use serde_json::{Value, json};

use crate::conformance::example;
use crate::support::account::Account;
use crate::support::{World, phase};
use provisioner_conformance::{PATIENCE, Running, TempDir, free_address};

/// An operator for directories, with a world and a root of its own.
struct Stage {
    world: World,
    root: TempDir,
    address: String,
    operator: Option<Running>,
}

impl Stage {
    async fn new() -> Self {
        let address = free_address().to_string();
        let mut stage = Self { world: World::new().await, root: TempDir::new(), address, operator: None };
        stage.start();
        stage
    }

    fn start(&mut self) {
        let program = example("directory-provisioner")
            .env("DIRECTORY_ROOT", self.root.path().to_str().unwrap())
            .env("DIRECTORY_ADDRESS", &self.address);
        self.operator = Some(program.start(&self.world));
    }

    async fn kill(&mut self) {
        self.operator.take().unwrap().kill().await;
    }

    async fn class(&self, name: &str, more: Value) -> String {
        let name = self.world.unique(name);
        let mut class = json!({ "metadata": { "name": name }, "provisioner": self.world.provisioner });
        class.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.world.create_class(class).await;
        name
    }

    fn bucket(&self, name: &str) -> PathBuf {
        self.root.path().join("buckets").join(name)
    }

    /// An app of a claim, and the name of its bucket.
    async fn app(&self, claim: &str) -> (Account, String) {
        let environment = self.world.environment(claim).await;
        let get = |key: &str| environment[key].as_str();
        assert_eq!(get("AWS_ENDPOINT_URL_S3"), format!("http://{}", self.address));
        let keys = (get("AWS_ACCESS_KEY_ID"), get("AWS_SECRET_ACCESS_KEY"));
        let app = Account::at(get("AWS_ENDPOINT_URL_S3"), get("BUCKET_REGION"), keys.0, keys.1);
        (app, get("BUCKET_NAME").to_owned())
    }

    fn files(&self, folder: &str) -> Vec<String> {
        let names = |folder: &Path| {
            std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
        };
        names(&self.root.path().join(folder))
    }
}

/// Its keys open no other directory.
#[tokio::test]
async fn a_directory_is_created_and_deleted_with_its_claim() {
    let stage = Stage::new().await;
    let world = &stage.world;
    let class = stage.class("directories", json!({})).await;
    for claim in ["photos", "songs"] {
        world.claim(claim, &class).await;
        world.wait_bound(claim).await;
    }
    let (app, photos) = stage.app("photos").await;
    let (other, songs) = stage.app("songs").await;
    app.put(&photos, "a").await.unwrap();
    assert!(stage.bucket(&photos).join("a").exists());
    assert_eq!(app.put(&songs, "a").await, Err("AccessDenied".to_owned()));
    assert!(app.s3.list_objects_v2().bucket(&songs).send().await.is_err(), "it reads another bucket");
    let copy = |from: &str, to: &str| app.s3.copy_object().copy_source(format!("{from}/a")).bucket(to).key("b").send();
    other.put(&songs, "a").await.unwrap();
    assert!(copy(&songs, &photos).await.is_err(), "it copies from another bucket");
    assert!(copy(&photos, &songs).await.is_err(), "it copies into another bucket");
    copy(&photos, &photos).await.unwrap();
    // `/` and `..` in keys do not lead out of the bucket, by whatever way a key comes.
    let foreign =
        [format!("../{songs}/a"), format!("b/../../{songs}/a"), stage.bucket(&songs).join("a").display().to_string()];
    for key in &foreign {
        assert!(app.put(&photos, key).await.is_err(), "it writes {key}");
        assert!(app.s3.get_object().bucket(&photos).key(key).send().await.is_err(), "it reads {key}");
        let source = format!("{photos}/{key}");
        assert!(
            app.s3.copy_object().copy_source(source).bucket(&photos).key("c").send().await.is_err(),
            "it copies {key}"
        );
        let objects = Delete::builder().objects(ObjectIdentifier::builder().key(key).build().unwrap()).build().unwrap();
        let _ = app.s3.delete_objects().bucket(&photos).delete(objects).send().await;
        assert!(stage.bucket(&songs).join("a").exists(), "it deletes {key}");
    }
    app.put(&photos, "folder/deep/a").await.unwrap();
    // Parts of an upload belong to no bucket, so they would stay.
    assert!(app.s3.create_multipart_upload().bucket(&photos).key("large").send().await.is_err());
    assert!(app.s3.list_buckets().send().await.is_err(), "it sees what others have");
    assert!(app.s3.delete_bucket().bucket(&photos).send().await.is_err(), "it deletes what is the operator's");

    world.claim_with("thief", json!({ "storageClassName": class, "bucketName": photos })).await;
    assert!(world.wait_reason("thief", "BucketTaken").await.contains(&photos));
    assert_eq!(phase(&world.claims().get("thief").await.unwrap()), Some(ClaimPhase::Failed));

    for claim in ["thief", "photos", "songs"] {
        world.delete_claim(claim).await;
        world.wait_gone(claim).await;
        world.assert_no_objects(claim).await;
    }
    assert!(app.put(&photos, "a").await.is_err(), "the keys still work");
    for folder in ["buckets", "marks", "keys"] {
        assert!(stage.files(folder).is_empty(), "left in {folder}: {:?}", stage.files(folder));
    }
}

#[tokio::test]
async fn an_unmounted_root_does_not_count_as_an_empty_one() {
    let mut stage = Stage::new().await;
    let class = stage.class("directories", json!({})).await;
    stage.world.claim("photos", &class).await;
    stage.world.wait_bound("photos").await;
    let (app, bucket) = stage.app("photos").await;
    app.put(&bucket, "a").await.unwrap();

    stage.kill().await;
    let (mounted, elsewhere) = (stage.root.path().to_owned(), stage.root.path().with_extension("elsewhere"));
    std::fs::rename(&mounted, &elsewhere).unwrap();
    std::fs::create_dir(&mounted).unwrap();
    stage.start();
    stage.world.delete_claim("photos").await;
    stage.world.wait_reason("photos", "AccountChanged").await;

    stage.kill().await;
    std::fs::remove_dir_all(&mounted).unwrap();
    std::fs::rename(&elsewhere, &mounted).unwrap();
    assert!(stage.bucket(&bucket).join("a").exists());
    stage.start();
    stage.world.wait_gone("photos").await;
    assert!(stage.files("buckets").is_empty() && stage.files("keys").is_empty());
}

#[tokio::test]
async fn the_operator_exits_with_the_message_of_a_failed_store() {
    let world = World::new().await;
    let root = TempDir::new();
    let missing = root.path().join("missing/root");
    // A flag of the store, behind the command.
    let program = example("directory-provisioner").args(["run", "--root", missing.to_str().unwrap()]);
    let mut operator = program.start(&world);
    let status = operator.exit_status(PATIENCE).await;
    assert_eq!(status.code(), Some(1), "{}", operator.log());
    assert!(operator.log().contains(&format!("directory {missing:?} cannot be used")), "{}", operator.log());
    // What does not call the store does not make it.
    let crds = example("directory-provisioner").args(["crds", "--root", missing.to_str().unwrap()]).run(&world).await;
    assert!(crds.unwrap().contains("objectbucketclaims.objectbucket.io"));
}
