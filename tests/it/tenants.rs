//! What admins allow tenants, and what tenants learn of each other.

use std::time::{Duration, Instant};

use aws_sdk_s3::types::{ObjectCannedAcl, Tag, Tagging};
use bucket_provisioner::api::{ConditionStatus, ObjectBucketClaim};
use futures::FutureExt as _;
use futures::future::select_all;
use kube::api::{ListParams, Patch, PatchParams};
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::operator::{Binary, IAM_OF_AWS, Kind, Operator};
use crate::support::proxy::{Gate, Verdict};
use crate::support::{World, condition, ready, seen};

/// The changes that a claim needs in IAM.
const USER: [&str; 3] = ["CreateUser", "PutUserPolicy", "CreateAccessKey"];
const THROTTLED: &str =
    "<ErrorResponse><Error><Code>Throttling</Code><Message>Rate exceeded</Message></Error></ErrorResponse>";

async fn patch(world: &World, claim: &str, patch: Value) {
    world.claims().patch(claim, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

#[tokio::test]
async fn a_class_serves_only_the_namespaces_that_it_allows() {
    let world = World::new().await;
    let class = world.class_with("greenfield", "Delete", &[("allowedNamespaces", "others, team-*")]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    let message = world.wait_reason("photos", "NamespaceNotAllowed").await;
    assert!(message.contains(&class) && message.contains(&world.namespace) && message.contains("allowedNamespaces"));
    assert!(!message.contains("others") && !message.contains("team"), "it names no other tenant: {message}");
    assert!(world.aws.names().is_empty(), "{:?}", world.aws.names());

    let beginning = format!("others,{}*", &world.namespace[..4]);
    world.class_with("greenfield", "Delete", &[("allowedNamespaces", &beginning)]).await;
    world.wait_bound("photos").await;
    // What is bound stays so.
    world.class_with("greenfield", "Delete", &[("allowedNamespaces", "others")]).await;
    world.claim("later", &class).await;
    world.wait_reason("later", "NamespaceNotAllowed").await;
    world.wait_reason("photos", "Bound").await;
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    operator.stop().await;
}

#[rstest]
#[case::chosen(&[("explicitNames", "no")], json!({ "bucketName": "crown-jewels" }), &["spec.bucketName", "explicitNames"])]
#[case::beginning(&[("bucketNamePrefix", "team-")], json!({ "bucketName": "crown-jewels" }), &["spec.bucketName", "\"team-\""])]
#[case::prefix(&[("bucketNamePrefix", "team-")], json!({ "generateBucketName": "crown" }), &["spec.generateBucketName", "\"team-\""])]
#[tokio::test]
async fn a_class_limits_the_bucket_names_of_claims(
    #[case] parameters: &[(&str, &str)],
    #[case] mut spec: Value,
    #[case] parts: &[&str],
) {
    let world = World::new().await;
    let class = world.class_with("greenfield", "Delete", parameters).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    spec["storageClassName"] = json!(class);
    world.claim_with("photos", spec).await;
    let message = world.wait_reason("photos", "BucketNameNotAllowed").await;
    assert!(parts.iter().all(|part| message.contains(part)) && message.contains("crown"), "{message}");
    assert!(world.aws.names().is_empty(), "{:?}", world.aws.names());
    let fitting = json!({ "bucketName": null, "generateBucketName": "team-photos" });
    patch(&world, "photos", json!({ "spec": fitting })).await;
    world.wait_bound("photos").await;
    operator.stop().await;
}

/// And deleted completely.
#[tokio::test]
async fn bound_claims_that_a_class_no_longer_allows_are_maintained() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let bucket = world.unique("photos");
    let operator = Operator::start(&world, Kind::InProcess).await;
    let spec = json!({ "storageClassName": class, "bucketName": bucket });
    let uid = world.claim_with("photos", spec).await.metadata.uid.unwrap();
    world.wait_bound("photos").await;
    operator.stop().await;
    let strict = [("explicitNames", "no"), ("bucketNamePrefix", "team-"), ("allowedNamespaces", "others")];
    world.class_with("greenfield", "Delete", &strict).await;
    let record = world.record_name("photos");
    world.forget_object(&world.records(), &record).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    seen(&world.records(), &record, |record| record.is_some()).await.expect("it is written again");
    operator.stop().await;

    world.forget_object(&world.records(), &record).await;
    world.delete_claim("photos").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_gone("photos").await;
    assert!(world.account.users_with(&uid).await.is_empty(), "the user is left");
    operator.stop().await;
}

#[tokio::test]
async fn settings_that_have_no_effect_are_named() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let config = json!({ "maxSize": "2G", "maxObjects": "1000" });
    let spec = json!({ "storageClassName": class, "generateBucketName": "b", "additionalConfig": config });
    world.claim_with("photos", spec).await;
    world.wait_bound("photos").await;
    let ignored = |claim: &ObjectBucketClaim| {
        condition(claim, "UpToDate").is_some_and(|c| c.reason == "ConfigIgnored" && c.status == ConditionStatus::False)
    };
    let claim = world.wait_claim("photos", "reported with what is ignored", ignored).await;
    let message = &condition(&claim, "UpToDate").unwrap().message;
    assert!(
        message.contains("\"maxSize\"") && message.contains("\"maxObjects\"") && !message.contains("2G"),
        "{message}"
    );
    let (type_, note) = world.wait_event("photos", "ConfigIgnored").await;
    assert_eq!((type_.as_str(), &note), ("Warning", message));
    operator.stop().await;

    // It is reported once, and costs nothing from then on.
    world.kubernetes.clear();
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("other", &class).await;
    world.wait_bound("other").await;
    let of_claim = |target: &str| target.contains("/photos");
    let calls: Vec<_> =
        world.kubernetes.calls().into_iter().filter(|call| call.mutates && of_claim(&call.target)).collect();
    assert!(calls.is_empty(), "{calls:#?}");

    patch(&world, "photos", json!({ "spec": { "additionalConfig": null } })).await;
    let mended =
        |claim: &ObjectBucketClaim| condition(claim, "UpToDate").is_some_and(|c| c.status == ConditionStatus::True);
    world.wait_claim("photos", "up to date", mended).await;
    operator.stop().await;
}

#[tokio::test]
async fn a_claim_is_retried_at_once_on_request() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let denied = "<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>";
    world.aws.inject(move |call| match call.name.as_str() {
        "CreateUser" => Verdict::Answer(403, denied.to_owned()),
        _ => Verdict::Pass,
    });
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    world.wait_reason("photos", "AccessDenied").await;
    let tries = |calls: &[crate::support::proxy::Call]| calls.iter().filter(|call| call.name == "CreateUser").count();
    // By itself it would wait longer each time, for minutes soon.
    for attempt in 2..=6 {
        let ask = json!({ "metadata": { "annotations": { "objectbucket.io/retry": attempt.to_string() } } });
        patch(&world, "photos", ask).await;
        world.aws.wait_until("another try", |calls| tries(calls) >= attempt).await;
    }
    world.aws.leave_alone();
    patch(&world, "photos", json!({ "metadata": { "annotations": { "objectbucket.io/retry": "mended" } } })).await;
    world.wait_bound("photos").await;
    operator.stop().await;
}

