//! On the second emulator, which checks the names of account-regional buckets, and lacks other things than the first.

use aws_sdk_s3::error::ProvideErrorMetadata as _;
use aws_sdk_s3::types::{BucketLocationConstraint, BucketNamespace, CreateBucketConfiguration};
use bucket_provisioner::api::wire::BUCKET_LABEL;
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams};
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::account::Account;
use crate::support::operator::{Binary, Kind, Operator};
use crate::support::proxy::Verdict;
use crate::support::tool::Tool;
use crate::support::{Store, World, bucket_of};

const REGION: &str = "eu-central-1";
/// Whoever calls moto belongs to it.
const ACCOUNT: &str = "123456789012";
/// The header that makes a call one of another account.
const AS_ACCOUNT: &str = "x-moto-account-id";
/// Begins a name that a user chooses.
const CHOSEN: &str = "b";

async fn regional(world: &World, account: &str) -> String {
    let parameters = [("region", REGION), ("bucketNamespace", "account-regional"), ("accountId", account)];
    world.class_with("regional", "Delete", &parameters).await
}

/// Binds a claim of such a class, and stops the operator; returns the name of the bucket.
async fn bind_regional(world: &World, mut name: Value) -> String {
    let class = regional(world, ACCOUNT).await;
    if name["bucketName"] == CHOSEN {
        name["bucketName"] = json!(world.unique(CHOSEN));
    }
    let operator = Operator::start(world, Kind::InProcess).await;
    world.claim_with("photos", claim(&class, name)).await;
    world.wait_bound("photos").await;
    operator.stop().await;
    world.environment("photos").await["BUCKET_NAME"].clone()
}

fn claim(class: &str, name: Value) -> Value {
    let mut spec = json!({ "storageClassName": class });
    spec.as_object_mut().unwrap().extend(name.as_object().unwrap().clone());
    spec
}

/// The operator may be restarted at any time.
#[tokio::test]
async fn a_bucket_of_the_account_has_a_name_that_nobody_else_can_have() {
    let world = World::at(Store::moto()).await;
    let class = regional(&world, ACCOUNT).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let prefix = "a-long-beginning-of-a-name";
    world.claim_with("photos", claim(&class, json!({ "generateBucketName": prefix }))).await;
    let bound = world.wait_bound("photos").await;
    let bucket = world.environment("photos").await["BUCKET_NAME"].clone();
    let suffix = format!("-{ACCOUNT}-{REGION}-an");
    let own = bucket.strip_suffix(&suffix).unwrap_or_else(|| panic!("{bucket}"));
    let (cut, hash) = own.rsplit_once('-').unwrap();
    assert!(prefix.starts_with(cut) && hash.len() == 13 && bucket.len() <= 63, "{bucket}");
    assert_eq!(bound.spec.bucket_name, None, "the user did not choose it");
    operator.stop().await;

    world.aws.clear();
    let operator = Operator::start(&world, Kind::InProcess).await;
    let named = world.unique("b");
    world.claim_with("named", claim(&class, json!({ "bucketName": named }))).await;
    assert_eq!(bucket_of(&world.wait_bound("named").await), named, "as the user wrote it");
    let whole = world.environment("named").await["BUCKET_NAME"].clone();
    assert_eq!(whole, format!("{named}{suffix}"));
    let created = world.aws.names().iter().filter(|name| *name == "CreateBucket").count();
    assert_eq!(created, 1, "{:?}", world.aws.names());
    for (claim, bucket) in [("photos", &bucket), ("named", &whole)] {
        let events = world.events(claim).await;
        assert!(!events.iter().any(|(_, reason, _)| reason == "EditIgnored"), "{events:?}");
        world.delete_claim(claim).await;
        world.wait_gone(claim).await;
        assert!(!world.account.bucket_exists(bucket).await);
    }
    operator.stop().await;
}

