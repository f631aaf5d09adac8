//! Secrets with keys of another account than the one in which the claims were bound.

use serde_json::Value;

use super::{Examined, NO_LEASE};
use crate::accounts::{OTHER, OTHERS_KEYS};
use crate::support::World;
use crate::support::operator::{Kind, Operator};

/// Binds claims, whose ObjectBuckets then record the account of the Secret.
async fn bind(world: &World, claims: &[(&str, &str)]) {
    let operator = Operator::start(world, Kind::InProcess).await;
    for (claim, class) in claims {
        world.claim(claim, class).await;
        world.wait_bound(claim).await;
    }
    operator.stop().await;
}

/// The one finding about the account at a class: its message and its remedy.
#[track_caller]
fn about_account(examined: &Examined, class: &str) -> (String, String) {
    let about = examined.about(class, "account");
    let [finding] = &about[..] else { panic!("not one about the account: {:#?}", examined.findings()) };
    assert_eq!(finding["verdict"], "bad");
    let text = |field: &str| finding[field].as_str().unwrap().to_owned();
    (text("message"), text("remedy"))
}

#[tokio::test]
async fn a_secret_of_another_account_than_that_of_the_claims_is_found() {
    let world = World::new().await;
    let archive = world.unique("archive");
    world.account.create_bucket(&archive).await;
    let existing = world.class_with("a-existing", "Retain", &[("bucketName", &archive)]).await;
    let new = world.class("b-new").await;
    let far = world.class_with("c-far", "Delete", &[("region", "eu-west-1")]).await;
    bind(&world, &[("photos", &new), ("films", &new), ("archive", &existing)]).await;
    let healthy = Examined::json(&world, &[NO_LEASE]).await;
    assert!(healthy.about(&existing, "account").is_empty(), "{:#?}", healthy.findings());

    world.owner_secret("owner", &OTHERS_KEYS).await;
    world.aws.clear();
    let examined = Examined::json(&world, &[NO_LEASE]).await;
    assert_eq!(examined.code, Some(1), "{}\n{}", examined.text, examined.log);
    let (message, remedy) = about_account(&examined, &existing);
    let secret = format!("Secret {}/owner has credentials of account {OTHER}", world.namespace);
    assert!(message.starts_with(&secret) && message.contains("3 ObjectBuckets, such as \"obc-"), "{message}");
    assert!(message.contains("record account 000000000000"), "{message}");
    for part in ["put a key of account 000000000000 into the Secret", "cannot be changed", "a class with a new Secret"]
    {
        assert!(remedy.contains(part), "{remedy}");
    }
    for class in [&new, &far] {
        examined.assert_finds(class, "store", "bad", &format!("the same as for StorageClass {existing:?}: account"));
    }
    // All other calls there are made in the wrong account. STS answers in each region.
    assert!(!examined.text.contains("s3:ListBucket"), "{}", examined.text);
    assert_eq!(world.aws.names(), ["GetCallerIdentity"; 2]);

    // New claims are bound in the new account. Then no key serves all of them.
    bind(&world, &[("late", &new)]).await;
    let (message, _) = about_account(&Examined::json(&world, &[NO_LEASE]).await, &existing);
    let late = format!("ObjectBucket {:?} records account {OTHER}", world.record_name("late"));
    assert!(message.contains("3 ObjectBuckets, such as") && message.contains(&late), "{message}");
}

#[tokio::test]
async fn a_class_with_a_secret_of_its_own_may_use_another_account() {
    let world = World::new().await;
    let (old, keys) = (world.class("old").await, &OTHERS_KEYS);
    bind(&world, &[("photos", &old)]).await;
    world.owner_secret("new-owner", keys).await;
    world.class_with("new", "Delete", &[("secretName", "new-owner")]).await;
    let examined = Examined::json(&world, &[NO_LEASE]).await;
    assert_eq!(examined.code, Some(0), "{}\n{}", examined.text, examined.log);
    let about_account = |finding: &Value| finding["what"] == "account";
    assert!(!examined.findings().iter().any(about_account), "{}", examined.text);
}
