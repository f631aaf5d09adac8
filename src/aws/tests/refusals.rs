//! What AWS's error codes mean: reason, class, and whether the record can be withdrawn.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::aws::testing::*;
use crate::provisioner::FailureClass::{Retryable, Terminal};
use crate::provisioner::{Failure, Provisioner};

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
        (s3_error(400, "IllegalLocationConstraintException"), "WrongRegion", Terminal, true),
        (in_region(301, "eu-central-1"), "WrongRegion", Terminal, true),
        (s3_error(501, "NotImplemented"), "NotSupported", Terminal, true),
        // The store may have created the bucket: an earlier attempt may still be running.
        (s3_error(409, "OperationAborted"), "StoreBusy", Retryable, false),
        (s3_error(503, "SlowDown"), "Throttled", Retryable, false),
        (s3_error(400, "RequestLimitExceeded"), "Throttled", Retryable, false),
        (bare(503), "Throttled", Retryable, false),
        (bare(429), "Throttled", Retryable, false),
        (s3_error(500, "InternalError"), "StoreFailing", Retryable, false),
        (bare(502), "StoreFailing", Retryable, false),
        (Answer::Reset, "StoreUnreachable", Retryable, false),
    ] {
        let shown = format!("{answer:?}");
        let stage = Stage::answering([("CreateBucket", answer)]);
        let error = stage.provisioner.provision(&record(), &stage.owner).await.unwrap_err();
        assert_eq!(
            (error.reason(), error.class(), error.store_untouched()),
            (reason, class, untouched),
            "{shown}: {error}"
        );
        assert_eq!(stage.calls(), ["CreateBucket"], "nothing is retried");
        assert!(!error.to_string().contains("4442587FB7D0A2F9"), "{error}");
        assert!(!format!("{error} {error:?}").contains("0wn3r"), "{error:?}");
    }
}

#[tokio::test]
async fn iam_refusals_have_their_reasons_too() {
    for (answer, reason, class) in [
        (iam_error(403, "AccessDenied"), "AccessDenied", Terminal),
        (iam_error(403, "InvalidClientTokenId"), "CredentialsRefused", Terminal),
        (iam_error(403, "ExpiredToken"), "CredentialsExpired", Terminal),
        (iam_error(400, "Throttling"), "Throttled", Retryable),
        (iam_error(400, "ThrottlingException"), "Throttled", Retryable),
        (iam_error(400, "TooManyRequestsException"), "Throttled", Retryable),
        (iam_error(409, "LimitExceeded"), "QuotaExceeded", Terminal),
        (iam_error(409, "ConcurrentModification"), "StoreBusy", Retryable),
        (iam_error(409, "EntityTemporarilyUnmodifiable"), "StoreBusy", Retryable),
        // The permissions boundary does not exist.
        (iam_error(404, "NoSuchEntity"), "Rejected", Terminal),
        (iam_error(500, "ServiceFailure"), "StoreFailing", Retryable),
        (iam_error(503, "ServiceUnavailable"), "Throttled", Retryable),
        (ok("<html>"), "StoreFailing", Retryable),
        (bare(404), "Rejected", Terminal),
    ] {
        let shown = format!("{answer:?}");
        let stage = Stage::answering([("CreateBucket", ok("")), ("CreateUser", answer)]);
        let error = stage.provisioner.provision(&record(), &stage.owner).await.unwrap_err();
        assert_eq!((error.reason(), error.class()), (reason, class), "{shown}: {error}");
        assert!(!error.store_untouched(), "the bucket was created");
    }
}

async fn refusal(answer: Answer) -> String {
    let stage = Stage::answering([("CreateBucket", answer)]);
    stage.provisioner.provision(&record(), &stage.owner).await.unwrap_err().to_string()
}

