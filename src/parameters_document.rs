//! The table of class parameters in `docs/parameters.md`, generated from the structs that read them. The test fails if the
//! table is outdated; to update it: `UPDATE_DOCS=1 cargo test --lib parameters_document`.

use std::path::Path;

use crate::aws::AwsProvisioner;
use crate::operator::parameters_table;

const BEGIN: &str = "<!-- Generated from the code (src/parameters_document.rs). Do not edit. -->\n";
const END: &str = "<!-- Here it ends. -->\n";

#[test]
fn the_document_of_parameters_has_the_table_that_the_code_gives() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/parameters.md");
    let is = std::fs::read_to_string(&path).unwrap_or_default();
    let parts = is.split_once(BEGIN).and_then(|(head, rest)| Some((head, rest.split_once(END)?.1)));
    let Some((head, tail)) = parts else { panic!("docs/parameters.md has no place for the table") };
    let table = parameters_table::<AwsProvisioner>();
    let should_be = format!("{head}{BEGIN}\n{table}\n{END}{tail}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &should_be).ok();
        return;
    }
    assert!(is == should_be, "to update docs/parameters.md: UPDATE_DOCS=1 cargo test --lib parameters_document");
}
