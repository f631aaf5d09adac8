//! The EKS cluster and the role that a class names.

use aws_sdk_eks as eks;

use super::Examined;
use crate::class::target::AssociationSpec;
use crate::client::call::{Operation, Resource};
use crate::client::error::Error;
use crate::iam::association;
use bucket_provisioner::store::Finding;

const CLUSTER: &str = "EKS cluster";
const ROLE: &str = "role of pods";
/// The add-on that gives pods their sessions.
const AGENT: &str = "eks-pod-identity-agent";

/// `issuer`: of the cluster's tokens, if it is known.
pub(crate) async fn examine(examined: &Examined<'_>, issuer: Option<&str>) -> Vec<Finding> {
    let Examined { store, target, caller, .. } = examined;
    let (Some(spec), Some(eks)) = (&target.association, &store.eks) else { return Vec::new() };
    if let Some(account) = caller.account().filter(|account| *account != spec.cluster.account()) {
        let theirs = spec.cluster.account();
        let message = format!("the cluster is in account {theirs}, but the provisioning credentials are of {account}");
        let remedy = "recreate the class with a cluster of the account of the provisioning credentials";
        return vec![Finding::about(CLUSTER).bad(message).with_remedy(remedy)];
    }
    let (cluster, agent, role) = tokio::join!(
        Box::pin(of_cluster(examined, eks, spec, issuer)),
        Box::pin(of_agent(examined, eks, spec)),
        Box::pin(of_role(examined, spec)),
    );
    vec![cluster, agent, role]
}

/// Whether it is the cluster of the operator.
async fn of_cluster(
    Examined { store, .. }: &Examined<'_>,
    eks: &eks::Client,
    spec: &AssociationSpec<'_>,
    issuer: Option<&str>,
) -> Finding {
    let about = Finding::about(CLUSTER);
    let (name, region) = (spec.cluster.name(), spec.cluster.region());
    let send = || eks.describe_cluster().name(name).send();
    let found = match store.call(Operation::DescribeCluster, Resource::Account, send).await {
        Ok(found) => found.cluster,
        Err(error) if error.code() == "ResourceNotFoundException" => {
            return about
                .bad(format!("there is no cluster {name:?} in region {region}"))
                .with_remedy("recreate the class with the ARN of this cluster (eksCluster)");
        }
        Err(error) if error.status() == 403 => {
            return about
                .unknown("whether the class names this cluster is unknown: the provisioning credentials may not call eks:DescribeCluster")
                .with_remedy(super::allow_doctor("eks:DescribeCluster"));
        }
        Err(error) => return super::failed(CLUSTER, error),
    };
    let theirs = found.and_then(|found| found.identity?.oidc?.issuer);
    match (issuer, theirs) {
        (Some(ours), Some(theirs)) if ours != theirs => about
            .bad(format!("tokens of cluster {name:?} are of issuer {theirs}, but those of this cluster of {ours}"))
            .with_remedy("recreate the class with the ARN of this cluster (eksCluster)"),
        (Some(_), Some(_)) => about.good(format!("{name:?} is this cluster")),
        _ => about.good(format!("cluster {name:?} exists in region {region}")),
    }
}

/// Whether pods get sessions.
async fn of_agent(Examined { store, .. }: &Examined<'_>, eks: &eks::Client, spec: &AssociationSpec<'_>) -> Finding {
    let about = Finding::about(CLUSTER);
    let send = || eks.describe_addon().cluster_name(spec.cluster.name()).addon_name(AGENT).send();
    match store.call(Operation::DescribeAddon, Resource::Account, send).await {
        Ok(_) => about.good(format!("the cluster has the add-on {AGENT}")),
        Err(error) if error.code() == "ResourceNotFoundException" => about
            .unknown(format!(
                "the cluster does not have the add-on {AGENT}: pods get no credentials, unless their nodes are of EKS Auto Mode, or it was installed otherwise"
            ))
            .with_remedy(format!("aws eks create-addon --cluster-name {} --addon-name {AGENT}", spec.cluster.name())),
        Err(error) if error.status() == 403 => about
            .unknown(format!(
                "whether the cluster has the add-on {AGENT} is unknown: the provisioning credentials may not call eks:DescribeAddon"
            ))
            .with_remedy(super::allow_doctor("eks:DescribeAddon")),
        Err(error) => super::failed(CLUSTER, error),
    }
}

/// Whether the operator can try what pods can do.
async fn of_role(Examined { store, target, .. }: &Examined<'_>, spec: &AssociationSpec<'_>) -> Finding {
    let about = Finding::about(ROLE);
    match association::try_role(store, target, spec).await {
        Ok(()) => about.good("the provisioning credentials can assume podRole, to try the access of claims"),
        Err(error @ Error::PodRoleRefused { .. }) => about.failed(&error).with_remedy(
            "allow the provisioning credentials sts:AssumeRole on the role, and name them in its trust policy (docs/keyless.md)",
        ),
        Err(error) => about.failed(&error),
    }
}
