//! `orphans`: what no claim has, and what an admin wants done about it.
//!
//! | file | what it holds |
//! |---|---|
//! | `find` | reads the store and the cluster, in an order in which nothing new looks orphaned |
//! | `places` | where to look: each account and store of the classes once |
//! | `recorded` | what ObjectBuckets name. Pure |
//! | `judge` | which of it is an orphan, and what can be done about it. Pure |
//! | `lost` | bound claims whose bucket is gone |
//! | `orphan` | an orphan, as it is shown. Pure |
//! | `plan` | what is to be done, as the admin says |
//! | `apply` | has it done by the operator |

mod apply;
mod find;
mod judge;
mod lost;
mod orphan;
mod places;
mod plan;
mod recorded;
mod show;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use self::find::Found;
use self::orphan::Orphan;
use super::Session;
use super::annotate::Word;
use super::output::{self, Format};
use crate::store::Provisioner;
use operator_runtime::program::print;
use operator_runtime::values::duration;

/// How many suspects are looked at side by side.
const AT_ONCE: usize = 16;

/// Exit code if there are orphans.
pub(crate) const FOUND: u8 = 3;

/// What to look for, and what to do about it.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct OrphansArgs {
    /// How to print.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Format,
    /// Have the operator do something about them, after a plan and a question.
    #[arg(long)]
    apply: bool,
    #[command(flatten)]
    wanted: Wanted,
}

/// What to do about orphans.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Wanted {
    /// With --apply: do this with all for which it is possible, instead of asking for each.
    #[arg(long, value_name = "WORD", requires = "apply")]
    pub(crate) action: Option<Word>,
    /// With --apply: only this ObjectBucket, bucket or user. Can be repeated.
    #[arg(long, value_name = "NAME", requires = "apply")]
    pub(crate) only: Vec<String>,
    /// With --apply: the StorageClass to take for a bucket or user whose ObjectBucket is lost.
    #[arg(long, value_name = "NAME", requires = "apply")]
    pub(crate) class: Option<String>,
    /// With --apply: do not ask. Does not agree to the deletion of a bucket that has objects: see --bucket.
    #[arg(long, requires = "apply")]
    pub(crate) yes: bool,
    /// With --apply: delete this bucket even if it has objects. Can be repeated.
    #[arg(long, value_name = "NAME", requires = "apply")]
    pub(crate) bucket: Vec<String>,
    /// With --apply: wait until the operator has done it.
    #[arg(long, default_value = "true", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = clap::ArgAction::Set, requires = "apply")]
    pub(crate) wait: bool,
    /// How long to wait for the operator.
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration)]
    pub(crate) timeout: Duration,
}

/// Looks for orphans, and does what the admin wants.
///
/// # Errors
/// Kubernetes or the store refused: then nobody knows whether there are more.
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
        // What could not be looked at was not dealt with.
        return Ok(if is_known { done } else { ExitCode::FAILURE });
    }
    print(&match output::document(&found, args.output)? {
        Some(text) => text,
        None => show::render(&found, args.output == Format::Wide, output::has_colours()),
    })?;
    Ok(code)
}

/// The number of orphans, for messages.
fn count(found: &Found) -> String {
    match found.orphans.len() {
        1 => "1 orphan".to_owned(),
        count => format!("{count} orphans"),
    }
}
