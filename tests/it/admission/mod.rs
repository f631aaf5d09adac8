//! The ValidatingAdmissionPolicies that the chart ships: what they refuse, and what they do not. That they refuse
//! nothing to the operator is tested in `permissions`, whose walk runs under both.

mod finalizers;
mod outputs;
