//! The claim's Secret and ConfigMap: what apps consume with `envFrom`.
//!
//! A foreign object of the same name is never changed, and an output is written only if it differs from what it should
//! be. Entries that others add are kept.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::decide::metadata::{FieldManager, controller};
use crate::decide::output_data::{Output, PreviousOwner, difference, is_of, owner, replacement};
use crate::error::Error;
use crate::objects::deletion;
use crate::store::ClaimId;

/// An output in the cluster. Not Debug, because a Secret would print its data.
pub(crate) enum Current<T> {
    /// Nothing of that name exists.
    Absent,
    /// It belongs to this claim.
    Owned(T),
    /// It was restored for a previous claim, and this claim adopts that claim's record.
    Restored(T),
}

impl<T> Current<T> {
    /// The output that is the claim's, or will be.
    pub(crate) fn existing(&self) -> Option<&T> {
        match self {
            Self::Absent => None,
            Self::Owned(found) | Self::Restored(found) => Some(found),
        }
    }
}

/// Reads an output from the cluster.
///
/// # Errors
/// [`Error::OutputExists`] if it is neither this claim's nor inherited.
pub(crate) async fn read<T: Output>(
    api: &Api<T>,
    claim: &ClaimId,
    previous_owner: Option<PreviousOwner<'_>>,
) -> Result<Current<T>, Error> {
    match api.get_opt(&claim.name).await.map_err(Error::kubernetes(T::READ))? {
        None => Ok(Current::Absent),
        Some(found) if is_of(found.meta(), claim) => Ok(Current::Owned(found)),
        Some(found) if previous_owner.is_some_and(|previous_owner| previous_owner.inherits(found.meta())) => {
            Ok(Current::Restored(found))
        }
        Some(_) => Err(taken::<T>(claim)),
    }
}

