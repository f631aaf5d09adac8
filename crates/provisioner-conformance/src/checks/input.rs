//! Invalid input, and what the claim's condition reports: the field, the value and the remedy.

use serde_json::json;

use super::run;
use crate::backend::{Ability, Backend};
use crate::stage::Stage;
use crate::world::{assert_contains, phase};
use bucket_provisioner::api::ClaimPhase;

/// A claim of a class with an unknown parameter gets no bucket, and the message has the parameter's name; nothing is created.
pub fn an_unknown_class_parameter_is_refused_by_name<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[], async |stage: &Stage<B>| {
        let world = &stage.world;
        let class = stage.class("wrong", "Delete", &[("no-such-parameter", "1")]).await;
        let _operator = stage.start();
        stage.claim("photos", &class).await;
        let message = world.wait_reason("photos", "InvalidClassParameter").await;
        assert_contains(&message, &["no-such-parameter", &class]);
        assert_eq!(phase(&world.claims().get("photos").await.unwrap()), Some(ClaimPhase::Pending));
        assert_eq!(world.wait_event("photos", "InvalidClassParameter").await, ("Warning".to_owned(), message));
        assert_store_untouched(stage).await;
        stage.unbind("photos").await;
    });
}

/// A name that no bucket can have fails the claim, and the message has the field.
pub fn an_invalid_bucket_name_is_refused<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield], async |stage: &Stage<B>| {
        let (world, class) = (&stage.world, stage.greenfield().await);
        let _operator = stage.start();
        for (claim, field) in [("named", "bucketName"), ("generated", "generateBucketName")] {
            world.claim_with(claim, json!({ "storageClassName": class, field: "no/name" })).await;
            assert_contains(
                &world.wait_reason(claim, "InvalidBucketName").await,
                &[&format!("spec.{field}"), "no/name"],
            );
            stage.unbind(claim).await;
        }
        world.claim_with("nameless", json!({ "storageClassName": class })).await;
        assert_contains(
            &world.wait_reason("nameless", "BucketNameMissing").await,
            &["spec.generateBucketName", &class],
        );
        assert_store_untouched(stage).await;
    });
}

/// The message names a Secret with provisioning credentials that does not exist or lacks its entries. Once it has them,
/// the claim is bound.
pub fn a_missing_or_empty_owner_secret_is_reported<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Owner, Ability::Greenfield], async |stage: &Stage<B>| {
        let world = &stage.world;
        let class = stage.class("later", "Delete", &[("secretName", "later")]).await;
        let _operator = stage.start();
        let secret = format!("{}/later", world.namespace);
        stage.claim("photos", &class).await;
        assert_contains(&world.wait_reason("photos", "OwnerSecretNotFound").await, &[&secret]);
        world.write_secret("later", [("no-such-key", "1")]).await;
        assert_contains(&world.wait_reason("photos", "InvalidOwnerSecret").await, &[&secret]);
        assert_store_untouched(stage).await;
        world.write_secret("later", stage.backend.owner()).await;
        world.wait_bound("photos").await;
    });
}

async fn assert_store_untouched<B: Backend>(stage: &Stage<B>) {
    assert!(stage.store_writes().is_empty(), "the store is changed for it: {:?}", stage.store_writes());
    assert!(stage.inventory().await.is_empty(), "{:?}", stage.inventory().await);
}
