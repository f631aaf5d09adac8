//! A bound claim over time: keys that are replaced, and what is checked and repaired.

mod drift;
mod previous_keys;
mod refused_keys;
mod rotation;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::support::{World, bucket_of, seen};

pub(crate) const DENIED: &str =
    "<ErrorResponse><Error><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>";

/// A claim that is bound, and what its app had at first.
struct Bound {
    user: String,
    bucket: String,
    environment: BTreeMap<String, String>,
}

impl Bound {
    async fn new(world: &World, class: &str) -> Self {
        let claim = world.claim("photos", class).await;
        let bucket = bucket_of(&world.wait_bound("photos").await);
        let user = world.account.users_with(&claim.metadata.uid.unwrap()).await.pop().unwrap();
        Self { user, bucket, environment: world.environment("photos").await }
    }

    fn key(&self) -> &str {
        &self.environment["AWS_ACCESS_KEY_ID"]
    }
}

/// A time that is over.
const PAST: &str = "2020-01-01T00:00:00Z";

/// Makes the keys look old: moves a time that their Secret notes into the past.
pub(crate) async fn date(world: &World, claim: &str, annotation: &str) {
    let patch = json!({ "metadata": { "annotations": { annotation: PAST } } });
    world.secrets().patch(claim, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Waits until the previous key is deactivated, and its deletion has a time.
pub(crate) async fn wait_deactivated(world: &World, claim: &str) {
    let inactive_is_noted = |secret: Option<&Secret>| {
        let annotations = secret.and_then(|secret| secret.metadata.annotations.as_ref());
        annotations
            .is_some_and(|all| all.get("objectbucket.io/retiring-key-inactive").is_some_and(|value| value == "yes"))
    };
    seen(&world.secrets(), claim, inactive_is_noted).await.expect("the previous key is deactivated");
}
