//! `doctor`: finds the problems of an installation before its users do. It changes nothing.
//!
//! | file | what it checks |
//! |---|---|
//! | `crds` | the CustomResourceDefinitions, and what does not work with those of other projects |
//! | `permissions` | what the operator may do in the cluster |
//! | `lease` | which operator leads, and its version |
//! | `classes` | the StorageClasses of this provisioner |
//! | `stores` | whether the stores accept the credentials, and would accept what the classes demand |
//! | `records` | whether the ObjectBuckets, and the Secrets that they need, can be read |
//! | `claims` | how many claims are not bound |
//! | `report` | the report as text and JSON |

mod claims;
mod classes;
mod crds;
mod lease;
mod permissions;
mod records;
mod report;
mod stores;

use std::error::Error;
use std::fmt;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::{Api, Client};

use self::report::{Format, Group, Report};
use crate::api::wire::CLUSTER_NAMESPACE;
use crate::cli::session;
use crate::controller::Options;
use crate::store::{Finding, Provisioner};
use operator_runtime::kubernetes::answers::describe;
use operator_runtime::kubernetes::pages;
use operator_runtime::{cluster, program};

/// Longest time for one call to the API server, and for the store of one class.
const ANSWER_LIMIT: Duration = Duration::from_secs(15);
/// How many names a list shows.
const NAMED: usize = 5;

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct DoctorArgs {
    /// Check the permissions of this ServiceAccount instead of your own
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = account)]
    service_account: Option<Account>,
    /// Print in this format
    #[arg(short = 'o', long, value_enum, default_value = "text")]
    output: Format,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Account {
    namespace: String,
    name: String,
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

fn account(text: &str) -> Result<Account, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(Account { namespace: namespace.to_owned(), name: name.to_owned() })
        }
        _ => Err("use namespace and name of the ServiceAccount, such as ops/aws-s3-provisioner".to_owned()),
    }
}

/// The installation that is examined.
#[derive(Debug)]
pub(crate) struct Installation {
    pub(crate) config: kube::Config,
    pub(crate) options: Options,
    /// `None`: the operator runs without leader election.
    pub(crate) lease: Option<LeaseToFind>,
    /// The permissions that the operator needs.
    pub(crate) rules: Rules,
    /// Name of this program.
    pub(crate) program: String,
    /// Version of this program; empty if it has none.
    pub(crate) version: String,
}

/// How to find the Lease.
#[derive(Debug, Clone)]
pub(crate) struct LeaseToFind {
    pub(crate) name: String,
    /// `None`: any.
    pub(crate) namespace: Option<String>,
}

/// The permissions that an operator needs.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) everywhere: Vec<PolicyRule>,
    /// In the namespace of the Lease.
    pub(crate) of_the_lease: Vec<PolicyRule>,
}

/// Examines an installation and prints the report. Returns whether there are no problems.
///
/// # Errors
/// The report cannot be printed, or the cluster's configuration cannot be used.
pub(crate) async fn run<P: Provisioner>(
    provisioner: P,
    installation: Installation,
    args: DoctorArgs,
) -> Result<bool, Box<dyn Error>> {
    let client = pages::bounded(cluster::client(installation.config.clone(), ANSWER_LIMIT)?);
    let report = examine(&client, &provisioner, &installation, args.service_account.as_ref()).await;
    program::print(&report.print(args.output))?;
    Ok(report.is_good())
}

async fn examine<P: Provisioner>(
    client: &Client,
    provisioner: &P,
    installation: &Installation,
    account: Option<&Account>,
) -> Report {
    let mut report = Report::default();
    // 1. Without the API server nothing else can be checked.
    match client.apiserver_version().await {
        Ok(version) => {
            let message = format!("{} at {}", version.git_version, installation.config.cluster_url);
            report.add(Group::ApiServer, "", [Finding::about("version").good(message)]);
        }
        Err(error) => {
            report.add(Group::ApiServer, "", [no_answer(installation, &error)]);
            return report;
        }
    }
    let cluster = cluster(client).await;
    report.add(Group::ApiServer, "", cluster.as_ref().err().cloned());
    // 2. What the operator needs in the cluster.
    let found = crds::examine(client, &installation.program).await;
    let are_served = found.iter().all(|crd| crd.is_served);
    for crd in found {
        report.add(Group::Crd, &crd.name, crd.findings);
    }
    let (place, leases) = lease::examine(client, installation).await;
    let whose = account.map_or_else(|| "of yourself".to_owned(), |account| format!("of ServiceAccount {account}"));
    let place = permissions::Place { lease: place.as_deref(), namespace: installation.options.namespace.as_deref() };
    report.add(Group::Permissions, &whose, permissions::examine(client, installation, place, account).await);
    for (subject, findings) in leases {
        report.add(Group::Lease, &subject, findings);
    }
    examine_claims(&mut report, (client, provisioner, &installation.options), &cluster.unwrap_or_default(), are_served)
        .await;
    report
}

