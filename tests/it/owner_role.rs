//! Classes whose provisioning credentials assume a role of another account.

use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt as _};
use provisioner_conformance::TempDir;
use serde_json::{Value, json};

use crate::accounts::OTHER;
use crate::support::account::Account;
use crate::support::operator::{Binary, Kind, Operator};
use crate::support::proxy::Verdict;
use crate::support::{REGION, World, aws_url, bucket_of};

pub(crate) const EXTERNAL_ID: &str = "this-cluster";

/// A role of the other account, which the provisioning account can assume.
pub(crate) struct Role {
    pub(crate) account: Account,
    name: String,
    pub(crate) arn: String,
}

impl Role {
    pub(crate) async fn create(world: &World, name: &str) -> Self {
        let account = Account::at(&aws_url(), REGION, OTHER, "secret");
        let role = Self {
            account,
            name: world.unique(name),
            arn: format!("arn:aws:iam::{OTHER}:role/{}", world.unique(name)),
        };
        let create = role.account.iam.create_role().role_name(&role.name);
        create.assume_role_policy_document(trust(EXTERNAL_ID)).send().await.unwrap();
        let all = json!({ "Effect": "Allow", "Action": ["s3:*", "iam:*"], "Resource": "*" });
        let all = json!({ "Version": "2012-10-17", "Statement": [all] }).to_string();
        let put = role.account.iam.put_role_policy().role_name(&role.name).policy_name("all");
        put.policy_document(all).send().await.unwrap();
        role
    }

    /// Lets the provisioning account assume it with this external id only.
    pub(crate) async fn trust(&self, external_id: &str) {
        let update = self.account.iam.update_assume_role_policy().role_name(&self.name);
        update.policy_document(trust(external_id)).send().await.unwrap();
    }

    /// A class of this role.
    pub(crate) async fn class(&self, world: &World, name: &str) -> String {
        let parameters = [("ownerRole", self.arn.as_str()), ("ownerRoleExternalId", EXTERNAL_ID)];
        world.class_with(name, "Delete", &parameters).await
    }
}

fn trust(external_id: &str) -> String {
    let statement = json!({
        "Effect": "Allow",
        "Principal": { "AWS": "arn:aws:iam::000000000000:root" },
        "Action": "sts:AssumeRole",
        "Condition": { "StringEquals": { "sts:ExternalId": external_id } },
    });
    json!({ "Version": "2012-10-17", "Statement": [statement] }).to_string()
}

fn assumed(world: &World) -> usize {
    world.aws.names().iter().filter(|name| *name == "AssumeRole").count()
}

#[tokio::test]
async fn bucket_and_user_are_in_the_account_of_the_role() {
    let world = World::new().await;
    let role = Role::create(&world, "buckets").await;
    let class = role.class(&world, "elsewhere").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let uid = world.claim("photos", &class).await.uid().unwrap();
    let bucket = bucket_of(&world.wait_bound("photos").await);
    world.app("photos").await.put(&bucket, "precious").await.unwrap();
    assert_eq!(role.account.users_with(&uid).await.len(), 1);
    assert!(role.account.list(&bucket).await.is_ok());
    assert!(world.account.users_with(&uid).await.is_empty() && world.account.list(&bucket).await.is_err());
    let state = world.records().get(&world.record_name("photos")).await.unwrap().spec.additional_state.unwrap();
    assert_eq!((state["ownerRole"].as_str(), state["accountID"].as_str()), (role.arn.as_str(), OTHER));
    assert_eq!(state["ownerRoleExternalId"], EXTERNAL_ID);

    // By another process, and without the class.
    operator.stop().await;
    let classes: Api<StorageClass> = Api::all(world.client.clone());
    classes.delete(&class, &DeleteParams::default()).await.unwrap();
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    assert!(role.account.users_with(&uid).await.is_empty() && role.account.list(&bucket).await.is_err());
    operator.stop().await;
}

#[tokio::test]
async fn a_refused_role_stops_only_its_class() {
    let world = World::new().await;
    let (good, bad) = (Role::create(&world, "good").await, Role::create(&world, "bad").await);
    bad.trust("another-cluster").await;
    let (served, refused) = (good.class(&world, "served").await, bad.class(&world, "refused").await);
    let operator = Operator::start(&world, Kind::InProcess).await;
    for claim in ["first", "second"] {
        world.claim(claim, &refused).await;
    }
    let message = world.wait_reason("first", "OwnerRoleRefused").await;
    assert!(message.contains("ownerRoleExternalId") && !message.contains(OTHER), "{message}");
    assert!(!message.contains(EXTERNAL_ID), "{message}");
    for claim in ["third", "fourth"] {
        world.claim(claim, &served).await;
        world.wait_bound(claim).await;
    }

    bad.trust(EXTERNAL_ID).await;
    world.retry("first", "now").await;
    for claim in ["first", "second"] {
        world.wait_bound(claim).await;
    }
    operator.stop().await;
}

