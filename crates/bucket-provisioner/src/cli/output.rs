//! How commands print: aligned tables, colours on a terminal, JSON and YAML. Tenants write names, messages and
//! annotations, so nothing of theirs reaches a terminal with control characters in it.

use std::error::Error;
use std::io::IsTerminal as _;
use std::time::Duration;

use clap::ValueEnum;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::{Serialize, Serializer};
use serde_json::Value;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table
    #[default]
    Table,
    /// A table with all columns
    Wide,
    /// YAML, for scripts
    Yaml,
    /// JSON, for scripts
    Json,
}

/// A time; in RFC 3339 in JSON and YAML.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct At(pub(crate) Timestamp);

impl Serialize for At {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0.strftime("%Y-%m-%dT%H:%M:%SZ"))
    }
}

/// The meaning of a cell, which sets its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Good,
    Busy,
    Bad,
}

impl Tone {
    fn code(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Good => Some("32"),
            Self::Busy => Some("33"),
            Self::Bad => Some("31"),
        }
    }
}

/// Whether standard output takes colours: it is a terminal, and NO_COLOR (no-color.org) is not set.
pub(crate) fn has_colours() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    std::io::stdout().is_terminal() && !is_set("NO_COLOR") && std::env::var("TERM").is_ok_and(|term| term != "dumb")
}

/// Text in the colour of its meaning.
pub(crate) fn painted(text: &str, tone: Tone, colours: bool) -> String {
    match tone.code().filter(|_| colours) {
        Some(code) => format!("\x1b[{code}m{text}\x1b[0m"),
        None => text.to_owned(),
    }
}

/// Longest cell of a table, in characters. Longer names of namespaces and claims are rare.
const CELL_MAX: usize = 72;

#[derive(Debug, Clone)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// Text that tenants may have written; `-` if it is empty.
    pub(crate) fn new(text: impl AsRef<str>) -> Self {
        Self::toned(text, Tone::Plain)
    }

    /// As [`new`](Self::new), with a meaning.
    pub(crate) fn toned(text: impl AsRef<str>, tone: Tone) -> Self {
        let text = clean(text.as_ref());
        let text = match text.char_indices().nth(CELL_MAX) {
            Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
            None => text,
        };
        Self { text: if text.is_empty() { "-".to_owned() } else { text }, tone }
    }

    /// As [`new`](Self::new), without a limit, for the last column.
    pub(crate) fn whole(text: impl AsRef<str>) -> Self {
        Self { text: clean(text.as_ref()), tone: Tone::Plain }
    }
}

/// A header and rows, aligned.
pub(crate) struct Table {
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(Cell::new).collect()] }
    }

    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    pub(crate) fn render(&self, colours: bool) -> Vec<String> {
        let width = |cell: &Cell| console::measure_text_width(&cell.text);
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let widest = |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(width).max().unwrap_or(0);
        let widths: Vec<_> = (0..columns).map(widest).collect();
        let line = |row: &Vec<Cell>| {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                line.push_str(&painted(&cell.text, cell.tone, colours));
                if column + 1 < row.len() {
                    let pad = widths.get(column).copied().unwrap_or(0) - width(cell);
                    line.extend(std::iter::repeat_n(' ', pad + 3));
                }
            }
            line
        };
        self.rows.iter().map(line).collect()
    }
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

/// A document in JSON or YAML; `None` for a table.
///
/// # Errors
/// The value cannot be serialized.
pub(crate) fn document(value: &impl Serialize, format: Format) -> Result<Option<String>, Box<dyn Error>> {
    let value = cleaned(serde_json::to_value(value)?);
    Ok(match format {
        Format::Table | Format::Wide => None,
        Format::Json => Some(serde_json::to_string_pretty(&value)? + "\n"),
        Format::Yaml => Some(serde_saphyr::to_string(&value)?),
    })
}

/// A document in one line of JSON.
///
/// # Errors
/// The value cannot be serialized.
pub(crate) fn json_line(value: &impl Serialize) -> Result<String, Box<dyn Error>> {
    Ok(cleaned(serde_json::to_value(value)?).to_string() + "\n")
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
pub(crate) fn ago(then: Option<At>, now: Timestamp) -> String {
    then.map(|At(then)| span(now.duration_since(then))).unwrap_or_default()
}

/// The remaining time; `now` if it is over.
pub(crate) fn until(then: Option<At>, now: Timestamp) -> String {
    then.map(|At(then)| then.duration_since(now))
        .map(|left| if left.is_positive() { span(left) } else { "now".to_owned() })
        .unwrap_or_default()
}

/// A duration with its two largest units.
fn span(duration: SignedDuration) -> String {
    let seconds = Duration::try_from(duration).unwrap_or_default().as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |large: u64, unit: char, small: u64, small_unit: char| match small {
        0 => format!("{large}{unit}"),
        small => format!("{large}{unit}{small}{small_unit}"),
    };
    match () {
        () if days > 7 => format!("{days}d"),
        () if days > 0 => two(days, 'd', hours % 24, 'h'),
        () if hours > 0 => two(hours, 'h', minutes % 60, 'm'),
        () if minutes > 9 => format!("{minutes}m"),
        () if minutes > 0 => two(minutes, 'm', seconds % 60, 's'),
        () => format!("{seconds}s"),
    }
}

/// A number of bytes for people.
pub(crate) fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut unit = 0;
    let mut rest = u128::from(count) * 10;
    while rest >= 10_240 && unit + 1 < units.len() {
        rest /= 1024;
        unit += 1;
    }
    let name = units.get(unit).copied().unwrap_or_default();
    if unit == 0 { format!("{count} {name}") } else { format!("{}.{} {name}", rest / 10, rest % 10) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn text_of_tenants_has_no_control_characters() {
        assert_eq!(clean("a\x1b[2Jb\r\nc\u{9b}31md\u{202e}e"), "a\u{fffd}[2Jb\u{fffd} c\u{fffd}31md\u{fffd}e");
        let text = document(&serde_json::json!({ "message": "a\u{9b}b" }), Format::Json).unwrap().unwrap();
        assert!(!text.contains('\u{9b}'), "{text}");
    }

    #[test]
    fn columns_are_aligned_with_wide_characters_and_colours() {
        let mut table = Table::new(&["NAME", "PHASE"]);
        table.row(vec![Cell::new("日本"), Cell::toned("Bound", Tone::Good)]);
        table.row(vec![Cell::new(""), Cell::new("Pending")]);
        assert_eq!(table.render(false), ["NAME   PHASE", "日本   Bound", "-      Pending"]);
        assert_eq!(table.render(true)[1], "日本   \x1b[32mBound\x1b[0m");
    }

    #[test]
    fn times_and_sizes_are_short() {
        let spans = [5, 65, 3599, 3600, 90_000, 864_000].map(|s| span(SignedDuration::from_secs(s)));
        assert_eq!(spans, ["5s", "1m5s", "59m", "1h", "1d1h", "10d"]);
        assert_eq!([0, 1023, 1024, 1_610_612_736].map(bytes), ["0 B", "1023 B", "1.0 KiB", "1.5 GiB"]);
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(until(Some(At(now)), now), "now");
        assert_eq!(ago(None, now), "");
    }
}
