//! A store that is not AWS: SeaweedFS, which drops tags, refuses some actions of policies, and has no STS. What is
//! promised of AWS holds there, too. (For bound claims over time see `upkeep`, for the operator
//! killed at every call the module `crash`.)

mod upkeep;

use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{CompletedMultipartUpload, CompletedPart, ObjectCannedAcl};
use bucket_provisioner::api::ObjectBucketClaim;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::support::account::Account;
use crate::support::operator::{Kind, Operator};
use crate::support::proxy::Verdict;
use crate::support::{REGION, Store, World, bucket_of};

async fn world() -> World {
    World::at(Store::seaweedfs()).await
}

/// Submits a claim whose bucket has the world's id in its generated name.
async fn submit(world: &World, class: &str) -> ObjectBucketClaim {
    let spec = json!({ "storageClassName": class, "generateBucketName": world.unique("photos") });
    world.claim_with("photos", spec).await
}

/// Submits a claim and waits until it is bound; returns bucket and user.
async fn bound(world: &World, class: &str) -> (String, String) {
    let uid = submit(world, class).await.uid().unwrap();
    let bucket = bucket_of(&world.wait_bound("photos").await);
    (bucket, world.account.users_with(&uid).await.pop().expect("the user"))
}

async fn remove(world: &World) {
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    world.assert_no_objects("photos").await;
}

/// Requires that of all that has the world's id in its name this is there.
async fn assert_left(world: &World, buckets: &[&str]) {
    assert_eq!(world.account.users_with(&world.id).await, [""; 0], "users");
    assert_eq!(world.account.buckets_with(&world.id).await, buckets, "buckets");
}

/// Stops the operator and removes what is left of the world: SeaweedFS writes all its users again when one changes,
/// which takes a second once there are eighty.
async fn end(world: World, operator: Operator) {
    operator.stop().await;
    world.clear_away().await;
    assert_left(&world, &[]).await;
}

/// An upload in parts; its last part is not completed if it is to be left.
async fn upload(app: &Account, bucket: &str, key: &str, complete: bool) {
    let begun = app.s3.create_multipart_upload().bucket(bucket).key(key).send().await.expect("CreateMultipartUpload");
    let id = begun.upload_id().unwrap();
    let part = app.s3.upload_part().bucket(bucket).key(key).upload_id(id).part_number(1);
    let part = part.body(ByteStream::from_static(b"part")).send().await.expect("UploadPart");
    let listed = app.s3.list_parts().bucket(bucket).key(key).upload_id(id).send().await.expect("ListParts");
    assert_eq!(listed.parts().len(), 1);
    if complete {
        let part = CompletedPart::builder().part_number(1).set_e_tag(part.e_tag).build();
        let all = CompletedMultipartUpload::builder().parts(part).build();
        let completed = app.s3.complete_multipart_upload().bucket(bucket).key(key).upload_id(id).multipart_upload(all);
        completed.send().await.expect("CompleteMultipartUpload");
    }
}

