//! A provisioner without any cloud: a bucket is a directory, served by an S3 server in this process.
//!
//! `DIRECTORY_ROOT` (default `./directory-provisioner`) is where everything is kept, and must exist; `DIRECTORY_ADDRESS` (default
//! `127.0.0.1:9444`) is where the server listens, and `DIRECTORY_URL` (default `http://` and that address) is where
//! claims find it. It is an example: one process serves all, and keys are files that the owner of the process can read.

mod keys;
mod marks;
mod server;
mod store;

use std::process::ExitCode;

use bucket_provisioner::Operator;

fn main() -> ExitCode {
    let variable = |name, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let address = variable("DIRECTORY_ADDRESS", "127.0.0.1:9444");
    let url = variable("DIRECTORY_URL", &format!("http://{address}"));
    let root = variable("DIRECTORY_ROOT", "directory-provisioner");
    Operator::new("example.com/directory", store::Directories::new(root.as_ref(), address, url))
        .about("Provisions directories as buckets for ObjectBucketClaims.")
        .run()
}
