//! The EKS cluster and the role of a class whose apps have access by EKS Pod Identity: `eksCluster` and `podRole`.
//!
//! An agent on the nodes gives pods sessions of the role that EKS associates with their ServiceAccount ("Learn how EKS Pod
//! Identity grants pods access to AWS services", EKS user guide). One role is enough for all claims, because an association
//! has a policy that limits its sessions.

use crate::class::values::{EndpointUrl, OTHER_PARTITION, is_account, is_arn_of_iam, partition_of, unshown};
use bucket_provisioner::store::{Authentication, ParameterError};

/// Where the agent answers.
pub(crate) const CREDENTIALS_URL: &str = "http://169.254.170.23/v1/credentials";
/// Where pods have the token for it; EKS mounts it there, too.
pub(crate) const TOKEN_FILE: &str = "/var/run/secrets/pods.eks.amazonaws.com/serviceaccount/eks-pod-identity-token";

const CLUSTER: &str = "eksCluster";
const ROLE: &str = "podRole";

/// The EKS cluster and the role of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodIdentity {
    /// The cluster in which the pods are.
    pub cluster: ClusterArn,
    /// ARN of the role whose sessions the pods get.
    pub role: String,
}

/// The ARN of an EKS cluster: `arn:PARTITION:eks:REGION:ACCOUNT:cluster/NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterArn(String);

impl ClusterArn {
    pub(crate) fn parse(value: &str) -> Option<Self> {
        let parts: Vec<&str> = value.splitn(6, ':').collect();
        let ["arn", partition, "eks", region, account, resource] = parts.as_slice() else { return None };
        let is_partition = *partition == "aws" || partition.starts_with("aws-");
        let is_region = !region.is_empty() && region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let name = resource.strip_prefix("cluster/").unwrap_or_default();
        // CreateCluster, EKS API reference.
        let is_name = (1..=100).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
            && name.starts_with(|first: char| first.is_ascii_alphanumeric());
        (is_partition && is_region && is_account(account) && is_name).then(|| Self(value.to_owned()))
    }

    /// The ARN.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn part(&self, nth: usize) -> &str {
        self.0.split(':').nth(nth).unwrap_or_default()
    }

    /// The partition.
    pub(crate) fn partition(&self) -> &str {
        self.part(1)
    }

    /// The region whose EKS has the cluster.
    pub(crate) fn region(&self) -> &str {
        self.part(3)
    }

    /// The account of the cluster.
    pub(crate) fn account(&self) -> &str {
        self.part(4)
    }

    /// Its name there.
    pub(crate) fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }
}

/// The name of a role, by its ARN.
pub(crate) fn role_name(arn: &str) -> &str {
    arn.rsplit('/').next().unwrap_or_default()
}

/// What of a class excludes these parameters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Others<'a> {
    /// Partition of the class's region, if it is one of AWS.
    pub(crate) partition: Option<&'a str>,
    /// That of S3, unless the class names one of IAM, too: an emulator of AWS has everything.
    pub(crate) s3_endpoint: Option<&'a EndpointUrl>,
    pub(crate) has_owner_role: bool,
    pub(crate) has_boundary: bool,
    pub(crate) has_provider: bool,
}

