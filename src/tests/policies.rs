//! The policies in `docs/`: they allow what is called, and nothing else.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::client::call::Operation;
use bucket_provisioner::store::{AccessMode, MaySet};

const PLAIN: &str = include_str!("../../docs/owner-iam-policy.json");
const BOUNDED: &str = include_str!("../../docs/owner-iam-policy-with-boundary.json");
const GROUPS: &str = include_str!("../../docs/owner-iam-policy-groups.json");
const ROLES: &str = include_str!("../../docs/owner-iam-policy-roles.json");
const SETTINGS: &str = include_str!("../../docs/owner-iam-policy-settings.json");
const KEYLESS: &str = include_str!("../../docs/owner-iam-policy-keyless.json");
const OF_PODS: &str = include_str!("../../docs/owner-iam-policy-pod-identity.json");
const GO_PROVISIONER: &str = include_str!("../../docs/owner-iam-policy-go-provisioner.json");
const DOCTOR: &str = include_str!("../../docs/owner-iam-policy-doctor.json");
const BOUNDARY: &str = include_str!("../../docs/permissions-boundary.json");

/// Only needed for records of the Go provisioner; see docs/migrating.md.
const OF_GO_PROVISIONER: [Operation; 3] =
    [Operation::ListPolicyVersions, Operation::DeletePolicyVersion, Operation::DeletePolicy];

/// Called with the access of apps.
const OF_APPS: [Operation; 5] = [
    Operation::GetObject,
    Operation::CreateMultipartUpload,
    Operation::UploadPart,
    Operation::GetBucketLocation,
    Operation::AssumeRoleWithWebIdentity,
];

/// Only needed by `doctor`; and GetRole for classes without keys.
const OF_DOCTOR: [Operation; 7] = [
    Operation::SimulatePrincipalPolicy,
    Operation::GetRole,
    Operation::GetPolicy,
    Operation::GetOpenIDConnectProvider,
    Operation::GetAccountSummary,
    Operation::DescribeCluster,
    Operation::DescribeAddon,
];

/// Only needed for classes whose apps have access by EKS Pod Identity; and AssumeRole.
const OF_ASSOCIATIONS: [Operation; 5] = [
    Operation::ListPodIdentityAssociations,
    Operation::DescribePodIdentityAssociation,
    Operation::CreatePodIdentityAssociation,
    Operation::UpdatePodIdentityAssociation,
    Operation::DeletePodIdentityAssociation,
];

/// Only needed for classes whose apps have no keys.
const OF_ROLES: [Operation; 10] = [
    Operation::CreateRole,
    Operation::GetRole,
    Operation::TagRole,
    Operation::UpdateAssumeRolePolicy,
    Operation::GetRolePolicy,
    Operation::PutRolePolicy,
    Operation::ListRolePolicies,
    Operation::ListRoles,
    Operation::DeleteRolePolicy,
    Operation::DeleteRole,
];

fn statements(policy: &str) -> Vec<Value> {
    let policy: Value = serde_json::from_str(policy).unwrap();
    policy["Statement"].as_array().unwrap().clone()
}

fn actions(statement: &Value) -> Vec<String> {
    match &statement["Action"] {
        Value::String(action) => vec![action.clone()],
        Value::Array(actions) => actions.iter().map(|action| action.as_str().unwrap().to_owned()).collect(),
        _ => Vec::new(),
    }
}

fn with_effect(policy: &str, effect: &str) -> BTreeSet<String> {
    statements(policy).iter().filter(|statement| statement["Effect"] == effect).flat_map(actions).collect()
}

fn called(wanted: impl Fn(Operation) -> bool) -> BTreeSet<String> {
    let operations = Operation::ALL.iter().filter(|operation| wanted(**operation));
    operations.flat_map(|operation| operation.actions().split(" and ")).map(str::to_owned).collect()
}

#[test]
fn the_provisioning_policies_allow_exactly_what_is_called() {
    // GetCallerIdentity needs no permission, and objects are read with the keys of apps.
    let needs_none = |operation| {
        OF_APPS.contains(&operation)
            || operation == Operation::GetCallerIdentity
            || operation == Operation::AssumeRole
            || OF_GO_PROVISIONER.contains(&operation)
            || OF_DOCTOR.contains(&operation)
            || OF_ROLES.contains(&operation)
            || OF_ASSOCIATIONS.contains(&operation)
            || of_settings(operation)
    };
    let optional = |operation| operation == Operation::RemoveUserFromGroup;
    assert_eq!(with_effect(SETTINGS, "Allow"), called(of_settings));
    for policy in [PLAIN, BOUNDED] {
        assert_eq!(with_effect(policy, "Allow"), called(|operation| !needs_none(operation) && !optional(operation)));
    }
    assert_eq!(with_effect(KEYLESS, "Allow"), called(|operation| OF_ROLES.contains(&operation)));
    let of_pods = |operation| OF_ASSOCIATIONS.contains(&operation) || operation == Operation::AssumeRole;
    assert_eq!(with_effect(OF_PODS, "Allow"), called(of_pods));
    assert_eq!(with_effect(GROUPS, "Allow"), called(optional));
    assert_eq!(with_effect(ROLES, "Allow"), called(|operation| operation == Operation::AssumeRole));
    // What it allows for the Go provisioner's users is in its other documents, too, but not for these users.
    let own = called(|operation| OF_GO_PROVISIONER.contains(&operation));
    let of_users: BTreeSet<_> = with_effect(GO_PROVISIONER, "Allow").difference(&own).cloned().collect();
    assert!(own.is_subset(&with_effect(GO_PROVISIONER, "Allow")));
    assert!(of_users.is_subset(&with_effect(PLAIN, "Allow")), "{of_users:?}");
    assert!(of_users.iter().all(|action| action.starts_with("iam:")), "{of_users:?}");
    assert_eq!(with_effect(DOCTOR, "Allow"), called(|operation| OF_DOCTOR.contains(&operation)));
}

