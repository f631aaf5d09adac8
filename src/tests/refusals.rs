//! What AWS's error codes mean: reason, class, and whether the record can be withdrawn.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::testing::*;
use bucket_provisioner::store::FailureClass::{Retryable, Terminal};
use bucket_provisioner::store::{Content, Failure};

#[tokio::test]
async fn every_refusal_of_the_first_call_has_its_reason() {
    for (answer, reason, class, untouched) in [
        (s3_error(403, "AccessDenied"), "AccessDenied", Terminal, true),
        (bare(403), "AccessDenied", Terminal, true),
        (s3_error(403, "InvalidAccessKeyId"), "CredentialsRefused", Terminal, true),
        (s3_error(403, "SignatureDoesNotMatch"), "CredentialsRefused", Terminal, true),
        (s3_error(403, "RequestTimeTooSkewed"), "CredentialsRefused", Terminal, true),
        (s3_error(400, "ExpiredToken"), "CredentialsExpired", Terminal, true),
        (s3_error(409, "BucketAlreadyExists"), "BucketTaken", Terminal, true),
        (s3_error(400, "TooManyBuckets"), "QuotaExceeded", Terminal, true),
        (s3_error(400, "InvalidBucketName"), "Rejected", Terminal, true),
        (s3_error(400, "InvalidNamespaceHeader"), "InvalidClassParameter", Terminal, true),
        (s3_error(400, "IllegalLocationConstraintException"), "Rejected", Terminal, true),
        (in_region(301, "eu-central-1"), "WrongRegion", Terminal, true),
        // The store may have created the bucket: an earlier attempt may still be running.
        (s3_error(409, "OperationAborted"), "StoreBusy", Retryable, false),
        (s3_error(503, "ServiceUnavailable"), "Throttled", Retryable, false),
        (bare(503), "Throttled", Retryable, false),
        (s3_error(500, "InternalError"), "StoreFailing", Retryable, false),
        (bare(502), "StoreFailing", Retryable, false),
        (Answer::Reset, "StoreUnreachable", Retryable, false),
        (Answer::Cut, "StoreUnreachable", Retryable, false),
    ] {
        let shown = format!("{answer:?}");
        // It may be about the ownership of objects, which the first one names.
        let calls = if shown.contains("<Code>AccessDenied</Code>") { 2 } else { 1 };
        let stage = Stage::answering(vec![("CreateBucket", answer); calls]);
        let error = stage.provision(&record()).await.unwrap_err();
        assert_eq!(
            (error.reason(), error.class(), error.changed_nothing),
            (reason, class, untouched),
            "{shown}: {error}"
        );
        assert_eq!(stage.calls(), vec!["CreateBucket"; calls], "nothing else is retried");
        assert!(!error.to_string().contains("4442587FB7D0A2F9"), "{error}");
        assert!(!format!("{error} {error:?}").contains("0wn3r"), "{error:?}");
    }
}

/// The claim shows them to its user.
#[tokio::test]
async fn a_store_cannot_write_long_or_secret_codes() {
    let code = format!("Of123456789012{}", "x".repeat(10_000));
    let region = "y".repeat(10_000).leak();
    for answer in [s3_error(400, &code), s3_error(500, &code), in_region(301, region)] {
        let error = Stage::answering([("CreateBucket", answer)]).provision(&record()).await.unwrap_err().to_string();
        assert!(error.len() < 2_000 && error.contains(" ...") && !error.contains("123456789012"), "{error}");
    }
}

/// It may be about the tags.
#[tokio::test]
async fn an_unknown_operation_is_tried_once_more_without_tags() {
    let unknown = || ("CreateBucket", s3_error(501, "NotImplemented"));
    let stage = Stage::answering([unknown(), unknown()]);
    let error = stage.provision(&record()).await.unwrap_err();
    assert_eq!((error.reason(), error.class(), error.changed_nothing), ("NotSupported", Terminal, true));
    assert_eq!(stage.calls(), ["CreateBucket", "CreateBucket"]);
}

