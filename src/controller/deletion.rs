//! Deleting exactly the object that was seen, and what our finalizer has to do with that.

use std::fmt::Debug;

use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, Preconditions};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::error::status_code;
use crate::api::wire;

/// Whether our finalizer is on an object.
pub(crate) fn has_finalizer(metadata: &ObjectMeta) -> bool {
    metadata.finalizers.as_ref().is_some_and(|all| all.iter().any(|f| f == wire::FINALIZER))
}

/// Deletes the object with this uid and takes our finalizer off it. Gone already is as good. Finalizers of
/// others stay, and hold the object.
///
/// # Errors
/// A conflict if another object has taken the name since; it is not touched.
pub(crate) async fn delete<K>(api: &Api<K>, name: &str, uid: &str) -> Result<(), kube::Error>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    // Answered with the object if something still holds it, else with a Status.
    let held = match api.delete(name, &params).await {
        Err(error) if is_gone(&error) => return Ok(()),
        answer => answer?.left(),
    };
    let Some(held) = held.as_ref().map(K::meta).filter(|metadata| has_finalizer(metadata)) else { return Ok(()) };
    let rest: Vec<_> = held.finalizers.iter().flatten().filter(|f| *f != wire::FINALIZER).collect();
    // A list in a merge patch replaces the whole: not one that others have changed meanwhile.
    let patch = json!({ "metadata": { "uid": uid, "resourceVersion": held.resource_version, "finalizers": rest } });
    gone_is_fine(api.patch_metadata(name, &PatchParams::default(), &Patch::Merge(&patch)).await)
}

/// An answer that says "not found" is what a removal is after.
pub(crate) fn gone_is_fine<T>(answer: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match answer {
        Err(error) if is_gone(&error) => Ok(()),
        answer => answer.map(drop),
    }
}

fn is_gone(error: &kube::Error) -> bool {
    status_code(error) == Some(404)
}
