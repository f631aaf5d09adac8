//! The command `doctor` inspects, and changes nothing.

use serde_json::Value;

use super::run;
use crate::backend::{Ability, Backend};
use crate::base::{patience, report};
use crate::stage::Stage;
use crate::world::assert_hidden;

/// Of a class whose claims get bound `doctor` finds nothing bad; and neither in the cluster nor in the store anything is
/// different after it.
pub fn doctor_passes_a_valid_class_and_changes_nothing<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield], async |stage: &Stage<B>| {
        let class = stage.greenfield().await;
        let mut operator = stage.start();
        stage.bind("photos", &class).await;
        operator.terminate();
        operator.ended(patience()).await;

        let before = stage.footprint().await;
        stage.forget_store_calls();
        let of_class = findings(stage, &class).await;
        assert!(!of_class.is_empty(), "no finding about class {class}");
        let bad: Vec<_> = of_class.iter().filter(|finding| finding["verdict"] == "bad").collect();
        assert!(bad.is_empty(), "{bad:#?}");
        assert_eq!(stage.footprint().await, before, "something has changed");
        assert!(stage.store_writes().is_empty(), "it writes: {:?}", stage.store_writes());
    });
}

/// If the store refuses the provisioning credentials of a class, `doctor` does not call them good, and prints none of their
/// values.
pub fn doctor_does_not_accept_a_wrong_owner_secret<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Owner, Ability::Greenfield], async |stage: &Stage<B>| {
        let (world, wrong) = (&stage.world, stage.backend.wrong_owner());
        if wrong.is_empty() {
            report("skipped, because the backend has no `wrong_owner`");
            return;
        }
        let class = stage.class("wrong", "Delete", &[("secretName", "wrong")]).await;
        world.write_secret("wrong", wrong.clone()).await;
        let of_class = findings(stage, &class).await;
        let good: Vec<_> =
            of_class.iter().filter(|it| it["verdict"] == "good" && it["what"] == "credentials").collect();
        assert!(good.is_empty(), "wrong credentials are called good, though nobody tried them: {good:#?}");
        let text = ("what doctor prints".to_owned(), format!("{of_class:?}"));
        let right = stage.backend.owner();
        for secret in wrong.iter().filter(|(key, value)| right.get(*key) != Some(value)).map(|(_, value)| value) {
            assert_hidden(secret, std::slice::from_ref(&text));
        }
    });
}

/// What `doctor` finds about a class.
async fn findings<B: Backend>(stage: &Stage<B>, class: &str) -> Vec<Value> {
    let world = &stage.world;
    let args = ["doctor", "--output=json", "--leader-elect=false", "--namespace", &world.namespace];
    let output = stage.backend.program().args(args).output(world).await;
    let (report, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_str(&report).unwrap_or_else(|error| panic!("{error}: {report}\n{log}"));
    let mut findings = report["findings"].as_array().expect("findings").clone();
    findings.retain(|finding| finding["subject"] == class);
    findings
}
