//! From a claim to a usable bucket, and what keeps a bound one usable: looks, then takes the steps that
//! `steps.rs` gives, one after the other. The upkeep is in `upkeep.rs`.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::jiff::Timestamp;

use super::claim::{self, Claim};
use super::context::{self, Context};
use super::decide::legacy;
use super::decide::record::{Author, Stored};
use super::error::{self, Error};
use super::flow::{adoption, find};
use super::keys::{self, KeyNotes};
use super::objects::record;
use super::outputs::{self, Current, Heir};
use super::plan::{self, Intent, Surroundings};
use super::reconcile::Next;
use super::report::{self, Report, Severity};
use super::resolve::{self, ClassLookup, Owner};
use super::steps::{self, Keys, KeysFound, Make, Making, Recorded, Upkeep, Verb};
use super::{mark, teardown};
use crate::api::wire;
use crate::provisioner::{AppCredentials, Failure as _, Probe, Provisioner, Record};

/// How often credentials may be refused in a row before they are replaced by new ones: some one and a half
/// minutes, ten times what AWS takes to spread a key. When the new ones were refused as often, it is not the keys:
/// somebody must mend something. Others are made after every so many tries all the same, which is once an hour
/// then: something else may have deleted them.
pub(super) const MAX_PROBES: u32 = 12;

/// Whether credentials that were refused this often are to be replaced.
fn are_outdated(refused: u32) -> bool {
    refused == MAX_PROBES || refused > 2 * MAX_PROBES && refused.is_multiple_of(MAX_PROBES)
}

/// One attempt: what was seen, and what was done since.
pub(super) struct Attempt<'a, P: Provisioner> {
    pub(super) ctx: &'a Context<P>,
    pub(super) claim: Claim,
    log: Log,
    owner: Option<Owner<P::Owner>>,
    secret: Current<Secret>,
    config_map: Current<ConfigMap>,
    pub(super) notes: KeyNotes,
    pub(super) keys: Keys<AppCredentials>,
    held: bool,
    published: bool,
    named: bool,
    told: bool,
    pub(super) upkeep: Upkeep,
    /// The store does not know the keys that were seen to work: if they are refused now, they are replaced.
    pub(super) doubted: bool,
    /// An earlier attempt may have made something, also a key that was lost and that IAM does not show yet.
    takes_up: bool,
    /// The account in which the store was seen to have what is recorded.
    pub(super) seen_in_account: Option<String>,
}

/// The record, the write-ahead log of the claim.
enum Log {
    /// To be written, under this name.
    Planned { name: String, record: Box<Record> },
    /// As it stands for a former claim, and as it is to be for this one.
    Former { stored: Box<Stored>, record: Box<Record> },
    /// As it stands. `is_new`: written in this attempt, so that nothing can have been made for it before.
    Stored { stored: Box<Stored>, is_new: bool },
}

impl Log {
    fn record(&self) -> &Record {
        match self {
            Self::Planned { record, .. } | Self::Former { record, .. } => record,
            Self::Stored { stored, .. } => &stored.record,
        }
    }
}

