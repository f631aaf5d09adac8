//! `status`: all claims of this provisioner, those that need attention first; or the details of one claim.

mod details;
mod gather;
mod keys;
mod render;
mod row;
mod scheduled;
mod table;
mod watch;

use std::error::Error;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::output::{self, Format};
use super::session::Session;
use crate::store::Provisioner;
use operator_runtime::values::duration;

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct StatusArgs {
    /// Show the details of this claim
    ///
    /// These are its ObjectBucket, its keys, the size of its bucket, its events, what it waits for, and what its
    /// deletion would delete. NAME alone is in the namespace of --namespace, or of the context.
    #[arg(value_name = "[NAMESPACE/]NAME")]
    claim: Option<String>,
    /// Print in this format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Format,
    /// Show changes until stopped
    ///
    /// On a terminal, redraws the table with the progress of bucket deletions. Otherwise, prints a line for each
    /// change.
    #[arg(short, long, conflicts_with = "claim")]
    watch: bool,
    /// Refresh this often, with --watch
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    interval: Duration,
}

/// Shows claims.
///
/// # Errors
/// Kubernetes refused, or there is no such claim.
pub(crate) async fn run<P: Provisioner>(session: &Session<P>, args: &StatusArgs) -> Result<(), Box<dyn Error>> {
    if let Some(claim) = &args.claim {
        let (namespace, name) = session.named(claim)?;
        let details = details::of(session, &namespace, &name).await?;
        let names = || vec![output::claim_name(&name)];
        return output::show(&details, args.output, names, || render::render(&details, Timestamp::now()));
    }
    if args.watch {
        return watch::watch(session, args.output, args.interval).await;
    }
    let listing = gather::all(session).await?;
    if let Some(problem) = &listing.problem {
        eprintln!("{}", output::clean(problem));
    }
    if args.output == Format::Name && session.namespace.is_none() {
        return Err("names alone do not show the namespaces of the claims: add --namespace, or use -o json".into());
    }
    let names = || listing.rows.iter().map(|row| output::claim_name(&row.name)).collect();
    output::show(&listing, args.output, names, || {
        let now = Timestamp::now();
        let scheduled = scheduled::summary(&listing.scheduled, now).map(|text| text + "\n").unwrap_or_default();
        if listing.rows.is_empty() {
            let place =
                session.namespace.as_ref().map_or("any namespace".to_owned(), |name| format!("namespace {name}"));
            return format!("no claims of provisioner {} in {place}\n{scheduled}", session.provisioner);
        }
        let lines = table::lines(&listing.rows, args.output == Format::Wide, now);
        format!("{}\n\n{}\n{scheduled}", lines.join("\n"), table::summary(&listing.rows))
    })
}
