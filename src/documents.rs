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
