//! The findings as text and JSON.

use std::fmt::Write as _;

use console::Color;
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::output::{clean, painted};
use crate::store::{Finding, Verdict};

/// All findings, in the order in which they are printed.
#[derive(Debug, Default)]
pub(super) struct Report(Vec<Entry>);

/// A finding about one object. The names in JSON are documented in docs/command-line.md: they stay, and fields are only
/// added.
#[derive(Debug, Serialize)]
struct Entry {
    /// The kind of the object, or what was checked.
    group: &'static str,
    /// The name of the object.
    subject: String,
    #[serde(flatten)]
    finding: Finding,
}

/// In the order of the summary.
const VERDICTS: [(Verdict, char, Color); 4] = [
    (Verdict::Bad, '✗', Color::Red),
    (Verdict::Warning, '!', Color::Yellow),
    (Verdict::Unknown, '?', Color::Cyan),
    (Verdict::Good, '✓', Color::Green),
];

impl Report {
    pub(super) fn add(&mut self, group: &'static str, subject: &str, findings: impl IntoIterator<Item = Finding>) {
        let entries = findings.into_iter().map(|finding| Entry { group, subject: subject.to_owned(), finding });
        self.0.extend(entries);
    }

    /// The first subject of a group that has this finding.
    pub(super) fn subject_of(&self, group: &str, finding: &Finding) -> Option<&str> {
        let entry = self.0.iter().find(|entry| entry.group == group && entry.finding == *finding)?;
        Some(&entry.subject)
    }

    /// Whether nothing is bad.
    pub(super) fn is_good(&self) -> bool {
        self.count(Verdict::Bad) == 0
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.0.iter().filter(|entry| entry.finding.verdict == verdict).count()
    }

    /// The objects that have problems.
    pub(super) fn names(&self) -> Vec<String> {
        let bad = self.0.iter().filter(|entry| entry.finding.verdict == Verdict::Bad);
        let mut names: Vec<_> = bad.map(|entry| format!("{}/{}", entry.group, entry.subject)).collect();
        names.dedup();
        names
    }

    pub(super) fn json(&self) -> Value {
        let name = |verdict: Verdict| format!("{verdict:?}").to_lowercase();
        let summary: serde_json::Map<_, _> =
            VERDICTS.iter().map(|(verdict, ..)| (name(*verdict), self.count(*verdict).into())).collect();
        json!({ "findings": self.0, "summary": summary })
    }

    pub(super) fn text(&self) -> String {
        let mark = |wanted| {
            let mark = VERDICTS.iter().find(|(verdict, ..)| *verdict == wanted);
            mark.map(|(_, mark, colour)| painted(&mark.to_string(), *colour)).unwrap_or_default()
        };
        let mut text = String::new();
        let mut heading = None;
        for (at, Entry { group, subject, finding }) in self.0.iter().enumerate() {
            if heading.replace((group, subject)) != Some((group, subject)) {
                let gap = if text.is_empty() { "" } else { "\n" };
                // Writing to a String does not fail.
                let _ = writeln!(text, "{gap}{}", format!("{group} {}", clean(subject)).trim_end());
            }
            let Finding { what, verdict, message, remedy } = finding;
            let _ = writeln!(text, "  {} {}: {}", mark(*verdict), clean(what), clean(message));
            // Once for findings about the same object that have the same remedy.
            let is_repeated = self
                .0
                .get(at + 1)
                .is_some_and(|next| (next.group, &next.subject, &next.finding.remedy) == (*group, subject, remedy));
            if !remedy.is_empty() && !is_repeated {
                let _ = writeln!(text, "    → {}", clean(remedy));
            }
        }
        let counts = VERDICTS.map(|(verdict, ..)| format!("{} {}", mark(verdict), self.count(verdict))).join("   ");
        let verdict = match (self.is_good(), self.count(Verdict::Warning)) {
            (true, 0) => "No problems",
            (true, _) => "Only warnings",
            (false, _) => "Problems found",
        };
        let _ = writeln!(text, "\n{verdict}: {counts}");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::default();
        report.add("API server", "", [Finding::about("version").good("v1.36.3")]);
        report.add(
            "StorageClass",
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
        insta::assert_snapshot!(report().text(), @r#"
        API server
          ✓ version: v1.36.3

        StorageClass fast
          ✗ bucket: bucket "archive" does not exist
            → create it
          ! quota: 4100 users, of 5000
            → ask
          ? permissions: cannot be �[2J seen
            → submit a claim

        Problems found: ✗ 1   ! 1   ? 1   ✓ 1
        "#);
        assert!(!report().is_good());
    }

    #[test]
    fn a_remedy_of_several_findings_is_below_the_last() {
        let mut report = Report::default();
        let denied = |verbs| Finding::about("cluster").bad(verbs).with_remedy("bind the role");
        report.add("Permissions", "of yourself", [denied("get"), denied("list")]);
        report.add("Permissions", "of another", [denied("watch")]);
        let text = report.text();
        assert!(text.contains("cluster: get\n  ") && text.contains("cluster: list\n    → bind the role\n"), "{text}");
        assert_eq!(text.matches("bind the role").count(), 2, "{text}");
    }

    #[test]
    fn warnings_and_unknown_findings_are_not_failures() {
        let mut report = Report::default();
        let about = || Finding::about("a");
        report.add("Claims", "", [about().warning("b").with_remedy("c"), about().unknown("b").with_remedy("c")]);
        assert!(report.is_good());
        assert!(report.text().ends_with("Only warnings: ✗ 0   ! 1   ? 1   ✓ 0\n"));
    }

    #[test]
    fn json_has_every_field_of_every_finding() {
        let json = report().json();
        assert_eq!(
            json["findings"][1],
            json!({
                "group": "StorageClass", "subject": "fast", "what": "bucket", "verdict": "bad",
                "message": "bucket \"archive\" does not exist", "remedy": "create it",
            })
        );
        assert_eq!(json["summary"], json!({ "good": 1, "warning": 1, "bad": 1, "unknown": 1 }));
    }
}
