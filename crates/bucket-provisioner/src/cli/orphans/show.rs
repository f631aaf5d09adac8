//! Orphans as text.

use super::count;
use super::find::Found;
use super::orphan::{Kind, Orphan};
use crate::cli::output::{Cell, Table, Tone, clean};

/// Orphans as a table; `wide` adds account and message.
pub(crate) fn render(found: &Found, wide: bool, colours: bool) -> String {
    let mut lines = Vec::new();
    if found.orphans.is_empty() {
        lines.push(none(found).to_owned());
    } else {
        lines.extend(table(&found.orphans, wide, colours));
        lines.extend([String::new(), format!("{}; `orphans --help` explains the actions", count(found))]);
    }
    if !found.of_other_clusters.is_empty() {
        let names: Vec<_> = found.of_other_clusters.iter().take(10).map(|one| one.name.as_str()).collect();
        let more = found.of_other_clusters.len().saturating_sub(names.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        lines.push(format!("of other clusters, so not changed from here: {}{more}", names.join(", ")));
    }
    lines.extend(found.notes.iter().map(|note| format!("note: {note}")));
    lines.iter().map(|line| if colours { line.clone() } else { clean(line) } + "\n").collect()
}

/// The line if no orphan was found.
pub(crate) fn none(found: &Found) -> &'static str {
    if found.is_complete { "no orphans" } else { "no orphans found, but not everything was checked" }
}

fn table(orphans: &[Orphan], wide: bool, colours: bool) -> Vec<String> {
    let further: &[&str] = if wide { &["ACCOUNT", "MESSAGE"] } else { &[] };
    let head = ["KIND", "NAME", "CLAIM", "BUCKET", "USER", "REASON", "ACTIONS"];
    let mut table = Table::new(&[&head[..], further].concat());
    for orphan in orphans {
        let text = |text: &Option<String>| Cell::new(text.as_deref().unwrap_or_default());
        let actions = match &orphan.annotation {
            Some(action) => format!("{action} (pending)"),
            None => orphan.actions.join(","),
        };
        let mut cells = vec![
            Cell::new(kind(orphan.kind)),
            Cell::new(&orphan.name),
            Cell::new(format!("{}/{}", orphan.claim_namespace, orphan.claim_name)),
            text(&orphan.bucket),
            text(&orphan.user),
            Cell::toned(&orphan.reason, Tone::Bad),
            Cell::new(actions),
        ];
        if wide {
            cells.extend([text(&orphan.account), Cell::whole(&orphan.message)]);
        }
        table.row(cells);
    }
    table.render(colours)
}

pub(crate) fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::ObjectBucket => "ObjectBucket",
        Kind::Bucket => "Bucket",
        Kind::User => "User",
        Kind::ObjectBucketClaim => "ObjectBucketClaim",
    }
}
