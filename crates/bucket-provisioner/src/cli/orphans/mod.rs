//! `orphans`: buckets, users and ObjectBuckets without a claim, claims without them, and the actions that an admin can
//! apply.
//!
//! | file | what it holds |
//! |---|---|
//! | `find` | reads the store and the cluster, in an order in which nothing new looks orphaned |
//! | `places` | the accounts and stores to read, each once |
//! | `judge` | what is an orphan, and which actions are possible. Pure |
//! | `lost` | bound claims whose bucket no longer exists |
//! | `orphan` | an orphan, as it is shown. Pure |
//! | `plan` | the plan for an action: the ObjectBucket to annotate, and what the operator will do |
//! | `apply` | asks the admin, and annotates the ObjectBuckets |
//! | `show` | orphans as text |

mod apply;
mod find;
mod judge;
mod lost;
mod orphan;
mod places;
mod plan;
mod show;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use self::orphan::Orphan;
use super::output::{self, Format};
use super::session::Session;
use crate::decide::action::Action;
use crate::store::Provisioner;
use operator_runtime::values::duration;

/// Exit code if there are orphans.
pub(crate) const FOUND: u8 = 3;

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct OrphansArgs {
    /// Print in this format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Format,
    /// Let the operator delete or adopt orphans, after you confirm a plan
    ///
    /// The command annotates ObjectBuckets with the actions of --action. Scheduled deletions, also those that wait for
    /// other claims, are skipped, except with --only.
    #[arg(long)]
    apply: bool,
    #[command(flatten)]
    wanted: Wanted,
}

/// The actions for orphans.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "With --apply")]
pub(crate) struct Wanted {
    /// Apply this action to all orphans that allow it
    ///
    /// Without this flag, the command asks for each orphan. `remove` and `revoke` need --only where something else may
    /// still use bucket and user, and for a bucket without user or role, which may be kept on purpose.
    #[arg(long, value_name = "ACTION", requires = "apply")]
    pub(crate) action: Option<Action>,
    /// Select only this ObjectBucket, bucket or user; can be repeated
    #[arg(long, value_name = "NAME", requires = "apply")]
    pub(crate) only: Vec<String>,
    /// Use this StorageClass to rebuild a lost ObjectBucket
    #[arg(long, value_name = "NAME", requires = "apply")]
    pub(crate) class: Option<String>,
    /// Do not ask for confirmation
    ///
    /// Does not confirm the deletion of a bucket that has objects: see --bucket.
    #[arg(long, requires = "apply")]
    pub(crate) yes: bool,
    /// Delete this bucket even if it has objects; can be repeated
    #[arg(long, value_name = "NAME", requires = "apply")]
    pub(crate) bucket: Vec<String>,
    /// Wait until the operator has applied the actions
    #[arg(long, default_value = "true", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = clap::ArgAction::Set, requires = "apply")]
    pub(crate) wait: bool,
    /// Wait for the operator for this time at most
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration)]
    pub(crate) timeout: Duration,
}

/// Finds orphans, and shows them or applies actions.
///
/// # Errors
/// Kubernetes or the store refused: there may be more orphans.
pub(crate) async fn run<P: Provisioner>(session: &Session<P>, args: &OrphansArgs) -> Result<ExitCode, Box<dyn Error>> {
    let found = find::all(session).await?;
    for problem in &found.problems {
        eprintln!("{}", output::clean(problem));
    }
    let none = !found.orphans.iter().any(Orphan::needs_decision);
    let code = match (found.problems.is_empty(), none) {
        (false, _) => ExitCode::FAILURE,
        (true, true) => ExitCode::SUCCESS,
        (true, false) => ExitCode::from(FOUND),
    };
    if args.apply {
        let is_known = found.problems.is_empty();
        let done = apply::apply(session, found, args).await?;
        // What could not be checked may be an orphan without an action.
        return Ok(if is_known { done } else { ExitCode::FAILURE });
    }
    let names = || found.orphans.iter().filter(|orphan| orphan.needs_decision()).map(Orphan::full_name).collect();
    output::show(&found, args.output, names, || show::render(&found, args.output == Format::Wide))?;
    Ok(code)
}
