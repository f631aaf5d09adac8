//! A provisioner of volumes on the node that it runs on: each is a directory.
//!
//! `NODE_NAME` is the name of that node, and `--pv-dir` the folder of the directories. For tests and demonstrations: a
//! directory has no size limit, and no other node has it.

mod directories;
mod provisioner;

use std::process::ExitCode;

use volume_provisioner::VolumeOperator;

use provisioner::HostPath;

fn main() -> ExitCode {
    VolumeOperator::new("example.com/hostpath")
        .about("Provisions directories of this node as volumes for PersistentVolumeClaims.")
        .version(env!("CARGO_PKG_VERSION"))
        .run(HostPath::new)
}
