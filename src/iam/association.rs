//! The Pod Identity association of a ServiceAccount: pods of it get sessions of the role of the class, limited to the buckets of
//! its claims by the policy of the association ("EKS Pod Identity associations", EKS user guide).
//!
//! EKS cannot change a policy on the condition that it is still the one that was read. So the claims of a ServiceAccount change
//! their association one after another, and only one operator changes anything. A call of an operator that was stopped may still
//! arrive later, with a policy as it was: for a while, the next operator does not change what other claims have statements in.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use aws_smithy_types::DateTime;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use crate::class::pod_identity::role_name;
use crate::class::target::{AssociationSpec, Target};
use crate::client::call::{CallError, Operation, Resource};
use crate::client::error::{AssociationProblem, Error};
use crate::client::store::Store;
use crate::iam::eks::{self, Found};
use crate::iam::session;
use crate::iam::session_policy::SessionPolicy;
use crate::s3::tags::{self, Tags};
use bucket_provisioner::store::{
    AccessRemoval, AppCredentials, Checkup, ClaimId, Probe, ResourceKind, TaggedResource, rate_wait,
};

/// How long a claim waits for others that change the same association. It is tried again later.
const PATIENCE: Duration = Duration::from_secs(10);
/// For how long EKS may show an association as it was before a change.
const LAG: Duration = Duration::from_secs(300);

/// The time of the last change of an association: by EKS's clock, and by this process's.
type Last = Option<(DateTime, Instant)>;

/// For how long calls of an operator that was stopped may still arrive.
const AFTERMATH: Duration = Duration::from_secs(30);

/// The locks of associations.
#[derive(Debug, Default)]
pub(crate) struct Associations {
    locks: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Last>>>>,
    /// When the first of them was needed.
    began: Mutex<Option<Instant>>,
}

impl Associations {
    /// Those of an operator before which there was none.
    #[cfg(test)]
    pub(crate) fn of_first_operator() -> Self {
        Self { began: Mutex::new(Instant::now().checked_sub(AFTERMATH)), ..Self::default() }
    }

    /// Whether an operator that was stopped may still change associations.
    fn are_unsettled(&self) -> bool {
        self.began.lock().get_or_insert_with(Instant::now).elapsed() < AFTERMATH
    }

    async fn lock(&self, spec: &AssociationSpec<'_>) -> Result<OwnedMutexGuard<Last>, Error> {
        let key = [spec.cluster.as_str(), spec.namespace, spec.service_account].join(" ");
        let lock = {
            let mut all = self.locks.lock();
            all.retain(|_, lock| Arc::strong_count(lock) > 1 || lock.try_lock().is_ok_and(|last| is_recent(&last)));
            Arc::clone(all.entry(key).or_default())
        };
        // Calls of others are not those of a slow store.
        let locked = rate_wait::wait(tokio::time::timeout(PATIENCE, lock.lock_owned())).await;
        locked.map_err(|_| busy(spec, "other claims are changing it"))
    }
}

fn busy(spec: &AssociationSpec<'_>, why: &str) -> Error {
    let (operation, resource) = (Operation::UpdatePodIdentityAssociation, Resource::association(spec.service_account));
    Error::StoreBusy { operation, resource, code: why.to_owned(), message: None }.without_side_effects()
}

fn is_recent(last: &Last) -> bool {
    last.is_some_and(|(_, at)| at.elapsed() < LAG)
}

/// The association of a claim's ServiceAccount, and what is needed to read and change it.
pub(crate) struct Association<'a> {
    pub(crate) all: &'a Associations,
    pub(crate) store: &'a Store,
    pub(crate) target: &'a Target<'a>,
    pub(crate) spec: &'a AssociationSpec<'a>,
    /// Name of the provisioner.
    pub(crate) provisioner: &'a str,
}

