//! Removing the user of a claim, with its keys and policies, if the user is the claim's own: because its tags say so,
//! or its name where a store keeps no tags, or because it has the key that the operator issued to the claim.
//!
//! Keys are deleted first, so that access ends even if a later step fails. An ordinary user has one key and one inline
//! policy. AWS refuses to delete a user that has anything else (DeleteConflict); only then is the rest looked for.
//! Policies that others attached are detached, never deleted.

use super::call::{CallError, Operation, Resource};
use super::clients::Store;
use super::error::Error;
use super::policy::POLICY_NAME;
use super::tags::{Ownership, Tags};
use super::target::Target;
use super::user::{
    FoundUser, delete_access_keys, get_user, ignore_not_found, key_ids, made_by_go_provisioner, or_not_visible_yet,
    ownership,
};
use crate::provisioner::{AppCredentials, Fate};

/// What to do with the user that a record names.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Remove,
    /// The Go provisioner created it, together with this managed policy.
    RemoveWithPolicy(String),
    /// It is somebody else's. A sentence that says why.
    Leave(String),
    /// Only the key that it may have can prove whose it is. A sentence that says so.
    Unproven(String),
}

/// Removes the user. `present`: the keys in the claim's Secret.
pub(crate) async fn revoke(
    store: &Store,
    target: &Target<'_>,
    present: Option<&AppCredentials>,
) -> Result<Fate, Error> {
    let Some(user) = target.user.map(|user| user.name) else { return Ok(Fate::Kept) };
    let Some(FoundUser { tags, created_at }) = ignore_not_found(get_user(store, user).await)? else {
        // An earlier call may have stopped between the user and its policy.
        delete_go_policy(store, target, user).await?;
        return Ok(Fate::Missing);
    };
    let rest = async {
        let verdict = match judge(target, user, &tags) {
            Verdict::Unproven(_) if has_key(store, user, present).await? => Verdict::Remove,
            verdict => verdict,
        };
        match verdict {
            Verdict::Leave(why) | Verdict::Unproven(why) => return Ok(Fate::Left(why)),
            Verdict::Remove => remove_user(store, user).await?,
            Verdict::RemoveWithPolicy(policy) => {
                detach(store, user, &policy).await?;
                remove_user(store, user).await?;
                delete_go_policy(store, target, user).await?;
            }
        }
        Ok::<_, CallError>(Fate::Removed)
    };
    rest.await.map_err(|error| or_not_visible_yet(target, created_at, error.into()))
}

/// Whether the user has the key that the operator issued to the claim.
async fn has_key(store: &Store, user: &str, present: Option<&AppCredentials>) -> Result<bool, CallError> {
    match present {
        Some(keys) => Ok(key_ids(store, user).await?.contains(&keys.access_key_id)),
        None => Ok(false),
    }
}

/// Deletes the managed policy that the Go provisioner created for the user. It has the user's name.
async fn delete_go_policy(store: &Store, target: &Target<'_>, user: &str) -> Result<(), CallError> {
    match target.go_policy.filter(|arn| policy_name(arn) == Some(user)) {
        Some(arn) => delete_policy(store, arn).await,
        None => Ok(()),
    }
}

fn judge(target: &Target<'_>, user: &str, tags: &Tags) -> Verdict {
    let left = |why| format!("IAM user {user:?} was left in place: {why}");
    match ownership(target, user, tags) {
        Ownership::Ours | Ownership::Inherited => Verdict::Remove,
        Ownership::OtherClaim => Verdict::Leave(left("its tags name another claim")),
        Ownership::Untagged | Ownership::Foreign => match made_by_go_provisioner(target, tags) {
            Some(policy) => Verdict::RemoveWithPolicy(policy.to_owned()),
            None => Verdict::Unproven(left("it has neither the tags of this claim nor the key in the claim's Secret")),
        },
    }
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

/// Removes from a user what others are likely to have added to it. Ways to sign in go first; groups go last, because
/// the owner may not be allowed to change them.
async fn clear(store: &Store, user: &str) -> Result<(), CallError> {
    delete_access_keys(store, user, &[]).await?;
    let sent = store.iam.delete_login_profile().user_name(user).send();
    ignore_not_found(store.call(Operation::DeleteLoginProfile, Resource::user(user), sent).await)?;

    let listed = store.iam.list_user_policies().user_name(user).into_paginator().items().send().collect();
    let inline: Vec<_> = ignore_not_found(store.call(Operation::ListUserPolicies, Resource::user(user), listed).await)?
        .unwrap_or_default();
    for name in inline {
        delete_inline_policy(store, user, &name).await?;
    }

    let listed = store.iam.list_attached_user_policies().user_name(user).into_paginator().items().send().collect();
    let attached: Vec<_> =
        ignore_not_found(store.call(Operation::ListAttachedUserPolicies, Resource::user(user), listed).await)?
            .unwrap_or_default();
    for arn in attached.into_iter().filter_map(|policy| policy.policy_arn) {
        detach(store, user, &arn).await?;
    }

    let listed = store.iam.list_groups_for_user().user_name(user).into_paginator().items().send().collect();
    let groups: Vec<_> =
        ignore_not_found(store.call(Operation::ListGroupsForUser, Resource::user(user), listed).await)?
            .unwrap_or_default();
    for group in groups {
        let sent = store.iam.remove_user_from_group().user_name(user).group_name(group.group_name).send();
        ignore_not_found(store.call(Operation::RemoveUserFromGroup, Resource::user(user), sent).await)?;
    }

    Ok(())
}

async fn delete_inline_policy(store: &Store, user: &str, name: &str) -> Result<(), CallError> {
    let sent = store.iam.delete_user_policy().user_name(user).policy_name(name).send();
    ignore_not_found(store.call(Operation::DeleteUserPolicy, Resource::user(user), sent).await).map(drop)
}

async fn detach(store: &Store, user: &str, arn: &str) -> Result<(), CallError> {
    let sent = store.iam.detach_user_policy().user_name(user).policy_arn(arn).send();
    ignore_not_found(store.call(Operation::DetachUserPolicy, Resource::user(user), sent).await).map(drop)
}

async fn delete_user(store: &Store, user: &str) -> Result<(), CallError> {
    let sent = store.iam.delete_user().user_name(user).send();
    ignore_not_found(store.call(Operation::DeleteUser, Resource::user(user), sent).await).map(drop)
}

/// Deletes a managed policy, after its versions that are not the default one.
async fn delete_policy(store: &Store, arn: &str) -> Result<(), CallError> {
    let listed = store.iam.list_policy_versions().policy_arn(arn).into_paginator().items().send().collect();
    let versions: Vec<_> =
        ignore_not_found(store.call(Operation::ListPolicyVersions, Resource::policy(arn), listed).await)?
            .unwrap_or_default();
    for version in versions.into_iter().filter(|version| !version.is_default_version) {
        let sent = store.iam.delete_policy_version().policy_arn(arn).set_version_id(version.version_id).send();
        ignore_not_found(store.call(Operation::DeletePolicyVersion, Resource::policy(arn), sent).await)?;
    }
    let sent = store.iam.delete_policy().policy_arn(arn).send();
    ignore_not_found(store.call(Operation::DeletePolicy, Resource::policy(arn), sent).await).map(drop)
}
