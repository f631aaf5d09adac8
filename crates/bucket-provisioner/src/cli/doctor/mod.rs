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

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;

use self::report::Report;
use crate::api::wire::CLUSTER_NAMESPACE;
use crate::cli::output::{self, Format};
use crate::cli::reasons;
use crate::cli::session::{Session, pages};
use crate::cli::view::{self, Classes, Records, View};
use crate::store::{Finding, Provisioner};
use operator_runtime::kubernetes::answers::describe;
use operator_runtime::values::namespaced_name;

/// Longest time for one call to the API server, and for the store of one class.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(15);
/// How many names a list shows.
const NAMED: usize = 5;
/// The group of findings about StorageClasses.
const CLASS: &str = "StorageClass";

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct DoctorArgs {
    /// Check the permissions of this ServiceAccount instead of your own
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = account)]
    service_account: Option<Account>,
    /// Print in this format
    ///
    /// `name` prints what has problems.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Format,
}

/// Namespace and name of a ServiceAccount.
type Account = (String, String);

fn account(text: &str) -> Result<Account, &'static str> {
    namespaced_name(text).map_err(|_| "use namespace and name of the ServiceAccount, such as ops/aws-s3-provisioner")
}

/// Examines an installation and prints the report. Returns whether there are no problems.
///
/// # Errors
/// The report cannot be printed.
pub(crate) async fn run<P: Provisioner>(session: &Session<P>, args: &DoctorArgs) -> Result<bool, Box<dyn Error>> {
    let report = examine(session, args.service_account.as_ref()).await?;
    output::show(&report.json(), args.output, || report.names(), || report.text())?;
    Ok(report.is_good())
}

async fn examine<P: Provisioner>(session: &Session<P>, account: Option<&Account>) -> Result<Report, Box<dyn Error>> {
    let mut report = Report::default();
    let url = &session.config.cluster_url;
    // 1. Without the API server nothing else can be checked.
    let about = Finding::about("version");
    match session.client.apiserver_version().await {
        Ok(version) => report.add("API server", "", [about.good(format!("{} at {url}", version.git_version))]),
        Err(error) => {
            let remedy = "check --kubeconfig or KUBECONFIG, the network, and whether your credentials are still valid (`kubectl version` needs the same)";
            let message = format!("the API server at {url}: {}", describe(&error));
            report.add("API server", "", [about.bad(message).with_remedy(remedy)]);
            return Ok(report);
        }
    }
    let cluster = session.cluster().await;
    report.add("API server", "", cluster.as_ref().err().map(without_cluster));
    // 2. What the operator needs in the cluster.
    let crds = crds::examine(session).await;
    let are_served = crds.iter().all(|crd| crd.is_served);
    for crd in crds {
        report.add("CustomResourceDefinition", &crd.name, crd.findings);
    }
    let (place, leases) = lease::examine(session).await;
    let name = account
        .map_or_else(|| "of yourself".to_owned(), |(namespace, name)| format!("of ServiceAccount {namespace}/{name}"));
    report.add("Permissions", &name, permissions::examine(session, place.as_deref(), account).await?);
    for (subject, findings) in leases {
        report.add("Lease", &subject, findings);
    }
    examine_claims(&mut report, session, &cluster.unwrap_or_default(), are_served).await;
    Ok(report)
}

/// Examines existing claims and what new ones would get. `cluster`: its uid. `are_served`: the API server knows claims
/// and ObjectBuckets.
async fn examine_claims<P: Provisioner>(report: &mut Report, session: &Session<P>, cluster: &str, are_served: bool) {
    // 3. Each class, and its store. Its credentials must be of the account that ObjectBuckets record.
    let classes = match Classes::read(session).await {
        Ok(classes) => classes,
        Err(error) => return report.add(CLASS, "", [unreadable("StorageClasses", &error)]),
    };
    let records = if are_served { Some(Records::read(session).await) } else { None };
    let seen = records.as_ref().and_then(|records| records.as_ref().ok());
    let seen = seen.map(|records| records::Seen::of(records, session, cluster));
    for (class, findings) in
        classes::examine(session, &classes, cluster, seen.as_ref().map(|seen| &seen.accounts)).await
    {
        report.add(CLASS, &class, findings);
    }
    // 4. The existing ObjectBuckets and claims.
    let Some(records) = records else { return };
    let findings = match (&records, &seen) {
        (Err(error), _) => vec![unreadable("ObjectBuckets", error)],
        (Ok(_), None) => Vec::new(),
        (Ok(_), Some(seen)) => {
            records::examine(session, seen, |finding| report.subject_of(CLASS, finding).map(str::to_owned)).await
        }
    };
    report.add("ObjectBuckets", "", findings);
    let findings = match view::claims(session).await {
        Err(error) => vec![unreadable("ObjectBucketClaims", &error)],
        Ok(claims) => {
            let (provisioner, records) = (session.provisioner.clone(), records.unwrap_or_default());
            claims::examine(&View { provisioner, classes, claims, records })
        }
    };
    report.add("Claims", "", findings);
}

/// The uid of the cluster cannot be read.
fn without_cluster(error: &kube::Error) -> Finding {
    let message =
        format!("namespace {CLUSTER_NAMESPACE}, whose uid identifies the cluster, cannot be read: {}", describe(error));
    Finding::about("identity").unknown(message).with_remedy("run this as a user who may get that namespace")
}

/// The names of all namespaces; `None` if they cannot be listed.
async fn namespaces<P>(session: &Session<P>) -> Option<Vec<String>> {
    let api = session.all::<Namespace>();
    let list = async |params| api.list_metadata(&params).await;
    pages(ListParams::default(), list, |namespace| namespace.metadata.name).await.ok()
}

fn unreadable(what: &str, error: &kube::Error) -> Finding {
    let message = format!("{what} cannot be read: {}", describe(error));
    Finding::about("list").unknown(message).with_remedy(format!("run this as a user who may read {what}"))
}

/// How often each reason is reported.
fn by_reason(counts: &BTreeMap<String, usize>) -> String {
    counts.iter().map(|(reason, number)| format!("{number} {reason}")).collect::<Vec<_>>().join(", ")
}

/// The finding about an error that a claim would report, too.
fn failed<P: Provisioner>(what: &str, error: &impl crate::store::Failure) -> Finding {
    let remedy = reasons::named::<P>(error.reason()).map_or("", |reason| reason.remedy);
    Finding::about(what).failed(error).with_remedy(remedy)
}
