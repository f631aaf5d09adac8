//! The claim's keys: having the store issue them, writing them into the claim's Secret, and trying them.

use k8s_openapi::jiff::Timestamp;
use kube::Resource as _;

use super::attempt::Attempt;
use crate::decide::backoff::{MAX_DENIED, MAX_PROBES};
use crate::decide::keys::{self, KeyNotes};
use crate::decide::plan::RecordState;
use crate::decide::report::{Report, Severity};
use crate::decide::steps::{Keys, Verb};
use crate::decide::{output_data, store_outputs};
use crate::error::Error;
use crate::objects::outputs::{self, Current};
use crate::objects::tokens::{self, Token};
use crate::objects::{claims, events, records, status};
use crate::reasons;
use crate::reconcile::next::Next;
use crate::reconcile::owner;
use crate::state::memory::ClaimMemory;
use crate::state::stores;
use crate::store::{self, AppCredentials, CreateError, Probe, ProbeCall, Provisioner};

impl<P: Provisioner> Attempt<'_, P> {
    /// Has the store create what is recorded, and issue keys.
    pub(super) async fn execute(&mut self, verb: Verb) -> Result<(), Error> {
        // Keys that may still be in use are replaced.
        match self.stored()?.bound() {
            true => self.owner_for_removal().await?,
            false => self.owner().await?,
        };
        let Some(owner) = &self.owner else {
            return Err(Error::OutOfStep("the provisioning credentials are not read yet"));
        };
        let (ctx, stored) = (self.ctx, self.stored()?);
        let record = &stored.record;
        if record.plan.user.is_some() {
            self.try_secret().await?;
        }
        if !stored.bound()
            && let Some(from) = &record.plan.shared_from
        {
            // After the record is written: whoever deletes the bucket finds the record, or this finds that it is deleted.
            claims::stays(ctx, &record.claim.namespace, from).await?;
        }
        let before = ctx.memory.entry(&record.claim, ClaimMemory::executes);
        let call = owner.call(record);
        let answer = match verb {
            Verb::Provision => {
                ctx.call_store_to_create(record, Box::pin(store::provision(ctx.provisioner.as_ref(), &call))).await
            }
            Verb::Grant => ctx.call_store_to_create(record, Box::pin(ctx.provisioner.grant(&call))).await,
        };
        // What was not created need not be searched for when the claim is deleted.
        ctx.memory.entry(&record.claim, |m| match &answer {
            Err(CreateError::Refused(_)) => m.executed_only(before),
            Err(CreateError::Failed(_)) | Ok(_) => drop(m.executes()),
        });
        let mut credentials = match answer {
            Ok(credentials) => credentials,
            Err(CreateError::Refused(failure)) => {
                if matches!(self.record_state, RecordState::Stored { is_new: true, .. }) {
                    // Nothing was created. Without a record, the claim can be deleted without a call to a store that
                    // may never answer.
                    records::delete(ctx, &stored.name, stored.uid.as_deref()).await?;
                }
                return Err(failure);
            }
            Err(CreateError::Failed(failure)) => return Err(failure),
        };
        if stored.bound() {
            ctx.memory.entry(&record.claim, |m| m.upkeep.keys_replaced());
        }
        // The store has deleted all other keys, and with them a pending key.
        ctx.memory.entry(&record.claim, |m| m.keep_pending_key(None));
        // Some stores name the account only in answers about what they created. A failure is ignored, so that the new
        // keys are not lost.
        let account = ctx.provisioner.account(&call).await.ok().flatten();
        let refused = store_outputs::take_out_refused(&mut credentials.outputs, &record.plan);
        // Shared keys are written with every attempt, until they work.
        if let Some(note) = refused.filter(|_| !self.holds_shared_keys()) {
            self.report_refused_outputs(&note).await;
        }
        self.seen_in_account = account;
        self.keys = match self.stored()?.record.is_moving() {
            // It replaces access that works.
            true => {
                ctx.memory.entry(&self.claim.id, |m| m.keep_pending_key(Some(credentials.clone())));
                Keys::Pending { keys: credentials, proven: false }
            }
            false => Keys::Issued(credentials),
        };
        Ok(())
    }

    /// Requires that the claim's Secret can be written, as far as a dry run shows: keys that cannot be published must
    /// not be issued, and must not replace others.
    pub(super) async fn try_secret(&self) -> Result<(), Error> {
        let (ctx, id) = (self.ctx, &self.claim.id);
        let extra = self.output_metadata(self.secret.existing().map(|secret| secret.meta()));
        let plan = &self.stored()?.record.plan;
        let (secrets, sample) =
            (ctx.secrets_in(&id.namespace), output_data::sample_secret(id, plan, &ctx.label, &extra));
        match &self.secret {
            _ if self.writable => Ok(()),
            Current::Absent => outputs::try_create(&secrets, &ctx.field_manager, &sample).await.map(drop),
            Current::Owned(found) | Current::Restored(found) => {
                outputs::try_patch(&secrets, &ctx.field_manager, found, &sample).await
            }
        }
    }

    /// Whether the claim's apps have access without keys.
    fn is_keyless(&self) -> Result<bool, Error> {
        Ok(self.stored()?.record.plan.service_account.is_some())
    }

    /// Whether the claim's Secret already contains the present provisioning keys.
    fn holds_shared_keys(&self) -> bool {
        let version = self.owner.as_ref().and_then(|owner| owner.version.as_ref());
        self.secret.existing().is_some() && version.is_some() && self.notes.shared_from.as_ref() == version
    }

    /// Reports which entries for new keys the claim's Secret lacks.
    pub(super) async fn report_refused_outputs(&self, note: &str) {
        tracing::warn!(reason = reasons::INVALID_OUTPUT, "{note}");
        events::event(self.ctx, &self.claim.id, Severity::Warning, reasons::INVALID_OUTPUT, note).await;
    }

    /// Writes the keys into the claim's Secret, with the notes on them.
    pub(super) async fn write_secret(&mut self) -> Result<(), Error> {
        let (ctx, id) = (self.ctx, self.claim.id.clone());
        let shares = self.stored()?.record.plan.user.is_none();
        let notes = self.notes_on_keys(shares)?;
        let extra = self.output_metadata(self.secret.existing().map(|secret| secret.meta()));
        let secret = output_data::secret(&id, (&ctx.label, &extra), self.credentials()?, &notes);
        let written =
            outputs::write(&ctx.secrets_in(&id.namespace), &ctx.field_manager, &self.secret, &secret, &id).await?;
        match &self.keys {
            Keys::Pending { .. } => ctx.memory.entry(&id, |m| m.upkeep.keys_replaced()),
            Keys::Issued(_) => ctx.memory.entry(&id, |m| m.waits.keys_replaced()),
            Keys::InSecret { .. } | Keys::None => {}
        }
        // Only once, because shared keys are written with every attempt.
        if shares && matches!(self.secret, Current::Absent) {
            let note = "createBucketUser of the StorageClass is \"no\", so the claim's Secret contains the provisioning credentials";
            events::event(ctx, &id, Severity::Warning, reasons::OWNER_CREDENTIALS_SHARED, note).await;
        }
        match (&self.keys, &notes.retiring) {
            (Keys::Pending { .. }, Some(previous)) => self.pending_key_published(previous).await,
            (Keys::Issued(_), _) if self.is_keyless()? && self.stored()?.bound() => self.report_restored().await,
            (Keys::Issued(_), _) if self.is_keyless()? => {}
            // An app may have the previous keys, which the store has deleted.
            (Keys::Issued(_), _) if !shares && self.stored()?.bound() => self.report_replacement().await,
            _ => {}
        }
        self.notes = notes;
        self.keys = std::mem::replace(&mut self.keys, Keys::None).written();
        if let Some(written) = written {
            self.secret = Current::Owned(written);
        }
        Ok(())
    }

    /// The access of a bound claim without keys was granted again.
    async fn report_restored(&self) {
        let note = "the access of the claim's ServiceAccount was missing at the store; it was restored";
        tracing::warn!(reason = reasons::REPAIRED, "{note}");
        events::event(self.ctx, &self.claim.id, Severity::Warning, reasons::REPAIRED, note).await;
    }

    /// The keys of a bound claim were replaced without a grace period.
    async fn report_replacement(&self) {
        let note = "the claim's Secret was missing (as after a deletion that was undone) or changed, or its keys did not work: \
                    it contains new keys, and the previous ones are deleted; restart the apps when the claim is Ready";
        tracing::info!(reason = reasons::KEYS_ROTATED, "{note}");
        events::event(self.ctx, &self.claim.id, Severity::Normal, reasons::KEYS_ROTATED, note).await;
    }

    /// The notes on the keys that are about to be written.
    fn notes_on_keys(&self, shares: bool) -> Result<KeyNotes, Error> {
        if self.is_keyless()? {
            return Ok(KeyNotes::default());
        }
        let (now, request) = (Timestamp::now(), self.claim.rotate_request.as_deref());
        Ok(match &self.keys {
            Keys::Pending { .. } => {
                let previous = self.present_keys().ok_or(Error::OutOfStep("there are no keys to replace"))?;
                keys::succeed(previous.access_key_id, &self.stored()?.record.plan, now, request)
            }
            Keys::Issued(_) => {
                let version = self.owner.as_ref().and_then(|owner| owner.version.clone()).filter(|_| shares);
                let notes = KeyNotes::new(now, request, version);
                match self.continues && !shares {
                    true => notes.with_review(now, self.lag(), &mut rand::rng()),
                    false => notes,
                }
            }
            Keys::InSecret { .. } | Keys::None => self.notes.clone(),
        })
    }

    /// The keys in the claim's Secret as it was read.
    fn present_keys(&self) -> Option<AppCredentials> {
        self.secret.existing().and_then(output_data::credentials)
    }

    /// Writes other notes, and keeps the keys in the Secret.
    pub(super) async fn write_notes(&mut self, notes: KeyNotes) -> Result<(), Error> {
        let id = &self.claim.id;
        let extra = self.output_metadata(self.secret.existing().map(|secret| secret.meta()));
        let secret = output_data::secret(id, (&self.ctx.label, &extra), self.credentials()?, &notes);
        if let Some(written) =
            outputs::write(&self.ctx.secrets_in(&id.namespace), &self.ctx.field_manager, &self.secret, &secret, id)
                .await?
        {
            self.secret = Current::Owned(written);
        }
        self.notes = notes;
        self.progress.status_written = false;
        Ok(())
    }

    /// Tries the keys once, or the access of the claim's ServiceAccount, because bound means usable. `Some`: try them again
    /// later.
    pub(super) async fn probe(&mut self) -> Result<Option<Next>, Error> {
        if self.stored()?.record.plan.is_tried_with_owner() {
            self.owner().await?;
        }
        let (ctx, record) = (self.ctx, &self.stored()?.record);
        let token = match tokens::request(ctx, record).await? {
            Some(Token::Denied(answer)) if record.is_moving() => {
                return Err(Error::NotTried { answer: answer.to_string() });
            }
            Some(Token::Denied(answer)) => {
                let note = format!(
                    "the access of the claim's ServiceAccount was not tried, because the operator may not request a token of it: {answer}"
                );
                tracing::warn!(reason = reasons::NOT_TRIED, "{note}");
                events::event(ctx, &self.claim.id, Severity::Warning, reasons::NOT_TRIED, &note).await;
                self.keys.set_proven(true);
                return Ok(None);
            }
            Some(Token::Issued(token)) => Some(token),
            None => None,
        };
        let parameters = owner::parameters::<P>(record)?;
        let is_settled = ctx.memory.get(&self.claim.id, |m| m.waits.refused_for()) >= MAX_DENIED;
        let call = ProbeCall::new(record, &parameters, self.credentials()?).with_token(token.as_ref());
        let owner = self.owner.as_ref().filter(|_| record.plan.is_tried_with_owner());
        let call = call.with_settled(is_settled).with_owner(owner.map(|owner| &owner.credentials));
        let answer = ctx.call_store(record, Box::pin(ctx.provisioner.probe(&call))).await?;
        let (refused, denied) = match answer {
            Probe::Usable => {
                let refused_for = ctx.memory.entry(&self.claim.id, |m| m.waits.keys_work());
                if !refused_for.is_zero() {
                    ctx.propagation.learn(&stores::store_of(record), refused_for);
                }
                self.keys.set_proven(true);
                return Ok(None);
            }
            Probe::NotYet(refused) => (refused, false),
            Probe::Denied(refused) => (refused, true),
        };
        let is_moving = record.is_moving();
        if std::mem::take(&mut self.must_reprobe_keys) {
            self.keys = Keys::None;
            return Ok(None);
        }
        let wait = ctx.memory.entry(&self.claim.id, |m| m.waits.keys_refused());
        if let Keys::Pending { keys, .. } = &self.keys
            && !is_moving
        {
            return self.pending_key_refused(keys.clone(), refused, denied, wait).await.map(Some);
        }
        if ctx.memory.get(&self.claim.id, |m| m.waits.probes()) > 2 * MAX_PROBES || denied && is_settled {
            return Err(Error::CredentialsUnusable { answer: refused, remedy: P::KEYS_REFUSED_REMEDY });
        }
        if is_moving {
            // Its apps have the previous access. Perhaps somebody has deleted what was granted.
            if ctx.memory.get(&self.claim.id, |m| m.waits.probes()) > MAX_PROBES {
                ctx.memory.entry(&self.claim.id, |m| m.keep_pending_key(None));
            }
            return Ok(Some(Next::After(wait)));
        }
        let report = Report::waiting_for_credentials(&self.claim, &refused);
        status::update_status(ctx, &self.claim, &report).await?;
        Ok(Some(Next::After(wait)))
    }
}
