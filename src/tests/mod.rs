//! The verbs against a store with canned answers, taken from AWS's documentation: which calls they make, and what each
//! refusal becomes. And the policies and templates that are shipped for these calls.
#![allow(clippy::unwrap_used)]

mod association;
mod delete;
mod emptying;
mod endpoints;
mod foreign;
mod inventory;
mod locks;
mod owner_role;
mod policies;
mod probe;
mod provision;
mod rates;
mod refusals;
mod revoke;
mod role;
mod setting_calls;
mod settings;
mod templates;