/// Makes the bucket and hands it over, restores what is missing of it, or does the upkeep that is due.
///
/// # Errors
/// Whatever stands in the way; what was done so far is taken up again by the next attempt.
pub(crate) async fn provide<P: Provisioner>(
    ctx: &Context<P>,
    claim: Claim,
    class: &ClassLookup,
) -> Result<Next, Error> {
    let complete = |stored| legacy::complete(&ctx.provisioner, &ctx.options.provisioner_name, class, &claim, stored);
    let surroundings = Surroundings {
        provisioner: &ctx.provisioner,
        provisioner_name: &ctx.options.provisioner_name,
        cluster: &ctx.cluster,
        class,
    };
    let found = find::record(ctx, &claim).await?;
    let mut attempt = match plan::intent(&surroundings, &claim, found)? {
        Intent::Record { name, record } => Attempt::begin(ctx, claim, name, record).await?,
        Intent::Proceed(stored) => {
            let stored = complete(*stored)?;
            Attempt::resume(ctx, claim, stored).await?
        }
        Intent::UndoFirst(stored) => return teardown::undo_first(ctx, &claim, complete(*stored)?).await,
        Intent::Adopt(stored) => Attempt::adopt(ctx, claim, stored).await?,
        Intent::Restore { object, record, error } => {
            let stored = adoption::restore(ctx, &claim, &object, *record, error).await?;
            Attempt::resume(ctx, claim, stored).await?
        }
        Intent::Recover { name, record, problem } => {
            let record = adoption::recover(ctx, &claim, *record, problem).await?;
            Attempt::begin(ctx, claim, name, Box::new(record)).await?
        }
    };
    loop {
        match steps::make(&attempt.seen()) {
            Make::TakeOn => attempt.take_on().await?,
            Make::Record => attempt.record().await?,
            Make::Adopt => attempt.take_record_over().await?,
            Make::Execute(verb) => {
                if let Some(wait) = attempt.put_off_replacement() {
                    return Ok(Next::After(wait));
                }
                attempt.execute(verb).await?;
            }
            Make::HandKeys => attempt.hand_keys().await?,
            Make::Probe => {
                if let Tried::Wait(next) = attempt.probe().await? {
                    return Ok(next);
                }
            }
            Make::MarkHandedOver => attempt.mark_handed_over().await?,
            Make::Publish => attempt.publish().await?,
            Make::MarkBound => attempt.mark_bound().await?,
            Make::Name => attempt.name().await?,
            Make::Tell => attempt.tell().await?,
            Make::FinishAdoption => attempt.finish_adoption().await?,
            Make::Rotate => attempt.rotate().await?,
            Make::Retire => attempt.retire().await?,
            Make::Check => attempt.check().await?,
            Make::Rest => {
                ctx.memory.succeeded(&attempt.claim.id);
                // From now on another value asks for something.
                ctx.memory.asks_again(&attempt.claim.id, attempt.claim.retry_request.as_deref());
                return Ok(Next::Rest);
            }
        }
    }
}

/// What follows a try of the keys.
pub(super) enum Tried {
    /// The next step.
    GoOn,
    /// A wait.
    Wait(Next),
}

impl<'a, P: Provisioner> Attempt<'a, P> {
    /// Looks around before the first write. Nothing is begun that cannot be finished: outputs of others that
    /// are in the way and credentials that cannot be used are found now.
    async fn begin(ctx: &'a Context<P>, claim: Claim, name: String, record: Box<Record>) -> Result<Self, Error> {
        let (owner, outputs) = tokio::try_join!(resolve::owner(ctx, &record), read_outputs(ctx, &claim, None))?;
        let record = Box::new(Record { account: owner.account.clone(), ..*record });
        let mut attempt = Self::new(ctx, claim, Log::Planned { name, record }, outputs);
        attempt.owner = Some(owner);
        Ok(attempt)
    }

    /// The same for a claim that is to take over the record of a former one.
    async fn adopt(ctx: &'a Context<P>, claim: Claim, stored: Box<Stored>) -> Result<Self, Error> {
        let record = Box::new(plan::adopted(&stored.record, &claim, &ctx.cluster));
        let heir = Heir::of(&record, true, &ctx.label);
        let (owner, outputs) = tokio::try_join!(resolve::owner(ctx, &record), read_outputs(ctx, &claim, heir))?;
        let mut attempt = Self::new(ctx, claim, Log::Former { stored, record }, outputs);
        attempt.owner = Some(owner);
        Ok(attempt)
    }

    /// Looks at how far an earlier attempt came.
    async fn resume(ctx: &'a Context<P>, claim: Claim, stored: Stored) -> Result<Self, Error> {
        let heir = Heir::of(&stored.record, stored.is_being_adopted(), &ctx.label);
        let outputs = read_outputs(ctx, &claim, heir).await?;
        let log = Log::Stored { stored: Box::new(stored), is_new: false };
        let mut attempt = Self::new(ctx, claim, log, outputs);
        attempt.look()?;
        Ok(attempt)
    }

