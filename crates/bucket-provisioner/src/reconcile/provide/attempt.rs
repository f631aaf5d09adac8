//! The state of one attempt to provide a claim's bucket. The steps are in `provide`, `credentials` and `upkeep`.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::jiff::Timestamp;
use kube::Resource as _;
use kube::api::ObjectMeta;

use crate::api::wire;
use crate::decide::claim::{self, Claim};
use crate::decide::edit::{self, Edit};
use crate::decide::keys::KeyNotes;
use crate::decide::output_data::{self, PreviousOwner};
use crate::decide::output_metadata::OutputMetadata;
use crate::decide::plan::RecordState;
use crate::decide::record::Stored;
use crate::decide::report;
use crate::decide::steps::{self, Keys, KeysFound, Progress, ProvisionState, Upkeep};
use crate::error::Error;
use crate::objects::outputs::{self, Current};
use crate::objects::{claims, crds};
use crate::reconcile::owner::{self, Owner};
use crate::reconcile::takeover;
use crate::state::context::Context;
use crate::store::{AppCredentials, Plan, Provisioner, Record};

pub(super) struct Attempt<'a, P: Provisioner> {
    pub(super) ctx: &'a Context<P>,
    pub(super) claim: Claim,
    pub(super) record_state: RecordState,
    pub(super) owner: Option<Owner<P>>,
    pub(super) secret: Current<Secret>,
    pub(super) config_map: Current<ConfigMap>,
    pub(super) notes: KeyNotes,
    pub(super) keys: Keys<AppCredentials>,
    pub(super) progress: Progress,
    pub(super) upkeep: Upkeep,
    /// The store does not show keys that worked before: if it refuses them now, they are replaced.
    pub(super) must_reprobe_keys: bool,
    /// An earlier attempt may have created something, perhaps a key that is lost and that IAM does not show yet.
    pub(super) continues: bool,
    /// A dry run has shown that the claim's Secret can be written.
    pub(super) writable: bool,
    /// The account in which the recorded bucket and user were seen.
    pub(super) seen_in_account: Option<String>,
    /// What an edit of settings changes, for an event when the store has applied it.
    pub(super) edit_note: Option<String>,
    /// Why an admin's annotation does not move the claim.
    pub(super) not_moved: Option<String>,
}

impl<'a, P: Provisioner> Attempt<'a, P> {
    /// Reads everything before the first write, so that nothing is started that cannot be finished: foreign outputs of
    /// the claim's name and unusable credentials are found now.
    pub(super) async fn begin(
        ctx: &'a Context<P>,
        claim: Claim,
        name: String,
        record: Box<Record>,
    ) -> Result<Self, Error> {
        let config_maps = ctx.config_maps_in(&claim.id.namespace);
        let (owner, (secret, writable), config_map) = tokio::try_join!(
            owner::of_record(ctx, &record),
            try_new_secret(ctx, &claim, &record.plan),
            outputs::read(&config_maps, &claim.id, None),
        )?;
        let record = Box::new(Record { account: owner.account.clone(), ..*record });
        let record_state = RecordState::Planned { name, record };
        Ok(Self { writable, ..Self::new(ctx, claim, record_state, (secret, config_map), Some(owner)) })
    }

    /// Reads the progress of earlier attempts.
    pub(super) async fn resume(ctx: &'a Context<P>, claim: Claim, stored: Stored) -> Result<Self, Error> {
        let previous_owner = PreviousOwner::of(&stored.record, stored.is_being_adopted(), &ctx.label);
        let outputs = read_outputs(ctx, &claim, previous_owner).await?;
        if let Some(bucket) = claim::edited_record(&claim, &stored.record, output_data::bucket(outputs.1.existing())) {
            let recorded = stored.record.plan.bucket;
            return Err(Error::BucketConflict { record: stored.name, recorded, bucket });
        }
        let record_state = RecordState::Stored { stored: Box::new(stored), is_new: false };
        Ok(Self::new(ctx, claim, record_state, outputs, None))
    }

