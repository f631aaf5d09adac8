//! The ObjectBuckets of this provisioner: whether they can be read, and whether the Secrets with their provisioning
//! credentials exist. Their claims need both, also those whose class no longer exists.

use std::collections::BTreeMap;

use kube::{Api, Client, Resource as _};

use super::listed;
use crate::api::{Guard, ObjectBucket, wire};
use crate::cli::accounts::Accounts;
use crate::cli::session;
use crate::controller::{Options, read_owner, recorded_parameters};
use crate::decide::{codec, record};
use crate::error::Error;
use crate::store::{Failure as _, Finding, Provisioner, Record, SecretRef};

/// What was read of the ObjectBuckets.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// How many belong to this provisioner.
    all: usize,
    /// Names of those that cannot be read, and why.
    unreadable: Vec<String>,
    /// Names of those that were written in another cluster.
    elsewhere: Vec<String>,
    /// By the Secret with their provisioning credentials: one of them, and the names of all.
    owners: BTreeMap<SecretRef, (Record, Vec<String>)>,
    pub(super) accounts: Accounts,
}

/// `cluster`: its uid; empty if it is not known.
///
/// # Errors
/// The finding if they cannot be read.
pub(super) async fn read<P: Provisioner>(client: &Client, options: &Options, cluster: &str) -> Result<Seen, Finding> {
    let api: Api<Guard<ObjectBucket>> = Api::all(client.clone());
    let labels = format!("{}={}", wire::PROVISIONER_LABEL, wire::provisioner_label(&options.provisioner_name));
    let mut seen = Seen::default();
    if let Err(error) = session::each_of(&api, Some(&labels), |object| seen.add::<P>(&object, options, cluster)).await {
        return Err(super::unreadable("ObjectBuckets", &error));
    }
    Ok(seen)
}

/// `class_with`: the StorageClass that has the same finding.
pub(super) async fn examine<P: Provisioner>(
    client: &Client,
    seen: &Seen,
    class_with: impl Fn(&Finding) -> Option<String>,
) -> Vec<Finding> {
    let mut findings = seen.findings();
    for (secret, (record, names)) in &seen.owners {
        if let Err(error) = read_owner::<P>(client, record).await {
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
    let needed = listed(names);
    match error {
        // Its text names a class, which may no longer exist.
        Error::OwnerSecretNotFound(_) => {
            let message =
                format!("Secret {secret} with provisioning credentials does not exist, but is needed by {needed}");
            let remedy = "create it again, with keys of the same account: without it the buckets of these ObjectBuckets can neither be checked nor deleted";
            Finding::about(WHAT).bad(message).with_remedy(remedy)
        }
        error => {
            let mut finding = Finding::about(WHAT).failed(error).with_remedy(super::remedy::<P>(error.reason()));
            match class_with(&finding) {
                Some(class) => {
                    let message = format!("Secret {secret} cannot be used, but is needed by {needed}");
                    return Finding::about(WHAT)
                        .bad(message)
                        .with_remedy(format!("see StorageClass {class}, which uses the same Secret"));
                }
                None => finding.message.push_str(&format!("; it is needed by {needed}")),
            }
            finding
        }
    }
}

impl Seen {
    fn add<P: Provisioner>(&mut self, object: &Guard<ObjectBucket>, options: &Options, cluster: &str) {
        let name = object.meta().name.clone().unwrap_or_default();
        let object = match &object.0 {
            Ok(object) => object,
            Err(unreadable) => {
                self.all += 1;
                return self.unreadable.push(format!("{name} ({})", unreadable.error));
            }
        };
        let of_others = options
            .namespace
            .as_deref()
            .is_some_and(|namespace| record::claim_name(object).is_some_and(|(of_claim, _)| of_claim != namespace));
        if of_others || !record::is_ours(object, &options.provisioner_name) {
            return;
        }
        self.all += 1;
        match codec::from_object(object) {
            Err(problem) => self.unreadable.push(format!("{name} ({problem})")),
            Ok(_) if !cluster.is_empty() && record::cluster_uid(object).is_some_and(|uid| uid != cluster) => {
                self.elsewhere.push(name);
            }
            Ok(codec::Decoded { record, .. }) => {
                if let Err(problem) = recorded_parameters::<P>(&record) {
                    return self.unreadable.push(format!("{name} ({problem})"));
                }
                self.accounts.add(&record, &name);
                if let Some(secret) = record.plan.owner_secret.clone() {
                    self.owners.entry(secret).or_insert_with(|| (record, Vec::new())).1.push(name);
                }
            }
        }
    }

    fn findings(&self) -> Vec<Finding> {
        const WHAT: &str = "records";
        let mut findings = Vec::new();
        if !self.unreadable.is_empty() {
            let message = format!(
                "these cannot be read, so their claims wait, and no bucket that they may name is deleted: {}",
                listed(&self.unreadable)
            );
            let remedy = "correct the fields, or restore the objects from a backup";
            findings.push(Finding::about(WHAT).bad(message).with_remedy(remedy));
        }
        if !self.elsewhere.is_empty() {
            let message = format!(
                "these were written in another cluster, so nothing is done with them: {}",
                listed(&self.elsewhere)
            );
            let remedy = "the command `orphans` shows the possible actions";
            findings.push(Finding::about(WHAT).warning(message).with_remedy(remedy));
        }
        if findings.is_empty() {
            findings.push(match self.all {
                0 => Finding::about(WHAT).good("there are no ObjectBuckets of this provisioner"),
                all => Finding::about(WHAT).good(format!("all {all} ObjectBuckets of this provisioner can be read")),
            });
        }
        findings
    }
}
