//! Settings of buckets, as AWS gets them.

use serde_json::{Value, json};

use crate::testing::{
    Answer, OURS, Stage, access_key, access_keys, bare, bucket_tags_of, elsewhere, iam_error, ok, record, s3_error,
    user_with_tags,
};
use bucket_provisioner::store::{
    AccessMode, AppCredentials, Changes, Failure as _, Mode, Probe, ProbeCall, Provisioner as _, Record, Settings,
};

const CREATED: &str = "<CreateUserResponse><CreateUserResult/></CreateUserResponse>";
const KEY: &str = "arn:aws:kms:us-west-1:123456789012:key/0123-abcd";

fn with(entries: &[(&str, &str)]) -> Record {
    let mut record = record();
    let entries = entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    record.plan.settings.of_class = entries.collect();
    record
}

fn credentials() -> AppCredentials {
    AppCredentials::new("AKIAAPP", "secret".to_owned().into())
}

/// The calls about settings.
fn of_settings(stage: &Stage) -> Vec<String> {
    let mut calls = stage.calls();
    calls.retain(|call| (call.starts_with("Put") || call.starts_with("Get")) && call != "PutUserPolicy");
    calls
}

/// Every call before the key, and after the bucket.
#[tokio::test]
async fn settings_are_applied_between_bucket_and_user() {
    let record = with(&[("bucketVersioning", "Enabled"), ("expireAfter", "30d"), ("tags", "team=shop")]);
    let stage = Stage::answering([
        ("CreateBucket", bare(200)),
        ("PutBucketVersioning", bare(200)),
        ("PutBucketLifecycleConfiguration", bare(200)),
        ("CreateUser", ok(CREATED)),
        ("PutUserPolicy", ok("")),
        ("CreateAccessKey", access_key()),
    ]);
    stage.provision(&record).await.unwrap();
    assert_eq!(
        stage.calls(),
        [
            "CreateBucket",
            "PutBucketVersioning",
            "PutBucketLifecycleConfiguration",
            "CreateUser",
            "PutUserPolicy",
            "CreateAccessKey"
        ]
    );
    assert!(stage.sent("CreateBucket").contains("<Key>team</Key><Value>shop</Value>"));
    assert!(
        stage.sent("CreateUser").contains("Key=team") || stage.sent("CreateUser").contains("team"),
        "{}",
        stage.sent("CreateUser")
    );
    assert!(stage.sent("PutBucketVersioning").contains("<Status>Enabled</Status>"));
    let lifecycle = stage.sent("PutBucketLifecycleConfiguration");
    assert!(lifecycle.contains("<Days>30</Days>") && lifecycle.contains("objectbucket.io/expire"), "{lifecycle}");
}

/// Organizations may demand the header. Earlier provisioning policies do not allow it.
#[tokio::test]
async fn a_new_bucket_names_the_ownership_of_objects() {
    let rest = || [("CreateUser", ok(CREATED)), ("PutUserPolicy", ok("")), ("CreateAccessKey", access_key())];
    let stage = Stage::answering([("CreateBucket", bare(200))].into_iter().chain(rest()));
    stage.provision(&record()).await.unwrap();
    assert_eq!(stage.ownerships(), [Some("BucketOwnerEnforced".to_owned())]);

    let denied = [("CreateBucket", s3_error(403, "AccessDenied")), ("CreateBucket", bare(200))];
    let stage = Stage::answering(denied.into_iter().chain(rest()));
    stage.provision(&record()).await.unwrap();
    assert_eq!(stage.ownerships(), [Some("BucketOwnerEnforced".to_owned()), None]);

    let denied = [("CreateBucket", s3_error(403, "AccessDenied")), ("CreateBucket", bare(200))];
    let stage = Stage::answering(denied.into_iter().chain(rest()));
    let refused = stage.provision(&with(&[("objectOwnership", "ObjectWriter")])).await.unwrap_err();
    assert_eq!((refused.reason(), stage.ownerships()), ("AccessDenied", vec![Some("ObjectWriter".to_owned())]));
}

