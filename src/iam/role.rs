//! The role of a ServiceAccount: an identity for all claims that name it, with an inline policy for each of them.
//!
//! IAM lets only pods of the ServiceAccount assume it: their tokens name it, and the identity provider proves who issued
//! them. Claims come and go at the same time, also in several clusters that share an issuer. So each touches only its own policy,
//! and the last one deletes the role: IAM refuses to delete a role that has a policy (DeleteConflict).

use std::time::SystemTime;

use aws_sdk_iam::types::Role;
use serde_json::{Value, json};

use crate::class::oidc::claim_of;
use crate::class::target::{RoleSpec, Target};
use crate::client::call::{CallError, Operation, Resource};
use crate::client::error::Error;
use crate::client::store::Store;
use crate::iam::document::{self, without_lists_of_one};
use crate::iam::policy::{self, Found};
use crate::iam::user::{ignore_not_found, or_not_visible_yet, sdk_tags};
use crate::s3::tags::{self, Tags};
use bucket_provisioner::store::{AccessRemoval, Checkup, ClaimId, ResourceKind, TaggedResource};

/// How often a role is created that the last of other claims deletes meanwhile.
const TRIES: u32 = 3;
/// The most roles of a page ("ListRoles", IAM API reference).
const PAGE: i32 = 1000;

/// Creates the role, or finds it, and gives it the policy of the claim.
pub(crate) async fn grant(store: &Store, target: &Target<'_>, role: &RoleSpec<'_>, tags: &Tags) -> Result<(), Error> {
    require_same_account(target, role)?;
    let mut left = TRIES;
    loop {
        let made = create(store, target, role, tags).await?;
        left -= 1;
        match put_policy(store, target, role).await {
            // The last of other claims has deleted it.
            Err(error) if left > 0 && is_gone(store, role, &made, &error).await? => {}
            Err(error) if error.code() == "NoSuchEntity" => {
                let (operation, resource) = (Operation::PutRolePolicy, Resource::role(role.name));
                return Err(Error::NotVisibleYet { operation, resource });
            }
            answer => {
                return answer.map_err(|error| or_not_visible_yet(target, made.created_at, refused(role, error)));
            }
        }
    }
}

/// Whether the role that was found no longer exists, or is another one by now. Of a role that does not exist, IAM does not know
/// the path and the boundary, to which the provisioning policy is limited: it denies the call.
async fn is_gone(store: &Store, role: &RoleSpec<'_>, made: &Made, error: &CallError) -> Result<bool, CallError> {
    match error.code() {
        "NoSuchEntity" => Ok(true),
        "AccessDenied" if !made.is_new => {
            Ok(get(store, role.name).await?.is_none_or(|found| found.created_at != made.created_at))
        }
        _ => Ok(false),
    }
}

/// A role that was created or found.
struct Made {
    is_new: bool,
    created_at: Option<SystemTime>,
}

/// IAM trusts tokens by a provider of the role's account.
fn require_same_account(target: &Target<'_>, role: &RoleSpec<'_>) -> Result<(), Error> {
    match target.record.account.as_deref() {
        Some(account) if account != role.provider.account() => Err(Error::ProviderElsewhere.without_side_effects()),
        _ => Ok(()),
    }
}

/// All policies of a role together have a limit.
fn refused(role: &RoleSpec<'_>, error: CallError) -> Error {
    match (error.code(), error.call.operation) {
        ("LimitExceeded", Operation::PutRolePolicy) => {
            Error::RoleFull { service_account: role.service_account.to_owned() }
        }
        _ => error.into(),
    }
}

