//! How commands print: aligned tables, colours on a terminal, JSON and YAML. Tenants write names, messages and
//! annotations, so nothing of theirs reaches a terminal with control characters in it.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use console::{Alignment, Color, measure_text_width, pad_str};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::Value;

use operator_runtime::program::print;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table, or text
    #[default]
    #[value(alias = "text")]
    Table,
    /// A table with all columns
    Wide,
    /// Names only, as `kubectl -o name`
    Name,
    /// YAML, for scripts
    Yaml,
    /// JSON, for scripts
    Json,
}

impl Format {
    /// For people, and not for scripts.
    pub(crate) const fn is_text(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }
}

/// A name as `kubectl -o name` prints it.
pub(crate) fn claim_name(name: &str) -> String {
    format!("objectbucketclaim.objectbucket.io/{name}")
}

/// Text in the colour of its meaning, if standard output is a terminal that takes colours (no-color.org).
pub(crate) fn painted(text: &str, colour: Color) -> String {
    console::style(text).fg(colour).to_string()
}

/// Longest cell of a table, in characters. Longer names of namespaces and claims are rare.
const CELL_MAX: usize = 72;

/// A cell with text that tenants may have written; `-` if it is empty.
pub(crate) fn cell(text: &str) -> String {
    let text = clean(text);
    match text.char_indices().nth(CELL_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None if text.is_empty() => "-".to_owned(),
        None => text,
    }
}

/// The lines of a header and rows, aligned. Cells of a row for which the header has no column are left out.
pub(crate) fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Vec<String> {
    let first = head.iter().copied().map(str::to_owned).collect();
    let rows: Vec<Vec<String>> = std::iter::once(first).chain(rows).collect();
    let width = |column: usize| rows.iter().filter_map(|row| Some(measure_text_width(row.get(column)?))).max();
    let widths: Vec<_> = (0..head.len()).map(|column| width(column).unwrap_or_default()).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| pad_str(cell, *width, Alignment::Left, None));
        cells.collect::<Vec<_>>().join("   ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// The first of these names, and how many more there are.
pub(crate) fn listed(names: &[String], first: usize) -> String {
    let shown = names.iter().take(first).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(first) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// A number with its noun.
pub(crate) fn counted<N: fmt::Display + PartialEq + From<u8>>(number: N, one: &str, many: &str) -> String {
    let noun = if number == N::from(1_u8) { one } else { many };
    format!("{number} {noun}")
}

/// Text in one line, without control sequences of terminals and without characters that reorder or hide other text.
pub(crate) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' | '\t' => ' ',
            c if c.is_control() || is_invisible(c) => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// Characters that are not displayed and that reorder or hide others.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Prints a document in JSON or YAML, the names in it, or the text.
///
/// # Errors
/// The document cannot be serialized, or standard output cannot be written.
pub(crate) fn show(
    document: &impl Serialize,
    format: Format,
    names: impl FnOnce() -> Vec<String>,
    text: impl FnOnce() -> String,
) -> Result<(), Box<dyn Error>> {
    print(&match format {
        Format::Table | Format::Wide => text(),
        Format::Name => names().iter().map(|name| clean(name) + "\n").collect(),
        Format::Json => serde_json::to_string_pretty(&value(document)?)? + "\n",
        Format::Yaml => serde_saphyr::to_string(&value(document)?)?,
    })
}

/// Prints a line about what a command does; to standard error if the format is for scripts: standard output is for the
/// document then.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn progress(format: Format, text: &str) -> Result<(), Box<dyn Error>> {
    let text = clean(text);
    if format.is_text() {
        return print(&(text + "\n"));
    }
    eprintln!("{text}");
    Ok(())
}

/// A document in which no text has control characters.
pub(crate) fn value(document: &impl Serialize) -> serde_json::Result<Value> {
    serde_json::to_value(document).map(cleaned)
}

fn cleaned(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(clean(&text)),
        Value::Array(all) => Value::Array(all.into_iter().map(cleaned).collect()),
        Value::Object(all) => Value::Object(all.into_iter().map(|(key, value)| (key, cleaned(value))).collect()),
        other => other,
    }
}

/// The age, as kubectl shows it.
pub(crate) fn ago(then: Option<&Time>, now: Timestamp) -> String {
    then.map(|then| span(now.duration_since(then.0))).unwrap_or_default()
}

/// The remaining time; `now` if it is over.
pub(crate) fn until(then: Option<&Time>, now: Timestamp) -> String {
    let left = then.map(|then| then.0.duration_since(now));
    left.map(|left| if left.is_positive() { span(left) } else { "now".to_owned() }).unwrap_or_default()
}

/// A duration with its two largest units.
fn span(duration: SignedDuration) -> String {
    let seconds = Duration::try_from(duration).unwrap_or_default().as_secs();
    let two = |large: u64, unit: char, small: u64, small_unit: char| match small {
        0 => format!("{large}{unit}"),
        small => format!("{large}{unit}{small}{small_unit}"),
    };
    match seconds {
        691_200.. => format!("{}d", seconds / 86_400),
        86_400.. => two(seconds / 86_400, 'd', seconds / 3600 % 24, 'h'),
        3600.. => two(seconds / 3600, 'h', seconds / 60 % 60, 'm'),
        600.. => format!("{}m", seconds / 60),
        60.. => two(seconds / 60, 'm', seconds % 60, 's'),
        _ => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_tenants_has_no_control_characters() {
        assert_eq!(clean("a\x1b[2Jb\r\nc\u{9b}31md\u{202e}e"), "a\u{fffd}[2Jb\u{fffd} c\u{fffd}31md\u{fffd}e");
        assert_eq!(cleaned(serde_json::json!({ "message": ["a\u{9b}b"] }))["message"][0], "a\u{fffd}b");
    }

    #[test]
    fn columns_are_aligned_with_wide_characters_and_colours() {
        let bound = console::style("Bound").green().force_styling(true).to_string();
        let rows = [vec![cell("日本"), bound.clone(), cell("a")], vec![cell(""), cell("Pending"), cell("b")]];
        let bound = format!("日本   {bound}     a");
        assert_eq!(table(&["NAME", "PHASE", "X"], rows), ["NAME   PHASE     X", &bound, "-      Pending   b"]);
    }

    #[test]
    fn one_is_singular() {
        let shown = [0_u64, 1, 2].map(|number| counted(number, "object", "objects and versions"));
        assert_eq!(shown, ["0 objects and versions", "1 object", "2 objects and versions"]);
    }

    #[test]
    fn times_are_short() {
        let spans = [5, 65, 3599, 3600, 90_000, 864_000].map(|s| span(SignedDuration::from_secs(s)));
        assert_eq!(spans, ["5s", "1m5s", "59m", "1h", "1d1h", "10d"]);
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(until(Some(&Time(now)), now), "now");
        assert_eq!(ago(None, now), "");
    }
}
