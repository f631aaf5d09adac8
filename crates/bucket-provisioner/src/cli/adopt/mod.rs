//! `adopt`: restored claims get back what they had. The ObjectBucket of the former claim gets the word `adopt`; if it is
//! lost, it is written again from the tags of the bucket first.
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
use super::annotate::{self, Answer, PendingAnnotation};
use super::output::clean;
use super::session::{self, Session};
use super::{ask, status};
use crate::api::{Guard, ObjectBucket};
use crate::controller::of_claim;
use crate::decide::action::Action;
use crate::decide::claim::Claim;
use crate::decide::record::Relation;
use crate::decide::{codec, record};
use crate::store::Provisioner;
use operator_runtime::program::print;
use operator_runtime::values::duration;

/// What to adopt.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct AdoptArgs {
    /// The restored claim. NAME alone needs --namespace.
    #[arg(value_name = "[NAMESPACE/]NAME", required_unless_present = "all", conflicts_with = "all")]
    claim: Option<String>,
    /// All restored claims: those that name an ObjectBucket which is not their own.
    #[arg(long)]
    all: bool,
    /// Name of the bucket, if the ObjectBucket is lost and neither the claim nor its StorageClass says it.
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    bucket: Option<String>,
    /// The ObjectBucket to adopt, if several are possible.
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    record: Option<String>,
    /// Do not ask. Does not cover what comes from another cluster: see --from-cluster.
    #[arg(long)]
    yes: bool,
    /// Also adopt what the cluster with this uid had, whoever says yes. That cluster must not use it any more. Can be
    /// repeated.
    #[arg(long, value_name = "UID")]
    from_cluster: Vec<String>,
    /// Wait until the claim is Ready, or the operator says why not.
    #[arg(long, default_value = "true", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = clap::ArgAction::Set)]
    wait: bool,
    /// How long to wait for the operator.
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration)]
    timeout: Duration,
}

/// What a claim is to adopt.
struct Adoption {
    claim: Claim,
    object: ObjectBucket,
    /// The ObjectBucket is lost, and has to be created.
    is_new: bool,
    /// UID of the cluster that had it, if that is known.
    cluster: Option<String>,
}

/// Has restored claims adopt what they had.
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
    let former = Former::read(session, &claims, &cluster).await?;
    for name in &former.unreadable {
        eprintln!("{}", clean(&format!("ObjectBucket {name:?} cannot be read; correct or restore it")));
    }
    let (mut adoptions, mut failed) = (Vec::new(), false);
    for claim in claims {
        let name = claim.id.to_string();
        match adoption(session, claim, &former, args).await {
            Ok(Some(adoption)) => adoptions.push(adoption),
            Ok(None) if args.all => {}
            Ok(None) => print(&format!("claim {name} has its ObjectBucket already; nothing is to be adopted\n"))?,
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
        && let Some(warning) = annotate::service(session).await.warning()
    {
        eprintln!("{}", clean(warning));
    }
    let (adoptions, left) = allowed(adoptions, &cluster, args)?;
    failed |= left;
    let goes_on = !adoptions.is_empty() && (args.yes || ask::agrees("The claims take this over.")?);
    if !goes_on {
        let said_no = !adoptions.is_empty();
        if said_no || left || (args.all && !failed) {
            print("nothing was adopted\n")?;
        }
        return Ok(if failed || said_no { ExitCode::FAILURE } else { ExitCode::SUCCESS });
    }
    failed |= !give_all(session, adoptions, args).await?;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Gives the operator all words, and follows them; whether all were followed, as far as anybody waits for that.
async fn give_all<P: Provisioner>(
    session: &Session<P>,
    adoptions: Vec<Adoption>,
    args: &AdoptArgs,
) -> Result<bool, Box<dyn Error>> {
    let (mut given, mut all) = (Vec::new(), true);
    for adoption in adoptions {
        let name = adoption.claim.id.to_string();
        match give(session, adoption).await {
            Ok(word) => given.push(word),
            Err(problem) => {
                all = false;
                eprintln!("claim {name}: {}", clean(&problem));
            }
        }
    }
    if !args.wait {
        for PendingAnnotation { claim, .. } in given {
            print(&format!("claim {claim}: asked; `kubectl describe obc` shows how it goes\n"))?;
        }
        return Ok(all);
    }
    annotate::wait(session, &given, args.timeout, |index, answer| {
        let (done, said) = match answer {
            Answer::Done => (true, "has its bucket back and is Ready".to_owned()),
            Answer::Refused(why) => (false, format!("the operator refuses: {why}")),
            Answer::NotYet(why) => (false, format!("not yet: {why}")),
        };
        all &= done;
        let claim = given.get(index).map(|given| given.claim.to_string()).unwrap_or_default();
        print(&format!("{}\n", clean(&format!("claim {claim}: {said}"))))
    })
    .await?;
    Ok(all)
}

/// The claims of this provisioner that were bound once; those that have their ObjectBucket are left out later.
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

/// The ObjectBuckets of ours by namespace and name of their claims.
struct Former {
    mine: std::collections::HashSet<String>,
    former: BTreeMap<(String, String), Vec<ObjectBucket>>,
    /// Names of ObjectBuckets that cannot be read: nobody knows whose they are.
    unreadable: Vec<String>,
}

impl Former {
    async fn read<P: Provisioner>(
        session: &Session<P>,
        claims: &[Claim],
        cluster: &str,
    ) -> Result<Self, Box<dyn Error>> {
        let wanted: BTreeMap<_, _> =
            claims.iter().map(|claim| ((claim.id.namespace.as_str(), claim.id.name.as_str()), claim)).collect();
        let mut found = Self { mine: Default::default(), former: BTreeMap::new(), unreadable: Vec::new() };
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
                Relation::Owned => drop(found.mine.insert(claim.id.uid.clone())),
                Relation::Predecessor => {
                    let name = (claim.id.namespace.clone(), claim.id.name.clone());
                    found.former.entry(name).or_default().push(object);
                }
                Relation::Inferred | Relation::Foreign => {}
            }
        })
        .await?;
        Ok(found)
    }

    fn of(&self, claim: &Claim) -> &[ObjectBucket] {
        let name = (claim.id.namespace.clone(), claim.id.name.clone());
        self.former.get(&name).map(Vec::as_slice).unwrap_or_default()
    }
}

