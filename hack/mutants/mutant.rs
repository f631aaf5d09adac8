//! The mistakes that can be switched on, the duty that each breaks, and the checks of the kit that find it.

#![allow(dead_code, reason = "the program reads one half, the test the other")]

use std::env::{self, VarError};

/// The variable that switches a mistake on.
pub(crate) const VARIABLE: &str = "MUTANT";

/// A mistake of an author.
pub(crate) struct Described {
    pub(crate) mutant: Mutant,
    /// The value of [`VARIABLE`].
    pub(crate) name: &'static str,
    /// What it breaks; see "Duties of an implementation" in `bucket_provisioner::store`.
    pub(crate) duty: &'static str,
    /// The checks of the kit that find it.
    pub(crate) checks: &'static [&'static str],
}

macro_rules! mutants {
    ($($(#[$what:meta])* $mutant:ident = $name:literal: $duty:literal, [$($check:literal),+];)+) => {
        /// What is done wrong.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Mutant { $($(#[$what])* $mutant,)+ }

        /// All of them.
        pub(crate) const MUTANTS: &[Described] = &[
            $(Described { mutant: Mutant::$mutant, name: $name, duty: $duty, checks: &[$($check),+] },)+
        ];
    };
}

mutants! {
    // Idempotent.
    /// A bucket that an earlier call has created counts as taken.
    CreatesOnce = "creates-once": "a later call finishes what an earlier one began",
        ["a_lost_answer_creates_nothing_twice"];
    /// Each call of `grant` creates a user with a name of its own.
    NewUser = "new-user": "all names are in the ObjectBucket: there is never a second user",
        ["a_lost_answer_creates_nothing_twice"];
    /// `grant` issues a key beside those that earlier calls have issued.
    KeepsLostKeys = "keeps-lost-keys": "credentials that an earlier call may have issued are replaced",
        ["a_lost_answer_creates_nothing_twice"];
    /// `revoke` fails if the user no longer exists.
    RevokesOnce = "revokes-once": "what no longer exists counts as removed",
        ["a_removal_whose_answer_is_lost_is_completed"];

    // What is foreign.
    /// A bucket that exists counts as the claim's.
    TakesForeign = "takes-foreign": "a name proves nothing: what is foreign is not used",
        ["a_foreign_bucket_is_neither_used_nor_deleted", "a_bucket_of_another_claim_is_neither_used_nor_deleted"];
    /// A class that names a bucket opens it, even if it is another claim's.
    OpensClaimed = "opens-claimed": "the bucket that a class names has no other claim's mark",
        ["a_class_that_names_a_claims_bucket_is_refused"];
    /// A class that names a bucket which does not exist gives access to it.
    GrantsMissing = "grants-missing": "a bucket that existed before must exist",
        ["a_class_that_names_a_missing_bucket_is_refused"];
    /// `grant` changes the settings of a bucket that existed before.
    MarksExisting = "marks-existing": "a bucket that a class names is not reconfigured",
        ["claims_share_an_existing_bucket_with_separate_keys"];
    /// `grant` does not check whose the bucket is by now.
    GrantsForeign = "grants-foreign": "a bucket that was created for the claim must still be the claim's",
        ["no_keys_are_issued_for_a_foreign_bucket"];
    /// A user that exists counts as the claim's.
    UsesForeignUser = "uses-foreign-user": "a user without the claim's mark is not used",
        ["no_keys_are_issued_to_a_foreign_user"];
    /// `delete_bucket` does not check whose the bucket is.
    DeletesForeign = "deletes-foreign": "a bucket without the claim's mark is left in place",
        ["a_foreign_bucket_that_replaced_the_claims_is_kept"];
    /// `revoke` does not check whose the user is.
    RevokesForeign = "revokes-foreign": "a user without the claim's mark is left in place",
        ["a_foreign_user_that_replaced_the_claims_is_kept"];
    /// The user of a claim can use every bucket.
    OpensAll = "opens-all": "the claim's user is limited to the bucket",
        ["keys_open_no_bucket_of_another_claim"];

    // Certainly missing.
    /// A GET that the store answers with 500 counts as "not found".
    ErrorIsMissing = "error-is-missing": "an error is not \"not found\"",
        ["a_failed_read_does_not_count_as_not_found"];
    /// A DELETE that the store answers with 500 counts as done.
    ErrorIsRemoved = "error-is-removed": "only what the store has confirmed is deleted",
        ["a_bucket_is_deleted_after_its_access"];
    /// `check` reports keys as lost if the store does not answer.
    ErrorIsLost = "error-is-lost": "keys are lost only if the store knows that they are missing",
        ["a_failed_read_replaces_no_keys"];
    /// `delete_bucket` empties the bucket and reports that it is deleted.
    LeavesBucket = "leaves-bucket": "what counts as deleted is deleted",
        ["a_bucket_is_usable_when_bound_and_deleted_with_its_claim"];

    // From the call alone.
    /// `revoke` and `delete_bucket` use the parameters of the class as `plan` saw it last.
    RemembersClass = "remembers-class": "`revoke` and `delete_bucket` work from the call alone",
        ["a_claim_is_deleted_without_its_class"];

    // Refused is certain.
    /// Every error of `create_bucket` is a refusal, even after a timeout.
    AlwaysRefused = "always-refused": "`Refused` is certain: after a lost answer nothing is",
        ["a_creation_whose_answer_is_lost_leaves_nothing"];
    /// An error of the second call of `create_bucket` is a refusal.
    ForgetChange = "forget-change": "`Refused` is about the very first call that changes something",
        ["a_creation_that_fails_leaves_nothing"];
    /// An error of `grant` is a refusal, although the user was created.
    GrantRefused = "grant-refused": "`Refused` is about the very first call that changes something, of `grant`, too",
        ["access_that_is_not_granted_leaves_nothing"];

    // Messages.
    /// The store's answer, with the id of the request, is part of the message.
    Volatile = "volatile": "messages are the same for the same cause",
        ["a_failing_claim_repeats_its_message"];
    /// A reason that is not in `REASONS`.
    UnknownReason = "unknown-reason": "reasons are in `REASONS`",
        ["reasons_of_failures_are_in_the_command_reasons"];

    // Secrets.
    /// An issued key is logged.
    LogsSecret = "logs-secret": "no secret is in a log",
        ["credentials_appear_only_in_secrets"];
    /// The provisioning credentials are logged with `Debug`.
    LogsOwner = "logs-owner": "no secret is in a Debug output, nor are the provisioning credentials",
        ["credentials_appear_only_in_secrets"];
    /// The message about a token that the store refuses contains the token.
    TellsSecret = "tells-secret": "no secret is in an error",
        ["a_wrong_owner_secret_is_in_no_message"];
    /// The secret of the keys is decided by `plan`.
    PlansSecret = "plans-secret": "no secret is in a plan, which can be read in the cluster",
        ["credentials_appear_only_in_secrets"];

    // Pure.
    /// `plan` gives another answer each time.
    PlanVaries = "plan-varies": "`plan` is pure: always the same answer",
        ["a_failing_claim_keeps_its_plan"];

    // Deletion.
    /// `delete_bucket` empties a bucket whose content must be kept.
    EmptiesKept = "empties-kept": "with `Content::Keep` only an empty bucket is deleted",
        ["on_delete_if_empty_keeps_a_bucket_with_objects"];
    /// `delete_bucket` does not wait for the access to end.
    DeletesFirst = "deletes-first": "nothing is deleted before the access has ended",
        ["a_bucket_is_deleted_after_its_access"];
    /// `revoke` reports a user as not found whose credentials still work.
    TrustsNotFound = "trusts-not-found": "access that still works is not removed",
        ["the_access_of_a_renamed_user_is_not_forgotten"];
    /// `revoke` leaves a user in place that has lost its marks.
    NeedsMarks = "needs-marks": "a user with the present credentials is the claim's own",
        ["a_user_that_lost_its_marks_is_removed"];

    // Keys.
    /// `rotate` deletes the key that apps use.
    RotateReplaces = "rotate-replaces": "`rotate` keeps the present keys",
        ["keys_are_rotated_and_the_previous_ones_retired"];
    /// `check` never deletes replaced keys.
    CheckKeepsKeys = "check-keeps-keys": "`check` deletes all keys except those to keep",
        ["keys_are_rotated_and_the_previous_ones_retired"];
    /// `check` deletes all keys but the present one.
    CheckDropsKeys = "check-drops-keys": "`check` deletes none of the keys to keep",
        ["a_check_keeps_keys_in_their_grace_period"];

    // Commands.
    /// `account` gives an account without asking the store.
    UnprovenAccount = "unproven-account": "an account comes from the store, which accepts the credentials",
        ["doctor_does_not_accept_a_wrong_owner_secret"];
    /// `examine` tries to create a bucket.
    ExamineWrites = "examine-writes": "`examine` only reads",
        ["doctor_passes_a_valid_class_and_changes_nothing"];
}

/// The mistake that the environment switches on.
///
/// # Errors
/// There is none of that name.
pub(crate) fn switched_on() -> Result<Option<Mutant>, String> {
    match env::var(VARIABLE) {
        Err(VarError::NotPresent) => Ok(None),
        value => {
            let value = value.unwrap_or_default();
            let found = MUTANTS.iter().find(|described| described.name == value);
            found.map(|described| Some(described.mutant)).ok_or_else(|| format!("{VARIABLE}={value}: no such mutant"))
        }
    }
}