/// Creates the role, or finds the one of an earlier call or of another claim.
async fn create(store: &Store, target: &Target<'_>, role: &RoleSpec<'_>, tags: &Tags) -> Result<Made, Error> {
    if !target.record.credentials_published {
        let is_full = store.check_quota(Operation::CreateRole, Resource::role(role.name)).err();
        // Another claim of the ServiceAccount may have it.
        if let Some(full) = is_full
            && get(store, role.name).await?.is_none()
        {
            return Err(full);
        }
    }
    let call = store.iam.create_role().role_name(role.name).path(role.path).set_tags(Some(sdk_tags(tags)));
    let call = call.assume_role_policy_document(trust(role).to_string());
    let call = call.set_permissions_boundary(role.permissions_boundary.map(str::to_owned));
    match store.call(Operation::CreateRole, Resource::role(role.name), || call.clone().send()).await {
        Ok(_) => {
            store.note_quota(Operation::CreateRole, None);
            Ok(Made { is_new: true, created_at: Some(SystemTime::now()) })
        }
        Err(error) if error.code() == "EntityAlreadyExists" => {
            let Some(found) = get(store, role.name).await? else {
                // IAM does not show it yet, or others have deleted it meanwhile.
                let (operation, resource) = (Operation::GetRole, Resource::role(role.name));
                return Err(Error::NotVisibleYet { operation, resource });
            };
            adopt(store, role, &found, tags).await
        }
        // Whatever AWS checks first, a role that exists needs no room.
        Err(error) if error.code() == "LimitExceeded" => match get(store, role.name).await? {
            Some(found) => adopt(store, role, &found, tags).await,
            None => {
                store.note_quota(Operation::CreateRole, Some(&error));
                Err(Error::from(error).of_first_change())
            }
        },
        Err(error) => {
            store.note_quota(Operation::CreateRole, Some(&error));
            Err(Error::from(error).of_first_change())
        }
    }
}

/// Uses a role that exists, if it is that of the ServiceAccount.
async fn adopt(store: &Store, role: &RoleSpec<'_>, found: &FoundRole, tags: &Tags) -> Result<Made, Error> {
    if !found.is_of(role) {
        return Err(Error::RoleTaken { role: role.name.to_owned() }.without_side_effects());
    }
    if !trusts(role, &found.trust) {
        put_trust(store, role).await?;
    }
    if !is_ours(role, &found.tags) {
        repair_tags(store, role, &found.tags, tags).await?;
    }
    Ok(Made { is_new: false, created_at: found.created_at })
}

/// Writes the policy of a record that was changed. Returns whether it was written: not if nothing proves that the role is that
/// of the ServiceAccount.
pub(crate) async fn change_policy(store: &Store, target: &Target<'_>, role: &RoleSpec<'_>) -> Result<bool, Error> {
    require_same_account(target, role)?;
    let found = get(store, role.name).await?;
    let is_proven = found.is_some_and(|found| found.is_of(role));
    if is_proven {
        put_policy(store, target, role).await.map_err(|error| refused(role, error))?;
    }
    Ok(is_proven)
}

/// Compares role and policy with what was created, and repairs them.
pub(crate) async fn check(
    store: &Store,
    target: &Target<'_>,
    role: &RoleSpec<'_>,
    own_tags: &Tags,
    (checkup, applied): (&mut Checkup, bool),
) -> Result<(), Error> {
    require_same_account(target, role)?;
    let Some(found) = get(store, role.name).await? else {
        checkup.keys_lost = true;
        return Ok(());
    };
    if !found.is_of(role) {
        return Err(Error::RoleTaken { role: role.name.to_owned() });
    }
    if !trusts(role, &found.trust) {
        put_trust(store, role).await?;
        checkup.repaired.push(format!("the trust policy of role {:?} had been changed; it was restored", role.name));
    }
    checkup.repaired.extend(repair_tags(store, role, &found.tags, own_tags).await?);
    // Reading it could show what it was before.
    if applied {
        return Ok(());
    }
    // The role is that of several claims: without the policy, nothing proves that this one ever had access.
    let Some(answer) = policy(store, role).await? else {
        checkup.keys_lost = true;
        return Ok(());
    };
    let found = policy::compare(&answer, target);
    if found != Found::Wanted {
        put_policy(store, target, role).await.map_err(|error| refused(role, error))?;
    }
    if found == Found::Other {
        let (policy, role) = (&role.policy, role.name);
        let what = format!("policy {policy:?} of role {role:?} had been changed; it was restored");
        checkup.repaired.push(what);
    }
    Ok(())
}

/// Repairs the operator's own tags. The others are of the claim that created the role, and other claims may set other values.
async fn repair_tags(
    store: &Store,
    role: &RoleSpec<'_>,
    found: &Tags,
    own: &Tags,
) -> Result<Option<String>, CallError> {
    let is_missing = |(key, value): &&(String, String)| match tags::value(found, key) {
        None => true,
        Some(found) => [tags::CLAIM_NAMESPACE, tags::SERVICE_ACCOUNT].contains(&key.as_str()) && found != value,
    };
    let missing: Tags = own.iter().filter(is_missing).cloned().collect();
    if missing.is_empty() {
        return Ok(None);
    }
    let call = store.iam.tag_role().role_name(role.name).set_tags(Some(sdk_tags(&missing)));
    store.call(Operation::TagRole, Resource::role(role.name), || call.clone().send()).await?;
    let was_ours = is_ours(role, found);
    Ok((!was_ours).then(|| format!("role {:?} had lost its tags; they were restored", role.name)))
}