#[tokio::test]
async fn claims_of_a_role_share_a_session() {
    let world = World::new().await;
    let role = Role::create(&world, "buckets").await;
    let class = role.class(&world, "elsewhere").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let claims: Vec<_> = (0..100).map(|n| format!("photos-{n}")).collect();
    for claim in &claims {
        world.claim(claim, &class).await;
    }
    for claim in &claims {
        world.wait_bound(claim).await;
    }
    assert_eq!(assumed(&world), 1);

    // It ends early.
    let expired = "<ErrorResponse><Error><Code>ExpiredToken</Code></Error></ErrorResponse>";
    let expiring = std::sync::atomic::AtomicBool::new(true);
    world.aws.inject(move |call| match call.name.as_str() {
        "CreateUser" if expiring.swap(false, std::sync::atomic::Ordering::Relaxed) => {
            Verdict::Answer(403, expired.to_owned())
        }
        _ => Verdict::Pass,
    });
    world.claim("late", &class).await;
    world.wait_bound("late").await;
    assert_eq!(assumed(&world), 2);
    let events = world.events("late").await;
    assert!(!events.iter().any(|(kind, ..)| kind == "Warning"), "{events:?}");
    operator.stop().await;
}

/// Claims that are bound stay so.
#[tokio::test]
async fn a_role_that_is_refused_later_is_reported_by_checks() {
    let world = World::new().await;
    let role = Role::create(&world, "buckets").await;
    let class = role.class(&world, "elsewhere").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    operator.stop().await;

    role.trust("another-cluster").await;
    let operator = Operator::with(&world, Operator::options(&world).with_resync(Duration::from_millis(500)));
    world.wait_event("photos", "CheckFailed").await;
    world.app("photos").await.put(&bucket, "precious").await.unwrap();
    let claim = world.claims().get("photos").await.unwrap();
    assert_eq!(crate::support::phase(&claim), Some(bucket_provisioner::api::ClaimPhase::Bound));

    role.trust(EXTERNAL_ID).await;
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    assert!(role.account.list(&bucket).await.is_err());
    operator.stop().await;
}

/// A token of a ServiceAccount, whose signature the emulator does not verify.
fn token(issuer: &str) -> String {
    let part = |value: Value| {
        let base64 = serde_json::to_value(ByteString(value.to_string().into_bytes())).unwrap();
        base64.as_str().unwrap().replace('+', "-").replace('/', "_").trim_end_matches('=').to_owned()
    };
    let claims = json!({
        "iss": format!("https://{issuer}"),
        "sub": "system:serviceaccount:aws-s3-provisioner:aws-s3-provisioner",
        "aud": "sts.amazonaws.com",
        "exp": 4_000_000_000_u32,
    });
    format!("{}.{}.{}", part(json!({ "alg": "RS256" })), part(claims), part(json!("signature")))
}

/// The operator has a role itself, by the token of its ServiceAccount.
#[tokio::test]
async fn one_role_can_assume_another() {
    let world = World::new().await;
    let (role, own) = (Role::create(&world, "buckets").await, world.unique("operator"));
    let issuer = "oidc.example.com/id/1";
    let statement = json!({
        "Effect": "Allow",
        "Principal": { "Federated": format!("arn:aws:iam::000000000000:oidc-provider/{issuer}") },
        "Action": "sts:AssumeRoleWithWebIdentity",
    });
    let trust = json!({ "Version": "2012-10-17", "Statement": [statement] }).to_string();
    world.account.iam.create_role().role_name(&own).assume_role_policy_document(trust).send().await.unwrap();
    let assume = json!({ "Effect": "Allow", "Action": "sts:AssumeRole", "Resource": role.arn });
    let assume = json!({ "Version": "2012-10-17", "Statement": [assume] }).to_string();
    let put = world.account.iam.put_role_policy().role_name(&own).policy_name("assume").policy_document(assume);
    put.send().await.unwrap();

    let folder = TempDir::new();
    let file = folder.path().join("token");
    std::fs::write(&file, token(issuer)).unwrap();
    let own = format!("arn:aws:iam::000000000000:role/{own}");
    let identity = [
        ("AWS_ROLE_ARN", own.as_str()),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", file.to_str().unwrap()),
        ("AWS_ENDPOINT_URL_STS", world.aws.url.as_str()),
        ("AWS_ACCESS_KEY_ID", ""),
        ("AWS_SECRET_ACCESS_KEY", ""),
    ];
    let parameters = [
        ("ownerRole", role.arn.as_str()),
        ("ownerRoleExternalId", EXTERNAL_ID),
        ("secretName", ""),
        ("secretNamespace", ""),
    ];
    let class = world.class_with("elsewhere", "Delete", &parameters).await;
    let operator = Binary::start(&world, &[], &identity);
    let uid = world.claim("photos", &class).await.uid().unwrap();
    let bucket = bucket_of(&world.wait_bound("photos").await);
    world.app("photos").await.put(&bucket, "precious").await.unwrap();
    assert_eq!(role.account.users_with(&uid).await.len(), 1);
    let names = world.aws.names();
    let at = |wanted: &str| names.iter().position(|name| name == wanted).unwrap_or_else(|| panic!("{names:?}"));
    assert!(at("AssumeRoleWithWebIdentity") < at("AssumeRole"), "{names:?}");
    operator.kill().await;
}
