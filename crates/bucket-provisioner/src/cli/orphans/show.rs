//! Orphans as text.

use console::Color;

use super::find::Found;
use super::orphan::Orphan;
use crate::cli::output::{cell, clean, listed, painted, table};

const HEAD: [&str; 7] = ["KIND", "NAME", "CLAIM", "BUCKET", "USER", "REASON", "ACTIONS"];
const WIDE: [&str; 2] = ["ACCOUNT", "MESSAGE"];

/// Orphans as a table; `wide` adds account and message.
pub(crate) fn render(found: &Found, wide: bool) -> String {
    let further: &[&str] = if wide { &WIDE } else { &[] };
    let mut lines = match found.orphans.len() {
        0 => vec![none(found).to_owned()],
        count => {
            let mut lines = table(&[&HEAD[..], further].concat(), found.orphans.iter().map(cells));
            let orphans = if count == 1 { "orphan" } else { "orphans" };
            lines.extend([String::new(), format!("{count} {orphans}; `orphans --help` explains the actions")]);
            lines
        }
    };
    if !found.of_other_clusters.is_empty() {
        let names: Vec<_> = found.of_other_clusters.iter().map(|one| clean(&one.name)).collect();
        lines.push(format!("of other clusters, so not changed from here: {}", listed(&names, 10)));
    }
    lines.extend(found.notes.iter().map(|note| format!("note: {}", clean(note))));
    lines.join("\n") + "\n"
}

/// The line if no orphan was found.
pub(crate) fn none(found: &Found) -> &'static str {
    if found.is_complete { "no orphans" } else { "no orphans found, but not everything was checked" }
}

fn cells(orphan: &Orphan) -> Vec<String> {
    let text = |text: &Option<String>| cell(text.as_deref().unwrap_or_default());
    let actions = match &orphan.annotation {
        Some(action) => format!("{action} (pending)"),
        None => orphan.actions.join(","),
    };
    vec![
        cell(&format!("{:?}", orphan.kind)),
        cell(&orphan.name),
        cell(&orphan.claim.to_string()),
        text(&orphan.bucket),
        text(&orphan.user),
        painted(&cell(&orphan.reason), Color::Red),
        cell(&actions),
        text(&orphan.account),
        clean(&orphan.message),
    ]
}
