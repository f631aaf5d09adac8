//! Removing the user of a claim, with its keys and policies, if the user is the claim's own: because of its tags, or
//! its name where a store keeps no tags, or because it has the key that the operator issued to the claim, or by its
//! path, name and account. If nothing proves it, its keys are deactivated, and an admin has to decide.
//!
//! Keys and policy are deleted first, so that access ends even if a later step fails. An ordinary user has one key and one inline
//! policy. AWS refuses to delete a user that has anything else (DeleteConflict); only then is the rest searched for.
//! Policies that others attached are detached, never deleted.

use std::time::SystemTime;

use futures::future::{OptionFuture, join_all};

use crate::class::target::{Target, UserSpec};
use crate::client::call::{CallError, Operation, Resource};
use crate::client::error::Error;
use crate::client::store::Store;
use crate::iam::policy::POLICY_NAME;
use crate::iam::user::{
    FoundUser, deactivate_access_key, delete_access_key, delete_access_keys, get_user, ignore_not_found,
    is_at_its_place, is_named_for, key_ids, made_by_go_provisioner, or_not_visible_yet, ownership,
};
use crate::s3::tags::Ownership;
use bucket_provisioner::store::{AccessRemoval, AppCredentials};

/// What to do with the user that a record names.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Remove,
    /// The Go provisioner created it, together with this managed policy.
    RemoveWithPolicy(String),
    /// It is somebody else's. With the reason, as a sentence.
    Leave(String),
    /// Only the key that it may have can prove whose it is. With the reason, as a sentence.
    Unproven(String),
}

/// What was found of a claim's user.
#[derive(Debug)]
pub(crate) struct Found {
    user: FoundUser,
    /// The ids of its keys, if they were listed.
    keys: Option<Result<Vec<String>, CallError>>,
}

/// Reads the user of a claim, if there is one. `present`: the keys in the claim's Secret.
pub(crate) async fn find(
    store: &Store,
    user: UserSpec<'_>,
    present: Option<&AppCredentials>,
) -> Result<Option<Found>, Error> {
    // Most likely there is a user if there are keys.
    let keys = OptionFuture::from(present.map(|_| key_ids(store, user.name)));
    let (user, keys) = tokio::join!(get_user(store, user.name), keys);
    Ok(ignore_not_found(user)?.map(|user| Found { user, keys }))
}

/// Removes what remains of a user that does not exist: an earlier call may have stopped between the user and its policy.
pub(crate) async fn remove_rest(store: &Store, target: &Target<'_>, user: UserSpec<'_>) -> Result<(), Error> {
    Ok(delete_go_policy(store, target, user.name).await?)
}

/// A user whose access has ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// It is somebody else's. With the reason, as a sentence.
    Left(String),
    /// Nothing proves whose it is. With the reason, as a sentence.
    Unproven(String),
    /// It is to be deleted.
    Ours { created_at: Option<SystemTime>, by_go_provisioner: bool },
}

/// Deletes keys and policy of the user that was found: each of them ends the access. `present`: the keys in the claim's
/// Secret.
pub(crate) async fn end_access(
    store: &Store,
    target: &Target<'_>,
    user: UserSpec<'_>,
    Found { user: found, keys }: Found,
    present: Option<&AppCredentials>,
) -> Result<Ended, Error> {
    let (name, created_at) = (user.name, found.created_at);
    let ended = async {
        let verdict = judge(target, user, &found);
        // The keys of somebody else's user need not be known.
        if let Verdict::Leave(why) = verdict {
            return Ok(Ended::Left(why));
        }
        let keys = match (keys, &verdict, present) {
            (Some(keys), ..) => keys?,
            (None, ..) => key_ids(store, name).await?,
        };
        let has_present = present.is_some_and(|present| keys.contains(&present.access_key_id));
        let by_go_provisioner = match verdict {
            Verdict::Unproven(why) if !has_present => {
                // Whoever made it can activate them again.
                if is_named_for(target, name) {
                    let keys = join_all(keys.iter().map(|id| deactivate_access_key(store, name, id))).await;
                    // Some stores can only delete keys.
                    keys.into_iter()
                        .filter(|key| !matches!(key, Err(e) if e.lacks_operation()))
                        .collect::<Result<(), _>>()?;
                }
                return Ok(Ended::Unproven(why));
            }
            Verdict::RemoveWithPolicy(policy) => {
                detach(store, name, &policy).await?;
                true
            }
            _ => false,
        };
        let keys = join_all(keys.iter().map(|id| delete_access_key(store, name, id)));
        let (keys, policy) = tokio::join!(keys, delete_inline_policy(store, name, POLICY_NAME));
        keys.into_iter().collect::<Result<(), _>>().and(policy)?;
        Ok::<_, CallError>(Ended::Ours { created_at, by_go_provisioner })
    };
    ended.await.map_err(|error| or_not_visible_yet(target, created_at, error.into()))
}

