//! The Pod Identity association of a ServiceAccount: pods of it get sessions of the role of the class, limited to the buckets of
//! its claims by the policy of the association ("EKS Pod Identity associations", EKS user guide).
//!
//! EKS cannot change a policy on the condition that it is still the one that was read. So the claims of a ServiceAccount change
//! their association one after another; only one operator of a cluster changes anything.

use std::collections::HashMap;
use std::sync::Arc;

use aws_sdk_eks as eks;
use aws_sdk_eks::types::PodIdentityAssociation;
use aws_smithy_types::DateTime;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use crate::class::target::{AssociationSpec, Target};
use crate::client::call::{CallError, Operation, Resource};
use crate::client::error::Error;
use crate::client::store::Store;
use crate::iam::session_policy::SessionPolicy;
use crate::s3::tags::{self, Tags};
use bucket_provisioner::store::{AccessRemoval, AppCredentials, Checkup, ClaimId, ResourceKind, TaggedResource};

/// How long the session with which access is tried is valid, in seconds: the shortest that STS grants.
const LENGTH: i32 = 900;
/// CloudTrail shows it.
const NAME: &str = "aws-s3-provisioner-probe";

/// The locks of associations, with the time of the last change of each, by EKS's clock.
#[derive(Debug, Default)]
pub(crate) struct Associations(Mutex<HashMap<String, Arc<tokio::sync::Mutex<Option<DateTime>>>>>);

type Locked = OwnedMutexGuard<Option<DateTime>>;

impl Associations {
    async fn lock(&self, spec: &AssociationSpec<'_>) -> Locked {
        let key = [spec.cluster.as_str(), spec.namespace, spec.service_account].join(" ");
        let lock = Arc::clone(self.0.lock().entry(key).or_default());
        lock.lock_owned().await
    }
}

/// Creates the association, or adds the claim to the one of the ServiceAccount's other claims.
pub(crate) async fn grant(
    all: &Associations,
    store: &Store,
    target: &Target<'_>,
    spec: &AssociationSpec<'_>,
    tags: &Tags,
) -> Result<(), Error> {
    require_same_account(target, spec)?;
    let mut last = all.lock(spec).await;
    match find(store, spec, &last).await? {
        None => create(store, target, spec, tags, &mut last).await,
        Some(found) if found.is_ours(spec) => change(store, target, spec, &found, &mut last).await.map(drop),
        Some(_) => {
            let service_account = spec.service_account.to_owned();
            Err(Error::AssociationTaken { service_account }.without_side_effects())
        }
    }
}

/// EKS gives pods only roles of the cluster's account.
fn require_same_account(target: &Target<'_>, spec: &AssociationSpec<'_>) -> Result<(), Error> {
    match target.record.account.as_deref() {
        Some(account) if account != spec.cluster.account() => Err(Error::ClusterElsewhere.without_side_effects()),
        _ => Ok(()),
    }
}

/// Writes the statements of a claim whose access was edited. Returns whether they were written: not if nothing proves that the
/// association is the operator's.
pub(crate) async fn change_policy(
    all: &Associations,
    store: &Store,
    target: &Target<'_>,
    spec: &AssociationSpec<'_>,
) -> Result<bool, Error> {
    require_same_account(target, spec)?;
    let mut last = all.lock(spec).await;
    let found = find(store, spec, &last).await?;
    let Some(found) = found.filter(|found| found.is_ours(spec)) else { return Ok(false) };
    change(store, target, spec, &found, &mut last).await.map(|_| true)
}

/// Compares the association with what was created, and repairs it.
pub(crate) async fn check(
    all: &Associations,
    store: &Store,
    target: &Target<'_>,
    spec: &AssociationSpec<'_>,
    (checkup, applied): (&mut Checkup, bool),
) -> Result<(), Error> {
    require_same_account(target, spec)?;
    // It was read just now, and could show what it was before.
    if applied {
        return Ok(());
    }
    let mut last = all.lock(spec).await;
    let Some(found) = find(store, spec, &last).await? else {
        checkup.keys_lost = true;
        return Ok(());
    };
    if !found.is_ours(spec) {
        return Err(Error::AssociationTaken { service_account: spec.service_account.to_owned() });
    }
    // Without statements nothing proves that the claim ever had access.
    if !found.policy.as_ref().is_some_and(|policy| policy.has(&spec.uid)) {
        checkup.keys_lost = true;
        return Ok(());
    }
    if change(store, target, spec, &found, &mut last).await? {
        let account = spec.service_account;
        let what =
            format!("the Pod Identity association of ServiceAccount {account:?} had been changed; it was restored");
        checkup.repaired.push(what);
    }
    Ok(())
}

