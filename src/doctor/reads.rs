//! Tries by reading which permissions the provisioning credentials have, where IAM cannot simulate. What changes
//! something is not tried.

use std::collections::BTreeSet;

use super::Examined;
use super::needs;
use super::simulate::{NotSimulated, WHAT};
use crate::client::call::{CallError, Operation, Resource};
use crate::iam::policy::POLICY_NAME;
use crate::iam::{role, user};
use crate::s3::bucket;
use crate::s3::tagging;
use bucket_provisioner::store::{Finding, Mode};

/// What trying showed.
enum Tried {
    Allowed,
    Denied,
    /// The answer proves nothing.
    Open,
}

/// Which of the permissions the provisioning credentials have, as far as reading shows.
pub(crate) async fn permissions(examined: &Examined<'_>, NotSimulated { why, remedy }: &NotSimulated) -> Vec<Finding> {
    let needed = needs::actions(&needs::of(examined.target));
    let (mut allowed, mut denied) = (BTreeSet::new(), BTreeSet::new());
    for (operation, tried) in attempts(examined).await {
        let actions = operation.actions().split(" and ").filter(|action| needed.contains(action));
        match tried {
            Tried::Allowed => allowed.extend(actions),
            Tried::Denied => denied.extend(actions),
            Tried::Open => {}
        }
    }
    let list = |actions: Vec<&str>| actions.join(", ");
    let mut findings = Vec::new();
    if !denied.is_empty() {
        let message = format!("AWS denied the provisioning credentials {}", list(denied.iter().copied().collect()));
        findings.push(Finding::about(WHAT).bad(message).with_remedy(
            "allow the actions; the provisioning policy in docs/permissions.md allows all that claims need",
        ));
    }
    if !allowed.is_empty() {
        let message = format!(
            "successful reads proved that the provisioning credentials allow {}",
            list(allowed.iter().copied().collect())
        );
        findings.push(Finding::about(WHAT).good(message));
    }
    let open: Vec<_> =
        needed.iter().filter(|action| !allowed.contains(*action) && !denied.contains(*action)).copied().collect();
    if !open.is_empty() {
        let message = format!("{why}; these actions could not be checked: {}", list(open));
        findings.push(Finding::about(WHAT).unknown(message).with_remedy(remedy));
    }
    findings
}

/// Each of these calls only reads.
async fn attempts(examined: &Examined<'_>) -> Vec<(Operation, Tried)> {
    let Examined { store, target, has_iam, .. } = examined;
    let mut done = Vec::new();
    let listed = bucket::is_in_account(store, target.bucket()).await;
    done.push((
        Operation::ListBuckets,
        match listed {
            Ok(Some(_)) => Tried::Allowed,
            Ok(None) => Tried::Denied,
            Err(_) => Tried::Open,
        },
    ));
    let tags = tagging::read(store, target.bucket_ref()).await;
    done.push((Operation::GetBucketTagging, tried(tags, &[])));
    if target.record.plan.mode == Mode::Granted {
        let call = store.s3.list_objects_v2().bucket(target.bucket()).max_keys(1);
        let resource = Resource::bucket(target.bucket());
        let listed = store.call(Operation::ListObjectsV2, resource, || call.clone().send()).await;
        done.push((Operation::ListObjectsV2, tried(listed, &[])));
    }
    if let Some(role) = target.role.as_ref().filter(|_| *has_iam) {
        let get = || store.iam.get_role().role_name(role.name).send();
        let found = store.call(Operation::GetRole, Resource::role(role.name), get).await;
        done.push((Operation::GetRole, tried(found, &["NoSuchEntity"])));
        done.push((Operation::ListRoles, tried(role::list(store, role.path).await, &[])));
    }
    let Some(user) = target.user.filter(|_| *has_iam) else { return done };
    // There is no such user. Without the permission the answer would be a refusal.
    done.push((Operation::GetUser, tried(user::get_user(store, user.name).await, &["NoSuchEntity"])));
    let list = || store.iam.list_users().path_prefix(user.path).max_items(1).send();
    let users = store.call(Operation::ListUsers, Resource::Account, list).await;
    let one = users.as_ref().ok().and_then(|answer| answer.users().first()).map(|user| user.user_name().to_owned());
    done.push((Operation::ListUsers, tried(users, &[])));
    if let Some(name) = one {
        done.extend(of_user(examined, &name).await);
    }
    done
}

/// What can be read of a user under the path of the class. A policy that is limited to the path does not apply to users
/// that do not exist.
async fn of_user(Examined { store, .. }: &Examined<'_>, name: &str) -> [(Operation, Tried); 4] {
    let resource = || Resource::user(name);
    let keys = user::key_ids(store, name).await;
    let policy = || store.iam.get_user_policy().user_name(name).policy_name(POLICY_NAME).send();
    let policy = store.call(Operation::GetUserPolicy, resource(), policy).await;
    let policies = || store.iam.list_attached_user_policies().user_name(name).send();
    let policies = store.call(Operation::ListAttachedUserPolicies, resource(), policies).await;
    let groups = || store.iam.list_groups_for_user().user_name(name).send();
    let groups = store.call(Operation::ListGroupsForUser, resource(), groups).await;
    [
        (Operation::ListAccessKeys, tried(keys, &["NoSuchEntity"])),
        (Operation::GetUserPolicy, tried(policy, &["NoSuchEntity"])),
        (Operation::ListAttachedUserPolicies, tried(policies, &["NoSuchEntity"])),
        (Operation::ListGroupsForUser, tried(groups, &["NoSuchEntity"])),
    ]
}

/// `answers`: codes that only callers see who have the permission.
fn tried<T>(answer: Result<T, CallError>, answers: &[&str]) -> Tried {
    match answer {
        Ok(_) => Tried::Allowed,
        Err(error) if answers.contains(&error.code()) => Tried::Allowed,
        Err(error) if error.status() == 403 => Tried::Denied,
        Err(_) => Tried::Open,
    }
}
