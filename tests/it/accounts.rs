//! The account in which resources were created: what is missing in another one is not deleted, and a bucket of the same
//! name in another one is not the claim's.

use bucket_provisioner::api::ObjectBucket;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use rstest::rstest;
use serde_json::json;

use crate::support::account::Account;
use crate::support::operator::{Binary, IAM_OF_AWS, Kind, Operator};
use crate::support::proxy::{Call, Verdict};
use crate::support::{REGION, World, aws_url, bucket_of, seen};

/// Another account of the emulated AWS: there, a key id of twelve digits is that of an account's root user.
pub(crate) const OTHER: &str = "111111111111";

fn other_account() -> Account {
    Account::at(&aws_url(), REGION, OTHER, "secret")
}

pub(crate) const OTHERS_KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", OTHER), ("AWS_SECRET_ACCESS_KEY", "secret")];
const OWNERS_KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")];

/// A claim that is bound, its bucket in use: uid and name of the bucket.
async fn used(world: &World, class: &str) -> (String, String) {
    let uid = world.claim("photos", class).await.uid().unwrap();
    let bucket = bucket_of(&world.wait_bound("photos").await);
    world.app("photos").await.put(&bucket, "precious").await.unwrap();
    (uid, bucket)
}

async fn state(world: &World) -> std::collections::BTreeMap<String, String> {
    world.records().get(&world.record_name("photos")).await.unwrap().spec.additional_state.unwrap()
}

#[tokio::test]
async fn bucket_calls_and_policy_name_the_recorded_account() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let (uid, bucket) = used(&world, &class).await;
    assert_eq!(state(&world).await["accountID"], "000000000000");
    let user = world.account.users_with(&uid).await.pop().unwrap();
    let policy = world.account.iam.get_user_policy().user_name(&user).policy_name("bucket-access").send().await;
    let policy = policy.unwrap().policy_document;
    let policy = percent_decode(&policy);
    assert!(policy.contains("aws:ResourceAccount") && policy.contains("000000000000"), "{policy}");
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;

    let calls = world.aws.calls();
    let about_bucket = |call: &&Call| call.target.contains(&bucket) && call.name != "CreateBucket";
    let calls: Vec<_> = calls.iter().filter(about_bucket).collect();
    assert!(calls.len() >= 5, "{calls:#?}");
    assert!(calls.iter().all(|call| call.note.as_deref() == Some("000000000000")), "{calls:#?}");
    operator.stop().await;
}

fn percent_decode(text: &str) -> String {
    url::form_urlencoded::parse(text.replace('+', "%2B").as_bytes()).map(|(key, _)| key.into_owned()).collect()
}

/// What is not found in that account may still exist in the recorded one.
#[tokio::test]
async fn credentials_of_another_account_complete_no_deletion() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let (uid, bucket) = used(&world, &class).await;
    let key = world.environment("photos").await["AWS_ACCESS_KEY_ID"].clone();
    world.owner_secret("owner", &OTHERS_KEYS).await;

    // No new keys are issued in the other account.
    world.secrets().delete("photos", &DeleteParams::default()).await.unwrap();
    let message = world.wait_reason("photos", "AccountChanged").await;
    let place = format!("Secret {}/owner", world.namespace);
    assert!(message.contains(&place) && !message.contains(OTHER), "{message}");
    assert!(other_account().users_with(&uid).await.is_empty());
    // Nor is the finalizer of the claim removed.
    world.delete_claim("photos").await;
    world.claim("other", &class).await;
    world.wait_bound("other").await;
    assert!(world.claims().get("photos").await.is_ok(), "the claim was let go");
    let user = world.account.users_with(&uid).await.pop().expect("the user");
    assert_eq!(world.account.keys(&user).await, [key]);
    assert_eq!(world.account.list(&bucket).await.unwrap(), ["precious"]);
    let events = world.events("photos").await;
    assert!(!events.iter().any(|(_, reason, _)| reason == "Removed"), "{events:?}");

    // Once the previous credentials are back, everything is deleted.
    world.owner_secret("owner", &OWNERS_KEYS).await;
    world.wait_gone("photos").await;
    assert!(world.account.users_with(&uid).await.is_empty());
    assert!(!world.account.bucket_exists(&bucket).await);
    operator.stop().await;
}

