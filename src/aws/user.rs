//! The user of a claim: making it, and issuing its access key.
//!
//! The secret of a key is in the answer of CreateAccessKey only. So a user that exists already may hold keys
//! whose secret nobody has: they are deleted, and a new one is made. CreateAccessKey is never repeated
//! blindly.

use std::time::{Duration, SystemTime};

use aws_sdk_iam::types::{AccessKeyMetadata, Tag};

use super::call::{CallError, Operation, Resource};
use super::clients::Store;
use super::error::Error;
use super::names::is_generated_for;
use super::policy;
use super::tags::{self, Ownership, Tags};
use super::target::{Target, UserSpec};
use crate::provisioner::AppCredentials;

/// How long a user is new. A host of IAM that does not know a user yet does not know its path either: with a policy that
/// is limited by path, it answers AccessDenied to what it will allow some seconds later.
const NEW: Duration = Duration::from_secs(30);

/// What became of CreateUser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    New,
    /// An earlier call made it.
    Existing,
}

/// What GetUser says of a user.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) tags: Tags,
    /// When it was made, if the store says.
    pub(crate) made_at: Option<SystemTime>,
}

/// Makes the claim's user, limits it to the bucket, and issues a key.
pub(crate) async fn issue(
    store: &Store,
    target: &Target<'_>,
    user: UserSpec<'_>,
    tags: &Tags,
) -> Result<AppCredentials, Error> {
    let (origin, made_at) = create_user(store, target, user, tags).await?;
    let rest = async {
        put_policy(store, target, user.name).await?;
        if origin == Origin::Existing {
            delete_access_keys(store, user.name, &[]).await?;
        }
        create_only_key(store, user.name, &[]).await
    };
    rest.await.map_err(|error| of_new(target, made_at, error))
}

/// What an error means in a call about a user that was made then: AWS may not know a new one everywhere.
pub(crate) fn of_new(target: &Target<'_>, made_at: Option<SystemTime>, error: Error) -> Error {
    let age = made_at.map(|at| at.elapsed().unwrap_or_else(|ahead| ahead.duration()));
    match error {
        Error::AccessDenied { call, .. } if age.is_some_and(|age| age < NEW) && !target.endpoints.iam_is_foreign() => {
            Error::NotVisibleYet { operation: call.operation, resource: call.resource }
        }
        error => error,
    }
}

/// Issues a key to a user whose others but `kept` were deleted.
pub(crate) async fn create_only_key(store: &Store, user: &str, kept: &[&str]) -> Result<AppCredentials, Error> {
    let is_full = |error: &CallError| error.code() == "LimitExceeded";
    match create_access_key(store, user).await {
        // IAM reads lag, so that the list that was deleted may have missed a key.
        Err(error) if is_full(&error) => {
            delete_access_keys(store, user, kept).await?;
            create_access_key(store, user).await.map_err(|error| match is_full(&error) {
                true => Error::NotVisibleYet { operation: Operation::ListAccessKeys, resource: Resource::user(user) },
                false => error.into(),
            })
        }
        result => Ok(result?),
    }
}

/// Also says when the user was made.
async fn create_user(
    store: &Store,
    target: &Target<'_>,
    user: UserSpec<'_>,
    tags: &Tags,
) -> Result<(Origin, Option<SystemTime>), Error> {
    let UserSpec { name, path, permissions_boundary } = user;
    let sent = store
        .iam
        .create_user()
        .user_name(name)
        .path(path)
        .set_permissions_boundary(permissions_boundary.map(str::to_owned))
        .set_tags(Some(sdk_tags(tags)))
        .send();
    match store.call(Operation::CreateUser, Resource::user(name), sent).await {
        Ok(answer) => {
            store.account.learn(answer.user.as_ref().map(|user| user.arn.as_str()));
            Ok((Origin::New, Some(SystemTime::now())))
        }
        Err(error) if error.code() == "EntityAlreadyExists" => {
            // If this fails the user may be the claim's own, of an earlier run: the record has to stay.
            let Seen { tags: found, made_at } = look(store, name).await?;
            match ownership(target, name, &found) {
                Ownership::Ours => {}
                Ownership::Inherited => {
                    put_tags(store, name, &tags::completed(&found, tags).unwrap_or_default()).await?;
                }
                _ if made_by_go_provisioner(target, &found).is_some() => {}
                _ => return Err(Error::UserTaken { user: name.to_owned() }.untouched()),
            }
            Ok((Origin::Existing, made_at))
        }
        Err(error) => Err(Error::from(error).of_first_change()),
    }
}

/// Looks at a user that exists.
pub(crate) async fn look(store: &Store, user: &str) -> Result<Seen, CallError> {
    let sent = store.iam.get_user().user_name(user).send();
    let answer = store.call(Operation::GetUser, Resource::user(user), sent).await?;
    store.account.learn(answer.user.as_ref().map(|user| user.arn.as_str()));
    let made_at = answer.user.as_ref().and_then(|user| SystemTime::try_from(user.create_date).ok());
    let tags = answer.user.and_then(|user| user.tags).unwrap_or_default();
    Ok(Seen { tags: tags.into_iter().map(|tag| (tag.key, tag.value)).collect(), made_at })
}