#[tokio::test]
async fn messages_name_no_other_claim_and_no_account() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let bucket = world.unique("photos");
    let operator = Operator::start(&world, Kind::InProcess).await;
    let spec = json!({ "storageClassName": class, "bucketName": bucket });
    let first = world.claim_with("secretive", spec.clone()).await.metadata.uid.unwrap();
    world.wait_bound("secretive").await;
    world.claim_with("curious", spec).await;
    let message = world.wait_reason("curious", "BucketTaken").await;
    assert!(!message.contains("secretive") && !message.contains(&first), "{message}");

    let denied = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>User: arn:aws:iam::123456789012:user/boss is not authorized to perform: iam:CreateUser on resource: arn:aws:iam::123456789012:user/x because no policy of account 123456789012 allows it</Message></Error></ErrorResponse>";
    world.aws.inject(move |call| match call.name.as_str() {
        "CreateUser" => Verdict::Answer(403, denied.to_owned()),
        _ => Verdict::Pass,
    });
    world.claim("denied", &class).await;
    let message = world.wait_reason("denied", "AccessDenied").await;
    assert!(!message.contains("123456789012") && !message.contains("boss"), "{message}");
    assert!(message.contains("is not authorized to perform: iam:CreateUser"), "{message}");
    operator.stop().await;
}