/// Examines existing claims and what new ones would get. `cluster`: its uid. `are_served`: the API server knows claims
/// and ObjectBuckets.
async fn examine_claims<P: Provisioner>(
    report: &mut Report,
    (client, provisioner, options): (&Client, &P, &Options),
    cluster: &str,
    are_served: bool,
) {
    // 3. Each class, and its store. Its credentials must be of the account that ObjectBuckets record.
    let classes = match list::<StorageClass>(client).await {
        Ok(classes) => classes,
        Err(error) => {
            report.add(Group::StorageClass, "", [unreadable("StorageClasses", &error)]);
            return;
        }
    };
    let records = if are_served { Some(records::read::<P>(client, options, cluster).await) } else { None };
    let accounts = records.as_ref().and_then(|records| Some(&records.as_ref().ok()?.accounts));
    let seen = classes::Seen { cluster: cluster.to_owned(), namespaces: namespaces(client).await, accounts };
    for (class, findings) in classes::examine(client, provisioner, options, &classes, &seen).await {
        report.add(Group::StorageClass, &class, findings);
    }
    // 4. The existing ObjectBuckets and claims.
    let Some(records) = records else { return };
    let class_with = |finding: &Finding| report.subject_of(Group::StorageClass, finding);
    let findings = match records {
        Ok(records) => records::examine::<P>(client, &records, class_with).await,
        Err(unreadable) => vec![unreadable],
    };
    report.add(Group::Records, "", findings);
    report.add(Group::Claims, "", claims::examine(client, options, &classes).await);
}

fn no_answer(installation: &Installation, error: &kube::Error) -> Finding {
    let message = format!("the API server at {}: {}", installation.config.cluster_url, describe(error));
    let remedy = "check --kubeconfig or KUBECONFIG, the network, and whether your credentials are still valid (`kubectl version` needs the same)";
    Finding::about("version").bad(message).with_remedy(remedy)
}

/// The uid of the cluster, or the finding that it cannot be read.
async fn cluster(client: &Client) -> Result<String, Finding> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    match namespaces.get_metadata(CLUSTER_NAMESPACE).await {
        Ok(namespace) => Ok(namespace.metadata.uid.unwrap_or_default()),
        Err(error) => Err(Finding::about("identity")
            .unknown(format!(
                "namespace {CLUSTER_NAMESPACE}, whose uid identifies the cluster, cannot be read: {}",
                describe(&error)
            ))
            .with_remedy("run this as a user who may get that namespace")),
    }
}

/// The names of all namespaces; `None` if they cannot be listed.
async fn namespaces(client: &Client) -> Option<Vec<String>> {
    let api: Api<Namespace> = Api::all(client.clone());
    let mut names = Vec::new();
    let found = session::each_metadata(&api, None, |namespace| names.extend(namespace.name)).await;
    found.is_ok().then_some(names)
}

/// All objects of a kind that is not namespaced.
async fn list<K>(client: &Client) -> kube::Result<Vec<K>>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let mut objects = Vec::new();
    session::each_of(&Api::all(client.clone()), None, |object| objects.push(object)).await?;
    Ok(objects)
}

/// The first of these names, and how many more there are.
fn listed(names: &[String]) -> String {
    let first = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

fn unreadable(what: &str, error: &kube::Error) -> Finding {
    let message = format!("{what} cannot be read: {}", describe(error));
    Finding::about("list").unknown(message).with_remedy(format!("run this as a user who may read {what}"))
}

/// The remedy for the reason that a claim would report.
fn remedy<P: Provisioner>(reason: &str) -> String {
    let found = crate::reasons::all().chain(P::REASONS.iter().copied()).find(|known| known.name == reason);
    found.map_or_else(String::new, |reason| without_links(reason.remedy))
}

/// Text for a terminal: `[the policies](security.md#x)` becomes `the policies (docs/security.md#x)`.
fn without_links(markdown: &str) -> String {
    let mut text = String::new();
    let mut rest = markdown;
    while let Some((before, link)) = rest.split_once('[')
        && let Some((label, target)) = link.split_once("](")
        && let Some((target, after)) = target.split_once(')')
    {
        text.push_str(&format!("{before}{label} (docs/{target})"));
        rest = after;
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_become_text() {
        assert_eq!(
            without_links("allow it; [the IAM policies](security.md#policies) have all. `x[0]`"),
            "allow it; the IAM policies (docs/security.md#policies) have all. `x[0]`"
        );
    }
}
