//! The operator for AWS.

use crate::support::Store;
use crate::support::aws_backend::AwsBackend;

bucket_provisioner::conformance_tests!(AwsBackend::at(Store::aws(), None));