/// Otherwise encryption with keys of customers could be allowed again.
#[tokio::test]
async fn blocked_kinds_of_encryption_stay_blocked() {
    let stage = Stage::answering([
        ("CreateBucket", bare(200)),
        (
            "GetBucketEncryption",
            ok("<ServerSideEncryptionConfiguration><Rule><ApplyServerSideEncryptionByDefault>\
                <SSEAlgorithm>AES256</SSEAlgorithm></ApplyServerSideEncryptionByDefault>\
                <BlockedEncryptionTypes><EncryptionType>SSE-C</EncryptionType></BlockedEncryptionTypes></Rule>\
                </ServerSideEncryptionConfiguration>"),
        ),
        ("PutBucketEncryption", bare(200)),
    ]);
    let record = with(&[("encryption", "aws:kms"), ("kmsKey", KEY)]);
    let _ = stage.provision(&record).await;
    let sent = stage.sent("PutBucketEncryption");
    for part in ["<EncryptionType>SSE-C</EncryptionType>", "aws:kms", KEY, "<BucketKeyEnabled>true</BucketKeyEnabled>"]
    {
        assert!(sent.contains(part), "{sent}");
    }
}

#[tokio::test]
async fn the_statement_about_tls_stands_beside_others() {
    let theirs = r#"{"Version":"2012-10-17","Statement":[{"Sid":"Theirs","Effect":"Deny","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::x/*"}]}"#;
    let stage = Stage::answering([
        ("CreateBucket", bare(200)),
        ("GetBucketPolicy", ok(theirs)),
        ("PutBucketPolicy", bare(204)),
    ]);
    let _ = stage.provision(&with(&[("requireTLS", "true")])).await;
    let sent = stage.sent("PutBucketPolicy");
    assert!(sent.contains("Theirs") && sent.contains("aws:SecureTransport"), "{sent}");

    // What cannot be read is not overwritten.
    let stage = Stage::answering([("CreateBucket", bare(200)), ("GetBucketPolicy", ok("no json"))]);
    assert!(stage.provision(&with(&[("requireTLS", "true")])).await.is_err());
    assert!(!stage.calls().contains(&"PutBucketPolicy".to_owned()));
}

/// The claim reports it, and its bucket is deleted with it.
#[tokio::test]
async fn a_value_that_s3_refuses_is_that_of_class_or_claim() {
    let answers = || [("CreateBucket", bare(200)), ("PutBucketLifecycleConfiguration", s3_error(400, "MalformedXML"))];
    let stage = Stage::answering(answers());
    let refused = stage.provision(&with(&[("expireAfter", "30d")])).await.unwrap_err();
    assert_eq!((refused.reason(), refused.changed_nothing), ("InvalidClassParameter", false));
    assert!(refused.to_string().contains("parameter expireAfter"), "{refused}");

    let stage = Stage::answering(answers());
    let mut record = record();
    record.plan.settings.of_claim.insert("expireAfter".into(), "30d".into());
    let refused = stage.provision(&record).await.unwrap_err();
    assert_eq!(refused.reason(), "InvalidSetting");
    assert!(refused.to_string().contains("spec.additionalConfig.expireAfter"), "{refused}");
}

/// They take the call for CreateBucket, or accept what they do not know.
#[tokio::test]
async fn other_stores_without_a_setting_do_not_support_it() {
    let record = elsewhere(with(&[("publicAccess", "blocked")]));
    let none = || ("GetPublicAccessBlock", s3_error(404, "NoSuchPublicAccessBlockConfiguration"));
    for answers in [
        vec![none(), ("PutPublicAccessBlock", s3_error(400, "IllegalLocationConstraintException"))],
        vec![none(), ("PutPublicAccessBlock", s3_error(409, "BucketAlreadyExists"))],
        vec![none(), ("PutPublicAccessBlock", bare(200)), none()],
    ] {
        let stage = Stage::answering([("CreateBucket", bare(200))].into_iter().chain(answers));
        let refused = stage.provision(&record).await.unwrap_err();
        assert_eq!(refused.reason(), "NotSupported", "{refused}");
    }
}

