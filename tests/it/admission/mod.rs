//! The ValidatingAdmissionPolicies that the chart ships: what they refuse, and what they do not. That they refuse the
//! operator nothing is in `permissions`, whose walk runs under both.

mod finalizers;
mod outputs;
