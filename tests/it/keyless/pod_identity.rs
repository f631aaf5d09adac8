//! Access by EKS Pod Identity: one role for all, and an association for each ServiceAccount, whose policy has the buckets of its
//! claims. The agent that gives pods their sessions runs on no emulator; a session of the role with exactly that policy is the
//! same.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_eks::types::PodIdentityAssociation;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use rstest::rstest;
use serde_json::json;

use super::lost::{apply, orphans};
use super::{create_account, spec};
use crate::permissions::aws::{allowed, needed};
use crate::support::account::Account;
use crate::support::operator::{Kind, Operator};
use crate::support::owner_policy::{PLAIN, POD_IDENTITY, PolicedOwner};
use crate::support::pods::{ACCOUNT, Pods, trust};
use crate::support::tool::Tool;
use crate::support::{World, bucket_of};

/// A world with pods in an EKS cluster of its own, a class of them, and the ServiceAccount `web`.
pub(super) struct Stage {
    pub(super) world: World,
    pub(super) pods: Pods,
    pub(super) class: String,
}

impl Stage {
    pub(super) async fn new() -> Self {
        let world = World::new().await.in_own_path();
        create_account(&world, "web").await;
        let pods = Pods::create(&world.account, &world.unique("pods")).await;
        let parameters = pods.parameters();
        let parameters: Vec<_> = parameters.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let class = world.class_with("pods", "Delete", &parameters).await;
        Self { world, pods, class }
    }

    pub(super) async fn claim(&self, name: &str) -> String {
        self.world.claim_with(name, spec(&self.class, "web")).await.uid().unwrap()
    }

    pub(super) async fn association(&self) -> Option<PodIdentityAssociation> {
        self.pods.association(&self.world.account, [&self.world.namespace, "web"]).await
    }

    /// The shipped policy for this cluster and this role.
    fn policy(&self) -> String {
        let role = self.pods.role.rsplit('/').next().unwrap();
        let named = POD_IDENTITY.replace("111122223333", ACCOUNT).replace("aws-s3-provisioner-CLUSTER-pods", role);
        named.replace("/CLUSTER", &format!("/{}", self.pods.cluster))
    }

    /// The ids of the statements in its policy.
    pub(super) async fn ids(&self) -> Vec<String> {
        self.pods.ids(&self.world.account, [&self.world.namespace, "web"]).await
    }

    pub(super) async fn pod(&self) -> Account {
        self.pods.pod(&self.world.account, [&self.world.namespace, "web"]).await.expect("there is an association")
    }
}

/// What a claim with this uid has as the id of its statement.
pub(super) fn id_of(uid: &str) -> String {
    uid.replace('-', "")
}

#[tokio::test]
async fn pods_get_sessions_for_the_bucket_and_nothing_else() {
    let stage = Stage::new().await;
    let world = &stage.world;
    let operator = Operator::start(world, Kind::InProcess).await;
    let uid = stage.claim("photos").await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    let foreign = world.unique("foreign");
    world.account.create_bucket(&foreign).await;

    let found = stage.association().await.unwrap();
    assert_eq!(found.role_arn.as_ref(), Some(&stage.pods.role));
    assert_eq!(found.disable_session_tags, Some(true));
    let tags = found.tags.clone().unwrap_or_default();
    assert_eq!(tags.get("objectbucket.io/service-account").map(String::as_str), Some("web"));
    let pod = stage.pod().await;
    pod.put(&bucket, "precious").await.unwrap();
    assert_eq!(pod.list(&bucket).await.unwrap(), ["precious"]);
    assert_eq!(pod.list(&foreign).await.unwrap_err(), "AccessDenied");

    // No key, and no user or role of the claim exists anywhere.
    assert!(world.secret_entries("photos").await.is_empty());
    assert!(world.account.users_with(&uid).await.is_empty());
    let calls = world.aws.names();
    assert!(!calls.iter().any(|call| ["CreateUser", "CreateRole"].contains(&call.as_str())), "{calls:?}");
    let environment = world.environment("photos").await;
    assert_eq!(environment["AWS_CONTAINER_CREDENTIALS_FULL_URI"], "http://169.254.170.23/v1/credentials");
    assert!(environment["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"].ends_with("/eks-pod-identity-token"));
    assert!(!environment.contains_key("AWS_ROLE_ARN"), "SDKs would prefer it");

    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    assert!(stage.association().await.is_none());
    assert!(!world.account.bucket_exists(&bucket).await);
    operator.stop().await;
}

