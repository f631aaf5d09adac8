//! The conformance kit for the provisioner of this package, and whether it finds each of the mistakes that can be switched
//! on there.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod backend;
#[path = "../../mutant.rs"]
mod mutant;
mod server;

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Instant;

use futures::{StreamExt as _, stream};
use tokio::process::Command;

use mutant::{Described, MUTANTS, VARIABLE};

provisioner_conformance::conformance_tests!(backend::Lockers::start().await);

/// How many kits run at the same time. Each mostly waits.
const AT_ONCE: usize = 8;
/// For how many seconds a check waits for what a mistake may keep from happening.
const PATIENCE: &str = "15";

/// Runs these checks of this program; whether all passed, and what was printed.
async fn run(mutant: Option<&str>, checks: &BTreeSet<&str>) -> (bool, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("--exact").args(checks).stdin(Stdio::null()).kill_on_drop(true);
    match mutant {
        Some(mutant) => command.env(VARIABLE, mutant).env("CONFORMANCE_PATIENCE", PATIENCE),
        None => command.env_remove(VARIABLE),
    };
    let output = command.output().await.unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let ran = format!("running {} test", checks.len());
    assert!(printed.contains(&ran), "not all of {checks:?} are checks of the kit:\n{printed}");
    (output.status.success(), printed)
}

/// What is wrong with the kit, if a mistake is not found by each check that should find it.
async fn problem(described: &Described) -> Option<String> {
    let Described { name, duty, checks, .. } = described;
    let (began, mut problems) = (Instant::now(), Vec::new());
    for check in *checks {
        let (passed, printed) = run(Some(name), &[*check].into()).await;
        let reported = format!("broken: {}", check.replace('_', " "));
        if passed {
            problems.push(format!("{check} passes with {name}, which breaks: {duty}"));
        } else if !printed.contains(&reported) {
            problems.push(format!("{check} with {name} does not begin with {reported:?}:\n{printed}"));
        }
    }
    let found = if problems.is_empty() { "found" } else { "not found" };
    println!("{name}: {found}, in {} s", began.elapsed().as_secs());
    (!problems.is_empty()).then(|| problems.join("\n"))
}

#[tokio::test]
async fn each_mutant_is_found_by_its_checks_and_nothing_without() {
    let checks: BTreeSet<&str> = MUTANTS.iter().flat_map(|described| described.checks.iter().copied()).collect();
    let without = async {
        let (passed, printed) = run(None, &checks).await;
        (!passed).then(|| format!("without a mutant:\n{printed}"))
    };
    let with = stream::iter(MUTANTS).map(problem).buffer_unordered(AT_ONCE).collect::<Vec<_>>();
    let (without, with) = tokio::join!(without, with);
    let problems: Vec<_> = with.into_iter().chain([without]).flatten().collect();
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n\n"));
}
