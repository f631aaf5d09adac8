//! All claims of this provisioner.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, PartialObjectMeta};
use operator_runtime::kubernetes::answers::status_code;
use serde::Serialize;

use super::row::Row;
use super::scheduled::Scheduled;
use crate::api::wire;
use crate::cli::session::{Session, pages, refused};
use crate::cli::view::View;
use crate::decide::keys::KeyNotes;
use crate::decide::metadata;

/// All claims, and the buckets of deleted ones that are scheduled for deletion.
#[derive(Serialize)]
pub(crate) struct Listing {
    #[serde(rename = "claims")]
    pub(crate) rows: Vec<Row>,
    #[serde(rename = "scheduledDeletions")]
    pub(crate) scheduled: Vec<Scheduled>,
    /// What could not be read.
    #[serde(skip)]
    pub(crate) problem: Option<String>,
}

/// Reads all claims of this provisioner, in the order of a list.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn all<P>(session: &Session<P>) -> Result<Listing, String> {
    let view = View::read(session).await?;
    let (keys, problem) = keys(session).await?;
    let now = Timestamp::now();
    let shown = view.claims.iter().filter(|claim| view.is_shown(claim));
    let mut rows: Vec<_> =
        shown.map(|claim| Row::new(claim, view.record_of(claim), keys.get(&claim.id.uid), now)).collect();
    rows.sort_by(Row::before);
    let ours = view.records.all.iter().filter(|object| session.owns(object));
    Ok(Listing { rows, scheduled: ours.filter_map(Scheduled::read).collect(), problem })
}

/// The annotations about keys by the uid of the claim, and what could not be read. Only metadata is read, no key.
async fn keys<P>(session: &Session<P>) -> Result<(HashMap<String, KeyNotes>, Option<String>), String> {
    let api = session.chosen::<Secret>();
    let ours = ListParams::default().labels(&format!("{}={}", wire::PROVISIONER_LABEL, session.label()));
    let list = async |params| api.list_metadata(&params).await;
    let notes = |secret: PartialObjectMeta<Secret>| {
        let uid = metadata::controller(&secret.metadata)?.to_owned();
        Some((uid, KeyNotes::read(secret.metadata.annotations.as_ref())))
    };
    match pages(ours, list, notes).await {
        Ok(notes) => Ok((notes.into_iter().collect(), None)),
        Err(error) if status_code(&error) == Some(403) => {
            Ok((HashMap::new(), Some("you may not list Secrets, so the age of keys is not shown".to_owned())))
        }
        Err(error) => Err(refused("list the Secrets of claims")(error)),
    }
}