    /// What follows from the record and the outputs that were found.
    fn look(&mut self) -> Result<(), Error> {
        self.takes_up = true;
        self.keys = self.keys_so_far()?;
        self.upkeep = steps::upkeep_left(self.upkeep_due()?, &self.keys.whereabouts());
        let stored = self.stored()?;
        // What the Go provisioner handed over stays as it is.
        let hands_off = stored.author == Author::GoProvisioner
            && !stored.is_being_adopted()
            && report::says_ready(&self.claim, report::keeps(self.ctx, stored.author))
            && matches!(self.config_map, Current::Mine(_));
        if hands_off {
            (self.published, self.named, self.told) = (true, true, true);
        }
        Ok(())
    }

    fn new(
        ctx: &'a Context<P>,
        claim: Claim,
        log: Log,
        (secret, config_map): (Current<Secret>, Current<ConfigMap>),
    ) -> Self {
        let notes = secret.existing().map(|secret| KeyNotes::read(secret.metadata.annotations.as_ref()));
        let notes = notes.unwrap_or_default().believed(&log.record().plan.rotation, Timestamp::now());
        Self {
            ctx,
            claim,
            log,
            owner: None,
            secret,
            config_map,
            notes,
            keys: Keys::None,
            held: false,
            published: false,
            named: false,
            told: false,
            upkeep: Upkeep::Nothing,
            doubted: false,
            takes_up: false,
            seen_in_account: None,
        }
    }

    fn keys_so_far(&self) -> Result<Keys<AppCredentials>, Error> {
        let stored = self.stored()?;
        let Some(secret) = self.secret.existing() else { return Ok(Keys::None) };
        let present = outputs::credentials(secret);
        let inherited = matches!(self.secret, Current::Inherited(_));
        // What somebody wrote into the Secret is not what the store issued. One that was restored is tried.
        let written =
            inherited || stored.author == Author::GoProvisioner || context::wrote(&secret.metadata, &wire::secret::ALL);
        // The owner's own keys are taken from the owner's Secret until they work, and when it changes: they may
        // have been mended there.
        let own = stored.record.plan.user.is_some();
        let shared = own || stored.bound() && self.ctx.shares_present_keys(&stored.record, &self.notes);
        let wanted = present.as_ref().map(|keys| outputs::secret(&self.claim.id, &self.ctx.label, keys, &self.notes));
        let successor = self.ctx.memory.successor(&self.claim.id);
        let found = KeysFound {
            in_secret: present.is_some() && written,
            stands: !inherited && wanted.is_some_and(|wanted| outputs::stands(secret, &wanted)),
            outdated: !shared,
            refused: are_outdated(self.ctx.memory.probes(&self.claim.id)),
            new: self.notes.is_new(Timestamp::now()),
            succeeded: successor.is_some(),
            bound: stored.bound(),
            ready: report::says_ready(&self.claim, report::keeps(self.ctx, stored.author)),
        };
        Ok(match (steps::keys_so_far(&found), present, successor) {
            (Keys::Successor { proven, .. }, _, Some(keys)) => Keys::Successor { keys, proven },
            (Keys::InSecret { stands, proven, .. }, Some(keys), _) => Keys::InSecret { keys, stands, proven },
            _ => Keys::None,
        })
    }

    /// What the next step is decided from.
    fn seen(&self) -> Making {
        let (recorded, record_complete, record_says_bound, adopting) = match &self.log {
            Log::Planned { .. } => (Recorded::No, false, false, false),
            Log::Former { .. } => (Recorded::Former, false, false, true),
            Log::Stored { stored, .. } => {
                let recorded = if stored.bound() { Recorded::HandedOver } else { Recorded::Begun };
                (recorded, self.is_complete(stored), stored.says_bound, stored.is_being_adopted())
            }
        };
        Making {
            taken_on: mark::is_taken_on(self.ctx, &self.claim, self.log.record()),
            held: self.held,
            recorded,
            record_complete,
            record_says_bound,
            adopting,
            mode: self.log.record().plan.mode,
            keys: self.keys.whereabouts(),
            published: self.published,
            named: self.named,
            told: self.told,
            upkeep: self.upkeep,
        }
    }