#[tokio::test]
async fn a_bucket_is_private_and_deleted_with_its_content() {
    let world = world().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let other = world.unique("other");
    world.account.create_bucket(&other).await;
    world.account.put(&other, "theirs").await.unwrap();

    let (bucket, user) = bound(&world, &class).await;
    assert_eq!(world.account.keys(&user).await, [world.environment("photos").await["AWS_ACCESS_KEY_ID"].clone()]);
    let app = world.app("photos").await;
    for key in ["a", "gone", "folder/b", "folder/deeper/c", "with space & <sign>"] {
        app.put(&bucket, key).await.unwrap();
    }
    let got = app.s3.get_object().bucket(&bucket).key("folder/b").send().await.expect("GetObject");
    assert_eq!(got.body.collect().await.unwrap().into_bytes(), "content");
    app.s3.delete_object().bucket(&bucket).key("gone").send().await.expect("DeleteObject");
    upload(&app, &bucket, "large", true).await;
    upload(&app, &bucket, "left", false).await;
    let uploads = app.s3.list_multipart_uploads().bucket(&bucket).send().await.expect("ListMultipartUploads");
    assert_eq!(uploads.uploads().len(), 1);
    let mut keys = app.list(&bucket).await.unwrap();
    keys.sort();
    assert_eq!(keys, ["a", "folder/b", "folder/deeper/c", "large", "with space & <sign>"]);

    assert_eq!(app.list(&other).await.unwrap_err(), "AccessDenied");
    assert_eq!(app.put(&other, "mine").await.unwrap_err(), "AccessDenied");
    app.s3.get_object().bucket(&other).key("theirs").send().await.expect_err("another bucket");
    app.s3.delete_object().bucket(&other).key("theirs").send().await.expect_err("another bucket");
    app.s3.delete_bucket().bucket(&bucket).send().await.expect_err("not the app's to delete");
    app.iam.create_user().user_name(world.unique("friend")).send().await.expect_err("users are the owner's");

    app.s3.put_object_acl().bucket(&bucket).key("a").acl(ObjectCannedAcl::PublicRead).send().await.expect_err("an ACL");
    // AWS would not allow this.
    let more = app.iam.create_access_key().user_name(&user).send().await.expect("CreateAccessKey").access_key.unwrap();
    let more = Account::at(&world.store.url, REGION, &more.access_key_id, &more.secret_access_key);
    more.list(&bucket).await.unwrap();

    remove(&world).await;
    for app in [app, more] {
        assert_eq!(app.list(&bucket).await.unwrap_err(), "InvalidAccessKeyId");
    }
    assert_left(&world, &[&other]).await;
    assert_eq!(world.account.list(&other).await.unwrap(), ["theirs"]);
    let (_, note) = world.wait_event("photos", "Removed").await;
    assert!(note.contains(&bucket), "{note}");
    end(world, operator).await;
}

#[tokio::test]
async fn a_bucket_is_deleted_with_versions_and_delete_markers() {
    let world = world().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let (bucket, _) = bound(&world, &class).await;
    world.account.keep_versions(&bucket).await;
    let app = world.app("photos").await;
    for key in ["a", "a", "folder/b"] {
        app.put(&bucket, key).await.unwrap();
    }
    app.s3.delete_object().bucket(&bucket).key("a").send().await.unwrap();
    let versions = app.s3.list_object_versions().bucket(&bucket).send().await.expect("ListObjectVersions");
    assert_eq!((versions.versions().len(), versions.delete_markers().len()), (3, 1));
    remove(&world).await;
    assert_left(&world, &[]).await;
    end(world, operator).await;
}

#[tokio::test]
async fn a_chosen_name_is_given_once_and_tagged_with_its_claim() {
    let world = world().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let (bucket, taken) = (world.unique("reports"), world.unique("taken"));
    world.account.create_bucket(&taken).await;
    let spec = |name: &str| json!({ "storageClassName": class, "bucketName": name });
    let uid = world.claim_with("photos", spec(&bucket)).await.uid().unwrap();
    assert_eq!(bucket_of(&world.wait_bound("photos").await), bucket);
    assert_eq!(world.account.bucket_tags(&bucket).await["objectbucket.io/claim-uid"], uid);

    for (claim, name) in [("second", &bucket), ("thief", &taken)] {
        world.claim_with(claim, spec(name)).await;
        world.wait_reason(claim, "BucketTaken").await;
        world.delete_claim(claim).await;
        world.wait_gone(claim).await;
    }
    world.app("photos").await.put(&bucket, "a").await.unwrap();
    remove(&world).await;
    assert_left(&world, &[&taken]).await;
    end(world, operator).await;
}

