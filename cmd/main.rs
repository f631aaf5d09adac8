//! The operator for buckets on AWS S3.

use std::process::ExitCode;

use aws_s3_provisioner::{AwsProvisioner, PROVISIONER_NAME};
use bucket_provisioner::Operator;

fn main() -> ExitCode {
    Operator::new(PROVISIONER_NAME)
        .program("aws-s3-provisioner")
        .about("Provisions AWS S3 buckets for ObjectBucketClaims.")
        .version(env!("CARGO_PKG_VERSION"))
        .field_manager("aws-s3-provisioner")
        .run(AwsProvisioner::start)
}