/// Deletes the user whose access has ended.
pub(crate) async fn delete(
    store: &Store,
    target: &Target<'_>,
    user: UserSpec<'_>,
    ended: Ended,
) -> Result<AccessRemoval, Error> {
    let (created_at, by_go_provisioner) = match ended {
        Ended::Left(why) => return Ok(AccessRemoval::LeftInPlace(why)),
        Ended::Unproven(why) => return Ok(AccessRemoval::Unproven(why)),
        Ended::Ours { created_at, by_go_provisioner } => (created_at, by_go_provisioner),
    };
    let deleted = async {
        remove_user(store, user.name).await?;
        store.freed(Operation::DeleteUser);
        if by_go_provisioner {
            delete_go_policy(store, target, user.name).await?;
        }
        Ok::<_, CallError>(AccessRemoval::Deleted)
    };
    deleted.await.map_err(|error| or_not_visible_yet(target, created_at, error.into()))
}

/// Deletes the managed policy that the Go provisioner created for the user. It has the user's name.
async fn delete_go_policy(store: &Store, target: &Target<'_>, user: &str) -> Result<(), CallError> {
    match target.go_policy.filter(|arn| policy_name(arn) == Some(user)) {
        Some(arn) => delete_policy(store, arn).await,
        None => Ok(()),
    }
}

fn judge(target: &Target<'_>, user: UserSpec<'_>, found: &FoundUser) -> Verdict {
    let left = |why| format!("IAM user {:?} was left in place: {why}", user.name);
    match ownership(target, user.name, &found.tags) {
        Ownership::Ours | Ownership::PreviousClaim => Verdict::Remove,
        Ownership::OtherClaim => Verdict::Leave(left("its tags name another claim")),
        Ownership::Untagged | Ownership::Foreign => match made_by_go_provisioner(target, &found.tags) {
            Some(policy) => Verdict::RemoveWithPolicy(policy.to_owned()),
            None if is_at_its_place(target, user, found) => Verdict::Remove,
            None => Verdict::Unproven(left(
                "it has neither the tags of this claim nor the key in the claim's Secret, and its path, name and account do not prove that it is the claim's",
            )),
        },
    }
}

/// `arn:<partition>:iam::<account>:policy/<path><name>`.
fn policy_name(arn: &str) -> Option<&str> {
    arn.split_once(":policy/").and_then(|(_, name)| name.rsplit('/').next())
}

async fn remove_user(store: &Store, user: &str) -> Result<(), CallError> {
    match delete_user(store, user).await {
        Err(error) if error.code() == "DeleteConflict" => {
            let denied = clear(store, user).await?;
            // What may not even be looked for is what the user still has.
            delete_user(store, user).await.map_err(|error| match denied {
                Some(denied) if error.code() == "DeleteConflict" => denied,
                _ => error,
            })
        }
        result => result,
    }
}

/// Removes from a user what others are likely to have added to it. Ways to sign in are removed first; groups last,
/// because the provisioning credentials may not be allowed to change them. Returns what could not be looked for.
async fn clear(store: &Store, user: &str) -> Result<Option<CallError>, CallError> {
    delete_access_keys(store, user, &[]).await?;
    let send = || store.iam.delete_login_profile().user_name(user).send();
    ignore_not_found(store.call(Operation::DeleteLoginProfile, Resource::user(user), send).await)?;
    let denied = remove_credentials_of_people(store, user).await?;

    let list = || store.iam.list_user_policies().user_name(user).into_paginator().items().send().collect();
    let inline: Vec<_> = ignore_not_found(store.call(Operation::ListUserPolicies, Resource::user(user), list).await)?
        .unwrap_or_default();
    for name in inline {
        delete_inline_policy(store, user, &name).await?;
    }

    let list = || store.iam.list_attached_user_policies().user_name(user).into_paginator().items().send().collect();
    let attached: Vec<_> =
        ignore_not_found(store.call(Operation::ListAttachedUserPolicies, Resource::user(user), list).await)?
            .unwrap_or_default();
    for arn in attached.into_iter().filter_map(|policy| policy.policy_arn) {
        detach(store, user, &arn).await?;
    }

    let list = || store.iam.list_groups_for_user().user_name(user).into_paginator().items().send().collect();
    let groups: Vec<_> = ignore_not_found(store.call(Operation::ListGroupsForUser, Resource::user(user), list).await)?
        .unwrap_or_default();
    for group in groups {
        let send = || store.iam.remove_user_from_group().user_name(user).group_name(&group.group_name).send();
        ignore_not_found(store.call(Operation::RemoveUserFromGroup, Resource::user(user), send).await)?;
    }

    Ok(denied)
}

