//! The end of previous keys: they are deactivated before they are deleted, and not while an app uses them, unless that
//! lasts too long.

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::{Bound, DENIED, PAST, date, wait_deactivated};
use crate::support::operator::{Kind, Operator};
use crate::support::proxy::Verdict;
use crate::support::{World, seen};

const RETIRE_AT: &str = "objectbucket.io/retire-key-at";

/// A claim whose keys were rotated; `before`: what it had before.
struct Rotated {
    before: Bound,
    key: String,
}

impl Rotated {
    async fn new(world: &World) -> Self {
        let class = world.class("greenfield").await;
        let before = Bound::new(world, &class).await;
        let ask = json!({ "metadata": { "annotations": { "objectbucket.io/rotate-keys": "now" } } });
        world.claims().patch("photos", &PatchParams::default(), &Patch::Merge(ask)).await.unwrap();
        world.wait_secret("photos", |keys| keys["AWS_ACCESS_KEY_ID"] != before.key()).await;
        world.wait_event("photos", "KeysRotated").await;
        let key = world.environment("photos").await["AWS_ACCESS_KEY_ID"].clone();
        Self { before, key }
    }

    async fn previous_key_works(&self, world: &World) -> bool {
        world.account_of(&self.before.environment).put(&self.before.bucket, "by a pod that still runs").await.is_ok()
    }
}

/// The notes in the claim's Secret.
async fn note(world: &World, annotation: &str) -> Option<String> {
    let secret = world.secrets().get("photos").await.unwrap();
    secret.metadata.annotations.unwrap_or_default().remove(annotation)
}

#[tokio::test]
async fn a_previous_key_can_be_reactivated_before_its_deletion() {
    let world = World::new().await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    let rotated = Rotated::new(&world).await;
    date(&world, "photos", RETIRE_AT).await;
    wait_deactivated(&world, "photos").await;
    let (type_, text) = world.wait_event("photos", "FormerKeyDeactivated").await;
    assert!(type_ == "Normal" && text.contains(rotated.before.key()), "{text}");
    assert!(!rotated.previous_key_works(&world).await);
    assert_eq!(world.account.keys(&rotated.before.user).await.len(), 2);
    let until = note(&world, RETIRE_AT).await.unwrap();
    assert!(text.contains(&until), "{text} {until}");

    // An admin finds out which pod still needs it.
    world.account.set_key_active(&rotated.before.user, rotated.before.key(), true).await;
    assert!(rotated.previous_key_works(&world).await);
    date(&world, "photos", RETIRE_AT).await;
    world.wait_active_keys(&rotated.before.user, &[&rotated.key]).await;
    // What comes of it is noted later than IAM shows it.
    let noted = |secret: Option<&Secret>| {
        secret.is_some_and(|secret| secret.annotations().get(RETIRE_AT).is_none_or(|at| at != PAST))
    };
    seen(&world.secrets(), "photos", noted).await.expect("another time is noted");
    date(&world, "photos", RETIRE_AT).await;
    world.wait_keys(&rotated.before.user, &[&rotated.key]).await;
    world.wait_event("photos", "KeysRetired").await;
}

/// Somebody deactivates the current key; the previous one may be all that apps have.
#[tokio::test]
async fn a_previous_key_is_kept_while_the_current_one_is_inactive() {
    let world = World::new().await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    let rotated = Rotated::new(&world).await;
    world.account.set_key_active(&rotated.before.user, &rotated.key, false).await;
    let retry = async |value: &str| {
        let ask = json!({ "metadata": { "annotations": { "objectbucket.io/retry": value } } });
        world.claims().patch("photos", &PatchParams::default(), &Patch::Merge(ask)).await.unwrap();
    };
    retry("1").await;
    world.wait_reason("photos", "KeysInactive").await;
    date(&world, "photos", RETIRE_AT).await;
    // The second check begins after the first has finished.
    for value in ["2", "3"] {
        world.aws.clear();
        retry(value).await;
        world.aws.wait_until("a check", |calls| calls.iter().any(|call| call.name == "ListAccessKeys")).await;
    }
    assert_eq!(world.account.keys(&rotated.before.user).await.len(), 2);
    assert!(rotated.previous_key_works(&world).await);
}

/// The answer of IAM about the last use of a key.
fn used_at(time: &str) -> String {
    format!(
        "<GetAccessKeyLastUsedResponse xmlns=\"https://iam.amazonaws.com/doc/2010-05-08/\"><GetAccessKeyLastUsedResult>\
         <UserName>u</UserName><AccessKeyLastUsed><LastUsedDate>{time}</LastUsedDate><ServiceName>s3</ServiceName>\
         <Region>us-west-1</Region></AccessKeyLastUsed></GetAccessKeyLastUsedResult></GetAccessKeyLastUsedResponse>"
    )
}

/// For a limited time.
#[tokio::test]
async fn a_previous_key_in_use_is_reported_and_kept_longer() {
    let world = World::new().await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    let rotated = Rotated::new(&world).await;
    // In the future, so that it is recent whatever the time is.
    world.aws.inject(|call| match call.name.as_str() {
        "GetAccessKeyLastUsed" => Verdict::Answer(200, used_at("2099-01-01T00:00:00Z")),
        _ => Verdict::Pass,
    });
    date(&world, "photos", RETIRE_AT).await;
    let (type_, text) = world.wait_event("photos", "FormerKeyInUse").await;
    assert!(type_ == "Warning" && text.contains(rotated.before.key()) && text.contains("2099-01-01"), "{text}");
    assert!(rotated.previous_key_works(&world).await);
    let until = note(&world, RETIRE_AT).await.unwrap();
    assert!(!until.starts_with("2020"), "{until}");

    // As if all of that was years ago.
    let old = json!({ "metadata": { "annotations": {
        RETIRE_AT: "2020-01-01T00:00:00Z", "objectbucket.io/keys-issued-at": "2020-01-01T00:00:00Z",
    } } });
    world.secrets().patch("photos", &PatchParams::default(), &Patch::Merge(old)).await.unwrap();
    world.wait_keys(&rotated.before.user, &[&rotated.key]).await;
    assert!(!rotated.previous_key_works(&world).await);
}

#[tokio::test]
async fn a_previous_key_of_unknown_use_is_kept_for_a_limited_time() {
    let world = World::new().await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    let rotated = Rotated::new(&world).await;
    world.aws.inject(|call| match call.name.as_str() {
        "GetAccessKeyLastUsed" | "UpdateAccessKey" => Verdict::Answer(403, DENIED.to_owned()),
        _ => Verdict::Pass,
    });
    date(&world, "photos", RETIRE_AT).await;
    let (type_, text) = world.wait_event_with("photos", "CheckFailed", "iam:GetAccessKeyLastUsed").await;
    assert!(type_ == "Warning" && text.contains("works until"), "{text}");
    assert!(rotated.previous_key_works(&world).await);
    let old = json!({ "metadata": { "annotations": {
        RETIRE_AT: "2020-01-01T00:00:00Z", "objectbucket.io/keys-issued-at": "2020-01-01T00:00:00Z",
    } } });
    world.secrets().patch("photos", &PatchParams::default(), &Patch::Merge(old)).await.unwrap();
    world.wait_keys(&rotated.before.user, &[&rotated.key]).await;
}
