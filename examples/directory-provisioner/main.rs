//! A provisioner without any cloud: a bucket is a directory, served by an S3 server in this process.
//!
//! `--root`, `--address` and `--url` say where everything is kept, where the server listens, and where claims find it. It is
//! an example: one process serves all, and keys are files that the owner of the process can read.

mod keys;
mod marks;
mod server;
mod store;

use std::process::ExitCode;

use bucket_provisioner::Operator;

fn main() -> ExitCode {
    Operator::new("example.com/directory")
        .about("Provisions directories as buckets for ObjectBucketClaims.")
        .version(env!("CARGO_PKG_VERSION"))
        .run(store::Directories::start)
}
