//! Objects that are locked, in the bucket of a deleted claim.

use super::delete::{full, not_deleted};
use crate::testing::*;
use bucket_provisioner::store::{Content, Failure as _, Record};

const LISTED: &str =
    "<ListVersionsResult><Version><Key>a</Key><VersionId>v1</VersionId></Version></ListVersionsResult>";
const LOCKED: &str =
    "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled></ObjectLockConfiguration>";
const BYPASS: &str = "x-amz-bypass-governance-retention";

fn bypassing() -> Record {
    let mut record = record();
    record.plan.settings.of_class.insert("bypassGovernance".into(), "yes".into());
    record
}

fn retention(mode: &str, until: &str) -> Answer {
    ok(format!("<Retention><Mode>{mode}</Mode><RetainUntilDate>{until}</RetainUntilDate></Retention>"))
}

fn hold(status: &str) -> Answer {
    ok(format!("<LegalHold><Status>{status}</Status></LegalHold>"))
}

/// S3 refuses the header where there is no lock.
#[tokio::test]
async fn only_a_lock_is_bypassed() {
    for (found, header) in
        [(ok(LOCKED), Some("true".to_owned())), (s3_error(404, "ObjectLockConfigurationNotFoundError"), None)]
    {
        let stage = full([
            ("GetObjectLockConfiguration", found),
            ("ListObjectVersions", ok(LISTED)),
            ("DeleteObjects", ok("<DeleteResult/>")),
            ("ListMultipartUploads", ok("<ListMultipartUploadsResult/>")),
            ("DeleteBucket", bare(204)),
        ]);
        stage.delete(&bypassing(), None, Content::Delete).await.unwrap();
        assert_eq!(stage.header("DeleteObjects", BYPASS), [header]);
    }
}

#[tokio::test]
async fn a_claim_reports_what_keeps_its_bucket() {
    let off = || hold("OFF");
    for (record, answers, part, is_waited_for) in [
        (record(), [off(), retention("GOVERNANCE", "2099-01-01T00:00:00Z")], "locked until 2099-01-01T00:00:00Z", true),
        (record(), [off(), retention("COMPLIANCE", "2099-01-01T00:00:00Z")], "nobody can end that before", true),
        (record(), [hold("ON"), retention("GOVERNANCE", "2099-01-01T00:00:00Z")], "has a legal hold", false),
        (record(), [off(), ok("<Retention><EventHold>ON</EventHold></Retention>")], "has an event hold", false),
        (bypassing(), [off(), retention("GOVERNANCE", "2099-01-01T00:00:00Z")], "allow s3:BypassGovernance", false),
        (bypassing(), [off(), retention("COMPLIANCE", "2099-01-01T00:00:00Z")], "nobody can end that before", true),
    ] {
        let [legal_hold, retention] = answers;
        let stage = full([
            ("GetObjectLockConfiguration", ok(LOCKED)),
            ("ListObjectVersions", ok(LISTED)),
            ("DeleteObjects", not_deleted("a", "AccessDenied")),
            ("GetObjectLegalHold", legal_hold),
            ("GetObjectRetention", retention),
        ]);
        let error = stage.delete(&record, None, Content::Delete).await.unwrap_err();
        let reason = if is_waited_for { "ObjectsLocked" } else { "ObjectsNotDeleted" };
        assert_eq!((error.reason(), error.retry_after().is_some()), (reason, is_waited_for), "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[tokio::test]
async fn a_lock_that_is_over_is_not_the_reason() {
    let stage = full([
        ("ListObjectVersions", ok(LISTED)),
        ("DeleteObjects", not_deleted("a", "AccessDenied")),
        ("GetObjectLegalHold", s3_error(404, "NoSuchObjectLockConfiguration")),
        ("GetObjectRetention", retention("GOVERNANCE", "2020-01-01T00:00:00Z")),
    ]);
    let error = stage.delete(&record(), None, Content::Delete).await.unwrap_err();
    assert_eq!(error.reason(), "ObjectsNotDeleted");
}
