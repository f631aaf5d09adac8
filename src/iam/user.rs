//! The user of a claim: creating it, and issuing its access key.
//!
//! Only the answer of CreateAccessKey contains the secret of a key. So a user that already exists may have keys whose
//! secret nobody knows: they are deleted, and a new key is created. CreateAccessKey is never repeated blindly.

use std::time::{Duration, SystemTime};

use aws_sdk_iam::types::{AccessKeyMetadata, StatusType, Tag, User};

use crate::class::target::{Target, UserSpec};
use crate::client::account::account_of;
use crate::client::call::{CallError, Operation, Resource};
use crate::client::error::Error;
use crate::client::store::Store;
use crate::iam::policy;
use crate::s3::tags::{self, Ownership, Tags};
use bucket_provisioner::store::AppCredentials;
use bucket_provisioner::store::names::is_generated_for;

/// How long a user is new. A host of IAM that does not know a user yet does not know its path either. If the
/// provisioning policy is limited to a path, this host denies what it allows later: mostly after some seconds, at the
/// latest after two minutes, for which Terraform's provider waits, too.
const NEW: Duration = Duration::from_secs(120);

/// Whether CreateUser created the user, or an earlier call did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    New,
    Existing,
}

/// What GetUser returns about a user.
#[derive(Debug, Clone)]
pub(crate) struct FoundUser {
    pub(crate) tags: Tags,
    /// `None` if the store does not return it.
    pub(crate) created_at: Option<SystemTime>,
    pub(crate) path: String,
    /// The account in its ARN.
    pub(crate) account: Option<String>,
}

/// Which steps of [`issue`] have succeeded.
#[derive(Debug, Default)]
pub(crate) struct UserSteps {
    /// The user exists: who created it, and when.
    user: Option<(Origin, Option<SystemTime>)>,
    policy: bool,
    key: KeyStep,
}

#[derive(Debug, Default)]
enum KeyStep {
    /// This process has not tried to create one.
    #[default]
    Untried,
    /// Perhaps there is one whose secret nobody knows.
    Unknown,
    Issued(AppCredentials),
}

impl UserSteps {
    /// Whether there is a user.
    pub(crate) fn begun(&self) -> bool {
        self.user.is_some()
    }
}

/// Creates the claim's user, limits it to the bucket, and issues a key: what `steps` has is not repeated. Policy and
/// key need the user, and not each other, so they are created side by side. A key without the policy opens nothing.
pub(crate) async fn issue(
    store: &Store,
    target: &Target<'_>,
    user: UserSpec<'_>,
    tags: &Tags,
    steps: &mut UserSteps,
) -> Result<AppCredentials, Error> {
    let (origin, created_at) = match steps.user {
        Some(known) => known,
        None => *steps.user.insert(create_user(store, target, user, tags).await?),
    };
    let UserSteps { policy, key, .. } = steps;
    let policy = async {
        if !*policy {
            put_policy(store, target, user.name).await?;
            *policy = true;
        }
        Ok::<_, Error>(())
    };
    let key = async {
        if let KeyStep::Issued(issued) = key {
            return Ok(issued.clone());
        }
        if origin == Origin::Existing || matches!(key, KeyStep::Unknown) {
            delete_access_keys(store, user.name, &[]).await?;
        }
        *key = KeyStep::Unknown;
        let issued = create_only_key(store, user.name, &[]).await?;
        *key = KeyStep::Issued(issued.clone());
        Ok(issued)
    };
    let (policy, key) = tokio::join!(policy, key);
    policy.and(key).map_err(|error| or_not_visible_yet(target, created_at, error))
}

/// What an error means in a call about a user of this age: AWS may deny calls about a new user for some seconds.
pub(crate) fn or_not_visible_yet(target: &Target<'_>, created_at: Option<SystemTime>, error: Error) -> Error {
    let age = created_at.map(|at| at.elapsed().unwrap_or_else(|ahead| ahead.duration()));
    match error {
        Error::AccessDenied { call, .. } if age.is_some_and(|age| age < NEW) && !target.endpoints.iam_is_foreign() => {
            Error::NotVisibleYet { operation: call.operation, resource: call.resource }
        }
        error => error,
    }
}

