//! `bucketClaimName`: a second claim of a namespace gets keys of its own to a bucket that was created for the first one. (That
//! the order of creation and deletion does not matter is in the kit.)
//!
//! Long, because the cases share what binds a claim and its reader.

use std::time::Duration;

use bucket_provisioner::api::{ClaimPhase, ObjectBucket, ObjectBucketClaim};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::operator::{Kind, Operator};
use crate::support::proxy::{Call, Gate, Verdict};
use crate::support::tool::Tool;
use crate::support::{World, bucket_of, phase, seen};

const SHARES: (&str, &str) = ("claimsMaySet", "bucketClaimName");

async fn class(world: &World) -> String {
    world.class_with("shared", "Delete", &[SHARES]).await
}

fn reader_of(creator: &str, class: &str) -> Value {
    let config = json!({ "bucketClaimName": creator, "accessMode": "ReadOnly" });
    json!({ "storageClassName": class, "additionalConfig": config })
}

/// A Bound claim with an object, and a Bound one that reads it; returns the bucket.
async fn bind(world: &World, class: &str) -> String {
    world.claim("loader", class).await;
    let bucket = bucket_of(&world.wait_bound("loader").await);
    world.claim_with("reader", reader_of("loader", class)).await;
    world.wait_bound("reader").await;
    world.app("loader").await.put(&bucket, "first").await.unwrap();
    bucket
}

