//! A provisioner for a store that exists for tests only, with mistakes that can be switched on: `MUTANT=takes-foreign` in
//! the environment makes one of those in `mutant.rs`. Without it the provisioner is correct.
//!
//! `tests/` has the store itself, the conformance kit for this provisioner, and the test that each mistake is found by the
//! check that the table names.

mod client;
mod mutant;
mod reasons;
mod store;
mod users;

use std::process::ExitCode;

use bucket_provisioner::Operator;

fn main() -> ExitCode {
    let mutant = match mutant::switched_on() {
        Ok(mutant) => mutant,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::FAILURE;
        }
    };
    Operator::new("example.com/locker")
        .about("Provisions lockers as buckets, for tests of the conformance kit.")
        .version(env!("CARGO_PKG_VERSION"))
        .run_with(store::Lockers::new(mutant))
}
