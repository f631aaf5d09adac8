//! What an admin asks an installation: each command looks, prints what it found with the remedy, and ends. It looks with
//! the admin's own rights, and beside an operator that serves.
//!
//! A command reads by the same functions as the operator ([`controller`](crate::controller)'s `decide`), so that both say
//! the same of the same object. It knows the trait, and no store.
//!
//! | file | what it holds |
//! |---|---|
//! | `session` | what all commands look with: the client, the store, which provisioner |
//! | `output` | tables, JSON and YAML; what others have written, made harmless |
//! | `status` | all claims, or one claim's whole story |
//! | `orphans` | what no claim has, and what an admin wants done about it |
//! | `adopt` | restored claims get back what they had |
//! | `fate` | what the deletion of a claim would remove |
//! | `usage` | how much is in a bucket |
//! | `accounts` | the accounts that ObjectBuckets record |
//! | `doctor` | whether an installation works, and what to do about what does not |
//! | `ask`, `word` | questions; an admin's word on an ObjectBucket, and what the operator answers |

mod accounts;
pub(crate) mod adopt;
mod ask;
pub(crate) mod doctor;
mod fate;
pub(crate) mod orphans;
mod output;
mod session;
pub(crate) mod status;
mod usage;
mod word;

pub(crate) use self::output::clean;
pub(crate) use self::session::Session;