    /// Whether the record says all that is known by now. What the Go provisioner wrote stays as it is.
    fn is_complete(&self, stored: &Stored) -> bool {
        let Record { cluster, account, handed_over, .. } = &stored.record;
        let learnt_account = account.is_none() && self.seen_in_account.is_some();
        stored.author == Author::GoProvisioner || *handed_over && cluster.is_some() && !learnt_account
    }

    pub(super) fn stored(&self) -> Result<&Stored, Error> {
        match &self.log {
            Log::Stored { stored, .. } => Ok(stored),
            Log::Planned { .. } | Log::Former { .. } => Err(Error::OutOfStep("the record is not written yet")),
        }
    }

    /// The keys that the claim's apps have, and those that are to be theirs.
    pub(super) fn credentials(&self) -> Result<&AppCredentials, Error> {
        match &self.keys {
            Keys::None => Err(Error::OutOfStep("there are no keys yet")),
            Keys::Issued(keys) | Keys::Successor { keys, .. } | Keys::InSecret { keys, .. } => Ok(keys),
        }
    }

    /// The keys in the claim's Secret as it was read.
    pub(super) fn present_keys(&self) -> Option<AppCredentials> {
        self.secret.existing().and_then(outputs::credentials)
    }

    /// The owner's credentials, read if they are needed.
    pub(super) async fn owner(&mut self) -> Result<&Owner<P::Owner>, Error> {
        if self.owner.is_none() {
            self.owner = Some(resolve::owner(self.ctx, self.log.record()).await?);
        }
        self.owner.as_ref().ok_or(Error::OutOfStep("the owner's credentials were read"))
    }

    async fn take_on(&mut self) -> Result<(), Error> {
        mark::take_on(self.ctx, &mut self.claim, self.log.record()).await?;
        self.held = true;
        Ok(())
    }

    async fn record(&mut self) -> Result<(), Error> {
        let Log::Planned { name, record } = &self.log else {
            return Err(Error::OutOfStep("the record is written already"));
        };
        let (name, record) = (name.clone(), Record::clone(record));
        let stored = record::create(self.ctx, name, record).await?;
        // One that was lost: what it names was made and handed over before.
        let is_new = !stored.record.handed_over;
        if !is_new {
            adoption::recovered(self.ctx, &self.claim, &stored).await;
        }
        self.log = Log::Stored { stored: Box::new(stored), is_new };
        if is_new { Ok(()) } else { self.look() }
    }

    /// The record is the claim's from here on; what is left of the adoption can be finished by any later attempt.
    async fn take_record_over(&mut self) -> Result<(), Error> {
        let Log::Former { stored, record } = &self.log else {
            return Err(Error::OutOfStep("there is no record to take over"));
        };
        let (mut stored, record) = (Stored::clone(stored), Record::clone(record));
        tracing::info!(
            record = stored.name,
            former_uid = stored.record.claim.uid,
            former_cluster = stored.record.cluster,
            "taking the ObjectBucket over, as its annotation says"
        );
        record::hand_on(self.ctx, &mut stored, record).await?;
        self.log = Log::Stored { stored: Box::new(stored), is_new: false };
        self.look()
    }

    /// Keys that a bound claim lost too often in a row are made again after a wait.
    fn put_off_replacement(&self) -> Option<Duration> {
        let (ctx, id) = (self.ctx, &self.claim.id);
        let wait = ctx.memory.replacement_in(id);
        let puts_off = self.stored().is_ok_and(Stored::bound) && !wait.is_zero();
        puts_off.then(|| {
            ctx.memory.defer(id, wait);
            wait
        })
    }