impl Association<'_> {
    /// Creates the association, or adds the claim to the one of the ServiceAccount's other claims.
    pub(crate) async fn grant(&self, tags: &Tags) -> Result<(), Error> {
        self.require_same_account()?;
        let mut last = self.all.lock(self.spec).await?;
        if let Some(found) = self.find(&last).await? {
            let policy = self.usable_policy(&found)?;
            return self.change(&found, policy, &mut last).await.map(drop);
        }
        let policy = SessionPolicy::of(self.target, &self.spec.uid);
        self.require_room(&policy)?;
        let created = eks::create(self.store, self.spec, &policy, tags).await?;
        note(&mut last, created);
        Ok(())
    }

    /// EKS gives pods only roles of the cluster's account.
    fn require_same_account(&self) -> Result<(), Error> {
        match self.target.record.account.as_deref() {
            Some(account) if account != self.spec.cluster.account() => {
                Err(Error::ClusterElsewhere.without_side_effects())
            }
            _ => Ok(()),
        }
    }

    fn usable_policy<'f>(&self, found: &'f Found) -> Result<&'f SessionPolicy, Error> {
        let policy = found.usable_policy(self.spec, (self.provisioner, self.target.record.cluster.as_deref()));
        policy.map_err(|problem| self.unusable(problem))
    }

    fn unusable(&self, problem: AssociationProblem) -> Error {
        let service_account = self.spec.service_account.to_owned();
        Error::AssociationTaken { service_account, problem }.without_side_effects()
    }

    /// Other claims may have statements that were not read.
    fn require_settled(&self, last: &Last) -> Result<(), Error> {
        match last.is_none() && self.all.are_unsettled() {
            true => Err(busy(self.spec, "an operator that was stopped may still change it")),
            false => Ok(()),
        }
    }

    fn require_room(&self, policy: &SessionPolicy) -> Result<(), Error> {
        if !policy.is_too_long() {
            return Ok(());
        }
        let service_account = self.spec.service_account.to_owned();
        Err(Error::AssociationFull { service_account }.without_side_effects())
    }

    /// The policy that the association should have, if pods do not get what the claim has now.
    fn differing(&self, found: &Found, present: &SessionPolicy) -> Option<SessionPolicy> {
        let wanted = present.clone().with(self.target, &self.spec.uid);
        let is_same = wanted.is_same(present) && found.gives(self.spec.role);
        (!is_same).then_some(wanted)
    }

    /// Writes what differs from what the claim has now, and returns whether something did.
    async fn change(&self, found: &Found, present: &SessionPolicy, last: &mut Last) -> Result<bool, Error> {
        let Some(wanted) = self.differing(found, present) else { return Ok(false) };
        self.require_room(&wanted)?;
        if wanted.is_of_others(&self.spec.uid) {
            self.require_settled(last)?;
            // A session that STS refuses would be missing to their pods, too.
            assume(self.store, self.spec, &wanted.text()).await.map_err(Error::without_side_effects)?;
        }
        note(last, eks::update(self.store, self.spec, found, (&wanted, Some(self.spec.role))).await?);
        Ok(true)
    }

    /// Writes the statements of a claim whose access was edited. Returns whether they were written: not if nothing proves that
    /// the association is the operator's.
    pub(crate) async fn change_policy(&self) -> Result<bool, Error> {
        self.require_same_account()?;
        let mut last = self.all.lock(self.spec).await?;
        let Some(found) = self.find(&last).await? else { return Ok(false) };
        if !found.is_ours(self.spec, self.provisioner) {
            return Ok(false);
        }
        let policy = self.usable_policy(&found)?;
        self.change(&found, policy, &mut last).await.map(|_| true)
    }

    /// Compares the association with what was created, and repairs it. `applied`: it was changed just now, and EKS could show what
    /// it was before.
    pub(crate) async fn check(&self, checkup: &mut Checkup, applied: bool) -> Result<(), Error> {
        self.require_same_account()?;
        if applied {
            return Ok(());
        }
        let mut last = self.all.lock(self.spec).await?;
        let Some(found) = self.find(&last).await? else {
            checkup.keys_lost = true;
            return Ok(());
        };
        let policy = self.usable_policy(&found)?;
        // Without statements nothing proves that the claim ever had access.
        if !found.has_claim(self.spec) {
            checkup.keys_lost = true;
            return Ok(());
        }
        if self.change(&found, policy, &mut last).await? {
            let account = self.spec.service_account;
            let what =
                format!("the Pod Identity association of ServiceAccount {account:?} had been changed; it was restored");
            checkup.repaired.push(what);
        }
        Ok(())
    }

    /// Deletes the statements of the claim, and the association with the last of them. `ended` is called when pods get no new
    /// session for the bucket; those that they have end by themselves.
    pub(crate) async fn revoke(&self, ended: impl FnOnce()) -> Result<AccessRemoval, Error> {
        let account = self.spec.service_account;
        let left = |why| {
            let what = format!("the Pod Identity association of ServiceAccount {account:?} was left in place: {why}");
            Ok(AccessRemoval::LeftInPlace(what))
        };
        // None was made there.
        if self.require_same_account().is_err() {
            ended();
            return Ok(AccessRemoval::NotFound);
        }
        let mut last = self.all.lock(self.spec).await?;
        let Some(found) = self.find(&last).await? else {
            ended();
            return Ok(AccessRemoval::NotFound);
        };
        let Some(policy) = found.policy.clone().filter(|_| found.is_ours(self.spec, self.provisioner)) else {
            ended();
            return left("neither its tags nor its policy show that it is the operator's");
        };
        let had_statements = found.has_claim(self.spec);
        let rest = policy.without(&self.spec.uid);
        if rest.is_empty() {
            eks::delete(self.store, self.spec, &found).await?;
            self.store.freed(Operation::DeletePodIdentityAssociation);
        } else if had_statements {
            self.require_settled(&last)?;
            // The role may be one that other claims need.
            note(&mut last, eks::update(self.store, self.spec, &found, (&rest, None)).await?);
        }
        ended();
        match rest.uids().is_empty() && !rest.is_empty() {
            true => left("somebody has added statements to its policy"),
            false => Ok(if had_statements { AccessRemoval::Deleted } else { AccessRemoval::NotFound }),
        }
    }

    /// Whether the claim has statements in the policy of its ServiceAccount's association.
    pub(crate) async fn has_statements(&self) -> Result<bool, Error> {
        self.require_same_account()?;
        let last = self.all.lock(self.spec).await?;
        Ok(self.find(&last).await?.is_some_and(|found| found.has_claim(self.spec)))
    }

    /// A session of the role with the policy of the association, as pods get one; `Err` within `Ok`: they do not get it yet. Only
    /// EKS can assume the role for them.
    pub(crate) async fn session(&self) -> Result<Result<AppCredentials, Probe>, Error> {
        self.require_same_account()?;
        let not_yet = |why: &str| Ok(Err(Probe::NotYet(why.to_owned())));
        let Some(found) = self.find(&None).await? else { return not_yet("EKS does not show the association yet") };
        let policy = self.usable_policy(&found)?;
        if self.differing(&found, policy).is_some() {
            return not_yet("EKS does not show the last change of the association yet");
        }
        assume(self.store, self.spec, &found.text).await.map(Ok)
    }

    /// Ids of all associations of the cluster, or of those of some ServiceAccounts (their namespaces and names).
    pub(crate) async fn ids(&self, of: Option<&[[&str; 2]]>) -> Result<Vec<String>, Error> {
        self.require_same_account()?;
        let Some(of) = of else { return self.list(None).await };
        let mut ids = Vec::new();
        for one in of {
            ids.extend(self.list(Some(*one)).await?);
        }
        Ok(ids)
    }

    /// The access that claims have by an association of the cluster that this provisioner has made.
    pub(crate) async fn accesses(&self, id: &str) -> Result<Vec<TaggedResource>, CallError> {
        let Some(found) = eks::describe(self.store, self.spec, id).await? else { return Ok(Vec::new()) };
        let (Some(namespace), Some(account)) = (found.tag(tags::CLAIM_NAMESPACE), found.tag(tags::SERVICE_ACCOUNT))
        else {
            return Ok(Vec::new());
        };
        if found.tag(tags::MANAGED_BY) != Some(self.provisioner) {
            return Ok(Vec::new());
        }
        let role = role_name(&found.role);
        let uids = found.policy.as_ref().map(SessionPolicy::uids).unwrap_or_default();
        let claims = uids.into_iter().map(|uid| {
            // The policy has no room for names.
            let claim = ClaimId { namespace: namespace.to_owned(), name: uid.clone(), uid };
            let cluster = found.tag(tags::CLUSTER_UID).map(str::to_owned);
            TaggedResource::new(ResourceKind::Role, role, claim, cluster).with_service_account(account)
        });
        Ok(claims.collect())
    }

    /// Finds the association of the ServiceAccount, which has one at most.
    async fn find(&self, last: &Last) -> Result<Option<Found>, Error> {
        let (store, spec) = (self.store, self.spec);
        let listed = self.list(Some([spec.namespace, spec.service_account])).await?;
        let Some(id) = listed.into_iter().next() else { return Ok(None) };
        let found = eks::describe(store, spec, &id).await?;
        // Another claim's statements would be lost that were written since.
        let shown = found.as_ref().and_then(|found| found.modified_at);
        if shown.zip(*last).is_some_and(|(shown, (last, _))| shown < last) {
            let (operation, resource) =
                (Operation::DescribePodIdentityAssociation, Resource::association(spec.service_account));
            return Err(Error::NotVisibleYet { operation, resource });
        }
        Ok(found)
    }

    /// A cluster that was deleted has none. If it is not known whose account was asked, that proves nothing.
    async fn list(&self, of: Option<[&str; 2]>) -> Result<Vec<String>, Error> {
        match eks::list(self.store, self.spec, of).await {
            Err(error) if error.code() == eks::NOT_FOUND && self.target.record.account.is_some() => Ok(Vec::new()),
            answer => Ok(answer?),
        }
    }
}