#[tokio::test]
async fn iam_refusals_have_their_reasons_too() {
    for (answer, reason, class) in [
        (iam_error(403, "AccessDenied"), "AccessDenied", Terminal),
        (iam_error(403, "InvalidClientTokenId"), "CredentialsRefused", Terminal),
        (iam_error(403, "ExpiredToken"), "CredentialsExpired", Terminal),
        (iam_error(409, "LimitExceeded"), "QuotaExceeded", Terminal),
        (iam_error(409, "ConcurrentModification"), "StoreBusy", Retryable),
        (iam_error(409, "EntityTemporarilyUnmodifiable"), "StoreBusy", Retryable),
        // The permissions boundary does not exist.
        (iam_error(404, "NoSuchEntity"), "Rejected", Terminal),
        (iam_error(500, "ServiceFailure"), "StoreFailing", Retryable),
        // Perhaps it is down, and has done it.
        (iam_error(503, "ServiceUnavailable"), "Throttled", Retryable),
        (ok("<html>"), "StoreFailing", Retryable),
        (bare(404), "Rejected", Terminal),
    ] {
        let shown = format!("{answer:?}");
        let stage = Stage::answering([("CreateBucket", ok("")), ("CreateUser", answer)]);
        let error = stage.provision(&record()).await.unwrap_err();
        assert_eq!((error.reason(), error.class()), (reason, class), "{shown}: {error}");
        assert!(!error.changed_nothing, "the bucket was created");
    }
}

