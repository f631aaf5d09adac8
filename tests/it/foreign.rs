//! What belongs to others: buckets, Secrets, ConfigMaps and users that exist already are neither used, nor
//! overwritten, nor deleted, and the claim reports it.

use kube::ResourceExt as _;
use rstest::rstest;
use serde_json::json;

use crate::support::account::Account;
use crate::support::operator::{Binary, IAM_OF_AWS, Kind, Operator};
use crate::support::proxy::Verdict;
use crate::support::{REGION, World, assert_contains, aws_url, ready};

#[rstest]
#[case::us_west_1("us-west-1")]
#[case::us_east_1("us-east-1")]
#[tokio::test]
async fn a_bucket_of_our_own_account_is_never_taken_over_or_deleted(#[case] region: &str) {
    let world = World::new().await;
    let class = world.class_with("greenfield", "Delete", &[("region", region)]).await;
    let bucket = world.unique("precious");
    let there = Account::at(&aws_url(), region, "test", "test");
    if region == REGION {
        there.create_bucket(&bucket).await;
    } else {
        there.s3.create_bucket().bucket(&bucket).send().await.unwrap();
    }
    there.put(&bucket, "kept").await.unwrap();
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim_with("thief", json!({ "storageClassName": class, "bucketName": bucket })).await;
    assert_contains(&world.wait_reason("thief", "BucketTaken").await, &[&bucket, "another name"]);
    world.delete_claim("thief").await;
    world.wait_gone("thief").await;
    assert_eq!(there.list(&bucket).await.unwrap(), ["kept"]);
    assert!(there.s3.get_bucket_tagging().bucket(&bucket).send().await.is_err(), "it is not tagged");
}

#[tokio::test]
async fn a_bucket_name_that_another_account_has_is_refused() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let bucket = world.unique("global");
    let taken =
        "<Error><Code>BucketAlreadyExists</Code><Message>The requested bucket name is not available.</Message></Error>";
    world.aws.inject(move |call| match call.name.as_str() {
        "CreateBucket" => Verdict::Answer(409, taken.to_owned()),
        _ => Verdict::Pass,
    });
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim_with("global", json!({ "storageClassName": class, "bucketName": bucket })).await;
    assert_contains(&world.wait_reason("global", "BucketTaken").await, &[&bucket, "another"]);
    // Nothing was created, so deleting the claim makes no call to AWS.
    world.aws.clear();
    world.delete_claim("global").await;
    world.wait_gone("global").await;
    assert!(world.aws.names().is_empty(), "{:?}", world.aws.names());
}

#[tokio::test]
async fn a_foreign_user_is_neither_used_nor_deleted() {
    let world = World::new().await;
    let class = world.class_with("greenfield", "Delete", &[IAM_OF_AWS]).await;
    let _operator = Binary::start_at_aws(&world);
    // The name is a function of the claim: it is known once the operator is about to make the user.
    let account = Account::owner();
    let denied = "<ErrorResponse><Error><Code>ServiceUnavailable</Code></Error></ErrorResponse>";
    world.aws.inject(move |call| match call.name.as_str() {
        "CreateUser" => Verdict::Answer(503, denied.to_owned()),
        _ => Verdict::Pass,
    });
    world.claim("photos", &class).await;
    world.wait_claim("photos", "reported with a reason", |claim| ready(claim).is_some()).await;
    let record = world.records().get(&world.record_name("photos")).await.unwrap();
    let user = record.spec.additional_state.unwrap()["UserName"].clone();
    account.iam.create_user().user_name(&user).send().await.unwrap();
    account.iam.create_access_key().user_name(&user).send().await.unwrap();
    world.aws.leave_alone();

    assert_contains(&world.wait_reason("photos", "UserTaken").await, &[&user, "objectbucket.io/claim-uid"]);
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    assert!(account.user_exists(&user).await);
    assert_eq!((account.keys(&user).await.len(), account.active_keys(&user).await.len()), (1, 0));
    assert_contains(&world.wait_orphaned(&world.record_name("photos"), "UserUnproven").await, &[&user, "deactivated"]);
}

#[tokio::test]
async fn copied_tags_do_not_adopt_a_bucket_older_than_the_claim() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let payroll = world.unique("payroll");
    world.account.create_bucket(&payroll).await;
    world.account.put(&payroll, "salaries").await.unwrap();
    // A minute is tolerated, and nobody waits for that: the date is another one.
    let bucket =
        format!("<Bucket><Name>{payroll}</Name><CreationDate>2026-01-01T00:00:00.000Z</CreationDate></Bucket>");
    let listed = format!("<ListAllMyBucketsResult><Buckets>{bucket}</Buckets></ListAllMyBucketsResult>");
    world.aws.inject(move |call| match call.name.as_str() {
        "ListBuckets" => Verdict::Answer(200, listed.clone()),
        _ => Verdict::Pass,
    });
    let _operator = Operator::start(&world, Kind::Binary).await;
    let uid =
        world.claim_with("thief", json!({ "storageClassName": class, "bucketName": payroll })).await.uid().unwrap();
    world.wait_reason("thief", "BucketTaken").await;
    let marks = [("objectbucket.io/claim-uid", uid.as_str()), ("objectbucket.io/managed-by", &world.provisioner)];
    world.account.tag_bucket(&payroll, &marks).await;
    world.retry("thief", "1").await;
    let taken = |claim: &_| ready(claim).is_some_and(|c| c.message.contains("older than this claim"));
    world.wait_claim("thief", "refused", taken).await;
    assert!(world.account.users_with(&uid).await.is_empty());
    world.delete_claim("thief").await;
    world.wait_gone("thief").await;
    assert_eq!(world.account.list(&payroll).await.unwrap(), ["salaries"]);
}
