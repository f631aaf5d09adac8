//! The claim's Secret and ConfigMap: what apps consume with `envFrom`.
//!
//! Both are written only where nothing foreign stands, and only where they differ from what they should
//! hold. Keys that others add to them are kept.

use kube::Api;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::controller::decide::metadata::{FIELD_MANAGER, controller};
use crate::controller::decide::output_data::{Heir, Output, difference, is_of, owner};
use crate::controller::error::Error;
use crate::controller::objects::deletion;
use crate::provisioner::ClaimId;

/// An output as it stands in the cluster. Not Debug: a Secret prints what it holds.
pub(crate) enum Current<T> {
    /// Nothing of that name exists.
    Absent,
    /// It exists and is controlled by this claim.
    Mine(T),
    /// It was restored for a former claim whose record this one adopts.
    Inherited(T),
}

impl<T> Current<T> {
    /// The output that is the claim's, or becomes it.
    pub(crate) fn existing(&self) -> Option<&T> {
        match self {
            Self::Absent => None,
            Self::Mine(found) | Self::Inherited(found) => Some(found),
        }
    }
}

/// Reads an output from the cluster itself.
///
/// # Errors
/// [`Error::OutputExists`] if what stands there is neither this claim's nor inherited.
pub(crate) async fn read<T: Output>(
    api: &Api<T>,
    claim: &ClaimId,
    heir: Option<Heir<'_>>,
) -> Result<Current<T>, Error> {
    match api.get_opt(&claim.name).await.map_err(Error::kubernetes(T::READ))? {
        None => Ok(Current::Absent),
        Some(found) if is_of(found.meta(), claim) => Ok(Current::Mine(found)),
        Some(found) if heir.is_some_and(|heir| heir.inherits(found.meta())) => Ok(Current::Inherited(found)),
        Some(_) => Err(taken::<T>(claim)),
    }
}

/// Reads an output that is this claim's own; `None` if there is none, or somebody else's.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn read_own<T: Output>(api: &Api<T>, claim: &ClaimId) -> Result<Option<T>, Error> {
    match read(api, claim, None).await {
        Ok(Current::Mine(found)) => Ok(Some(found)),
        Ok(Current::Absent | Current::Inherited(_)) | Err(Error::OutputExists { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn taken<T: Output>(claim: &ClaimId) -> Error {
    Error::OutputExists { kind: T::KIND, namespace: claim.namespace.clone(), name: claim.name.clone() }
}

/// Makes an output hold what it should: one write at most, none where it does already; two where one that is inherited
/// has another controller still. Returns it as it stands then, if it was written.
///
/// # Errors
/// Kubernetes refused, also because somebody else made an object of that name meanwhile.
pub(crate) async fn write<T: Output>(
    api: &Api<T>,
    current: &Current<T>,
    wanted: &T,
    claim: &ClaimId,
) -> Result<Option<T>, Error> {
    let written = match current {
        Current::Absent => {
            let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
            match api.create(&params, wanted).await {
                Err(kube::Error::Api(status)) if status.is_already_exists() => return Err(taken::<T>(claim)),
                answer => answer,
            }
        }
        Current::Mine(found) => {
            let Some(patch) = difference(found, wanted) else { return Ok(None) };
            let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
            api.patch(&claim.name, &params, &Patch::Merge(&patch)).await
        }
        Current::Inherited(found) => take_over(api, found, wanted, claim).await,
    };
    written.map(Some).map_err(Error::kubernetes(T::WRITE))
}

/// Makes an inherited output the claim's. Its entries are applied, not merged: whoever restored them is written down as
/// their author, and an entry that is merged without a change stays its author's.
async fn take_over<T: Output>(api: &Api<T>, found: &T, wanted: &T, claim: &ClaimId) -> Result<T, kube::Error> {
    let uid = &found.meta().uid;
    if controller(found.meta()).is_some() {
        // A list in a merge patch replaces the whole.
        let patch = json!({ "metadata": {
            "uid": uid,
            "resourceVersion": found.meta().resource_version,
            "ownerReferences": [owner(claim)],
        }});
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        api.patch(&claim.name, &params, &Patch::Merge(&patch)).await?;
    }
    let mut wanted = wanted.clone();
    // Without it, the object would be created if it was deleted meanwhile.
    wanted.meta_mut().uid.clone_from(uid);
    let params = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(&claim.name, &params, &Patch::Apply(&wanted)).await
}

/// Deletes an output if it is the claim's or inherited. Gone already is as good; a foreign one is left. `seen`: its uid,
/// where a cache shows that it is the claim's; else it is looked for in the cluster itself.
///
/// # Errors
/// Kubernetes refused, also because what was seen is not what stands there now.
pub(crate) async fn delete<T: Output>(
    api: &Api<T>,
    claim: &ClaimId,
    seen: Option<String>,
    heir: Option<Heir<'_>>,
) -> Result<(), Error> {
    let uid = match seen {
        Some(uid) => Some(uid),
        None => {
            let found = api.get_metadata_opt(&claim.name).await.map_err(Error::kubernetes(T::DELETE))?;
            let is_mine =
                |metadata: &ObjectMeta| is_of(metadata, claim) || heir.is_some_and(|heir| heir.inherits(metadata));
            found.filter(|found| is_mine(&found.metadata)).and_then(|found| found.metadata.uid)
        }
    };
    // The Go library put its finalizer on outputs, too; ours carry none.
    match uid {
        Some(uid) => deletion::delete(api, &claim.name, &uid).await.map_err(Error::kubernetes(T::DELETE)),
        None => Ok(()),
    }
}
