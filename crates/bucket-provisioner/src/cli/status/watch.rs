//! `status --watch`: redraws the table, with a bar for each bucket that is being emptied. If standard output is not a
//! terminal, prints a line for each change.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use k8s_openapi::jiff::Timestamp;

use super::gather;
use super::row::Row;
use super::table;
use crate::cli::output::{self, Format, clean};
use crate::cli::session::Session;
use operator_runtime::program::print;

/// Shows claims until the process is stopped. A failed read is reported and retried.
///
/// # Errors
/// The first read failed, or standard output is closed.
pub(crate) async fn watch<P>(session: &Session<P>, format: Format, interval: Duration) -> Result<(), Box<dyn Error>> {
    let mut screen = (std::io::stdout().is_terminal() && format.is_text()).then(|| Screen::new(format == Format::Wide));
    let mut lines = Lines { format, shown: BTreeMap::new() };
    let mut seen = gather::all(session).await?;
    loop {
        match &mut screen {
            Some(screen) => screen.draw(&seen.rows),
            None => lines.print(&seen.rows)?,
        }
        seen = loop {
            tokio::time::sleep(interval).await;
            match gather::all(session).await {
                Ok(seen) => break seen,
                Err(problem) => match &screen {
                    Some(screen) => screen.report(&problem),
                    None => eprintln!("{}; retrying", clean(&problem)),
                },
            }
        };
    }
}

/// A terminal on which the table and the bars are redrawn.
struct Screen {
    wide: bool,
    all: MultiProgress,
    text: ProgressBar,
    purges: BTreeMap<String, ProgressBar>,
}

impl Screen {
    fn new(wide: bool) -> Self {
        let all = MultiProgress::with_draw_target(indicatif::ProgressDrawTarget::stdout());
        let text = all.add(ProgressBar::new_spinner().with_style(style("{msg}")));
        Self { wide, all, text, purges: BTreeMap::new() }
    }

    fn draw(&mut self, rows: &[Row]) {
        let purged: BTreeMap<_, _> = rows.iter().filter(|row| row.is_purged()).map(|row| (&row.uid, row)).collect();
        let (height, width) = console::Term::stdout().size();
        let room = usize::from(height).saturating_sub(purged.len().min(8) + 4).max(3);
        // A line as wide as the terminal would end without a new line.
        let width = usize::from(width).saturating_sub(1);
        let mut lines = self.lines(rows, width);
        if lines.len() > room {
            let left = lines.len() - room;
            lines.truncate(room);
            lines.push(format!("… and {left} more"));
        }
        lines.push(String::new());
        lines.push(table::summary(rows));
        let lines: Vec<_> = lines.iter().map(|line| console::truncate_str(line, width, "…").into_owned()).collect();
        self.text.set_message(lines.join("\n"));
        self.purges.retain(|uid, bar| {
            let stays = purged.contains_key(uid);
            if !stays {
                bar.finish_and_clear();
            }
            stays
        });
        // More bars than these would push the table off the screen.
        for (uid, row) in purged.into_iter().take(8) {
            let bar = self.purges.entry(uid.clone()).or_insert_with(|| {
                // The total is not known, so the bar shows how much is removed, and how fast.
                let bar = ProgressBar::new_spinner().with_style(style(PURGE));
                self.all.add(bar)
            });
            bar.set_message(clean(row.bucket.as_deref().unwrap_or(&row.name)));
            bar.set_position(row.removed_so_far.unwrap_or_default());
            bar.tick();
        }
    }

    /// The table. If it is too wide, names of buckets are cut, because phase and reason come after them.
    fn lines(&self, rows: &[Row], width: usize) -> Vec<String> {
        let table = |rows: &[Row]| table::lines(rows, self.wide, Timestamp::now());
        let lines = table(rows);
        let widest = lines.iter().map(|line| console::measure_text_width(line)).max().unwrap_or_default();
        if self.wide || widest <= width {
            return lines;
        }
        let longest = rows.iter().filter_map(|row| Some(row.bucket.as_deref()?.len())).max().unwrap_or_default();
        let left = longest.saturating_sub(widest - width).max(12);
        let cut = |bucket: String| console::truncate_str(&bucket, left, "…").into_owned();
        table(&rows.iter().cloned().map(|row| Row { bucket: row.bucket.map(cut), ..row }).collect::<Vec<_>>())
    }

    fn report(&self, problem: &str) {
        // Fails only if the terminal is closed.
        let _ = self.all.println(format!("{}; retrying", clean(problem)));
    }
}

const PURGE: &str = "{spinner} emptying {msg}: {human_pos} removed, {per_sec}";

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

/// Prints a line for each change.
struct Lines {
    format: Format,
    /// Name and status of each claim as they were printed last, by uid.
    shown: BTreeMap<String, (String, String)>,
}

impl Lines {
    fn print(&mut self, rows: &[Row]) -> Result<(), Box<dyn Error>> {
        let mut text = String::new();
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let mut left = std::mem::take(&mut self.shown);
        for row in rows {
            let claim = clean(&format!("{}/{}", row.namespace, row.name));
            let status = clean(&format!("{} {}", row.status(), row.message.as_deref().unwrap_or_default()));
            if left.remove(&row.uid).is_none_or(|(_, previous)| previous != status) {
                match self.format {
                    Format::Name => text.push_str(&format!("{}\n", output::claim_name(&clean(&row.name)))),
                    Format::Json => text.push_str(&format!("{}\n", output::value(row)?)),
                    Format::Yaml => text.push_str(&format!("---\n{}", serde_saphyr::to_string(&output::value(row)?)?)),
                    Format::Table | Format::Wide => text.push_str(&format!("{now} {claim} {}\n", status.trim())),
                }
            }
            self.shown.insert(row.uid.clone(), (claim, status));
        }
        if self.format.is_text() {
            text.extend(left.values().map(|(claim, _)| format!("{now} {claim} deleted\n")));
        }
        print(&text)
    }
}
