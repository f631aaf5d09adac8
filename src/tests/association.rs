//! The Pod Identity association of a ServiceAccount: which calls are made for it, and what is left alone.

use serde_json::{Value, json};

use crate::PROVISIONER_NAME;
use crate::testing::{
    ACCOUNT, Answer, CLUSTER, Stage, UID, bare, bucket_tags_of, by_pod_identity, eks_error, iam_error, ok, s3_error,
};
use bucket_provisioner::store::{
    AccessRemoval, AppCredentials, BucketRemoval, Content, Failure as _, FailureClass, Probe, Record,
};

const LIST: &str = "ListPodIdentityAssociations";
const DESCRIBE: &str = "DescribePodIdentityAssociation";
const CREATE: &str = "CreatePodIdentityAssociation";
const UPDATE: &str = "UpdatePodIdentityAssociation";
const DELETE: &str = "DeletePodIdentityAssociation";
const ASSUME: &str = "AssumeRole";

/// Another claim of the ServiceAccount.
const OTHER: &str = "0a1b2c3d-0000-4000-8000-000000000001";

fn listed(ids: &[&str]) -> Answer {
    let associations: Vec<_> = ids.iter().map(|id| json!({ "associationId": id })).collect();
    ok(json!({ "associations": associations }).to_string())
}

fn ours() -> Value {
    json!({
        "objectbucket.io/managed-by": PROVISIONER_NAME, "objectbucket.io/cluster-uid": CLUSTER,
        "objectbucket.io/claim-namespace": "shop", "objectbucket.io/service-account": "web",
    })
}

/// The same tags, but one.
fn with_tag(key: &str, value: &str) -> Value {
    let mut tags = ours();
    tags[format!("objectbucket.io/{key}")] = json!(value);
    tags
}

/// As EKS describes it, with these statements.
fn association(tags: &Value, statements: &[Value]) -> Value {
    json!({ "association": {
        "associationId": "a-1", "clusterName": "shop", "namespace": "shop", "serviceAccount": "web",
        "roleArn": format!("arn:aws:iam::{ACCOUNT}:role/buckets-of-pods"), "disableSessionTags": true, "tags": tags,
        "modifiedAt": 1_790_000_000,
        "policy": json!({ "Version": "2012-10-17", "Statement": statements }).to_string(),
    }})
}

fn of_other() -> Value {
    let sid: String = OTHER.chars().filter(|c| *c != '-').collect();
    json!({ "Sid": sid, "Effect": "Allow", "Action": "s3:*", "Resource": "arn:aws:s3:::other" })
}

/// What a claim has there.
fn of_claim(record: &Record) -> Vec<Value> {
    let environment = crate::class::environment::Environment::default();
    let target = crate::class::target::Target::of(record, &environment);
    let text = crate::iam::session_policy::SessionPolicy::of(&target, UID).text();
    let document: Value = serde_json::from_str(&text).unwrap();
    document["Statement"].as_array().unwrap().clone()
}