/// What people sign in with, beside a password, and what they gave to AWS's other services: "Deleting an IAM user", IAM user
/// guide.
async fn remove_credentials_of_people(store: &Store, user: &str) -> Result<Option<CallError>, CallError> {
    let mut denied = None;
    let resource = || Resource::user(user);
    let list = || store.iam.list_mfa_devices().user_name(user).into_paginator().items().send().collect();
    let devices: Vec<_> = if_allowed(&mut denied, store.call(Operation::ListMFADevices, resource(), list).await)?;
    for device in devices {
        let send = || store.iam.deactivate_mfa_device().user_name(user).serial_number(&device.serial_number).send();
        ignore_not_found(store.call(Operation::DeactivateMFADevice, resource(), send).await)?;
    }

    let list = || store.iam.list_ssh_public_keys().user_name(user).into_paginator().items().send().collect();
    let keys: Vec<_> = if_allowed(&mut denied, store.call(Operation::ListSSHPublicKeys, resource(), list).await)?;
    for key in keys {
        let send =
            || store.iam.delete_ssh_public_key().user_name(user).ssh_public_key_id(&key.ssh_public_key_id).send();
        ignore_not_found(store.call(Operation::DeleteSSHPublicKey, resource(), send).await)?;
    }

    let list = || store.iam.list_signing_certificates().user_name(user).into_paginator().items().send().collect();
    let certificates: Vec<_> =
        if_allowed(&mut denied, store.call(Operation::ListSigningCertificates, resource(), list).await)?;
    for certificate in certificates {
        let id = &certificate.certificate_id;
        let send = || store.iam.delete_signing_certificate().user_name(user).certificate_id(id).send();
        ignore_not_found(store.call(Operation::DeleteSigningCertificate, resource(), send).await)?;
    }

    let list = || async {
        let answer = store.iam.list_service_specific_credentials().user_name(user).send().await?;
        Ok(answer.service_specific_credentials.unwrap_or_default())
    };
    let credentials =
        if_allowed(&mut denied, store.call(Operation::ListServiceSpecificCredentials, resource(), list).await)?;
    for credential in credentials {
        let id = &credential.service_specific_credential_id;
        let call = store.iam.delete_service_specific_credential().user_name(user).service_specific_credential_id(id);
        ignore_not_found(
            store.call(Operation::DeleteServiceSpecificCredential, resource(), || call.clone().send()).await,
        )?;
    }
    Ok(denied)
}

/// Few users have any of these, and the policies of earlier versions do not allow looking: DeleteUser tells.
fn if_allowed<T: Default>(denied: &mut Option<CallError>, answer: Result<T, CallError>) -> Result<T, CallError> {
    match ignore_not_found(answer) {
        Ok(found) => Ok(found.unwrap_or_default()),
        Err(error) if error.code() == "AccessDenied" => {
            denied.get_or_insert(error);
            Ok(T::default())
        }
        Err(error) if error.lacks_operation() => Ok(T::default()),
        Err(error) => Err(error),
    }
}

async fn delete_inline_policy(store: &Store, user: &str, name: &str) -> Result<(), CallError> {
    let send = || store.iam.delete_user_policy().user_name(user).policy_name(name).send();
    ignore_not_found(store.call(Operation::DeleteUserPolicy, Resource::user(user), send).await).map(drop)
}

async fn detach(store: &Store, user: &str, arn: &str) -> Result<(), CallError> {
    let send = || store.iam.detach_user_policy().user_name(user).policy_arn(arn).send();
    ignore_not_found(store.call(Operation::DetachUserPolicy, Resource::user(user), send).await).map(drop)
}

async fn delete_user(store: &Store, user: &str) -> Result<(), CallError> {
    let send = || store.iam.delete_user().user_name(user).send();
    ignore_not_found(store.call(Operation::DeleteUser, Resource::user(user), send).await).map(drop)
}

/// Deletes a managed policy, after its versions that are not the default one.
async fn delete_policy(store: &Store, arn: &str) -> Result<(), CallError> {
    let list = || store.iam.list_policy_versions().policy_arn(arn).into_paginator().items().send().collect();
    let versions: Vec<_> =
        ignore_not_found(store.call(Operation::ListPolicyVersions, Resource::policy(arn), list).await)?
            .unwrap_or_default();
    for version in versions.into_iter().filter(|version| !version.is_default_version) {
        let send =
            || store.iam.delete_policy_version().policy_arn(arn).set_version_id(version.version_id.clone()).send();
        ignore_not_found(store.call(Operation::DeletePolicyVersion, Resource::policy(arn), send).await)?;
    }
    let send = || store.iam.delete_policy().policy_arn(arn).send();
    ignore_not_found(store.call(Operation::DeletePolicy, Resource::policy(arn), send).await).map(drop)
}