/// Only needed for classes with settings.
fn of_settings(operation: Operation) -> bool {
    operation.is_setting() || operation == Operation::UntagUser
}

/// What `doctor` checks in the permissions is what the policy allows, no less and no more.
#[test]
fn the_provisioning_policy_allows_what_doctor_checks() {
    let record = crate::testing::record();
    let environment = crate::class::environment::Environment::default();
    let needed = crate::doctor::needed(&crate::class::target::Target::of(&record, &environment));
    assert_eq!(with_effect(PLAIN, "Allow"), needed);
}

/// The two documents for classes with settings, and the one action that no document allows: whoever has it can end locks
/// (docs/classes.md).
#[test]
fn the_settings_document_allows_what_doctor_checks() {
    const CORS: &str = r#"{"CORSRules":[{"AllowedMethods":["GET"],"AllowedOrigins":["https://example.com"]}]}"#;
    let mut record = crate::testing::record();
    let settings = [
        ("bucketVersioning", "Enabled"),
        ("encryption", "AES256"),
        ("expireAfter", "30d"),
        ("requireTLS", "true"),
        ("publicAccess", "blocked"),
        ("objectOwnership", "ObjectWriter"),
        ("accessLogs", "logs/photos/"),
        ("objectLock", "Enabled"),
        ("bypassGovernance", "yes"),
        ("bucketCors", CORS),
        ("eventBridge", "true"),
    ];
    record.plan.settings.of_class = settings.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    record.plan.settings.claims_may_set = MaySet::of(["tags.*"]);
    let environment = crate::class::environment::Environment::default();
    let needed = crate::doctor::needed(&crate::class::target::Target::of(&record, &environment));
    let mut allowed = with_effect(PLAIN, "Allow");
    allowed.extend(with_effect(SETTINGS, "Allow"));
    assert!(allowed.insert("s3:BypassGovernanceRetention".to_owned()));
    assert_eq!(needed, allowed);
}

/// Of the called actions, those that can give rights to a user: they create or change users or their policies, and
/// support the condition key `iam:PermissionsBoundary` (Service Authorization Reference). Removing policies supports
/// the key, too, but is allowed without it, because of users that were created before.
/// Nothing can change or remove the boundary.
#[test]
fn granting_rights_requires_the_boundary() {
    let giving = [
        "iam:CreateUser",
        "iam:PutUserPolicy",
        "iam:AttachUserPolicy",
        "iam:CreateRole",
        "iam:PutRolePolicy",
        "iam:AttachRolePolicy",
    ];
    for statement in statements(BOUNDED).into_iter().chain(statements(KEYLESS)) {
        let gives = actions(&statement).iter().any(|action| giving.contains(&action.as_str()));
        let boundary = &statement["Condition"]["StringEquals"]["iam:PermissionsBoundary"];
        assert_eq!(boundary.is_string(), gives, "{statement}");
        assert!(!gives || boundary.as_str().unwrap().ends_with(":policy/aws-s3-provisioner-boundary"));
    }
    let denied = with_effect(BOUNDED, "Deny");
    for action in ["iam:PutUserPermissionsBoundary", "iam:DeleteUserPermissionsBoundary", "iam:CreatePolicyVersion"] {
        assert!(denied.contains(action), "{action}");
    }
    let denied = with_effect(KEYLESS, "Deny");
    for action in ["iam:PutRolePermissionsBoundary", "iam:DeleteRolePermissionsBoundary"] {
        assert!(denied.contains(action), "{action}");
    }
}

#[test]
fn the_boundary_lets_an_app_do_what_its_policy_gives() {
    let allowed = with_effect(BOUNDARY, "Allow");
    for (target, account) in [(crate::testing::record(), true), (crate::testing::granted(), false)] {
        let environment = crate::class::environment::Environment::default();
        let document = crate::iam::policy::of(&crate::class::target::Target::of(&target, &environment));
        for statement in statements(&document) {
            for action in actions(&statement) {
                assert!(allowed.contains(&action), "{action}");
            }
            assert_eq!(statement.to_string().contains("aws:ResourceAccount"), account);
        }
    }
    let denials: Vec<_> = statements(BOUNDARY).into_iter().filter(|statement| statement["Effect"] == "Deny").collect();
    assert!(matches!(&denials[..], [denial] if denial["NotAction"][0] == "s3:*"), "{denials:?}");
}

