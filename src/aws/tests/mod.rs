//! The verbs against a store with canned answers, taken from AWS's documentation: which calls are made,
//! and what becomes of each refusal.
#![allow(clippy::unwrap_used)]

mod foreign;
mod policies;
mod provision;
mod refusals;
mod removal;
