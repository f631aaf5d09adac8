//! Taking access away: removing the user of a claim, and what hangs on it, if it is the claim's own.
//!
//! Keys go first, so that access ends even if a later step fails. The ordinary user has one key and one
//! inline policy; AWS refuses to delete a user that has anything else (DeleteConflict), and only then is the
//! rest looked for. Policies that others attached are detached, never deleted.

use super::call::{CallError, Operation, Resource};
use super::clients::Store;
use super::error::Error;
use super::plan::Target;
use super::policy::POLICY_NAME;
use super::tags::{Ownership, Tags, ownership};
use super::user::{delete_access_keys, gone_is_fine, tags_of};

/// What may be done to the user that a record names.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Remove,
    /// The Go provisioner made it, together with this managed policy.
    RemoveWithPolicy(String),
    /// A sentence that says why.
    Leave(String),
}

/// What [`revoke`] found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Revoked {
    /// What was left in place, a sentence each.
    pub(crate) left: Vec<String>,
    /// IAM shows no such user: it is gone, or was made just now.
    pub(crate) missing: bool,
}

/// Takes the user away.
pub(crate) async fn revoke(store: &Store, target: &Target<'_>) -> Result<Revoked, Error> {
    let Some(user) = target.user.map(|user| user.name) else { return Ok(Revoked::default()) };
    let Some(tags) = gone_is_fine(tags_of(store, user).await)? else {
        // A call before this one may have been cut off between the user and its policy.
        delete_go_policy(store, target, user).await?;
        return Ok(Revoked { missing: true, ..Revoked::default() });
    };
    match judge(target, user, &tags) {
        Verdict::Leave(why) => return Ok(Revoked { left: vec![why], missing: false }),
        Verdict::Remove => remove_user(store, user).await?,
        Verdict::RemoveWithPolicy(policy) => {
            detach(store, user, &policy).await?;
            remove_user(store, user).await?;
            delete_go_policy(store, target, user).await?;
        }
    }
    Ok(Revoked::default())
}

/// Deletes the managed policy that the Go provisioner made for the user: it has the user's name.
async fn delete_go_policy(store: &Store, target: &Target<'_>, user: &str) -> Result<(), CallError> {
    match target.go_policy.filter(|arn| policy_name(arn) == Some(user)) {
        Some(arn) => delete_policy(store, arn).await,
        None => Ok(()),
    }
}

fn judge(target: &Target<'_>, user: &str, tags: &Tags) -> Verdict {
    let left = |why: String| Verdict::Leave(format!("IAM user {user:?} was left in place: {why}"));
    match ownership(tags, &target.record.claim) {
        Ownership::Ours => Verdict::Remove,
        Ownership::OtherClaim(claim) => left(format!("its tags name claim {claim}")),
        Ownership::Untagged | Ownership::Foreign => match made_by_go_provisioner(target, tags) {
            Some(policy) => Verdict::RemoveWithPolicy(policy.to_owned()),
            None => left("it is not tagged as this claim's".to_owned()),
        },
    }
}

/// The managed policy that the Go provisioner made with this user, if it made the user.
///
/// It tagged nothing. Its OB (cluster-scoped, so not a user's to write) records the user, and a policy of
/// the same name, under keys of its own.
pub(crate) fn made_by_go_provisioner<'a>(target: &Target<'a>, tags: &Tags) -> Option<&'a str> {
    target.go_policy.filter(|_| tags.is_empty())
}

/// `arn:<partition>:iam::<account>:policy/<path><name>`.
fn policy_name(arn: &str) -> Option<&str> {
    arn.split_once(":policy/").and_then(|(_, name)| name.rsplit('/').next())
}

async fn remove_user(store: &Store, user: &str) -> Result<(), CallError> {
    delete_access_keys(store, user, &[]).await?;
    delete_inline_policy(store, user, POLICY_NAME).await?;
    match delete_user(store, user).await {
        Err(error) if error.code() == "DeleteConflict" => {
            clear(store, user).await?;
            delete_user(store, user).await
        }
        result => result,
    }
}

/// Removes from a user what others added to it, as far as an app's user can be expected to have it.
async fn clear(store: &Store, user: &str) -> Result<(), CallError> {
    delete_access_keys(store, user, &[]).await?;

    let listed = store.iam.list_user_policies().user_name(user).into_paginator().items().send().collect();
    let inline: Vec<_> =
        gone_is_fine(store.call(Operation::ListUserPolicies, Resource::user(user), listed).await)?.unwrap_or_default();
    for name in inline {
        delete_inline_policy(store, user, &name).await?;
    }

    let listed = store.iam.list_attached_user_policies().user_name(user).into_paginator().items().send().collect();
    let attached: Vec<_> =
        gone_is_fine(store.call(Operation::ListAttachedUserPolicies, Resource::user(user), listed).await)?
            .unwrap_or_default();
    for arn in attached.into_iter().filter_map(|policy| policy.policy_arn) {
        detach(store, user, &arn).await?;
    }

    let listed = store.iam.list_groups_for_user().user_name(user).into_paginator().items().send().collect();
    let groups: Vec<_> =
        gone_is_fine(store.call(Operation::ListGroupsForUser, Resource::user(user), listed).await)?.unwrap_or_default();
    for group in groups {
        let sent = store.iam.remove_user_from_group().user_name(user).group_name(group.group_name).send();
        gone_is_fine(store.call(Operation::RemoveUserFromGroup, Resource::user(user), sent).await)?;
    }

    let sent = store.iam.delete_login_profile().user_name(user).send();
    gone_is_fine(store.call(Operation::DeleteLoginProfile, Resource::user(user), sent).await)?;
    Ok(())
}

async fn delete_inline_policy(store: &Store, user: &str, name: &str) -> Result<(), CallError> {
    let sent = store.iam.delete_user_policy().user_name(user).policy_name(name).send();
    gone_is_fine(store.call(Operation::DeleteUserPolicy, Resource::user(user), sent).await).map(drop)
}

async fn detach(store: &Store, user: &str, arn: &str) -> Result<(), CallError> {
    let sent = store.iam.detach_user_policy().user_name(user).policy_arn(arn).send();
    gone_is_fine(store.call(Operation::DetachUserPolicy, Resource::user(user), sent).await).map(drop)
}

async fn delete_user(store: &Store, user: &str) -> Result<(), CallError> {
    let sent = store.iam.delete_user().user_name(user).send();
    gone_is_fine(store.call(Operation::DeleteUser, Resource::user(user), sent).await).map(drop)
}

/// Deletes a managed policy, its versions that are not the default one first.
async fn delete_policy(store: &Store, arn: &str) -> Result<(), CallError> {
    let listed = store.iam.list_policy_versions().policy_arn(arn).into_paginator().items().send().collect();
    let versions: Vec<_> =
        gone_is_fine(store.call(Operation::ListPolicyVersions, Resource::policy(arn), listed).await)?
            .unwrap_or_default();
    for version in versions.into_iter().filter(|version| !version.is_default_version) {
        let sent = store.iam.delete_policy_version().policy_arn(arn).set_version_id(version.version_id).send();
        gone_is_fine(store.call(Operation::DeletePolicyVersion, Resource::policy(arn), sent).await)?;
    }
    let sent = store.iam.delete_policy().policy_arn(arn).send();
    gone_is_fine(store.call(Operation::DeletePolicy, Resource::policy(arn), sent).await).map(drop)
}