    async fn execute(&mut self, verb: Verb) -> Result<(), Error> {
        self.owner().await?;
        let Some(owner) = &self.owner else { return Err(Error::OutOfStep("the owner's credentials were read")) };
        let (ctx, stored) = (self.ctx, self.stored()?);
        let record = &stored.record;
        ctx.memory.executes(&record.claim);
        let answer = match verb {
            Verb::Provision => {
                ctx.asking(record, Box::pin(ctx.provisioner.provision(record, &owner.credentials))).await
            }
            Verb::Grant => ctx.asking(record, Box::pin(ctx.provisioner.grant(record, &owner.credentials))).await,
        };
        ctx.memory.executes(&record.claim);
        let credentials = match answer {
            Ok(credentials) => credentials,
            Err(failure) => {
                if matches!(self.log, Log::Stored { is_new: true, .. }) && failure.store_untouched() {
                    // With nothing made there is nothing to undo, and the claim can be deleted without
                    // asking a store that may never answer.
                    record::delete(&ctx.records(), &stored.name, stored.uid.as_deref()).await?;
                }
                return Err(failure);
            }
        };
        if stored.bound() {
            ctx.memory.keys_replaced(&record.claim);
        }
        // Whatever was to follow the former keys has gone with them.
        ctx.memory.keep_successor(&record.claim, None);
        // A store that tells of no account otherwise may have told it with what it made. Keys that were just issued are
        // not lost for a failure of this.
        self.seen_in_account = ctx.provisioner.account(record, &owner.credentials).await.ok().flatten();
        self.keys = Keys::Issued(credentials);
        Ok(())
    }

    async fn hand_keys(&mut self) -> Result<(), Error> {
        let (id, request) = (&self.claim.id, self.claim.rotation_request.as_deref());
        let record = &self.stored()?.record;
        let shares = record.plan.user.is_none();
        let notes = match &self.keys {
            Keys::Successor { .. } => {
                let former = self.present_keys().ok_or(Error::OutOfStep("keys that work have successors"))?;
                keys::succeed(former.access_key_id, record.plan.rotation.grace, Timestamp::now(), request)
            }
            Keys::Issued(_) => {
                let (now, version) = (Timestamp::now(), self.owner.as_ref().and_then(|owner| owner.version.clone()));
                let notes = KeyNotes::new(now, request, version.filter(|_| shares));
                match self.takes_up && !shares {
                    true => notes.reviewed(now, plan::SETTLING, &mut rand::rng()),
                    false => notes,
                }
            }
            Keys::InSecret { .. } | Keys::None => self.notes.clone(),
        };
        let credentials = self.credentials()?.clone();
        let secret = outputs::secret(id, &self.ctx.label, &credentials, &notes);
        let written = outputs::write(&self.ctx.secrets_in(&id.namespace), &self.secret, &secret, id).await?;
        if matches!(self.keys, Keys::Successor { .. }) {
            self.ctx.memory.keys_replaced(id);
        }
        if matches!(self.keys, Keys::Issued(_)) {
            self.ctx.memory.replaced(id, are_outdated);
        }
        // Once, not with every attempt: the owner's keys are written anew each time.
        if shares && matches!(self.secret, Current::Absent) {
            let note =
                "createBucketUser of the StorageClass is \"no\": the claim's Secret holds the owner's own credentials";
            report::event(self.ctx, id, Severity::Warning, error::OWNER_CREDENTIALS_SHARED, note).await;
        }
        if let (Keys::Successor { .. }, Some(former)) = (&self.keys, &notes.retiring) {
            self.tell_rotated(former).await;
        }
        let proven = matches!(self.keys, Keys::Successor { .. } | Keys::InSecret { proven: true, .. });
        self.notes = notes;
        self.keys = Keys::InSecret { keys: credentials, stands: true, proven };
        self.secret = written.map_or_else(|| std::mem::replace(&mut self.secret, Current::Absent), Current::Mine);
        Ok(())
    }

    /// Bound means usable: tries the keys, once.
    async fn probe(&mut self) -> Result<Tried, Error> {
        let record = &self.stored()?.record;
        let answer = self.ctx.asking(record, Box::pin(self.ctx.provisioner.probe(record, self.credentials()?))).await?;
        let refused = match (&mut self.keys, answer) {
            (Keys::Successor { proven, .. } | Keys::InSecret { proven, .. }, Probe::Usable) => {
                *proven = true;
                self.ctx.memory.usable(&self.claim.id);
                return Ok(Tried::GoOn);
            }
            (_, Probe::Usable) => return Err(Error::OutOfStep("keys are tried where they are kept")),
            (_, Probe::NotYet(answer)) => answer,
        };
        if std::mem::take(&mut self.doubted) {
            self.keys = Keys::None;
            return Ok(Tried::GoOn);
        }
        let wait = self.ctx.memory.not_usable_yet(&self.claim.id);
        if matches!(self.keys, Keys::Successor { .. }) {
            return self.successor_refused(refused, wait).await.map(Tried::Wait);
        }
        if self.ctx.memory.probes(&self.claim.id) > 2 * MAX_PROBES {
            return Err(Error::CredentialsUnusable { answer: refused });
        }
        report::tell(self.ctx, &self.claim, &Report::waiting_for_credentials(&self.claim, &refused)).await?;
        Ok(Tried::Wait(Next::After(wait)))
    }