/// The tags of a user that exists.
pub(crate) async fn tags_of(store: &Store, user: &str) -> Result<Tags, CallError> {
    look(store, user).await.map(|seen| seen.tags)
}

pub(crate) async fn put_tags(store: &Store, user: &str, tags: &Tags) -> Result<(), CallError> {
    let sent = store.iam.tag_user().user_name(user).set_tags(Some(sdk_tags(tags))).send();
    store.call(Operation::TagUser, Resource::user(user), sent).await.map(drop)
}

pub(crate) async fn put_policy(store: &Store, target: &Target<'_>, user: &str) -> Result<(), CallError> {
    let sent = store
        .iam
        .put_user_policy()
        .user_name(user)
        .policy_name(policy::POLICY_NAME)
        .policy_document(policy::of(target))
        .send();
    store.call(Operation::PutUserPolicy, Resource::user(user), sent).await.map(drop)
}

async fn create_access_key(store: &Store, user: &str) -> Result<AppCredentials, CallError> {
    let sent = store.iam.create_access_key().user_name(user).send();
    let answer = store.call(Operation::CreateAccessKey, Resource::user(user), sent).await?;
    // The SDK lets an answer without a key pass.
    let key = answer.access_key.ok_or_else(|| store.unreadable(Operation::CreateAccessKey, Resource::user(user)))?;
    Ok(AppCredentials {
        access_key_id: key.access_key_id,
        secret_access_key: key.secret_access_key.into(),
        session_token: None,
    })
}

/// A key of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeldKey {
    pub(crate) id: String,
    /// When it was issued, if the store says.
    pub(crate) issued_at: Option<SystemTime>,
}

/// The ids of a user's keys. A user that is gone has none.
pub(crate) async fn access_keys(store: &Store, user: &str) -> Result<Vec<String>, CallError> {
    Ok(held_keys(store, user).await?.into_iter().map(|key| key.id).collect())
}

/// The keys of a user. One that is gone has none.
pub(crate) async fn held_keys(store: &Store, user: &str) -> Result<Vec<HeldKey>, CallError> {
    let listed = store.iam.list_access_keys().user_name(user).into_paginator().items().send().collect();
    let keys: Vec<_> =
        gone_is_fine(store.call(Operation::ListAccessKeys, Resource::user(user), listed).await)?.unwrap_or_default();
    let held = |key: AccessKeyMetadata| {
        // A store that keeps no date says the beginning of time.
        let issued_at = key.create_date.filter(|at| at.secs() > 0).and_then(|at| SystemTime::try_from(at).ok());
        Some(HeldKey { id: key.access_key_id?, issued_at })
    };
    Ok(keys.into_iter().filter_map(held).collect())
}

/// Deletes all keys but `kept` of a user that is the claim's own.
pub(crate) async fn delete_access_keys(store: &Store, user: &str, kept: &[&str]) -> Result<(), CallError> {
    for id in access_keys(store, user).await?.iter().filter(|id| !kept.contains(&id.as_str())) {
        delete_access_key(store, user, id).await?;
    }
    Ok(())
}

pub(crate) async fn delete_access_key(store: &Store, user: &str, id: &str) -> Result<(), CallError> {
    let sent = store.iam.delete_access_key().user_name(user).access_key_id(id).send();
    gone_is_fine(store.call(Operation::DeleteAccessKey, Resource::user(user), sent).await).map(drop)
}

/// Whose a user is, as its tags say. Stores that are not AWS may drop the tags of CreateUser, or never show them; there a
/// user without tags is the claim's if its name ends in the claim's uid: nobody else made a user of such a name.
pub(crate) fn ownership(target: &Target<'_>, user: &str, tags: &Tags) -> Ownership {
    let is_named_for = |uid: &str| is_generated_for(user, uid);
    match tags::ownership(tags, target.record) {
        Ownership::Untagged
            if target.endpoints.iam_is_foreign()
                && target.go_policy.is_none()
                && target.record.uids().any(is_named_for) =>
        {
            Ownership::Ours
        }
        ownership => ownership,
    }
}

/// The managed policy that the Go provisioner made with this user, if it made the user.
///
/// It tagged nothing. Its OB (cluster-scoped, so not a user's to write) records the user, and a policy of
/// the same name, under keys of its own.
pub(crate) fn made_by_go_provisioner<'a>(target: &Target<'a>, tags: &Tags) -> Option<&'a str> {
    target.go_policy.filter(|_| tags.is_empty())
}

/// What is gone already counts as removed.
pub(crate) fn gone_is_fine<T>(result: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.code() == "NoSuchEntity" => Ok(None),
        Err(error) => Err(error),
    }
}

fn sdk_tags(tags: &Tags) -> Vec<Tag> {
    // Building a tag fails only without key or value, and these have both.
    tags.iter().filter_map(|(key, value)| Tag::builder().key(key).value(value).build().ok()).collect()
}
