//! From a claim to a usable bucket: reads, then takes the steps that `decide/steps.rs` gives, one after the other. Steps
//! with keys are in `credentials.rs`, the upkeep of bound claims is in `upkeep.rs`, the rotation of their keys in
//! `rotation.rs`, and what follows a move to other access in `previous_access.rs`. Records of previous claims are in `adoption.rs`, lost and damaged ones in `recovery.rs`.

mod adoption;
mod attempt;
mod credentials;
mod previous_access;
mod recovery;
mod rotation;
mod upkeep;

use std::pin::pin;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Resource as _;

use self::attempt::Attempt;
use super::next::{BUSY, Next};
use super::{in_sync, step, takeover, teardown};
use crate::decide::claim::Claim;
use crate::decide::class::ClassLookup;
use crate::decide::plan::{self, RecordState, Surroundings};
use crate::decide::record::Stored;
use crate::decide::report::{ConditionSupport, Report};
use crate::decide::steps::{self, ProvisionStep};
use crate::decide::{legacy, moving, output_data, request};
use crate::error::Error;
use crate::objects::outputs::{self, Current};
use crate::objects::{claims, events, namespaces, record_lookup, records, status};
use crate::state::context::Context;
use crate::state::memory::ClaimMemory;
use crate::store::{Provisioner, Record};
use operator_runtime::observe::spans;

/// Creates the bucket and publishes its credentials, restores what is missing, or does the upkeep that is due.
///
/// # Errors
/// Any problem; the next attempt continues where this one stopped.
pub(crate) async fn provide<P: Provisioner>(
    ctx: &Context<P>,
    claim: Claim,
    class: &ClassLookup,
) -> Result<Next, Error> {
    let mut attempt = match step::traced(spans::step(&step::Look), pin!(begin(ctx, claim, class))).await? {
        Start::Attempt(attempt) => *attempt,
        Start::Later(next) => return Ok(next),
    };
    loop {
        let step = steps::next_provision_step(&attempt.state());
        if let Some(next) = step::traced(spans::step(&step), pin!(attempt.take(step))).await? {
            return Ok(next);
        }
        attempt.progress.note(step);
    }
}

/// How an attempt starts.
enum Start<'a, P: Provisioner> {
    /// With its first step.
    Attempt(Box<Attempt<'a, P>>),
    /// Not yet: something else had to be done first, or has to be seen.
    Later(Next),
}

/// Finds the claim's record (reads), compares it with claim and class (decides), and reads how far an earlier attempt
/// came.
async fn begin<'a, P: Provisioner>(
    ctx: &'a Context<P>,
    mut claim: Claim,
    class: &ClassLookup,
) -> Result<Start<'a, P>, Error> {
    if claim.is_abridged(ctx.rules.has) {
        claims::refresh_settings(ctx, &mut claim).await?;
    }
    let labels = namespaces::labels(ctx, &claim, class).await?;
    ctx.wait_for_creator(&claim);
    let namespace = claim.id.namespace.clone();
    let creators = |name: &str| ctx.creator(&namespace, name);
    let surroundings = Surroundings {
        provisioner: ctx.provisioner.as_ref(),
        provisioner_name: &ctx.options.provisioner_name,
        cluster: &ctx.cluster,
        class,
        labels: &labels,
        creators: &creators,
    };
    let found = record_lookup::find(ctx, &claim).await?;
    // An admin may have edited the claim just before, and allows that edit. The watch shows it.
    if found.is_to_move() && !claims::is_latest(ctx, &claim).await? {
        return Ok(Start::Later(Next::After(BUSY)));
    }
    let mut not_moved = None;
    let stored = match plan::record_state(&surroundings, &claim, found)? {
        RecordState::Planned { name, record } => {
            if let ClassLookup::Found(class) = class
                && let Some((reason, note)) = request::warning(ctx.provisioner.as_ref(), class)
            {
                events::class_warning(ctx, class, reason.name, &note).await;
            }
            let attempt = Attempt::begin(ctx, claim, name, record).await?;
            ctx.check_creators_account(attempt.record_state.record())?;
            return Ok(Start::Attempt(Box::new(attempt)));
        }
        RecordState::Predecessor { stored, record } => {
            return Ok(Start::Attempt(Box::new(Attempt::adopt(ctx, claim, stored, record).await?)));
        }
        RecordState::Lost { name, record, problem } => {
            let record = recovery::recover(ctx, &claim, *record, problem).await?;
            return Ok(Start::Attempt(Box::new(Attempt::begin(ctx, claim, name, Box::new(record)).await?)));
        }
        RecordState::Outdated(stored) => {
            let stored = takeover::complete(ctx, &claim, *stored).await?;
            return teardown::undo_first(ctx, &claim, stored).await.map(Start::Later);
        }
        RecordState::Stored { stored, .. } => {
            not_moved = plan::not_moved(&surroundings, &claim, &stored);
            takeover::complete(ctx, &claim, *stored).await?
        }
        RecordState::Damaged { object, record, error } => {
            recovery::restore(ctx, &claim, &object, *record, error).await?
        }
    };
    let mut attempt = Attempt { not_moved, ..Attempt::resume(ctx, claim, stored).await? };
    attempt.continue_with_upkeep()?;
    Ok(Start::Attempt(Box::new(attempt)))
}

