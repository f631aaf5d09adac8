//! Whether docs/architecture.md is true: what it names exists, it leaves no folder and no step out, and it is one page.

#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const PAGE: &str = "docs/architecture.md";
const LIBRARY: &str = "crates/bucket-provisioner/src";

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What is between back quotes.
fn quoted(page: &str) -> Vec<&str> {
    page.lines().filter(|line| !line.starts_with("```")).flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

/// The file of a path that the page gives, from the top of the repository or of the library.
fn file(path: &str) -> Option<PathBuf> {
    [PathBuf::from(path), Path::new(LIBRARY).join(path), Path::new(LIBRARY).join("decide").join(path)]
        .into_iter()
        .chain([Path::new(LIBRARY).join("api").join(path)])
        .find(|path| path.exists())
}

#[test]
fn each_file_on_the_page_exists() {
    let page = read(PAGE);
    let names = quoted(&page).into_iter().filter(|name| name.ends_with(".rs") || name.contains('/'));
    let missing: Vec<_> = names.filter(|name| file(name).is_none()).collect();
    assert!(missing.is_empty(), "{PAGE} names files that do not exist: {missing:?}");
    for link in page.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
        assert!(
            link.is_empty() || Path::new("docs").join(link).exists(),
            "{PAGE} links to {link}, which does not exist"
        );
    }
}

/// Rows whose second column is a function and whose third one is a file.
#[test]
fn each_function_on_the_page_is_in_its_file() {
    let page = read(PAGE);
    let mut rows = 0;
    for line in page.lines() {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [_, _, function, path, _] = cells[..] else { continue };
        let (Some(function), Some(path)) = (quoted(function).first().copied(), quoted(path).first().copied()) else {
            continue;
        };
        if !path.ends_with(".rs") {
            continue;
        }
        rows += 1;
        let source = read(file(path).unwrap());
        let declared = [format!("fn {function}("), format!("fn {function}<")];
        assert!(declared.iter().any(|text| source.contains(text)), "{path} has no function {function}");
    }
    assert!(rows >= 8, "{PAGE} has a table of functions and files");
}

#[test]
fn each_crate_and_each_folder_of_the_library_is_on_the_page() {
    let page = read(PAGE);
    for parent in ["crates", LIBRARY] {
        for entry in std::fs::read_dir(parent).unwrap().map(Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            let is_folder = entry.file_type().unwrap().is_dir();
            assert!(!is_folder || page.contains(&format!("[{name}](")), "{PAGE} does not name {parent}/{name}");
        }
    }
}

#[test]
fn the_steps_on_the_page_are_those_of_the_code() {
    let page = read(PAGE);
    let names: BTreeSet<_> = quoted(&page).into_iter().collect();
    for (path, declaration) in [
        ("decide/steps.rs", "pub(crate) enum ProvisionStep {"),
        ("decide/teardown.rs", "pub(crate) enum TeardownStep {"),
    ] {
        let source = read(Path::new(LIBRARY).join(path));
        let variants = source.split_once(declaration).unwrap().1.split_once("\n}").unwrap().0;
        let variants = variants.lines().map(str::trim).filter(|line| line.starts_with(|c: char| c.is_uppercase()));
        let variants = variants.map(|line| line.split([',', '(']).next().unwrap());
        let missing: Vec<_> = variants.filter(|step| !names.contains(step)).collect();
        assert!(missing.is_empty(), "{PAGE} does not name the steps {missing:?} of {path}");
    }
}

#[test]
fn it_is_one_page() {
    let words = read(PAGE).split_whitespace().count();
    assert!(words <= 1500, "{PAGE} has {words} words; ten minutes are 1500, with the code beside it");
}
