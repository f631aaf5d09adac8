//! Probe: the keys of a claim are tried.

use crate::testing::*;
use bucket_provisioner::store::{AppCredentials, Failure, FailureClass, OwnerRef, Probe, SecretRef};

fn issued() -> AppCredentials {
    AppCredentials::new("AKIANEW", "hunter2".into())
}

pub(super) fn no_such_key() -> (&'static str, Answer) {
    ("GetObject", s3_error(404, "NoSuchKey"))
}

pub(super) fn listed() -> (&'static str, Answer) {
    ("ListObjectsV2", ok("<ListBucketResult/>"))
}

#[tokio::test]
async fn new_keys_that_are_not_known_yet_are_waited_for() {
    for code in ["InvalidAccessKeyId", "SignatureDoesNotMatch"] {
        let refused = || s3_error(403, code);
        // One host of the store may know the keys before another one.
        for answers in [
            [("ListObjectsV2", refused()), no_such_key()],
            [listed(), ("GetObject", refused())],
            [("ListObjectsV2", s3_error(403, "AccessDenied")), ("GetObject", refused())],
        ] {
            let stage = Stage::answering(answers);
            assert_eq!(stage.probe(&record(), &issued()).await.unwrap(), Probe::NotYet(code.into()));
        }
    }
}

#[tokio::test]
async fn new_keys_that_are_denied_are_known() {
    let denied = || s3_error(403, "AccessDenied");
    for answers in [[("ListObjectsV2", denied()), no_such_key()], [listed(), ("GetObject", denied())]] {
        let stage = Stage::answering(answers);
        let probe = stage.probe(&record(), &issued()).await.unwrap();
        assert_eq!(probe, Probe::Denied("AccessDenied".into()));
    }
}

#[tokio::test]
async fn keys_that_can_list_and_read_are_usable() {
    let empty = ("GetObject", ok(""));
    for read in [no_such_key(), empty] {
        let stage = Stage::answering([listed(), read]);
        assert_eq!(stage.probe(&record(), &issued()).await.unwrap(), Probe::Usable);
    }
}

#[tokio::test]
async fn a_bucket_that_existed_before_may_be_one_to_write_to_only() {
    let denied = || [listed(), ("GetObject", s3_error(403, "AccessDenied"))];
    let stage = Stage::answering(denied());
    assert_eq!(stage.probe(&granted(), &issued()).await.unwrap(), Probe::Usable);
    let stage = Stage::answering(denied());
    assert_ne!(stage.probe(&record(), &issued()).await.unwrap(), Probe::Usable);
    let stage = Stage::answering([listed(), ("GetObject", s3_error(403, "InvalidAccessKeyId"))]);
    assert_ne!(stage.probe(&granted(), &issued()).await.unwrap(), Probe::Usable);
}

#[tokio::test]
async fn shared_credentials_report_their_missing_permission() {
    let mut record = record();
    record.plan.user = None;
    record.plan.owner = OwnerRef::of_secret(SecretRef { namespace: "admin".into(), name: "owner".into() });
    let stage = Stage::answering([listed(), ("GetObject", s3_error(403, "AccessDenied"))]);
    let error = stage.probe(&record, &issued()).await.unwrap_err();
    assert_eq!(error.reason(), "AccessDenied");
    let message = error.to_string();
    let whose = "the provisioning credentials in Secret admin/owner";
    assert!(message.contains(whose) && message.contains("allow s3:GetObject"), "{message}");
}

#[tokio::test]
async fn a_refusal_of_shared_keys_is_final() {
    let mut record = record();
    record.plan.user = None;
    let stage = Stage::answering([("ListObjectsV2", s3_error(403, "InvalidAccessKeyId")), no_such_key()]);
    let error = stage.probe(&record, &issued()).await.unwrap_err();
    assert_eq!(error.reason(), "CredentialsRefused");
}

#[tokio::test]
async fn a_missing_bucket_and_throttling_fail_the_probe_for_now() {
    for (answer, reason) in
        [(s3_error(404, "NoSuchBucket"), "BucketNotFound"), (s3_error(503, "SlowDown"), "Throttled")]
    {
        let stage = Stage::answering([("ListObjectsV2", answer), no_such_key()]);
        let error = stage.probe(&record(), &issued()).await.unwrap_err();
        assert_eq!((error.reason(), error.class()), (reason, FailureClass::Retryable));
    }
}