/// Deletes the statements of the claim, and the association with the last of them. `ended` is called when pods get no new
/// session for the bucket; those that they have end by themselves.
pub(crate) async fn revoke(
    all: &Associations,
    store: &Store,
    spec: &AssociationSpec<'_>,
    ended: impl FnOnce(),
) -> Result<AccessRemoval, Error> {
    let account = spec.service_account;
    let left = |why| {
        let what = format!("the Pod Identity association of ServiceAccount {account:?} was left in place: {why}");
        Ok(AccessRemoval::LeftInPlace(what))
    };
    let mut last = all.lock(spec).await;
    let Some(found) = find(store, spec, &last).await? else {
        ended();
        return Ok(AccessRemoval::NotFound);
    };
    let Some(policy) = found.policy.clone().filter(|_| found.is_ours(spec)) else {
        ended();
        return left("neither its tags nor its policy show that it is the operator's");
    };
    let had_statements = policy.has(&spec.uid);
    let rest = policy.without(&spec.uid);
    if rest.is_empty() {
        delete(store, spec, &found).await?;
        store.freed(Operation::DeletePodIdentityAssociation);
    } else if had_statements {
        update(store, spec, &found, &rest, &mut last).await?;
    }
    ended();
    match rest.uids().is_empty() && !rest.is_empty() {
        true => left("somebody has added statements to its policy"),
        false => Ok(if had_statements { AccessRemoval::Deleted } else { AccessRemoval::NotFound }),
    }
}

/// Whether the claim has statements in the policy of its ServiceAccount's association.
pub(crate) async fn has_statements(
    all: &Associations,
    store: &Store,
    spec: &AssociationSpec<'_>,
) -> Result<bool, Error> {
    let last = all.lock(spec).await;
    let found = find(store, spec, &last).await?;
    Ok(found.and_then(|found| found.policy).is_some_and(|policy| policy.has(&spec.uid)))
}

/// A session of the role with what the policy gives to the claim, as pods get one. Only EKS can assume the role for them.
pub(crate) async fn assume(
    store: &Store,
    target: &Target<'_>,
    spec: &AssociationSpec<'_>,
) -> Result<AppCredentials, Error> {
    let resource = || Resource::role(spec.role);
    let Some(sts) = &store.sts else { return Err(store.unreadable(Operation::AssumeRole, resource()).into()) };
    let policy = SessionPolicy::of(target, &spec.uid).text();
    let request = sts.assume_role().role_arn(spec.role).role_session_name(NAME).duration_seconds(LENGTH).policy(policy);
    let answer = store.call(Operation::AssumeRole, resource(), || request.clone().send()).await.map_err(refused)?;
    let keys = answer.credentials.ok_or_else(|| store.unreadable(Operation::AssumeRole, resource()))?;
    let session = AppCredentials::new(keys.access_key_id, keys.secret_access_key.into());
    Ok(session.with_session_token(keys.session_token.into()))
}

fn refused(error: CallError) -> Error {
    match error.code() {
        "AccessDenied" => {
            let message = error.message().map(str::to_owned);
            Error::PodRoleRefused { identity: error.call.identity, message }
        }
        _ => error.into(),
    }
}

