//! Access modes and prefixes: what the keys of a claim can do, and what they cannot.

use std::time::Duration;

use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::types::{ObjectCannedAcl, Tag, Tagging};
use bucket_provisioner::api::ClaimPhase;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use rstest::rstest;
use serde_json::json;

use crate::support::account::Account;
use crate::support::operator::{Kind, Operator};
use crate::support::{World, bucket_of, phase};

fn outcome<T, E: ProvideErrorMetadata, R>(answer: Result<T, SdkError<E, R>>) -> Result<(), String> {
    answer.map(drop).map_err(|error| error.code().unwrap_or("no code").to_owned())
}

/// What an app can do with a bucket, and an object in it.
struct App<'a> {
    account: Account,
    bucket: &'a str,
}

impl App<'_> {
    async fn read(&self, key: &str) -> Result<(), String> {
        outcome(self.account.s3.get_object().bucket(self.bucket).key(key).send().await)
    }

    async fn list(&self, prefix: Option<&str>) -> Result<(), String> {
        let list = self.account.s3.list_objects_v2().bucket(self.bucket).set_prefix(prefix.map(str::to_owned));
        outcome(list.send().await)
    }

    async fn write(&self, key: &str) -> Result<(), String> {
        self.account.put(self.bucket, key).await
    }

    async fn delete(&self, key: &str) -> Result<(), String> {
        outcome(self.account.s3.delete_object().bucket(self.bucket).key(key).send().await)
    }

    async fn tag(&self, key: &str) -> Result<(), String> {
        let tag = Tag::builder().key("team").value("a").build().unwrap();
        let tagging = Tagging::builder().tag_set(tag).build().unwrap();
        outcome(self.account.s3.put_object_tagging().bucket(self.bucket).key(key).tagging(tagging).send().await)
    }

    async fn set_acl(&self, key: &str) -> Result<(), String> {
        let put = self.account.s3.put_object_acl().bucket(self.bucket).key(key).acl(ObjectCannedAcl::Private);
        outcome(put.send().await)
    }

    async fn upload(&self, key: &str) -> Result<(), String> {
        let s3 = &self.account.s3;
        let begun = s3.create_multipart_upload().bucket(self.bucket).key(key).send().await;
        let Ok(begun) = begun else { return outcome(begun) };
        let abort = s3.abort_multipart_upload().bucket(self.bucket).key(key).upload_id(begun.upload_id().unwrap());
        outcome(abort.send().await)
    }
}

#[track_caller]
fn assert_denied(answers: &[Result<(), String>]) {
    for (nth, answer) in answers.iter().enumerate() {
        assert!(
            answer.as_ref().is_err_and(|code| ["AccessDenied", "403"].contains(&code.as_str())),
            "{nth}: {answer:?}"
        );
    }
}

fn settings(class: &str, mode: &str) -> serde_json::Value {
    json!({ "storageClassName": class, "generateBucketName": "photos", "additionalConfig": { "accessMode": mode } })
}