#[tokio::test]
async fn claims_of_a_service_account_share_its_association() {
    let stage = Stage::new().await;
    let world = &stage.world;
    let operator = Operator::start(world, Kind::InProcess).await;
    let (mut uids, mut buckets) = (Vec::new(), Vec::new());
    for name in ["first", "second", "third"] {
        uids.push(id_of(&stage.claim(name).await));
    }
    for name in ["first", "second", "third"] {
        buckets.push(bucket_of(&world.wait_bound(name).await));
    }
    let mut wanted = uids.clone();
    wanted.sort_unstable();
    assert_eq!(stage.ids().await, wanted);
    let pod = stage.pod().await;
    for bucket in &buckets {
        pod.put(bucket, "precious").await.unwrap();
    }
    world.delete_claim("first").await;
    world.wait_gone("first").await;
    let pod = stage.pod().await;
    assert!(pod.list(&buckets[0]).await.is_err(), "a new session lacks it");
    pod.put(&buckets[1], "more").await.unwrap();
    for name in ["second", "third"] {
        world.delete_claim(name).await;
        world.wait_gone(name).await;
    }
    assert!(stage.association().await.is_none());
    operator.stop().await;
}

/// Whatever their order, no statement is lost, and none is left.
#[tokio::test]
async fn claims_that_come_and_go_at_once_keep_their_statements() {
    let stage = Stage::new().await;
    let world = &stage.world;
    let operator = Operator::start(world, Kind::InProcess).await;
    for round in 0..4 {
        let (gone, stays) = (format!("gone-{round}"), format!("stays-{round}"));
        stage.claim(&gone).await;
        world.wait_bound(&gone).await;
        let (uid, ()) = tokio::join!(stage.claim(&stays), world.delete_claim(&gone));
        world.wait_gone(&gone).await;
        let bucket = bucket_of(&world.wait_bound(&stays).await);
        assert_eq!(stage.ids().await, [id_of(&uid)], "round {round}");
        stage.pod().await.put(&bucket, "precious").await.unwrap();
        world.delete_claim(&stays).await;
        world.wait_gone(&stays).await;
    }
    assert!(stage.association().await.is_none());
    operator.stop().await;
}

#[tokio::test]
async fn an_association_of_others_is_refused_and_left_alone() {
    let stage = Stage::new().await;
    let world = &stage.world;
    let create = world.account.eks.create_pod_identity_association().cluster_name(&stage.pods.cluster);
    let create = create.namespace(&world.namespace).service_account("web").role_arn(&stage.pods.role);
    create.set_tags(Some(HashMap::from([("team".to_owned(), "shop".to_owned())]))).send().await.unwrap();
    let operator = Operator::start(world, Kind::InProcess).await;
    stage.claim("photos").await;
    let message = world.wait_reason("photos", "AssociationTaken").await;
    assert!(message.contains("\"web\"") && message.contains("another ServiceAccount"), "{message}");
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    let found = stage.association().await.unwrap();
    assert!(found.policy.is_none_or(|policy| policy.is_empty()));
    operator.stop().await;
}

#[rstest]
#[case::policy("UpdatePodIdentityAssociation")]
#[case::deleted("CreatePodIdentityAssociation")]
#[tokio::test]
async fn an_association_that_is_changed_is_restored(#[case] repair: &str) {
    let stage = Stage::new().await;
    let world = &stage.world;
    let operator = Operator::with(world, Operator::options(world).with_resync(Duration::from_millis(500)));
    let uid = stage.claim("photos").await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    let found = stage.association().await.unwrap();
    let (eks, id) = (&world.account.eks, found.association_id.unwrap());
    world.aws.clear();
    if repair == "CreatePodIdentityAssociation" {
        let delete = eks.delete_pod_identity_association().cluster_name(&stage.pods.cluster).association_id(&id);
        delete.send().await.map(drop).unwrap();
    } else {
        let policy = json!({ "Version": "2012-10-17", "Statement": [
            { "Sid": id_of(&uid), "Effect": "Allow", "Action": "s3:*", "Resource": "*" }
        ]});
        let update = eks.update_pod_identity_association().cluster_name(&stage.pods.cluster).association_id(&id);
        update.policy(policy.to_string()).send().await.map(drop).unwrap();
    }
    world.aws.wait_until(repair, |calls| calls.iter().any(|call| call.name == repair)).await;
    world.wait_event("photos", "Repaired").await;
    stage.pod().await.put(&bucket, "precious").await.unwrap();
    operator.stop().await;
}

#[tokio::test]
async fn a_role_that_the_operator_cannot_assume_is_named() {
    let stage = Stage::new().await;
    let world = &stage.world;
    let (iam, role) = (&world.account.iam, stage.pods.role.rsplit('/').next().unwrap());
    let trust = trust(&[json!({ "Service": "pods.eks.amazonaws.com" })]);
    iam.update_assume_role_policy().role_name(role).policy_document(trust).send().await.unwrap();
    let _owner = PolicedOwner::new(world, &[PLAIN, &stage.policy()]).await;
    let operator = Operator::start(world, Kind::InProcess).await;
    stage.claim("photos").await;
    let message = world.wait_reason("photos", "PodRoleRefused").await;
    assert!(message.contains("trust policy") && !message.contains(ACCOUNT), "{message}");
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    assert!(stage.association().await.is_none());
    operator.stop().await;
}

