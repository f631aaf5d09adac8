//! `adopt`: restored claims get their buckets, users and keys back. The ObjectBucket of the previous claim is annotated
//! with `adopt`; if it is lost, it is rebuilt from the tags of the bucket first.
//!
//! | file | what it holds |
//! |---|---|
//! | `choose` | which ObjectBucket a claim adopts. Pure |

mod choose;

use std::collections::HashMap;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::json;

use self::choose::{Wanted, choose};
use super::annotate::{self, AT_ONCE, Annotation, Outcome};
use super::output::{self, Format, claim_name, clean, progress};
use super::prompt;
use super::session::{self, Session, refused};
use super::view::View;
use crate::api::{ConditionStatus, ObjectBucket, Unreadable};
use crate::controller::of_claim;
use crate::decide::action::Action;
use crate::decide::claim::Claim;
use crate::decide::output_data::{PreviousOwner, is_of};
use crate::decide::{codec, record};
use crate::reasons::READY;
use crate::store::{ClaimId, Provisioner};
use operator_runtime::values::duration;

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct AdoptArgs {
    /// Give this restored claim its bucket back
    ///
    /// NAME alone is in the namespace of --namespace, or of the context.
    #[arg(value_name = "[NAMESPACE/]NAME", required_unless_present = "all", conflicts_with = "all")]
    claim: Option<String>,
    /// Give all restored claims their buckets back
    ///
    /// These are the claims that name an ObjectBucket which records another claim.
    #[arg(long)]
    all: bool,
    /// Adopt this bucket, whose ObjectBucket is lost
    ///
    /// Needed if neither the claim nor its StorageClass names the bucket.
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    bucket: Option<String>,
    /// Adopt this ObjectBucket, if several are possible
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    record: Option<String>,
    /// Print the results in this format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Format,
    /// Do not ask for confirmation
    ///
    /// Does not cover ObjectBuckets of another cluster: see --from-cluster.
    #[arg(long)]
    yes: bool,
    /// Adopt also from the cluster with this uid; can be repeated
    ///
    /// That cluster must no longer use bucket and user. --yes and --all need this flag to adopt from another cluster.
    #[arg(long, value_name = "UID")]
    from_cluster: Vec<String>,
    /// Wait until the claim is Ready or the operator refuses
    #[arg(long, default_value = "true", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = clap::ArgAction::Set)]
    wait: bool,
    /// Wait for the operator for this time at most
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration)]
    timeout: Duration,
}

/// What became of a claim.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Adoption {
    namespace: String,
    name: String,
    object_bucket: Option<String>,
    outcome: Outcome,
    message: String,
}

impl Adoption {
    fn of(claim: &ClaimId, object_bucket: Option<String>, outcome: Outcome, message: String) -> Self {
        let ClaimId { namespace, name, .. } = claim.clone();
        Self { namespace, name, object_bucket, outcome, message }
    }
}

/// Lets restored claims adopt their ObjectBuckets.
///
/// # Errors
/// There is no such claim, nothing can be adopted, or Kubernetes or the store refused.
pub(crate) async fn run<P: Provisioner>(session: &Session<P>, args: &AdoptArgs) -> Result<ExitCode, Box<dyn Error>> {
    let cluster = session.cluster().await.map_err(refused(session::CLUSTER))?;
    let view = View::read(session).await?;
    let unreadable = &view.records.unreadable;
    for name in unreadable.iter().map(Unreadable::name) {
        eprintln!("{}", clean(&format!("ObjectBucket {name:?} cannot be read; correct or restore it")));
    }
    let claims = match &args.claim {
        Some(claim) => {
            let (namespace, name) = session.named(claim)?;
            vec![Claim::read(&session.claim(&namespace, &name).await?, &session.label())]
        }
        None => view.claims.iter().filter(|claim| is_restored(&view, claim)).cloned().collect(),
    };
    let (mut adoptions, mut results) = (Vec::new(), Vec::new());
    let by_claim = by_claim(session, &view);
    for claim in &claims {
        let name = claim.id.to_string();
        let of_its_name = by_claim.get(&(claim.id.namespace.as_str(), claim.id.name.as_str()));
        let of_its_name = of_its_name.map_or(&[][..], Vec::as_slice);
        match adoption(session, claim, of_its_name, unreadable, &cluster, args).await {
            Ok(Some(adoption)) => adoptions.push(adoption),
            Ok(None) if args.all => {}
            Ok(None) => {
                let ready = claim.condition(READY).filter(|ready| ready.status == ConditionStatus::False);
                let problem = ready.map(|ready| format!("; it reports {}: {}", ready.reason, ready.message));
                let mut message = format!(
                    "claim {name} has its ObjectBucket already; there is nothing to adopt{}",
                    problem.unwrap_or_default()
                );
                let others = others_of_its_name(claim, of_its_name);
                if !others.is_empty() {
                    message.push_str(&format!(
                        "; other buckets of this name: {}; to get one, delete the claim (`{} status {name}` shows what happens to its bucket), and create it with the ObjectBucket in spec.objectBucketName",
                        others.join(", "),
                        session.program
                    ));
                }
                progress(args.output, &message)?
            }
            Err(problem) => {
                eprintln!("claim {name}: {}", clean(&problem.to_string()));
                results.push(Adoption::of(&claim.id, None, Outcome::Failed, problem.to_string()));
            }
        }
    }
    let keys = stream::iter(&adoptions).map(|adoption| keys_line(session, adoption)).buffered(AT_ONCE);
    for (adoption, keys) in adoptions.iter().zip(keys.collect::<Vec<_>>().await) {
        for line in lines(adoption, &cluster).into_iter().chain(keys) {
            progress(args.output, &line)?;
        }
    }
    if !adoptions.is_empty()
        && let Some(warning) = annotate::operator_status(session).await.warning()
    {
        eprintln!("{}", clean(warning));
    }
    let (adoptions, left) = allowed(adoptions, &cluster, args)?;
    results.extend(left);
    if adoptions.is_empty() || !(args.yes || prompt::confirm("The claims will adopt this.")?) {
        let declined = |adoption: &Annotation| {
            Adoption::of(&adoption.claim, Some(adoption.record()), Outcome::Left, "not confirmed".to_owned())
        };
        results.extend(adoptions.iter().map(declined));
        let is_left = results.iter().any(|adoption| adoption.outcome == Outcome::Left);
        if is_left || (args.all && results.is_empty()) {
            progress(args.output, "nothing was adopted")?;
        }
        return show(&results, args.output);
    }
    let write = async |adoption: &mut Annotation| annotate_one(session, adoption).await;
    annotate::apply(session, adoptions, write, args.wait.then_some(args.timeout), |adoption, outcome, why| {
        let message = match outcome {
            Outcome::Done => "has its bucket back and is Ready".to_owned(),
            Outcome::Asked => "annotated; `kubectl describe obc` shows the progress".to_owned(),
            Outcome::Waiting => format!("not yet: {why}"),
            Outcome::Left | Outcome::Failed => why,
        };
        progress(args.output, &format!("claim {}: {message}", adoption.claim))?;
        results.push(Adoption::of(&adoption.claim, Some(adoption.record()), outcome, message));
        Ok(())
    })
    .await?;
    show(&results, args.output)
}

