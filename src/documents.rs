//! What is generated from the code in `docs/`: the page of reasons, and the tables of parameters and metrics. A test fails
//! if its document is outdated; to update all of them: `UPDATE_DOCS=1 cargo test --lib documents`.

use std::path::Path;

use crate::aws::AwsProvisioner;
use crate::observe::Metrics;
use crate::operator::{parameters_table, reasons_page};

const BEGIN: &str = "<!-- Generated from the code (src/documents.rs). Do not edit. -->\n";
const END: &str = "<!-- Here it ends. -->\n";

#[test]
fn the_document_of_reasons_is_what_the_code_says() {
    check("docs/reasons.md", |_| reasons_page::<AwsProvisioner>());
}

#[test]
fn the_document_of_parameters_has_the_table_that_the_code_gives() {
    check("docs/parameters.md", |is| with_table(is, &parameters_table::<AwsProvisioner>()));
}

#[test]
fn the_document_of_metrics_has_the_table_that_the_code_gives() {
    check("docs/metrics.md", |is| with_table(is, &Metrics::new("", "").table()));
}

/// Alerts and messages send readers to the section of a reason.
#[test]
fn troubleshooting_has_a_section_for_each_reason_and_for_no_other() {
    const PARTS: [&str; 5] = ["- **Seen:**", "- **Why:**", "- **Look:**", "- **Fix:**", "- **Prevent:**"];
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/troubleshooting.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let sections: Vec<_> = page.split("\n### ").skip(1).filter_map(|section| section.split_once('\n')).collect();
    let page_of_reasons = reasons_page::<AwsProvisioner>();
    let rows = page_of_reasons.lines().skip_while(|line| !line.starts_with("## Reasons"));
    let rows = rows.filter_map(|row| row.strip_prefix("| `")?.split_once('`'));
    // Where nothing is to be done, the section is a paragraph.
    let reasons: Vec<_> = rows.map(|(reason, rest)| (reason, !rest.ends_with("|  |"))).collect();
    for (reason, _) in &reasons {
        let found = sections.iter().filter(|(heading, _)| heading == reason).count();
        assert_eq!(found, 1, "sections of {reason}");
    }
    for (heading, text) in &sections {
        let row = reasons.iter().find(|(reason, _)| reason == heading);
        let (_, needs_work) = row.unwrap_or_else(|| panic!("{heading} is no reason"));
        let text = text.split("\n## ").next().unwrap_or_default();
        let parts = PARTS.iter().filter(|part| text.matches(**part).count() == 1).count();
        assert!(parts == PARTS.len() || parts == 0 && !text.trim().is_empty(), "{heading} has not each of {PARTS:?}");
        assert!(parts > 0 || SAID_IN_A_SENTENCE.contains(heading) || !needs_work, "{heading} does not say what to do");
    }
}

/// Of these, one sentence of what to do is enough.
const SAID_IN_A_SENTENCE: [&str; 2] = ["KeysRotated", "InProgress"];

fn with_table(is: &str, table: &str) -> String {
    let parts = is.split_once(BEGIN).and_then(|(head, rest)| Some((head, rest.split_once(END)?.1)));
    let Some((head, tail)) = parts else { panic!("there is no place for the table") };
    format!("{head}{BEGIN}\n{table}\n{END}{tail}")
}

fn check(document: &str, wanted: impl FnOnce(&str) -> String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
    let is = std::fs::read_to_string(&path).unwrap_or_default();
    let should_be = wanted(&is);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &should_be).ok();
        return;
    }
    assert!(is == should_be, "to update {document}: UPDATE_DOCS=1 cargo test --lib documents");
}