fn checked(record: &Record) -> Vec<(&'static str, Answer)> {
    vec![
        ("GetBucketTagging", bucket_tags_of(record)),
        ("GetUser", user_with_tags(OURS)),
        ("ListAccessKeys", access_keys(&["AKIAAPP"])),
        ("GetUserPolicy", iam_error(404, "NoSuchEntity")),
        ("PutUserPolicy", ok("")),
        ("TagUser", ok("")),
    ]
}

#[tokio::test]
async fn only_what_is_set_is_read_and_only_what_differs_written() {
    let record = with(&[("bucketVersioning", "Enabled")]);
    let status =
        |status: &str| ok(format!("<VersioningConfiguration><Status>{status}</Status></VersioningConfiguration>"));
    for (found, repairs) in [("Enabled", false), ("Suspended", true)] {
        let answers = [("GetBucketVersioning", status(found)), ("PutBucketVersioning", bare(200))];
        let stage = Stage::answering(checked(&record).into_iter().chain(answers));
        let checkup = stage.check(&record, &["AKIAAPP"]).await.unwrap();
        assert_eq!(stage.calls().contains(&"PutBucketVersioning".to_owned()), repairs);
        assert_eq!(checkup.repaired.iter().any(|note| note.contains("the versioning")), repairs, "{checkup:?}");
    }
    let stage = Stage::answering(checked(&record_without()));
    stage.check(&record_without(), &["AKIAAPP"]).await.unwrap();
    assert_eq!(of_settings(&stage), ["GetBucketTagging", "GetUser", "GetUserPolicy"]);
}

fn record_without() -> Record {
    record()
}

/// Whatever became of our statement.
#[tokio::test]
async fn statements_of_others_survive_each_repair_of_ours() {
    let record = with(&[("requireTLS", "true")]);
    // The policy that a check writes, if it writes one.
    let check = async |found: Answer| {
        let answers = [("GetBucketPolicy", found), ("PutBucketPolicy", bare(204))];
        let stage = Stage::answering(checked(&record).into_iter().chain(answers));
        let checkup = stage.check(&record, &["AKIAAPP"]).await.unwrap();
        assert!(checkup.problem.is_none(), "{checkup:?}");
        let written = stage.all_sent("PutBucketPolicy").pop();
        assert_eq!(checkup.repaired.iter().any(|note| note.contains("about TLS")), written.is_some(), "{checkup:?}");
        written.map(|policy| serde_json::from_str::<Value>(&policy).unwrap())
    };
    let policy = |statements: Value| json!({ "Version": "2008-10-17", "Id": "audit", "Statement": statements });
    let theirs = json!({
        "Sid": "Theirs", "Effect": "Allow", "Principal": { "AWS": "arn:aws:iam::210987654321:root" },
        "Action": ["s3:GetObject", "s3:GetObjectVersion"], "Resource": "arn:aws:s3:::photos/*",
    });
    let unnamed = json!({ "Effect": "Deny", "Principal": "*", "Action": "s3:PutBucketAcl", "Resource": "*" });

    // A single statement stands without a list.
    let written = check(ok(policy(theirs.clone()).to_string())).await.unwrap();
    let ours = written["Statement"][1].clone();
    assert_eq!((&ours["Sid"], &ours["Effect"]), (&json!("AwsS3ProvisionerRequireTLS"), &json!("Deny")));
    assert_eq!(written, policy(json!([theirs, ours])));
    let mut weakened = ours.clone();
    weakened["Effect"] = json!("Allow");
    for changed in [json!([unnamed, theirs]), json!([weakened, unnamed, theirs]), json!([unnamed, ours, theirs, ours])]
    {
        let written = check(ok(policy(changed.clone()).to_string())).await;
        assert_eq!(written, Some(policy(json!([unnamed, theirs, ours]))), "{changed}");
    }
    for right in [json!([theirs, ours]), json!([ours, unnamed, theirs])] {
        assert_eq!(check(ok(policy(right.clone()).to_string())).await, None, "{right}");
    }
    let written = check(s3_error(404, "NoSuchBucketPolicy")).await.unwrap();
    assert_eq!(written["Statement"], json!([ours]));
}