/// Its user is not found with the credentials of another account.
#[tokio::test]
async fn access_that_still_works_keeps_the_claim() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let (uid, bucket) = used(&world, &class).await;
    let absent = "<ErrorResponse><Error><Code>NoSuchEntity</Code></Error></ErrorResponse>";
    world.aws.inject(move |call| match call.name.as_str() {
        "GetUser" => Verdict::Answer(404, absent.to_owned()),
        _ => Verdict::Pass,
    });
    world.delete_claim("photos").await;
    let message = world.wait_reason("photos", "AccessStillWorks").await;
    assert!(message.contains(&uid), "it names the user: {message}");
    assert_eq!(world.account.list(&bucket).await.unwrap(), ["precious"]);
    world.aws.leave_alone();
    world.wait_gone("photos").await;
    assert!(world.account.users_with(&uid).await.is_empty());
    assert!(!world.account.bucket_exists(&bucket).await);
    operator.stop().await;
}

/// The ObjectBucket is of an earlier version, and the store reports no account.
#[tokio::test]
async fn keys_are_tried_where_no_account_was_recorded() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let (uid, _) = used(&world, &class).await;
    operator.stop().await;
    let lost = json!({ "spec": { "additionalState": { "clusterUID": null, "accountID": null, "handedOver": null } } });
    let record = world.record_name("photos");
    world.records().patch(&record, &PatchParams::default(), &Patch::Merge(lost)).await.unwrap();
    world.owner_secret("owner", &OTHERS_KEYS).await;
    world.delete_claim("photos").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_reason("photos", "AccessStillWorks").await;
    assert_eq!(world.account.users_with(&uid).await.len(), 1);
    operator.stop().await;
}

/// As an admin does by hand.
async fn remove_user(world: &World, user: &str) {
    let iam = &world.account.iam;
    for key in world.account.keys(user).await {
        iam.delete_access_key().user_name(user).access_key_id(key).send().await.unwrap();
    }
    iam.delete_user_policy().user_name(user).policy_name("bucket-access").send().await.unwrap();
    iam.delete_user().user_name(user).send().await.unwrap();
}

#[tokio::test]
async fn a_user_deleted_by_hand_is_reported_by_the_removal() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let (uid, bucket) = used(&world, &class).await;
    let user = world.account.users_with(&uid).await.pop().unwrap();
    remove_user(&world, &user).await;
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    assert!(!world.account.bucket_exists(&bucket).await);
    let (_, note) = world.wait_event("photos", "Removed").await;
    assert!(note.contains(&user) && note.contains("no longer existed"), "{note}");
    operator.stop().await;
}

/// What proves of which claim a user without tags is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Proof {
    /// It holds the key in the claim's Secret.
    Key,
    /// Its name ends in the claim's uid, in a store that is not AWS.
    Name,
    /// That, and it has the path and the account that the ObjectBucket records.
    PathAndAccount,
    Nothing,
}

/// What is not deleted is reported on the ObjectBucket.
#[rstest]
#[case::its_key_proves_it(Proof::Key)]
#[case::its_name_proves_it(Proof::Name)]
#[case::its_path_and_account_prove_it(Proof::PathAndAccount)]
#[case::nothing_proves_it(Proof::Nothing)]
#[tokio::test]
async fn an_untagged_user_is_deleted_only_if_proven(#[case] proof: Proof) {
    let world = World::new().await;
    let iam: &[_] = if proof == Proof::Name { &[] } else { &[IAM_OF_AWS] };
    let class = world.class_with("greenfield", "Delete", iam).await;
    let operator = Operator::Binary(Binary::start_at_aws(&world));
    let (uid, bucket) = used(&world, &class).await;
    let user = world.account.users_with(&uid).await.pop().unwrap();
    operator.stop().await;
    let tags = world.account.iam.list_user_tags().user_name(&user).send().await.unwrap().tags;
    let keys = tags.into_iter().map(|tag| tag.key).collect();
    world.account.iam.untag_user().user_name(&user).set_tag_keys(Some(keys)).send().await.unwrap();
    if proof != Proof::Key {
        world.secrets().delete("photos", &DeleteParams::default()).await.unwrap();
    }
    let record = world.record_name("photos");
    if proof == Proof::Nothing {
        let moved = json!({ "spec": { "additionalState": { "iamPath": "/elsewhere/" } } });
        world.records().patch(&record, &PatchParams::default(), &Patch::Merge(moved)).await.unwrap();
    }
    world.delete_claim("photos").await;
    let operator = Operator::Binary(Binary::start_at_aws(&world));
    world.wait_gone("photos").await;
    let (_, note) = world.wait_event("photos", "Removed").await;
    if proof == Proof::Nothing {
        assert!(note.contains(&user) && note.contains("nothing proves that it is the claim's"), "{note}");
        assert!(world.account.active_keys(&user).await.is_empty() && world.account.bucket_exists(&bucket).await);
        let message = world.wait_orphaned(&record, "UserUnproven").await;
        assert!(message.contains(&user) && message.contains("deactivated"), "{message}");
        world.set_action(&record, "forget").await;
        world.wait_record_gone(&record).await;
    } else {
        assert!(note.contains("the claim's access is deleted"), "{note}");
        assert!(!world.account.user_exists(&user).await && !world.account.bucket_exists(&bucket).await);
    }
    operator.stop().await;
}

