//! Claims that get other access: from keys to a ServiceAccount, and from one cluster to another. Their apps have access all the
//! time, and the previous access ends after a grace period. (For crashes see `moving_kills`.)

use bucket_provisioner::api::{ObjectBucket, ObjectBucketClaim};
use kube::api::{Patch, PatchParams};
use rstest::rstest;
use serde_json::{Value, json};

use super::lost::orphans;
use super::refused::deny_tokens;
use super::{create_account, keyless, pod, policies, role, spec};
use crate::support::account::Account;
use crate::support::operator::{Kind, Operator};
use crate::support::other::OtherCluster;
use crate::support::pods::Pods;
use crate::support::proxy::Verdict;
use crate::support::tool::Tool;
use crate::support::{World, bucket_of, condition, seen};
use crate::upkeep::DENIED;

pub(super) const CLAIM: &str = "photos";

/// A claim whose apps have keys, with one of them.
pub(super) struct Keyed {
    class: String,
    pub(super) uid: String,
    key: String,
    pub(super) bucket: String,
    pub(super) app: Account,
    pub(super) record: String,
}

impl Keyed {
    pub(super) async fn bind(world: &World) -> Self {
        let class = world.class("keys").await;
        let uid = world.claim(CLAIM, &class).await.metadata.uid.unwrap();
        let bucket = bucket_of(&world.wait_bound(CLAIM).await);
        world.wait_event(CLAIM, "Bound").await;
        let app = world.app(CLAIM).await;
        app.put(&bucket, "precious").await.unwrap();
        let key = world.environment(CLAIM).await["AWS_ACCESS_KEY_ID"].clone();
        Self { class, uid, key, bucket, app, record: world.record_name(CLAIM) }
    }
}

