//! What an admin requests for an ObjectBucket with an annotation. Pure.

use crate::api::ObjectBucket;
use crate::api::wire::annotation;

/// What an admin requests for an ObjectBucket: the value of its annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// Remove the access, and the bucket if its reclaimPolicy is Delete.
    Remove,
    /// Remove the access, keep the bucket.
    Revoke,
    /// Delete only the ObjectBucket, and only after its claim.
    Forget,
    /// Give the ObjectBucket to the claim that has the recorded namespace and name.
    Adopt,
}

impl Action {
    /// The value of the annotation.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Remove => annotation::ORPHAN_REMOVE,
            Self::Revoke => annotation::ORPHAN_REVOKE,
            Self::Forget => annotation::ORPHAN_FORGET,
            Self::Adopt => annotation::ORPHAN_ADOPT,
        }
    }
}

/// Reads the annotation of an ObjectBucket.
///
/// # Errors
/// An unknown value.
pub(crate) fn action(object: &ObjectBucket) -> Result<Option<Action>, String> {
    let value = object.metadata.annotations.as_ref().and_then(|all| all.get(annotation::ORPHAN));
    Ok(Some(match value.map(String::as_str) {
        None => return Ok(None),
        Some(annotation::ORPHAN_REMOVE) => Action::Remove,
        Some(annotation::ORPHAN_REVOKE) => Action::Revoke,
        Some(annotation::ORPHAN_FORGET) => Action::Forget,
        Some(annotation::ORPHAN_ADOPT) => Action::Adopt,
        Some(unknown) => return Err(unknown.to_owned()),
    }))
}
