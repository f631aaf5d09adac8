//! The ObjectBuckets of this provisioner: whether they can be read, and whether the Secrets with their provisioning
//! credentials exist. Their claims need both, also those whose class no longer exists.

use std::collections::BTreeMap;

use super::by_reason;
use crate::api::{Condition, ConditionStatus, ObjectBucket, Unreadable, wire};
use crate::cli::accounts::Accounts;
use crate::cli::output::{counted, listed};
use crate::cli::session::Session;
use crate::cli::view::Records;
use crate::controller::{read_owner, recorded_parameters};
use crate::decide::{codec, record};
use crate::error::Error;
use crate::reasons::{ORPHANED, orphaned as orphaned_reason};
use crate::store::{Finding, Provisioner, Record, SecretRef};

const ACTIONS: &str = "the command `orphans` shows the possible actions";

/// The ObjectBuckets of this provisioner.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// How many there are.
    all: usize,
    /// Names of those that cannot be read, and why.
    unreadable: Vec<String>,
    /// Names of those that were written in another cluster.
    elsewhere: Vec<String>,
    /// How many report that their claim no longer exists, by the reason.
    orphaned: BTreeMap<String, usize>,
    /// By the Secret with their provisioning credentials: one of them, and the names of all.
    owners: BTreeMap<SecretRef, (Record, Vec<String>)>,
    pub(super) accounts: Accounts,
}

/// `class_with`: the StorageClass that has the same finding.
pub(super) async fn examine<P: Provisioner>(
    session: &Session<P>,
    seen: &Seen,
    class_with: impl Fn(&Finding) -> Option<String>,
) -> Vec<Finding> {
    let mut findings = seen.findings();
    for (secret, (record, names)) in &seen.owners {
        if let Err(error) = read_owner::<P>(&session.client, record).await {
            findings.push(without_owner::<P>(secret, &error, names, &class_with));
        }
    }
    findings
}

fn without_owner<P: Provisioner>(
    secret: &SecretRef,
    error: &Error,
    names: &[String],
    class_with: impl Fn(&Finding) -> Option<String>,
) -> Finding {
    const WHAT: &str = "owner";
    let needed = listed(names, super::NAMED);
    match error {
        // Its text names a class, which may no longer exist.
        Error::OwnerSecretNotFound(_) => {
            let message =
                format!("Secret {secret} with provisioning credentials does not exist, but is needed by {needed}");
            let remedy = "create it again, with keys of the same account: without it the buckets of these ObjectBuckets can neither be checked nor deleted";
            Finding::about(WHAT).bad(message).with_remedy(remedy)
        }
        error => {
            let mut finding = super::failed::<P>(WHAT, error);
            match class_with(&finding) {
                Some(class) => {
                    let message = format!("Secret {secret} cannot be used, but is needed by {needed}");
                    return Finding::about(WHAT)
                        .bad(message)
                        .with_remedy(format!("see StorageClass {class:?}, which uses the same Secret"));
                }
                None => finding.message.push_str(&format!("; it is needed by {needed}")),
            }
            finding
        }
    }
}

/// The condition of an ObjectBucket whose claim no longer exists here.
fn orphaned(object: &ObjectBucket) -> Option<&Condition> {
    let mut conditions = object.status.iter().flat_map(|status| &status.conditions);
    // Those of other clusters are reported by name.
    conditions.find(|condition| {
        condition.type_ == ORPHANED
            && condition.status == ConditionStatus::True
            && condition.reason != orphaned_reason::OTHER_CLUSTER
    })
}

impl Seen {
    /// `cluster`: its uid; empty if it is not known.
    pub(super) fn of<P: Provisioner>(records: &Records, session: &Session<P>, cluster: &str) -> Self {
        let label = session.label();
        let is_labelled = |unreadable: &&Unreadable| {
            unreadable
                .metadata
                .labels
                .as_ref()
                .is_some_and(|labels| labels.get(wire::PROVISIONER_LABEL) == Some(&label))
        };
        let unreadable = records.unreadable.iter().filter(is_labelled);
        let unreadable: Vec<_> = unreadable.map(|object| format!("{} ({})", object.name(), object.error)).collect();
        let mut seen = Self { all: unreadable.len(), unreadable, ..Self::default() };
        for object in records.all.iter().filter(|object| session.owns(object)) {
            seen.all += 1;
            let name = record::name(object);
            if let Some(condition) = orphaned(object) {
                *seen.orphaned.entry(condition.reason.clone()).or_default() += 1;
            }
            let record = match codec::from_object(object) {
                Ok(decoded) => decoded.record,
                Err(problem) => {
                    seen.unreadable.push(format!("{name} ({problem})"));
                    continue;
                }
            };
            if !cluster.is_empty() && record.cluster.as_ref().is_some_and(|uid| uid != cluster) {
                seen.elsewhere.push(name);
            } else if let Err(problem) = recorded_parameters::<P>(&record) {
                seen.unreadable.push(format!("{name} ({problem})"));
            } else {
                seen.accounts.add(&record, &name);
                if let Some(secret) = record.plan.owner.secret.clone() {
                    seen.owners.entry(secret).or_insert_with(|| (record, Vec::new())).1.push(name);
                }
            }
        }
        seen
    }

    fn findings(&self) -> Vec<Finding> {
        const WHAT: &str = "records";
        let mut findings = Vec::new();
        if !self.unreadable.is_empty() {
            let message = format!(
                "these cannot be read, so their claims wait, and no bucket that they may name is deleted: {}",
                listed(&self.unreadable, super::NAMED)
            );
            let remedy = "correct the fields, or restore the objects from a backup";
            findings.push(Finding::about(WHAT).bad(message).with_remedy(remedy));
        }
        if !self.elsewhere.is_empty() {
            let message = format!(
                "these were written in another cluster, so nothing is done with them: {}",
                listed(&self.elsewhere, super::NAMED)
            );
            findings.push(Finding::about(WHAT).warning(message).with_remedy(ACTIONS));
        }
        if findings.is_empty() {
            findings.push(match self.all {
                0 => Finding::about(WHAT).good("there are no ObjectBuckets of this provisioner"),
                1 => Finding::about(WHAT).good("the only ObjectBucket of this provisioner can be read"),
                all => Finding::about(WHAT).good(format!("all {all} ObjectBuckets of this provisioner can be read")),
            });
        }
        if !self.orphaned.is_empty() {
            let objects = counted(self.orphaned.values().sum::<usize>(), "ObjectBucket has", "ObjectBuckets have");
            let message = format!("{objects} no claim: {}", by_reason(&self.orphaned));
            findings.push(Finding::about("orphans").warning(message).with_remedy(ACTIONS));
        }
        findings
    }
}