async fn edit(world: &World, claim: &str, config: Value) {
    let patch = json!({ "spec": { "additionalConfig": config } });
    world.claims().patch(claim, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

#[tokio::test]
async fn a_reader_of_a_claims_bucket_cannot_write() {
    let world = World::new().await;
    let class = class(&world).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("loader", &class).await;
    let bucket = bucket_of(&world.wait_bound("loader").await);
    world.aws.clear();
    world.claim_with("reader", reader_of("loader", &class)).await;
    world.wait_bound("reader").await;
    let mut calls = world.aws.names();
    calls.sort();
    let expected = ["CreateAccessKey", "CreateUser", "GetBucketTagging", "GetObject", "ListObjectsV2", "PutUserPolicy"];
    assert_eq!(calls, expected);
    world.app("loader").await.put(&bucket, "first").await.unwrap();
    let (loader, reader) = (world.environment("loader").await, world.environment("reader").await);
    assert_eq!(reader["BUCKET_NAME"], bucket);
    assert_ne!(reader["AWS_ACCESS_KEY_ID"], loader["AWS_ACCESS_KEY_ID"]);
    let app = world.app("reader").await;
    assert_eq!(app.list(&bucket).await.unwrap(), ["first"]);
    assert!(app.put(&bucket, "second").await.is_err());

    world.delete_claim("reader").await;
    world.wait_gone("reader").await;
    assert!(app.list(&bucket).await.is_err());
    world.app("loader").await.put(&bucket, "second").await.unwrap();
    operator.stop().await;
}

/// The bucket's own keys of KMS and the tags of its class are those of the user, too.
#[tokio::test]
async fn a_reader_gets_what_the_bucket_needs_and_sets_nothing() {
    let world = World::new().await;
    let key = "arn:aws:kms:eu-central-1:123456789012:key/0123-abcd";
    let (may_set, set) = ("claimsMaySet", "bucketClaimName,expireAfter");
    let parameters = [(may_set, set), ("encryption", "aws:kms"), ("kmsKey", key), ("tags", "claim=${claim}")];
    let class = world.class_with("shared", "Delete", &parameters).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    bind(&world, &class).await;
    let uid = world.claims().get("reader").await.unwrap().uid().unwrap();
    let user = world.account.users_with(&uid).await.pop().unwrap();
    let iam = &world.account.iam;
    let policy = iam.get_user_policy().user_name(&user).policy_name("bucket-access").send().await.unwrap();
    assert!(policy.policy_document().contains("kms"), "{}", policy.policy_document());
    let tags = iam.list_user_tags().user_name(&user).send().await.unwrap().tags;
    assert!(tags.iter().any(|tag| tag.key == "claim" && tag.value == "reader"), "{tags:?}");

    let mut spec = reader_of("loader", &class);
    spec["additionalConfig"]["expireAfter"] = json!("7d");
    world.claim_with("cleaner", spec).await;
    let message = world.wait_reason("cleaner", "SettingNotAllowed").await;
    assert!(message.contains("expireAfter") && message.contains("only that one sets it"), "{message}");
    operator.stop().await;
}

#[rstest]
#[case::not_listed("", json!({}), "SettingNotAllowed", "does not let claims set it (claimsMaySet)")]
#[case::itself("reader", json!({}), "BucketClaimNotShareable", "this claim itself")]
#[case::a_new_bucket("loader", json!({ "generateBucketName": "x" }), "BucketClaimNotShareable", "remove one of both")]
#[case::another_bucket("loader", json!({ "bucketName": "other" }), "BucketClaimNotShareable", "remove one of both")]
#[case::guest_of_a_guest("guest", json!({}), "BucketClaimNotShareable", "name \"loader\"")]
#[case::brownfield("archivist", json!({}), "BucketClaimNotShareable", "use its StorageClass")]
#[tokio::test]
async fn what_cannot_be_shared_fails_the_claim(
    #[case] creator: &str,
    #[case] more: Value,
    #[case] reason: &str,
    #[case] part: &str,
) {
    let world = World::new().await;
    let class = if creator.is_empty() { world.class("shared").await } else { class(&world).await };
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("loader", &class).await;
    world.wait_bound("loader").await;
    match creator {
        "guest" => {
            world.claim_with("guest", reader_of("loader", &class)).await;
            world.wait_bound("guest").await;
        }
        "archivist" => {
            let archive = world.unique("archive");
            world.account.create_bucket(&archive).await;
            let brownfield = world.class_with("archive", "Retain", &[("bucketName", &archive)]).await;
            world.claim("archivist", &brownfield).await;
            world.wait_bound("archivist").await;
        }
        _ => {}
    }
    world.aws.clear();
    let mut spec = reader_of(if creator.is_empty() { "loader" } else { creator }, &class);
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    world.claim_with("reader", spec).await;
    let message = world.wait_reason("reader", reason).await;
    assert!(message.contains(part) && message.contains("bucketClaimName"), "{message}");
    assert_eq!(phase(&world.claims().get("reader").await.unwrap()), Some(ClaimPhase::Failed));
    assert_eq!(world.aws.writes(), [""; 0]);
    world.delete_claim("reader").await;
    world.wait_gone("reader").await;
    operator.stop().await;
}

/// A claim of another namespace is as good as none.
#[tokio::test]
async fn a_claim_of_another_namespace_is_not_found() {
    let world = World::new().await;
    let class = class(&world).await;
    let elsewhere: Api<ObjectBucketClaim> = Api::namespaced(world.client.clone(), "default");
    let name = world.unique("loader");
    let operator = Operator::with(&world, Operator::options(&world).with_namespace(None));
    world.claim_with("reader", reader_of(&name, &class)).await;
    let missing = world.wait_reason("reader", "BucketClaimNotFound").await;
    assert_eq!(phase(&world.claims().get("reader").await.unwrap()), Some(ClaimPhase::Pending));
    let claim = json!({
        "apiVersion": "objectbucket.io/v1alpha1",
        "kind": "ObjectBucketClaim",
        "metadata": { "name": name },
        "spec": { "storageClassName": class, "generateBucketName": name },
    });
    elsewhere.create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
    let is_bound =
        |claim: Option<&ObjectBucketClaim>| claim.is_some_and(|claim| phase(claim) == Some(ClaimPhase::Bound));
    seen(&elsewhere, &name, is_bound).await.expect("it is bound");
    for (number, asked) in [name.clone(), format!("default/{name}")].into_iter().enumerate() {
        let claim = format!("reader-{number}");
        world.claim_with(&claim, reader_of(&asked, &class)).await;
        let message = world.wait_reason(&claim, "BucketClaimNotFound").await;
        assert_eq!(message.replace(&asked, &name), missing);
    }
    elsewhere.delete(&name, &DeleteParams::default()).await.unwrap();
    seen(&elsewhere, &name, |claim| claim.is_none()).await.expect("it is deleted");
    operator.stop().await;
}

/// A bucket of a chosen name was deleted by hand, and somebody else has one of that name now.
#[tokio::test]
async fn a_bucket_without_the_creators_tags_is_not_shared() {
    let world = World::new().await;
    let class = class(&world).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let bucket = world.unique("photos");
    world.claim_with("loader", json!({ "storageClassName": class, "bucketName": bucket })).await;
    world.wait_bound("loader").await;
    let s3 = &world.account.s3;
    s3.delete_bucket().bucket(&bucket).send().await.unwrap();
    world.account.create_bucket(&bucket).await;
    let uid = world.claim_with("reader", reader_of("loader", &class)).await.uid().unwrap();
    let message = world.wait_reason("reader", "OwnershipLost").await;
    assert!(message.contains("ObjectBucketClaim \"loader\""), "{message}");
    assert!(world.account.users_with(&uid).await.is_empty());
    s3.delete_bucket().bucket(&bucket).send().await.unwrap();
    let uid = world.claim_with("other", reader_of("loader", &class)).await.uid().unwrap();
    let message = world.wait_reason("other", "BucketGone").await;
    assert!(message.contains("ObjectBucketClaim \"loader\""), "{message}");
    assert!(world.account.users_with(&uid).await.is_empty());
    operator.stop().await;
}

#[tokio::test]
async fn a_bound_claim_keeps_the_bucket_that_it_shares() {
    let world = World::new().await;
    let class = class(&world).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let bucket = bind(&world, &class).await;
    world.claim("other", &class).await;
    world.wait_bound("other").await;
    edit(&world, "reader", json!({ "bucketClaimName": "other" })).await;
    let (_, note) = world.wait_event("reader", "EditIgnored").await;
    assert!(note.contains("\"other\"") && note.contains(&bucket), "{note}");
    edit(&world, "loader", json!({ "bucketClaimName": "other" })).await;
    world.wait_event("loader", "EditIgnored").await;
    assert_eq!(world.environment("reader").await["BUCKET_NAME"], bucket);
    // The access mode is the reader's own.
    edit(&world, "reader", json!({ "bucketClaimName": "loader", "accessMode": "ReadWrite" })).await;
    world.wait_event_with("reader", "AccessChanged", "ReadWrite").await;
    world.app("reader").await.put(&bucket, "second").await.unwrap();
    operator.stop().await;
}

/// In either order of their adoption. From then on they are as before.
#[rstest]
#[case::creator_first(["loader", "reader"])]
#[case::reader_first(["reader", "loader"])]
#[tokio::test]
async fn restored_claims_share_their_bucket_again(#[case] order: [&str; 2]) {
    let world = World::new().await;
    let class = class(&world).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let bucket = bind(&world, &class).await;
    operator.stop().await;
    let key = world.environment("reader").await["AWS_ACCESS_KEY_ID"].clone();
    let mut backups = Vec::new();
    for claim in order {
        backups.push(world.back_up(claim).await);
    }
    for claim in order {
        world.lose(claim).await;
    }
    let operator = Operator::with(&world, Operator::options(&world).with_resync(Duration::from_millis(500)));
    for (claim, backup) in order.into_iter().zip(&backups) {
        for object in [&backup.secret, &backup.config_map, &backup.record, &backup.claim] {
            world.restore(object).await;
        }
        world.wait_reason(claim, "AdoptionNeeded").await;
        world.set_action(&world.record_name(claim), "adopt").await;
        world.wait_event(claim, "Adopted").await;
        world.wait_bound(claim).await;
    }
    assert_eq!(world.environment("reader").await["AWS_ACCESS_KEY_ID"], key);
    assert_eq!(world.app("reader").await.list(&bucket).await.unwrap(), ["first"]);
    // Each is checked some times, with the tags that the adoption has changed.
    world.aws.clear();
    let checked = |calls: &[Call]| calls.iter().filter(|call| call.name == "GetBucketTagging").count() >= 6;
    world.aws.wait_until("checks", checked).await;
    for claim in order {
        let events = world.events(claim).await;
        assert!(!events.iter().any(|(_, reason, _)| reason == "OwnershipLost"), "{events:?}");
        world.wait_reason(claim, "Bound").await;
    }
    world.delete_claim("loader").await;
    world.wait_reason("loader", "BucketInUse").await;
    let last = Tool::run(&world, &["status", "reader"], "").await;
    assert!(last.out.contains("deletes bucket") && last.out.contains("at once: it was created for"), "{last:?}");
    world.delete_claim("reader").await;
    world.wait_gone("reader").await;
    world.wait_gone("loader").await;
    assert!(!world.account.bucket_exists(&bucket).await);
    operator.stop().await;
}

/// A class that allows more does not widen it.
#[tokio::test]
async fn nobody_gets_more_than_the_class_of_the_bucket_allows() {
    let world = World::new().await;
    let class = class(&world).await;
    let dropbox = world.class_with("dropbox", "Delete", &[("accessMode", "WriteOnly")]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("loader", &dropbox).await;
    let bucket = bucket_of(&world.wait_bound("loader").await);
    world.claim_with("reader", reader_of("loader", &class)).await;
    let message = world.wait_reason("reader", "AccessModeNotAllowed").await;
    assert!(message.contains("allows only WriteOnly"), "{message}");
    edit(&world, "reader", json!({ "accessMode": null })).await;
    world.wait_bound("reader").await;
    let app = world.app("reader").await;
    app.put(&bucket, "first").await.unwrap();
    assert!(app.list(&bucket).await.is_err());
    edit(&world, "reader", json!({ "accessMode": "ReadWrite" })).await;
    let (_, note) = world.wait_event("reader", "EditIgnored").await;
    assert!(note.contains("allows only WriteOnly"), "{note}");
    operator.stop().await;
}

/// It loses what it has, so that the bucket can be deleted.
#[tokio::test]
async fn a_claim_that_is_not_bound_does_not_keep_the_bucket() {
    let world = World::new().await;
    let class = class(&world).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("loader", &class).await;
    let bucket = bucket_of(&world.wait_bound("loader").await);
    world.aws.inject(|call| match call.name.as_str() {
        "CreateAccessKey" => Verdict::Answer(403, DENIED.to_owned()),
        _ => Verdict::Pass,
    });
    let uid = world.claim_with("reader", reader_of("loader", &class)).await.uid().unwrap();
    world.wait_reason("reader", "AccessDenied").await;
    assert_eq!(world.account.users_with(&uid).await.len(), 1);
    world.delete_claim("loader").await;
    world.wait_gone("loader").await;
    assert!(!world.account.bucket_exists(&bucket).await);
    assert!(world.account.users_with(&uid).await.is_empty());
    world.wait_reason("reader", "BucketClaimNotFound").await;
    operator.stop().await;
}

const DENIED: &str = "<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>";

/// The claim whose bucket it would share is deleted after the cache was read, and before the first key is issued.
#[tokio::test]
async fn a_bucket_that_is_being_deleted_gets_no_new_claims() {
    let world = World::new().await;
    let class = class(&world).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("loader", &class).await;
    let bucket = bucket_of(&world.wait_bound("loader").await);
    let gate = Gate::closed();
    let held = gate.clone();
    world.kubernetes.inject(move |call| match call.name.as_str() {
        "create objectbuckets" => Verdict::Hold(held.clone()),
        _ => Verdict::Pass,
    });
    let deletion = Gate::closed();
    let held = deletion.clone();
    world.aws.inject(move |call| match call.name.as_str() {
        "DeleteBucket" => Verdict::Hold(held.clone()),
        _ => Verdict::Pass,
    });
    let uid = world.claim_with("reader", reader_of("loader", &class)).await.uid().unwrap();
    assert!(gate.reached().await, "{:#?}", world.kubernetes.names());
    world.delete_claim("loader").await;
    assert!(deletion.reached().await, "{:#?}", world.aws.names());
    // By now, nobody has seen that the bucket is shared.
    gate.open();
    world.wait_reason("reader", "BucketClaimNotShareable").await;
    deletion.open();
    world.wait_gone("loader").await;
    assert!(!world.account.bucket_exists(&bucket).await);
    assert!(world.account.users_with(&uid).await.is_empty());
    operator.stop().await;
}

/// The tags name the claim that has the bucket now, and the reader knows it also after that one was deleted.
#[tokio::test]
async fn a_reader_follows_the_bucket_to_the_claim_that_takes_it_back() {
    let world = World::new().await;
    let class = world.class_with("shared", "Delete", &[SHARES, ("onDelete", "after:7d")]).await;
    let operator = Operator::with(&world, Operator::options(&world).with_resync(Duration::from_millis(500)));
    let bucket = bind(&world, &class).await;
    world.delete_claim("loader").await;
    world.wait_gone("loader").await;
    world.create_again("loader", &json!({ "storageClassName": class, "generateBucketName": "loader" })).await;
    let uid = world.wait_bound("loader").await.uid().unwrap();
    let record = world.record_name("reader");
    let knows = |found: Option<&ObjectBucket>| {
        let state = found.and_then(|found| found.spec.additional_state.as_ref());
        state.and_then(|state| state.get("bucketClaimUIDs")).is_some_and(|uids| uids.starts_with(&uid))
    };
    seen(&world.records(), &record, knows).await.expect("the reader's ObjectBucket names the new claim");
    world.delete_claim("loader").await;
    world.wait_gone("loader").await;
    world.aws.clear();
    let checked = |calls: &[Call]| calls.iter().filter(|call| call.name == "GetBucketTagging").count() >= 3;
    world.aws.wait_until("checks", checked).await;
    world.wait_reason("reader", "Bound").await;
    assert_eq!(world.app("reader").await.list(&bucket).await.unwrap(), ["first"]);

    // When the time of the deletion comes, the bucket is in use.
    world.delete_in(&world.record_name("loader"), 0).await;
    world.wait_condition(&world.record_name("loader"), "DeletionScheduled", "BucketInUse").await;
    let shown = Tool::run(&world, &["status"], "").await;
    assert!(shown.out.contains("the next one when no other claim uses it"), "{shown:?}");
    let last = Tool::run(&world, &["status", "reader"], "").await;
    assert!(last.out.contains("deletes bucket") && last.out.contains("no other claim uses it"), "{last:?}");
    let listed = Tool::run(&world, &["orphans", "-o", "json"], "").await;
    assert_eq!((listed.code, &listed.json()["orphans"][0]["reason"]), (0, &json!("BucketInUse")), "{listed:?}");
    assert_eq!(world.app("reader").await.list(&bucket).await.unwrap(), ["first"]);
    world.delete_claim("reader").await;
    let (_, note) = world.wait_event_with("reader", "Removed", "is left to ObjectBucketClaim \"loader\"").await;
    assert!(note.contains("may be deleted now"), "{note}");
    world.wait_record_gone(&world.record_name("loader")).await;
    assert!(!world.account.bucket_exists(&bucket).await);
    operator.stop().await;
}

/// Its access is removed, so it does not use the bucket.
#[tokio::test]
async fn a_reader_that_vanished_does_not_keep_the_bucket() {
    let world = World::new().await;
    let class = class(&world).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let bucket = bind(&world, &class).await;
    world.forget_object(&world.claims(), "reader").await;
    world.wait_orphaned(&world.record_name("reader"), "ClaimVanished").await;
    world.delete_claim("loader").await;
    world.wait_gone("loader").await;
    assert!(!world.account.bucket_exists(&bucket).await);
    operator.stop().await;
}
