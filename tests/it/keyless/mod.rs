//! Claims whose apps have access as a ServiceAccount, without keys. (For records that are lost see `lost`.)

mod kills;
mod lost;
mod moving;
mod moving_kills;
mod pod_identity;
mod pod_kills;
mod policy;
mod refused;
mod sdk;

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_iam::error::ProvideErrorMetadata as _;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams, PostParams};
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::account::Account;
use crate::support::aws_proxy::Strictness;
use crate::support::operator::{Kind, Operator};
use crate::support::{PATIENCE, Store, World, aws_url, bucket_of};

/// That of the local control plane.
const ISSUER: &str = "kubernetes.default.svc";
const AUDIENCE: &str = "sts.amazonaws.com";

pub(crate) fn provider() -> String {
    format!("arn:aws:iam::000000000000:oidc-provider/{ISSUER}")
}

/// What `rbac --keyless` adds.
pub(crate) fn rules() -> [Value; 2] {
    [
        json!({ "apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"] }),
        json!({ "apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["list", "watch"] }),
    ]
}

/// A world whose operators may do what `rbac --keyless` adds, with a class whose apps have no keys, and with these
/// ServiceAccounts.
async fn keyless(names: &[&str]) -> (World, String) {
    let world = World::with_rules(&rules()).await.in_own_path();
    create_provider(&world.account).await;
    world.aws.upstream().strict(Strictness::PROMPT);
    for name in names {
        create_account(&world, name).await;
    }
    let parameters = [("authentication", "ServiceAccount"), ("oidcProvider", &provider())];
    let class = world.class_with("keyless", "Delete", &parameters).await;
    (world, class)
}

/// There is one for all tests.
pub(crate) async fn create_provider(account: &Account) {
    let create = account.iam.create_open_id_connect_provider().url(format!("https://{ISSUER}"));
    match create.client_id_list(AUDIENCE).send().await {
        Ok(_) => {}
        Err(error) if error.code() == Some("EntityAlreadyExists") => {}
        Err(error) => panic!("{error:?}"),
    }
}

pub(crate) async fn create_account(world: &World, name: &str) {
    let account: ServiceAccount = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
    world.service_accounts().create(&PostParams::default(), &account).await.unwrap();
}

fn spec(class: &str, account: &str) -> Value {
    json!({
        "storageClassName": class,
        "generateBucketName": "photos",
        "additionalConfig": { "serviceAccountName": account },
    })
}

/// Has a claim of ServiceAccount `web` Bound; returns its bucket.
async fn bind(world: &World, class: &str, claim: &str) -> String {
    world.claim_with(claim, spec(class, "web")).await;
    bucket_of(&world.wait_bound(claim).await)
}

/// A token as the kubelet requests it for a pod.
async fn token(world: &World, account: &str, audience: &str) -> String {
    let spec = TokenRequestSpec { audiences: vec![audience.to_owned()], ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let answer =
        world.service_accounts().create_token_request(account, &PostParams::default(), &request).await.unwrap();
    answer.status.unwrap().token
}

/// What a pod with this token and these outputs is.
async fn session(environment: &BTreeMap<String, String>, token: &str) -> Result<Account, String> {
    let (sts, role) = (&environment["AWS_ENDPOINT_URL_STS"], &environment["AWS_ROLE_ARN"]);
    Account::with_token(&Store::aws(), sts, (role, token)).await
}

pub(crate) async fn pod(world: &World, claim: &str, account: &str) -> Account {
    let environment = world.environment(claim).await;
    session(&environment, &token(world, account, AUDIENCE).await).await.unwrap()
}

/// The same, past every proxy.
pub(crate) async fn pod_past_proxies(world: &World, claim: &str, account: &str) -> Account {
    let (role, token) = (world.environment(claim).await["AWS_ROLE_ARN"].clone(), token(world, account, AUDIENCE).await);
    Account::with_token(&Store::aws(), &aws_url(), (&role, &token)).await.unwrap()
}

/// Waits until pods of the claim `photos` can write: AWS has nothing to watch.
async fn wait_access(world: &World, bucket: &str) {
    let app = async {
        loop {
            let environment = world.environment("photos").await;
            match session(&environment, &token(world, "web", AUDIENCE).await).await {
                Ok(app) if app.put(bucket, "precious").await.is_ok() => return,
                _ => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, app).await.expect("the app has access again");
}

/// The role that a claim's outputs name.
pub(crate) async fn role(world: &World, claim: &str) -> String {
    let entries = world.config_map_entries(claim).await;
    entries["AWS_ROLE_ARN"].rsplit('/').next().unwrap().to_owned()
}

pub(crate) async fn policies(world: &World, role: &str) -> Option<Vec<String>> {
    let listed = world.account.iam.list_role_policies().role_name(role).send().await.ok()?;
    let mut names = listed.policy_names;
    names.sort_unstable();
    Some(names)
}

#[tokio::test]
async fn only_pods_of_the_service_account_reach_the_bucket() {
    let (world, class) = keyless(&["web", "other"]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let uid = world.claim_with("photos", spec(&class, "web")).await.uid().unwrap();
    let bucket = bucket_of(&world.wait_bound("photos").await);
    world.account.create_bucket(&world.unique("foreign")).await;

    let app = pod(&world, "photos", "web").await;
    app.put(&bucket, "precious").await.unwrap();
    assert_eq!(app.list(&bucket).await.unwrap(), ["precious"]);
    assert_eq!(app.list(&world.unique("foreign")).await.unwrap_err(), "AccessDenied");

    let environment = world.environment("photos").await;
    for (account, audience) in [("other", AUDIENCE), ("web", "another")] {
        let refused = session(&environment, &token(&world, account, audience).await).await.err();
        assert!(refused.is_some_and(|code| code != "no code"), "{account} {audience}");
    }

    let mut forged = token(&world, "web", AUDIENCE).await;
    let signature = forged.rfind('.').unwrap() + 1;
    let other = if forged[signature..].starts_with('A') { "B" } else { "A" };
    forged.replace_range(signature..=signature, other);
    assert_eq!(session(&environment, &forged).await.err().as_deref(), Some("InvalidIdentityToken"));

    // No key exists anywhere.
    assert!(world.secret_entries("photos").await.is_empty());
    assert!(world.account.users_with(&uid).await.is_empty());
    let calls = world.aws.names();
    assert!(!calls.iter().any(|call| call == "CreateUser" || call == "CreateAccessKey"), "{calls:?}");
    assert_eq!(environment["AWS_WEB_IDENTITY_TOKEN_FILE"], "/var/run/secrets/eks.amazonaws.com/serviceaccount/token");
    assert_eq!(environment["AWS_ENDPOINT_URL_STS"], world.aws.url);

    let role = role(&world, "photos").await;
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    assert_eq!(policies(&world, &role).await, None, "the role is deleted");
    assert!(!world.account.bucket_exists(&bucket).await);
    operator.stop().await;
}

#[tokio::test]
async fn claims_of_a_service_account_share_its_role() {
    let (world, class) = keyless(&["web"]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let mut wanted = Vec::new();
    for claim in ["first", "second"] {
        let created = world.claim_with(claim, spec(&class, "web")).await;
        wanted.push(format!("{claim}-{}", created.uid().unwrap()));
    }
    let mut buckets = Vec::new();
    for claim in ["first", "second"] {
        buckets.push(bucket_of(&world.wait_bound(claim).await));
    }
    let shared = role(&world, "first").await;
    assert_eq!(role(&world, "second").await, shared);
    wanted.sort_unstable();
    assert_eq!(policies(&world, &shared).await, Some(wanted));
    let app = pod(&world, "first", "web").await;
    for bucket in &buckets {
        app.put(bucket, "precious").await.unwrap();
    }

    world.delete_claim("first").await;
    world.wait_gone("first").await;
    assert!(app.list(&buckets[0]).await.is_err(), "the running session loses it at once");
    app.put(&buckets[1], "more").await.unwrap();
    world.delete_claim("second").await;
    world.wait_gone("second").await;
    assert_eq!(policies(&world, &shared).await, None);
    operator.stop().await;
}

/// Whatever their order, no policy is lost, and none is left.
#[tokio::test]
async fn claims_that_come_and_go_at_once_lose_nothing() {
    let (world, class) = keyless(&["web"]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let mut shared = String::new();
    for round in 0..4 {
        let (gone, stays) = (format!("gone-{round}"), format!("stays-{round}"));
        world.claim_with(&gone, spec(&class, "web")).await;
        world.wait_bound(&gone).await;
        shared = role(&world, &gone).await;
        // The role is deleted with the last claim, just when another one needs it.
        let created = world.claim_with(&stays, spec(&class, "web"));
        let (created, ()) = tokio::join!(created, world.delete_claim(&gone));
        world.wait_gone(&gone).await;
        let bucket = bucket_of(&world.wait_bound(&stays).await);
        let policy = format!("{stays}-{}", created.uid().unwrap());
        assert_eq!(policies(&world, &shared).await, Some(vec![policy]), "round {round}");
        pod(&world, &stays, "web").await.put(&bucket, "precious").await.unwrap();
        world.delete_claim(&stays).await;
        world.wait_gone(&stays).await;
    }
    assert_eq!(policies(&world, &shared).await, None);
    operator.stop().await;
}

#[tokio::test]
async fn a_claim_waits_for_its_service_account() {
    let (world, class) = keyless(&[]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim_with("photos", spec(&class, "late")).await;
    let message = world.wait_reason("photos", "ServiceAccountNotFound").await;
    assert!(message.contains("\"late\""), "{message}");
    create_account(&world, "late").await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    pod(&world, "photos", "late").await.put(&bucket, "precious").await.unwrap();
    operator.stop().await;
}

#[rstest]
#[case::trust("UpdateAssumeRolePolicy")]
#[case::policy("PutRolePolicy")]
#[case::tags("TagRole")]
#[case::role("CreateRole")]
#[tokio::test]
async fn what_is_changed_by_hand_is_restored(#[case] repair: &str) {
    let (world, class) = keyless(&["web"]).await;
    let operator = Operator::with(&world, Operator::options(&world).with_resync(Duration::from_millis(500)));
    let uid = world.claim_with("photos", spec(&class, "web")).await.uid().unwrap();
    let policy = format!("photos-{uid}");
    let bucket = bucket_of(&world.wait_bound("photos").await);
    let (name, iam) = (role(&world, "photos").await, &world.account.iam);
    world.aws.clear();
    match repair {
        "UpdateAssumeRolePolicy" => {
            let document = json!({ "Version": "2012-10-17", "Statement": [] }).to_string();
            iam.update_assume_role_policy().role_name(&name).policy_document(document).send().await.map(drop).unwrap();
        }
        "PutRolePolicy" => {
            iam.delete_role_policy().role_name(&name).policy_name(&policy).send().await.map(drop).unwrap();
        }
        "TagRole" => {
            let keys = ["objectbucket.io/service-account", "objectbucket.io/claim-namespace"].map(str::to_owned);
            iam.untag_role().role_name(&name).set_tag_keys(Some(keys.into())).send().await.map(drop).unwrap();
        }
        _ => {
            iam.delete_role_policy().role_name(&name).policy_name(&policy).send().await.unwrap();
            iam.delete_role().role_name(&name).send().await.map(drop).unwrap();
        }
    }
    world.aws.wait_until(repair, |calls| calls.iter().any(|call| call.name == repair)).await;
    if repair != "CreateRole" {
        world.wait_event("photos", "Repaired").await;
    }
    wait_access(&world, &bucket).await;
    operator.stop().await;
}

/// SDKs would prefer them.
#[tokio::test]
async fn keys_that_somebody_writes_into_the_secret_are_removed() {
    let (world, class) = keyless(&["web"]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    bind(&world, &class, "photos").await;
    let keys = json!({ "stringData": { "AWS_ACCESS_KEY_ID": "AKIAOTHER", "color": "red" } });
    world.secrets().patch("photos", &PatchParams::default(), &Patch::Merge(keys)).await.unwrap();
    world.wait_secret("photos", |entries| !entries.contains_key("AWS_ACCESS_KEY_ID")).await;
    assert_eq!(world.secret_entries("photos").await.get("color").map(String::as_str), Some("red"));
    operator.stop().await;
}

/// The keys of a claim end with its user; without keys, sessions that run lose what the policy no longer allows.
#[tokio::test]
async fn an_edit_of_the_access_mode_applies_to_running_sessions() {
    let (world, class) = keyless(&["web"]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let bucket = bind(&world, &class, "photos").await;
    let app = pod(&world, "photos", "web").await;
    app.put(&bucket, "precious").await.unwrap();
    let mode = json!({ "spec": { "additionalConfig": { "accessMode": "ReadOnly" } } });
    world.claims().patch("photos", &PatchParams::default(), &Patch::Merge(mode)).await.unwrap();
    world.wait_event("photos", "AccessChanged").await;
    assert_eq!(app.put(&bucket, "more").await.unwrap_err(), "AccessDenied");
    assert_eq!(app.list(&bucket).await.unwrap(), ["precious"]);
    operator.stop().await;
}