/// The access that claims of this provisioner have by an association of the cluster, by its id.
pub(crate) async fn accesses(
    store: &Store,
    spec: &AssociationSpec<'_>,
    provisioner: &str,
    id: &str,
) -> Result<Vec<TaggedResource>, CallError> {
    let Some(found) = describe(store, spec, id).await? else { return Ok(Vec::new()) };
    let tag = |key| tags::value(&found.tags, key);
    let (Some(namespace), Some(account)) = (tag(tags::CLAIM_NAMESPACE), tag(tags::SERVICE_ACCOUNT)) else {
        return Ok(Vec::new());
    };
    if tag(tags::MANAGED_BY) != Some(provisioner) {
        return Ok(Vec::new());
    }
    let role = found.role.rsplit('/').next().unwrap_or_default();
    let uids = found.policy.as_ref().map(SessionPolicy::uids).unwrap_or_default();
    let claims = uids.into_iter().map(|uid| {
        // The policy has no room for names.
        let claim = ClaimId { namespace: namespace.to_owned(), name: uid.clone(), uid };
        let cluster = tag(tags::CLUSTER_UID).map(str::to_owned);
        TaggedResource::new(ResourceKind::Role, role, claim, cluster).with_service_account(account)
    });
    Ok(claims.collect())
}

/// Ids of all associations of the cluster, or of those of one ServiceAccount (its namespace and its name).
pub(crate) async fn list(
    store: &Store,
    spec: &AssociationSpec<'_>,
    of: Option<[&str; 2]>,
) -> Result<Vec<String>, CallError> {
    let (operation, resource) = (Operation::ListPodIdentityAssociations, Resource::association(spec.service_account));
    let eks = client(store, operation, &resource)?;
    let list = || {
        let call = eks.list_pod_identity_associations().cluster_name(spec.cluster.name());
        let call = call.set_namespace(of.map(|[namespace, _]| namespace.to_owned()));
        let call = call.set_service_account(of.map(|[_, account]| account.to_owned()));
        call.into_paginator().items().send().collect::<Result<Vec<_>, _>>()
    };
    let found = store.call(operation, resource, list).await?;
    Ok(found.into_iter().filter_map(|association| association.association_id).collect())
}

/// What DescribePodIdentityAssociation returns.
struct Found {
    id: String,
    role: String,
    has_session_tags: bool,
    has_target_role: bool,
    /// `None`: it cannot be read.
    policy: Option<SessionPolicy>,
    tags: Tags,
    modified_at: Option<DateTime>,
}

impl Found {
    fn of(id: &str, association: PodIdentityAssociation) -> Self {
        Self {
            id: id.to_owned(),
            role: association.role_arn.unwrap_or_default(),
            has_session_tags: association.disable_session_tags != Some(true),
            has_target_role: association.target_role_arn.is_some_and(|arn| !arn.is_empty()),
            policy: SessionPolicy::read(association.policy.as_deref()),
            tags: association.tags.unwrap_or_default().into_iter().collect(),
            modified_at: association.modified_at,
        }
    }

    /// Whether its tags, or statements of the claim, prove that the operator has made it.
    fn is_ours(&self, spec: &AssociationSpec<'_>) -> bool {
        let is_tagged = tags::value(&self.tags, tags::CLAIM_NAMESPACE) == Some(spec.namespace)
            && tags::value(&self.tags, tags::SERVICE_ACCOUNT) == Some(spec.service_account);
        is_tagged || self.policy.as_ref().is_some_and(|policy| policy.has(&spec.uid))
    }
}

/// Finds the association of the ServiceAccount, which has one at most.
async fn find(store: &Store, spec: &AssociationSpec<'_>, last: &Locked) -> Result<Option<Found>, Error> {
    let Some(id) = list(store, spec, Some([spec.namespace, spec.service_account])).await?.into_iter().next() else {
        return Ok(None);
    };
    let found = describe(store, spec, &id).await?;
    // Another claim's statements would be lost that were written since.
    if found.as_ref().and_then(|found| found.modified_at).zip(**last).is_some_and(|(shown, last)| shown < last) {
        let (operation, resource) =
            (Operation::DescribePodIdentityAssociation, Resource::association(spec.service_account));
        return Err(Error::NotVisibleYet { operation, resource });
    }
    Ok(found)
}

async fn describe(store: &Store, spec: &AssociationSpec<'_>, id: &str) -> Result<Option<Found>, CallError> {
    let (operation, resource) =
        (Operation::DescribePodIdentityAssociation, Resource::association(spec.service_account));
    let eks = client(store, operation, &resource)?;
    let call = eks.describe_pod_identity_association().cluster_name(spec.cluster.name()).association_id(id);
    let answer = if_it_exists(store.call(operation, resource, || call.clone().send()).await)?;
    Ok(answer.and_then(|answer| answer.association).map(|association| Found::of(id, association)))
}

