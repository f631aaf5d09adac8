//! The operator for AWS.

use crate::support::Store;
use crate::support::aws_backend::AwsBackend;

provisioner_conformance::conformance_tests!(AwsBackend::at(Store::aws(), None));
