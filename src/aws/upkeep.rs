//! A bound claim over time: keys that follow others, and whether all is as it was made.
//!
//! What proves that a user is the claim's own, though somebody took its tags off, is that it holds the key which
//! the operator issued to the claim.

use super::bucket;
use super::call::{CallError, Operation, Resource};
use super::clients::Store;
use super::error::Error;
use super::policy::{self, POLICY_NAME};
use super::tags::{self, Ownership, Tags};
use super::target::{Target, UserSpec};
use super::user;
use crate::provisioner::{AppCredentials, Checkup};

/// Issues a key beside `present`; any other one of the user is deleted first.
pub(crate) async fn rotate(store: &Store, user: UserSpec<'_>, present: &str) -> Result<AppCredentials, Error> {
    user::delete_access_keys(store, user.name, &[present]).await?;
    user::create_only_key(store, user.name, &[present]).await
}

/// Compares bucket, user, policy and keys with what was made, and sets right what can be.
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
    let Some(found) = user::gone_is_fine(user::tags_of(store, name).await)? else {
        checkup.keys_lost = true;
        return Ok(());
    };
    let held = user::held_keys(store, name).await?;
    let Some(present) = keys.first().and_then(|present| held.iter().find(|key| key.id == *present)) else {
        checkup.keys_lost = true;
        return Ok(());
    };
    checkup.issued_at = present.issued_at;
    if target.go_policy.is_none() {
        let ownership = user::ownership(target, name, &found);
        if let Ownership::OtherClaim = ownership {
            tracing::warn!(user = name, ?ownership, "the user holds the claim's key, and its tags name another claim");
        }
        // A store whose users are known by their names alone would not show what is written.
        let is_known_by_name = found.is_empty() && ownership.is_proven();
        if !is_known_by_name && tags::completed(&found, tags).is_some() {
            user::put_tags(store, name, tags).await?;
            if !ownership.is_proven() {
                checkup.repaired.push(format!("user {name:?} had lost the tags of this claim; they are set again"));
            }
        }
        match policy_found(store, target, name).await? {
            policy::Found::Wanted => {}
            found => {
                user::put_policy(store, target, name).await?;
                if found == policy::Found::Wider {
                    let note = format!(
                        "the policy {POLICY_NAME:?} of user {name:?} was brought up to date; versions of objects in this bucket, which existed before, cannot be deleted any more"
                    );
                    checkup.repaired.push(note);
                }
                if found == policy::Found::Other {
                    let note = format!("the policy {POLICY_NAME:?} of user {name:?} had changed; it is set again");
                    checkup.repaired.push(note);
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
    let answer = user::gone_is_fine(store.call(Operation::GetUserPolicy, Resource::user(user), sent).await)?;
    Ok(answer.map_or(policy::Found::Other, |answer| policy::compare(&answer.policy_document, target)))
}
