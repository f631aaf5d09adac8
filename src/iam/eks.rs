//! The calls of EKS about the Pod Identity associations of a cluster, and what they return.

use aws_sdk_eks as eks;
use aws_sdk_eks::types::PodIdentityAssociation;
use aws_smithy_types::DateTime;

use crate::class::target::AssociationSpec;
use crate::client::call::{CallError, Operation, Resource};
use crate::client::error::{AssociationProblem, Error};
use crate::client::store::Store;
use crate::iam::session_policy::SessionPolicy;
use crate::s3::tags::{self, Tags};

/// An answer of EKS about something that does not exist.
pub(super) const NOT_FOUND: &str = "ResourceNotFoundException";

/// What DescribePodIdentityAssociation returns.
pub(super) struct Found {
    id: String,
    pub(super) role: String,
    has_session_tags: bool,
    has_target_role: bool,
    /// As EKS returns it.
    pub(super) text: String,
    /// `None`: it cannot be read.
    pub(super) policy: Option<SessionPolicy>,
    pub(super) tags: Tags,
    pub(super) modified_at: Option<DateTime>,
}

impl Found {
    fn of(id: &str, association: PodIdentityAssociation) -> Self {
        Self {
            id: id.to_owned(),
            role: association.role_arn.unwrap_or_default(),
            has_session_tags: association.disable_session_tags != Some(true),
            has_target_role: association.target_role_arn.is_some_and(|arn| !arn.is_empty()),
            policy: SessionPolicy::read(association.policy.as_deref()),
            text: association.policy.unwrap_or_default(),
            tags: association.tags.unwrap_or_default().into_iter().collect(),
            modified_at: association.modified_at,
        }
    }

    pub(super) fn tag(&self, key: &str) -> Option<&str> {
        tags::value(&self.tags, key)
    }

    /// Whether it has statements of the claim.
    pub(super) fn has_claim(&self, spec: &AssociationSpec<'_>) -> bool {
        self.policy.as_ref().is_some_and(|policy| policy.has(&spec.uid))
    }

    /// Whether its tags, or statements of the claim, prove that this operator has made it. Several operators may serve the same
    /// cluster under names of their own.
    pub(super) fn is_ours(&self, spec: &AssociationSpec<'_>, provisioner: &str) -> bool {
        let is_tagged = self.tag(tags::MANAGED_BY) == Some(provisioner)
            && self.tag(tags::CLAIM_NAMESPACE) == Some(spec.namespace)
            && self.tag(tags::SERVICE_ACCOUNT) == Some(spec.service_account);
        is_tagged || self.has_claim(spec)
    }

    /// Its policy, if the claim may have statements there. `cluster`: the uid of the claim's.
    ///
    /// # Errors
    /// Why it may not.
    pub(super) fn usable_policy(
        &self,
        spec: &AssociationSpec<'_>,
        (provisioner, cluster): (&str, Option<&str>),
    ) -> Result<&SessionPolicy, AssociationProblem> {
        if !self.is_ours(spec, provisioner) {
            let of_claims = self.policy.as_ref().is_some_and(|policy| !policy.uids().is_empty());
            return Err(match of_claims && self.tag(tags::MANAGED_BY).is_none() {
                true => AssociationProblem::Untagged,
                false => AssociationProblem::NotOurs,
            });
        }
        // Its pods are in that one.
        if self.tag(tags::CLUSTER_UID).zip(cluster).is_some_and(|(theirs, ours)| theirs != ours) {
            return Err(AssociationProblem::OtherCluster);
        }
        if self.has_target_role {
            return Err(AssociationProblem::TargetRole);
        }
        let policy = self.policy.as_ref().ok_or(AssociationProblem::Unreadable)?;
        // Other claims need that one.
        match self.role != spec.role && policy.uids().iter().any(|uid| *uid != spec.uid) {
            true => Err(AssociationProblem::OtherRole),
            false => Ok(policy),
        }
    }

    /// Whether pods get sessions of the role with the policy of the association.
    pub(super) fn gives(&self, role: &str) -> bool {
        self.role == role && !self.has_session_tags
    }
}

