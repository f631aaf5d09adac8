//! Upkeep of a bound claim: rotating its keys, and repairing what others have changed.
//!
//! A user whose tags somebody removed is still proven to be the claim's if it has the key that the operator issued.

use std::time::SystemTime;

use crate::class::target::{Target, UserSpec};
use crate::client::call::{CallError, Operation, Resource};
use crate::client::error::Error;
use crate::client::store::Store;
use crate::iam::association::Association;
use crate::iam::policy::{self, Found, POLICY_NAME};
use crate::iam::{role, user};
use crate::s3::tags::{self, Ownership, Tags};
use crate::s3::{bucket, settings};
use bucket_provisioner::store::{AppCredentials, Checkup, Deactivation};

/// Issues a second key in addition to `present`. Other keys of the user are deleted first.
pub(crate) async fn rotate(store: &Store, user: UserSpec<'_>, present: &str) -> Result<AppCredentials, Error> {
    user::delete_access_keys(store, user.name, &[present]).await?;
    user::create_only_key(store, user.name, &[present]).await
}

/// Deactivates a previous key, unless it was used since then.
pub(crate) async fn deactivate(
    store: &Store,
    user: UserSpec<'_>,
    key: &str,
    unless_used_since: Option<SystemTime>,
) -> Result<Deactivation, Error> {
    let held = user::access_keys(store, user.name).await?;
    if held.iter().all(|held| held.id != key || held.inactive) {
        return Ok(Deactivation::NotNeeded);
    }
    if let Some(since) = unless_used_since {
        match user::last_used(store, user.name, key).await {
            Ok(Some(used)) if used >= since => return Ok(Deactivation::InUse(Some(used))),
            Err(error) if !error.lacks_operation() => return Err(error.into()),
            Ok(_) | Err(_) => {}
        }
    }
    match user::deactivate_access_key(store, user.name, key).await {
        Ok(()) => Ok(Deactivation::Done),
        // Such a store can only delete keys.
        Err(error) if error.lacks_operation() => Ok(Deactivation::NotNeeded),
        Err(error) => Err(error.into()),
    }
}

/// Compares bucket, user, policy and keys with what was created, and repairs what it can.
pub(crate) async fn check(
    store: &Store,
    target: &Target<'_>,
    (provisioner, association): (&str, Option<&Association<'_>>),
    keys: &[&str],
) -> Result<Checkup, Error> {
    let mut checkup = Checkup::default();
    let tags = &tags::of_record(provisioner, target.record);
    // Before all others, of which any may fail.
    let applied = match (target.user, &target.role, association) {
        _ if !target.record.plan.changes.access => false,
        (Some(user), ..) => change_policy(store, target, user).await?,
        (None, Some(role), _) => role::change_policy(store, target, role).await?,
        (None, None, Some(association)) => association.change_policy().await?,
        (None, None, None) => false,
    };
    checkup.repaired.extend(bucket::check(store, target, tags).await?);
    if let Some(user) = target.user {
        check_user(store, target, user, tags, keys, (&mut checkup, applied)).await?;
    }
    if let Some(role) = &target.role {
        let tags = tags::of_role(provisioner, target.record, role.service_account);
        role::check(store, target, role, &tags, (&mut checkup, applied)).await?;
    }
    if let Some(association) = association {
        association.check(&mut checkup, applied).await?;
    }
    // Last, and its failure is not that of the rest.
    Ok(settings::check(store, target, checkup).await)
}

/// Writes the policy of a record that was changed; reading it first could show what it was before an earlier change. Returns
/// whether it was written: not if the tags do not prove that the user is the claim's.
async fn change_policy(store: &Store, target: &Target<'_>, user: UserSpec<'_>) -> Result<bool, Error> {
    let Some(found) = user::ignore_not_found(user::tags_of(store, user.name).await)? else { return Ok(false) };
    let is_ours = user::ownership(target, user.name, &found).is_proven() && target.go_policy.is_none();
    if is_ours {
        user::put_policy(store, target, user.name).await?;
    }
    Ok(is_ours)
}

async fn check_user(
    store: &Store,
    target: &Target<'_>,
    user: UserSpec<'_>,
    tags: &Tags,
    keys: &[&str],
    (checkup, applied): (&mut Checkup, bool),
) -> Result<(), Error> {
    let name = user.name;
    let Some(found) = user::ignore_not_found(user::tags_of(store, name).await)? else {
        checkup.keys_lost = true;
        return Ok(());
    };
    let held = user::access_keys(store, name).await?;
    let Some(present) = keys.first().and_then(|present| held.iter().find(|key| key.id == *present)) else {
        checkup.keys_lost = true;
        return Ok(());
    };
    checkup.issued_at = present.issued_at;
    checkup.keys_inactive = present.inactive;
    if target.go_policy.is_none() {
        checkup.repaired.extend(repair_tags(store, target, name, &found, tags).await?);
        match target.record.plan.changes.access {
            true if applied => {}
            true => user::put_policy(store, target, name).await?,
            false => checkup.repaired.extend(repair_policy(store, target, name).await?),
        }
    }
    for id in held.into_iter().map(|key| key.id).filter(|id| !keys.contains(&id.as_str())) {
        user::delete_access_key(store, name, &id).await?;
        checkup.deleted_keys.push(id);
    }
    Ok(())
}

async fn repair_tags(
    store: &Store,
    target: &Target<'_>,
    user: &str,
    found: &Tags,
    wanted: &Tags,
) -> Result<Option<String>, CallError> {
    let released = settings::tags::released(&target.record.plan.settings);
    let ownership = user::ownership(target, user, found);
    let left = tags::without(found, &released).filter(|_| ownership.is_proven());
    if left.is_some() {
        let there: Vec<_> = released.iter().copied().filter(|key| tags::value(found, key).is_some()).collect();
        user::remove_tags(store, user, &there).await?;
    }
    let found = left.as_ref().unwrap_or(found);
    if ownership == Ownership::OtherClaim {
        tracing::warn!(user, "the user has the claim's key, but its tags name another claim");
    }
    // A store that keeps no tags would not show what is written.
    let is_known_by_name = found.is_empty() && ownership.is_proven();
    if is_known_by_name || tags::completed(found, wanted).is_none() {
        return Ok(None);
    }
    user::put_tags(store, user, wanted).await?;
    Ok((!ownership.is_proven()).then(|| format!("user {user:?} had lost the tags of this claim; they were restored")))
}

async fn repair_policy(store: &Store, target: &Target<'_>, user: &str) -> Result<Option<String>, CallError> {
    let send = || store.iam.get_user_policy().user_name(user).policy_name(POLICY_NAME).send();
    let answer = user::ignore_not_found(store.call(Operation::GetUserPolicy, Resource::user(user), send).await)?;
    let found = answer.map_or(Found::Other, |answer| policy::compare(&answer.policy_document, target));
    if found != Found::Wanted {
        user::put_policy(store, target, user).await?;
    }
    Ok(match found {
        Found::Wanted | Found::Earlier => None,
        Found::Wider => Some(format!(
            "policy {POLICY_NAME:?} of user {user:?} was updated: object versions can no longer be deleted, because the bucket existed before the claim"
        )),
        Found::Other => {
            Some(format!("policy {POLICY_NAME:?} of user {user:?} was missing or had been changed; it was restored"))
        }
    })
}