async fn create(
    store: &Store,
    target: &Target<'_>,
    spec: &AssociationSpec<'_>,
    tags: &Tags,
    last: &mut Locked,
) -> Result<(), Error> {
    let (operation, resource) = (Operation::CreatePodIdentityAssociation, Resource::association(spec.service_account));
    store.check_quota(operation, resource.clone())?;
    let policy = SessionPolicy::of(target, &spec.uid);
    if policy.is_too_long() {
        return Err(full(spec).without_side_effects());
    }
    let eks = client(store, operation, &resource)?;
    let call = eks.create_pod_identity_association().cluster_name(spec.cluster.name()).role_arn(spec.role);
    let call = call.namespace(spec.namespace).service_account(spec.service_account).policy(policy.text());
    // A session has either tags or a policy.
    let call = call.disable_session_tags(true).set_tags(Some(tags.iter().cloned().collect()));
    match store.call(operation, resource, || call.clone().send()).await {
        Ok(answer) => {
            store.note_quota(operation, None);
            note(last, answer.association);
            Ok(())
        }
        Err(error) => {
            store.note_quota(operation, Some(&error));
            Err(Error::from(error).of_first_change())
        }
    }
}

/// Writes what differs from what the claim has now, and returns whether something did.
async fn change(
    store: &Store,
    target: &Target<'_>,
    spec: &AssociationSpec<'_>,
    found: &Found,
    last: &mut Locked,
) -> Result<bool, Error> {
    let present = found.policy.clone().unwrap_or_default();
    let wanted = present.clone().with(target, &spec.uid);
    let is_same = found.policy.is_some() && wanted.is_same(&present) && found.role == spec.role;
    if is_same && !found.has_session_tags && !found.has_target_role {
        return Ok(false);
    }
    if wanted.is_too_long() {
        return Err(full(spec).without_side_effects());
    }
    update(store, spec, found, &wanted, last).await?;
    Ok(true)
}

fn full(spec: &AssociationSpec<'_>) -> Error {
    Error::AssociationFull { service_account: spec.service_account.to_owned() }
}

async fn update(
    store: &Store,
    spec: &AssociationSpec<'_>,
    found: &Found,
    policy: &SessionPolicy,
    last: &mut Locked,
) -> Result<(), CallError> {
    let (operation, resource) = (Operation::UpdatePodIdentityAssociation, Resource::association(spec.service_account));
    let eks = client(store, operation, &resource)?;
    let call = eks.update_pod_identity_association().cluster_name(spec.cluster.name()).association_id(&found.id);
    let call = call.role_arn(spec.role).policy(policy.text()).disable_session_tags(true);
    let call = call.set_target_role_arn(found.has_target_role.then(String::new));
    let answer = store.call(operation, resource, || call.clone().send()).await?;
    note(last, answer.association);
    Ok(())
}

async fn delete(store: &Store, spec: &AssociationSpec<'_>, found: &Found) -> Result<(), CallError> {
    let (operation, resource) = (Operation::DeletePodIdentityAssociation, Resource::association(spec.service_account));
    let eks = client(store, operation, &resource)?;
    let call = eks.delete_pod_identity_association().cluster_name(spec.cluster.name()).association_id(&found.id);
    if_it_exists(store.call(operation, resource, || call.clone().send()).await).map(drop)
}

fn note(last: &mut Locked, changed: Option<PodIdentityAssociation>) {
    if let Some(at) = changed.and_then(|association| association.modified_at) {
        **last = Some(at);
    }
}

/// `None` if the association no longer exists.
fn if_it_exists<T>(answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.code() == "ResourceNotFoundException" => Ok(None),
        Err(error) => Err(error),
    }
}

fn client<'a>(store: &'a Store, operation: Operation, resource: &Resource) -> Result<&'a eks::Client, CallError> {
    store.eks.as_ref().ok_or_else(|| store.unreadable(operation, resource.clone()))
}