/// Issues a key to a user whose keys were deleted, except `kept`.
pub(crate) async fn create_only_key(store: &Store, user: &str, kept: &[&str]) -> Result<AppCredentials, Error> {
    let is_full = |error: &CallError| error.code() == "LimitExceeded";
    match create_access_key(store, user).await {
        // IAM reads lag behind writes, so the listing before the deletion may have missed a key.
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

/// Creates the user, or finds the one of an earlier call. Also returns when it was created.
async fn create_user(
    store: &Store,
    target: &Target<'_>,
    user: UserSpec<'_>,
    tags: &Tags,
) -> Result<(Origin, Option<SystemTime>), Error> {
    let UserSpec { name, path, permissions_boundary } = user;
    // A claim whose credentials are published has its user; only its keys are replaced.
    if !target.record.credentials_published {
        store.check_quota(Operation::CreateUser, Resource::user(name))?;
    }
    let send = || {
        store
            .iam
            .create_user()
            .user_name(name)
            .path(path)
            .set_permissions_boundary(permissions_boundary.map(str::to_owned))
            .set_tags(Some(sdk_tags(tags)))
            .send()
    };
    match store.call(Operation::CreateUser, Resource::user(name), send).await {
        Ok(answer) => {
            store.note_quota(Operation::CreateUser, None);
            store.account.learn(answer.user.as_ref().map(|user| user.arn.as_str()));
            Ok((Origin::New, Some(SystemTime::now())))
        }
        Err(error) if error.code() == "EntityAlreadyExists" => {
            // If this fails, the user may be the claim's own from an earlier attempt, so the record must stay.
            let FoundUser { tags: found, created_at, .. } = get_user(store, name).await?;
            match ownership(target, name, &found) {
                Ownership::Ours => {}
                Ownership::PreviousClaim => {
                    put_tags(store, name, tags).await?;
                }
                _ if made_by_go_provisioner(target, &found).is_some() => {}
                _ => return Err(Error::UserTaken { user: name.to_owned() }.without_side_effects()),
            }
            Ok((Origin::Existing, created_at))
        }
        Err(error) => {
            store.note_quota(Operation::CreateUser, Some(&error));
            Err(Error::from(error).of_first_change())
        }
    }
}

pub(crate) async fn get_user(store: &Store, user: &str) -> Result<FoundUser, CallError> {
    let send = || store.iam.get_user().user_name(user).send();
    let answer = store.call(Operation::GetUser, Resource::user(user), send).await?;
    store.account.learn(answer.user.as_ref().map(|user| user.arn.as_str()));
    let created_at = answer.user.as_ref().and_then(|user| SystemTime::try_from(user.create_date).ok());
    let account = answer.user.as_ref().and_then(|user| account_of(&user.arn)).map(str::to_owned);
    let (path, tags) = answer.user.map(|user| (user.path, user.tags.unwrap_or_default())).unwrap_or_default();
    let tags = tags.into_iter().map(|tag| (tag.key, tag.value)).collect();
    Ok(FoundUser { tags, created_at, path, account })
}

/// As many users as IAM lists in one answer.
const PAGE: i32 = 1000;

/// All users below a path.
pub(crate) async fn list(store: &Store, path: &str) -> Result<Vec<User>, CallError> {
    let list = || {
        let pages = store.iam.list_users().path_prefix(path).into_paginator().page_size(PAGE);
        pages.items().send().collect::<Result<Vec<_>, _>>()
    };
    store.call(Operation::ListUsers, Resource::Account, list).await
}

pub(crate) async fn tags_of(store: &Store, user: &str) -> Result<Tags, CallError> {
    get_user(store, user).await.map(|user| user.tags)
}

pub(crate) async fn put_tags(store: &Store, user: &str, tags: &Tags) -> Result<(), CallError> {
    let send = || store.iam.tag_user().user_name(user).set_tags(Some(sdk_tags(tags))).send();
    store.call(Operation::TagUser, Resource::user(user), send).await.map(drop)
}

pub(crate) async fn remove_tags(store: &Store, user: &str, keys: &[&str]) -> Result<(), CallError> {
    let keys: Vec<_> = keys.iter().map(|key| (*key).to_owned()).collect();
    let send = || store.iam.untag_user().user_name(user).set_tag_keys(Some(keys.clone())).send();
    store.call(Operation::UntagUser, Resource::user(user), send).await.map(drop)
}

pub(crate) async fn put_policy(store: &Store, target: &Target<'_>, user: &str) -> Result<(), CallError> {
    let send = || {
        store
            .iam
            .put_user_policy()
            .user_name(user)
            .policy_name(policy::POLICY_NAME)
            .policy_document(policy::of(target))
            .send()
    };
    store.call(Operation::PutUserPolicy, Resource::user(user), send).await.map(drop)
}

async fn create_access_key(store: &Store, user: &str) -> Result<AppCredentials, CallError> {
    let send = || store.iam.create_access_key().user_name(user).send();
    let answer = store.call(Operation::CreateAccessKey, Resource::user(user), send).await?;
    // The SDK accepts an answer without a key.
    let key = answer.access_key.ok_or_else(|| store.unreadable(Operation::CreateAccessKey, Resource::user(user)))?;
    Ok(AppCredentials::new(key.access_key_id, key.secret_access_key.into()))
}

/// An access key of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AccessKey {
    pub(crate) id: String,
    /// `None` if the store does not return it.
    pub(crate) issued_at: Option<SystemTime>,
    /// Somebody has deactivated it.
    pub(crate) inactive: bool,
}

/// The ids of a user's keys. A user that does not exist has none.
pub(crate) async fn key_ids(store: &Store, user: &str) -> Result<Vec<String>, CallError> {
    Ok(access_keys(store, user).await?.into_iter().map(|key| key.id).collect())
}

/// The keys of a user. A user that does not exist has none.
pub(crate) async fn access_keys(store: &Store, user: &str) -> Result<Vec<AccessKey>, CallError> {
    let list = || store.iam.list_access_keys().user_name(user).into_paginator().items().send().collect();
    let keys: Vec<_> =
        ignore_not_found(store.call(Operation::ListAccessKeys, Resource::user(user), list).await)?.unwrap_or_default();
    let access_key = |key: AccessKeyMetadata| {
        // A store without dates answers 1970.
        let issued_at = key.create_date.filter(|at| at.secs() > 0).and_then(|at| SystemTime::try_from(at).ok());
        let inactive = key.status == Some(StatusType::Inactive);
        Some(AccessKey { id: key.access_key_id?, issued_at, inactive })
    };
    Ok(keys.into_iter().filter_map(access_key).collect())
}

/// Deletes all keys of a user, except `kept`.
pub(crate) async fn delete_access_keys(store: &Store, user: &str, kept: &[&str]) -> Result<(), CallError> {
    for id in key_ids(store, user).await?.iter().filter(|id| !kept.contains(&id.as_str())) {
        delete_access_key(store, user, id).await?;
    }
    Ok(())
}

pub(crate) async fn delete_access_key(store: &Store, user: &str, id: &str) -> Result<(), CallError> {
    let send = || store.iam.delete_access_key().user_name(user).access_key_id(id).send();
    ignore_not_found(store.call(Operation::DeleteAccessKey, Resource::user(user), send).await).map(drop)
}

/// Makes a key useless, until somebody activates it again.
pub(crate) async fn deactivate_access_key(store: &Store, user: &str, id: &str) -> Result<(), CallError> {
    let send = || store.iam.update_access_key().user_name(user).access_key_id(id).status(StatusType::Inactive).send();
    ignore_not_found(store.call(Operation::UpdateAccessKey, Resource::user(user), send).await).map(drop)
}

/// When a key was last used, as far as IAM knows.
pub(crate) async fn last_used(store: &Store, user: &str, id: &str) -> Result<Option<SystemTime>, CallError> {
    let send = || store.iam.get_access_key_last_used().access_key_id(id).send();
    let answer = store.call(Operation::GetAccessKeyLastUsed, Resource::user(user), send).await?;
    let date = answer.access_key_last_used.and_then(|used| used.last_used_date);
    Ok(date.and_then(|date| SystemTime::try_from(date).ok()))
}

/// Whether everything that cannot be removed like tags proves that a user is the claim's: its path, the claim's uid in
/// its name, and its account. Only the provisioning credentials can create users at this path.
pub(crate) fn is_at_its_place(target: &Target<'_>, user: UserSpec<'_>, found: &FoundUser) -> bool {
    is_named_for(target, user.name)
        && found.path == user.path
        && found.account.is_some()
        && found.account == target.record.account
}

/// Whether a user's name ends in the uid of the claim, or of a previous one.
pub(crate) fn is_named_for(target: &Target<'_>, user: &str) -> bool {
    target.record.uids().any(|uid| is_generated_for(user, uid))
}

/// Which claim a user belongs to, by its tags. Other stores than AWS may drop the tags of CreateUser, or never show
/// them; there a user without tags is the claim's if its name ends in the claim's uid, because nobody else creates such
/// a name.
pub(crate) fn ownership(target: &Target<'_>, user: &str, tags: &Tags) -> Ownership {
    match tags::ownership(tags, target.record) {
        Ownership::Untagged
            if target.endpoints.iam_is_foreign() && target.go_policy.is_none() && is_named_for(target, user) =>
        {
            Ownership::Ours
        }
        ownership => ownership,
    }
}

/// The ARN of the managed policy that the Go provisioner created with this user, if it created the user.
///
/// The Go provisioner tagged nothing. Its ObjectBucket, which users cannot write, records the user, and a policy of the
/// same name.
pub(crate) fn made_by_go_provisioner<'a>(target: &Target<'a>, tags: &Tags) -> Option<&'a str> {
    target.go_policy.filter(|_| tags.is_empty())
}

/// `None` for what does not exist, which a removal counts as removed.
pub(crate) fn ignore_not_found<T>(result: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.code() == "NoSuchEntity" => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) fn sdk_tags(tags: &Tags) -> Vec<Tag> {
    // Building a tag fails only without key or value, and these have both.
    tags.iter().filter_map(|(key, value)| Tag::builder().key(key).value(value).build().ok()).collect()
}
