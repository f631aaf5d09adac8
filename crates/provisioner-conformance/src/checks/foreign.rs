//! Foreign buckets and outputs: they are neither used, nor changed, nor deleted, and the claim's condition reports them.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::run;
use super::steps::is_unready;
use crate::backend::{Ability, Backend};
use crate::stage::Stage;
use crate::world::{assert_contains, phase, ready};
use bucket_provisioner::api::{ClaimPhase, ObjectBucketClaim};

/// A claim that chooses the name of a foreign bucket does not get it, and the bucket is not deleted with that claim.
pub fn a_foreign_bucket_is_neither_used_nor_deleted<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Tags, Ability::Inventory], async |stage: &Stage<B>| {
        let (world, class) = (&stage.world, stage.greenfield().await);
        let bucket = world.unique("precious");
        stage.backend.create_bucket(&bucket).await;
        let before = stage.inventory().await;
        let _operator = stage.start();
        world.claim_with("thief", json!({ "storageClassName": class, "bucketName": bucket })).await;
        assert_failed(stage, "thief", &bucket).await;
        stage.unbind("thief").await;
        assert_eq!(stage.inventory().await, before, "it is as it was");
    });
}

/// A claim that chooses the name of another claim's bucket does not get it, and the bucket is not deleted with it.
pub fn a_bucket_of_another_claim_is_neither_used_nor_deleted<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Tags], async |stage: &Stage<B>| {
        let (world, class) = (&stage.world, stage.greenfield().await);
        let spec = json!({ "storageClassName": class, "bucketName": world.unique("contested") });
        let _operator = stage.start();
        world.claim_with("first", spec.clone()).await;
        world.wait_bound("first").await;
        let app = world.environment("first").await;
        stage.assert_usable(&app).await;
        let before = stage.inventory().await;
        world.claim_with("second", spec).await;
        assert_failed(stage, "second", &app["BUCKET_NAME"]).await;
        stage.unbind("second").await;
        stage.assert_usable(&app).await;
        assert_eq!(stage.inventory().await, before, "it is as it was");
    });
}

async fn assert_failed<B: Backend>(stage: &Stage<B>, claim: &str, bucket: &str) {
    let is_over = |claim: &ObjectBucketClaim| phase(claim) == Some(ClaimPhase::Bound) || is_unready(claim);
    let claim = stage.world.wait_claim(claim, "refused", is_over).await;
    assert_ne!(phase(&claim), Some(ClaimPhase::Bound), "the claim gets bucket {bucket}, which is not its own");
    assert_contains(&ready(&claim).expect("a Ready condition").message, &[bucket]);
}

/// A Secret or a ConfigMap that has the claim's name already is left as it is.
pub fn foreign_outputs_are_neither_overwritten_nor_deleted<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield], async |stage: &Stage<B>| {
        let (world, class) = (&stage.world, stage.greenfield().await);
        let secret = json!({ "metadata": { "name": "photos" }, "stringData": { "mine": "1" } });
        let secret: Secret = serde_json::from_value(secret).unwrap();
        let secret = world.secrets().create(&PostParams::default(), &secret).await.unwrap();
        let namespaces: Api<Namespace> = Api::all(world.client.clone());
        let owner = namespaces.get(&world.namespace).await.unwrap();
        let map = json!({
            // Controlled by something, but not by this claim.
            "metadata": { "name": "videos", "ownerReferences": [{
                "apiVersion": "v1", "kind": "Namespace", "name": world.namespace, "uid": owner.uid(), "controller": true,
            }]},
            "data": { "mine": "1" },
        });
        let map: ConfigMap = serde_json::from_value(map).unwrap();
        let map = world.config_maps().create(&PostParams::default(), &map).await.unwrap();
        let _operator = stage.start();
        for (claim, kind) in [("photos", "Secret"), ("videos", "ConfigMap")] {
            stage.claim(claim, &class).await;
            assert_contains(&world.wait_reason(claim, "OutputExists").await, &[kind, claim, &world.namespace]);
        }
        assert!(stage.inventory().await.is_empty(), "nothing is made for them: {:?}", stage.inventory().await);
        assert!(stage.store_writes().is_empty(), "nothing is made for them: {:?}", stage.store_writes());
        for claim in ["photos", "videos"] {
            world.delete_claim(claim).await;
            world.wait_gone(claim).await;
        }
        assert_eq!(world.secrets().get("photos").await.unwrap(), secret);
        assert_eq!(world.config_maps().get("videos").await.unwrap(), map);
        world.secrets().delete("photos", &DeleteParams::default()).await.unwrap();
        stage.bind("photos", &class).await;
    });
}
