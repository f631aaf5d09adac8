//! The operator for AWS, as strict as it is.

use crate::support::Store;
use crate::support::aws_backend::AwsBackend;
use crate::support::aws_proxy::Strictness;

provisioner_conformance::conformance_tests!(AwsBackend::at(Store::aws(), Some(Strictness::PROMPT)));
