//! Rows as a table, and their summary.

use k8s_openapi::jiff::Timestamp;

use super::row::{Attention, Row};
use crate::api::ClaimPhase;
use crate::cli::output::{Cell, Table, Tone, ago, until};

const HEAD: [&str; 10] =
    ["NAMESPACE", "NAME", "CLASS", "BUCKET", "PHASE", "REASON", "AGE", "WAITING", "KEY-AGE", "ROTATION"];

pub(crate) fn tone(attention: Attention) -> Tone {
    match attention {
        Attention::Needed => Tone::Bad,
        Attention::Working | Attention::Notice => Tone::Busy,
        Attention::None => Tone::Good,
    }
}

pub(crate) fn phase(phase: Option<ClaimPhase>) -> &'static str {
    match phase {
        None => "",
        Some(ClaimPhase::Pending) => "Pending",
        Some(ClaimPhase::Bound) => "Bound",
        Some(ClaimPhase::Released) => "Released",
        Some(ClaimPhase::Failed) => "Failed",
    }
}

/// The lines of a table; `wide` adds the ObjectBucket, the expiry of the previous key, and the message.
pub(crate) fn lines(rows: &[Row], wide: bool, colours: bool, now: Timestamp) -> Vec<String> {
    let further: &[&str] = if wide { &["OBJECTBUCKET", "PREVIOUS-KEY", "MESSAGE"] } else { &[] };
    let mut table = Table::new(&[&HEAD[..], further].concat());
    for row in rows {
        let tone = tone(row.attention);
        let text = |text: &Option<String>| Cell::new(text.as_deref().unwrap_or_default());
        let mut cells = vec![
            Cell::new(&row.namespace),
            Cell::new(&row.name),
            text(&row.class),
            text(&row.bucket),
            Cell::toned(phase(row.phase), tone),
            Cell::toned(row.reason.as_deref().unwrap_or_default(), tone),
            Cell::new(ago(row.created_at, now)),
            Cell::new(ago(row.waiting_since, now)),
            Cell::new(ago(row.keys_issued_at, now)),
            Cell::new(until(row.rotation_due_at, now)),
        ];
        if wide {
            cells.push(text(&row.object_bucket));
            cells.push(Cell::new(until(row.former_key_deleted_at, now)));
            cells.push(Cell::whole(row.message.as_deref().unwrap_or_default()));
        }
        table.row(cells);
    }
    table.render(colours)
}

/// How many claims there are, and how many of them need attention.
pub(crate) fn summary(rows: &[Row]) -> String {
    let count = |attention| rows.iter().filter(|row| row.attention == attention).count();
    let parts = [
        (count(Attention::Needed), "need attention"),
        (count(Attention::Working), "in progress"),
        (count(Attention::Notice), "with a warning"),
        (count(Attention::None), "fine"),
    ];
    let parts: Vec<_> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    let claims = if rows.len() == 1 { "claim" } else { "claims" };
    format!("{} {claims}: {}", rows.len(), parts.join(", "))
}
