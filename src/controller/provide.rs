//! From a claim to a usable bucket, step by step; or, for a bound claim, whatever of these steps is to be
//! done again. Data changes its type on the way, so that no step can be left out.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};

use super::claim::{Claim, ignored_edit};
use super::context::Context;
use super::error::{self, Error};
use super::outputs::{self, Current};
use super::plan::{self, Intent};
use super::reconcile::Next;
use super::record::{self, Author, Stored};
use super::report::{self, Report, Severity};
use super::resolve::{self, ClassLookup};
use super::teardown::{self, Undone};
use super::{adopt, mark};
use crate::api::BucketPhase;
use crate::provisioner::{AppCredentials, Failure as _, FailureClass, Mode, Probe, Provisioner, Record};

/// How often credentials may be refused in a row before they are replaced by new ones, once: some one and
/// a half minutes, ten times what AWS takes to spread a key. When the new ones were refused as often, it is
/// not the keys: somebody must mend something, and no more keys are made.
const MAX_PROBES: u32 = 12;

/// A claim whose intent is recorded, and what is known around it.
struct Recorded<O> {
    stored: Stored,
    /// The record was written just now: nothing can have been made for it before.
    is_new: bool,
    owner: Option<O>,
    outputs: Outputs,
}

struct Outputs {
    secret: Current<Secret>,
    config_map: Current<ConfigMap>,
}

/// A claim whose keys are issued and stand in its Secret.
struct Issued {
    credentials: AppCredentials,
    /// They were issued just now, or were not seen to work yet.
    unproven: bool,
}

/// Makes the bucket and hands it over, or restores what is missing of it.
///
/// # Errors
/// Whatever stands in the way; what was done so far is taken up again by the next attempt.
pub(crate) async fn provide<P: Provisioner>(
    ctx: &Context<P>,
    mut claim: Claim,
    class: &ClassLookup,
) -> Result<Next, Error> {
    let adopt = |stored| adopt::adopt(&ctx.provisioner, &ctx.options.provisioner_name, class, stored);
    let found = record::find(&ctx.records(), &claim.id).await?;
    let recorded = match plan::intent(&ctx.provisioner, &ctx.options.provisioner_name, &claim, class, found)? {
        Intent::Record { name, record } => begin(ctx, &mut claim, name, *record).await?,
        Intent::Proceed(stored) => resume(ctx, &mut claim, adopt(*stored)?).await?,
        Intent::UndoFirst(stored) => {
            return Ok(match teardown::undo(ctx, &claim, &adopt(*stored)?).await? {
                Undone::Partly(next) => next,
                // Not at once: somebody else's finalizer may hold the record.
                Undone::Fully(_) => Next::After(ctx.memory.failed(&claim.id, FailureClass::Retryable)),
            });
        }
    };
    let issued = issue(ctx, &claim, &recorded).await?;
    if let Probe::NotYet(answer) = prove(ctx, &recorded.stored.record, &issued).await? {
        let wait = ctx.memory.not_usable_yet(&claim.id);
        if ctx.memory.probes(&claim.id) > 2 * MAX_PROBES {
            return Err(Error::CredentialsUnusable { answer });
        }
        report::tell(ctx, &claim, &Report::waiting_for_credentials(&claim, &answer)).await?;
        return Ok(Next::After(wait));
    }
    hand_over(ctx, &mut claim, &recorded).await?;
    ctx.memory.succeeded(&claim.id);
    Ok(Next::Rest)
}

/// Records what is going to be made. Nothing is begun that cannot be finished: outputs of others that are
/// in the way and credentials that cannot be used are found before anything is written.
async fn begin<P: Provisioner>(
    ctx: &Context<P>,
    claim: &mut Claim,
    name: String,
    record: Record,
) -> Result<Recorded<P::Owner>, Error> {
    let (owner, outputs) = tokio::try_join!(resolve::owner(ctx, &record), read_outputs(ctx, claim))?;
    mark::take_on(ctx, claim, &record).await?;
    let stored = record::create(&ctx.record_writer(), name, record, &ctx.label).await?;
    Ok(Recorded { stored, is_new: true, owner: Some(owner), outputs })
}

/// Takes up a record that an earlier attempt wrote. The owner's credentials are read if they are needed.
async fn resume<P: Provisioner>(
    ctx: &Context<P>,
    claim: &mut Claim,
    stored: Stored,
) -> Result<Recorded<P::Owner>, Error> {
    let outputs = read_outputs(ctx, claim).await?;
    mark::take_on(ctx, claim, &stored.record).await?;
    Ok(Recorded { stored, is_new: false, owner: None, outputs })
}

async fn read_outputs<P>(ctx: &Context<P>, claim: &Claim) -> Result<Outputs, Error> {
    let (secrets, config_maps) = (ctx.secrets_in(&claim.id.namespace), ctx.config_maps_in(&claim.id.namespace));
    let (secret, config_map) =
        tokio::try_join!(outputs::read(&secrets, &claim.id), outputs::read(&config_maps, &claim.id))?;
    Ok(Outputs { secret, config_map })
}

