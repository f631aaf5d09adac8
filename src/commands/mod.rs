//! What an admin asks an installation: each command looks, prints what it found with the remedy, and ends. It looks with
//! the admin's own rights, and beside an operator that serves.
//!
//! A command reads by the same functions as the operator ([`controller`](crate::controller)'s `decide`), so that both say
//! the same of the same object. It knows the trait, and no store.

pub(crate) mod doctor;