/// What `aws s3 cp` and `aws s3 sync` call for an object with tags, and what would open it to others; with the policy
/// that AWS is given, and with the one for other stores.
#[rstest]
#[case::created(true, true)]
#[case::granted(false, true)]
#[case::created_elsewhere(true, false)]
#[case::granted_elsewhere(false, false)]
#[tokio::test]
async fn an_app_can_use_aws_tools_and_make_nothing_public(#[case] created: bool, #[case] at_aws: bool) {
    let world = World::new().await;
    let bucket = world.unique("existing");
    let mut parameters = Vec::from_iter(at_aws.then_some(IAM_OF_AWS));
    if !created {
        world.account.create_bucket(&bucket).await;
        parameters.push(("bucketName", &bucket));
    }
    let class = world.class_with("class", "Delete", &parameters).await;
    let operator = match at_aws {
        true => Operator::Binary(Binary::start_at_aws(&world)),
        false => Operator::start(&world, Kind::InProcess).await,
    };
    let mut spec = json!({ "storageClassName": class });
    if created {
        spec["generateBucketName"] = json!("b");
    }
    let uid = world.claim_with("photos", spec).await.metadata.uid.unwrap();
    world.wait_bound("photos").await;
    let user = world.account.users_with(&uid).await.pop().unwrap();
    let policy = world.account.iam.get_user_policy().user_name(&user).policy_name("bucket-access").send().await;
    assert_eq!(policy.unwrap().policy_document.contains("GetObjectAttributes"), at_aws);
    let bucket = world.environment("photos").await["BUCKET_NAME"].clone();
    world.account.keep_versions(&bucket).await;
    let s3 = world.app("photos").await.s3;
    s3.get_bucket_versioning().bucket(&bucket).send().await.expect("GetBucketVersioning");
    let put = s3.put_object().bucket(&bucket).key("a").tagging("team=a").body(Vec::new().into()).send();
    let version = put.await.expect("PutObject with tags").version_id.expect("versions are kept");
    let tags = s3.get_object_tagging().bucket(&bucket).key("a").send().await.expect("GetObjectTagging");
    assert_eq!(tags.tag_set.len(), 1);
    let tag = Tag::builder().key("team").value("b").build().unwrap();
    let tagging = Tagging::builder().tag_set(tag).build().unwrap();
    s3.put_object_tagging().bucket(&bucket).key("a").tagging(tagging).send().await.expect("PutObjectTagging");
    s3.delete_object_tagging().bucket(&bucket).key("a").send().await.expect("DeleteObjectTagging");
    s3.get_object_acl().bucket(&bucket).key("a").send().await.expect("GetObjectAcl");
    // The emulator does not know the condition by which AWS allows those that open nothing.
    let public = s3.put_object_acl().bucket(&bucket).key("a").acl(ObjectCannedAcl::PublicRead).send().await;
    public.expect_err("a public ACL is denied");
    let deleted = s3.delete_object().bucket(&bucket).key("a").version_id(version).send().await;
    assert_eq!(deleted.is_ok(), created, "versions of a bucket that existed before are its owner's");
    operator.stop().await;
}

#[tokio::test]
async fn claims_on_a_store_that_never_answers_delay_nobody_elses() {
    let world = World::new().await;
    let neighbour = world.neighbour().await;
    neighbour.aws.inject(|_| Verdict::Hang);
    let silent = [("s3Endpoint", neighbour.aws.url.as_str()), ("iamEndpoint", neighbour.aws.url.as_str())];
    let silent = world.class_with("silent", "Delete", &silent).await;
    let class = world.class("greenfield").await;
    let options = Operator::options(&world).with_concurrency(4);
    let _operator = Operator::with(&world, options);
    for number in 0..30 {
        world.claim(&format!("stuck-{number}"), &silent).await;
    }
    neighbour.aws.wait_until("a call", |calls| !calls.is_empty()).await;
    for number in 0..8 {
        let name = format!("served-{number}");
        world.claim(&name, &class).await;
        world.wait_bound(&name).await;
    }
    // None of them had to wait until a call was given up.
    assert!(neighbour.aws.calls().len() <= 4, "{:?}", neighbour.aws.names());
}

