//! Deleting exactly the object that was seen.

use std::fmt::Debug;

use kube::api::{DeleteParams, Patch, Preconditions};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::api::wire;
use crate::decide::metadata::{FieldManager, has_finalizer};
use operator_runtime::kubernetes::answers::status_code;

/// Deletes the object with this uid and removes our finalizer from it; succeeds if it no longer exists. Other
/// finalizers stay, and keep the object.
///
/// # Errors
/// A conflict if another object has the name now; it is not changed.
pub(crate) async fn delete<K>(api: &Api<K>, manager: &FieldManager, name: &str, uid: &str) -> Result<(), kube::Error>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    delete_version(api, manager, name, uid, None).await
}

/// The same, only if nobody has changed the object since this version, if one is given.
///
/// # Errors
/// As [`delete`].
pub(crate) async fn delete_version<K>(
    api: &Api<K>,
    manager: &FieldManager,
    name: &str,
    uid: &str,
    version: Option<String>,
) -> Result<(), kube::Error>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: version };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    // The answer is the object if a finalizer keeps it, else a Status.
    let held = match api.delete(name, &params).await {
        Err(error) if is_gone(&error) => return Ok(()),
        answer => answer?.left(),
    };
    let Some(held) = held.as_ref().map(K::meta).filter(|metadata| has_finalizer(metadata)) else { return Ok(()) };
    let rest: Vec<_> = held.finalizers.iter().flatten().filter(|f| *f != wire::FINALIZER).collect();
    // A merge patch replaces the whole list, so it must not have changed meanwhile.
    let patch = json!({ "metadata": { "uid": uid, "resourceVersion": held.resource_version, "finalizers": rest } });
    ignore_not_found(api.patch_metadata(name, &manager.merges(), &Patch::Merge(&patch)).await)
}

/// For removals: "not found" counts as success.
pub(crate) fn ignore_not_found<T>(answer: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match answer {
        Err(error) if is_gone(&error) => Ok(()),
        answer => answer.map(drop),
    }
}

fn is_gone(error: &kube::Error) -> bool {
    status_code(error) == Some(404)
}