/// A throttled call has changed nothing.
/// Nothing else of the attempt is repeated.
#[tokio::test(start_paused = true)]
async fn a_throttled_call_is_repeated_for_half_a_minute() {
    for (call, answer) in [
        ("CreateBucket", s3_error(503, "SlowDown")),
        ("CreateBucket", s3_error(400, "RequestLimitExceeded")),
        ("CreateBucket", bare(429)),
        ("CreateUser", iam_error(400, "Throttling")),
        ("CreateUser", iam_error(400, "ThrottlingException")),
        ("PutUserPolicy", iam_error(400, "TooManyRequestsException")),
        ("CreateAccessKey", iam_error(400, "RequestLimitExceeded")),
    ] {
        let made = || {
            let created = ok("<CreateUserResponse><CreateUserResult/></CreateUserResponse>");
            [
                ("CreateBucket", ok("")),
                ("CreateUser", created),
                ("PutUserPolicy", ok("")),
                ("CreateAccessKey", access_key()),
            ]
        };
        let stage = Stage::answering([(call, answer.clone()), (call, answer.clone())].into_iter().chain(made()));
        stage.provision(&record()).await.unwrap();
        let mut calls = stage.calls();
        assert_eq!(calls.iter().filter(|called| *called == call).count(), 3, "{calls:?}");
        calls.retain(|called| called != call);
        let others = made().into_iter().map(|(made, _)| made).filter(|made| *made != call);
        assert_eq!(calls, others.collect::<Vec<_>>(), "once");

        let stage = Stage::answering(std::iter::repeat_n((call, answer), 100).chain(made()));
        let began = tokio::time::Instant::now();
        let error = stage.provision(&record()).await.unwrap_err();
        assert_eq!((error.reason(), error.class(), error.changed_nothing), ("Throttled", Retryable, false));
        assert!((30..60).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
        assert!(stage.calls().len() < 30, "{:?}", stage.calls());
    }
}

/// What has succeeded is neither repeated nor read again, but after a minute.
#[tokio::test(start_paused = true)]
async fn the_next_attempt_continues_where_the_last_one_failed() {
    let created = || ok("<CreateUserResponse><CreateUserResult/></CreateUserResponse>");
    let failures = [
        ("CreateBucket", s3_error(500, "InternalError")),
        ("CreateBucket", ok("")),
        ("CreateUser", iam_error(500, "ServiceFailure")),
        ("CreateUser", created()),
        ("PutUserPolicy", iam_error(500, "ServiceFailure")),
        ("CreateAccessKey", access_key()),
        ("PutUserPolicy", ok("")),
    ];
    let needed = [
        "CreateBucket",
        "CreateBucket",
        "CreateUser",
        "CreateUser",
        "PutUserPolicy",
        "CreateAccessKey",
        "PutUserPolicy",
    ];
    let stage = Stage::answering(failures.clone());
    for _ in 0..3 {
        stage.provision(&record()).await.unwrap_err();
    }
    let keys = stage.provision(&record()).await.unwrap();
    assert_eq!((keys.access_key_id.as_str(), stage.calls()), ("AKIANEW", needed.map(str::to_owned).to_vec()));

    let stage = Stage::answering(failures);
    for _ in 0..3 {
        stage.provision(&record()).await.unwrap_err();
    }
    tokio::time::advance(Duration::from_secs(61)).await;
    stage.provision(&record()).await.unwrap_err();
    assert!(stage.calls()[6..].contains(&"CreateBucket".to_owned()), "it checks whether the bucket exists");
}

/// A key whose answer was lost may exist.
#[tokio::test]
async fn the_next_attempt_looks_for_keys_only_if_one_may_exist() {
    let created = ok("<CreateUserResponse><CreateUserResult/></CreateUserResponse>");
    let stage = Stage::answering([
        ("CreateBucket", ok("")),
        ("CreateUser", created),
        ("PutUserPolicy", ok("")),
        ("CreateAccessKey", Answer::Reset),
        ("ListAccessKeys", access_keys(&["AKIALOST"])),
        ("DeleteAccessKey", ok("")),
        ("CreateAccessKey", access_key()),
    ]);
    stage.provision(&record()).await.unwrap_err();
    stage.provision(&record()).await.unwrap();
    assert_eq!(stage.calls()[4..], ["ListAccessKeys", "DeleteAccessKey", "CreateAccessKey"]);
}

/// The users of an account are used up: one claim asks now and then.
#[tokio::test(start_paused = true)]
async fn after_quota_exceeded_calls_wait_for_a_deletion() {
    let refused = || ("CreateBucket", s3_error(400, "TooManyBuckets"));
    let another = || {
        let mut record = record();
        record.claim.uid = "0e0e0389-0689-48a2-bfaa-74d1bf1fd950".into();
        record.plan.bucket = "other-0e0e0389-0689-48a2-bfaa-74d1bf1fd950".into();
        record
    };
    let gone = [
        ("GetUser", iam_error(404, "NoSuchEntity")),
        ("GetBucketTagging", bucket_tags_of(&record())),
        ("DeleteBucket", bare(204)),
    ];
    let stage = Stage::answering([refused(), refused()].into_iter().chain(gone));
    let first = stage.provision(&record()).await.unwrap_err();
    for _ in 0..10 {
        let error = stage.provision(&another()).await.unwrap_err();
        assert_eq!((error.reason(), error.class(), error.changed_nothing), ("QuotaExceeded", Terminal, true));
        assert_eq!(error.to_string().replace(&another().plan.bucket, &record().plan.bucket), first.to_string());
    }
    assert_eq!(stage.calls(), ["CreateBucket"]);
    tokio::time::advance(Duration::from_secs(31)).await;
    for _ in 0..10 {
        stage.provision(&another()).await.unwrap_err();
    }
    assert_eq!(stage.calls(), ["CreateBucket", "CreateBucket"]);
    stage.delete(&record(), None, Content::Delete).await.unwrap();
    stage.provision(&another()).await.unwrap_err();
    assert_eq!(stage.calls().last().unwrap(), "CreateBucket");
}

async fn refusal(answer: Answer) -> String {
    // A denial may be about the ownership of objects, which the first one names.
    let stage = Stage::answering([("CreateBucket", answer.clone()), ("CreateBucket", answer)]);
    stage.provision(&record()).await.unwrap_err().to_string()
}

#[tokio::test]
async fn a_denial_names_the_call_and_the_missing_actions() {
    insta::assert_snapshot!(refusal(s3_error(403, "AccessDenied")).await, @r#"AWS denied CreateBucket on bucket "photos-f30e0389-0689-48a2-bfaa-74d1bf1fd950" to the provisioning credentials in Secret ops/keys: allow s3:CreateBucket and s3:TagResource and s3:PutBucketOwnershipControls; AWS reported: About AccessDenied"#);
}

#[tokio::test]
async fn a_denial_may_point_to_the_permissions_boundary() {
    let denied = || iam_error(403, "AccessDenied");
    for (answers, remedy) in [
        (vec![("CreateUser", denied())], "set permissionsBoundary in the StorageClass"),
        (
            vec![
                ("CreateUser", iam_error(409, "EntityAlreadyExists")),
                ("GetUser", user_with_tags(OURS)),
                ("PutUserPolicy", denied()),
            ],
            "this user has none, and an admin must set it",
        ),
    ] {
        let stage = Stage::answering([("CreateBucket", ok(""))].into_iter().chain(answers));
        let error = stage.provision(&record()).await.unwrap_err();
        assert_eq!(error.reason(), "AccessDenied");
        assert!(error.to_string().contains(remedy), "{error}");
    }
}

#[tokio::test]
async fn a_denial_about_a_new_user_is_retried() {
    const CREATED: &str = "<CreateUserResponse><CreateUserResult/></CreateUserResponse>";
    let denied = || iam_error(403, "AccessDenied");
    let date = |ago: u64| Timestamp::now().checked_sub(Duration::from_secs(ago)).unwrap().to_string();
    let exists = || ("CreateUser", iam_error(409, "EntityAlreadyExists"));
    for (answers, reason) in [
        (vec![("CreateUser", ok(CREATED)), ("PutUserPolicy", denied())], "NotVisibleYet"),
        (vec![("CreateUser", ok(CREATED)), ("PutUserPolicy", ok("")), ("CreateAccessKey", denied())], "NotVisibleYet"),
        (vec![exists(), ("GetUser", user_made_at(&date(100), OURS)), ("PutUserPolicy", denied())], "NotVisibleYet"),
        (vec![exists(), ("GetUser", user_made_at(&date(140), OURS)), ("PutUserPolicy", denied())], "AccessDenied"),
    ] {
        let stage = Stage::answering([("CreateBucket", ok(""))].into_iter().chain(answers));
        let error = stage.provision(&record()).await.unwrap_err();
        assert_eq!(error.reason(), reason, "{error}");
    }
    for (ago, reason) in [(100, "NotVisibleYet"), (140, "AccessDenied")] {
        let stage = Stage::answering([("GetUser", user_made_at(&date(ago), OURS)), ("ListAccessKeys", denied())]);
        let error = stage.revoke(&record(), None).await.unwrap_err();
        assert_eq!(error.reason(), reason, "{error}");
    }
    // Only AWS has such hosts.
    let foreign = at_foreign_iam(elsewhere(record()));
    let stage = Stage::answering([("CreateBucket", ok("")), ("CreateUser", ok(CREATED)), ("PutUserPolicy", denied())]);
    let error = stage.provision(&foreign).await.unwrap_err();
    assert_eq!(error.reason(), "AccessDenied");
}

#[tokio::test]
async fn refused_tags_of_a_bucket_with_abac_have_a_remedy() {
    // Only the refusal itself shows it.
    for refused in [s3_error(400, "InvalidRequest"), s3_error(405, "MethodNotAllowed"), s3_error(403, "AccessDenied")] {
        let stage = Stage::answering([
            ("CreateBucket", s3_error(409, "BucketAlreadyOwnedByYou")),
            ("GetBucketTagging", s3_error(404, "NoSuchTagSet")),
            ("TagResource", s3_error(403, "AccessDenied")),
            ("GetBucketTagging", s3_error(404, "NoSuchTagSet")),
            ("PutBucketTagging", refused),
        ]);
        let error = stage.provision(&record()).await.unwrap_err();
        assert!(error.to_string().contains("allow s3:TagResource"), "{error}");
    }
}

#[tokio::test]
async fn a_session_that_iam_does_not_take_is_named_as_such() {
    let mut stage =
        Stage::answering([("CreateBucket", ok("")), ("CreateUser", iam_error(403, "InvalidClientTokenId"))]);
    let plain = stage.provision(&record()).await.unwrap_err().to_string();
    assert!(plain.contains("put a valid, active key there"), "{plain}");
    stage = Stage::answering([("CreateBucket", ok("")), ("CreateUser", iam_error(403, "InvalidClientTokenId"))]);
    stage.owner.keys.as_mut().unwrap().token = Some("token".to_owned().into());
    let session = stage.provision(&record()).await.unwrap_err().to_string();
    assert!(session.contains("a session with MFA") && session.contains("Secret ops/keys"), "{session}");
}

#[tokio::test]
async fn refused_keys_name_the_secret_to_correct() {
    insta::assert_snapshot!(refusal(s3_error(403, "InvalidAccessKeyId")).await, @r#"AWS refused the provisioning credentials in Secret ops/keys (InvalidAccessKeyId) in CreateBucket: put a valid, active key there; AWS also refuses a valid key where its account has not enabled the region of the class, and in another partition"#);
}

/// Each leads to what has to be changed.
#[tokio::test]
async fn refusals_about_account_region_or_boundary_say_so() {
    let of_user = async |answer: Answer| {
        let stage = Stage::answering([("CreateBucket", ok("")), ("CreateUser", answer)]);
        stage.provision(&record()).await.unwrap_err().to_string()
    };
    for (message, expected) in [
        (refusal(s3_error(403, "AllAccessDisabled")).await, "AWS reported: AllAccessDisabled: About AllAccessDisabled"),
        (refusal(s3_error(403, "InvalidAccessKeyId")).await, "has not enabled the region of the class"),
        (refusal(s3_error(400, "IllegalLocationConstraintException")).await, "correct region or s3Endpoint"),
        (of_user(iam_error(403, "InvalidClientTokenId")).await, "and in another partition"),
        (of_user(iam_error(404, "NoSuchEntity")).await, "the permissions boundary does not exist in this account"),
        (of_user(iam_error(409, "LimitExceeded")).await, "5,000 users, which AWS does not raise"),
    ] {
        assert!(message.contains(expected), "{message}");
    }
    assert!(!refusal(bare(403)).await.contains("AWS reported"));
    let signature = refusal(s3_error(403, "SignatureDoesNotMatch")).await;
    assert!(!signature.contains("enabled the region") && signature.contains("the node's clock"), "{signature}");
    let clock = refusal(s3_error(403, "RequestTimeTooSkewed")).await;
    assert!(clock.ends_with("synchronise the clock of the operator's node"), "{clock}");
}

#[tokio::test]
async fn a_name_of_another_account_is_reported() {
    insta::assert_snapshot!(refusal(s3_error(409, "BucketAlreadyExists")).await, @r#"bucket "photos-f30e0389-0689-48a2-bfaa-74d1bf1fd950" is taken by another AWS account: choose another name, or use spec.generateBucketName"#);
}

#[tokio::test]
async fn a_broken_connection_is_reported() {
    insta::assert_snapshot!(refusal(Answer::Reset).await, @r#"no answer from S3 to CreateBucket on bucket "photos-f30e0389-0689-48a2-bfaa-74d1bf1fd950": connection reset; if this stays, an admin must check the operator's network; retrying"#);
}

#[tokio::test]
async fn arns_and_accounts_are_not_shown_on_a_claim() {
    let body = "<Error><Code>AccessDenied</Code><Message>User: arn:aws:sts::123456789012:assumed-role/operator/web-identity-token-1767225600000 is not authorized to perform: s3:CreateBucket</Message></Error>";
    let answer = Answer::Status { status: 403, header: None, body: body.into() };
    let message = refusal(answer).await;
    assert!(message.contains("User: (an ARN) is not authorized to perform: s3:CreateBucket"), "{message}");
    // The name of the session changes, too.
    assert!(!message.contains("123456789012") && !message.contains("1767225600000"), "{message}");
}