fn note(last: &mut Last, changed: Option<DateTime>) {
    if let Some(at) = changed {
        *last = Some((at, Instant::now()));
    }
}

/// A session of the role with this policy. What is wrong with it concerns the claims of the ServiceAccount only.
async fn assume(store: &Store, spec: &AssociationSpec<'_>, policy: &str) -> Result<AppCredentials, Error> {
    let resource = || Resource::association(spec.service_account);
    let Some(sts) = &store.sts else { return Err(store.unreadable(Operation::AssumeRole, resource()).into()) };
    let request = sts.assume_role().role_arn(spec.role).role_session_name(session::NAME);
    let request = request.duration_seconds(session::LENGTH).policy(policy);
    let answer = store.call(Operation::AssumeRole, resource(), || request.clone().send()).await;
    let answer = answer.map_err(|error| refused(spec, error))?;
    let keys = answer.credentials.ok_or_else(|| store.unreadable(Operation::AssumeRole, resource()))?;
    Ok(session::credentials(keys))
}

/// Whether the role can be assumed, with what a policy would give to the claim.
pub(crate) async fn try_role(store: &Store, target: &Target<'_>, spec: &AssociationSpec<'_>) -> Result<(), Error> {
    assume(store, spec, &SessionPolicy::of(target, &spec.uid).text()).await.map(drop)
}

fn refused(spec: &AssociationSpec<'_>, error: CallError) -> Error {
    match error.code() {
        // STS compresses policies, and that can take more than EKS allows ("AssumeRole", STS API reference).
        "PackedPolicyTooLarge" => Error::AssociationFull { service_account: spec.service_account.to_owned() },
        _ if error.is_refusal() => {
            let message = error.message().map(str::to_owned);
            Error::PodRoleRefused { identity: error.call.identity, message }
        }
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_operator_waits_for_the_calls_of_the_one_before_it() {
        let all = Associations::default();
        assert!(all.are_unsettled(), "its first call may be too early");
        tokio::time::advance(AFTERMATH / 2).await;
        assert!(all.are_unsettled());
        tokio::time::advance(AFTERMATH / 2).await;
        assert!(!all.are_unsettled());
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_remembered_for_as_long_as_it_may_not_be_shown() {
        assert!(!is_recent(&None));
        let changed = Some((DateTime::from_secs(1), Instant::now()));
        assert!(is_recent(&changed));
        tokio::time::advance(LAG).await;
        assert!(!is_recent(&changed));
    }
}