/// Prints the results, and fails unless all claims adopt.
fn show(results: &[Adoption], format: Format) -> Result<ExitCode, Box<dyn Error>> {
    let is_adopted = |adoption: &&Adoption| matches!(adoption.outcome, Outcome::Done | Outcome::Asked);
    let names = || results.iter().filter(is_adopted).map(|adoption| claim_name(&adoption.name)).collect();
    output::show(&json!({ "results": results }), format, names, String::new)?;
    Ok(if results.iter().all(|adoption| is_adopted(&adoption)) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether the claim was bound before. [`adoption`] skips those that have their ObjectBucket.
fn is_restored(view: &View, claim: &Claim) -> bool {
    claim.named_record().is_some() && !claim.deleting && view.is_shown(claim)
}

/// The ObjectBuckets of this provisioner, by namespace and name of the claims that they record.
fn by_claim<'a, P>(session: &Session<P>, view: &'a View) -> HashMap<(&'a str, &'a str), Vec<&'a ObjectBucket>> {
    let mut by_claim: HashMap<_, Vec<_>> = HashMap::new();
    for object in view.records.all.iter().filter(|object| record::is_ours(object, &session.provisioner)) {
        if let Some(claim) = record::claim_name(object) {
            by_claim.entry(claim).or_default().push(object);
        }
    }
    by_claim
}

/// The ObjectBuckets of previous claims of its name, with their buckets.
fn others_of_its_name(claim: &Claim, of_its_name: &[&ObjectBucket]) -> Vec<String> {
    let others = of_its_name.iter().filter(|object| record::claim_uid(object) != Some(&claim.id.uid));
    others.map(|object| format!("{} ({})", record::name(object), record::bucket(object).unwrap_or_default())).collect()
}

/// The ObjectBucket that a claim will adopt; `None` if it has its own. `of_its_name`: those that record a claim of its
/// name.
async fn adoption<P: Provisioner>(
    session: &Session<P>,
    claim: &Claim,
    of_its_name: &[&ObjectBucket],
    unreadable: &[Unreadable],
    cluster: &str,
    args: &AdoptArgs,
) -> Result<Option<Annotation>, Box<dyn Error>> {
    if of_its_name.iter().any(|object| record::is_owned(object, claim, cluster)) {
        return Ok(None);
    }
    if claim.deleting {
        return Err("it is being deleted".into());
    }
    let spec = claim.spec()?;
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let (named, bucket) = (given(&spec.object_bucket_name), given(&args.bucket).or_else(|| given(&spec.bucket_name)));
    let wanted = Wanted { record: args.record.as_deref(), named: named.as_deref(), bucket: bucket.as_deref() };
    let previous = of_its_name.iter().copied().filter(|object| record::is_predecessors(object, claim, cluster));
    if let Some(object) = choose(&previous.collect::<Vec<_>>(), &wanted)? {
        codec::read(object)?;
        return Ok(Some(Annotation {
            action: Action::Adopt,
            object: object.clone(),
            is_new: false,
            claim: claim.id.clone(),
        }));
    }
    if !unreadable.is_empty() {
        let names = unreadable.iter().map(Unreadable::name).collect::<Vec<_>>().join(", ");
        return Err(
            format!("its ObjectBucket may be one of those that cannot be read; correct them first: {names}").into()
        );
    }
    let name = (claim.id.namespace.as_str(), claim.id.name.as_str());
    let mut object = of_claim(&session.client, &session.store, &session.provisioner, name, args.bucket.clone()).await?;
    let found = session.all::<ObjectBucket>().get_metadata_opt(&record::name(&object)).await;
    if found.map_err(refused("read an ObjectBucket"))?.is_some() {
        // The ObjectBucket of that name records an older claim, with another bucket.
        object.metadata.name = Some(record::names(&codec::read(&object)?.record.claim).1);
    }
    Ok(Some(Annotation { action: Action::Adopt, object, is_new: true, claim: claim.id.clone() }))
}

