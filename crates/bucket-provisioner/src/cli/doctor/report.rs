//! The findings as text or JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::IsTerminal as _;

use clap::ValueEnum;
use serde::Serialize;

use crate::store::{Finding, Verdict};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text
    Text,
    /// JSON, for scripts
    Json,
}

/// What a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum Group {
    #[serde(rename = "API server")]
    ApiServer,
    #[serde(rename = "CustomResourceDefinition")]
    Crd,
    Permissions,
    Lease,
    StorageClass,
    #[serde(rename = "ObjectBuckets")]
    Records,
    Claims,
}

impl Group {
    fn heading(self) -> &'static str {
        match self {
            Self::ApiServer => "API server",
            Self::Crd => "CustomResourceDefinition",
            Self::Permissions => "Permissions",
            Self::Lease => "Lease",
            Self::StorageClass => "StorageClass",
            Self::Records => "ObjectBuckets",
            Self::Claims => "Claims",
        }
    }
}

/// All findings, in the order in which they are printed.
#[derive(Debug, Default)]
pub(super) struct Report(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    group: Group,
    subject: String,
    finding: Finding,
}

/// The format for scripts. Documented in docs/operating.md: names stay, and fields are only added.
#[derive(Serialize)]
struct Json<'a> {
    findings: Vec<JsonEntry<'a>>,
    summary: BTreeMap<&'static str, usize>,
}

#[derive(Serialize)]
struct JsonEntry<'a> {
    group: Group,
    subject: &'a str,
    what: &'a str,
    verdict: &'static str,
    message: &'a str,
    remedy: &'a str,
}

fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Good => "good",
        Verdict::Warning => "warning",
        Verdict::Bad => "bad",
        Verdict::Unknown => "unknown",
    }
}

const ALL: [Verdict; 4] = [Verdict::Good, Verdict::Warning, Verdict::Bad, Verdict::Unknown];

/// The mark of a verdict, and the code of its colour ("Select graphic rendition", ECMA-48).
fn mark(verdict: Verdict) -> (char, u8) {
    match verdict {
        Verdict::Good => ('✓', 32),
        Verdict::Warning => ('!', 33),
        Verdict::Bad => ('✗', 31),
        Verdict::Unknown => ('?', 36),
    }
}

impl Report {
    pub(super) fn add(&mut self, group: Group, subject: &str, findings: impl IntoIterator<Item = Finding>) {
        let entries = findings.into_iter().map(|finding| Entry { group, subject: subject.to_owned(), finding });
        self.0.extend(entries);
    }

    /// The first subject of a group that has this finding.
    pub(super) fn subject_of(&self, group: Group, finding: &Finding) -> Option<String> {
        let entry = self.0.iter().find(|entry| entry.group == group && entry.finding == *finding)?;
        Some(entry.subject.clone())
    }

    /// Whether nothing is bad.
    pub(super) fn is_good(&self) -> bool {
        self.count(Verdict::Bad) == 0
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.0.iter().filter(|entry| entry.finding.verdict == verdict).count()
    }

    pub(super) fn print(&self, format: Format) -> String {
        match format {
            Format::Text => self.text(has_colours()),
            Format::Json => self.json(),
        }
    }

    fn json(&self) -> String {
        let findings = self.0.iter().map(|Entry { group, subject, finding }| JsonEntry {
            group: *group,
            subject,
            what: &finding.what,
            verdict: verdict_name(finding.verdict),
            message: &finding.message,
            remedy: &finding.remedy,
        });
        let summary = ALL.into_iter().map(|verdict| (verdict_name(verdict), self.count(verdict))).collect();
        // Maps with keys that are text can always be written.
        let text = serde_json::to_string_pretty(&Json { findings: findings.collect(), summary }).unwrap_or_default();
        format!("{text}\n")
    }

    fn text(&self, colours: bool) -> String {
        let marked = |verdict| {
            let (mark, colour) = mark(verdict);
            if colours { format!("\x1b[{colour}m{mark}\x1b[0m") } else { mark.to_string() }
        };
        let mut text = String::new();
        let mut heading = None;
        for Entry { group, subject, finding } in &self.0 {
            if heading.replace((group, subject)) != Some((group, subject)) {
                let gap = if text.is_empty() { "" } else { "\n" };
                let _ = writeln!(text, "{gap}{}", format!("{} {}", group.heading(), printable(subject)).trim_end());
            }
            let Finding { what, verdict, message, remedy } = finding;
            let _ = writeln!(text, "  {} {}: {}", marked(*verdict), printable(what), printable(message));
            if !remedy.is_empty() {
                let _ = writeln!(text, "    → {}", printable(remedy));
            }
        }
        let counts = [Verdict::Bad, Verdict::Warning, Verdict::Unknown, Verdict::Good];
        let counts = counts.map(|verdict| format!("{} {}", marked(verdict), self.count(verdict))).join("   ");
        let _ = writeln!(text, "\n{}: {counts}", if self.is_good() { "No problems" } else { "Problems found" });
        text
    }
}

/// Without control characters, because tenants write names and messages.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Whether standard output is a terminal, and NO_COLOR (no-color.org) is not set.
fn has_colours() -> bool {
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let able = std::env::var_os("TERM").is_none_or(|terminal| terminal != "dumb");
    wanted && able && std::io::stdout().is_terminal()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn report() -> Report {
        let mut report = Report::default();
        report.add(Group::ApiServer, "", [Finding::about("version").good("v1.36.3")]);
        report.add(
            Group::StorageClass,
            "fast",
            [
                Finding::about("bucket").bad("bucket \"archive\" does not exist").with_remedy("create it"),
                Finding::about("quota").warning("4100 users, of 5000").with_remedy("ask"),
                Finding::about("permissions").unknown("cannot be \x1b[2J seen").with_remedy("submit a claim"),
            ],
        );
        report
    }

    #[test]
    fn each_finding_has_its_mark_and_the_remedy_below_it() {
        insta::assert_snapshot!(report().text(false), @r#"
        API server
          ✓ version: v1.36.3

        StorageClass fast
          ✗ bucket: bucket "archive" does not exist
            → create it
          ! quota: 4100 users, of 5000
            → ask
          ? permissions: cannot be  [2J seen
            → submit a claim

        Problems found: ✗ 1   ! 1   ? 1   ✓ 1
        "#);
        assert!(report().text(true).contains("\x1b[31m✗\x1b[0m bucket"));
        assert!(!report().is_good());
    }

    #[test]
    fn warnings_and_unknown_findings_are_not_failures() {
        let mut report = Report::default();
        report.add(
            Group::Claims,
            "",
            [Finding::about("a").warning("b").with_remedy("c"), Finding::about("a").unknown("b").with_remedy("c")],
        );
        assert!(report.is_good());
        assert!(report.text(false).ends_with("No problems: ✗ 0   ! 1   ? 1   ✓ 0\n"));
    }

    #[test]
    fn json_has_every_field_of_every_finding() {
        let json: serde_json::Value = serde_json::from_str(&report().json()).unwrap();
        assert_eq!(
            json["findings"][1],
            serde_json::json!({
                "group": "StorageClass", "subject": "fast", "what": "bucket", "verdict": "bad",
                "message": "bucket \"archive\" does not exist", "remedy": "create it",
            })
        );
        assert_eq!(json["summary"], serde_json::json!({ "good": 1, "warning": 1, "bad": 1, "unknown": 1 }));
    }
}
