//! The decisions, explored exhaustively: every interleaving of steps with crashes, lost and refused calls, reads that
//! lag, a second operator, and users who edit, delete and create at any moment, within the budget of a test.
//!
//! The decisions are the real ones: `ownership`, `plan::record_state`, `steps`, `upkeep`, `teardown`, `backoff::settles_in`. The
//! steps have a second interpreter, with effects on a small world (`world.rs`): steps towards a bucket in `provision.rs`,
//! steps of a removal in `teardown.rs`, calls to the store in `store.rs`. docs/model.md lists what is covered and what
//! is not. This file has the scenarios.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod actions;
mod budget;
mod memory;
mod operator;
pub(super) mod planner;
mod provision;
mod scenario;
mod store;
mod teardown;
mod work;
mod world;

use std::time::Instant;

use self::budget::{Budget, CALM, explores_more, more};
use self::scenario::{Backup, Scenario};
use self::world::Asks;

use crate::store::ReclaimPolicy;

fn explore(name: &str, scenario: Scenario) {
    let began = Instant::now();
    let states = scenario.explore();
    println!("{name}: {states} states in {:.1} s", began.elapsed().as_secs_f64());
    assert!(states > 1000, "{name}: almost nothing was explored");
}

#[test]
fn a_claim_that_is_edited_and_deleted_while_answers_are_lost() {
    let budget = Budget { losses: 1, edits: 1, deletions: 1, ..CALM } + more(Budget { crashes: 1, ..CALM });
    explore("generated name, edited", Scenario::new(Asks::Prefix, budget));
}

#[test]
fn a_claim_that_is_deleted_under_crashes() {
    let budget = Budget { crashes: 1, refusals: 1, deletions: 1, ..CALM } + more(Budget { crashes: 1, ..CALM });
    explore("generated name, crashes", Scenario::new(Asks::Prefix, budget));
}

#[test]
fn a_chosen_name_with_a_rival_for_it() {
    let budget = Budget { crashes: 1, deletions: 1, rivals: 1, ..CALM } + more(Budget { losses: 1, rivals: 1, ..CALM });
    explore("chosen name, rival", Scenario::new(Asks::Name, budget));
}

#[test]
fn a_bucket_that_existed_before() {
    let budget = Budget { crashes: 1, deletions: 1, ..CALM } + more(Budget { refusals: 1, deleted_secrets: 1, ..CALM });
    explore("brownfield", Scenario::new(Asks::Class, budget));
}

#[test]
fn a_bucket_that_is_retained() {
    let budget = Budget { losses: 1, deletions: 1, ..CALM } + more(Budget { crashes: 1, edits: 1, ..CALM });
    let mut scenario = Scenario::new(Asks::Prefix, budget);
    scenario.setup.reclaim_policy = ReclaimPolicy::Retain;
    explore("Retain", scenario);
}

#[test]
fn keys_that_are_replaced_and_secrets_that_are_deleted() {
    let budget = Budget { crashes: 1, rotations: 1, checks: 1, ..CALM } + more(Budget { deleted_secrets: 1, ..CALM });
    explore("rotation", Scenario { bound: true, ..Scenario::new(Asks::Prefix, budget) });
}

#[test]
fn secrets_that_are_deleted_while_the_claim_is_checked() {
    let begin = Budget { deleted_secrets: 1, checks: 1, ..CALM };
    let scenarios = [
        ("Secret deleted, crashes", Budget { crashes: 1, losses: 1, ..CALM }),
        ("Secret deleted, refusals", Budget { losses: 1, refusals: 1, ..CALM }),
        ("Secret deleted, rotation", Budget { rotations: 1, ..CALM }),
    ];
    for (name, further) in scenarios {
        let budget = begin + further + more(Budget { crashes: 1, ..CALM });
        explore(name, Scenario { bound: true, ..Scenario::new(Asks::Prefix, budget) });
    }
}

#[test]
fn a_claim_of_the_same_name_after_the_first() {
    let budget = Budget { crashes: 1, deletions: 2, recreations: 1, ..CALM };
    explore("same name again", Scenario { bound: true, ..Scenario::new(Asks::Name, budget) });
}

#[test]
fn a_bucket_that_somebody_deletes_by_hand() {
    let budget = Budget { crashes: 1, losses: 1, deleted_buckets: 1, checks: 1, deletions: 1, ..CALM }
        + more(Budget { deleted_secrets: 1, ..CALM });
    explore("bucket deleted by hand", Scenario { bound: true, ..Scenario::new(Asks::Prefix, budget) });
}

#[test]
fn two_operators_at_once_harm_nothing_that_is_foreign() {
    let mut scenario = Scenario::new(Asks::Name, more(Budget { crashes: 1, ..CALM }));
    // Neither knows what the other one created.
    (scenario.operators, scenario.lag, scenario.hours_pass) = (2, false, true);
    scenario.depth = if explores_more() { 30 } else { 26 };
    explore("two operators", scenario);
}