#[tokio::test]
async fn refused_provisioning_keys_are_tried_by_one_claim_at_a_time() {
    let world = World::new().await;
    let neighbour = world.neighbour().await;
    let denied = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>";
    let denied = || Verdict::Answer(403, denied.to_owned());
    neighbour.aws.inject(move |call| if call.name == "CreateUser" { denied() } else { Verdict::Pass });
    let refusing = [("s3Endpoint", neighbour.aws.url.as_str()), ("iamEndpoint", neighbour.aws.url.as_str())];
    let class = world.class_with("refusing", "Delete", &refusing).await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    for number in 0..3 {
        world.claim(&format!("first-{number}"), &class).await;
        world.wait_reason(&format!("first-{number}"), "AccessDenied").await;
    }
    let gate = Gate::closed();
    let held = gate.clone();
    neighbour.aws.inject(move |_| Verdict::Hold(held.clone()));
    let asked = neighbour.aws.calls().len();
    for number in 0..10 {
        world.claim(&format!("next-{number}"), &class).await;
    }
    let mut waiting = 0;
    for number in 0..10 {
        let name = format!("next-{number}");
        let claim = world.wait_claim(&name, "a reason", |claim| ready(claim).is_some()).await;
        waiting += usize::from(ready(&claim).unwrap().reason == "WaitingForStore");
        if waiting == 5 {
            break;
        }
    }
    let more = neighbour.aws.calls().len() - asked;
    assert!(more < 4, "{:?}", neighbour.aws.names());
    gate.open();
    for number in 0..10 {
        world.wait_bound(&format!("next-{number}")).await;
    }
}

/// Whatever the operator's rate: others of the account use it up.
#[tokio::test]
async fn claims_are_bound_though_every_third_change_is_refused() {
    const CLAIMS: usize = 10;
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let mut changes = 0;
    world.aws.inject(move |call| {
        let is_change = USER.contains(&call.name.as_str());
        changes += usize::from(is_change);
        if is_change && changes % 3 == 0 { Verdict::Answer(400, THROTTLED.to_owned()) } else { Verdict::Pass }
    });
    let _operator = Operator::start(&world, Kind::InProcess).await;
    for number in 0..CLAIMS {
        world.claim(&format!("photos-{number}"), &class).await;
    }
    let all = async {
        for number in 0..CLAIMS {
            world.wait_bound(&format!("photos-{number}")).await;
        }
    };
    // That is the promise.
    tokio::time::timeout(Duration::from_secs(60), all).await.expect("all are bound within a minute");
    let changes = world.aws.names().into_iter().filter(|name| USER.contains(&name.as_str())).count();
    // Three for each claim, and one of three is refused.
    assert!((44..=60).contains(&changes), "{changes}: {:?}", world.aws.names());
}

/// They report that they wait; claims of other accounts do not.
#[tokio::test]
async fn a_rate_limited_account_serves_claims_in_a_queue() {
    const CLAIMS: usize = 16;
    let world = World::new().await;
    let neighbour = world.neighbour().await;
    // One call to IAM a second.
    let mut room = (1.0, Instant::now());
    neighbour.aws.inject(move |call| {
        if !USER.contains(&call.name.as_str()) {
            return Verdict::Pass;
        }
        room = ((room.0 + room.1.elapsed().as_secs_f64()).min(2.0), Instant::now());
        if room.0 < 1.0 {
            return Verdict::Answer(400, THROTTLED.to_owned());
        }
        room.0 -= 1.0;
        Verdict::Pass
    });
    let limited = [("s3Endpoint", neighbour.aws.url.as_str()), ("iamEndpoint", neighbour.aws.url.as_str())];
    let limited = world.class_with("limited", "Delete", &limited).await;
    let class = world.class("greenfield").await;
    let _operator = Operator::with(&world, Operator::options(&world).with_concurrency(4));
    for number in 0..CLAIMS {
        world.claim(&format!("limited-{number}"), &limited).await;
    }
    neighbour
        .aws
        .wait_until("a call of each kind", |calls| calls.iter().any(|call| call.name == "CreateAccessKey"))
        .await;
    for number in 0..4 {
        let name = format!("served-{number}");
        world.claim(&name, &class).await;
        world.wait_bound(&name).await;
    }
    let bound = world.claims().list(&ListParams::default()).await.unwrap().items;
    let bound = bound.iter().filter(|claim| ready(claim).is_some_and(|ready| ready.reason == "Bound")).count();
    assert!(bound < CLAIMS, "the others waited: {bound} are bound");
    // Which of them come last is open: they are of the same age.
    let waits = (0..CLAIMS).map(|number| {
        let name = format!("limited-{number}");
        let world = &world;
        async move { world.wait_reason(&name, "WaitingForStore").await }.boxed()
    });
    let (message, ..) = select_all(waits).await;
    assert!(message.contains("limits"), "{message}");
    neighbour.aws.leave_alone();
    for number in 0..CLAIMS {
        world.wait_bound(&format!("limited-{number}")).await;
    }
    // A throttled verb continues where it was interrupted.
    let sent = |name: &str| neighbour.aws.names().iter().filter(|sent| *sent == name).count();
    assert!(sent("CreateBucket") == CLAIMS && sent("GetUser") == 0, "{:?}", neighbour.aws.names());
}
