//! What could not be checked: there may be more orphans.

use super::{CLAIM, Used};
use crate::accounts::{OTHER, OTHERS_KEYS};
use crate::support::World;
use crate::support::tool::Tool;

/// It does not count as one without orphans.
#[tokio::test]
async fn a_store_that_cannot_be_read_is_an_error() {
    let world = World::with_own_path().await;
    world.class_with("broken", "Delete", &[("secretName", "missing")]).await;
    let ended = Tool::run(&world, &["orphans"], "").await;
    assert!(ended.code == 1 && ended.err.contains("missing"), "{ended:?}");
}

/// The class's Secret is of another account than the ObjectBuckets.
#[tokio::test]
async fn an_account_without_matching_credentials_is_named() {
    let world = World::with_own_path().await;
    let used = Used::new(&world, "Delete").await;
    world.owner_secret("owner", &OTHERS_KEYS).await;
    let ended = Tool::run(&world, &["orphans", "--output", "json"], "").await;
    let found = ended.json();
    let [problem] = &found["problems"].as_array().unwrap()[..] else { panic!("{found:#}") };
    let secret = format!("Secret {}/owner has credentials of account {OTHER}", world.namespace);
    let wanted = format!(
        "account 000000000000 was not checked: ObjectBucket {:?} records account 000000000000, but {secret}",
        used.record
    );
    assert_eq!((ended.code, problem, &found["isComplete"]), (1, &wanted.as_str().into(), &false.into()), "{found:#}");
    let shown = Tool::run(&world, &["orphans"], "").await;
    assert!(shown.err.contains(&wanted) && !shown.out.starts_with("no orphans\n"), "{shown:?}");

    // The status of one claim has the same message.
    let content = format!("Content:        not known: {secret}, but the ObjectBucket records account 000000000000");
    let of_claim = Tool::run(&world, &["status", CLAIM], "").await;
    assert!(of_claim.code == 0 && of_claim.out.contains(&content), "{of_claim:?}");
}
