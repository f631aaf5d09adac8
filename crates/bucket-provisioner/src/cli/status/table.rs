//! Rows as a table, and their summary.

use console::Color;
use k8s_openapi::jiff::Timestamp;

use super::keys::KeyTimes;
use super::row::{Attention, Row};
use crate::cli::output::{ago, cell, clean, painted, table, until};

const HEAD: [&str; 8] = ["NAMESPACE", "NAME", "CLASS", "BUCKET", "PHASE", "REASON", "AGE", "WAITING"];
const WIDE: [&str; 3] = ["OBJECTBUCKET", "PREVIOUS-KEY", "MESSAGE"];

pub(crate) fn colour(attention: Attention) -> Color {
    match attention {
        Attention::Needed => Color::Red,
        Attention::Working | Attention::Notice => Color::Yellow,
        Attention::None => Color::Green,
    }
}

/// The lines of a table; `wide` adds the ObjectBucket, the expiry of the previous key, and the message.
pub(crate) fn lines(rows: &[Row], wide: bool, now: Timestamp) -> Vec<String> {
    let cells = |row: &Row| {
        let text = |text: &Option<String>| cell(text.as_deref().unwrap_or_default());
        let status = |text: &str| painted(&cell(text), colour(row.attention));
        let [key_age, replaced] = row.keys.cells(now);
        vec![
            cell(&row.namespace),
            cell(&row.name),
            text(&row.class),
            text(&row.bucket),
            status(&row.phase()),
            status(row.reason.as_deref().unwrap_or_default()),
            cell(&ago(row.created_at.as_ref(), now)),
            cell(&ago(row.waiting_since.as_ref(), now)),
            key_age,
            replaced,
            text(&row.object_bucket),
            cell(&until(row.keys.former_key_deleted_at.as_ref(), now)),
            clean(row.message.as_deref().unwrap_or_default()),
        ]
    };
    let further: &[&str] = if wide { &WIDE } else { &[] };
    table(&[&HEAD[..], &KeyTimes::HEAD, further].concat(), rows.iter().map(cells))
}

/// How many claims there are, and how many of them need attention.
pub(crate) fn summary(rows: &[Row]) -> String {
    let count = |attention| rows.iter().filter(|row| row.attention == attention).count();
    let parts = [
        (Attention::Needed, if count(Attention::Needed) == 1 { "needs attention" } else { "need attention" }),
        (Attention::Working, "in progress"),
        (Attention::Notice, "with a warning"),
        (Attention::None, "fine"),
    ];
    let parts = parts.map(|(attention, what)| (count(attention), what));
    let parts: Vec<_> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    let claims = if rows.len() == 1 { "claim" } else { "claims" };
    format!("{} {claims}: {}", rows.len(), parts.join(", "))
}
