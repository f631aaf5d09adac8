//! Other stores than AWS: what they leave out, and what is proof there.

use crate::testing::*;
use bucket_provisioner::store::{
    AccessRemoval, AppCredentials, BucketRemoval, Content, Failure, Provisioner as _, Record,
};

const NO_TAGS: &[(&str, &str)] = &[];

fn foreign() -> Record {
    at_foreign_iam(elsewhere(record()))
}

fn keys(id: &str) -> AppCredentials {
    AppCredentials::new(id, "hunter2".into())
}

fn user_exists(tags: &[(&str, &str)]) -> [(&'static str, Answer); 5] {
    [
        ("CreateUser", iam_error(409, "EntityAlreadyExists")),
        ("GetUser", user_with_tags(tags)),
        ("PutUserPolicy", ok("")),
        ("ListAccessKeys", access_keys(&[])),
        ("CreateAccessKey", access_key()),
    ]
}

#[tokio::test]
async fn a_user_without_tags_from_an_earlier_run_is_reused() {
    for previous in [vec![], vec![UID.to_owned()]] {
        let mut record = foreign();
        if !previous.is_empty() {
            (record.claim.uid, record.former_uids) = ("11111111-0689-48a2-bfaa-74d1bf1fd950".into(), previous);
        }
        let stage = Stage::answering([("CreateBucket", ok(""))].into_iter().chain(user_exists(NO_TAGS)));
        stage.provision(&record).await.unwrap();
        let calls = stage.calls();
        assert_eq!(calls[1..], ["CreateUser", "GetUser", "PutUserPolicy", "ListAccessKeys", "CreateAccessKey"]);
    }
}

#[tokio::test]
async fn a_user_that_has_other_tags_or_another_name_is_not_used() {
    let mut renamed = foreign();
    renamed.plan.user = Some("shop-photos".into());
    for (record, tags) in [(foreign(), OTHERS), (foreign(), FOREIGN), (renamed, NO_TAGS)] {
        let stage = Stage::answering([("CreateBucket", ok(""))].into_iter().chain(user_exists(tags)));
        let error = stage.provision(&record).await.unwrap_err();
        assert_eq!(error.reason(), "UserTaken");
    }
}

#[tokio::test]
async fn a_user_without_tags_is_deleted_by_its_name() {
    let answers = |tags| {
        [
            ("GetUser", user_with_tags(tags)),
            ("ListAccessKeys", access_keys(&["AKIA1"])),
            ("DeleteAccessKey", ok("")),
            ("DeleteUserPolicy", ok("")),
            ("DeleteUser", ok("")),
            ("UpdateAccessKey", iam_error(501, "NotImplemented")),
        ]
    };
    let removed = (AccessRemoval::Deleted, BucketRemoval::Kept);
    let stage = Stage::answering(answers(NO_TAGS));
    assert_eq!(stage.revoke(&foreign(), None).await.unwrap(), removed);
    let mut others = foreign();
    others.plan.user = Some("shop-photos-11111111-0689-48a2-bfaa-74d1bf1fd950".into());
    for (record, tags) in [(others, NO_TAGS), (foreign(), OTHERS), (foreign(), FOREIGN)] {
        let stage = Stage::answering(answers(tags));
        assert_ne!(stage.revoke(&record, None).await.unwrap(), removed);
        assert!(!stage.calls().iter().any(|call| call.starts_with("Delete")), "{:?}", stage.calls());
    }
}

/// Its policy must be deleted, too.
#[tokio::test]
async fn a_go_provisioner_user_is_deleted_with_its_policy() {
    let mut record = foreign();
    let arn = format!("arn:aws:iam::123456789012:policy/{}", record.plan.user.clone().unwrap());
    record.plan.state.insert("ARN".into(), arn);
    let answers = [
        ("GetUser", user_with_tags(NO_TAGS)),
        ("ListAccessKeys", access_keys(&["AKIA1"])),
        ("DetachUserPolicy", ok("")),
    ];
    let stage = Stage::answering(answers);
    assert!(stage.revoke(&record, None).await.is_err(), "the rest is not answered");
    assert_eq!(stage.calls()[2], "DetachUserPolicy");
}

/// A store that drops tags gets them once for the bucket, and never for the user. No event reports them.
#[tokio::test]
async fn dropped_tags_are_written_once() {
    let record = foreign();
    let policy = ("GetUserPolicy", iam_error(404, "NoSuchEntity"));
    let rest = || {
        [
            ("GetUser", user_with_tags(NO_TAGS)),
            ("ListAccessKeys", access_keys(&["AKIA1"])),
            policy.clone(),
            ("PutUserPolicy", ok("")),
        ]
    };
    let first = [("GetBucketTagging", bucket_tags(NO_TAGS)), ("PutBucketTagging", bare(204))];
    let stage = Stage::answering(first.into_iter().chain(rest()));
    let checkup = stage.check(&record, &["AKIA1"]).await.unwrap();
    assert!(checkup.repaired.iter().all(|note| !note.contains("tags")), "{:?}", checkup.repaired);
    assert_eq!(stage.calls()[..2], ["GetBucketTagging", "PutBucketTagging"]);
    assert!(!stage.calls().contains(&"TagUser".to_owned()));

    let stage = Stage::answering([("GetBucketTagging", bucket_tags_of(&record))].into_iter().chain(rest()));
    stage.check(&record, &["AKIA1"]).await.unwrap();
    assert!(!stage.calls().contains(&"PutBucketTagging".to_owned()));
    // At AWS somebody has removed them.
    let home = self::record();
    let stage = Stage::answering(
        [("GetBucketTagging", bucket_tags(NO_TAGS)), ("TagResource", bare(204)), ("TagUser", ok(""))]
            .into_iter()
            .chain(rest()),
    );
    let checkup = stage.check(&home, &["AKIA1"]).await.unwrap();
    assert_eq!(checkup.repaired.iter().filter(|note| note.contains("tags")).count(), 2, "{:?}", checkup.repaired);
}

#[tokio::test]
async fn sts_counts_as_missing_if_only_iam_answers() {
    let unavailable = || ("GetCallerIdentity", s3_error(503, "ServiceUnavailable"));
    let asked = async |answers: [(&'static str, Answer); 2], record: Record| {
        let stage = Stage::answering(answers);
        stage.account(&record).await.map_err(|error| error.reason())
    };
    let known = Ok(Some("123456789012".to_owned()));
    assert_eq!(asked([unavailable(), ("GetUser", user_with_tags(NO_TAGS))], foreign()).await, known);
    assert_eq!(asked([unavailable(), ("GetUser", iam_error(404, "NoSuchEntity"))], foreign()).await, Ok(None));
    let busy = ("GetUser", iam_error(503, "ServiceUnavailable"));
    assert_eq!(asked([unavailable(), busy], foreign()).await, Err("Throttled"));
    let refused = ("GetUser", s3_error(403, "SignatureDoesNotMatch"));
    assert_eq!(asked([unavailable(), refused], foreign()).await, Err("CredentialsRefused"));
    // AWS has STS, and it is busy.
    let home = [unavailable(), ("GetUser", user_with_tags(NO_TAGS))];
    assert_eq!(asked(home, record()).await, Err("Throttled"));
}

#[tokio::test]
async fn without_sts_keys_are_tried_on_the_bucket() {
    let credentials_published = foreign().with_credentials_published();
    let answers = |listed| {
        [
            ("GetUser", iam_error(404, "NoSuchEntity")),
            ("GetCallerIdentity", s3_error(503, "ServiceUnavailable")),
            ("ListObjectsV2", listed),
        ]
    };
    let revoke = async |listed| {
        let stage = Stage::answering(answers(listed));
        stage.revoke(&credentials_published, Some(&keys("AKIA1"))).await.map_err(|e| e.reason())
    };
    assert_eq!(revoke(ok("<ListBucketResult/>")).await, Err("AccessStillWorks"));
    let gone = (AccessRemoval::NotFound, BucketRemoval::Kept);
    assert_eq!(revoke(s3_error(403, "InvalidAccessKeyId")).await, Ok(gone));
    assert_eq!(revoke(s3_error(503, "SlowDown")).await, Err("Throttled"));
}

fn at_aws_endpoint(mut record: Record) -> Record {
    record.plan.endpoint.url = Some("https://s3.dualstack.us-east-1.amazonaws.com".into());
    record
}

/// The 200 of CreateBucket hides that somebody else created the bucket just before; tags of ours would take it over.
#[tokio::test]
async fn aws_behind_its_own_endpoint_is_not_a_store_that_drops_tags() {
    let stage = Stage::answering([
        ("GetBucketTagging", s3_error(404, "NoSuchBucket")),
        ("CreateBucket", ok("")),
        ("GetBucketTagging", s3_error(404, "NoSuchTagSet")),
        ("GetBucketTagging", s3_error(404, "NoSuchTagSet")),
        ("PutBucketTagging", bare(204)),
    ]);
    let record = at_aws_endpoint(named("us-east-1"));
    let error = stage.provision(&record).await.unwrap_err();
    assert_eq!((error.reason(), error.changed_nothing), ("BucketTaken", false));
    assert_eq!(stage.calls(), ["GetBucketTagging", "CreateBucket", "GetBucketTagging", "GetBucketTagging"]);
}

/// Strangers share the names of AWS's buckets, whatever the endpoint is called.
#[tokio::test]
async fn without_an_account_a_generated_name_proves_nothing() {
    let record = at_aws_endpoint(without_account(record()));
    let stage = Stage::answering([
        ("GetUser", iam_error(404, "NoSuchEntity")),
        ("GetBucketTagging", s3_error(404, "NoSuchTagSet")),
        ("DeleteBucket", bare(204)),
    ]);
    let removal = stage.delete(&record, None, Content::Delete).await.unwrap();
    assert!(matches!(removal, (_, BucketRemoval::LeftInPlace(_))), "{removal:?}");
    assert!(!stage.calls().contains(&"DeleteBucket".to_owned()));
}

/// What AWS does not show may appear within two minutes, and elsewhere at once.
#[tokio::test]
async fn what_is_missing_at_aws_may_appear_for_longer_than_elsewhere() {
    let stage = Stage::answering(Vec::<(&'static str, Answer)>::new());
    let lag = |record: &Record| stage.provisioner.consistency_lag(record).as_secs();
    assert_eq!((lag(&record()), lag(&foreign())), (120, 10));
    assert_eq!(lag(&elsewhere(record())), 120, "its users are AWS's");
}