/// Names another class in the claim, and a ServiceAccount.
pub(super) async fn edit(world: &World, class: &str, account: &str) {
    let patch = json!({ "spec": {
        "storageClassName": class,
        "additionalConfig": { "serviceAccountName": account },
    }});
    world.claims().patch(CLAIM, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

async fn previous(world: &World, record: &str) -> Value {
    let state = world.records().get(record).await.unwrap().spec.additional_state.unwrap();
    state.get("previousAccess").map_or(json!([]), |text| serde_json::from_str(text).unwrap())
}

/// Sets the end of the grace period back.
pub(super) async fn set_back(world: &World, record: &str) {
    let mut previous = previous(world, record).await;
    for one in previous.as_array_mut().unwrap() {
        one["endsAt"] = json!("2020-01-01T00:00:00Z");
    }
    let patch = json!({ "spec": { "additionalState": { "previousAccess": previous.to_string() } } });
    world.records().patch(record, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

pub(super) async fn wait_over(world: &World, record: &str) {
    let is_over = |record: Option<&ObjectBucket>| {
        let state = record.and_then(|record| record.spec.additional_state.as_ref());
        state.is_some_and(|state| !state.contains_key("previousAccess"))
    };
    seen(&world.records(), record, is_over).await.expect("it is no longer recorded");
}

/// Ends the grace period, and waits until the previous access is deleted.
pub(super) async fn end_grace(world: &World, record: &str) {
    set_back(world, record).await;
    wait_over(world, record).await;
    world.wait_event(CLAIM, "PreviousAccessDeleted").await;
}

#[tokio::test]
async fn a_claim_moves_from_keys_to_a_role_without_a_gap() {
    let (world, class) = keyless(&["web"]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let keyed = Keyed::bind(&world).await;

    // A user alone changes nothing.
    edit(&world, &class, "web").await;
    wait_reported(&world, "UpToDate", "EditIgnored", "objectbucket.io/orphan=adopt").await;
    keyed.app.put(&keyed.bucket, "still").await.unwrap();
    assert_eq!(previous(&world, &keyed.record).await, json!([]));

    world.set_action(&keyed.record, "adopt").await;
    let (type_, note) = world.wait_event(CLAIM, "AccessMoved").await;
    assert!(type_ == "Normal" && note.contains("ServiceAccount \"web\"") && note.contains("works until"), "{note}");
    world.wait_action_removed(&keyed.record).await;
    world
        .wait_claim(CLAIM, "up to date", |claim| condition(claim, "UpToDate").is_none_or(|c| c.reason != "EditIgnored"))
        .await;
    assert!(world.secret_entries(CLAIM).await.is_empty(), "SDKs would prefer keys");
    // Apps that run go on, and those that start have no keys.
    keyed.app.put(&keyed.bucket, "by a pod that still runs").await.unwrap();
    let pod = pod(&world, CLAIM, "web").await;
    pod.put(&keyed.bucket, "by a new pod").await.unwrap();
    let role = role(&world, CLAIM).await;
    let kept = previous(&world, &keyed.record).await;
    assert!(kept[0]["userName"].as_str().unwrap().contains(&keyed.uid) && kept[0]["endsAt"].is_string(), "{kept}");
    assert!(orphans(&world).await.is_empty(), "the previous user is no orphan");
    let claim = format!("{}/{CLAIM}", world.namespace);
    let shown = Tool::run(&world, &["status", &claim], "").await.out;
    assert!(shown.contains("Previous access") && shown.contains(&keyed.uid), "{shown}");
    let bound = world.claims().get(CLAIM).await.unwrap();
    assert_eq!(bound.metadata.uid.as_ref(), Some(&keyed.uid), "it is the same claim");

    end_grace(&world, &keyed.record).await;
    assert!(world.account.users_with(&keyed.uid).await.is_empty());
    assert!(keyed.app.list(&keyed.bucket).await.is_err());
    pod.put(&keyed.bucket, "later").await.unwrap();

    world.delete_claim(CLAIM).await;
    world.wait_gone(CLAIM).await;
    assert_eq!(policies(&world, &role).await, None);
    assert!(!world.account.bucket_exists(&keyed.bucket).await);
    operator.stop().await;
}

#[tokio::test]
async fn a_claim_deleted_in_the_grace_period_leaves_nothing() {
    let (world, class) = keyless(&["web"]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let keyed = Keyed::bind(&world).await;
    edit(&world, &class, "web").await;
    world.set_action(&keyed.record, "adopt").await;
    world.wait_event(CLAIM, "AccessMoved").await;
    let role = role(&world, CLAIM).await;
    world.delete_claim(CLAIM).await;
    world.wait_gone(CLAIM).await;
    assert!(world.account.users_with(&keyed.uid).await.is_empty());
    assert_eq!(policies(&world, &role).await, None);
    assert!(!world.account.bucket_exists(&keyed.bucket).await);
    operator.stop().await;
}

/// A class that cannot work takes nothing away.
#[tokio::test]
async fn keys_work_until_the_new_access_does() {
    let (world, class) = keyless(&["web"]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let keyed = Keyed::bind(&world).await;
    let parameters = [
        ("authentication", "ServiceAccount"),
        ("oidcProvider", "arn:aws:iam::000000000000:oidc-provider/no.example.com"),
    ];
    let broken = world.class_with("broken", "Delete", &parameters).await;
    edit(&world, &broken, "web").await;
    world.set_action(&keyed.record, "adopt").await;
    world.wait_reason(CLAIM, "OidcProviderMissing").await;
    keyed.app.put(&keyed.bucket, "still").await.unwrap();
    assert_eq!(world.app(CLAIM).await.list(&keyed.bucket).await.unwrap().len(), 2, "its outputs are as they were");
    assert_eq!(previous(&world, &keyed.record).await[0].get("endsAt"), None);

    // The user can go back, without new keys.
    let patch = json!({ "spec": {
        "storageClassName": keyed.class,
        "additionalConfig": { "serviceAccountName": null },
    }});
    world.claims().patch(CLAIM, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    world.set_action(&keyed.record, "adopt").await;
    world.wait_reason(CLAIM, "Bound").await;
    wait_over(&world, &keyed.record).await;
    assert_eq!(world.environment(CLAIM).await["AWS_ACCESS_KEY_ID"], keyed.key);
    world.wait_action_removed(&keyed.record).await;
    edit(&world, &broken, "web").await;
    world.set_action(&keyed.record, "adopt").await;
    world.wait_reason(CLAIM, "OidcProviderMissing").await;

    // Another class mends it.
    edit(&world, &class, "web").await;
    world.set_action(&keyed.record, "adopt").await;
    world.wait_event(CLAIM, "AccessMoved").await;
    world.wait_reason(CLAIM, "Bound").await;
    pod(&world, CLAIM, "web").await.put(&keyed.bucket, "by a new pod").await.unwrap();
    keyed.app.put(&keyed.bucket, "by a pod that still runs").await.unwrap();
    assert_eq!(previous(&world, &keyed.record).await.as_array().unwrap().len(), 2);
    end_grace(&world, &keyed.record).await;
    assert!(world.account.users_with(&keyed.uid).await.is_empty());
    pod(&world, CLAIM, "web").await.put(&keyed.bucket, "later").await.unwrap();
    operator.stop().await;
}

/// Without the permission to request tokens, new claims are Bound untried; but this one has keys that work.
#[tokio::test]
async fn keys_stay_if_the_new_access_cannot_be_tried() {
    let (world, class) = keyless(&["web"]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let keyed = Keyed::bind(&world).await;
    deny_tokens(&world);
    edit(&world, &class, "web").await;
    wait_reported(&world, "UpToDate", "EditIgnored", "adopt").await;
    world.set_action(&keyed.record, "adopt").await;
    let message = world.wait_reason(CLAIM, "NotTried").await;
    wait_reported(&world, "UpToDate", "EditPending", "the previous one works").await;
    assert!(message.contains("serviceaccounts/token") && message.contains("keeps its previous access"), "{message}");
    assert_eq!(world.environment(CLAIM).await["AWS_ACCESS_KEY_ID"], keyed.key);
    assert_eq!(previous(&world, &keyed.record).await[0].get("endsAt"), None);
    world.delete_claim(CLAIM).await;
    world.wait_gone(CLAIM).await;
    assert!(world.account.users_with(&keyed.uid).await.is_empty());
    operator.stop().await;
}

/// The claim names a class without keys, and its ObjectBucket, which would show that it has keys, was deleted.
#[tokio::test]
async fn a_lost_object_bucket_is_not_a_reason_to_take_keys_away() {
    let (world, class) = keyless(&["web"]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let keyed = Keyed::bind(&world).await;
    let backup = world.back_up(CLAIM).await;
    edit(&world, &class, "web").await;
    world.forget_object(&world.records(), &keyed.record).await;
    world.wait_reason(CLAIM, "AdoptionNeeded").await;
    keyed.app.put(&keyed.bucket, "still").await.unwrap();
    assert_eq!(world.environment(CLAIM).await["AWS_ACCESS_KEY_ID"], keyed.key);
    world.restore(&backup.record).await;
    world.wait_reason(CLAIM, "Bound").await;
    assert_eq!(world.environment(CLAIM).await["AWS_ACCESS_KEY_ID"], keyed.key);
    operator.stop().await;
}

/// SDKs prefer the token of a role to what the agent of EKS gives.
#[tokio::test]
async fn a_claim_moves_from_a_role_to_pod_identity() {
    let (world, class) = keyless(&["web"]).await;
    let pods = Pods::create(&world.account, &world.unique("pods")).await;
    let parameters = pods.parameters();
    let parameters: Vec<_> = parameters.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let by_agent = world.class_with("pods", "Delete", &parameters).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim_with(CLAIM, spec(&class, "web")).await;
    let bucket = bucket_of(&world.wait_bound(CLAIM).await);
    let (before, role, record) = (pod(&world, CLAIM, "web").await, role(&world, CLAIM).await, world.record_name(CLAIM));

    edit(&world, &by_agent, "web").await;
    world.set_action(&record, "adopt").await;
    world.wait_event(CLAIM, "AccessMoved").await;
    let environment = world.environment(CLAIM).await;
    assert!(environment.contains_key("AWS_CONTAINER_CREDENTIALS_FULL_URI"));
    for key in ["AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ENDPOINT_URL_STS"] {
        assert!(!environment.contains_key(key), "{key}");
    }
    before.put(&bucket, "by a pod that still runs").await.unwrap();
    let names = [world.namespace.as_str(), "web"];
    pods.pod(&world.account, names).await.unwrap().put(&bucket, "by a new pod").await.unwrap();
    end_grace(&world, &record).await;
    assert_eq!(policies(&world, &role).await, None);
    pods.pod(&world.account, names).await.unwrap().put(&bucket, "later").await.unwrap();
    world.delete_claim(CLAIM).await;
    world.wait_gone(CLAIM).await;
    assert!(pods.association(&world.account, names).await.is_none());
    operator.stop().await;
}

/// What still works is shown until it is deleted.
#[tokio::test]
async fn previous_access_that_cannot_be_deleted_is_reported() {
    let (world, class) = keyless(&["web"]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let keyed = Keyed::bind(&world).await;
    edit(&world, &class, "web").await;
    world.set_action(&keyed.record, "adopt").await;
    wait_reported(&world, "KeysCurrent", "AccessMoved", "works until").await;
    world.wait_action_removed(&keyed.record).await;
    world.aws.inject(|call| match call.name.as_str() {
        "GetUser" => Verdict::Answer(403, DENIED.to_owned()),
        _ => Verdict::Pass,
    });
    set_back(&world, &keyed.record).await;
    wait_reported(&world, "KeysCurrent", "CheckFailed", "could not be deleted").await;
    keyed.app.put(&keyed.bucket, "still").await.unwrap();
    pod(&world, CLAIM, "web").await.put(&keyed.bucket, "by a new pod").await.unwrap();
    assert_ne!(previous(&world, &keyed.record).await, json!([]));

    world.aws.leave_alone();
    world.retry(CLAIM, "now").await;
    wait_over(&world, &keyed.record).await;
    wait_reported(&world, "KeysCurrent", "PreviousAccessDeleted", "there is no other").await;
    assert!(world.account.users_with(&keyed.uid).await.is_empty());
    operator.stop().await;
}

async fn wait_reported(world: &World, type_: &str, reason: &str, part: &str) {
    let reported = |claim: &ObjectBucketClaim| {
        condition(claim, type_).is_some_and(|c| c.reason == reason && c.message.contains(part))
    };
    world.wait_claim(CLAIM, reason, reported).await;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Names another bucket.
    Brownfield,
    /// Its buckets are elsewhere.
    Region,
    /// Another namespace may use it.
    Forbidden,
    /// It does not exist.
    Missing,
}

/// The annotation does not give a claim another bucket, nor a class that its namespace may not use.
#[rstest]
#[case::another_bucket(Class::Brownfield)]
#[case::another_region(Class::Region)]
#[case::another_namespace(Class::Forbidden)]
#[case::none(Class::Missing)]
#[tokio::test]
async fn a_claim_keeps_access_that_the_class_cannot_replace(#[case] kind: Class) {
    let (world, _) = keyless(&["web"]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let keyed = Keyed::bind(&world).await;
    let provider = super::provider();
    let foreign = world.unique("foreign");
    world.account.create_bucket(&foreign).await;
    let other = match kind {
        Class::Brownfield => ("bucketName", foreign.as_str()),
        Class::Region => ("region", "eu-west-1"),
        Class::Forbidden => ("allowedNamespaces", "somebody"),
        Class::Missing => ("region", "eu-west-1"),
    };
    let parameters = [("authentication", "ServiceAccount"), ("oidcProvider", provider.as_str()), other];
    let class = match kind {
        Class::Missing => world.unique("missing"),
        _ => world.class_with("other", "Delete", &parameters).await,
    };
    edit(&world, &class, "web").await;
    world.set_action(&keyed.record, "adopt").await;
    world.wait_action_removed(&keyed.record).await;
    let refusal = world.wait_event_on_record_with(&keyed.record, "ActionRefused", "keeps its access: ").await;
    let cause = match kind {
        Class::Brownfield => &foreign,
        Class::Region => "the same bucket, region and store",
        Class::Forbidden => "namespace",
        Class::Missing => "does not exist",
    };
    assert!(refusal.contains(cause), "{refusal}");
    wait_reported(&world, "UpToDate", "EditIgnored", "").await;
    assert_eq!(world.app(CLAIM).await.list(&keyed.bucket).await.unwrap(), ["precious"]);
    assert_eq!(previous(&world, &keyed.record).await, json!([]));
    operator.stop().await;
}

/// The role there trusts the issuer of that cluster only.
#[tokio::test]
async fn a_claim_of_another_cluster_gets_the_access_of_its_class_here() {
    let other = OtherCluster::take().await;
    let (here, class) = keyless(&["web"]).await;
    let operator = Operator::start(&here, Kind::InProcess).await;
    here.claim_with(CLAIM, spec(&class, "web")).await;
    let bucket = bucket_of(&here.wait_bound(CLAIM).await);
    let app = pod(&here, CLAIM, "web").await;
    app.put(&bucket, "precious").await.unwrap();
    let (role, backup, record) = (role(&here, CLAIM).await, here.back_up(CLAIM).await, here.record_name(CLAIM));
    operator.stop().await;

    let there = other.twin_of(&here).await;
    create_account(&there, "web").await;
    let pods = Pods::create(&there.account, &there.unique("pods")).await;
    let parameters = pods.parameters();
    let mut parameters: Vec<_> = parameters.iter().map(|(key, value)| (*key, value.as_str())).collect();
    // The same store, although each world has its own proxy.
    parameters.push(("s3Endpoint", &here.aws.url));
    assert_eq!(there.class_with("keyless", "Delete", &parameters).await, class);
    let operator = Operator::start(&there, Kind::InProcess).await;
    there.restore(&backup.record).await;
    there.restore(&backup.secret).await;
    there.restore(&backup.config_map).await;
    let uid = there.restore(&backup.claim).await;
    there.wait_reason(CLAIM, "AdoptionNeeded").await;
    there.set_action(&record, "adopt").await;
    there.wait_event(CLAIM, "AccessMoved").await;
    there.wait_event(CLAIM, "Adopted").await;
    let pod = pods.pod(&there.account, [&there.namespace, "web"]).await.unwrap();
    assert_eq!(pod.list(&bucket).await.unwrap(), ["precious"]);
    app.put(&bucket, "from the previous cluster").await.unwrap();
    assert!(there.secret_entries(CLAIM).await.is_empty());
    let entries = there.config_map_entries(CLAIM).await;
    assert!(!entries.contains_key("AWS_ROLE_ARN"), "SDKs would prefer it");
    assert_eq!(there.account.bucket_tags(&bucket).await["objectbucket.io/claim-uid"], uid);

    end_grace(&there, &record).await;
    assert_eq!(policies(&here, &role).await, None);
    there.delete_claim(CLAIM).await;
    there.wait_gone(CLAIM).await;
    assert!(!there.account.bucket_exists(&bucket).await);
    operator.stop().await;
}
