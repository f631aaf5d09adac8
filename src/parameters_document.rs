//! The table of class parameters in `docs/parameters.md`, generated from the structs that read them. The test fails if the
//! table is outdated; to update it: `UPDATE_DOCS=1 cargo test --lib parameters_document`.

use std::fmt::Write as _;
use std::path::Path;

use crate::aws::AwsProvisioner;
use crate::provisioner::{CommonParameters, Parameter, Parameters as _, Provisioner};

const BEGIN: &str = "<!-- Generated from the code (src/parameters_document.rs). Do not edit. -->\n";
const END: &str = "<!-- Here it ends. -->\n";

fn table<P: Provisioner>() -> String {
    let mut text = "\n| parameter | default | meaning |\n|---|---|---|\n".to_owned();
    for Parameter { name, default, meaning, .. } in
        P::Parameters::table().iter().chain(&CommonParameters::table(P::CAN_ROTATE))
    {
        writeln!(text, "| `{name}` | {default} | {meaning} |").ok();
    }
    text + "\n"
}

#[test]
fn the_document_of_parameters_has_the_table_that_the_code_gives() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/parameters.md");
    let is = std::fs::read_to_string(&path).unwrap_or_default();
    let parts = is.split_once(BEGIN).and_then(|(head, rest)| Some((head, rest.split_once(END)?.1)));
    let Some((head, tail)) = parts else { panic!("docs/parameters.md has no place for the table") };
    let should_be = format!("{head}{BEGIN}{}{END}{tail}", table::<AwsProvisioner>());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &should_be).ok();
        return;
    }
    assert!(is == should_be, "to update docs/parameters.md: UPDATE_DOCS=1 cargo test --lib parameters_document");
}