/// Parses the parameters.
///
/// # Errors
/// A value that cannot be used, what is missing, or what another parameter excludes.
pub(crate) fn pod_identity(
    authentication: Authentication,
    (cluster, role): (Option<&str>, Option<&str>),
    others: Others<'_>,
) -> Result<Option<PodIdentity>, ParameterError> {
    let first = if cluster.is_some() { CLUSTER } else { ROLE };
    if cluster.is_none() && role.is_none() {
        return Ok(None);
    }
    if authentication == Authentication::Key {
        let problem = "applies only to apps without keys, and authentication is not ServiceAccount";
        return Err(unshown(first, problem, "remove it, or add authentication ServiceAccount"));
    }
    let (Some(cluster), Some(role)) = (cluster, role) else {
        let (missing, why) = match cluster {
            Some(_) => (ROLE, "pods of the cluster that eksCluster names get sessions of that role"),
            None => (CLUSTER, "EKS associates podRole with ServiceAccounts of that cluster"),
        };
        return Err(ParameterError::missing(missing, why));
    };
    let Some(cluster) = ClusterArn::parse(cluster) else {
        let remedy = "write an ARN such as arn:aws:eks:eu-west-1:123456789012:cluster/shop";
        return Err(unshown(CLUSTER, "is not the ARN of an EKS cluster", remedy));
    };
    if !is_arn_of_iam(role, "role/", &is_account) || role.ends_with('/') {
        let remedy = "write an ARN such as arn:aws:iam::123456789012:role/buckets-of-pods";
        return Err(unshown(ROLE, "is not the ARN of an IAM role", remedy));
    }
    if role.split(':').nth(4) != Some(cluster.account()) || partition_of(role) != Some(cluster.partition()) {
        let problem =
            "is in another account than the cluster of eksCluster, and EKS gives pods only roles of the same one";
        return Err(unshown(ROLE, problem, "name a role of the cluster's account"));
    }
    if others.partition.is_some_and(|partition| partition != cluster.partition()) {
        return Err(unshown(CLUSTER, OTHER_PARTITION, "name a cluster of the same partition"));
    }
    let refused = |problem: &str, remedy| Err(unshown(CLUSTER, problem, remedy));
    if others.has_provider {
        return refused(
            "is for access by EKS Pod Identity, and oidcProvider for access by a role for each ServiceAccount",
            "remove one of them",
        );
    }
    if others.has_owner_role {
        return refused("needs credentials of the cluster's account, and ownerRole names a role", "remove ownerRole");
    }
    if others.has_boundary {
        return refused(
            "leaves claims without users and roles of their own, which permissionsBoundary would limit",
            "remove permissionsBoundary, and limit podRole instead",
        );
    }
    if others.s3_endpoint.is_some_and(|url| !crate::class::region::is_host_of_aws(url.host())) {
        return refused("gives pods credentials of AWS, but s3Endpoint is another store", "remove one of them");
    }
    Ok(Some(PodIdentity { cluster, role: role.to_owned() }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const CLUSTER_ARN: &str = "arn:aws:eks:eu-west-1:123456789012:cluster/shop";
    const ROLE_ARN: &str = "arn:aws:iam::123456789012:role/team/buckets-of-pods";
    const NOTHING: Others<'_> = Others {
        partition: Some("aws"),
        s3_endpoint: None,
        has_owner_role: false,
        has_boundary: false,
        has_provider: false,
    };

    fn parse(cluster: Option<&str>, role: Option<&str>, others: Others<'_>) -> Result<Option<PodIdentity>, String> {
        pod_identity(Authentication::ServiceAccount, (cluster, role), others).map_err(|error| error.to_string())
    }

    #[test]
    fn a_cluster_is_an_arn_of_eks() {
        let parsed = parse(Some(CLUSTER_ARN), Some(ROLE_ARN), NOTHING).unwrap().unwrap();
        let cluster = &parsed.cluster;
        assert_eq!(
            (cluster.partition(), cluster.region(), cluster.account(), cluster.name()),
            ("aws", "eu-west-1", "123456789012", "shop")
        );
        assert_eq!(role_name(&parsed.role), "buckets-of-pods");
        for (cluster, role, expected) in [
            (None, Some(ROLE_ARN), "eksCluster is missing"),
            (Some(CLUSTER_ARN), None, "podRole is missing"),
            (Some("shop"), Some(ROLE_ARN), "eksCluster is not the ARN"),
            (Some("arn:aws:eks:eu-west-1:123456789012:cluster/"), Some(ROLE_ARN), "eksCluster is not the ARN"),
            (Some("arn:aws:eks:eu-west-1:123456789012:cluster/a\"b"), Some(ROLE_ARN), "eksCluster is not the ARN"),
            (Some("arn:aws:eks::123456789012:cluster/shop"), Some(ROLE_ARN), "eksCluster is not the ARN"),
            (Some(CLUSTER_ARN), Some("buckets"), "podRole is not the ARN"),
            (Some(CLUSTER_ARN), Some("arn:aws:iam::210987654321:role/x"), "podRole is in another account"),
            (
                Some("arn:aws-cn:eks:cn-north-1:123456789012:cluster/shop"),
                Some("arn:aws-cn:iam::123456789012:role/x"),
                "another partition",
            ),
        ] {
            let refused = parse(cluster, role, NOTHING).unwrap_err();
            assert!(refused.contains(expected), "{refused}");
        }
    }

    #[test]
    fn what_excludes_pod_identity_is_named() {
        let elsewhere = EndpointUrl::parse("s3Endpoint", "https://s3.example.com").unwrap();
        let private = "https://s3.vpce-1.s3.eu-west-1.vpce.amazonaws.com";
        let private = EndpointUrl::parse("s3Endpoint", private).unwrap();
        assert!(parse(Some(CLUSTER_ARN), Some(ROLE_ARN), Others { s3_endpoint: Some(&private), ..NOTHING }).is_ok());
        for (others, expected) in [
            (Others { has_provider: true, ..NOTHING }, "oidcProvider"),
            (Others { has_owner_role: true, ..NOTHING }, "ownerRole"),
            (Others { has_boundary: true, ..NOTHING }, "permissionsBoundary"),
            (Others { s3_endpoint: Some(&elsewhere), ..NOTHING }, "s3Endpoint"),
        ] {
            let refused = parse(Some(CLUSTER_ARN), Some(ROLE_ARN), others).unwrap_err();
            assert!(refused.starts_with("parameter eksCluster") && refused.contains(expected), "{refused}");
        }
        assert_eq!(pod_identity(Authentication::Key, (None, None), NOTHING), Ok(None));
        let refused = pod_identity(Authentication::Key, (None, Some(ROLE_ARN)), NOTHING).unwrap_err().to_string();
        assert!(refused.contains("podRole") && refused.contains("ServiceAccount"), "{refused}");
    }
}
