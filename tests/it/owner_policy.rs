//! The provisioning policies that `docs/` ships: they are enough for the operator, and what they keep from a thief.

use std::time::Duration;

use aws_sdk_iam::error::ProvideErrorMetadata as _;
use aws_sdk_s3::types::{BucketLocationConstraint, CreateBucketConfiguration};
use bucket_provisioner::api::Condition;
use kube::api::{Patch, PatchParams};
use rstest::rstest;
use serde_json::json;

use crate::support::aws_proxy::Strictness;
use crate::support::operator::{Binary, IAM_OF_AWS, Kind, Operator};
use crate::support::owner_policy::{BOUNDED, Buckets, GROUPS, PLAIN, PolicedOwner};
use crate::support::{REGION, World, bucket_of, ready, seen};

const ADMIN: &str = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}"#;
const PATH: &str = "/aws-s3-provisioner/";

/// Nothing hangs on a user that is deleted, as in AWS.
const STRICT: Strictness = Strictness::PROMPT;

/// Requires AWS to refuse it for want of a permission.
macro_rules! denied {
    ($call:expr) => {
        let code = $call.send().await.map(drop).expect_err(stringify!($call)).code().map(str::to_owned);
        assert_eq!(code.as_deref(), Some("AccessDenied"), stringify!($call));
    };
}

/// A class of the world that names the boundary.
async fn bounded_class(world: &World, owner: &PolicedOwner, name: &str) -> String {
    world.class_with(name, "Delete", &[("permissionsBoundary", &owner.boundary)]).await
}

