//! Provision and grant.
//!
//! Long, because each case is a short list of answers, and all are about one verb.

use std::time::Duration;

use secrecy::ExposeSecret;
use tokio::time::Instant;

use super::probe::{listed, no_such_key};
use crate::class::environment::Environment;
use crate::testing::*;
use bucket_provisioner::store::{Failure, FailureClass, Probe, Record};

const USER: [&str; 3] = ["CreateUser", "PutUserPolicy", "CreateAccessKey"];

pub(super) fn user_is_made() -> Vec<(&'static str, Answer)> {
    vec![("CreateUser", ok(CREATED)), ("PutUserPolicy", ok("")), ("CreateAccessKey", access_key())]
}

const CREATED: &str = "<CreateUserResponse><CreateUserResult/></CreateUserResponse>";

fn stage(first: impl IntoIterator<Item = (&'static str, Answer)>) -> Stage {
    Stage::answering(first.into_iter().chain(user_is_made()))
}

fn and_user(first: &[&str]) -> Vec<String> {
    first.iter().chain(&USER).map(|call| (*call).to_owned()).collect()
}

/// One of several claims with generated names.
fn numbered(number: u32) -> Record {
    let uid = format!("{number}0e0e038-0689-48a2-bfaa-74d1bf1fd950");
    let mut record = record();
    (record.plan.bucket, record.plan.user) = (format!("photos-{uid}"), Some(format!("shop-photos-{uid}")));
    record.claim.uid = uid;
    record
}

#[tokio::test]
async fn a_claim_costs_four_calls_and_two_probes() {
    let stage = stage([("CreateBucket", ok("")), listed(), no_such_key()]);
    let credentials = stage.provision(&record()).await.unwrap();
    assert_eq!(credentials.secret_access_key.expose_secret(), "hunter2");
    assert_eq!(stage.probe(&record(), &credentials).await.unwrap(), Probe::Usable);
    assert_eq!(
        stage.calls(),
        ["CreateBucket", "CreateUser", "PutUserPolicy", "CreateAccessKey", "ListObjectsV2", "GetObject"]
    );
    let body = stage.sent("CreateBucket");
    assert!(body.contains("<LocationConstraint>us-west-1</LocationConstraint>"), "{body}");
    assert!(body.contains(&format!("<Key>objectbucket.io/claim-uid</Key><Value>{UID}</Value>")), "{body}");
    assert!(stage.sent("CreateUser").contains("Path=%2Faws-s3-provisioner%2F"), "{}", stage.sent("CreateUser"));
}

/// Otherwise a key that is not listed yet would stay, and nobody has its secret.
#[tokio::test]
async fn a_key_is_kept_while_its_bucket_cannot_be_created() {
    let first = [("CreateBucket", ok(""))].into_iter().chain(user_is_made());
    let second = [("CreateBucket", s3_error(500, "InternalError")), ("CreateBucket", ok(""))];
    let stage = Stage::answering(first.chain(second).chain(user_is_made()));
    stage.provision(&record()).await.unwrap();
    let other = numbered(2);
    stage.provision(&other).await.unwrap_err();
    stage.provision(&other).await.unwrap();
    assert_eq!(stage.calls().iter().filter(|call| *call == "CreateAccessKey").count(), 2);
}

/// The bucket is created beside the user, its policy beside its key; the key is tried in two ways at once.
#[tokio::test(start_paused = true)]
async fn a_claim_takes_three_round_trips() {
    let made = || [("CreateBucket", ok(""))].into_iter().chain(user_is_made());
    let stage = Stage::answering(made().chain(made()).chain([listed(), no_such_key()]));
    stage.provision(&record()).await.unwrap();
    stage.delays(Duration::from_secs(1));
    let (began, second) = (Instant::now(), numbered(2));
    let credentials = stage.provision(&second).await.unwrap();
    assert_eq!(stage.probe(&second, &credentials).await.unwrap(), Probe::Usable);
    assert_eq!((began.elapsed().as_secs(), stage.calls().len()), (3, 4 + 6));
}

/// As long as buckets are refused, nobody gets a user.
#[tokio::test]
async fn a_user_is_created_in_parallel_after_a_success() {
    let refused = || ("CreateBucket", s3_error(400, "InvalidBucketName"));
    let made = [("CreateBucket", ok(""))].into_iter().chain(user_is_made());
    let stage = Stage::answering(
        std::iter::once(refused()).chain(made).chain([refused()]).chain(user_is_made()).chain([refused()]),
    );
    let refusal = async |record: &Record| stage.provision(record).await.unwrap_err();
    assert!(refusal(&numbered(1)).await.changed_nothing);
    assert_eq!(stage.calls(), ["CreateBucket"]);
    stage.provision(&numbered(2)).await.unwrap();
    let error = refusal(&numbered(3)).await;
    assert_eq!((error.reason(), error.changed_nothing), ("Rejected", false), "the record names the user");
    assert_eq!(stage.calls()[5..], and_user(&["CreateBucket"]));
    assert!(refusal(&numbered(4)).await.changed_nothing);
    assert_eq!(stage.calls()[9..], ["CreateBucket"]);
}

#[tokio::test]
async fn us_east_1_has_no_location_constraint() {
    let mut record = record();
    record.plan.endpoint.region = "us-east-1".into();
    let stage = stage([("CreateBucket", ok(""))]);
    stage.provision(&record).await.unwrap();
    assert!(!stage.sent("CreateBucket").contains("LocationConstraint"));
}

#[tokio::test]
async fn a_bucket_of_an_earlier_run_is_used_again() {
    let stage =
        stage([("CreateBucket", s3_error(409, "BucketAlreadyOwnedByYou")), ("GetBucketTagging", bucket_tags(OURS))]);
    stage.provision(&record()).await.unwrap();
    assert_eq!(stage.calls(), and_user(&["CreateBucket", "GetBucketTagging"]));
}

#[tokio::test]
async fn a_generated_name_without_tags_is_ours_and_gets_them() {
    let stage = stage([
        ("CreateBucket", s3_error(409, "BucketAlreadyOwnedByYou")),
        ("GetBucketTagging", s3_error(404, "NoSuchTagSet")),
        ("TagResource", bare(204)),
    ]);
    stage.provision(&record()).await.unwrap();
    assert_eq!(stage.calls(), and_user(&["CreateBucket", "GetBucketTagging", "TagResource"]));
}

#[tokio::test]
async fn a_chosen_name_costs_no_more_where_the_answer_is_clear() {
    let stage = stage([("CreateBucket", ok(""))]);
    stage.provision(&named("us-west-1")).await.unwrap();
    assert_eq!(stage.calls(), and_user(&["CreateBucket"]));
}

#[tokio::test]
async fn an_existing_bucket_needs_the_tags_of_this_claim() {
    for tags in [OTHERS, FOREIGN, &[]] {
        let stage = stage([
            ("CreateBucket", s3_error(409, "BucketAlreadyOwnedByYou")),
            ("GetBucketTagging", bucket_tags(tags)),
        ]);
        let error = stage.provision(&named("us-west-1")).await.unwrap_err();
        assert_eq!((error.reason(), error.class()), ("BucketTaken", FailureClass::Terminal));
        assert!(error.changed_nothing);
        assert_eq!(stage.calls(), ["CreateBucket", "GetBucketTagging"]);
    }
}

#[tokio::test]
async fn an_older_bucket_is_refused_whatever_its_tags_say() {
    let provision = async |buckets: Answer| {
        let stage = stage([
            ("CreateBucket", s3_error(409, "BucketAlreadyOwnedByYou")),
            ("GetBucketTagging", bucket_tags(OURS)),
            ("ListBuckets", buckets),
        ]);
        (stage.provision(&named_in_2026()).await.map(drop), stage)
    };
    let (older, stage) = provision(buckets_created_at("2025-01-01T00:00:00.000Z")).await;
    let error = older.unwrap_err();
    assert_eq!((error.reason(), error.changed_nothing), ("BucketTaken", true));
    assert!(error.to_string().contains("older than this claim"), "{error}");
    assert_eq!(stage.calls(), ["CreateBucket", "GetBucketTagging", "ListBuckets"]);
    // Half a minute before the claim: clocks differ.
    let (same_age, _) = provision(buckets_created_at("2026-05-28T20:26:10.000Z")).await;
    same_age.unwrap();
    let (minutes_older, _) = provision(buckets_created_at("2026-05-28T20:25:30.000Z")).await;
    assert_eq!(minutes_older.unwrap_err().reason(), "BucketTaken");
    // Without the permission nothing proves whose it is.
    let (denied, _) = provision(s3_error(403, "AccessDenied")).await;
    let error = denied.unwrap_err();
    assert!(error.to_string().contains("s3:ListAllMyBuckets") && !error.changed_nothing, "{error}");
}

/// There CreateBucket answers 200 for a bucket of one's own that exists.
#[tokio::test]
async fn us_east_1_checks_whether_a_chosen_name_exists() {
    let stage = stage([("GetBucketTagging", bucket_tags(&[]))]);
    let error = stage.provision(&named("us-east-1")).await.unwrap_err();
    assert_eq!((error.reason(), error.changed_nothing), ("BucketTaken", true));
    assert_eq!(stage.calls(), ["GetBucketTagging"]);
}

#[tokio::test]
async fn in_us_east_1_a_free_name_is_created_and_read_back() {
    let stage = stage([
        ("GetBucketTagging", s3_error(404, "NoSuchBucket")),
        ("CreateBucket", ok("")),
        ("GetBucketTagging", bucket_tags(OURS)),
    ]);
    stage.provision(&named("us-east-1")).await.unwrap();
    assert_eq!(stage.calls(), and_user(&["GetBucketTagging", "CreateBucket", "GetBucketTagging"]));
}

#[tokio::test]
async fn us_east_1_reads_tags_after_a_lost_race() {
    let stage = stage([
        ("GetBucketTagging", s3_error(404, "NoSuchBucket")),
        ("CreateBucket", ok("")),
        ("GetBucketTagging", bucket_tags(OTHERS)),
    ]);
    let error = stage.provision(&named("us-east-1")).await.unwrap_err();
    assert!(error.to_string().contains("has the tags of another claim"), "{error}");
    assert!(!error.changed_nothing);
}

#[tokio::test]
async fn a_store_that_drops_tags_gets_them_again() {
    let stage = stage([
        ("GetBucketTagging", s3_error(404, "NoSuchBucket")),
        ("CreateBucket", ok("")),
        ("GetBucketTagging", s3_error(404, "NoSuchTagSet")),
        ("PutBucketTagging", bare(204)),
        ("GetBucketTagging", bucket_tags(OURS)),
    ]);
    stage.provision(&elsewhere(named("us-west-1"))).await.unwrap();
    let tagged = ["GetBucketTagging", "CreateBucket", "GetBucketTagging", "PutBucketTagging", "GetBucketTagging"];
    assert_eq!(stage.calls(), and_user(&tagged));
}

#[tokio::test]
async fn refused_tags_in_create_bucket_are_set_afterwards() {
    let stage = stage([
        ("CreateBucket", s3_error(400, "MalformedXML")),
        ("CreateBucket", ok("")),
        ("PutBucketTagging", bare(204)),
    ]);
    stage.provision(&elsewhere(record())).await.unwrap();
    assert_eq!(stage.calls(), and_user(&["CreateBucket", "CreateBucket", "PutBucketTagging"]));
}

#[tokio::test]
async fn a_store_without_tags_can_only_serve_generated_names() {
    let no_tags = || {
        [
            ("CreateBucket", s3_error(501, "NotImplemented")),
            ("CreateBucket", ok("")),
            ("PutBucketTagging", s3_error(501, "NotImplemented")),
        ]
    };
    let generated = stage(no_tags());
    generated.provision(&elsewhere(record())).await.unwrap();

    let look = ("GetBucketTagging", s3_error(404, "NoSuchBucket"));
    let chosen =
        stage(std::iter::once(look).chain([("GetBucketTagging", s3_error(501, "NotImplemented"))]).chain(no_tags()));
    let error = chosen.provision(&elsewhere(named("us-west-1"))).await.unwrap_err();
    assert_eq!((error.reason(), error.changed_nothing), ("TagsNotKept", false));
}

const NO_TAGS: &str = "UnsupportedArgument";

/// As in eusc-de-east-1.
#[tokio::test]
async fn a_region_that_refuses_tags_gets_them_afterwards() {
    let user = user_is_made;
    let first = [("CreateBucket", s3_error(400, NO_TAGS)), ("CreateBucket", ok("")), ("PutBucketTagging", bare(204))];
    let second = [("CreateBucket", ok("")), ("PutBucketTagging", bare(204))];
    let stage = Stage::answering(first.into_iter().chain(user()).chain(second).chain(user()));
    stage.provision(&numbered(1)).await.unwrap();
    assert_eq!(stage.calls(), and_user(&["CreateBucket", "CreateBucket", "PutBucketTagging"]));
    assert!(stage.sent("PutBucketTagging").contains("objectbucket.io/claim-uid"));
    stage.provision(&numbered(2)).await.unwrap();
    // Known by now.
    assert_eq!(stage.all_sent("CreateBucket").len(), 3);
}

#[tokio::test]
async fn a_bucket_of_a_chosen_name_never_stays_without_tags() {
    let provision = async |deleted: Answer| {
        let stage = stage([
            ("CreateBucket", s3_error(400, NO_TAGS)),
            ("CreateBucket", ok("")),
            ("PutBucketTagging", s3_error(403, "AccessDenied")),
            ("DeleteBucket", deleted),
        ]);
        let error = stage.provision(&named("eusc-de-east-1")).await.unwrap_err();
        assert_eq!(stage.calls(), ["CreateBucket", "CreateBucket", "PutBucketTagging", "DeleteBucket"]);
        (error.reason(), error.changed_nothing)
    };
    assert_eq!(provision(bare(204)).await, ("AccessDenied", true));
    assert_eq!(provision(s3_error(403, "AccessDenied")).await, ("AccessDenied", false));
}

/// S3 may not show a new bucket to all calls at once.
#[tokio::test(start_paused = true)]
async fn tags_of_a_new_bucket_wait_until_s3_shows_it() {
    let late = || ("PutBucketTagging", s3_error(404, "NoSuchBucket"));
    let refused = [("CreateBucket", s3_error(400, NO_TAGS)), ("CreateBucket", ok(""))];
    let stage = stage(refused.into_iter().chain([late(), late(), ("PutBucketTagging", bare(204))]));
    stage.provision(&named("eusc-de-east-1")).await.unwrap();
    assert_eq!(stage.all_sent("PutBucketTagging").len(), 3);
}

/// If it could neither be tagged nor deleted, the next attempt of this process knows whose it is.
#[tokio::test(start_paused = true)]
async fn a_bucket_that_stayed_without_tags_gets_them_later() {
    let stage = stage([
        ("CreateBucket", s3_error(400, NO_TAGS)),
        ("CreateBucket", ok("")),
        ("PutBucketTagging", s3_error(503, "ServiceUnavailable")),
        ("DeleteBucket", s3_error(503, "ServiceUnavailable")),
        ("PutBucketTagging", bare(204)),
    ]);
    stage.provision(&named("eusc-de-east-1")).await.unwrap_err();
    stage.provision(&named("eusc-de-east-1")).await.unwrap();
    let of_bucket = ["CreateBucket", "CreateBucket", "PutBucketTagging", "DeleteBucket", "PutBucketTagging"];
    assert_eq!(stage.calls(), and_user(&of_bucket));
}

/// Nor does it wait itself for calls that only read.
#[tokio::test(start_paused = true)]
async fn a_class_with_a_ceiling_lets_no_other_class_wait() {
    let user = user_is_made;
    let buckets = || [("CreateBucket", ok(""))];
    let stage = Stage::answering(buckets().into_iter().chain(user()).chain(buckets()).chain(user()));
    let mut slow = numbered(1);
    slow.plan.state.insert("iamCallsPerSecond".into(), "1".into());
    let since = Instant::now();
    stage.provision(&slow).await.unwrap();
    assert!(since.elapsed() >= Duration::from_millis(1900), "{:?}", since.elapsed());
    let since = Instant::now();
    stage.provision(&numbered(2)).await.unwrap();
    assert!(since.elapsed() < Duration::from_millis(100), "{:?}", since.elapsed());
}

/// That of a class counts beside it, not instead.
#[tokio::test(start_paused = true)]
async fn the_ceiling_of_the_operator_holds_for_all_classes() {
    let environment = Environment { iam_calls_per_second: Some(2), ..Environment::default() };
    let buckets = || [("CreateBucket", ok(""))];
    let answers = buckets().into_iter().chain(user_is_made()).chain(buckets()).chain(user_is_made());
    let stage = Stage::in_environment(environment, answers);
    let mut slow = numbered(1);
    slow.plan.state.insert("iamCallsPerSecond".into(), "1".into());
    let (fast, since) = (numbered(2), Instant::now());
    let (first, second) = tokio::join!(stage.provision(&slow), stage.provision(&fast));
    first.unwrap();
    second.unwrap();
    // Six changes, two a second.
    assert!(since.elapsed() >= Duration::from_millis(2400), "{:?}", since.elapsed());
}

/// There CreateBucket does not tell whether the bucket is new, so without tags nothing would.
#[tokio::test]
async fn us_east_1_creates_no_bucket_without_tags() {
    let stage = stage([("GetBucketTagging", s3_error(404, "NoSuchBucket")), ("CreateBucket", s3_error(400, NO_TAGS))]);
    assert_eq!(stage.provision(&named("us-east-1")).await.unwrap_err().reason(), "Rejected");
    assert_eq!(stage.calls(), ["GetBucketTagging", "CreateBucket"]);
}

#[tokio::test]
async fn aws_itself_is_never_asked_again_without_tags() {
    let stage = stage([("CreateBucket", s3_error(400, "MalformedXML"))]);
    assert!(stage.provision(&record()).await.is_err());
    assert_eq!(stage.calls(), ["CreateBucket"]);
}

#[tokio::test]
async fn the_keys_of_an_earlier_run_are_lost_and_replaced() {
    let stage = Stage::answering([
        ("CreateBucket", ok("")),
        ("CreateUser", iam_error(409, "EntityAlreadyExists")),
        ("GetUser", user_with_tags(OURS)),
        ("PutUserPolicy", ok("")),
        ("ListAccessKeys", access_keys(&["AKIA1", "AKIA2"])),
        ("DeleteAccessKey", ok("")),
        ("DeleteAccessKey", iam_error(404, "NoSuchEntity")),
        ("CreateAccessKey", access_key()),
    ]);
    stage.provision(&record()).await.unwrap();
    assert_eq!(
        stage.calls()[2..],
        ["GetUser", "PutUserPolicy", "ListAccessKeys", "DeleteAccessKey", "DeleteAccessKey", "CreateAccessKey"]
    );
}

#[tokio::test]
async fn a_user_that_is_not_tagged_as_the_claims_is_not_used() {
    for tags in [OTHERS, FOREIGN, &[]] {
        let stage = Stage::answering([
            ("GetBucketTagging", bucket_tags(&[])),
            ("CreateUser", iam_error(409, "EntityAlreadyExists")),
            ("GetUser", user_with_tags(tags)),
        ]);
        let error = stage.grant(&granted()).await.unwrap_err();
        assert_eq!((error.reason(), error.class(), error.changed_nothing), ("UserTaken", FailureClass::Terminal, true));
        assert_eq!(stage.calls(), ["GetBucketTagging", "CreateUser", "GetUser"]);
    }
}

#[tokio::test]
async fn a_user_that_exists_but_is_not_seen_yet_is_waited_for() {
    let stage = Stage::answering([
        ("CreateBucket", ok("")),
        ("CreateUser", iam_error(409, "EntityAlreadyExists")),
        ("GetUser", iam_error(404, "NoSuchEntity")),
    ]);
    let error = stage.provision(&record()).await.unwrap_err();
    assert_eq!((error.reason(), error.class()), ("NotVisibleYet", FailureClass::Retryable));
    assert!(!error.changed_nothing, "the bucket was created");
}

#[tokio::test]
async fn a_full_set_of_keys_is_replaced_once() {
    let stage = Stage::answering([
        ("CreateBucket", ok("")),
        ("CreateUser", ok(CREATED)),
        ("PutUserPolicy", ok("")),
        ("CreateAccessKey", iam_error(409, "LimitExceeded")),
        ("ListAccessKeys", access_keys(&["AKIA1", "AKIA2"])),
        ("DeleteAccessKey", ok("")),
        ("DeleteAccessKey", ok("")),
        ("CreateAccessKey", iam_error(409, "LimitExceeded")),
    ]);
    let error = stage.provision(&record()).await.unwrap_err();
    assert_eq!(error.reason(), "NotVisibleYet");
    assert_eq!(stage.calls().iter().filter(|call| *call == "CreateAccessKey").count(), 2);
}

#[tokio::test]
async fn a_lost_answer_to_create_access_key_is_never_repeated_blindly() {
    let stage = Stage::answering([
        ("CreateBucket", ok("")),
        ("CreateUser", ok(CREATED)),
        ("PutUserPolicy", ok("")),
        ("CreateAccessKey", Answer::Reset),
    ]);
    let error = stage.provision(&record()).await.unwrap_err();
    assert_eq!((error.reason(), error.class()), ("StoreUnreachable", FailureClass::Retryable));
    assert_eq!(stage.calls().len(), 4);
}

#[tokio::test]
async fn sharing_the_owners_keys_calls_no_iam() {
    let mut record = record();
    record.plan.user = None;
    let stage = Stage::answering([("CreateBucket", ok(""))]);
    let credentials = stage.provision(&record).await.unwrap();
    assert_eq!(credentials.access_key_id, "AKIAOWNER");
    assert_eq!(stage.calls(), ["CreateBucket"]);
}

#[tokio::test]
async fn access_to_an_existing_bucket_costs_one_read_and_a_user() {
    for tags in [FOREIGN, &[]] {
        let stage = stage([("GetBucketTagging", bucket_tags(tags))]);
        stage.grant(&granted()).await.unwrap();
        assert_eq!(stage.calls(), and_user(&["GetBucketTagging"]));
        assert_eq!(stage.expected_owners(), [("GetBucketTagging".to_owned(), None)], "it may be in any account");
    }
}

#[tokio::test]
async fn a_claimed_bucket_is_granted_only_if_the_class_allows_it() {
    let refused = stage([("GetBucketTagging", bucket_tags(OTHERS))]);
    let error = refused.grant(&granted()).await.unwrap_err();
    assert_eq!((error.reason(), error.class(), error.changed_nothing), ("BucketClaimed", FailureClass::Terminal, true));
    assert_eq!(refused.calls(), ["GetBucketTagging"]);

    let mut allowed = granted();
    allowed.plan.state.insert("allowClaimedBucket".into(), "true".into());
    // Access that was granted before stays.
    for record in [allowed, granted().with_credentials_published()] {
        let stage = stage([("ListObjectsV2", ok("<ListBucketResult></ListBucketResult>"))]);
        stage.grant(&record).await.unwrap();
        assert_eq!(stage.calls(), and_user(&["ListObjectsV2"]));
    }
}

#[tokio::test]
async fn an_unusable_brownfield_bucket_is_reported() {
    let credentials_published = granted().with_credentials_published();
    for (record, operation, denied) in [
        (granted(), "GetBucketTagging", "s3:GetBucketTagging"),
        (credentials_published, "ListObjectsV2", "s3:ListBucket"),
    ] {
        for (answer, reason, words) in [
            (s3_error(404, "NoSuchBucket"), "BucketMissing", "does not exist"),
            (s3_error(403, "AccessDenied"), "AccessDenied", denied),
            (s3_error(403, "SignatureDoesNotMatch"), "CredentialsRefused", "SignatureDoesNotMatch"),
            (in_region(301, "eu-central-1"), "WrongRegion", "region eu-central-1"),
            (in_region(400, "eu-central-1"), "WrongRegion", "region eu-central-1"),
        ] {
            let stage = stage([(operation, answer)]);
            let error = stage.grant(&record).await.unwrap_err();
            assert_eq!((error.reason(), error.class(), error.changed_nothing), (reason, FailureClass::Terminal, true));
            assert!(error.to_string().contains(words), "{error}");
            assert_eq!(stage.calls(), [operation]);
        }
    }
}

/// Not another bucket of the same name.
#[tokio::test]
async fn new_keys_require_the_bucket_of_the_claim() {
    let credentials_published = |record: Record| record.with_credentials_published();
    for tags in [OTHERS, FOREIGN, &[]] {
        let stage = stage([("GetBucketTagging", bucket_tags(tags))]);
        let error = stage.grant(&credentials_published(named("us-west-1"))).await.unwrap_err();
        assert!(error.is_lost(), "{error}");
        assert_eq!((error.reason(), stage.calls().len()), ("OwnershipLost", 1));
    }
    let tagged = stage([("GetBucketTagging", bucket_tags_of(&record()))]);
    tagged.grant(&credentials_published(record())).await.unwrap();
    assert_eq!(tagged.calls(), and_user(&["GetBucketTagging"]));
    assert_eq!(tagged.expected_owners(), [("GetBucketTagging".to_owned(), Some(ACCOUNT.to_owned()))]);

    let strangers =
        stage([("GetBucketTagging", s3_error(403, "AccessDenied")), ("ListBuckets", ok("<ListAllMyBucketsResult/>"))]);
    let error = strangers.grant(&credentials_published(record())).await.unwrap_err();
    assert_eq!(error.reason(), "BucketGone");
}

/// With the next keys.
#[tokio::test]
async fn adopted_resources_get_the_tags_of_the_new_claim() {
    let previous_owner = record().with_former_uids(["another".into()]).with_credentials_published();
    let stage = Stage::answering([
        ("GetBucketTagging", bucket_tags(&[OTHERS, FOREIGN].concat())),
        ("TagResource", bare(204)),
        ("CreateUser", iam_error(409, "EntityAlreadyExists")),
        ("GetUser", user_with_tags(OTHERS)),
        ("TagUser", ok("")),
        ("PutUserPolicy", ok("")),
        ("ListAccessKeys", access_keys(&["AKIA1"])),
        ("DeleteAccessKey", ok("")),
        ("CreateAccessKey", access_key()),
    ]);
    stage.grant(&previous_owner).await.unwrap();
    // It keeps the tags of others.
    let tags = stage.sent("TagResource");
    assert!(tags.contains(UID) && !tags.contains("cost-center") && !tags.contains("another"), "{tags}");
    assert!(stage.sent("TagUser").contains(UID), "{}", stage.sent("TagUser"));
}

/// Not every region has TagResource, and not everybody can reach it.
#[tokio::test]
async fn what_others_tagged_meanwhile_is_kept() {
    let meanwhile = [OURS, FOREIGN, &[("aws:cloudformation:stack-id", "x")]].concat();
    let stage = Stage::answering([
        ("GetBucketTagging", bucket_tags(OURS)),
        ("TagResource", s3_error(405, "MethodNotAllowed")),
        ("GetBucketTagging", bucket_tags(&meanwhile)),
        ("PutBucketTagging", bare(204)),
    ]);
    stage.grant(&record().with_credentials_published()).await.unwrap_err();
    let tags = stage.sent("PutBucketTagging");
    for kept in [UID, CLUSTER, "cost-center", "aws:cloudformation:stack-id"] {
        assert!(tags.contains(kept), "{kept}: {tags}");
    }
}

#[tokio::test]
async fn two_claims_cannot_create_one_name_at_once() {
    let stage = stage([]);
    let record = named("us-east-1");
    let target = crate::class::target::Target::of(&record, &Default::default());
    let first = stage.provisioner.lock_name(&target).unwrap();
    let error = stage.provision(&record).await.unwrap_err();
    assert_eq!((error.reason(), error.class(), error.changed_nothing), ("StoreBusy", FailureClass::Retryable, true));
    drop(first);
    assert!(stage.provisioner.lock_name(&target).is_ok());
}
