//! The provisioning policies, compared with the calls that its keys have signed.

use std::collections::BTreeSet;

use aws_s3_provisioner::client::call::Operation;
use serde_json::Value;

use super::stage::Stage;
use crate::support::aws_proxy::Sent;
use crate::support::owner_policy::{BOUNDED, GO_PROVISIONER, GROUPS, SETTINGS};
use crate::takeover::legacy::Legacy;

/// Operations that only tools call which an admin runs.
const CALLED_BY_TOOLS: [Operation; 8] = [
    Operation::SimulatePrincipalPolicy,
    Operation::GetRole,
    Operation::GetPolicy,
    Operation::GetAccountSummary,
    Operation::GetOpenIDConnectProvider,
    Operation::HeadBucket,
    Operation::DescribeCluster,
    Operation::DescribeAddon,
];

/// Made only to AWS itself.
const ONLY_AT_AWS: [Operation; 2] = [Operation::ListAccessPoints, Operation::TagResource];

/// By whoever assumes the role of a class.
const ONLY_WITH_ROLES: [Operation; 1] = [Operation::AssumeRole];

/// Only with `requireTLS`, which the emulator does not have.
const ONLY_WITH_TLS: [Operation; 2] = [Operation::GetBucketPolicy, Operation::PutBucketPolicy];

/// Only for claims whose pods have access as ServiceAccounts (`keyless`).
const ONLY_WITHOUT_KEYS: [Operation; 15] = [
    Operation::AssumeRoleWithWebIdentity,
    Operation::CreateRole,
    Operation::DeleteRole,
    Operation::DeleteRolePolicy,
    Operation::GetRolePolicy,
    Operation::ListRolePolicies,
    Operation::ListRoles,
    Operation::PutRolePolicy,
    Operation::TagRole,
    Operation::UpdateAssumeRolePolicy,
    Operation::ListPodIdentityAssociations,
    Operation::DescribePodIdentityAssociation,
    Operation::CreatePodIdentityAssociation,
    Operation::UpdatePodIdentityAssociation,
    Operation::DeletePodIdentityAssociation,
];

/// The actions that a document allows.
pub(crate) fn allowed(document: &str) -> BTreeSet<String> {
    let document: Value = serde_json::from_str(document).unwrap();
    let statements = document["Statement"].as_array().unwrap().iter();
    let wanted = statements.filter(|statement| statement["Effect"] == "Allow");
    let actions = wanted.flat_map(|statement| match &statement["Action"] {
        Value::String(action) => vec![action.clone()],
        actions => actions.as_array().unwrap().iter().map(|action| action.as_str().unwrap().to_owned()).collect(),
    });
    actions.collect()
}

/// The actions that calls need. One operation needs no permission.
pub(crate) fn needed<'a>(calls: impl Iterator<Item = &'a Sent>) -> BTreeSet<String> {
    let operations = calls.map(|call| operation(&call.operation));
    let paying = operations.filter(|operation| *operation != Operation::GetCallerIdentity);
    paying.flat_map(|operation| operation.actions().split(" and ")).map(str::to_owned).collect()
}

fn operation(name: &str) -> Operation {
    let found = Operation::ALL.iter().find(|operation| operation.to_string() == name);
    *found.unwrap_or_else(|| panic!("{name} is called, and is no Operation in src/client/call.rs"))
}

/// The user of the claim in whose bucket an object is locked.
fn is_managed(user: &str) -> bool {
    user.contains("-managed-")
}

/// Requires that the walk made every call that the operator knows, and that the provisioning policies allow what the
/// keys have signed and nothing else.
pub(super) fn assert_minimal(stage: &Stage, policy: &str, legacy: &Legacy) {
    let calls = stage.world.aws.upstream().sent();
    let seen: BTreeSet<_> = calls.iter().map(|call| operation(&call.operation).to_string()).collect();
    let others = |operation: &Operation| {
        [&CALLED_BY_TOOLS[..], &ONLY_AT_AWS, &ONLY_WITH_ROLES, &ONLY_WITH_TLS, &ONLY_WITHOUT_KEYS]
            .iter()
            .any(|others| others.contains(operation))
    };
    let known = Operation::ALL.iter().filter(|operation| !others(operation));
    assert_eq!(seen, known.map(Operation::to_string).collect(), "operations that are called, and that are known");

    let mut by_owner: Vec<_> = calls.iter().filter(|call| call.signer.as_deref() == Some(stage.owner.key())).collect();
    // A removal that is tried again looks for keys of the user that it has deleted: IAM does not know its path any more.
    let of_gone = |call: &Sent| call.operation == "ListAccessKeys" && call.user.as_deref().is_some_and(is_managed);
    let denied: Vec<_> = by_owner.iter().filter(|call| call.status == 403 && !of_gone(call)).collect();
    assert!(denied.is_empty(), "{denied:#?}");
    let mut take =
        |wanted: &dyn Fn(&Sent) -> bool| -> Vec<&Sent> { by_owner.extract_if(.., |call| wanted(call)).collect() };
    let about_policies = |call: &Sent| operation(&call.operation).to_string().contains("Policy") && call.user.is_none();
    let of_legacy = take(&|call| call.user.as_deref() == Some(&legacy.user) || about_policies(call));
    let of_groups = take(&|call| call.operation == "RemoveUserFromGroup");

    let of_settings = take(&|call| operation(&call.operation).is_setting() || call.operation == "UntagUser");
    let mut needed_for_settings = needed(of_settings.into_iter());
    needed_for_settings.extend(ONLY_WITH_TLS.map(|operation| operation.actions().to_owned()));
    assert_eq!(needed_for_settings, allowed(SETTINGS), "needed, and allowed for settings");
    assert_eq!(needed(of_groups.into_iter()), allowed(GROUPS), "needed, and allowed for users in groups");
    let mut needed_for_legacy = needed(of_legacy.into_iter());
    // Such a call names only the key.
    needed_for_legacy.insert(Operation::GetAccessKeyLastUsed.actions().to_owned());
    if policy == BOUNDED {
        // Such users have no boundary, so they can be removed only.
        assert!(needed_for_legacy.is_subset(&allowed(GO_PROVISIONER)), "{needed_for_legacy:#?}");
    } else {
        assert_eq!(needed_for_legacy, allowed(GO_PROVISIONER), "needed, and allowed for the Go provisioner's users");
    }
    let mut needed = needed(by_owner.into_iter());
    needed.extend(ONLY_AT_AWS.map(|operation| operation.actions().to_owned()));
    assert_eq!(needed, allowed(policy), "needed, and allowed");
}