async fn annotate(world: &World, claim: &str, key: &str, value: &str) {
    let patch = json!({ "metadata": { "annotations": { key: value } } });
    world.claims().patch(claim, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Waits until a claim reports that this permission is missing.
async fn wait_denied(world: &World, claim: &str, part: &str) {
    let reported = |ready: &Condition| ready.reason == "AccessDenied" && ready.message.contains(part);
    world.wait_claim(claim, part, |claim| ready(claim).is_some_and(reported)).await;
}

/// Name of the one user of a claim.
async fn user_of(world: &World, uid: &str) -> String {
    let users = world.account.users_with(uid).await;
    assert_eq!(users.len(), 1, "{users:?}");
    users.into_iter().next().unwrap()
}

async fn boundary_of(world: &World, user: &str) -> Option<String> {
    let user = world.account.iam.get_user().user_name(user).send().await.unwrap().user.unwrap();
    user.permissions_boundary?.permissions_boundary_arn
}

#[rstest]
#[case::plain(PLAIN)]
#[case::with_boundary(BOUNDED)]
#[tokio::test]
async fn each_provisioning_policy_is_enough_for_all_flows(#[case] policy: &str) {
    let world = World::new().await;
    let owner = PolicedOwner::new(&world, &[policy]).await;
    world.aws.upstream().strict(STRICT);
    let new = bounded_class(&world, &owner, "new").await;
    let existing = world.unique("existing");
    world.account.create_bucket(&existing).await;
    let parameters = [("permissionsBoundary", owner.boundary.as_str()), ("bucketName", existing.as_str())];
    let granted = world.class_with("granted", "Delete", &parameters).await;
    let operator = Operator::start(&world, Kind::InProcess).await;

    let uid = world.claim("photos", &new).await.metadata.uid.unwrap();
    world.claim_with("archive", json!({ "storageClassName": granted })).await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    world.wait_bound("archive").await;
    for (claim, bucket, other) in [("photos", &bucket, &existing), ("archive", &existing, &bucket)] {
        let app = world.app(claim).await;
        app.put(bucket, "a").await.unwrap();
        assert_eq!(app.list(bucket).await.unwrap(), ["a"]);
        assert_eq!(app.list(other).await.unwrap_err(), "AccessDenied");
    }
    let user = user_of(&world, &uid).await;
    assert_eq!(boundary_of(&world, &user).await.as_deref(), Some(owner.boundary.as_str()));

    let first = world.environment("photos").await["AWS_ACCESS_KEY_ID"].clone();
    annotate(&world, "photos", "objectbucket.io/rotate-keys", "now").await;
    world.wait_secret("photos", |secret| secret["AWS_ACCESS_KEY_ID"] != first).await;
    world.secrets().delete("photos", &Default::default()).await.unwrap();
    world.wait_secret("photos", |secret| secret.contains_key("AWS_ACCESS_KEY_ID")).await;
    world.wait_reason("photos", "Bound").await;

    // Somebody adds to the user what the operator did not: all of it can be taken off but groups.
    let iam = &world.account.iam;
    iam.put_user_policy().user_name(&user).policy_name("more").policy_document(ADMIN).send().await.unwrap();
    iam.attach_user_policy().user_name(&user).policy_arn(&owner.boundary).send().await.unwrap();
    world.delete_claim("photos").await;
    world.delete_claim("archive").await;
    world.wait_gone("photos").await;
    world.wait_gone("archive").await;
    assert!(world.account.users_with(&uid).await.is_empty() && !world.account.bucket_exists(&bucket).await);
    assert!(world.account.bucket_exists(&existing).await);
    operator.stop().await;
}

/// The provisioning policy requires a permissions boundary.
#[tokio::test]
async fn a_class_without_a_required_boundary_gets_the_remedy() {
    let world = World::new().await;
    let owner = PolicedOwner::new(&world, &[BOUNDED]).await;
    let class = world.class("class").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let uid = world.claim("photos", &class).await.metadata.uid.unwrap();
    let message = world.wait_reason("photos", "AccessDenied").await;
    for part in ["iam:CreateUser", "permissions boundary", "StorageClass", "permissionsBoundary"] {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
    assert!(!message.contains("arn:") && !message.contains("provisioner-boundary"), "{message}");
    assert!(world.account.users_with(&uid).await.is_empty());

    bounded_class(&world, &owner, "class").await;
    world.wait_bound("photos").await;
    assert_eq!(boundary_of(&world, &user_of(&world, &uid).await).await.as_deref(), Some(owner.boundary.as_str()));
    operator.stop().await;
}

/// They get new keys once their users have the boundary.
#[tokio::test]
async fn claims_from_before_the_boundary_can_still_be_deleted() {
    let world = World::new().await;
    let owner = PolicedOwner::new(&world, &[PLAIN]).await;
    world.aws.upstream().strict(STRICT);
    let class = world.class("class").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let mut uids = Vec::new();
    for claim in ["going", "staying"] {
        uids.push(world.claim(claim, &class).await.metadata.uid.unwrap());
    }
    for claim in ["going", "staying"] {
        world.wait_bound(claim).await;
    }
    owner.allow(&world, &[BOUNDED]).await;

    world.delete_claim("going").await;
    world.wait_gone("going").await;
    assert!(world.account.users_with(&uids[0]).await.is_empty(), "the user is left");

    // CreateUser is called for a user that exists, too: what is recorded has to be allowed.
    world.secrets().delete("staying", &Default::default()).await.unwrap();
    wait_denied(&world, "staying", "in spec.additionalState of the ObjectBucket").await;
    let state = json!({ "spec": { "additionalState": { "permissionsBoundary": owner.boundary } } });
    let record = world.record_name("staying");
    world.records().patch(&record, &PatchParams::default(), &Patch::Merge(state)).await.unwrap();
    annotate(&world, "staying", "objectbucket.io/retry", "recorded").await;
    wait_denied(&world, "staying", "this user has none, and an admin must set it").await;
    let user = user_of(&world, &uids[1]).await;
    let put = world.account.iam.put_user_permissions_boundary().user_name(&user);
    put.permissions_boundary(&owner.boundary).send().await.unwrap();
    annotate(&world, "staying", "objectbucket.io/retry", "set").await;
    world.wait_reason("staying", "Bound").await;

    // A user that is lost is made as it is recorded.
    for key in world.account.keys(&user).await {
        world.account.iam.delete_access_key().user_name(&user).access_key_id(key).send().await.unwrap();
    }
    for policy in world.account.iam.list_user_policies().user_name(&user).send().await.unwrap().policy_names {
        world.account.iam.delete_user_policy().user_name(&user).policy_name(policy).send().await.unwrap();
    }
    world.account.iam.delete_user().user_name(&user).send().await.unwrap();
    world.secrets().delete("staying", &Default::default()).await.unwrap();
    seen(&world.secrets(), "staying", |secret| secret.is_some()).await.expect("it is written again");
    world.wait_reason("staying", "Bound").await;
    assert_eq!(boundary_of(&world, &user).await.as_deref(), Some(owner.boundary.as_str()));
    operator.stop().await;
}

#[rstest]
#[case::plain(PLAIN)]
#[case::with_boundary(BOUNDED)]
#[tokio::test]
async fn a_user_in_a_group_is_reported_until_it_can_be_removed(#[case] policy: &str) {
    let world = World::new().await;
    let owner = PolicedOwner::new(&world, &[policy]).await;
    world.aws.upstream().strict(STRICT);
    let class = bounded_class(&world, &owner, "class").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let uid = world.claim("photos", &class).await.metadata.uid.unwrap();
    world.wait_bound("photos").await;
    let (iam, user, group) = (&world.account.iam, user_of(&world, &uid).await, world.unique("group"));
    iam.create_group().group_name(&group).send().await.unwrap();
    iam.add_user_to_group().group_name(&group).user_name(&user).send().await.unwrap();

    world.delete_claim("photos").await;
    let message = world.wait_reason("photos", "AccessDenied").await;
    assert!(message.contains("iam:RemoveUserFromGroup") && message.contains("by hand"), "{message}");
    assert!(!message.contains(&group), "{message}");
    assert!(world.account.keys(&user).await.is_empty(), "its keys go first");
    let (type_, note) = world.wait_event("photos", "AccessDenied").await;
    assert!(type_ == "Warning" && note.contains("RemoveUserFromGroup"), "{note}");

    owner.allow(&world, &[policy, GROUPS]).await;
    annotate(&world, "photos", "objectbucket.io/retry", "mended").await;
    world.wait_gone("photos").await;
    assert!(world.account.users_with(&uid).await.is_empty());
    operator.stop().await;
}

/// The emulator refuses what no statement allows; the proxy implements the condition that it does not support.
#[tokio::test]
async fn stolen_provisioning_keys_create_no_user_without_boundary() {
    let world = World::new().await;
    let owner = PolicedOwner::new(&world, &[BOUNDED]).await;
    let (inside, outside) = (world.unique("inside"), world.unique("outside"));
    let thief = owner.through(&world).iam;
    denied!(thief.create_user().user_name(&inside).path(PATH));
    denied!(thief.create_user().user_name(&outside).path("/").permissions_boundary(&owner.boundary));
    let admin = "arn:aws:iam::aws:policy/AdministratorAccess";
    denied!(thief.create_user().user_name(&inside).path(PATH).permissions_boundary(admin));
    thief.create_user().user_name(&inside).path(PATH).permissions_boundary(&owner.boundary).send().await.unwrap();

    // One that has no boundary, below the path and elsewhere.
    let unbounded = world.unique("unbounded");
    world.account.iam.create_user().user_name(&unbounded).path(PATH).send().await.unwrap();
    world.account.iam.create_user().user_name(&outside).send().await.unwrap();
    for user in [&unbounded, &outside] {
        denied!(thief.put_user_policy().user_name(user).policy_name("p").policy_document(ADMIN));
    }

    let past_the_proxy = &owner.account.iam;
    for user in [&inside, &unbounded] {
        denied!(past_the_proxy.put_user_permissions_boundary().user_name(user).permissions_boundary(admin));
        denied!(past_the_proxy.delete_user_permissions_boundary().user_name(user));
        denied!(past_the_proxy.attach_user_policy().user_name(user).policy_arn(admin));
        denied!(past_the_proxy.create_login_profile().user_name(user).password("c0rrect-Horse"));
        denied!(past_the_proxy.add_user_to_group().user_name(user).group_name("admins"));
        denied!(past_the_proxy.update_user().user_name(user).new_path("/"));
    }
    denied!(past_the_proxy.create_policy_version().policy_arn(&owner.boundary).policy_document(ADMIN));
    denied!(past_the_proxy.delete_policy().policy_arn(&owner.boundary));

    // The document as it is shipped, condition and all, allows nothing in an emulator that does not know the key.
    let shipped = owner.named(BOUNDED).to_string();
    let put = world.account.iam.put_user_policy().user_name(&owner.user).policy_name("p0").policy_document(shipped);
    put.send().await.unwrap();
    denied!(past_the_proxy.create_user().user_name(world.unique("another")).path(PATH));
}

#[tokio::test]
async fn the_boundary_limits_a_user_with_an_admin_policy() {
    let world = World::new().await;
    let owner = PolicedOwner::new(&world, &[BOUNDED]).await;
    let class = bounded_class(&world, &owner, "class").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let uid = world.claim("photos", &class).await.metadata.uid.unwrap();
    let bucket = bucket_of(&world.wait_bound("photos").await);
    let user = user_of(&world, &uid).await;
    let put = owner.through(&world).iam.put_user_policy().user_name(&user).policy_name("p").policy_document(ADMIN);
    put.send().await.expect("the thief makes its policies wider");

    let other = world.unique("other");
    world.account.create_bucket(&other).await;
    world.account.put(&other, "a").await.unwrap();
    let app = world.app("photos").await;
    denied!(app.iam.create_user().user_name("admin").permissions_boundary(&owner.boundary));
    denied!(app.iam.delete_user_permissions_boundary().user_name(&user));
    denied!(app.iam.create_access_key().user_name(&user));
    denied!(app.iam.list_users());
    let location = BucketLocationConstraint::from(REGION);
    let configuration = CreateBucketConfiguration::builder().location_constraint(location).build();
    denied!(app.s3.create_bucket().bucket(world.unique("new")).create_bucket_configuration(configuration));
    denied!(app.s3.delete_bucket().bucket(&other));
    denied!(app.s3.list_buckets());
    denied!(app.s3.get_bucket_policy().bucket(&other));
    denied!(app.s3.put_bucket_policy().bucket(&bucket).policy(ADMIN));

    // What is left to the thief: the objects of each bucket that the boundary does not leave out.
    assert_eq!(app.list(&other).await.unwrap(), ["a"]);
    app.put(&other, "b").await.unwrap();
    operator.stop().await;
}

/// Limited to a prefix and to one existing bucket, as the templates do it.
#[tokio::test]
async fn a_policy_for_a_prefix_leaves_all_other_buckets_alone() {
    let world = World::new().await;
    let (prefix, existing, other) = (world.unique("team-"), world.unique("existing"), world.unique("other"));
    let buckets = Buckets { prefix: prefix.clone(), existing: existing.clone() };
    let owner = PolicedOwner::limited_to(&world, &[BOUNDED], buckets).await;
    for bucket in [&existing, &other] {
        world.account.create_bucket(bucket).await;
        world.account.put(bucket, "a").await.unwrap();
    }
    let boundary = ("permissionsBoundary", owner.boundary.as_str());
    let new = world.class_with("new", "Delete", &[boundary, ("bucketNamePrefix", &prefix)]).await;
    let granted = world.class_with("granted", "Delete", &[boundary, ("bucketName", &existing)]).await;
    let unlimited = world.class_with("unlimited", "Delete", &[boundary]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let generated = format!("{prefix}photos");
    let claim = json!({ "storageClassName": new, "generateBucketName": generated });
    let uid = world.claim_with("photos", claim).await.metadata.uid.unwrap();
    world.claim_with("archive", json!({ "storageClassName": granted })).await;
    world.claim("elsewhere", &unlimited).await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    world.wait_bound("archive").await;
    for (claim, bucket) in [("photos", &bucket), ("archive", &existing)] {
        world.app(claim).await.put(bucket, "b").await.unwrap();
    }
    assert!(world.wait_reason("elsewhere", "AccessDenied").await.contains("s3:CreateBucket"));

    let user = user_of(&world, &uid).await;
    let put = owner.through(&world).iam.put_user_policy().user_name(&user).policy_name("p").policy_document(ADMIN);
    put.send().await.expect("a thief makes its policies wider");
    let app = world.app("photos").await;
    assert_eq!(app.list(&other).await.unwrap_err(), "AccessDenied", "the boundary has the same limits");
    let thief = &owner.account.s3;
    denied!(thief.list_objects_v2().bucket(&other));
    denied!(thief.delete_object().bucket(&other).key("a"));
    denied!(thief.delete_object().bucket(&existing).key("a"));
    denied!(thief.delete_bucket().bucket(&existing));

    for claim in ["photos", "archive", "elsewhere"] {
        world.delete_claim(claim).await;
        world.wait_gone(claim).await;
    }
    assert!(!world.account.bucket_exists(&bucket).await && world.account.users_with(&uid).await.is_empty());
    operator.stop().await;
}

/// Its tags and its boundary, for which policies ask, are visible after the user is.
#[tokio::test]
async fn a_new_user_that_aws_denies_is_waited_for() {
    let world = World::new().await;
    let strictness = Strictness { user_delay: Duration::from_secs(4), denies_new_users: true, ..Strictness::PROMPT };
    world.aws.upstream().strict(strictness);
    let class = world.class_with("greenfield", "Delete", &[IAM_OF_AWS]).await;
    let _operator = Binary::start_at_aws(&world);
    world.claim("photos", &class).await;
    world.wait_reason("photos", "NotVisibleYet").await;
    world.wait_bound("photos").await;
}