/// What a claim is to adopt; `None` if it has its own ObjectBucket.
async fn adoption<P: Provisioner>(
    session: &Session<P>,
    claim: Claim,
    former: &Former,
    args: &AdoptArgs,
) -> Result<Option<Adoption>, Box<dyn Error>> {
    if former.mine.contains(&claim.id.uid) {
        return Ok(None);
    }
    if claim.deleting {
        return Err("it is being deleted".into());
    }
    let spec = claim.spec()?;
    let said = |text: &'_ Option<String>| text.clone().filter(|text| !text.is_empty());
    let (named, bucket) = (said(&spec.object_bucket_name), said(&args.bucket).or_else(|| said(&spec.bucket_name)));
    let wanted = Wanted { record: args.record.as_deref(), named: named.as_deref(), bucket: bucket.as_deref() };
    if let Some(object) = choose(former.of(&claim), &wanted)? {
        let cluster = codec::read(object)?.record.cluster;
        return Ok(Some(Adoption { claim, object: object.clone(), is_new: false, cluster }));
    }
    if !former.unreadable.is_empty() {
        let names = former.unreadable.join(", ");
        return Err(
            format!("its ObjectBucket may be one of those that cannot be read; mend them first: {names}").into()
        );
    }
    let name = (claim.id.namespace.as_str(), claim.id.name.as_str());
    let mut object = of_claim(&session.client, &session.store, &session.provisioner, name, args.bucket.clone()).await?;
    let found = session.records().get_metadata_opt(&record::name(&object)).await;
    let record = codec::read(&object)?.record;
    if found.map_err(|error| session::refused("read an ObjectBucket", &error))?.is_some() {
        // It records an older claim, with another bucket.
        object.metadata.name = Some(record::names(&record.claim).1);
    }
    Ok(Some(Adoption { claim, object, is_new: true, cluster: record.cluster }))
}

/// What may be adopted: what comes from another cluster only if the admin names that cluster. Two clusters can share an
/// account and all names, and one of them may still use it. Also whether something was left.
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
                    "claim {claim}: cluster {other} had this, and may still use it; what this cluster takes over, it also deletes with the claim."
                );
                let question = format!("{warning} Type the uid of that cluster to go on:");
                let may = asks && ask::answer(&clean(&question))? == other;
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
            lines.push("  which is lost, and is written again from the tags of bucket and user".to_owned());
        }
        let Ok(stored) = codec::read(object) else { return lines };
        let record = stored.record;
        let whence = match &record.cluster {
            Some(other) if other != cluster => format!(" in another cluster ({other})"),
            _ => String::new(),
        };
        lines.push(format!("  bucket: {}, {}", record.plan.bucket, record.plan.mode.as_str()));
        lines.push(format!("  user:   {}", record.plan.user.as_deref().unwrap_or("none: the owner's keys are shared")));
        lines.push(format!("  former: uid {}{whence}", record.claim.uid));
        lines.push(format!("  account: {}", record.account.as_deref().unwrap_or("not recorded")));
        lines
    }
}

/// Gives the operator the word, if nothing has changed since it was read.
async fn give<P: Provisioner>(session: &Session<P>, adoption: Adoption) -> Result<PendingAnnotation, String> {
    let Adoption { claim, object, is_new, .. } = adoption;
    let fresh = session.claim(&claim.id.namespace, &claim.id.name).await.map_err(|problem| problem.to_string())?;
    if Claim::read(&fresh, &session.label()).id != claim.id {
        return Err("it was replaced since, so nothing was done; run the command again".to_owned());
    }
    let given =
        |uid| PendingAnnotation { record: record::name(&object), uid, action: Action::Adopt, claim: claim.id.clone() };
    if is_new {
        let uid = annotate::create(session, object.clone(), Action::Adopt).await?;
        return Ok(given(uid));
    }
    annotate::annotate(session, &annotate::fresh(session, &object).await?, Action::Adopt).await?;
    Ok(given(object.metadata.uid.clone()))
}