#[tokio::test]
async fn a_denial_names_operation_resource_identity_and_the_actions_to_allow() {
    insta::assert_snapshot!(refusal(s3_error(403, "AccessDenied")).await, @r#"AWS denied CreateBucket on bucket "photos-f30e0389-0689-48a2-bfaa-74d1bf1fd950" to the owner credentials in Secret ops/keys: allow s3:CreateBucket and s3:TagResource; AWS says: About AccessDenied"#);
}

#[tokio::test]
async fn a_denial_that_a_boundary_may_explain_says_what_to_do_about_it() {
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
        let error = stage.provisioner.provision(&record(), &stage.owner).await.unwrap_err();
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
        (vec![exists(), ("GetUser", user_made_at(&date(20), OURS)), ("PutUserPolicy", denied())], "NotVisibleYet"),
        (vec![exists(), ("GetUser", user_made_at(&date(40), OURS)), ("PutUserPolicy", denied())], "AccessDenied"),
    ] {
        let stage = Stage::answering([("CreateBucket", ok(""))].into_iter().chain(answers));
        let error = stage.provisioner.provision(&record(), &stage.owner).await.unwrap_err();
        assert_eq!(error.reason(), reason, "{error}");
    }
    for (ago, reason) in [(20, "NotVisibleYet"), (40, "AccessDenied")] {
        let stage = Stage::answering([("GetUser", user_made_at(&date(ago), OURS)), ("ListAccessKeys", denied())]);
        let error = stage.provisioner.revoke(&record(), &stage.owner, None).await.unwrap_err();
        assert_eq!(error.reason(), reason, "{error}");
    }
    // Only AWS has such hosts.
    let foreign = at_foreign_iam(elsewhere(record()));
    let stage = Stage::answering([("CreateBucket", ok("")), ("CreateUser", ok(CREATED)), ("PutUserPolicy", denied())]);
    let error = stage.provisioner.provision(&foreign, &stage.owner).await.unwrap_err();
    assert_eq!(error.reason(), "AccessDenied");
}

#[tokio::test]
async fn a_bucket_with_abac_that_refuses_its_tags_says_what_to_do() {
    // Only the refusal itself shows it.
    for refused in [s3_error(400, "InvalidRequest"), s3_error(405, "MethodNotAllowed"), s3_error(403, "AccessDenied")] {
        let stage = Stage::answering([
            ("CreateBucket", s3_error(409, "BucketAlreadyOwnedByYou")),
            ("GetBucketTagging", s3_error(404, "NoSuchTagSet")),
            ("PutBucketTagging", refused),
        ]);
        let error = stage.provisioner.provision(&record(), &stage.owner).await.unwrap_err();
        assert!(error.to_string().contains("turn ABAC off until"), "{error}");
    }
}

#[tokio::test]
async fn a_session_that_iam_does_not_take_is_named_as_such() {
    let mut stage =
        Stage::answering([("CreateBucket", ok("")), ("CreateUser", iam_error(403, "InvalidClientTokenId"))]);
    let plain = stage.provisioner.provision(&record(), &stage.owner).await.unwrap_err().to_string();
    assert!(plain.contains("put a valid, active key there"), "{plain}");
    stage = Stage::answering([("CreateBucket", ok("")), ("CreateUser", iam_error(403, "InvalidClientTokenId"))]);
    stage.owner.keys.as_mut().unwrap().token = Some("token".to_owned().into());
    let session = stage.provisioner.provision(&record(), &stage.owner).await.unwrap_err().to_string();
    assert!(session.contains("a session with MFA") && session.contains("Secret ops/keys"), "{session}");
}

#[tokio::test]
async fn refused_keys_name_the_secret_to_correct() {
    insta::assert_snapshot!(refusal(s3_error(403, "InvalidAccessKeyId")).await, @r#"AWS refused the owner credentials in Secret ops/keys (InvalidAccessKeyId) in CreateBucket: put a valid, active key there, and check the node's clock"#);
}

#[tokio::test]
async fn a_name_of_another_account_says_so() {
    insta::assert_snapshot!(refusal(s3_error(409, "BucketAlreadyExists")).await, @r#"bucket "photos-f30e0389-0689-48a2-bfaa-74d1bf1fd950" is taken by another AWS account: choose another name, or use spec.generateBucketName"#);
}

#[tokio::test]
async fn a_broken_connection_says_so() {
    insta::assert_snapshot!(refusal(Answer::Reset).await, @r#"no answer to CreateBucket on bucket "photos-f30e0389-0689-48a2-bfaa-74d1bf1fd950": connection reset; retrying"#);
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