impl<P: Provisioner> Attempt<'_, P> {
    /// Takes one step. `Some`: the attempt is over for now.
    async fn take(&mut self, step: ProvisionStep) -> Result<Option<Next>, Error> {
        match step {
            ProvisionStep::AddFinalizer => {
                claims::add_finalizer(self.ctx, &mut self.claim, self.record_state.record()).await?;
                self.report_beginning().await?;
            }
            ProvisionStep::Record => self.write_record().await?,
            ProvisionStep::Adopt => return self.take_record_over().await,
            ProvisionStep::RecordEdit => {
                let wait = self.ctx.memory.get(&self.claim.id, |m| m.upkeep.edit_in());
                if !wait.is_zero() {
                    return Ok(Some(Next::After(self.defer(wait))));
                }
                self.record_edit().await?;
            }
            ProvisionStep::Execute(verb) => {
                if let Some(wait) = self.wait_before_replacement() {
                    return Ok(Some(Next::After(wait)));
                }
                self.execute(verb).await?;
            }
            ProvisionStep::WriteSecret => self.write_secret().await?,
            ProvisionStep::Probe => return self.probe().await,
            ProvisionStep::MarkCredentialsPublished => self.mark_credentials_published().await?,
            ProvisionStep::WriteConfigMap => {
                if let Some(wait) = self.wait_before_repair()? {
                    return Ok(Some(Next::After(wait)));
                }
                self.write_config_map().await?;
            }
            ProvisionStep::MarkBound => records::mark_bound(self.ctx, self.stored_mut()?).await?,
            ProvisionStep::LinkRecord => self.link_record().await?,
            ProvisionStep::UpdateStatus => self.update_status().await?,
            ProvisionStep::FinishAdoption => self.finish_adoption().await?,
            ProvisionStep::Rotate => self.rotate().await?,
            ProvisionStep::Retire => self.retire().await?,
            ProvisionStep::RevokePrevious => self.revoke_previous().await?,
            ProvisionStep::Check => return self.check().await,
            ProvisionStep::Done => return Ok(Some(self.succeeded())),
        }
        Ok(None)
    }

    /// Tools take a claim without conditions for ready. Ours have one from their CRD.
    async fn report_beginning(&self) -> Result<(), Error> {
        let Claim { status, begins_unready, .. } = &self.claim;
        let says_something = *begins_unready || status.phase.is_some() || !status.conditions.is_empty();
        if says_something || self.ctx.conditions.condition_support() == ConditionSupport::No {
            return Ok(());
        }
        status::update_status(self.ctx, &self.claim, &Report::provisioning()).await
    }

    /// Continues from the record and the outputs that were found, with the upkeep that is due.
    fn continue_with_upkeep(&mut self) -> Result<(), Error> {
        self.continue_from_outputs()?;
        self.upkeep = steps::upkeep_left(self.upkeep_due()?, &self.keys);
        Ok(())
    }

    async fn write_record(&mut self) -> Result<(), Error> {
        let RecordState::Planned { name, record } = &self.record_state else {
            return Err(Error::OutOfStep("the ObjectBucket is already written"));
        };
        let (name, record) = (name.clone(), Record::clone(record));
        let stored = records::create(self.ctx, name, record).await.inspect_err(|_| {
            self.ctx.memory.entry(&self.claim.id, |m| m.record_refused = true);
        })?;
        // If the record was lost, its credentials were published before.
        let is_new = !stored.record.credentials_published;
        if !is_new {
            recovery::recovered(self.ctx, &self.claim, &stored).await;
        }
        self.record_state = RecordState::Stored { stored: Box::new(stored), is_new };
        if is_new { Ok(()) } else { self.continue_with_upkeep() }
    }

    /// A bound claim that lost its keys several times in a row waits before it gets new ones.
    fn wait_before_replacement(&self) -> Option<Duration> {
        let wait = self.ctx.memory.get(&self.claim.id, |m| m.upkeep.replacement_in());
        let waits = self.stored().is_ok_and(Stored::bound) && !wait.is_zero();
        waits.then(|| self.defer(wait))
    }

    /// A bound claim whose ConfigMap was changed several times in a row waits before the next repair.
    fn wait_before_repair(&self) -> Result<Option<Duration>, Error> {
        let wait = self.ctx.memory.get(&self.claim.id, |m| m.upkeep.repair_in());
        let stored = self.stored()?;
        if wait.is_zero() || !stored.bound() {
            return Ok(None);
        }
        let extra = self.output_metadata(self.config_map.existing().map(|config_map| config_map.meta()));
        let wanted = output_data::config_map((&self.ctx.label, &extra), &stored.record);
        let differs = |found| output_data::difference(found, &wanted).is_some();
        Ok(self.config_map.existing().is_none_or(differs).then(|| self.defer(wait)))
    }

    fn defer(&self, wait: Duration) -> Duration {
        self.ctx.memory.entry(&self.claim.id, |m| m.waits.defer(wait));
        wait
    }

    async fn mark_credentials_published(&mut self) -> Result<(), Error> {
        let (ctx, seen_in_account) = (self.ctx, self.seen_in_account.clone());
        let stored = self.stored_mut()?;
        let (record, previous_ends_at) = moving::published(&stored.record, Timestamp::now());
        let record = Record {
            credentials_published: true,
            cluster: Some(ctx.cluster.clone()),
            account: record.account.clone().or(seen_in_account),
            ..record
        };
        records::change(ctx, stored, record).await?;
        let Some(ends_at) = previous_ends_at else { return Ok(()) };
        ctx.memory.entry(&self.claim.id, |m| m.keep_pending_key(None));
        self.report_move(ends_at).await
    }

    async fn write_config_map(&mut self) -> Result<(), Error> {
        let id = &self.claim.id;
        let record = &self.stored()?.record;
        let extra = self.output_metadata(self.config_map.existing().map(|config_map| config_map.meta()));
        let config_map = output_data::config_map((&self.ctx.label, &extra), record);
        let written = outputs::write(
            &self.ctx.config_maps_in(&id.namespace),
            &self.ctx.field_manager,
            &self.config_map,
            &config_map,
            id,
        )
        .await?;
        self.remove_previous_entries().await?;
        if written.is_some() && self.stored()?.bound() {
            self.ctx.memory.entry(id, |m| m.upkeep.repaired());
        }
        // The ConfigMap that was just overwritten was the last trace of that bucket.
        let unfinished = match &self.config_map {
            Current::Owned(config_map) => legacy::unfinished_bucket(config_map),
            Current::Absent | Current::Restored(_) => None,
        };
        if let Some(bucket) = unfinished.filter(|bucket| *bucket != record.plan.bucket) {
            events::left_in_place(self.ctx, id, &legacy::unfinished_note(bucket)).await;
        }
        Ok(())
    }

    async fn link_record(&mut self) -> Result<(), Error> {
        let stored = self.stored()?.clone();
        claims::link_record(self.ctx, &mut self.claim, &stored).await
    }

    /// Reports that the claim is bound.
    pub(super) async fn update_status(&mut self) -> Result<(), Error> {
        let stored = self.stored()?;
        let other_conditions =
            in_sync::other_conditions(self.ctx, &self.claim, self.claim.spec()?, stored, &self.notes);
        let plan = &stored.record.plan;
        let account = plan.service_account.as_ref().map(|account| account.name.as_str());
        let report = Report::bound(&plan.bucket, account, other_conditions);
        status::update_status(self.ctx, &self.claim, &report).await
    }

    fn succeeded(&self) -> Next {
        let memory = &self.ctx.memory;
        memory.get(&self.claim.id, ClaimMemory::succeeded);
        if let Ok(stored) = self.stored()
            && self.claim.generation.is_some()
            && self.claim.has_whole_settings()
            && self.edit(stored).is_none()
        {
            memory.entry(&self.claim.id, |m| m.upkeep.settled(in_sync::settled(&self.claim, stored)));
        }
        // From now on, only another value of the annotation is a new request.
        memory.entry(&self.claim.id, |m| m.upkeep.take_retry_request(self.claim.retry_request.as_deref()));
        Next::Done
    }
}