/// Reading first could show what it was before an earlier edit.
#[tokio::test]
async fn an_edit_is_written_without_being_read() {
    let mut record = record();
    record.plan.settings.of_claim.insert("bucketVersioning".into(), "Suspended".into());
    record.plan.settings.released.insert("expireAfter".into());
    record.plan.changes = Changes::SETTINGS;
    let answers = [("PutBucketVersioning", bare(200)), ("DeleteBucketLifecycleConfiguration", bare(204))];
    let stage = Stage::answering(checked(&record).into_iter().chain(answers));
    let checkup = stage.check(&record, &["AKIAAPP"]).await.unwrap();
    assert!(!stage.calls().contains(&"GetBucketVersioning".to_owned()), "{:?}", stage.calls());
    assert!(stage.calls().contains(&"DeleteBucketLifecycleConfiguration".to_owned()), "{:?}", stage.calls());
    assert!(!checkup.repaired.iter().any(|note| note.contains("versioning")), "{checkup:?}");
}

/// A key that can only encrypt, or only decrypt, is of no use.
#[tokio::test]
async fn a_key_of_kms_is_tried_by_an_upload_that_is_aborted() {
    let record = with(&[("encryption", "aws:kms"), ("kmsKey", KEY)]);
    let begun = "<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>";
    let answers = |part| {
        [
            ("ListObjectsV2", ok("<ListBucketResult></ListBucketResult>")),
            ("GetObject", s3_error(404, "NoSuchKey")),
            ("CreateMultipartUpload", ok(begun)),
            ("UploadPart", part),
            ("AbortMultipartUpload", bare(204)),
        ]
    };
    let stage = Stage::answering(answers(bare(200)));
    assert_eq!(stage.probe(&record, &credentials()).await.unwrap(), Probe::Usable);
    assert!(stage.calls().contains(&"AbortMultipartUpload".to_owned()));
    let stage = Stage::answering(answers(s3_error(400, "KMS.DisabledException")));
    let refused = stage.probe(&record, &credentials()).await.unwrap_err();
    assert_eq!(refused.reason(), "KeyUnusable");
    assert!(stage.calls().contains(&"AbortMultipartUpload".to_owned()), "nothing stays");
}

/// At first KMS may not know the user.
#[tokio::test]
async fn a_denial_of_kms_is_final_once_the_keys_are_settled() {
    let record = with(&[("encryption", "aws:kms"), ("kmsKey", KEY)]);
    for (message, is_settled, reason) in [
        ("not authorized to perform: kms:GenerateDataKey", false, None),
        ("not authorized to perform: kms:GenerateDataKey", true, Some("KeyUnusable")),
        ("Access Denied", true, None),
    ] {
        let body = format!("<Error><Code>AccessDenied</Code><Message>{message}</Message></Error>");
        let stage = Stage::answering([
            ("ListObjectsV2", ok("<ListBucketResult></ListBucketResult>")),
            ("GetObject", s3_error(404, "NoSuchKey")),
            ("CreateMultipartUpload", Answer::Status { status: 403, header: None, body }),
        ]);
        let credentials = credentials();
        let call = ProbeCall::new(&record, &(), &credentials).with_settled(is_settled);
        match stage.provisioner.probe(&call).await {
            Ok(Probe::Denied(answer)) => assert_eq!((answer.as_str(), reason), ("AccessDenied", None)),
            answer => assert_eq!(answer.err().map(|error| error.reason()), reason, "{message}"),
        }
    }
}