/// The adoptions that are allowed: from another cluster, only if the admin names that cluster. Two clusters can share
/// an account and all names, and one of them may still use the bucket. Also returns those that were skipped.
fn allowed(
    adoptions: Vec<Annotation>,
    cluster: &str,
    args: &AdoptArgs,
) -> Result<(Vec<Annotation>, Vec<Adoption>), Box<dyn Error>> {
    let (mut allowed, mut left) = (Vec::new(), Vec::new());
    for adoption in adoptions {
        let other = record::cluster_uid(&adoption.object).filter(|other| *other != cluster);
        let Some(other) = other.filter(|other| !args.from_cluster.iter().any(|named| named == other)) else {
            allowed.push(adoption);
            continue;
        };
        let warning = format!(
            "claim {}: this belonged to cluster {other}, which may still use it; after the adoption, this cluster deletes it with the claim.",
            adoption.claim
        );
        let question = format!("{warning} Type the uid of that cluster to continue:");
        if !args.yes && !args.all && prompt::read_line(&clean(&question))? == other {
            allowed.push(adoption);
        } else {
            let message = format!("{warning} To adopt it, add --from-cluster {other}");
            eprintln!("{}", clean(&message));
            left.push(Adoption::of(&adoption.claim, Some(adoption.record()), Outcome::Left, message));
        }
    }
    Ok((allowed, left))
}

/// The lines that the admin reads before anything is done.
fn lines(adoption: &Annotation, cluster: &str) -> Vec<String> {
    let mut lines = vec![format!("claim {} will adopt ObjectBucket {:?}", adoption.claim, adoption.record())];
    if adoption.is_new {
        lines.push("  which is lost, and will be rebuilt from the tags of bucket and user".to_owned());
    }
    let Ok(stored) = codec::read(&adoption.object) else { return lines };
    let record = stored.record;
    let origin = match &record.cluster {
        Some(other) if other != cluster => format!(" in another cluster ({other})"),
        _ => String::new(),
    };
    let access = record.plan.identity();
    let access = access.unwrap_or_else(|| "none: the claim uses the provisioning credentials".to_owned());
    lines.extend([
        format!("  bucket: {}, {}", record.plan.bucket, record.plan.mode.as_str()),
        format!("  access: {access}"),
        format!("  account: {}", record.account.as_deref().unwrap_or("not recorded")),
        format!("  previous claim: uid {}{origin}", record.claim.uid),
    ]);
    lines
}

/// The line about the claim's keys, if it has some of its own.
async fn keys_line<P>(session: &Session<P>, adoption: &Annotation) -> Option<String> {
    let record = codec::read(&adoption.object).ok()?.record;
    if record.plan.user.is_none() || record.plan.service_account.is_some() {
        return None;
    }
    let ClaimId { namespace, name, .. } = &adoption.claim;
    let label = session.label();
    let inherited = PreviousOwner::of(&record, true, &label);
    let is_the_claims = |secret: &ObjectMeta| {
        is_of(secret, &adoption.claim) || inherited.is_some_and(|previous| previous.inherits(secret))
    };
    let keys = match session.of::<Secret>(namespace).get_metadata_opt(name).await {
        Ok(Some(secret)) if is_the_claims(&secret.metadata) => {
            "those in the claim's Secret; new ones if they do not work: restart the apps then"
        }
        Ok(Some(_)) => {
            "none while a Secret of the claim's name exists that is not the claim's: delete it if no app uses it"
        }
        Ok(None) => "new ones, because the claim has no Secret: restart the apps",
        Err(_) => "not known, because the claim's Secret cannot be read",
    };
    Some(format!("  keys: {keys}"))
}

/// Annotates the ObjectBucket, if nothing has changed since it was read.
async fn annotate_one<P>(session: &Session<P>, adoption: &mut Annotation) -> Result<(), String> {
    let claim = &adoption.claim;
    let fresh = session.claim(&claim.namespace, &claim.name).await?;
    if Claim::read(&fresh, &session.label()).id != *claim {
        return Err("it was replaced meanwhile, so nothing was done; run the command again".to_owned());
    }
    if !adoption.is_new {
        adoption.refresh(session).await?;
    }
    adoption.write(session).await
}