/// Ids of all associations of the cluster, or of those of one ServiceAccount (its namespace and its name).
pub(super) async fn list(
    store: &Store,
    spec: &AssociationSpec<'_>,
    of: Option<[&str; 2]>,
) -> Result<Vec<String>, CallError> {
    let (eks, call) = prepared(store, spec, Operation::ListPodIdentityAssociations)?;
    let list = || {
        let list = eks.list_pod_identity_associations().cluster_name(spec.cluster.name());
        let list = list.set_namespace(of.map(|[namespace, _]| namespace.to_owned()));
        let list = list.set_service_account(of.map(|[_, account]| account.to_owned()));
        list.into_paginator().items().send().collect::<Result<Vec<_>, _>>()
    };
    let found = store.call(call.0, call.1, list).await?;
    Ok(found.into_iter().filter_map(|association| association.association_id).collect())
}

/// `None` if it no longer exists.
pub(super) async fn describe(store: &Store, spec: &AssociationSpec<'_>, id: &str) -> Result<Option<Found>, CallError> {
    let (eks, call) = prepared(store, spec, Operation::DescribePodIdentityAssociation)?;
    let describe = eks.describe_pod_identity_association().cluster_name(spec.cluster.name()).association_id(id);
    let answer = if_it_exists(store.call(call.0, call.1, || describe.clone().send()).await)?;
    Ok(answer.and_then(|answer| answer.association).map(|association| Found::of(id, association)))
}

/// Creates the association, and returns when, by EKS's clock.
pub(super) async fn create(
    store: &Store,
    spec: &AssociationSpec<'_>,
    policy: &SessionPolicy,
    tags: &Tags,
) -> Result<Option<DateTime>, Error> {
    let (eks, (operation, resource)) = prepared(store, spec, Operation::CreatePodIdentityAssociation)?;
    store.check_quota(operation, resource.clone())?;
    let create = eks.create_pod_identity_association().cluster_name(spec.cluster.name()).role_arn(spec.role);
    let create = create.namespace(spec.namespace).service_account(spec.service_account).policy(policy.text());
    // A session has either tags or a policy.
    let create = create.disable_session_tags(true).set_tags(Some(tags.iter().cloned().collect()));
    let answer = store.call(operation, resource, || create.clone().send()).await;
    store.note_quota(operation, answer.as_ref().err());
    let answer = answer.map_err(|error| Error::from(error).of_first_change())?;
    Ok(answer.association.and_then(|association| association.modified_at))
}

/// Writes the policy, and the role if there is one; returns when, by EKS's clock.
pub(super) async fn update(
    store: &Store,
    spec: &AssociationSpec<'_>,
    found: &Found,
    (policy, role): (&SessionPolicy, Option<&str>),
) -> Result<Option<DateTime>, CallError> {
    let (eks, call) = prepared(store, spec, Operation::UpdatePodIdentityAssociation)?;
    let update = eks.update_pod_identity_association().cluster_name(spec.cluster.name()).association_id(&found.id);
    let update = update.set_role_arn(role.map(str::to_owned)).policy(policy.text()).disable_session_tags(true);
    let answer = store.call(call.0, call.1, || update.clone().send()).await?;
    Ok(answer.association.and_then(|association| association.modified_at))
}

pub(super) async fn delete(store: &Store, spec: &AssociationSpec<'_>, found: &Found) -> Result<(), CallError> {
    let (eks, call) = prepared(store, spec, Operation::DeletePodIdentityAssociation)?;
    let delete = eks.delete_pod_identity_association().cluster_name(spec.cluster.name()).association_id(&found.id);
    if_it_exists(store.call(call.0, call.1, || delete.clone().send()).await).map(drop)
}

/// `None` if it does not exist.
fn if_it_exists<T>(answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.code() == NOT_FOUND => Ok(None),
        Err(error) => Err(error),
    }
}

type Prepared<'a> = (&'a eks::Client, (Operation, Resource));

fn prepared<'a>(store: &'a Store, spec: &AssociationSpec<'_>, operation: Operation) -> Result<Prepared<'a>, CallError> {
    let resource = Resource::association(spec.service_account);
    let eks = store.eks.as_ref().ok_or_else(|| store.unreadable(operation, resource.clone()))?;
    Ok((eks, (operation, resource)))
}