/// Without these actions in the boundary, the key of the class would be of no use.
#[test]
fn the_boundary_lets_an_app_use_the_key_of_its_class() {
    let allowed = with_effect(BOUNDARY, "Allow");
    let denied = statements(BOUNDARY).into_iter().find(|statement| statement["Effect"] == "Deny").unwrap();
    let excepted: Vec<_> =
        denied["NotAction"].as_array().unwrap().iter().map(|action| action.as_str().unwrap()).collect();
    for (mode, expected) in [
        (AccessMode::ReadWrite, &["kms:Decrypt", "kms:GenerateDataKey"][..]),
        (AccessMode::WriteOnly, &["kms:Decrypt", "kms:GenerateDataKey"]),
        (AccessMode::ReadOnly, &["kms:Decrypt"]),
    ] {
        let mut record = crate::testing::granted();
        record.plan.access.mode = mode;
        let key = "arn:aws:kms:us-west-1:123456789012:key/0123-abcd";
        record.plan.settings.of_class.insert("kmsKey".to_owned(), key.to_owned());
        let environment = crate::class::environment::Environment::default();
        let document = crate::iam::policy::of(&crate::class::target::Target::of(&record, &environment));
        let all: BTreeSet<_> = with_effect(&document, "Allow");
        let of_key: Vec<_> = all.iter().map(String::as_str).filter(|action| action.starts_with("kms:")).collect();
        assert_eq!(of_key, expected, "{mode}");
        for action in all {
            assert!(allowed.contains(&action), "{mode}: {action}");
            assert!(action.starts_with("s3:") || excepted.contains(&action.as_str()), "{mode}: {action}");
        }
    }
}

/// What deletes or replaces is for this account's buckets. A bucket that does not exist has no account: the condition must
/// not hide that.
#[test]
fn only_buckets_of_the_owners_account_can_be_deleted() {
    for policy in [PLAIN, BOUNDED, SETTINGS] {
        for statement in statements(policy) {
            let deletes =
                |action: &String| ["s3:Delete", "s3:Put", "s3:Abort"].iter().any(|verb| action.starts_with(verb));
            let account = &statement["Condition"]["StringEqualsIfExists"]["aws:ResourceAccount"];
            assert_eq!(account == "${aws:PrincipalAccount}", actions(&statement).iter().any(deletes), "{statement}");
        }
    }
}

/// No shipped document lets its holder create, read or delete buckets of any name.
#[test]
fn buckets_are_limited_to_prefixes_and_names() {
    for policy in [PLAIN, BOUNDED, SETTINGS, BOUNDARY] {
        for statement in statements(policy) {
            let of_buckets = |action: &String| {
                action.starts_with("s3:") && !["s3:ListAllMyBuckets", "s3:ListAccessPoints"].contains(&action.as_str())
            };
            if statement["Effect"] == "Allow" && actions(&statement).iter().any(of_buckets) {
                let limited =
                    statement["Resource"].as_array().unwrap().iter().map(|resource| resource.as_str().unwrap());
                let is_limited = |name: &str| name.starts_with("acme-") || name.starts_with("company-archive");
                limited.for_each(|arn| assert!(is_limited(arn.trim_start_matches("arn:aws:s3:::")), "{arn}"));
            }
        }
    }
}

/// In the partition with the longest name, without white space, which IAM does not count.
fn longest(document: &str) -> usize {
    let document = document.replace("arn:aws:", "arn:aws-us-gov:");
    document.chars().filter(|c| !c.is_whitespace()).count()
}

/// "IAM and AWS STS quotas": 6,144 characters for a managed policy.
#[test]
fn each_policy_fits_into_a_managed_one() {
    let mut seen = 0;
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/docs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let policy = std::fs::read_to_string(&path).unwrap();
            assert!(!statements(&policy).is_empty(), "{}", path.display());
            assert!(longest(&policy) <= 6144, "{} has {} characters", path.display(), longest(&policy));
            seen += 1;
        }
    }
    let known = [PLAIN, BOUNDED, GROUPS, ROLES, SETTINGS, KEYLESS, OF_PODS, GO_PROVISIONER, DOCTOR, BOUNDARY];
    assert_eq!(seen, known.len(), "documents that the other tests do not know");
}

/// "IAM and AWS STS quotas": 2,048 characters for the trust policy of a role, unless the quota was raised.
#[test]
fn each_trust_policy_fits_into_a_role() {
    for document in [
        include_str!("../../deploy/aws/irsa-trust-policy.json"),
        include_str!("../../deploy/aws/owner-role-trust-policy.json"),
        include_str!("../../deploy/aws/pod-identity-trust-policy.json"),
        include_str!("../../deploy/aws/pod-role-trust-policy.json"),
    ] {
        assert!(longest(document) <= 2048, "{} characters: {document}", longest(document));
    }
}