/// Creates an account-regional bucket as an account does; the error's code if it is refused.
async fn create_as(world: &World, account: &'static str, bucket: &str) -> Result<(), String> {
    let anybody = Account::at(&world.store.url, REGION, &world.store.key, &world.store.secret);
    let location = BucketLocationConstraint::from(REGION);
    let location = CreateBucketConfiguration::builder().location_constraint(location).build();
    let create = anybody.s3.create_bucket().bucket(bucket).create_bucket_configuration(location);
    let create = create.bucket_namespace(BucketNamespace::AccountRegional).customize();
    let create = create.mutate_request(move |request| drop(request.headers_mut().insert(AS_ACCOUNT, account)));
    create.send().await.map(drop).map_err(|error| error.code().unwrap_or("no code").to_owned())
}

/// Not even when it is free again.
#[tokio::test]
async fn a_freed_regional_name_is_left_to_its_account() {
    let world = World::at(Store::moto()).await;
    let bucket = bind_regional(&world, json!({ "bucketName": CHOSEN })).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    operator.stop().await;
    assert!(!world.account.bucket_exists(&bucket).await);
    assert_eq!(create_as(&world, "210987654321", &bucket).await, Err("InvalidNamespaceHeader".to_owned()));
    // That it is the namespace of this account is what keeps the others away.
    assert_eq!(create_as(&world, ACCOUNT, &bucket).await, Ok(()));
    world.account.s3.delete_bucket().bucket(&bucket).send().await.unwrap();
}

/// Nobody got the answer of CreateBucket, and its tags were dropped.
#[tokio::test]
async fn a_killed_operator_finds_its_regional_bucket_again() {
    let world = World::at(Store::moto()).await;
    let class = regional(&world, ACCOUNT).await;
    world.aws.inject(|call| match call.name.as_str() {
        "CreateBucket" => Verdict::LoseAnswer,
        _ => Verdict::Pass,
    });
    let operator = Binary::start(&world, &[], &[]);
    let prefix = world.unique(CHOSEN);
    let submitted = world.claim_with("photos", claim(&class, json!({ "generateBucketName": prefix }))).await;
    world.aws.wait_until("CreateBucket done", |calls| calls.iter().any(|call| call.answer_lost)).await;
    operator.kill().await;
    let created = world.account.buckets_with(&world.id).await;
    assert_eq!(created.len(), 1, "{created:?}");

    world.aws.leave_alone();
    let operator = Operator::start(&world, Kind::Binary).await;
    world.wait_bound("photos").await;
    assert_eq!(world.environment("photos").await["BUCKET_NAME"], created[0]);
    assert_eq!(world.account.buckets_with(&world.id).await, created);
    assert_eq!(world.account.bucket_tags(&created[0]).await["objectbucket.io/claim-uid"], submitted.uid().unwrap());
    let events = world.events("photos").await;
    assert!(!events.iter().any(|(_, reason, _)| reason == "BucketTaken"), "{events:?}");
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    assert!(!world.account.bucket_exists(&created[0]).await);
    operator.stop().await;
}

/// The claim names its bucket without what was appended.
#[rstest]
#[case::generated(json!({ "generateBucketName": "photos" }), true)]
#[case::chosen(json!({ "bucketName": CHOSEN }), true)]
#[case::chosen_and_lost(json!({ "bucketName": CHOSEN }), false)]
#[tokio::test]
async fn a_restored_claim_gets_such_a_bucket_back(#[case] name: Value, #[case] has_record: bool) {
    let world = World::at(Store::moto()).await;
    let bucket = bind_regional(&world, name).await;
    let backup = world.back_up("photos").await;
    world.lose("photos").await;
    world.restore(&backup.secret).await;
    world.restore(&backup.claim).await;
    if has_record {
        world.restore(&backup.record).await;
    }

    let operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_reason("photos", "AdoptionNeeded").await;
    let adopted = Tool::run(&world, &["adopt", "photos", "--yes"], "").await;
    assert!(adopted.code == 0 && adopted.out.contains("has its bucket back and is Ready"), "{adopted:?}");
    assert_eq!(world.environment("photos").await["BUCKET_NAME"], bucket);
    let records = world.records().list(&ListParams::default()).await.unwrap().items;
    let buckets = records.iter().filter_map(|record| record.spec.endpoint.as_ref()?.bucket_name.as_ref());
    assert_eq!(buckets.filter(|found| **found == bucket).count(), 1);
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    assert!(!world.account.bucket_exists(&bucket).await);
    operator.stop().await;
}

