//! `docs/reasons.md`, which is what the command `reasons` prints. The test fails if the file is outdated; to update it:
//! `UPDATE_DOCS=1 cargo test --lib reasons_document`.

use std::path::Path;

use crate::aws::AwsProvisioner;
use crate::operator::reasons_page;

#[test]
fn the_document_of_reasons_is_what_the_code_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reasons.md");
    let page = reasons_page::<AwsProvisioner>();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).ok();
    }
    let is = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(is == page, "to update docs/reasons.md: UPDATE_DOCS=1 cargo test --lib reasons_document");
}
