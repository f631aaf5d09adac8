//! The conformance kit, with all the stores that there are operators for.

mod aws;
mod directory;
mod somebody;

use std::path::{Path, PathBuf};

use provisioner_conformance::Program;

/// One of the examples, which is an operator for another store.
pub(crate) fn example(name: &str) -> Program {
    Program::new(example_path(name))
}

pub(crate) fn example_path(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_aws-s3-provisioner")).with_file_name(name);
    assert!(path.exists(), "to build it: cargo build --locked --bin {name}");
    path
}
