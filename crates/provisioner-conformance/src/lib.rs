//! The conformance kit: whether an operator made with this library keeps the library's promises with its store.
//!
//! The kit starts the real program, in a cluster that may be any (`KUBECONFIG`), and checks what it does there and in the
//! store: from claim to bucket and back, invalid input, unrelated objects, repair, rotation, restarts, backups, stale
//! watches, calls that fail, and a kill at every call that changes something. Proxies connect the operator to its servers.
//!
//! An author implements [`Backend`]: what the store can do, and how to inspect it without the operator;
//! [`conformance_tests!`](crate::conformance_tests) makes a test of each [check](checks). What the backend cannot do is
//! skipped, and each test prints to standard error what it skipped. With `TEST_SAMPLE=8` in the environment the operator is
//! killed at every eighth call only, which takes less than half of the time. An example of a backend:
//!
//! ```no_run
//! // tests/conformance.rs
//! use provisioner_conformance::{Ability, Backend, Program};
//!
//! struct Shelves;
//!
//! impl Backend for Shelves {
//!     fn abilities(&self) -> Vec<Ability> {
//!         vec![Ability::Greenfield]
//!     }
//!
//!     fn program(&self) -> Program {
//!         // In a test of your own: env!("CARGO_BIN_EXE_my-provisioner")
//!         Program::new("target/debug/my-provisioner")
//!     }
//! }
//!
//! provisioner_conformance::conformance_tests!(Shelves);
//! # fn main() {}
//! ```
//!
//! Everything that a check makes has its world's id in its name, and is removed when the check passes or fails; CRDs that
//! were missing stay. If the tests are killed, what they made stays: namespaces, classes and ObjectBuckets with `t-` and 8
//! hexadecimal digits in their names, and buckets and users of such names in the store. Operators run with the rights of `KUBECONFIG`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by a panic, as a test does")]

mod backend;
mod base;
pub mod checks;
#[doc(hidden)]
pub mod crash;
mod program;
#[doc(hidden)]
pub mod proxy;
mod report;
mod sample;
mod stage;
mod world;

pub use self::backend::{Ability, Backend, Bucket, Inventory, Outputs, User};
pub use self::program::{Program, TempDir, free_address};
pub use self::proxy::{HttpStore, Upstream};

// What the tests of this repository use beside it. It may change at any time.
#[doc(hidden)]
pub use self::base::PATIENCE;
#[doc(hidden)]
pub use self::program::{Log, Running, send_signal};
#[doc(hidden)]
pub use self::report::run_check;
#[doc(hidden)]
pub use self::sample::sampled;
#[doc(hidden)]
pub use self::stage::{Footprint, Stage};
#[doc(hidden)]
pub use self::world::{
    Backup, Tokens, View, Watched, World, assert_contains, assert_hidden, bucket_of, condition, install_crds,
    panic_text, phase, ready, seen,
};

