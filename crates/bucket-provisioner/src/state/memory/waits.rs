//! How long a claim waits before its next attempt, and what ends the wait.

use std::time::Duration;

use tokio::time::Instant;

use crate::decide::backoff;
use crate::decide::claim::{self, Claim};
use crate::store::{FailureClass, SecretRef};
use operator_runtime::engine::{Inputs, Schedule};

/// What an attempt for a claim depends on. While it does not change, a waiting claim continues to wait.
pub(crate) fn inputs(claim: &Claim) -> Inputs {
    let spec = claim.spec().ok();
    let class = spec.map(|spec| &spec.storage_class_name);
    let bucket = spec.and_then(|spec| claim::wanted(spec, &claim.id.uid).ok());
    let record = spec.map(|spec| &spec.object_bucket_name);
    let requests = (&claim.retry_request, &claim.rotate_request);
    let settings = spec.and_then(|spec| spec.additional_config.as_ref());
    Inputs::of(&(class, bucket, record, settings, claim.deleting, &claim.undo_request), &requests)
}

/// The provisioning Secret that an attempt depends on.
#[derive(Debug)]
struct OwnerSecret {
    reference: SecretRef,
    /// Resource version that the attempt has read; `None` if it has not read it yet, or there was no Secret.
    read: Option<String>,
    /// Resource version of the last change since then.
    changed: Option<String>,
}

/// What a claim waits for.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    pub(super) schedule: Schedule,
    /// How often the present keys were refused in a row.
    probes: u32,
    /// When that began.
    refused_since: Option<Instant>,
    /// The claim waits only because its keys were refused.
    waits_for_keys: bool,
    /// The id of a key that was refused before, and works now.
    working_key: Option<Box<str>>,
    owner_secret: Option<Box<OwnerSecret>>,
    /// What else the claim waits for.
    awaited: Option<Box<Awaited>>,
    /// Its ServiceAccount, beside that.
    account: Option<Box<Awaited>>,
}

/// What a claim waits for, until an ObjectBucket or a ServiceAccount changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// That no other ObjectBucket names this bucket, which is to be deleted.
    Bucket(String),
    /// The bucket of the claim with this namespace and name.
    Creator(String, String),
    /// The ServiceAccount with this namespace and name.
    ServiceAccount(String, String),
}

impl Waits {
    pub(super) fn of(schedule: Schedule) -> Self {
        Self { schedule, ..Self::default() }
    }

    /// How much longer the claim has to wait. Changed inputs end the wait and reset the backoff.
    pub(crate) fn remaining(&mut self, inputs: Inputs) -> Option<Duration> {
        let Self { schedule, probes, refused_since, .. } = self;
        schedule.remaining(inputs, || (*probes, *refused_since) = (0, None))
    }

    /// The number of the attempt that starts now, from 1.
    pub(crate) fn attempt(&mut self, inputs: Inputs) -> u32 {
        self.waits_for_keys = false;
        self.schedule.begin(inputs)
    }

    /// An attempt has failed: returns the wait before the next one; zero if something changed while it ran.
    pub(crate) fn failed(&mut self, class: FailureClass) -> Duration {
        let delay = |failures| backoff::delay(class, failures, &mut rand::rng());
        match class {
            FailureClass::InProgress => {
                self.schedule.progressed();
                self.schedule.set_wait(delay(0))
            }
            FailureClass::Retryable | FailureClass::Terminal => self.schedule.failed(delay),
        }
    }

    /// The same, with a wait that does not grow.
    pub(crate) fn set_wait(&mut self, wait: Duration) -> Duration {
        self.schedule.set_wait(wait)
    }

    /// The claim waits for a while, unless something that it waits for changes.
    pub(crate) fn defer(&mut self, wait: Duration) {
        self.schedule.defer(wait);
    }

    /// The keys do not work yet: returns the wait before the next try.
    pub(crate) fn keys_refused(&mut self) -> Duration {
        self.probes = self.probes.saturating_add(1);
        self.refused_since.get_or_insert_with(Instant::now);
        self.working_key = None;
        self.waits_for_keys = true;
        let delay = backoff::propagation(self.probes, &mut rand::rng());
        self.defer(delay);
        delay
    }

    /// The keys were replaced, perhaps because they were refused too often: this must not replace them twice.
    pub(crate) fn keys_replaced(&mut self) {
        self.probes += u32::from(backoff::are_doubtful(self.probes));
    }