#[tokio::test]
async fn an_existing_bucket_serves_two_claims_and_outlives_both() {
    let world = world().await;
    let bucket = world.unique("archive");
    world.account.create_bucket(&bucket).await;
    world.account.put(&bucket, "kept").await.unwrap();
    let class = world.class_with("brownfield", "Delete", &[("bucketName", &bucket)]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    for claim in ["photos", "second"] {
        world.claim_with(claim, json!({ "storageClassName": class })).await;
    }
    for claim in ["photos", "second"] {
        world.wait_bound(claim).await;
        assert_eq!(world.app(claim).await.list(&bucket).await.unwrap(), ["kept"]);
    }
    let first = world.app("photos").await;
    remove(&world).await;
    first.list(&bucket).await.unwrap_err();
    world.app("second").await.put(&bucket, "more").await.unwrap();
    world.delete_claim("second").await;
    world.wait_gone("second").await;
    assert_left(&world, &[&bucket]).await;
    assert_eq!(world.account.list(&bucket).await.unwrap(), ["kept", "more"]);
    let untagged = world.account.s3.get_bucket_tagging().bucket(&bucket).send().await;
    assert!(untagged.is_err(), "a brownfield bucket is not reconfigured");
    end(world, operator).await;
}

#[tokio::test]
async fn retain_takes_the_access_and_keeps_bucket_and_objects() {
    let world = world().await;
    let class = world.class_with("retain", "Retain", &[]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let (bucket, _) = bound(&world, &class).await;
    let app = world.app("photos").await;
    app.put(&bucket, "kept").await.unwrap();
    remove(&world).await;
    app.list(&bucket).await.unwrap_err();
    assert_left(&world, &[&bucket]).await;
    assert_eq!(world.account.list(&bucket).await.unwrap(), ["kept"]);
    end(world, operator).await;
}

#[tokio::test]
async fn a_user_of_another_claim_is_left_alone() {
    let world = world().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let (_, user) = bound(&world, &class).await;
    operator.stop().await;
    // As by an admin's mistake: the ObjectBucket names a user that is not the claim's.
    let stranger = format!("{}-photos-11111111-2222-4333-8444-555555555555", world.namespace);
    world.account.iam.create_user().user_name(&stranger).send().await.unwrap();
    let key = world.account.iam.create_access_key().user_name(&stranger).send().await.unwrap();
    let key = key.access_key.unwrap().access_key_id;
    let mut record = world.records().get(&world.record_name("photos")).await.unwrap();
    let state = record.spec.additional_state.as_mut().unwrap();
    let named: Vec<_> = state.iter().filter(|(_, value)| **value == user).map(|(key, _)| key.clone()).collect();
    assert_eq!(named.len(), 1, "{state:?}");
    state.insert(named[0].clone(), stranger.clone());
    let patch = Patch::Merge(json!({ "spec": { "additionalState": state } }));
    world.records().patch(&record.name_any(), &PatchParams::default(), &patch).await.unwrap();

    let operator = Operator::start(&world, Kind::InProcess).await;
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    assert_eq!(world.account.keys(&stranger).await, [key]);
    let message = world.wait_orphaned(&world.record_name("photos"), "UserUnproven").await;
    assert!(message.contains(&stranger), "{message}");
    world.set_action(&world.record_name("photos"), "forget").await;
    world.wait_record_gone(&world.record_name("photos")).await;
    end(world, operator).await;
}

#[tokio::test]
async fn wrong_provisioning_keys_are_named_and_create_nothing() {
    let world = world().await;
    let Store { key, secret, .. } = world.store.clone();
    let operator = Operator::start(&world, Kind::InProcess).await;
    let class = world.class("greenfield").await;
    for wrong in [["nobody", secret.as_str()], [key.as_str(), "wrong"]] {
        world.owner_secret("owner", &[("AWS_ACCESS_KEY_ID", wrong[0]), ("AWS_SECRET_ACCESS_KEY", wrong[1])]).await;
        submit(&world, &class).await;
        let message = world.wait_reason("photos", "CredentialsRefused").await;
        assert!(message.contains(&format!("Secret {}/owner", world.namespace)), "{message}");
        assert!(!message.contains(wrong[1]), "{message}");
        assert_left(&world, &[]).await;
        remove(&world).await;
    }
    submit(&world, &class).await;
    world.wait_reason("photos", "CredentialsRefused").await;
    world.owner_secret("owner", &[("AWS_ACCESS_KEY_ID", &key), ("AWS_SECRET_ACCESS_KEY", &secret)]).await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    world.app("photos").await.put(&bucket, "a").await.unwrap();

    // Nor is anything forgotten while they are wrong.
    world.owner_secret("owner", &[("AWS_ACCESS_KEY_ID", &key), ("AWS_SECRET_ACCESS_KEY", "wrong")]).await;
    world.delete_claim("photos").await;
    world.wait_reason("photos", "CredentialsRefused").await;
    assert_eq!(world.account.users_with(&world.id).await.len(), 1);
    world.owner_secret("owner", &[("AWS_ACCESS_KEY_ID", &key), ("AWS_SECRET_ACCESS_KEY", &secret)]).await;
    world.wait_gone("photos").await;
    assert_left(&world, &[]).await;
    end(world, operator).await;
}

#[tokio::test]
async fn a_claim_that_shares_the_provisioning_keys_creates_no_user() {
    let world = world().await;
    let class = world.class_with("shared", "Delete", &[("createBucketUser", "no")]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    submit(&world, &class).await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    assert_eq!(world.environment("photos").await["AWS_ACCESS_KEY_ID"], world.store.key);
    assert_left(&world, &[&bucket]).await;
    remove(&world).await;
    assert_left(&world, &[]).await;
    end(world, operator).await;
}

#[tokio::test]
async fn a_claim_whose_object_bucket_was_deleted_leaves_no_access() {
    let world = world().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let (bucket, _) = bound(&world, &class).await;
    operator.stop().await;
    world.forget_object(&world.records(), &world.record_name("photos")).await;
    world.delete_claim("photos").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_gone("photos").await;
    world.assert_no_objects("photos").await;
    assert_left(&world, &[&bucket]).await;
    end(world, operator).await;
}

/// It drops the tags of CreateBucket, and is asked whether it keeps what it accepts.
#[tokio::test]
async fn settings_that_the_store_has_are_applied() {
    let world = world().await;
    let settings = [
        ("tags", "team=shop"),
        ("bucketVersioning", "Enabled"),
        ("encryption", "AES256"),
        ("expireAfter", "30d"),
        ("objectOwnership", "BucketOwnerPreferred"),
    ];
    let class = world.class_with("managed", "Delete", &settings).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let (bucket, _) = bound(&world, &class).await;
    assert_eq!(world.account.bucket_tags(&bucket).await["team"], "shop");
    let versioning = world.account.s3.get_bucket_versioning().bucket(&bucket).send().await.unwrap();
    assert_eq!(versioning.status().map(|status| status.as_str()), Some("Enabled"));
    remove(&world).await;
    end(world, operator).await;
}

/// Not as one whose bucket is taken; and it can be deleted.
#[tokio::test]
async fn a_setting_that_the_store_lacks_is_reported() {
    let world = world().await;
    let class = world.class_with("managed", "Delete", &[("publicAccess", "blocked")]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    submit(&world, &class).await;
    let message = world.wait_reason("photos", "NotSupported").await;
    assert!(message.contains("PublicAccessBlock"), "{message}");
    remove(&world).await;
    end(world, operator).await;
}

/// It has no such names. Whether it refuses their form depends on its version, so the proxy does.
#[tokio::test]
async fn a_refused_account_regional_name_is_reported() {
    let world = world().await;
    let plain = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    bound(&world, &plain).await;
    let record = world.records().get(&world.record_name("photos")).await.unwrap();
    let account = record.spec.additional_state.unwrap().get("accountID").cloned();
    let account = account.unwrap_or_else(|| "123456789012".to_owned());
    let parameters = [("bucketNamespace", "account-regional"), ("accountId", account.as_str())];
    let class = world.class_with("regional", "Delete", &parameters).await;
    let refused = "<Error><Code>InvalidBucketName</Code><Message>The specified bucket is not valid.</Message></Error>";
    world.aws.inject(move |call| match call.name.as_str() {
        "CreateBucket" => Verdict::Answer(400, refused.to_owned()),
        _ => Verdict::Pass,
    });
    let spec = json!({ "storageClassName": class, "generateBucketName": world.unique("photos") });
    world.claim_with("regional", spec).await;
    let message = world.wait_reason("regional", "NotSupported").await;
    assert!(message.contains("InvalidBucketName") && message.contains("without bucketNamespace"), "{message}");
    world.delete_claim("regional").await;
    world.wait_gone("regional").await;
    world.assert_no_objects("regional").await;
    world.aws.leave_alone();
    remove(&world).await;
    assert_left(&world, &[]).await;
    end(world, operator).await;
}

/// Its policies know patterns, and the condition about listings.
#[tokio::test]
async fn a_prefix_limits_the_keys() {
    let world = world().await;
    let archive = world.unique("archive");
    world.account.create_bucket(&archive).await;
    let parameters = [("bucketName", archive.as_str()), ("prefix", "${namespace}/")];
    let class = world.class_with("archive", "Retain", &parameters).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    world.wait_bound("photos").await;
    let app = world.app("photos").await;
    app.put(&archive, &format!("{}/a", world.namespace)).await.unwrap();
    assert!(app.put(&archive, "b").await.is_err() && app.list(&archive).await.is_err());
    remove(&world).await;
    end(world, operator).await;
}