/// Has the store make what is recorded, unless that was done: the keys in the claim's own Secret are the
/// proof, for they are written last. From here on the Secret holds the keys and a crash does not lose them.
async fn issue<P: Provisioner>(
    ctx: &Context<P>,
    claim: &Claim,
    recorded: &Recorded<P::Owner>,
) -> Result<Issued, Error> {
    let Recorded { stored, is_new, outputs, .. } = recorded;
    let secrets = ctx.secrets_in(&claim.id.namespace);
    // The owner's own keys are taken from the owner's Secret each time: they may have been mended there.
    let may_be_reused = !is_new && (stored.bound || stored.record.plan.user.is_some());
    if let Current::Mine(secret) = &outputs.secret
        && may_be_reused
        && ctx.memory.probes(&claim.id) != MAX_PROBES
        && let Some(credentials) = outputs::credentials(secret)
    {
        let wanted = outputs::secret(&claim.id, &ctx.label, &credentials);
        outputs::write(&secrets, &outputs.secret, &wanted, &claim.id).await?;
        // A bound claim that is not ready may be so because of keys that were issued anew.
        return Ok(Issued { credentials, unproven: !stored.bound || !report::says_ready(claim) });
    }
    let credentials = match execute(ctx, recorded).await {
        Ok(credentials) => credentials,
        Err(failure) => {
            if *is_new && failure.store_untouched() {
                // With nothing made there is nothing to undo, and the claim can be deleted without
                // asking a store that may never answer.
                record::delete(&ctx.records(), stored).await?;
            }
            return Err(failure);
        }
    };
    let secret = outputs::secret(&claim.id, &ctx.label, &credentials);
    outputs::write(&secrets, &outputs.secret, &secret, &claim.id).await?;
    // Once, not with every attempt: the owner's keys are written anew each time.
    if stored.record.plan.user.is_none() && matches!(outputs.secret, Current::Absent) {
        let note =
            "createBucketUser of the StorageClass is \"no\": the claim's Secret holds the owner's own credentials";
        report::event(ctx, &claim.id, Severity::Warning, error::OWNER_CREDENTIALS_SHARED, note).await;
    }
    Ok(Issued { credentials, unproven: true })
}

/// Calls the verb that is due. For a bound claim only the access is made anew: a bucket that somebody
/// deleted is not silently re-created empty.
async fn execute<P: Provisioner>(ctx: &Context<P>, recorded: &Recorded<P::Owner>) -> Result<AppCredentials, Error> {
    let Recorded { stored, owner, .. } = recorded;
    let read;
    let owner = match owner {
        Some(owner) => owner,
        None => {
            read = resolve::owner(ctx, &stored.record).await?;
            &read
        }
    };
    let claim = &stored.record.claim;
    ctx.memory.executes(claim);
    let credentials = match stored.record.plan.mode {
        Mode::Created if !stored.bound => ctx.provisioner.provision(&stored.record, owner).await,
        Mode::Created | Mode::Granted => ctx.provisioner.grant(&stored.record, owner).await,
    };
    ctx.memory.executes(claim);
    credentials.map_err(Error::store)
}

/// Bound means usable: tries the keys once, unless they were seen to work before.
async fn prove<P: Provisioner>(ctx: &Context<P>, record: &Record, issued: &Issued) -> Result<Probe, Error> {
    if !issued.unproven {
        return Ok(Probe::Usable);
    }
    ctx.provisioner.probe(record, &issued.credentials).await.map_err(Error::store)
}

/// Hands the bucket over: the ConfigMap, without which no app starts, then the signs of binding in the
/// order in which others rely on them: record, objectBucketName, phase.
async fn hand_over<P>(ctx: &Context<P>, claim: &mut Claim, recorded: &Recorded<impl Sized>) -> Result<(), Error> {
    let Recorded { stored, outputs, .. } = recorded;
    let stands = report::says_ready(claim) && matches!(outputs.config_map, Current::Mine(_));
    if stored.author == Author::GoProvisioner && stands {
        // What the Go provisioner handed over stays as it is.
        return Ok(());
    }
    let config_map = outputs::config_map(&ctx.label, &stored.record);
    outputs::write(&ctx.config_maps_in(&claim.id.namespace), &outputs.config_map, &config_map, &claim.id).await?;
    if !stored.bound {
        let patch = serde_json::json!({ "status": { "phase": BucketPhase::Bound } });
        let answer = report::patch_status(&ctx.records(), &stored.name, &patch).await;
        answer.map_err(Error::kubernetes("write the ObjectBucket's status"))?;
    }
    mark::bind(ctx, claim, stored).await?;
    let edit = ignored_edit(claim.spec()?, &stored.record);
    report::tell(ctx, claim, &Report::bound(&stored.record.plan.bucket, edit)).await
}
