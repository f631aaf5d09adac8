//! The command `doctor` looks, and changes nothing.

use serde_json::Value;

use super::run;
use crate::backend::{Ability, Backend};
use crate::base::PATIENCE;
use crate::stage::Stage;

/// Of a class whose claims get bound `doctor` finds nothing bad; and neither in the cluster nor in the store anything is
/// different after it.
pub fn doctor_finds_a_good_class_good_and_changes_nothing<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield], async |stage: &Stage<B>| {
        let (world, class) = (&stage.world, stage.greenfield().await);
        let mut operator = stage.start();
        stage.bind("photos", &class).await;
        operator.terminate();
        operator.ended(PATIENCE).await;

        let before = stage.footprint().await;
        stage.forget_store_calls();
        let args = ["doctor", "--output=json", "--leader-elect=false", "--namespace", &world.namespace];
        let output = stage.backend.program().args(args).output(world).await;
        let (report, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_str(&report).unwrap_or_else(|error| panic!("{error}: {report}\n{log}"));
        let findings = report["findings"].as_array().expect("findings");
        let of_class: Vec<_> = findings.iter().filter(|finding| finding["subject"] == class.as_str()).collect();
        assert!(!of_class.is_empty(), "nothing is said about the class: {findings:#?}");
        let bad: Vec<_> = of_class.iter().filter(|finding| finding["verdict"] == "bad").collect();
        assert!(bad.is_empty(), "{bad:#?}");
        assert_eq!(stage.footprint().await, before, "something has changed");
        assert!(stage.store_writes().is_empty(), "it writes: {:?}", stage.store_writes());
    });
}
