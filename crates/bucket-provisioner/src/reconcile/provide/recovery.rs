//! Records that were lost or damaged.

use crate::api::ObjectBucket;
use crate::decide::claim::Claim;
use crate::decide::keys::KeyNotes;
use crate::decide::record::Stored;
use crate::decide::report::Severity;
use crate::decide::{output_data, record};
use crate::error::{Error, RecordProblem};
use crate::objects::{claims, crds, events, outputs, records};
use crate::reasons;
use crate::reconcile::owner;
use crate::state::context::Context;
use crate::store::{Failure as _, Mode, Provisioner, Record};

/// Repairs an ObjectBucket that lost something, if the store has what it recorded, and reports this on both objects.
///
/// # Errors
/// [`Error::RecordDamaged`] if the store has something else; any refusal of the store or of Kubernetes; a conflict if
/// the ObjectBucket was changed since it was read.
pub(super) async fn restore<P: Provisioner>(
    ctx: &Context<P>,
    claim: &Claim,
    object: &ObjectBucket,
    restored: Record,
    error: String,
) -> Result<Stored, Error> {
    let proven = match prove(ctx, claim, restored).await? {
        Proof::Seen(record) => *record,
        Proof::Lost(why) => return Err(Error::RecordDamaged { name: record::name(object), error, why }),
    };
    let stored = records::rewrite(ctx, object, &proven).await?;
    let note = format!(
        "ObjectBucket {:?} was damaged ({error}); it is repaired from the claim and its StorageClass",
        stored.name
    );
    repaired(ctx, claim, &stored, &note).await;
    Ok(stored)
}

/// The lost record of a claim, if the store still has what it recorded: then somebody deleted the record by hand, and it
/// can be recreated.
///
/// # Errors
/// [`Error::AdoptionNeeded`] if the store has nothing of this claim: then the claim was restored or copied, and must not
/// get a new and empty bucket. Any refusal of the store or of Kubernetes.
pub(super) async fn recover<P: Provisioner>(
    ctx: &Context<P>,
    claim: &Claim,
    lost: Record,
    problem: RecordProblem,
) -> Result<Record, Error> {
    match prove(ctx, claim, lost).await? {
        Proof::Seen(record) => Ok(*record),
        Proof::Lost(_) => Err(Error::AdoptionNeeded(problem)),
    }
}

/// Whether the store has what a lost record recorded.
enum Proof {
    /// It has everything, in this account.
    Seen(Box<Record>),
    /// It has not; the text names what is missing or different.
    Lost(String),
}

async fn prove<P: Provisioner>(ctx: &Context<P>, claim: &Claim, record: Record) -> Result<Proof, Error> {
    // `check` deletes keys that it does not know, and the cache may show a claim that no longer exists.
    crds::may_remove(ctx).await?;
    if claims::is_gone(ctx, claim).await? {
        return Ok(Proof::Lost("the claim no longer exists".to_owned()));
    }
    let secrets = ctx.secrets_in(&claim.id.namespace);
    let (owner, secret) = tokio::try_join!(owner::of_record(ctx, &record), outputs::read_own(&secrets, &claim.id))?;
    let record = Record { account: owner.account.clone(), ..record };
    let keys = secret.as_ref().and_then(output_data::credentials);
    let (has_secret, has_keys) = (secret.is_some(), keys.is_some());
    let notes = secret.map(|secret| KeyNotes::read(secret.metadata.annotations.as_ref())).unwrap_or_default();
    let is_keyless = record.plan.service_account.is_some() && !record.is_moving();
    let present = keys.iter().map(|keys| keys.access_key_id.as_str());
    let denied = ctx.memory.get(&claim.id, |m| m.upkeep.denied_key());
    let others = notes.retiring.iter().map(|previous| previous.id.as_str());
    let ids: Vec<_> = present.chain(others).chain(denied.iter().map(|keys| keys.access_key_id.as_str())).collect();
    Ok(match ctx.call_store(&record, Box::pin(ctx.provisioner.check(&owner.call(&record), &ids))).await {
        // For a bucket that existed before, only the user is proof.
        Ok(checkup) if record.plan.mode == Mode::Granted && checkup.keys_lost => {
            let identity = record.plan.identity().unwrap_or_default();
            Proof::Lost(format!("{identity} does not exist, or nothing there shows that it is the claim's"))
        }
        // Somebody may have edited the claim: its class gives access without keys only now, and no admin has allowed that.
        Ok(checkup) if is_keyless && (has_keys || checkup.keys_lost && !has_secret) => {
            let identity = record.plan.identity().unwrap_or_default();
            Proof::Lost(format!("{identity} does not have access, or the claim's Secret has keys"))
        }
        Ok(_) => Proof::Seen(record.into()),
        Err(failure) if failure.is_lost() => Proof::Lost(failure.to_string()),
        Err(failure) => return Err(Error::store(failure)),
    })
}

/// Reports that a record was recreated.
pub(super) async fn recovered<P>(ctx: &Context<P>, claim: &Claim, stored: &Stored) {
    let note = format!(
        "ObjectBucket {:?} of this claim did not exist; it is recreated from the claim and its StorageClass, because bucket and user still exist",
        stored.name
    );
    repaired(ctx, claim, stored, &note).await;
}

async fn repaired<P>(ctx: &Context<P>, claim: &Claim, stored: &Stored, note: &str) {
    tracing::warn!(reason = reasons::REPAIRED, "{note}");
    ctx.options.observer.metrics().upkeep.repairs.with(["record"]).inc();
    events::record_event(ctx, &stored.name, stored.uid.as_deref(), Severity::Warning, reasons::REPAIRED, note).await;
    events::event(ctx, &claim.id, Severity::Warning, reasons::REPAIRED, note).await;
}