async fn set_mode(world: &World, claim: &str, mode: Option<&str>) {
    let patch = json!({ "spec": { "additionalConfig": { "accessMode": mode } } });
    world.claims().patch(claim, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// An existing bucket with an object, and a class for it.
async fn archive(world: &World, parameters: &[(&str, &str)]) -> (String, String) {
    let archive = world.unique("archive");
    world.account.create_bucket(&archive).await;
    world.account.put(&archive, "old").await.unwrap();
    let parameters = [&[("bucketName", archive.as_str())], parameters].concat();
    let class = world.class_with("archive", "Retain", &parameters).await;
    (class, archive)
}

#[tokio::test]
async fn a_claim_that_only_reads_cannot_write() {
    let world = World::new().await;
    let (class, bucket) = archive(&world, &[]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim_with("reader", settings(&class, "ReadOnly")).await;
    world.wait_bound("reader").await;
    let app = App { account: world.app("reader").await, bucket: &bucket };
    assert_eq!((app.read("old").await, app.list(None).await), (Ok(()), Ok(())));
    assert_denied(&[
        app.write("new").await,
        app.delete("old").await,
        app.tag("old").await,
        app.set_acl("old").await,
        app.upload("new").await,
    ]);
    world.delete_claim("reader").await;
    world.wait_gone("reader").await;
    assert_eq!(world.account.list(&bucket).await.unwrap(), ["old"]);
    operator.stop().await;
}

#[tokio::test]
async fn a_claim_that_only_writes_cannot_read() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let uid = world.claim_with("writer", settings(&class, "WriteOnly")).await.uid().unwrap();
    let bucket = bucket_of(&world.wait_bound("writer").await);
    assert!(world.account.list(&bucket).await.unwrap().is_empty(), "the keys were tried without an object");
    let uploads = world.account.s3.list_multipart_uploads().bucket(&bucket).send().await.unwrap();
    assert!(uploads.uploads().is_empty(), "{uploads:?}");
    let app = App { account: world.app("writer").await, bucket: &bucket };
    assert_eq!((app.write("new").await, app.upload("large").await), (Ok(()), Ok(())));
    let head = app.account.s3.head_object().bucket(&bucket).key("new").send().await;
    assert_denied(&[app.read("new").await, app.list(None).await, app.delete("new").await]);
    assert!(head.is_err());
    world.delete_claim("writer").await;
    world.wait_gone("writer").await;
    assert!(world.account.users_with(&uid).await.is_empty());
    operator.stop().await;
}

#[rstest]
#[case::wider("ReadOnly", "ReadWrite", "AccessModeNotAllowed", "allows only ReadOnly")]
#[case::no_mode("ReadWrite", "readonly", "InvalidSetting", "write ReadWrite, ReadOnly or WriteOnly")]
#[tokio::test]
async fn a_mode_that_a_claim_cannot_have_fails_it(
    #[case] of_class: &str,
    #[case] asked: &str,
    #[case] reason: &str,
    #[case] part: &str,
) {
    let world = World::new().await;
    let (class, _) = archive(&world, &[("accessMode", of_class)]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim_with("reader", settings(&class, asked)).await;
    let message = world.wait_reason("reader", reason).await;
    assert!(message.contains(part), "{message}");
    let claim = world.claims().get("reader").await.unwrap();
    assert_eq!(phase(&claim), Some(ClaimPhase::Failed));
    assert_eq!(world.aws.writes(), [""; 0]);
    operator.stop().await;
}

#[tokio::test]
async fn claims_with_prefixes_see_only_their_own() {
    let world = World::new().await;
    let prefix = "teams/${namespace}/${claim}/";
    let (class, bucket) = archive(&world, &[("prefix", prefix)]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let mut apps = Vec::new();
    for claim in ["shop", "shop2"] {
        world.claim(claim, &class).await;
        world.wait_bound(claim).await;
        let environment = world.environment(claim).await;
        let own = format!("teams/{}/{claim}/", world.namespace);
        assert_eq!(environment["BUCKET_PREFIX"], own);
        apps.push((App { account: world.account_of(&environment), bucket: &bucket }, own));
    }
    let [(shop, own), (_, others)] = &apps[..] else { unreachable!() };
    assert_eq!(shop.write(&format!("{own}a")).await, Ok(()));
    assert_eq!((shop.read(&format!("{own}a")).await, shop.list(Some(own)).await), (Ok(()), Ok(())));
    assert_denied(&[
        shop.list(None).await,
        shop.list(Some(others)).await,
        shop.list(Some(own.trim_end_matches('/'))).await,
        shop.write(&format!("{others}a")).await,
        shop.read("old").await,
    ]);
    operator.stop().await;
}

#[tokio::test]
async fn namespaces_with_prefixes_see_only_their_own() {
    let (world, other) = (World::new().await, World::new().await);
    let (class, bucket) = archive(&world, &[("prefix", "${namespace}/")]).await;
    let operator = Operator::with(&world, Operator::options(&world).with_namespace(None));
    let mut apps = Vec::new();
    for namespace in [&world, &other] {
        namespace.claim("shop", &class).await;
        namespace.wait_bound("shop").await;
        let app = App { account: namespace.app("shop").await, bucket: &bucket };
        let own = format!("{}/", namespace.namespace);
        assert_eq!(app.write(&format!("{own}a")).await, Ok(()));
        apps.push((app, own));
    }
    for ((app, own), (_, others)) in [(&apps[0], &apps[1]), (&apps[1], &apps[0])] {
        assert_eq!((app.read(&format!("{own}a")).await, app.list(Some(own)).await), (Ok(()), Ok(())));
        let listed = [app.list(None).await, app.list(Some(others)).await];
        assert_denied(&[&listed[..], &[app.read(&format!("{others}a")).await, app.write(others).await]].concat());
    }
    other.delete_claim("shop").await;
    other.wait_gone("shop").await;
    operator.stop().await;
}

/// Its keys stay the same.
#[tokio::test]
async fn an_edited_mode_applies_to_a_bound_claim() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    let app = App { account: world.app("photos").await, bucket: &bucket };
    assert_eq!(app.write("a").await, Ok(()));
    let key = world.environment("photos").await["AWS_ACCESS_KEY_ID"].clone();
    let changed = async |mode: &str| world.wait_event_with("photos", "AccessChanged", mode).await;
    set_mode(&world, "photos", Some("ReadOnly")).await;
    changed("ReadOnly").await;
    assert_denied(&[app.write("b").await]);
    assert_eq!(app.read("a").await, Ok(()));

    // What somebody widens by hand is restored.
    operator.stop().await;
    let user =
        world.account.users_with(&world.claims().get("photos").await.unwrap().uid().unwrap()).await.pop().unwrap();
    let all =
        json!({ "Version": "2012-10-17", "Statement": [{ "Effect": "Allow", "Action": "s3:*", "Resource": "*" }] });
    let put = world.account.iam.put_user_policy().user_name(&user).policy_name("bucket-access");
    put.policy_document(all.to_string()).send().await.unwrap();
    let operator = Operator::with(&world, Operator::options(&world).with_resync(Duration::from_millis(500)));
    let (_, note) = world.wait_event("photos", "Repaired").await;
    assert!(note.contains("bucket-access"), "{note}");
    assert_denied(&[app.write("b").await]);

    set_mode(&world, "photos", None).await;
    changed("ReadWrite").await;
    assert_eq!(app.write("b").await, Ok(()));
    assert_eq!(world.environment("photos").await["AWS_ACCESS_KEY_ID"], key);
    let events = world.events("photos").await;
    let changes = events.iter().filter(|(_, reason, _)| reason == "AccessChanged").count();
    let repairs = events.iter().filter(|(_, reason, _)| reason == "Repaired").count();
    assert_eq!((changes, repairs), (2, 1), "{events:?}");
    operator.stop().await;
}

#[tokio::test]
async fn a_bound_claim_does_not_get_more_than_its_class_allows() {
    let world = World::new().await;
    let (class, bucket) = archive(&world, &[("accessMode", "ReadOnly")]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("reader", &class).await;
    world.wait_bound("reader").await;
    set_mode(&world, "reader", Some("ReadWrite")).await;
    let (_, note) = world.wait_event("reader", "EditIgnored").await;
    assert!(note.contains("allows only ReadOnly") && note.contains("keeps ReadOnly"), "{note}");
    let app = App { account: world.app("reader").await, bucket: &bucket };
    assert_denied(&[app.write("new").await]);
    operator.stop().await;
}
