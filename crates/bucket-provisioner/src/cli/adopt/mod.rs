//! `adopt`: restored claims get their buckets, users and keys back. The ObjectBucket of the previous claim is annotated
//! with `adopt`; if it is lost, it is rebuilt from the tags of the bucket first.
//!
//! | file | what it holds |
//! |---|---|
//! | `choose` | which ObjectBucket a claim adopts. Pure |

mod choose;

use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use self::choose::{Wanted, choose};
use super::annotate::{self, ActionStatus, PendingAnnotation};
use super::output::clean;
use super::session::{self, Session};
use super::{prompt, status};
use crate::api::{Guard, ObjectBucket};
use crate::controller::of_claim;
use crate::decide::action::Action;
use crate::decide::claim::Claim;
use crate::decide::record::Relation;
use crate::decide::{codec, record};
use crate::store::Provisioner;
use operator_runtime::program::print;
use operator_runtime::values::duration;

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct AdoptArgs {
    /// Give this restored claim its bucket back
    ///
    /// NAME alone needs --namespace.
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

/// A claim, and the ObjectBucket that it will adopt.
struct Adoption {
    claim: Claim,
    object: ObjectBucket,
    /// The ObjectBucket is lost and must be created.
    is_new: bool,
    /// UID of the cluster that the ObjectBucket records.
    cluster: Option<String>,
}

/// Lets restored claims adopt their ObjectBuckets.
///
/// # Errors
/// There is no such claim, nothing can be adopted, or Kubernetes or the store refused.
pub(crate) async fn run<P: Provisioner>(session: &Session<P>, args: &AdoptArgs) -> Result<ExitCode, Box<dyn Error>> {
    let cluster = session.cluster().await?;
    let claims = match &args.claim {
        Some(claim) => {
            let (namespace, name) = status::named(session, claim)?;
            vec![Claim::read(&session.claim(&namespace, &name).await?, &session.label())]
        }
        None => restored(session).await?,
    };
    let records = Records::read(session, &claims, &cluster).await?;
    for name in &records.unreadable {
        eprintln!("{}", clean(&format!("ObjectBucket {name:?} cannot be read; correct or restore it")));
    }
    let (mut adoptions, mut failed) = (Vec::new(), false);
    for claim in claims {
        let name = claim.id.to_string();
        match adoption(session, claim, &records, args).await {
            Ok(Some(adoption)) => adoptions.push(adoption),
            Ok(None) if args.all => {}
            Ok(None) => print(&format!("claim {name} has its ObjectBucket already; there is nothing to adopt\n"))?,
            Err(problem) => {
                failed = true;
                eprintln!("claim {name}: {}", clean(&problem.to_string()));
            }
        }
    }
    for line in adoptions.iter().flat_map(|adoption| adoption.lines(&cluster)) {
        print(&(clean(&line) + "\n"))?;
    }
    if !adoptions.is_empty()
        && let Some(warning) = annotate::operator_status(session).await.warning()
    {
        eprintln!("{}", clean(warning));
    }
    let (adoptions, left) = allowed(adoptions, &cluster, args)?;
    failed |= left;
    let is_confirmed = !adoptions.is_empty() && (args.yes || prompt::confirm("The claims will adopt this.")?);
    if !is_confirmed {
        let is_declined = !adoptions.is_empty();
        if is_declined || left || (args.all && !failed) {
            print("nothing was adopted\n")?;
        }
        return Ok(if failed || is_declined { ExitCode::FAILURE } else { ExitCode::SUCCESS });
    }
    failed |= !annotate_all(session, adoptions, args).await?;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Annotates all ObjectBuckets, and waits for the operator if that is wanted. Returns whether nothing failed.
async fn annotate_all<P: Provisioner>(
    session: &Session<P>,
    adoptions: Vec<Adoption>,
    args: &AdoptArgs,
) -> Result<bool, Box<dyn Error>> {
    let (mut annotated, mut all) = (Vec::new(), true);
    for adoption in adoptions {
        let name = adoption.claim.id.to_string();
        match annotate_one(session, adoption).await {
            Ok(pending) => annotated.push(pending),
            Err(problem) => {
                all = false;
                eprintln!("claim {name}: {}", clean(&problem));
            }
        }
    }
    if !args.wait {
        for PendingAnnotation { claim, .. } in annotated {
            print(&format!("claim {claim}: annotated; `kubectl describe obc` shows the progress\n"))?;
        }
        return Ok(all);
    }
    annotate::wait(session, &annotated, args.timeout, |index, status| {
        let (done, text) = match status {
            ActionStatus::Done => (true, "has its bucket back and is Ready".to_owned()),
            ActionStatus::Refused(why) => (false, format!("the operator refuses: {why}")),
            ActionStatus::Pending(why) => (false, format!("not yet: {why}")),
        };
        all &= done;
        let claim = annotated.get(index).map(|pending| pending.claim.to_string()).unwrap_or_default();
        print(&format!("{}\n", clean(&format!("claim {claim}: {text}"))))
    })
    .await?;
    Ok(all)
}

/// The claims of this provisioner that were bound before. [`adoption`] skips those that have their ObjectBucket.
async fn restored<P: Provisioner>(session: &Session<P>) -> Result<Vec<Claim>, Box<dyn Error>> {
    let classes = session.classes().await?;
    let label = session.label();
    let mut claims = Vec::new();
    session::each(&session.claims(), None, "list ObjectBucketClaims", |guarded| {
        let claim = Claim::read(&guarded, &label);
        let spec = claim.spec().ok();
        let names = spec.is_some_and(|spec| spec.object_bucket_name.as_deref().is_some_and(|name| !name.is_empty()));
        let class = spec.map(|spec| spec.storage_class_name.clone());
        if names && !claim.deleting && status::shows(session, &classes, &claim, class.as_deref()) {
            claims.push(claim);
        }
    })
    .await?;
    Ok(claims)
}

/// The ObjectBuckets of this provisioner that record the claims, or previous claims of their names.
struct Records {
    /// UIDs of the claims that have their own ObjectBucket.
    owned: std::collections::HashSet<String>,
    /// By namespace and name of the claim.
    previous: BTreeMap<(String, String), Vec<ObjectBucket>>,
    /// Names of ObjectBuckets that cannot be read, so that their claims are unknown.
    unreadable: Vec<String>,
}

impl Records {
    async fn read<P: Provisioner>(
        session: &Session<P>,
        claims: &[Claim],
        cluster: &str,
    ) -> Result<Self, Box<dyn Error>> {
        let wanted: BTreeMap<_, _> =
            claims.iter().map(|claim| ((claim.id.namespace.as_str(), claim.id.name.as_str()), claim)).collect();
        let mut found = Self { owned: Default::default(), previous: BTreeMap::new(), unreadable: Vec::new() };
        session::each(&session.records(), None, "list ObjectBuckets", |guard: Guard<ObjectBucket>| {
            let object = match guard.0 {
                Ok(object) => object,
                Err(unreadable) => return found.unreadable.push(unreadable.name()),
            };
            if !record::is_ours(&object, &session.provisioner) {
                return;
            }
            let Some(claim) = record::claim_name(&object).and_then(|name| wanted.get(&name)) else { return };
            match record::relation(&object, claim, cluster) {
                Relation::Owned => drop(found.owned.insert(claim.id.uid.clone())),
                Relation::Predecessor => {
                    let name = (claim.id.namespace.clone(), claim.id.name.clone());
                    found.previous.entry(name).or_default().push(object);
                }
                Relation::Inferred | Relation::Foreign => {}
            }
        })
        .await?;
        Ok(found)
    }

    fn previous_of(&self, claim: &Claim) -> &[ObjectBucket] {
        let name = (claim.id.namespace.clone(), claim.id.name.clone());
        self.previous.get(&name).map(Vec::as_slice).unwrap_or_default()
    }
}

/// The ObjectBucket that a claim will adopt; `None` if it has its own.
async fn adoption<P: Provisioner>(
    session: &Session<P>,
    claim: Claim,
    records: &Records,
    args: &AdoptArgs,
) -> Result<Option<Adoption>, Box<dyn Error>> {
    if records.owned.contains(&claim.id.uid) {
        return Ok(None);
    }
    if claim.deleting {
        return Err("it is being deleted".into());
    }
    let spec = claim.spec()?;
    let given = |text: &'_ Option<String>| text.clone().filter(|text| !text.is_empty());
    let (named, bucket) = (given(&spec.object_bucket_name), given(&args.bucket).or_else(|| given(&spec.bucket_name)));
    let wanted = Wanted { record: args.record.as_deref(), named: named.as_deref(), bucket: bucket.as_deref() };
    if let Some(object) = choose(records.previous_of(&claim), &wanted)? {
        let cluster = codec::read(object)?.record.cluster;
        return Ok(Some(Adoption { claim, object: object.clone(), is_new: false, cluster }));
    }
    if !records.unreadable.is_empty() {
        let names = records.unreadable.join(", ");
        return Err(
            format!("its ObjectBucket may be one of those that cannot be read; correct them first: {names}").into()
        );
    }
    let name = (claim.id.namespace.as_str(), claim.id.name.as_str());
    let mut object = of_claim(&session.client, &session.store, &session.provisioner, name, args.bucket.clone()).await?;
    let found = session.records().get_metadata_opt(&record::name(&object)).await;
    let record = codec::read(&object)?.record;
    if found.map_err(|error| session::refused("read an ObjectBucket", &error))?.is_some() {
        // The ObjectBucket of that name records an older claim, with another bucket.
        object.metadata.name = Some(record::names(&record.claim).1);
    }
    Ok(Some(Adoption { claim, object, is_new: true, cluster: record.cluster }))
}

/// The adoptions that are allowed: from another cluster, only if the admin names that cluster. Two clusters can share
/// an account and all names, and one of them may still use the bucket. Also returns whether some were skipped.
fn allowed(adoptions: Vec<Adoption>, cluster: &str, args: &AdoptArgs) -> Result<(Vec<Adoption>, bool), Box<dyn Error>> {
    let (mut allowed, mut is_left) = (Vec::new(), false);
    for adoption in adoptions {
        let may = match adoption.cluster.as_deref().filter(|other| *other != cluster) {
            None => true,
            Some(other) if args.from_cluster.iter().any(|named| named == other) => true,
            Some(other) => {
                let claim = &adoption.claim.id;
                let asks = !args.yes && !args.all;
                let warning = format!(
                    "claim {claim}: this belonged to cluster {other}, which may still use it; after the adoption, this cluster deletes it with the claim."
                );
                let question = format!("{warning} Type the uid of that cluster to continue:");
                let may = asks && prompt::read_line(&clean(&question))? == other;
                if !may {
                    eprintln!("{}", clean(&format!("{warning} To adopt it, add --from-cluster {other}")));
                }
                may
            }
        };
        if may {
            allowed.push(adoption);
        } else {
            is_left = true;
        }
    }
    Ok((allowed, is_left))
}

impl Adoption {
    fn lines(&self, cluster: &str) -> Vec<String> {
        let Self { claim, object, is_new, .. } = self;
        let name = record::name(object);
        let mut lines = vec![format!("claim {} adopts ObjectBucket {name}", claim.id)];
        if *is_new {
            lines.push("  which is lost, and is rebuilt from the tags of bucket and user".to_owned());
        }
        let Ok(stored) = codec::read(object) else { return lines };
        let record = stored.record;
        let origin = match &record.cluster {
            Some(other) if other != cluster => format!(" in another cluster ({other})"),
            _ => String::new(),
        };
        lines.push(format!("  bucket: {}, {}", record.plan.bucket, record.plan.mode.as_str()));
        lines.push(format!(
            "  user:   {}",
            record.plan.user.as_deref().unwrap_or("none: the claim uses the provisioning credentials")
        ));
        lines.push(format!("  account: {}", record.account.as_deref().unwrap_or("not recorded")));
        lines.push(format!("  previous claim: uid {}{origin}", record.claim.uid));
        lines
    }
}

/// Annotates the ObjectBucket, if nothing has changed since it was read.
async fn annotate_one<P: Provisioner>(session: &Session<P>, adoption: Adoption) -> Result<PendingAnnotation, String> {
    let Adoption { claim, object, is_new, .. } = adoption;
    let fresh = session.claim(&claim.id.namespace, &claim.id.name).await.map_err(|problem| problem.to_string())?;
    if Claim::read(&fresh, &session.label()).id != claim.id {
        return Err("it was replaced meanwhile, so nothing was done; run the command again".to_owned());
    }
    let pending =
        |uid| PendingAnnotation { record: record::name(&object), uid, action: Action::Adopt, claim: claim.id.clone() };
    if is_new {
        let uid = annotate::create(session, object.clone(), Action::Adopt).await?;
        return Ok(pending(uid));
    }
    annotate::annotate(session, &annotate::fresh(session, &object).await?, Action::Adopt).await?;
    Ok(pending(object.metadata.uid.clone()))
}
