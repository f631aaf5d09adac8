//! Upkeep of a bound claim: rotating its keys, and repairing what others have changed.
//!
//! A user whose tags somebody removed is still proven to be the claim's if it has the key that the operator issued.

use super::bucket;
use super::call::{CallError, Operation, Resource};
use super::clients::Store;
use super::error::Error;
use super::policy::{self, POLICY_NAME};
use super::tags::{self, Ownership, Tags};
use super::target::{Target, UserSpec};
use super::user;
use crate::provisioner::{AppCredentials, Checkup};

/// Issues a second key beside `present`. Other keys of the user are deleted first.
pub(crate) async fn rotate(store: &Store, user: UserSpec<'_>, present: &str) -> Result<AppCredentials, Error> {
    user::delete_access_keys(store, user.name, &[present]).await?;
    user::create_only_key(store, user.name, &[present]).await
}

/// Compares bucket, user, policy and keys with what was created, and repairs what it can.
pub(crate) async fn check(store: &Store, target: &Target<'_>, tags: &Tags, keys: &[&str]) -> Result<Checkup, Error> {
    let mut checkup = Checkup::default();
    checkup.repaired.extend(bucket::check(store, target, tags).await?);
    if let Some(user) = target.user {
        check_user(store, target, user, tags, keys, &mut checkup).await?;
    }
    Ok(checkup)
}

async fn check_user(
    store: &Store,
    target: &Target<'_>,
    user: UserSpec<'_>,
    tags: &Tags,
    keys: &[&str],
    checkup: &mut Checkup,
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
    if target.go_policy.is_none() {
        let ownership = user::ownership(target, name, &found);
        if let Ownership::OtherClaim = ownership {
            tracing::warn!(user = name, ?ownership, "the user has the claim's key, but its tags name another claim");
        }
        // A store that keeps no tags would not show what is written.
        let is_known_by_name = found.is_empty() && ownership.is_proven();
        if !is_known_by_name && tags::completed(&found, tags).is_some() {
            user::put_tags(store, name, tags).await?;
            if !ownership.is_proven() {
                checkup.repaired.push(format!("user {name:?} had lost the tags of this claim; they were restored"));
            }
        }
        match policy_found(store, target, name).await? {
            policy::Found::Wanted => {}
            found => {
                user::put_policy(store, target, name).await?;
                match found {
                    policy::Found::Wanted | policy::Found::Earlier => {}
                    policy::Found::Wider => checkup.repaired.push(format!(
                        "policy {POLICY_NAME:?} of user {name:?} was updated: object versions can no longer be deleted, because the bucket existed before the claim"
                    )),
                    policy::Found::Other => checkup
                        .repaired
                        .push(format!("policy {POLICY_NAME:?} of user {name:?} had been changed; it was restored")),
                }
            }
        }
    }
    for id in held.into_iter().map(|key| key.id).filter(|id| !keys.contains(&id.as_str())) {
        user::delete_access_key(store, name, &id).await?;
        checkup.deleted_keys.push(id);
    }
    Ok(())
}

async fn policy_found(store: &Store, target: &Target<'_>, user: &str) -> Result<policy::Found, CallError> {
    let sent = store.iam.get_user_policy().user_name(user).policy_name(POLICY_NAME).send();
    let answer = user::ignore_not_found(store.call(Operation::GetUserPolicy, Resource::user(user), sent).await)?;
    Ok(answer.map_or(policy::Found::Other, |answer| policy::compare(&answer.policy_document, target)))
}
