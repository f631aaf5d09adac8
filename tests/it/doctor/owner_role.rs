//! Classes whose provisioning credentials assume a role of another account.

use super::{Examined, NO_LEASE};
use crate::accounts::OTHER;
use crate::owner_role::{EXTERNAL_ID, Role};
use crate::support::World;
use crate::support::operator::{Kind, Operator};

/// Also with a claim, whose ObjectBucket records the account of the role, and not that of the Secret.
#[tokio::test]
async fn doctor_assumes_the_role_and_names_its_account() {
    let world = World::new().await;
    let role = Role::create(&world, "buckets").await;
    let class = role.class(&world, "elsewhere").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    world.wait_bound("photos").await;
    operator.stop().await;

    world.aws.clear();
    let examined = Examined::json(&world, &[NO_LEASE]).await;
    assert_eq!(examined.code, Some(0), "{}\n{}", examined.text, examined.log);
    examined.assert_finds(&class, "owner", "good", &format!("which assume role {}", role.arn));
    examined.assert_finds(&class, "credentials", "good", &format!("of account {OTHER}"));
    let session = format!("arn:aws:sts::{OTHER}:assumed-role/");
    examined.assert_finds(&class, "identity", "good", &session);
    // Those of the role, with its path.
    examined.assert_finds(&class, "permissions", "good", "IAM allows the provisioning credentials all");
    examined.assert_finds(&class, "quota of users", "good", "IAM users");
    assert!(examined.about(&class, "account").is_empty(), "{:#?}", examined.findings());
    assert_eq!(world.aws.writes(), ["AssumeRole"], "one session for all calls, and no changes");
}

#[tokio::test]
async fn a_role_that_refuses_is_reported_with_its_remedy() {
    let world = World::new().await;
    let (good, bad) = (Role::create(&world, "good").await, Role::create(&world, "bad").await);
    bad.trust("another-cluster").await;
    let served = good.class(&world, "a-served").await;
    let (refused, alike) = (bad.class(&world, "b-refused").await, bad.class(&world, "c-refused").await);

    let examined = Examined::json(&world, &[NO_LEASE]).await;
    assert_eq!(examined.code, Some(1), "{}\n{}", examined.text, examined.log);
    examined.assert_finds(&refused, "owner", "good", &format!("which assume role {}", bad.arn));
    let about = examined.about(&refused, "credentials");
    let [finding] = &about[..] else { panic!("not one about the credentials: {:#?}", examined.findings()) };
    assert_eq!(finding["verdict"], "bad");
    let (message, remedy) = (finding["message"].as_str().unwrap(), finding["remedy"].as_str().unwrap());
    let who = format!("AWS does not let the provisioning credentials in Secret {}/owner assume role", world.namespace);
    assert!(message.starts_with(&who) && message.contains("ownerRoleExternalId"), "{message}");
    assert!(remedy.contains("correct the trust policy of the role or its external id"), "{remedy}");
    // Nothing else can be asked without the role.
    assert!(examined.about(&refused, "permissions").is_empty(), "{:#?}", examined.findings());
    examined.assert_finds(&alike, "store", "bad", &format!("the same as for StorageClass {refused:?}: credentials"));
    examined.assert_finds(&served, "credentials", "good", &format!("of account {OTHER}"));
    examined.assert_finds(&served, "permissions", "good", "IAM allows the provisioning credentials all");
    assert_eq!(world.aws.writes(), ["AssumeRole"; 2], "each role is tried once");

    bad.trust(EXTERNAL_ID).await;
    let corrected = Examined::json(&world, &[NO_LEASE]).await;
    assert_eq!(corrected.code, Some(0), "{}\n{}", corrected.text, corrected.log);
    corrected.assert_finds(&refused, "credentials", "good", &format!("of account {OTHER}"));
}
