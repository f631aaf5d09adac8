//! `status`: all claims of this provisioner, those that need attention first; or the details of one claim.

mod details;
mod gather;
mod render;
mod row;
mod scheduled;
mod table;
mod watch;

use std::error::Error;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use self::gather::Seen;
use super::Session;
use super::output::{self, Format};
use super::session::Classes;
use crate::api::object_name;
use crate::decide::claim::Claim;
use crate::store::Provisioner;
use operator_runtime::program::print;
use operator_runtime::values::duration;

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct StatusArgs {
    /// Show the details of this claim
    ///
    /// These are its ObjectBucket, its keys, the size of its bucket, its events, what it waits for, and what its
    /// deletion would delete. NAME alone needs --namespace.
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

impl Default for StatusArgs {
    fn default() -> Self {
        Self { claim: None, output: Format::Table, watch: false, interval: Duration::from_secs(5) }
    }
}

/// Shows claims.
///
/// # Errors
/// Kubernetes refused, or there is no such claim.
pub(crate) async fn run<P: Provisioner>(session: &Session<P>, args: &StatusArgs) -> Result<(), Box<dyn Error>> {
    if let Some(claim) = &args.claim {
        let (namespace, name) = named(session, claim)?;
        let details = details::of(session, &namespace, &name).await?;
        return print(&match output::document(&details, args.output)? {
            Some(text) => text,
            None => render::render(&details, output::has_colours(), Timestamp::now()),
        });
    }
    if args.watch {
        return watch::watch(session, args.output, args.interval).await;
    }
    let Seen { rows, scheduled, unseen } = gather::all(session).await?;
    if let Some(unseen) = unseen {
        eprintln!("{}", output::clean(&unseen));
    }
    if let Some(text) = output::document(&json!({ "claims": rows, "scheduledDeletions": scheduled }), args.output)? {
        return print(&text);
    }
    let now = Timestamp::now();
    let scheduled = scheduled::summary(&scheduled, now).map(|text| text + "\n").unwrap_or_default();
    if rows.is_empty() {
        let where_ = session.namespace.as_deref().map_or("any namespace".to_owned(), |ns| format!("namespace {ns}"));
        return print(&format!("no claims of provisioner {} in {where_}\n{scheduled}", session.provisioner));
    }
    let lines = table::lines(&rows, args.output == Format::Wide, output::has_colours(), now);
    print(&format!("{}\n\n{}\n{scheduled}", lines.join("\n"), table::summary(&rows)))
}

/// Namespace and name of a claim; the namespace may be that of `--namespace`.
pub(crate) fn named<P>(session: &Session<P>, text: &str) -> Result<(String, String), String> {
    let (namespace, name) = match (text.split_once('/'), &session.namespace) {
        (Some((namespace, name)), _) => (namespace, name),
        (None, Some(namespace)) => (namespace.as_str(), text),
        (None, None) => return Err(format!("the claim's namespace is missing; use NAMESPACE/{text} or --namespace")),
    };
    if object_name(namespace).is_none() || object_name(name).is_none() {
        return Err(format!("{text:?} is not a claim's namespace and name, such as shop/photos"));
    }
    Ok((namespace.to_owned(), name.to_owned()))
}

/// Whether a claim belongs to this provisioner, judged by its class and its labels.
pub(crate) fn shows<P>(session: &Session<P>, classes: &Classes, claim: &Claim, class: Option<&str>) -> bool {
    gather::shows(session, classes, claim, class, false)
}