#[test]
fn a_restored_claim_adopts_its_record_on_request() {
    let scenarios = [
        ("restored, adopted", Asks::Prefix, true, Budget { crashes: 1, losses: 1, adoption_requests: 1, ..CALM }),
        (
            "restored without its Secret",
            Asks::Name,
            false,
            Budget { crashes: 1, refusals: 1, adoption_requests: 1, ..CALM },
        ),
        ("restored, brownfield", Asks::Class, true, Budget { crashes: 1, losses: 1, adoption_requests: 1, ..CALM }),
        (
            "restored, adopted, deleted",
            Asks::Prefix,
            true,
            Budget { crashes: 1, deletions: 1, adoption_requests: 1, ..CALM },
        ),
        (
            "restored, record lost",
            Asks::Name,
            true,
            Budget { crashes: 1, deletions: 1, adoption_requests: 1, restored_records: 1, ..CALM },
        ),
    ];
    for (name, asks, secret, budget) in scenarios {
        let budget = budget + more(Budget { crashes: 1, deleted_secrets: 1, ..CALM });
        let restored = Some(Backup { record: budget.restored_records == 0, secret });
        explore(name, Scenario { restored, ..Scenario::new(asks, budget) });
    }
}

#[test]
fn content_of_a_bucket_never_published_is_kept() {
    let budget =
        Budget { contents: 1, edits: 1, deletions: 1, ..CALM } + more(Budget { crashes: 1, losses: 1, ..CALM });
    explore("content, never published", Scenario::new(Asks::Prefix, budget));
}

#[test]
fn a_restored_snapshot_deletes_no_content() {
    let budget =
        Budget { contents: 1, rewinds: 1, deletions: 1, crashes: 1, ..CALM } + more(Budget { losses: 1, ..CALM });
    explore("snapshot restored", Scenario { bound: true, ..Scenario::new(Asks::Prefix, budget) });
}

#[test]
fn a_bucket_that_is_deleted_only_if_it_is_empty() {
    let budget = Budget { contents: 1, deletions: 1, crashes: 1, losses: 1, refusals: 1, ..CALM };
    let mut scenario = Scenario { bound: true, ..Scenario::new(Asks::Prefix, budget) };
    scenario.setup.on_delete = Some("ifEmpty");
    explore("ifEmpty", scenario);
}

#[test]
fn a_bucket_that_is_deleted_later_unless_its_user_undoes_that() {
    let begin = Budget { contents: 1, deletions: 1, ..CALM };
    for (name, further) in [
        ("deleted later", Budget { crashes: 1, losses: 1, refusals: 1, ..CALM }),
        ("deleted later, undone", Budget { undos: 1, crashes: 1, ..CALM }),
        ("deleted later, undone, with losses", Budget { undos: 1, losses: 1, ..CALM }),
    ] {
        let mut scenario = Scenario { bound: true, ..Scenario::new(Asks::Prefix, begin + further) };
        scenario.setup.on_delete = Some("after:7d");
        explore(name, scenario);
    }
}

#[test]
fn a_claim_without_its_finalizer_loses_only_its_access() {
    let budget = Budget { contents: 1, strips: 1, crashes: 1, losses: 1, refusals: 1, ..CALM };
    explore("vanished", Scenario { bound: true, ..Scenario::new(Asks::Prefix, budget) });
    let budget = Budget { strips: 1, adoption_requests: 1, crashes: 1, ..CALM };
    let restored = Some(Backup { record: true, secret: true });
    explore("restored, vanished", Scenario { restored, ..Scenario::new(Asks::Prefix, budget) });
}

#[test]
fn an_edited_access_mode_is_applied_once_and_for_all() {
    let edits = Budget { limits: 2, crashes: 1, losses: 1, ..CALM } + more(Budget { refusals: 1, ..CALM });
    explore("access edited", Scenario { bound: true, ..Scenario::new(Asks::Class, edits) });
    let budget = Budget { limits: 1, crashes: 1, deletions: 1, deleted_secrets: 1, ..CALM };
    explore("access edited, keys lost", Scenario { bound: true, ..Scenario::new(Asks::Prefix, budget) });
    let budget = Budget { limits: 1, crashes: 1, losses: 1, ..CALM };
    explore("access edited before binding", Scenario::new(Asks::Class, budget));
}

#[test]
fn a_record_that_somebody_deletes_by_hand_is_recreated() {
    let budget = Budget { crashes: 1, losses: 1, deleted_records: 1, deletions: 1, ..CALM };
    for asks in [Asks::Prefix, Asks::Class] {
        explore("record deleted by hand", Scenario { bound: true, ..Scenario::new(asks, budget) });
    }
}