/// KMS's denials have the code of those of a bucket's policy.
#[tokio::test]
async fn keys_that_kms_denies_do_not_work_for_an_existing_bucket() {
    let answers = || {
        [
            ("ListObjectsV2", ok("<ListBucketResult></ListBucketResult>")),
            ("GetObject", s3_error(404, "NoSuchKey")),
            ("CreateMultipartUpload", s3_error(403, "AccessDenied")),
            ("GetBucketLocation", ok("<LocationConstraint/>")),
        ]
    };
    let mut record = with(&[("kmsKey", KEY)]);
    record.plan.mode = Mode::Granted;
    let probe = Stage::answering(answers()).probe(&record, &credentials()).await.unwrap();
    assert_eq!(probe, Probe::Denied("AccessDenied".into()));
    record.plan.settings = Settings::default();
    record.plan.access.mode = AccessMode::WriteOnly;
    let probe = Stage::answering(answers()).probe(&record, &credentials()).await.unwrap();
    assert_eq!(probe, Probe::Usable, "its policy may demand more of an upload");
}

/// CreateBucket lets objects be locked; only a default retention takes a call.
#[tokio::test]
async fn a_bucket_has_its_lock_from_the_beginning() {
    for (value, calls) in [("Enabled", &[][..]), ("GOVERNANCE:30d", &["PutObjectLockConfiguration"])] {
        let stage = Stage::answering([
            ("CreateBucket", bare(200)),
            ("PutObjectLockConfiguration", bare(200)),
            ("CreateUser", ok(CREATED)),
            ("PutUserPolicy", ok("")),
            ("CreateAccessKey", access_key()),
        ]);
        stage.provision(&with(&[("objectLock", value)])).await.unwrap();
        assert_eq!(stage.header("CreateBucket", "x-amz-bucket-object-lock-enabled"), [Some("true".to_owned())]);
        assert_eq!(of_settings(&stage), calls, "{value}");
    }
}

/// An attempt that was killed after CreateBucket continues with it.
#[tokio::test]
async fn an_account_regional_bucket_is_created_in_its_namespace() {
    let mut record = record();
    record.plan.name_suffix = "-123456789012-us-west-1-an".into();
    record.plan.bucket = format!("photos-x{}", record.plan.name_suffix);
    record.account = Some("123456789012".into());
    let stage = Stage::answering([("CreateBucket", s3_error(400, "InvalidNamespaceHeader"))]);
    let refused = stage.provision(&record).await.unwrap_err();
    assert_eq!((refused.reason(), refused.changed_nothing), ("InvalidClassParameter", true));
    assert!(refused.to_string().contains("accountId and region"), "{refused}");
    assert_eq!(stage.header("CreateBucket", "x-amz-bucket-namespace"), [Some("account-regional".to_owned())]);
    record.account = Some("210987654321".into());
    let stage = Stage::answering([]);
    let refused = stage.provision(&record).await.unwrap_err();
    assert_eq!((refused.reason(), stage.calls()), ("InvalidClassParameter", Vec::new()));
    assert!(refused.changed_nothing);
}

/// Another name may have another fault.
#[tokio::test]
async fn another_store_may_refuse_account_regional_names() {
    for (suffix, reason) in [("-123456789012-us-west-1-an", "NotSupported"), ("", "Rejected")] {
        let mut record = elsewhere(record());
        record.plan.name_suffix = suffix.into();
        let stage = Stage::answering([
            ("GetBucketTagging", s3_error(404, "NoSuchBucket")),
            ("CreateBucket", s3_error(400, "InvalidBucketName")),
        ]);
        let refused = stage.provision(&record).await.unwrap_err();
        assert_eq!((refused.reason(), refused.changed_nothing), (reason, true), "{refused}");
        assert_eq!(refused.to_string().contains("without bucketNamespace"), !suffix.is_empty(), "{refused}");
    }
}