/// Reads an output that belongs to this claim; `None` if there is none, or a foreign one.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn read_own<T: Output>(api: &Api<T>, claim: &ClaimId) -> Result<Option<T>, Error> {
    match read(api, claim, None).await {
        Ok(Current::Owned(found)) => Ok(Some(found)),
        Ok(Current::Absent | Current::Restored(_)) | Err(Error::OutputExists { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn taken<T: Output>(claim: &ClaimId) -> Error {
    Error::OutputExists { kind: T::KIND, namespace: claim.namespace.clone(), name: claim.name.clone() }
}

/// Writes an output if it differs from `wanted`: at most one write, or two for an inherited output that still has
/// another controller. Returns the output, if it was written.
///
/// # Errors
/// Kubernetes refused, also because somebody else created an object of that name meanwhile.
pub(crate) async fn write<T: Output>(
    api: &Api<T>,
    manager: &FieldManager,
    current: &Current<T>,
    wanted: &T,
    claim: &ClaimId,
) -> Result<Option<T>, Error> {
    let written = match current {
        Current::Absent => {
            let params = manager.creates();
            match api.create(&params, wanted).await {
                Err(kube::Error::Api(status)) if status.is_already_exists() => return Err(taken::<T>(claim)),
                answer => answer,
            }
        }
        Current::Owned(found) => {
            let Some(patch) = difference(found, wanted) else { return Ok(None) };
            if let Some(other) = replacement(found, wanted, &patch) {
                return replace(api, manager, found, other).await.map(Some);
            }
            let params = manager.merges();
            api.patch(&claim.name, &params, &Patch::Merge(&patch)).await
        }
        Current::Restored(found) => {
            let patch = difference(found, wanted).unwrap_or_default();
            if let Some(other) = replacement(found, wanted, &patch) {
                return replace(api, manager, found, other).await.map(Some);
            }
            take_over(api, manager, found, wanted, claim).await
        }
    };
    written.map(Some).map_err(Error::kubernetes(T::WRITE))
}

/// Replaces an immutable output. A dry run creates the new one before the old one is deleted.
async fn replace<T: Output>(
    api: &Api<T>,
    manager: &FieldManager,
    found: &T,
    other: Result<T, serde_json::Error>,
) -> Result<T, Error> {
    let other = built(other)?;
    try_create(api, manager, &other).await?;
    if let (Some(name), Some(uid)) = (&found.meta().name, &found.meta().uid) {
        deletion::delete(api, manager, name, uid).await.map_err(Error::kubernetes(T::WRITE))?;
    }
    let params = manager.creates();
    api.create(&params, &other).await.map_err(Error::kubernetes(T::WRITE))
}

fn built<T: Output>(other: Result<T, serde_json::Error>) -> Result<T, Error> {
    other.map_err(|error| Error::kubernetes(T::WRITE)(kube::Error::SerdeError(error)))
}

/// Whether an output can be written, as far as a dry run shows: quotas and admission policies may refuse it, and then keys
/// must not be issued. Returns [`Current::Absent`] if there was none before. That the name is taken is found last, after
/// quotas and admission policies were asked.
///
/// # Errors
/// Kubernetes would refuse it.
pub(crate) async fn try_create<T: Output>(
    api: &Api<T>,
    manager: &FieldManager,
    wanted: &T,
) -> Result<Option<Current<T>>, Error> {
    let params = PostParams { dry_run: true, ..manager.creates() };
    match api.create(&params, wanted).await {
        Ok(_) => Ok(Some(Current::Absent)),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(None),
        Err(error) if knows_no_dry_run(&error) => Ok(None),
        Err(error) => Err(Error::kubernetes(T::WRITE)(error)),
    }
}

/// The same of an output that exists.
///
/// # Errors
/// Kubernetes would refuse it.
pub(crate) async fn try_patch<T: Output>(
    api: &Api<T>,
    manager: &FieldManager,
    found: &T,
    wanted: &T,
) -> Result<(), Error> {
    let (Some(name), Some(patch)) = (&found.meta().name, difference(found, wanted)) else { return Ok(()) };
    if let Some(other) = replacement(found, wanted, &patch) {
        return try_create(api, manager, &built(other)?).await.map(drop);
    }
    let params = PatchParams { dry_run: true, ..manager.merges() };
    match api.patch(name, &params, &Patch::Merge(&patch)).await {
        Err(error) if !knows_no_dry_run(&error) => Err(Error::kubernetes(T::WRITE)(error)),
        _ => Ok(()),
    }
}

/// Whether a dry run is refused because of an admission webhook that has side effects ("Make dry-run requests",
/// Kubernetes documentation).
fn knows_no_dry_run(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 400 && status.message.contains("does not support dry run"))
}

/// Makes an inherited output the claim's. Its entries are applied, not merged: `managedFields` names whoever restored
/// them, and a merge that does not change an entry would not change its manager.
async fn take_over<T: Output>(
    api: &Api<T>,
    manager: &FieldManager,
    found: &T,
    wanted: &T,
    claim: &ClaimId,
) -> Result<T, kube::Error> {
    let uid = &found.meta().uid;
    if controller(found.meta()).is_some() {
        // A merge patch replaces the whole list.
        let patch = json!({ "metadata": {
            "uid": uid,
            "resourceVersion": found.meta().resource_version,
            "ownerReferences": [owner(claim)],
        }});
        let params = manager.merges();
        api.patch(&claim.name, &params, &Patch::Merge(&patch)).await?;
    }
    let mut wanted = wanted.clone();
    // Without it, the object would be created if it was deleted meanwhile.
    wanted.meta_mut().uid.clone_from(uid);
    let params = manager.applies();
    api.patch(&claim.name, &params, &Patch::Apply(&wanted)).await
}

/// Removes entries of a claim's own ConfigMap, as far as it has them.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn remove_entries(
    api: &Api<ConfigMap>,
    manager: &FieldManager,
    found: &ConfigMap,
    keys: impl Iterator<Item = &String>,
) -> Result<(), Error> {
    let has = |key: &&String| found.data.as_ref().is_some_and(|data| data.contains_key(*key));
    let removed: serde_json::Map<_, _> = keys.filter(has).map(|key| (key.clone(), Value::Null)).collect();
    let (Some(name), false) = (&found.metadata.name, removed.is_empty()) else { return Ok(()) };
    let patch = json!({ "metadata": { "uid": found.metadata.uid }, "data": removed });
    let written = api.patch(name, &manager.merges(), &Patch::Merge(&patch)).await;
    written.map(drop).map_err(Error::kubernetes(ConfigMap::WRITE))
}

/// Deletes an output if it is the claim's or inherited; succeeds if it no longer exists. `seen`: its uid, if a cache
/// shows that it is the claim's; else it is read from the cluster.
///
/// # Errors
/// Kubernetes refused, also because another object has the name now.
pub(crate) async fn delete<T: Output>(
    api: &Api<T>,
    manager: &FieldManager,
    claim: &ClaimId,
    seen: Option<String>,
    previous_owner: Option<PreviousOwner<'_>>,
) -> Result<(), Error> {
    let uid = match seen {
        Some(uid) => Some(uid),
        None => {
            let found = api.get_metadata_opt(&claim.name).await.map_err(Error::kubernetes(T::DELETE))?;
            let is_mine = |metadata: &ObjectMeta| {
                is_of(metadata, claim) || previous_owner.is_some_and(|previous_owner| previous_owner.inherits(metadata))
            };
            found.filter(|found| is_mine(&found.metadata)).and_then(|found| found.metadata.uid)
        }
    };
    // Outputs of the Go library have a finalizer; ours have none.
    match uid {
        Some(uid) => deletion::delete(api, manager, &claim.name, &uid).await.map_err(Error::kubernetes(T::DELETE)),
        None => Ok(()),
    }
}
