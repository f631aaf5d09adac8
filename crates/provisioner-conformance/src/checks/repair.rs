//! Outputs that were deleted or edited are restored; keys are rotated on request.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use super::run;
use crate::backend::{Ability, Backend, Outputs};
use crate::proxy::Ending;
use crate::stage::Stage;

const KEY_ID: &str = "AWS_ACCESS_KEY_ID";

/// A deleted Secret is recreated with new keys; the previous ones no longer work.
pub fn a_deleted_secret_is_recreated_with_new_keys<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield], async |stage: &Stage<B>| {
        let (world, class) = (&stage.world, stage.greenfield().await);
        let _operator = stage.start();
        let previous = stage.bind("photos", &class).await;
        world.secrets().delete("photos", &DeleteParams::default()).await.unwrap();
        world.wait_secret("photos", |keys| keys.contains_key(KEY_ID)).await;
        world.wait_reason("photos", "Bound").await;
        let app = world.environment("photos").await;
        stage.assert_usable(&app).await;
        assert_one_key(stage, &app).await;
        let is_new = app["AWS_SECRET_ACCESS_KEY"] != previous["AWS_SECRET_ACCESS_KEY"];
        assert!(is_new, "the keys are the previous ones");
        stage.assert_useless(&previous).await;
    });
}

/// An edited ConfigMap is restored, and what others added to it stays; the store is not called for it.
pub fn an_edited_config_map_is_restored<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield], async |stage: &Stage<B>| {
        let (world, class) = (&stage.world, stage.greenfield().await);
        let _operator = stage.start();
        stage.bind("photos", &class).await;
        let before = stage.inventory().await;
        stage.forget_store_calls();
        let patch = async |patch: serde_json::Value| {
            world.config_maps().patch("photos", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
        };
        patch(json!({ "metadata": { "annotations": { "team": "a" } }, "data": { "EXTRA": "kept" } })).await;
        let whole = world.config_maps().get("photos").await.unwrap().data.unwrap();
        // All entries at once: more repairs in a row are made to wait.
        for edited in [json!("mine"), serde_json::Value::Null] {
            let ours = whole.keys().filter(|key| *key != "EXTRA");
            let data: serde_json::Map<_, _> = ours.map(|key| (key.clone(), edited.clone())).collect();
            patch(json!({ "data": data })).await;
            world.wait_config_map("photos", |data| data == &whole).await;
        }
        let map = world.config_maps().get("photos").await.unwrap();
        assert_eq!(
            (map.data.unwrap()["EXTRA"].as_str(), map.metadata.annotations.unwrap()["team"].as_str()),
            ("kept", "a")
        );
        let calls = if stage.can(Ability::Http) { stage.store().names() } else { Vec::new() };
        assert!(calls.is_empty(), "the store is called for it: {calls:?}");
        assert_eq!(stage.inventory().await, before);
    });
}

/// Watches that end, however they do, are restarted: later changes are seen.
pub fn watches_that_end_are_restarted<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield], async |stage: &Stage<B>| {
        let (world, class) = (&stage.world, stage.greenfield().await);
        let _operator = stage.started().await;
        for (claim, ending) in [("closed", Ending::Closed), ("broken", Ending::Broken), ("expired", Ending::Expired)] {
            world.kubernetes.end_watches(ending);
            stage.bind(claim, &class).await;
            world.kubernetes.end_watches(ending);
            stage.unbind(claim).await;
        }
        assert!(stage.inventory().await.is_empty(), "{:?}", stage.inventory().await);
    });
}

/// On a request for new keys the operator issues them while the previous ones still work, and deletes those after the
/// grace period.
pub fn keys_are_rotated_and_the_previous_ones_retired<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Rotation], async |stage: &Stage<B>| {
        let world = &stage.world;
        let ask = |answer: &str| json!({ "metadata": { "annotations": { "objectbucket.io/rotate-keys": answer } } });
        let slow = stage.class("slow", "Delete", &[]).await;
        let _operator = stage.start();
        let previous = stage.bind("slow", &slow).await;
        world.claims().patch("slow", &PatchParams::default(), &Patch::Merge(ask("now"))).await.unwrap();
        world.wait_secret("slow", |keys| keys.get(KEY_ID).is_some_and(|id| *id != previous[KEY_ID])).await;
        stage.assert_usable(&previous).await;
        stage.assert_usable(&world.environment("slow").await).await;
        stage.unbind("slow").await;
        stage.assert_useless(&previous).await;
        assert!(stage.inventory().await.is_empty(), "{:?}", stage.inventory().await);

        let fast = stage.class("fast", "Delete", &[("keyGracePeriod", "0s")]).await;
        let previous = stage.bind("fast", &fast).await;
        world.claims().patch("fast", &PatchParams::default(), &Patch::Merge(ask("now"))).await.unwrap();
        world.wait_event("fast", "KeysRetired").await;
        let app = world.environment("fast").await;
        stage.assert_usable(&app).await;
        stage.assert_useless(&previous).await;
        assert_one_key(stage, &app).await;
    });
}

async fn assert_one_key<B: Backend>(stage: &Stage<B>, app: &Outputs) {
    if stage.can(Ability::Inventory) {
        let users = stage.inventory().await.users;
        let keys: Vec<_> = users.values().flat_map(|user| &user.keys).collect();
        assert_eq!(keys, [&app[KEY_ID]], "one key, the one that apps have");
    }
}
