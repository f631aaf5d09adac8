//! No secret in a log, an event, a status or an object other than the Secrets themselves.

use crate::support::World;
use crate::support::operator::Binary;
use provisioner_conformance::assert_hidden;

#[tokio::test]
async fn no_secret_key_shows_anywhere_but_in_its_secret() {
    let world = World::new().await;
    let owner_key = format!("owner-secret-{}", world.id);
    world.owner_secret("owner", &[("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", &owner_key)]).await;
    let class = world.class("greenfield").await;
    let shared = world.class_with("shared", "Delete", &[("createBucketUser", "no")]).await;
    let broken = world.class_with("broken", "Delete", &[("secretName", "padded")]).await;
    let padded = format!(" padded-secret-{}", world.id);
    world.owner_secret("padded", &[("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", &padded)]).await;

    // The most talkative log there is.
    let mut operator = Binary::start(
        &world,
        &["-v=9", "--log-format=json"],
        &[("RUST_LOG", "trace,aws_smithy_runtime::client=trace")],
    );
    world.claim("issued", &class).await;
    world.claim("shared", &shared).await;
    world.claim("broken", &broken).await;
    world.wait_bound("issued").await;
    world.wait_bound("shared").await;
    world.wait_reason("broken", "InvalidOwnerSecret").await;
    let issued_key = world.environment("issued").await["AWS_SECRET_ACCESS_KEY"].clone();
    assert_eq!(world.environment("shared").await["AWS_SECRET_ACCESS_KEY"], owner_key);

    let mut places = world.in_plain_sight().await;
    for claim in ["issued", "shared", "broken"] {
        world.delete_claim(claim).await;
        world.wait_gone(claim).await;
    }
    places.push(("Event".to_owned(), format!("{:?}", world.events("issued").await)));
    operator.terminate();
    operator.ended(std::time::Duration::from_secs(10)).await;
    places.push(("log".to_owned(), operator.log()));
    assert!(operator.log().contains("serving claims"), "there is a log to inspect");

    for secret in [issued_key.as_str(), &owner_key, padded.trim()] {
        assert_hidden(secret, &places);
    }
}