    pub(super) fn new(
        ctx: &'a Context<P>,
        claim: Claim,
        record_state: RecordState,
        (secret, config_map): (Current<Secret>, Current<ConfigMap>),
        owner: Option<Owner<P>>,
    ) -> Self {
        let notes = secret.existing().map(|secret| KeyNotes::read(secret.metadata.annotations.as_ref()));
        let notes = notes.unwrap_or_default().clamp(Some(&record_state.record().plan), Timestamp::now());
        Self {
            ctx,
            claim,
            record_state,
            owner,
            secret,
            config_map,
            notes,
            keys: Keys::None,
            progress: Progress::default(),
            upkeep: Upkeep::Nothing,
            must_reprobe_keys: false,
            continues: false,
            writable: false,
            seen_in_account: None,
            edit_note: None,
            not_moved: None,
        }
    }

    /// Derives the progress of earlier attempts from record and outputs.
    pub(super) fn continue_from_outputs(&mut self) -> Result<(), Error> {
        self.continues = true;
        self.keys = self.keys_so_far()?;
        if let Ok(AppCredentials { access_key_id, .. }) = self.credentials() {
            // While the claim waited for that.
            if self.ctx.memory.get(&self.claim.id, |m| m.waits.takes_as_working(access_key_id)) {
                self.keys.set_proven(true);
            }
        }
        let stored = self.stored()?;
        if takeover::leaves_published(stored, self.status_is_ready(stored), &self.config_map) {
            self.progress.leave_published();
        }
        Ok(())
    }

    fn keys_so_far(&self) -> Result<Keys<AppCredentials>, Error> {
        let (ctx, stored) = (self.ctx, self.stored()?);
        let plan = &stored.record.plan;
        let pending_key = ctx.memory.get(&self.claim.id, |m| m.upkeep.pending_key());
        if stored.record.is_moving() {
            // What the Secret contains is the previous access.
            return Ok(pending_key.map_or(Keys::None, |keys| Keys::Pending { keys, proven: false }));
        }
        let is_keyless = plan.service_account.is_some();
        let Some(secret) = self.secret.existing() else {
            // The access of a ServiceAccount does not need the Secret; pods refer to it.
            let ready = stored.bound() && self.status_is_ready(stored);
            let missing = Keys::InSecret { keys: AppCredentials::without_keys(), up_to_date: false, proven: ready };
            return Ok(if is_keyless && stored.bound() { missing } else { Keys::None });
        };
        let present = output_data::credentials_by(plan, secret);
        let inherited = matches!(self.secret, Current::Restored(_));
        // Keys that somebody else wrote into the Secret were not issued by the store. Restored ones are tried.
        let is_unedited = match is_keyless {
            true => stored.bound() || ctx.field_manager.has_written(&secret.metadata),
            false => ctx.field_manager.wrote(&secret.metadata, &wire::secret::ALL),
        };
        let written = inherited || !stored.by_us() || is_unedited;
        // Shared keys are copied from the provisioning Secret until they work, and whenever that Secret changes.
        let own = plan.user.is_some();
        let shared = own || stored.bound() && ctx.shares_present_keys(&stored.record, &self.notes);
        let extra = self.output_metadata(Some(secret.meta()));
        let label = (ctx.label.as_str(), &extra);
        let wanted = present.as_ref().map(|keys| output_data::secret(&self.claim.id, label, keys, &self.notes));
        Ok(steps::keys_so_far(KeysFound {
            in_secret: present.filter(|_| written),
            up_to_date: !inherited && wanted.is_some_and(|wanted| output_data::difference(secret, &wanted).is_none()),
            outdated: !shared,
            pending_key,
            bound: stored.bound(),
            ready: self.status_is_ready(stored),
        }))
    }

    /// The labels and annotations that the claim asks for on an output. What the Go provisioner wrote is not changed.
    pub(super) fn output_metadata(&self, found: Option<&ObjectMeta>) -> OutputMetadata {
        match self.stored() {
            Ok(stored) if !stored.by_us() => OutputMetadata::default(),
            _ => OutputMetadata::of_bound(self.claim.config(), found),
        }
    }

    /// Whether the claim's status is Ready.
    pub(super) fn status_is_ready(&self, stored: &Stored) -> bool {
        report::status_is_ready(&self.claim, self.ctx.condition_support(stored.author))
    }