/// The claim's ConfigMap shows it.
#[rstest]
#[case::generated(json!({ "generateBucketName": "photos" }))]
#[case::chosen(json!({ "bucketName": CHOSEN }))]
#[tokio::test]
async fn an_object_bucket_edited_to_another_bucket_has_no_effect(#[case] name: Value) {
    let world = World::at(Store::moto()).await;
    let bucket = bind_regional(&world, name).await;
    let record = world.record_name("photos");
    let label = world.records().get(&record).await.unwrap().labels()[BUCKET_LABEL].clone();
    let edit = async |bucket: &str, label: Value| {
        let labels = json!({ BUCKET_LABEL: label });
        let edit = json!({ "metadata": { "labels": labels }, "spec": { "endpoint": { "bucketName": bucket } } });
        world.records().patch(&record, &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
    };
    edit(&world.unique("theirs"), Value::Null).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_reason("photos", "BucketConflict").await;
    assert_eq!(world.environment("photos").await["BUCKET_NAME"], bucket);
    edit(&bucket, json!(label)).await;
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    assert!(!world.account.bucket_exists(&bucket).await);
    operator.stop().await;
}

/// It applies to buckets that are created from then on.
#[tokio::test]
async fn a_class_that_gets_a_namespace_still_serves_older_buckets() {
    let world = World::at(Store::moto()).await;
    let class = world.class_with("regional", "Delete", &[("region", REGION)]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let bucket = world.unique(CHOSEN);
    world.claim_with("photos", claim(&class, json!({ "bucketName": bucket }))).await;
    world.wait_bound("photos").await;
    operator.stop().await;
    world.delete_class(&class).await;
    assert_eq!(regional(&world, ACCOUNT).await, class);
    let name = format!("{}/photos", world.namespace);
    let printed = Binary::run(&world, &["record", &name, "--bucket", &bucket]).await.unwrap();
    assert!(printed.contains(&bucket) && !printed.contains(&format!("{bucket}-")), "{printed}");
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    assert!(!world.account.bucket_exists(&bucket).await);
    operator.stop().await;
}

#[tokio::test]
async fn the_account_of_the_class_must_be_that_of_the_credentials() {
    let world = World::at(Store::moto()).await;
    let class = regional(&world, "210987654321").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim_with("photos", claim(&class, json!({ "generateBucketName": "photos" }))).await;
    let message = world.wait_reason("photos", "InvalidClassParameter").await;
    assert!(message.contains("210987654321") && message.contains("accountId"), "{message}");
    assert!(!world.aws.names().iter().any(|name| name == "CreateBucket"), "{:?}", world.aws.names());
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    operator.stop().await;
}

/// It drops the tags of CreateBucket. (Of versioning it gives an answer that the SDK does not understand.)
#[rstest]
#[case::without_a_location("us-east-1")]
#[case::with_a_location(REGION)]
#[tokio::test]
async fn settings_are_the_same_in_every_region(#[case] region: &str) {
    let world = World::at(Store::moto()).await;
    let cors = r#"{"CORSRules": [{"AllowedMethods": ["GET"], "AllowedOrigins": ["*"]}]}"#;
    let parameters = [
        ("region", region),
        ("tags", "team=shop"),
        ("encryption", "AES256"),
        ("expireAfter", "30d"),
        ("publicAccess", "blocked"),
        ("objectOwnership", "BucketOwnerPreferred"),
        ("bucketCors", cors),
    ];
    let class = world.class_with("set", "Delete", &parameters).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    assert_eq!(world.account.bucket_tags(&bucket).await["team"], "shop");
    let s3 = &world.account.s3;
    assert_eq!(s3.get_bucket_cors().bucket(&bucket).send().await.unwrap().cors_rules().len(), 1);
    assert!(s3.get_public_access_block().bucket(&bucket).send().await.is_ok());
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    assert!(!world.account.bucket_exists(&bucket).await);
    operator.stop().await;
}
