//! No secret in a log, an event, a status or an object other than the Secrets themselves.

use super::run;
use crate::backend::{Ability, Backend};
use crate::stage::Stage;
use crate::world::assert_hidden;

/// Shorter values among the provisioning credentials are not secret, such as a user's name.
const SECRETS_FROM: usize = 8;

/// Neither issued keys nor the provisioning credentials appear anywhere but in their Secrets, even with the most verbose
/// log.
pub fn credentials_appear_only_in_secrets<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield], async |stage: &Stage<B>| {
        let (world, class) = (&stage.world, stage.greenfield().await);
        let program = stage.backend.program().args(["-v=9", "--log-format=json"]).env("RUST_LOG", "trace");
        let mut operator = program.start(world);
        stage.bind("photos", &class).await;
        let issued = world.secret_entries("photos").await;
        let mut places = world.in_plain_sight().await;
        stage.unbind("photos").await;
        places.push(("Event".to_owned(), format!("{:?}", world.events("photos").await)));
        operator.terminate();
        operator.ended(crate::base::patience()).await;
        places.push(("the log".to_owned(), operator.log()));
        // It would print the log with what is found there.
        drop(operator);
        assert!(places.iter().any(|(_, text)| text.contains("serving claims")), "the log is captured");

        let owner = stage.backend.owner();
        let words =
            owner.values().chain(issued.iter().filter(|(key, _)| *key != "AWS_ACCESS_KEY_ID").map(|(_, value)| value));
        for secret in words.filter(|value| value.len() >= SECRETS_FROM) {
            assert_hidden(secret, &places);
        }
    });
}