    /// The input for the next decision.
    pub(super) fn state(&self) -> ProvisionState {
        let stored = self.stored().ok();
        let is_predecessors = matches!(self.record_state, RecordState::Predecessor { .. });
        ProvisionState {
            finalizer_cached: claims::has_finalizer_and_name(self.ctx, &self.claim, self.record_state.record()),
            recorded: stored.is_some(),
            credentials_published: stored.is_some_and(Stored::bound),
            record_complete: stored.is_some_and(|stored| self.is_complete(stored)),
            record_status_is_bound: stored.is_some_and(|stored| stored.status_is_bound),
            adopting: stored.map_or(is_predecessors, Stored::is_being_adopted),
            moving: self.record_state.record().is_moving(),
            mode: self.record_state.record().plan.mode,
            edited: stored.is_some_and(|stored| self.edit(stored).is_some()),
            keys: self.keys.location(),
            progress: self.progress,
            upkeep: self.upkeep,
        }
    }

    /// What a bound claim asks for that is not recorded.
    pub(super) fn edit(&self, stored: &Stored) -> Option<Edit> {
        let is_applied = stored.bound() && stored.by_us();
        let creator = self.ctx.renamed_creator(&stored.record);
        edit::of(&self.claim, &stored.record, self.ctx.rules, creator).filter(|_| is_applied)
    }

    /// Whether the record holds everything that is known. Records of the Go provisioner are not changed.
    fn is_complete(&self, stored: &Stored) -> bool {
        let Record { cluster, account, credentials_published, .. } = &stored.record;
        let learnt_account = account.is_none() && self.seen_in_account.is_some();
        let lacks_claim_ref = self.ctx.caches.records.lacks_claim_ref(stored);
        !stored.by_us()
            || *credentials_published
                && !stored.record.is_moving()
                && cluster.is_some()
                && !learnt_account
                && !lacks_claim_ref
    }

    /// For how long the store may not show a change.
    pub(super) fn lag(&self) -> Duration {
        self.ctx.provisioner.consistency_lag(self.record_state.record())
    }

    pub(super) fn stored(&self) -> Result<&Stored, Error> {
        match &self.record_state {
            RecordState::Stored { stored, .. } => Ok(stored),
            _ => Err(NOT_WRITTEN),
        }
    }

    pub(super) fn stored_mut(&mut self) -> Result<&mut Stored, Error> {
        match &mut self.record_state {
            RecordState::Stored { stored, .. } => Ok(stored),
            _ => Err(NOT_WRITTEN),
        }
    }

    /// The keys that the claim's apps have, or will have.
    pub(super) fn credentials(&self) -> Result<&AppCredentials, Error> {
        match &self.keys {
            Keys::None => Err(Error::OutOfStep("there are no keys yet")),
            Keys::Issued(keys) | Keys::Pending { keys, .. } | Keys::InSecret { keys, .. } => Ok(keys),
        }
    }

    /// The provisioning credentials, read when they are first needed.
    pub(super) async fn owner(&mut self) -> Result<&Owner<P>, Error> {
        if self.owner.is_none() {
            self.owner = Some(owner::of_record(self.ctx, self.record_state.record()).await?);
        }
        self.owner.as_ref().ok_or(Error::OutOfStep("the provisioning credentials are not read yet"))
    }

    /// The same for what deletes something at the store, such as keys.
    pub(super) async fn owner_for_removal(&mut self) -> Result<&Owner<P>, Error> {
        crds::may_remove(self.ctx).await?;
        self.owner().await
    }
}

/// The Secret of a new claim, and whether a dry run has shown that it can be written: that costs no more than a look.
async fn try_new_secret<P>(ctx: &Context<P>, claim: &Claim, plan: &Plan) -> Result<(Current<Secret>, bool), Error> {
    let secrets = ctx.secrets_in(&claim.id.namespace);
    let extra = OutputMetadata::of_bound(claim.config(), None);
    let sample = output_data::sample_secret(&claim.id, plan, &ctx.label, &extra);
    match outputs::try_create(&secrets, &ctx.field_manager, &sample).await? {
        Some(absent) => Ok((absent, true)),
        None => Ok((outputs::read(&secrets, &claim.id, None).await?, false)),
    }
}

const NOT_WRITTEN: Error = Error::OutOfStep("the ObjectBucket is not written yet");

pub(super) async fn read_outputs<P>(
    ctx: &Context<P>,
    claim: &Claim,
    previous_owner: Option<PreviousOwner<'_>>,
) -> Result<(Current<Secret>, Current<ConfigMap>), Error> {
    let (secrets, config_maps) = (ctx.secrets_in(&claim.id.namespace), ctx.config_maps_in(&claim.id.namespace));
    tokio::try_join!(
        outputs::read(&secrets, &claim.id, previous_owner),
        outputs::read(&config_maps, &claim.id, previous_owner)
    )
}