/// Deletes the policy of the claim, and the role, unless another claim has a policy there: then IAM refuses. `ended` is called
/// when sessions of the role can no longer use the bucket.
pub(crate) async fn revoke(
    store: &Store,
    target: &Target<'_>,
    role: &RoleSpec<'_>,
    ended: impl FnOnce(),
) -> Result<AccessRemoval, Error> {
    let left = |why| Ok(AccessRemoval::LeftInPlace(format!("role {:?} was left in place: {why}", role.name)));
    // First, because IAM denies other calls about a role that does not exist: it does not know its path.
    let Some(found) = get(store, role.name).await? else {
        ended();
        return Ok(AccessRemoval::NotFound);
    };
    if found.path != role.path {
        ended();
        return left("it has another path than the roles of the claim's StorageClass");
    }
    let in_time = |error: CallError| or_not_visible_yet(target, found.created_at, error.into());
    let call = store.iam.delete_role_policy().role_name(role.name).policy_name(&role.policy);
    let answer = store.call(Operation::DeleteRolePolicy, Resource::role(role.name), || call.clone().send()).await;
    let had_policy = ignore_not_found(answer).map_err(in_time)?.is_some();
    ended();
    if !found.is_of(role) {
        return left("neither its tags nor its trust policy name the claim's ServiceAccount");
    }
    let removal = if had_policy { AccessRemoval::Deleted } else { AccessRemoval::NotFound };
    let call = store.iam.delete_role().role_name(role.name);
    let answer = store.call(Operation::DeleteRole, Resource::role(role.name), || call.clone().send()).await;
    match ignore_not_found(answer) {
        Ok(deleted) => {
            if deleted.is_some() {
                store.freed(Operation::DeleteRole);
            }
            Ok(removal)
        }
        Err(error) if error.code() == "DeleteConflict" => match has_policies(store, role).await? {
            true => Ok(removal),
            false => left("somebody has attached something to it"),
        },
        Err(error) => Err(in_time(error)),
    }
}

/// Whether claims have policies there.
async fn has_policies(store: &Store, role: &RoleSpec<'_>) -> Result<bool, CallError> {
    // Without the role, there is nothing to leave in place.
    Ok(policies(store, role.name).await?.is_none_or(|policies| !policies.is_empty()))
}

/// Names of the policies of a role.
async fn policies(store: &Store, role: &str) -> Result<Option<Vec<String>>, CallError> {
    let list = || store.iam.list_role_policies().role_name(role).into_paginator().items().send().collect();
    ignore_not_found(store.call(Operation::ListRolePolicies, Resource::role(role), list).await)
}

/// The document of the claim's policy, percent-encoded.
async fn policy(store: &Store, role: &RoleSpec<'_>) -> Result<Option<String>, CallError> {
    let call = store.iam.get_role_policy().role_name(role.name).policy_name(&role.policy);
    let answer = store.call(Operation::GetRolePolicy, Resource::role(role.name), || call.clone().send()).await;
    Ok(ignore_not_found(answer)?.map(|answer| answer.policy_document))
}

/// Whether the claim has a policy on a role of its ServiceAccount.
pub(crate) async fn has_policy(store: &Store, role: &RoleSpec<'_>) -> Result<bool, CallError> {
    Ok(policy(store, role).await?.is_some())
}

/// Names of all roles with this path.
pub(crate) async fn list(store: &Store, path: &str) -> Result<Vec<String>, CallError> {
    let list = || {
        let pages = store.iam.list_roles().path_prefix(path).into_paginator().page_size(PAGE);
        pages.items().send().collect::<Result<Vec<Role>, _>>()
    };
    let roles = store.call(Operation::ListRoles, Resource::Account, list).await?;
    Ok(roles.into_iter().map(|role| role.role_name).collect())
}

