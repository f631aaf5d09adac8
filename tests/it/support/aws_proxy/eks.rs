//! The calls of EKS, by their addresses ("Actions", Amazon EKS API reference), and what they are about.

use hyper::http::request::Parts;

use super::AwsCall;
use crate::support::REGION;

/// Whether a call is signed for EKS.
pub(super) fn is_for(parts: &Parts) -> bool {
    let authorization = parts.headers.get("authorization").and_then(|value| value.to_str().ok());
    authorization.is_some_and(|text| text.contains("/eks/aws4_request"))
}

fn path(parts: &Parts) -> Vec<&str> {
    parts.uri.path().trim_matches('/').split('/').collect()
}

pub(super) fn operation(parts: &Parts) -> &'static str {
    match (parts.method.as_str(), &path(parts)[1..]) {
        ("GET", [_, "pod-identity-associations"]) => "ListPodIdentityAssociations",
        (_, [_, "pod-identity-associations"]) => "CreatePodIdentityAssociation",
        ("GET", [_, "pod-identity-associations", _]) => "DescribePodIdentityAssociation",
        ("DELETE", [_, "pod-identity-associations", _]) => "DeletePodIdentityAssociation",
        (_, [_, "pod-identity-associations", _]) => "UpdatePodIdentityAssociation",
        (_, [_, "addons", _]) => "DescribeAddon",
        _ => "DescribeCluster",
    }
}

pub(super) fn cluster(parts: &Parts) -> String {
    path(parts)[1].to_owned()
}

/// What an action of a call is about.
pub(super) fn resource(call: &AwsCall, cluster: &str, action: &str, account: &str) -> String {
    let of_eks = |kind: &str| format!("arn:aws:eks:{REGION}:{account}:{kind}");
    match action {
        action if action.starts_with("iam:") => call.field("roleArn").unwrap_or_default(),
        "eks:ListPodIdentityAssociations" | "eks:CreatePodIdentityAssociation" | "eks:DescribeCluster" => {
            of_eks(&format!("cluster/{cluster}"))
        }
        "eks:DescribeAddon" => of_eks(&format!("addon/{cluster}/eks-pod-identity-agent/any")),
        _ => of_eks(&format!("podidentityassociation/{cluster}/any")),
    }
}