/// EKS has the association, and then gives these answers.
fn existing(found: &Value, then: impl IntoIterator<Item = (&'static str, Answer)>) -> Stage {
    let answers = [("CreateBucket", bare(200)), (LIST, listed(&["a-1"])), (DESCRIBE, ok(found.to_string()))];
    Stage::answering(answers.into_iter().chain(then))
}

/// The policy of the first call of an operation.
fn policy(stage: &Stage, operation: &str) -> Vec<Value> {
    let sent: Value = serde_json::from_str(&stage.sent(operation)).unwrap();
    let policy: Value = serde_json::from_str(sent["policy"].as_str().unwrap()).unwrap();
    policy["Statement"].as_array().unwrap().clone()
}

#[tokio::test]
async fn the_first_claim_creates_the_association() {
    let created = ok(association(&ours(), &[]).to_string());
    let stage = Stage::answering([("CreateBucket", bare(200)), (LIST, listed(&[])), (CREATE, created)]);
    let record = by_pod_identity();
    assert!(!stage.provision(&record).await.unwrap().has_keys());
    assert_eq!(stage.calls(), ["CreateBucket", LIST, CREATE]);
    let sent: Value = serde_json::from_str(&stage.sent(CREATE)).unwrap();
    assert_eq!((&sent["namespace"], &sent["serviceAccount"]), (&json!("shop"), &json!("web")));
    assert_eq!(
        (&sent["disableSessionTags"], &sent["tags"]["objectbucket.io/cluster-uid"]),
        (&json!(true), &json!(CLUSTER))
    );
    assert!(sent["roleArn"].as_str().unwrap().ends_with(":role/buckets-of-pods"));
    assert_eq!(policy(&stage, CREATE), of_claim(&record));
    assert_eq!(stage.addressed(CREATE), ("eks.eu-west-1.amazonaws.com".to_owned(), "eu-west-1".to_owned()));
}

#[tokio::test]
async fn later_claims_are_added() {
    let stage = existing(&association(&ours(), &[of_other()]), [(ASSUME, session()), (UPDATE, ok("{}"))]);
    let record = by_pod_identity();
    stage.provision(&record).await.unwrap();
    assert_eq!(stage.calls(), ["CreateBucket", LIST, DESCRIBE, ASSUME, UPDATE]);
    assert_eq!(policy(&stage, UPDATE), [vec![of_other()], of_claim(&record)].concat());
    let stage = existing(&association(&ours(), &of_claim(&record)), []);
    stage.provision(&record).await.unwrap();
    assert_eq!(stage.calls(), ["CreateBucket", LIST, DESCRIBE], "it has the statements already");
}

/// EKS showed the second claim what was before the first one's change: writing it would take away the first one's access.
#[tokio::test]
async fn an_association_that_is_shown_late_is_not_written() {
    let mut later = association(&ours(), &[of_other()]);
    later["association"]["modifiedAt"] = json!(1_790_000_100);
    let stage = existing(
        &association(&ours(), &[]),
        [
            (UPDATE, ok(later.to_string())),
            ("CreateBucket", bare(200)),
            (LIST, listed(&["a-1"])),
            (DESCRIBE, ok(association(&ours(), &[]).to_string())),
        ],
    );
    stage.provision(&by_pod_identity()).await.unwrap();
    let refused = stage.provision(&by_pod_identity()).await.unwrap_err();
    assert_eq!((refused.reason(), refused.class()), ("NotVisibleYet", FailureClass::Retryable));
    assert_eq!(stage.all_sent(UPDATE).len(), 1);
}

#[tokio::test]
async fn an_association_of_others_is_left_alone() {
    for tags in [json!({}), with_tag("service-account", "api"), with_tag("managed-by", "example.com/bucket")] {
        let stage = existing(&association(&tags, &[]), []);
        let refused = stage.provision(&by_pod_identity()).await.unwrap_err();
        assert_eq!((refused.reason(), refused.class()), ("AssociationTaken", FailureClass::Terminal));
        assert_eq!(stage.calls().last().map(String::as_str), Some(DESCRIBE));
        let stage = existing(&association(&tags, &[of_other()]), []);
        let (access, _) = stage.revoke(&by_pod_identity(), None).await.unwrap();
        assert!(matches!(access, AccessRemoval::LeftInPlace(_)), "{access:?}");
        assert_eq!(stage.calls(), [LIST, DESCRIBE]);
    }
}

#[tokio::test]
async fn a_full_association_says_what_to_do() {
    let long = json!({ "Sid": of_other()["Sid"], "Effect": "Allow", "Action": "s3:*", "Resource": "b".repeat(1900) });
    let stage = existing(&association(&ours(), &[long]), []);
    let refused = stage.provision(&by_pod_identity()).await.unwrap_err();
    assert_eq!((refused.reason(), refused.class()), ("AssociationFull", FailureClass::Terminal));
    assert!(refused.to_string().contains("another ServiceAccount"), "{refused}");
    // STS would give no session to any pod of the ServiceAccount.
    let packed = [(ASSUME, iam_error(400, "PackedPolicyTooLarge"))];
    let stage = existing(&association(&ours(), &[of_other()]), packed);
    assert_eq!(stage.provision(&by_pod_identity()).await.unwrap_err().reason(), "AssociationFull");
    assert_eq!(stage.calls().last().map(String::as_str), Some(ASSUME), "nothing is written");
    let answers =
        [("CreateBucket", bare(200)), (LIST, listed(&[])), (CREATE, eks_error(400, "ResourceLimitExceededException"))];
    let refused = Stage::answering(answers).provision(&by_pod_identity()).await.unwrap_err();
    assert_eq!(refused.reason(), "QuotaExceeded");
    assert!(refused.to_string().contains("5,000 Pod Identity associations"), "{refused}");
}

#[tokio::test]
async fn a_removal_leaves_what_other_claims_have() {
    let record = by_pod_identity();
    let both = [of_claim(&record), vec![of_other()]].concat();
    let stage = existing(&association(&ours(), &both), [(UPDATE, ok("{}"))]);
    assert_eq!(stage.revoke(&record, None).await.unwrap().0, AccessRemoval::Deleted);
    assert_eq!(policy(&stage, UPDATE), [of_other()]);

    let stage = existing(&association(&ours(), &of_claim(&record)), [(DELETE, ok("{}"))]);
    assert_eq!(stage.revoke(&record, None).await.unwrap().0, AccessRemoval::Deleted);
    assert_eq!(stage.calls(), [LIST, DESCRIBE, DELETE]);

    let by_hand = json!({ "Effect": "Allow", "Action": "s3:ListAllMyBuckets", "Resource": "*" });
    let more = [of_claim(&record), vec![by_hand.clone()]].concat();
    let stage = existing(&association(&ours(), &more), [(UPDATE, ok("{}"))]);
    let (access, _) = stage.revoke(&record, None).await.unwrap();
    assert!(matches!(&access, AccessRemoval::LeftInPlace(why) if why.contains("statements")), "{access:?}");
    assert_eq!(policy(&stage, UPDATE), [by_hand]);

    let stage = Stage::answering([(LIST, listed(&[]))]);
    assert_eq!(stage.revoke(&record, None).await.unwrap().0, AccessRemoval::NotFound);
}

/// The bucket is deleted only after pods can no longer get a session for it.
#[tokio::test]
async fn a_bucket_is_deleted_after_its_statements() {
    let record = by_pod_identity();
    let found = association(&ours(), &of_claim(&record)).to_string();
    let stage = Stage::answering([
        ("GetBucketTagging", bucket_tags_of(&record)),
        (LIST, listed(&["a-1"])),
        (DESCRIBE, ok(found)),
        (DELETE, eks_error(403, "AccessDeniedException")),
        ("DeleteBucket", bare(204)),
    ]);
    let refused = stage.delete(&record, None, Content::Delete).await.unwrap_err();
    assert_eq!(refused.reason(), "AccessDenied");
    assert!(!refused.affects_all_claims(), "claims with keys need no EKS");
    assert!(!stage.calls().contains(&"DeleteBucket".to_owned()), "{:?}", stage.calls());
    let stage = Stage::answering([
        ("GetBucketTagging", bucket_tags_of(&record)),
        (LIST, listed(&[])),
        ("DeleteBucket", bare(204)),
    ]);
    let removed = stage.delete(&record, None, Content::Delete).await.unwrap();
    assert_eq!(removed, (AccessRemoval::NotFound, BucketRemoval::Deleted));
}

#[tokio::test]
async fn what_was_changed_by_hand_is_restored() {
    let record = by_pod_identity();
    let tagged = || ("GetBucketTagging", bucket_tags_of(&record));
    let whole = association(&ours(), &of_claim(&record));
    let check = async |found: Value, then: Vec<(&'static str, Answer)>| {
        let answers = [tagged(), (LIST, listed(&["a-1"])), (DESCRIBE, ok(found.to_string()))];
        let stage = Stage::answering(answers.into_iter().chain(then));
        (stage.check(&record, &[]).await.unwrap(), stage)
    };
    let (checkup, stage) = check(whole.clone(), Vec::new()).await;
    assert!(checkup.repaired.is_empty() && !checkup.keys_lost, "{checkup:?}");
    assert_eq!(stage.calls(), ["GetBucketTagging", LIST, DESCRIBE]);

    let mut wider = of_claim(&record);
    wider[0]["Action"] = json!("s3:*");
    let mut with_session_tags = whole.clone();
    with_session_tags["association"]["disableSessionTags"] = json!(false);
    let mut other_role = whole.clone();
    other_role["association"]["roleArn"] = json!(format!("arn:aws:iam::{ACCOUNT}:role/admin"));
    let untagged = association(&json!({}), &wider);
    for changed in [association(&ours(), &wider), with_session_tags, other_role, untagged] {
        let (checkup, stage) = check(changed, vec![(UPDATE, ok("{}"))]).await;
        assert_eq!(checkup.repaired.len(), 1, "{checkup:?}");
        assert_eq!(policy(&stage, UPDATE), of_claim(&record));
    }
    let (checkup, _) = check(association(&ours(), &[of_other()]), Vec::new()).await;
    assert!(checkup.keys_lost, "it is granted again");
}

fn session() -> Answer {
    ok("<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>ASIA1</AccessKeyId>\
        <SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration>\
        </Credentials></AssumeRoleResult></AssumeRoleResponse>")
}

/// What EKS shows of an association, and then these answers.
fn shown(found: &Value, then: impl IntoIterator<Item = (&'static str, Answer)>) -> Stage {
    Stage::answering([(LIST, listed(&["a-1"])), (DESCRIBE, ok(found.to_string()))].into_iter().chain(then))
}

#[tokio::test]
async fn access_is_tried_with_a_session_as_pods_get_it() {
    let record = by_pod_identity();
    let both = [of_claim(&record), vec![of_other()]].concat();
    let empty = ok("<ListBucketResult></ListBucketResult>");
    let answers = [(ASSUME, session()), ("ListObjectsV2", empty), ("GetObject", s3_error(404, "NoSuchKey"))];
    let stage = shown(&association(&ours(), &both), answers);
    assert_eq!(stage.probe_as_owner(&record).await.unwrap(), Probe::Usable);
    let sent = stage.sent(ASSUME);
    assert!(sent.contains("role%2Fbuckets-of-pods") && sent.contains("&Policy=") && !sent.contains("Tags"), "{sent}");
    assert!(sent.contains("other"), "the policy is that of the association: {sent}");
    assert!(stage.signers().iter().any(|(operation, key)| operation == "GetObject" && key == "ASIA1"));

    for (status, code, reason) in [
        (403, "AccessDenied", "PodRoleRefused"),
        (403, "RegionDisabledException", "PodRoleRefused"),
        (400, "PackedPolicyTooLarge", "AssociationFull"),
        (403, "InvalidClientTokenId", "CredentialsRefused"),
    ] {
        let answers = [(ASSUME, iam_error(status, code))];
        let refused = shown(&association(&ours(), &both), answers).probe_as_owner(&record).await.unwrap_err();
        assert_eq!((refused.reason(), refused.class()), (reason, FailureClass::Terminal), "{code}");
        assert!(reason != "PodRoleRefused" || refused.to_string().contains("trust policy"), "{refused}");
    }
    let none = AppCredentials::without_keys();
    assert!(matches!(Stage::answering([]).probe(&record, &none).await.unwrap(), Probe::NotYet(_)));
}

/// A session that the operator gets proves nothing, if pods get another one, or none.
#[tokio::test]
async fn nothing_is_proven_by_what_pods_do_not_get() {
    let record = by_pod_identity();
    let mut earlier = of_claim(&record);
    earlier[0]["Action"] = json!("s3:GetObject");
    let mut with_session_tags = association(&ours(), &of_claim(&record));
    with_session_tags["association"]["disableSessionTags"] = json!(false);
    let mut other_role = association(&ours(), &of_claim(&record));
    other_role["association"]["roleArn"] = json!(format!("arn:aws:iam::{ACCOUNT}:role/admin"));
    for found in [association(&ours(), &[of_other()]), association(&ours(), &earlier), with_session_tags, other_role] {
        let stage = shown(&found, []);
        assert!(matches!(stage.probe_as_owner(&record).await.unwrap(), Probe::NotYet(_)), "{found}");
    }
    let stage = Stage::answering([(LIST, listed(&[]))]);
    assert!(matches!(stage.probe_as_owner(&record).await.unwrap(), Probe::NotYet(_)));
}

/// In each of these states a change would take access away from others, or give it to pods that do not have the claim.
#[tokio::test]
async fn an_association_that_cannot_be_used_is_named_and_not_written() {
    let record = by_pod_identity();
    let both = [of_claim(&record), vec![of_other()]].concat();
    let elsewhere = association(&with_tag("cluster-uid", "elsewhere"), &both);
    let mut other_role = association(&ours(), &both);
    other_role["association"]["roleArn"] = json!(format!("arn:aws:iam::{ACCOUNT}:role/of-another-class"));
    let mut target_role = association(&ours(), &both);
    target_role["association"]["targetRoleArn"] = json!("arn:aws:iam::210987654321:role/x");
    let mut unreadable = association(&ours(), &both);
    unreadable["association"]["policy"] = json!("{}");
    let cases = [
        (elsewhere, "eksCluster"),
        (other_role, "podRole"),
        (target_role, "targetRoleArn"),
        (unreadable, "cannot be read"),
    ];
    for (found, part) in &cases {
        let named = |refused: &crate::Error| {
            assert_eq!((refused.reason(), refused.class()), ("AssociationTaken", FailureClass::Terminal), "{refused}");
            assert!(refused.to_string().contains(part), "{refused}");
        };
        let stage = existing(found, []);
        named(&stage.provision(&record).await.unwrap_err());
        named(&shown(found, []).probe_as_owner(&record).await.unwrap_err());
        let tagged = ("GetBucketTagging", bucket_tags_of(&record));
        let stage = Stage::answering([tagged, (LIST, listed(&["a-1"])), (DESCRIBE, ok(found.to_string()))]);
        named(&stage.check(&record, &[]).await.unwrap_err());
    }
    // What the claim has there can be removed, and the role stays that of the others.
    for (found, _) in &cases[..3] {
        let stage = shown(found, [(UPDATE, ok("{}"))]);
        assert_eq!(stage.revoke(&record, None).await.unwrap().0, AccessRemoval::Deleted);
        assert_eq!(policy(&stage, UPDATE), [of_other()]);
        assert!(!stage.sent(UPDATE).contains("roleArn"));
    }
    let (access, _) = shown(&cases[3].0, []).revoke(&record, None).await.unwrap();
    assert!(matches!(access, AccessRemoval::LeftInPlace(_)), "{access:?}");
}

/// Its claims can be deleted, and nothing new is granted.
#[tokio::test]
async fn a_cluster_that_was_deleted_has_no_associations() {
    let record = by_pod_identity().with_account(ACCOUNT);
    let gone = || (LIST, eks_error(404, "ResourceNotFoundException"));
    let stage = Stage::answering([gone()]);
    assert_eq!(stage.revoke(&record, None).await.unwrap().0, AccessRemoval::NotFound);
    let create = (CREATE, eks_error(404, "ResourceNotFoundException"));
    let stage = Stage::answering([("CreateBucket", bare(200)), gone(), create]);
    let refused = stage.provision(&record).await.unwrap_err();
    assert!(refused.to_string().contains("correct eksCluster"), "{refused}");
    // Nobody knows whose account this is.
    let mut unknown = by_pod_identity();
    unknown.account = None;
    let refused = Stage::answering([gone()]).revoke(&unknown, None).await.unwrap_err();
    assert!(refused.to_string().contains("correct eksCluster"), "{refused}");
    // None was made in the account of these credentials.
    let elsewhere = by_pod_identity().with_account("210987654321");
    assert_eq!(Stage::answering([]).revoke(&elsewhere, None).await.unwrap().0, AccessRemoval::NotFound);
}

/// Nobody gets keys, least of all the provisioning credentials, because of an edit of the record.
#[tokio::test]
async fn a_record_of_which_a_part_is_missing_gives_nothing() {
    for key in ["eksCluster", "podRole"] {
        let mut record = by_pod_identity();
        record.plan.state.remove(key);
        let refused = Stage::answering([]).grant(&record).await.unwrap_err();
        assert_eq!(refused.reason(), "InvalidSetting", "{key}");
    }
    let mut record = by_pod_identity();
    record.plan.service_account = None;
    assert_eq!(Stage::answering([]).grant(&record).await.unwrap_err().reason(), "InvalidSetting");
}

#[tokio::test]
async fn the_account_is_that_of_the_cluster() {
    let elsewhere = by_pod_identity().with_account("210987654321");
    let refused = Stage::answering([("CreateBucket", bare(200))]).provision(&elsewhere).await.unwrap_err();
    assert_eq!(refused.reason(), "InvalidClassParameter");
    assert!(refused.to_string().contains("account of eksCluster"), "{refused}");
}