    /// The keys work, or others are tried now. Returns how long they were refused.
    pub(crate) fn keys_work(&mut self) -> Duration {
        self.probes = 0;
        self.refused_since.take().map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// The time since the keys were first refused, if the last attempt waits for nothing else, and while they are tried
    /// often.
    pub(crate) fn tries_often(&self) -> Option<Duration> {
        let since =
            self.refused_since.filter(|_| self.waits_for_keys && (1..=backoff::OFTEN).contains(&self.probes))?;
        Some(since.elapsed())
    }

    /// A key was seen to work while the claim waited for that: the wait is over, and the next attempt need not try it.
    /// Returns how long it was refused.
    pub(crate) fn seen_to_work(&mut self, key: &str) -> Duration {
        self.working_key = Some(key.into());
        self.waits_for_keys = false;
        self.schedule.stop_waiting();
        self.keys_work()
    }

    /// Whether this key was seen to work just before this attempt.
    pub(crate) fn takes_as_working(&mut self, key: &str) -> bool {
        self.working_key.take().as_deref() == Some(key)
    }

    /// Since when the keys are refused.
    pub(crate) fn refused_for(&self) -> Duration {
        self.refused_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// How often keys of the claim were refused in a row.
    pub(crate) fn probes(&self) -> u32 {
        self.probes
    }

    /// Remembers which Secret an attempt depends on. Must be called before the Secret is read, so that no later change is
    /// missed.
    pub(crate) fn depends_on(&mut self, secret: &SecretRef) {
        self.owner_secret = Some(Box::new(OwnerSecret { reference: secret.clone(), read: None, changed: None }));
    }

    /// Remembers which version of that Secret the attempt has read: when the watch shows the same version, this must not
    /// cause another attempt.
    pub(crate) fn has_read(&mut self, version: Option<String>) {
        let Some(secret) = &mut self.owner_secret else { return };
        if secret.changed.is_some() && secret.changed == version {
            self.schedule.has_read_change();
        }
        secret.read = version;
    }

    /// Ends the wait if the claim depends on this Secret and has not read this version of it.
    pub(super) fn wake_for_secret(&mut self, secret: &SecretRef, version: Option<&str>) -> bool {
        let Some(depends) = self.owner_secret.as_mut().filter(|s| s.reference == *secret) else { return false };
        if version.is_some() && depends.read.as_deref() == version {
            return false;
        }
        depends.changed = version.map(str::to_owned);
        self.schedule.wake();
        true
    }

    /// Remembers what the claim waits for.
    pub(super) fn wait_for(&mut self, awaited: Option<Awaited>) {
        self.awaited = awaited.map(Box::new);
    }

    /// Remembers whether the claim waits for its ServiceAccount.
    pub(super) fn wait_for_account(&mut self, account: Option<Awaited>) {
        self.account = account.map(Box::new);
    }

    pub(super) fn awaits_something(&self) -> bool {
        self.awaited.is_some() || self.account.is_some()
    }

    /// Ends the wait if it is for this.
    pub(super) fn wake_for(&mut self, changed: &Awaited) -> bool {
        let waits = [&self.awaited, &self.account].into_iter().any(|awaited| awaited.as_deref() == Some(changed));
        if waits {
            self.schedule.wake();
        }
        waits
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn inputs(class: &str) -> Inputs {
        Inputs::of(&class, &())
    }

    fn secret() -> SecretRef {
        SecretRef { namespace: "ns".into(), name: "owner".into() }
    }

    fn started() -> Waits {
        let mut waits = Waits::default();
        waits.attempt(inputs("a"));
        waits
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_claim_is_woken_by_its_user() {
        let mut waits = started();
        let hour = Duration::from_secs(3600);
        assert_eq!(waits.set_wait(hour), hour);
        assert!(waits.remaining(inputs("a")).is_some());
        let asks = Inputs::of(&"a", &"now");
        assert_eq!(waits.remaining(asks), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_claim_waits_until_its_inputs_change() {
        let mut waits = started();
        waits.failed(FailureClass::Terminal);
        assert!(waits.remaining(inputs("a")).unwrap() > Duration::from_secs(5));
        assert_eq!(waits.remaining(inputs("b")), None);
        assert_eq!(waits.attempt(inputs("b")), 1, "an edit resets the backoff");
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_ends_with_time() {
        let mut waits = started();
        let delay = waits.failed(FailureClass::Retryable);
        assert!(waits.remaining(inputs("a")).is_some());
        tokio::time::advance(delay).await;
        assert_eq!(waits.remaining(inputs("a")), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_corrected_secret_ends_the_wait_for_it_and_no_other() {
        let mut waits = started();
        waits.failed(FailureClass::Terminal);
        assert!(!waits.wake_for_secret(&secret(), Some("8")), "it depends on none");
        waits.depends_on(&secret());
        waits.has_read(Some("7".into()));
        assert!(!waits.wake_for_secret(&secret(), Some("7")), "that is what it read");
        assert!(waits.remaining(inputs("a")).is_some());
        assert!(waits.wake_for_secret(&secret(), Some("8")));
        assert_eq!(waits.remaining(inputs("a")), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_working_key_ends_its_wait_unless_refused_again() {
        let mut waits = started();
        assert_eq!(waits.tries_often(), None);
        waits.keys_refused();
        tokio::time::advance(Duration::from_millis(200)).await;
        assert_eq!(waits.tries_often(), Some(Duration::from_millis(200)));
        assert_eq!(waits.seen_to_work("a"), Duration::from_millis(200));
        assert!(waits.remaining(inputs("a")).is_none());
        assert!(waits.takes_as_working("a") && !waits.takes_as_working("a"), "the attempt after that tries it");
        // An attempt that fails otherwise waits as long as others.
        waits.failed(FailureClass::Terminal);
        assert!(waits.remaining(inputs("a")).is_some() && waits.tries_often().is_none());

        waits.keys_refused();
        assert!(waits.tries_often().is_some() && !waits.takes_as_working("a"));
        waits.attempt(inputs("a"));
        waits.failed(FailureClass::Retryable);
        assert_eq!(waits.tries_often(), None, "it waits for something else");
        assert_eq!((waits.keys_work(), waits.keys_work()), (Duration::ZERO, Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn a_correction_while_an_attempt_runs_is_not_missed() {
        let mut waits = started();
        waits.schedule.wake();
        assert_eq!(waits.failed(FailureClass::Terminal), Duration::ZERO);
        assert_eq!(waits.remaining(inputs("a")), None);
        waits.attempt(inputs("a"));
        assert!(waits.failed(FailureClass::Terminal) > Duration::from_secs(5));
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_that_was_read_causes_no_further_attempt() {
        let mut waits = started();
        waits.depends_on(&secret());
        waits.wake_for_secret(&secret(), Some("7"));
        waits.has_read(Some("7".into()));
        assert!(waits.failed(FailureClass::Terminal) > Duration::from_secs(5));
    }
}