/// As AWS refuses a call that names another owner than the bucket has; the emulator does not check.
fn refuse_expected_owner(call: &Call) -> Verdict {
    match &call.note {
        Some(_) => {
            Verdict::Answer(403, "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>".into())
        }
        None => Verdict::Pass,
    }
}

/// Under the name of a deleted one: it is never used, tagged or deleted.
#[tokio::test]
async fn a_bucket_that_another_account_created_is_never_touched() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let (uid, bucket) = used(&world, &class).await;
    let owner = &world.account;
    owner.s3.delete_object().bucket(&bucket).key("precious").send().await.unwrap();
    owner.s3.delete_bucket().bucket(&bucket).send().await.unwrap();
    // All of it open to everybody, and with the tags that the claim's bucket had: they hold no secret.
    let stranger = other_account();
    stranger.create_bucket(&bucket).await;
    stranger.s3.delete_public_access_block().bucket(&bucket).send().await.unwrap();
    let tags = [("objectbucket.io/claim-uid", uid.as_str())];
    stranger.tag_bucket(&bucket, &tags).await;
    let everybody = json!({ "Version": "2012-10-17", "Statement": [{
        "Effect": "Allow", "Principal": "*", "Action": "s3:*",
        "Resource": [format!("arn:aws:s3:::{bucket}"), format!("arn:aws:s3:::{bucket}/*")],
    }]});
    stranger.s3.put_bucket_policy().bucket(&bucket).policy(everybody.to_string()).send().await.unwrap();
    stranger.put(&bucket, "bait").await.unwrap();
    world.aws.inject(refuse_expected_owner);

    world.secrets().delete("photos", &DeleteParams::default()).await.unwrap();
    let message = world.wait_reason("photos", "BucketGone").await;
    assert!(message.contains(&bucket), "{message}");
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    let (_, note) = world.wait_event("photos", "LeftInPlace").await;
    assert!(note.contains("somebody else has taken its name"), "{note}");
    assert_eq!(stranger.list(&bucket).await.unwrap(), ["bait"]);
    assert_eq!(stranger.bucket_tags(&bucket).await.len(), 1, "nothing was tagged");
    assert!(owner.users_with(&uid).await.is_empty());
    operator.stop().await;
}

#[tokio::test]
async fn without_sts_the_account_is_read_from_the_created_user() {
    let world = World::new().await;
    world.aws.inject(|call| match call.name.as_str() {
        "GetCallerIdentity" => {
            Verdict::Answer(400, "<ErrorResponse><Error><Code>InvalidAction</Code></Error></ErrorResponse>".into())
        }
        _ => Verdict::Pass,
    });
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    used(&world, &class).await;
    assert_eq!(state(&world).await["accountID"], "000000000000");
    let asked = world.aws.names().iter().filter(|name| *name == "GetCallerIdentity").count();
    assert_eq!(asked, 1, "that it does not know is remembered");
    operator.stop().await;

    // For credentials that have created nothing yet, the account is found in another way.
    world.owner_secret("owner", &OTHERS_KEYS).await;
    world.delete_claim("photos").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_reason("photos", "AccountChanged").await;
    world.owner_secret("owner", &OWNERS_KEYS).await;
    world.wait_gone("photos").await;
    operator.stop().await;
}

#[tokio::test]
async fn the_next_check_records_a_missing_account() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    used(&world, &class).await;
    operator.stop().await;
    let merge = Patch::Merge(json!({ "spec": { "additionalState": { "accountID": null } } }));
    world.records().patch(&world.record_name("photos"), &PatchParams::default(), &merge).await.unwrap();
    world.unready("photos").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let known = |record: Option<&ObjectBucket>| {
        record
            .and_then(|record| record.spec.additional_state.as_ref())
            .is_some_and(|state| state.contains_key("accountID"))
    };
    seen(&world.records(), &world.record_name("photos"), known).await.expect("the account is noted");
    operator.stop().await;
}