#[tokio::test]
async fn an_edit_of_the_access_mode_applies_to_new_sessions() {
    let stage = Stage::new().await;
    let world = &stage.world;
    let operator = Operator::start(world, Kind::InProcess).await;
    stage.claim("photos").await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    stage.pod().await.put(&bucket, "precious").await.unwrap();
    let mode = json!({ "spec": { "additionalConfig": { "accessMode": "ReadOnly" } } });
    world.claims().patch("photos", &PatchParams::default(), &Patch::Merge(mode)).await.unwrap();
    world.wait_event("photos", "AccessChanged").await;
    let pod = stage.pod().await;
    assert_eq!(pod.put(&bucket, "more").await.unwrap_err(), "AccessDenied");
    assert_eq!(pod.list(&bucket).await.unwrap(), ["precious"]);
    operator.stop().await;
}

#[tokio::test]
async fn the_shipped_policy_is_enough_and_no_more() {
    let stage = Stage::new().await;
    let world = &stage.world;
    let owner = PolicedOwner::new(world, &[PLAIN, &stage.policy()]).await;
    let operator = Operator::with(world, Operator::options(world).with_resync(Duration::from_millis(500)));
    for name in ["photos", "other"] {
        stage.claim(name).await;
    }
    let bucket = bucket_of(&world.wait_bound("photos").await);
    world.wait_bound("other").await;
    stage.pod().await.put(&bucket, "precious").await.unwrap();
    for name in ["photos", "other"] {
        world.delete_claim(name).await;
        world.wait_gone(name).await;
    }
    assert!(stage.association().await.is_none());
    let ended = Tool::run(world, &["orphans"], "").await;
    assert!(ended.code == 0 && ended.out.starts_with("no orphans"), "{ended:?}");
    operator.stop().await;

    let calls = world.aws.upstream().sent();
    let of_pods = calls.iter().filter(|call| call.signer.as_deref() == Some(owner.key()));
    let of_pods = of_pods.filter(|call| call.operation.contains("PodIdentity") || call.operation == "AssumeRole");
    assert_eq!(needed(of_pods), allowed(POD_IDENTITY), "needed, and allowed");
}

/// Somebody forces a namespace away: nobody else can find what its claims had.
#[tokio::test]
async fn orphans_finds_and_removes_what_nobody_has() {
    let stage = Stage::new().await;
    let world = &stage.world;
    let operator = Operator::start(world, Kind::InProcess).await;
    stage.claim("lost").await;
    let stays = stage.claim("stays").await;
    let bucket = bucket_of(&world.wait_bound("lost").await);
    let kept = bucket_of(&world.wait_bound("stays").await);
    operator.stop().await;
    world.lose("lost").await;
    let found = orphans(world).await;
    assert!(found.len() == 1 && found[0]["name"] == bucket && found[0]["serviceAccount"] == "web", "{found:#?}");

    let operator = Operator::start(world, Kind::InProcess).await;
    apply(world, "lost", &["--only", &bucket, "--action", "remove", "--bucket", &bucket]).await;
    assert_eq!(stage.ids().await, [id_of(&stays)]);
    assert!(!world.account.bucket_exists(&bucket).await);
    stage.pod().await.put(&kept, "precious").await.unwrap();
    operator.stop().await;
}

/// A policy has no room for the names of claims.
#[tokio::test]
async fn access_is_an_orphan_only_without_its_claim() {
    let stage = Stage::new().await;
    let world = &stage.world;
    let bucket = world.unique("existing");
    world.account.create_bucket(&bucket).await;
    let parameters = stage.pods.parameters();
    let parameters = parameters.iter().map(|(key, value)| (*key, value.as_str()));
    let parameters: Vec<_> = parameters.chain([("bucketName", bucket.as_str())]).collect();
    let class = world.class_with("existing", "Retain", &parameters).await;
    let operator = Operator::start(world, Kind::InProcess).await;
    let lost = world.claim_with("lost", spec(&class, "web")).await.uid().unwrap();
    let live = world.claim_with("live", spec(&class, "web")).await.uid().unwrap();
    world.wait_bound("lost").await;
    world.wait_bound("live").await;
    operator.stop().await;
    world.lose("lost").await;
    world.forget_object(&world.records(), &world.record_name("live")).await;
    let found = orphans(world).await;
    let of = |uid: &str| {
        let name = format!("{}/web/{uid}", world.namespace);
        let found = found.iter().find(|orphan| orphan["name"] == *name).unwrap_or_else(|| panic!("{found:#?}"));
        (name, found["actions"].clone())
    };
    assert_eq!(of(&live).1, json!([]), "its claim exists");
    let (name, actions) = of(&lost);
    assert_eq!(actions, json!(["revoke"]));

    let operator = Operator::start(world, Kind::InProcess).await;
    world.wait_bound("live").await;
    // The name of the claim is not known any more.
    apply(world, &lost, &["--only", &name, "--action", "revoke", "--class", &class]).await;
    assert_eq!(stage.ids().await, [id_of(&live)]);
    stage.pod().await.put(&bucket, "precious").await.unwrap();
    operator.stop().await;
}