/// The access that claims have by a role of this provisioner: one for each policy that is named after a claim.
pub(crate) async fn accesses(store: &Store, role: &str, provisioner: &str) -> Result<Vec<TaggedResource>, CallError> {
    let tags = get(store, role).await?.map(|found| found.tags).unwrap_or_default();
    let tag = |key| tags::value(&tags, key);
    let (Some(namespace), Some(account)) = (tag(tags::CLAIM_NAMESPACE), tag(tags::SERVICE_ACCOUNT)) else {
        return Ok(Vec::new());
    };
    if tag(tags::MANAGED_BY) != Some(provisioner) {
        return Ok(Vec::new());
    }
    let policies = policies(store, role).await?.unwrap_or_default();
    let claims = policies.iter().filter_map(|policy| claim_of(policy)).map(|(name, uid)| {
        let claim = ClaimId { namespace: namespace.to_owned(), name: name.to_owned(), uid: uid.to_owned() };
        let cluster = tag(tags::CLUSTER_UID).map(str::to_owned);
        TaggedResource::new(ResourceKind::Role, role, claim, cluster).with_service_account(account)
    });
    Ok(claims.collect())
}

/// What GetRole returns.
struct FoundRole {
    path: String,
    tags: Tags,
    /// Percent-encoded.
    trust: String,
    created_at: Option<SystemTime>,
}

impl FoundRole {
    /// Whether its tags or its trust policy prove that it is that of the ServiceAccount.
    fn is_of(&self, role: &RoleSpec<'_>) -> bool {
        is_ours(role, &self.tags) || trusts(role, &self.trust)
    }
}

async fn get(store: &Store, role: &str) -> Result<Option<FoundRole>, CallError> {
    let call = store.iam.get_role().role_name(role);
    let answer = store.call(Operation::GetRole, Resource::role(role), || call.clone().send()).await;
    let role: Option<Role> = ignore_not_found(answer)?.and_then(|answer| answer.role);
    Ok(role.map(|role| FoundRole {
        path: role.path,
        tags: role.tags.unwrap_or_default().into_iter().map(|tag| (tag.key, tag.value)).collect(),
        trust: role.assume_role_policy_document.unwrap_or_default(),
        created_at: SystemTime::try_from(role.create_date).ok(),
    }))
}

/// Whether the tags name the ServiceAccount. Its role has no tags of a claim, because it is that of several.
fn is_ours(role: &RoleSpec<'_>, found: &Tags) -> bool {
    tags::value(found, tags::CLAIM_NAMESPACE) == Some(role.namespace)
        && tags::value(found, tags::SERVICE_ACCOUNT) == Some(role.service_account)
}

/// Who may assume the role. Tokens of Kubernetes have a list of audiences, and IAM compares a list only by a set operator;
/// without an audience `ForAnyValue` is false.
fn trust(role: &RoleSpec<'_>) -> Value {
    let (issuer, RoleSpec { namespace, service_account, audience, .. }) = (role.provider.issuer(), role);
    json!({
        "Version": "2012-10-17",
        "Statement": [{
            "Effect": "Allow",
            "Principal": { "Federated": role.provider.as_str() },
            "Action": "sts:AssumeRoleWithWebIdentity",
            "Condition": {
                "StringEquals": { format!("{issuer}:sub"): format!("system:serviceaccount:{namespace}:{service_account}") },
                "ForAnyValue:StringEquals": { format!("{issuer}:aud"): audience },
            },
        }],
    })
}

/// Whether a document that IAM returned is that trust policy.
fn trusts(role: &RoleSpec<'_>, found: &str) -> bool {
    document::read(found) == Some(without_lists_of_one(trust(role)))
}

async fn put_trust(store: &Store, role: &RoleSpec<'_>) -> Result<(), CallError> {
    let call = store.iam.update_assume_role_policy().role_name(role.name).policy_document(trust(role).to_string());
    let send = || call.clone().send();
    store.call(Operation::UpdateAssumeRolePolicy, Resource::role(role.name), send).await.map(drop)
}

async fn put_policy(store: &Store, target: &Target<'_>, role: &RoleSpec<'_>) -> Result<(), CallError> {
    let call = store.iam.put_role_policy().role_name(role.name).policy_name(&role.policy);
    let call = call.policy_document(policy::of(target));
    store.call(Operation::PutRolePolicy, Resource::role(role.name), || call.clone().send()).await.map(drop)
}