/// Makes a test of each [check](crate::checks) with a backend. The expression makes a
/// [`Backend`](crate::Backend) for each, and may `.await`.
#[macro_export]
macro_rules! conformance_tests {
    ($backend:expr) => {
        $crate::conformance_tests! { @each $backend;
            lifecycle::a_bucket_is_usable_when_bound_and_deleted_with_its_claim,
            lifecycle::a_bucket_has_exactly_the_name_that_its_claim_chose,
            lifecycle::keys_open_no_bucket_of_another_claim,
            lifecycle::claims_share_an_existing_bucket_with_separate_keys,
            lifecycle::claims_share_a_created_bucket_until_the_last_is_deleted,
            lifecycle::retain_revokes_the_access_and_keeps_the_bucket,
            lifecycle::on_delete_if_empty_keeps_a_bucket_with_objects,
            lifecycle::a_claim_of_another_provisioner_is_ignored,
            input::an_unknown_class_parameter_is_refused_by_name,
            input::an_invalid_bucket_name_is_refused,
            input::a_missing_or_empty_owner_secret_is_reported,
            foreign::a_foreign_bucket_is_neither_used_nor_deleted,
            foreign::a_bucket_of_another_claim_is_neither_used_nor_deleted,
            foreign::foreign_outputs_are_neither_overwritten_nor_deleted,
            repair::a_deleted_secret_is_recreated_with_new_keys,
            repair::an_edited_config_map_is_restored,
            repair::watches_that_end_are_restarted,
            repair::keys_are_rotated_and_the_previous_ones_retired,
            restart::a_restart_makes_no_calls_for_bound_claims,
            secrecy::credentials_appear_only_in_secrets,
            doctor::doctor_passes_a_valid_class_and_changes_nothing,
            doctor::doctor_does_not_accept_a_wrong_owner_secret,
            adoption::a_restored_claim_waits_for_its_annotation_and_adopts,
            adoption::a_new_claim_with_an_old_name_inherits_nothing,
            stale::a_stale_view_of_a_bound_claim_changes_nothing,
            stale::a_stale_view_of_a_deleted_claim_creates_nothing,
            faults::failed_calls_to_kubernetes_are_retried,
            faults::failed_calls_to_the_store_are_retried,
            faults::an_unreachable_store_is_reported_and_retried,
            creation::a_creation_whose_answer_is_lost_leaves_nothing,
            creation::a_creation_that_fails_leaves_nothing,
            creation::access_that_is_not_granted_leaves_nothing,
            creation::a_lost_answer_creates_nothing_twice,
            creation::a_failing_claim_keeps_its_plan,
            creation::a_failing_claim_repeats_its_message,
            creation::reasons_of_failures_are_in_the_command_reasons,
            creation::a_wrong_owner_secret_is_in_no_message,
            keys::no_keys_are_issued_for_a_foreign_bucket,
            keys::no_keys_are_issued_to_a_foreign_user,
            keys::a_class_that_names_a_claims_bucket_is_refused,
            keys::a_class_that_names_a_missing_bucket_is_refused,
            keys::a_check_keeps_keys_in_their_grace_period,
            keys::a_failed_read_replaces_no_keys,
            removal::a_failed_read_does_not_count_as_not_found,
            removal::a_bucket_is_deleted_after_its_access,
            removal::a_removal_whose_answer_is_lost_is_completed,
            removal::a_claim_is_deleted_without_its_class,
            removal::the_access_of_a_renamed_user_is_not_forgotten,
            removal::a_user_that_lost_its_marks_is_removed,
            removal::a_foreign_bucket_that_replaced_the_claims_is_kept,
            removal::a_foreign_user_that_replaced_the_claims_is_kept,
            removal::the_key_id_of_another_claim_revokes_nothing,
            crash::killed_while_a_bucket_is_created,
            crash::killed_while_a_retained_bucket_is_created,
            crash::killed_while_a_named_bucket_is_created,
            crash::killed_while_access_is_granted,
            crash::killed_while_access_to_a_shared_bucket_is_granted,
            crash::killed_before_its_claim_was_deleted,
            crash::killed_before_its_claim_of_an_existing_bucket_was_deleted,
            crash::killed_while_a_bucket_is_deleted,
            crash::killed_while_a_named_bucket_is_deleted,
            crash::killed_while_access_is_revoked,
            crash::killed_while_access_to_a_shared_bucket_is_revoked,
            crash::killed_while_a_retained_claim_is_deleted,
            crash::killed_while_a_secret_is_restored,
            crash::killed_while_keys_are_rotated,
            crash::killed_for_the_second_time,
            crash::killed_while_a_restored_claim_is_adopted,
            crash::killed_while_a_restored_claim_without_its_secret_is_adopted,
            crash::killed_while_an_orphan_is_removed,
            crash::killed_while_a_claim_of_a_full_bucket_is_deleted,
            crash::killed_while_a_deletion_is_scheduled,
            crash::killed_while_a_scheduled_deletion_runs,
            crash::killed_while_a_deletion_is_undone,
            crash::killed_while_a_vanished_claim_loses_its_access,
            crash::killed_while_a_claim_that_was_set_back_is_deleted,
            crash::killed_while_a_forgotten_claim_is_deleted,
        }
    };
    (@each $backend:expr; $($module:ident::$check:ident,)*) => {
        $(
            #[test]
            fn $check() {
                $crate::run_check(stringify!($check), || $crate::checks::$module::$check(&async || $backend))
            }
        )*
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_check_is_missing_in_the_macro() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/checks");
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let (module, text) = (path.file_stem().unwrap().to_str().unwrap(), std::fs::read_to_string(&path).unwrap());
            for line in text.lines().filter_map(|line| line.strip_prefix("pub fn ")) {
                let check = line.split(['<', '(']).next().unwrap();
                assert!(include_str!("lib.rs").contains(&format!("{module}::{check},")), "{module}::{check}");
            }
        }
    }
}