    async fn publish(&mut self) -> Result<(), Error> {
        let id = &self.claim.id;
        let record = &self.stored()?.record;
        let config_map = outputs::config_map(&self.ctx.label, record);
        outputs::write(&self.ctx.config_maps_in(&id.namespace), &self.config_map, &config_map, id).await?;
        // The last trace of it was overwritten.
        let begun = match &self.config_map {
            Current::Mine(config_map) => legacy::begun_bucket(config_map),
            Current::Absent | Current::Inherited(_) => None,
        };
        if let Some(bucket) = begun.filter(|bucket| *bucket != record.plan.bucket) {
            teardown::left_in_place(self.ctx, &self.claim, &legacy::begun(bucket)).await;
        }
        self.published = true;
        Ok(())
    }

    async fn mark_handed_over(&mut self) -> Result<(), Error> {
        let (ctx, seen_in_account) = (self.ctx, self.seen_in_account.clone());
        let stored = self.stored_mut()?;
        let record = Record {
            handed_over: true,
            cluster: Some(ctx.cluster.clone()),
            account: stored.record.account.clone().or(seen_in_account),
            ..stored.record.clone()
        };
        record::change(ctx, stored, record).await
    }

    async fn mark_bound(&mut self) -> Result<(), Error> {
        let ctx = self.ctx;
        record::mark_bound(ctx, self.stored_mut()?).await
    }

    async fn finish_adoption(&mut self) -> Result<(), Error> {
        let (ctx, claim) = (self.ctx, self.claim.id.clone());
        adoption::finish(ctx, &claim, self.stored_mut()?).await
    }

    fn stored_mut(&mut self) -> Result<&mut Stored, Error> {
        match &mut self.log {
            Log::Stored { stored, .. } => Ok(stored),
            Log::Planned { .. } | Log::Former { .. } => Err(Error::OutOfStep("the record is not written yet")),
        }
    }

    async fn name(&mut self) -> Result<(), Error> {
        let Log::Stored { stored, .. } = &self.log else {
            return Err(Error::OutOfStep("the record is not written yet"));
        };
        mark::bind(self.ctx, &mut self.claim, stored).await?;
        self.named = true;
        Ok(())
    }

    async fn tell(&mut self) -> Result<(), Error> {
        let record = &self.stored()?.record;
        let ignored = claim::ignored(self.claim.spec()?, record);
        report::tell(self.ctx, &self.claim, &Report::bound(&record.plan.bucket, ignored)).await?;
        self.told = true;
        Ok(())
    }

    /// Writes other notes beside the keys that stand in the Secret.
    pub(super) async fn note(&mut self, notes: KeyNotes) -> Result<(), Error> {
        let id = &self.claim.id;
        let secret = outputs::secret(id, &self.ctx.label, self.credentials()?, &notes);
        if let Some(written) = outputs::write(&self.ctx.secrets_in(&id.namespace), &self.secret, &secret, id).await? {
            self.secret = Current::Mine(written);
        }
        self.notes = notes;
        Ok(())
    }
}

async fn read_outputs<P>(
    ctx: &Context<P>,
    claim: &Claim,
    heir: Option<Heir<'_>>,
) -> Result<(Current<Secret>, Current<ConfigMap>), Error> {
    let (secrets, config_maps) = (ctx.secrets_in(&claim.id.namespace), ctx.config_maps_in(&claim.id.namespace));
    tokio::try_join!(outputs::read(&secrets, &claim.id, heir), outputs::read(&config_maps, &claim.id, heir))
}
