//! What must be true after a flow.

use super::flow::{Kind, Step};
use super::scene::{CLAIM, Scene};
use crate::backend::{Ability, Backend, Bucket, Inventory};
use crate::stage::Footprint;

impl<B: Backend> Scene<B> {
    /// Requires that all is well after the step, and once the claim no longer exists; returns what outlives it.
    pub(super) async fn assert_well(&self) -> Footprint {
        if self.flow.ends_bound() {
            self.assert_bound().await;
            self.stage.world.delete_claim(CLAIM).await;
            self.stage.world.wait_gone(CLAIM).await;
        }
        let left = self.made().await;
        self.assert_nothing_left(&left).await;
        left
    }

    /// Requires that the claim is bound and usable, with one bucket, one user and one key.
    async fn assert_bound(&self) {
        let (stage, world) = (&self.stage, &self.stage.world);
        // A claim whose keys are new is not ready for a while.
        world.wait_reason(CLAIM, "Bound").await;
        let app = self.app().await;
        stage.assert_usable(&app).await;
        if self.flow.shares_keys {
            let owner = stage.backend.owner();
            assert!(
                owner.values().any(|value| *value == app["AWS_ACCESS_KEY_ID"]),
                "the keys are not the provisioning credentials"
            );
        }
        let made = self.made().await;
        let kinds: Vec<&str> = made.objects.keys().filter_map(|name| name.split(' ').next()).collect();
        assert_eq!(kinds, ["ConfigMap", "ObjectBucket", "ObjectBucketClaim", "Secret"], "one of each: {made:#?}");
        if stage.can(Ability::Inventory) {
            let buckets = usize::from(!self.flow.has_bucket_before());
            assert_eq!(made.store.buckets.len(), buckets, "buckets: {made:#?}");
            assert_eq!(made.store.users.len(), usize::from(!self.flow.shares_keys), "users: {made:#?}");
            assert_eq!(self.missing(&made.store), [""; 0], "settings that the store does not have: {made:#?}");
            self.wait_for_one_key(app.get("AWS_ACCESS_KEY_ID").map(String::as_str)).await;
        }
    }

    /// Waits until there is one key, or none where keys are shared. A store need not show at once that a key was deleted, so it is
    /// polled.
    async fn wait_for_one_key(&self, key: Option<&str>) {
        assert_eq!(key.is_none(), self.flow.audience.is_some(), "the Secret has keys or not");
        let wanted: Vec<&str> = key.into_iter().filter(|_| !self.flow.shares_keys).collect();
        let has = |made: &Inventory| made.users.values().flat_map(|user| &user.keys).eq(&wanted);
        if let Err(made) = self.seen_in_store(has).await {
            panic!("not the keys {wanted:?} alone: {:#?}", made.users);
        }
    }

    /// Waits until what was made in the store is as wanted; the error is what it is instead.
    async fn seen_in_store(&self, is_so: impl Fn(&Inventory) -> bool) -> Result<(), Inventory> {
        let looking = async {
            while !is_so(&self.made().await.store) {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        };
        match tokio::time::timeout(crate::base::patience(), looking).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.made().await.store),
        }
    }

    /// The settings of the flow that neither bucket nor user has.
    fn missing(&self, made: &Inventory) -> Vec<&'static str> {
        let of_buckets = made.buckets.values().map(|bucket| &bucket.settings);
        let all: Vec<&String> = of_buckets.chain(made.users.values().map(|user| &user.settings)).collect();
        let is_missing = |part: &&str| !all.iter().any(|settings| settings.contains(*part));
        self.flow.settings.iter().copied().filter(is_missing).collect()
    }

    /// Waits until the store has what was edited: the claim is bound all the while.
    pub(super) async fn wait_configured(&self) {
        if let Err(made) = self.seen_in_store(|made| self.missing(made).is_empty()).await {
            panic!("the store does not have {:?}: {made:#?}", self.missing(&made));
        }
    }

    /// What there is now and was not before. What was before must be as it was.
    async fn made(&self) -> Footprint {
        let mut now = self.stage.footprint().await;
        let mut before = self.before.clone();
        if self.flow.has_bucket_before() {
            let shared = (now.store.buckets.remove(&self.bucket), before.store.buckets.remove(&self.bucket));
            let settings = |bucket: Option<Bucket>| bucket.map(|bucket| bucket.settings);
            assert_eq!(settings(shared.0), settings(shared.1), "the bucket that existed is reconfigured");
        }
        now.beyond(&before)
    }

    /// Requires that nothing is left of the claim but a bucket that outlives it, with all that is in it.
    async fn assert_nothing_left(&self, left: &Footprint) {
        self.assert_objects_left(left);
        let (sees, uses) = (self.stage.can(Ability::Inventory), self.stage.can(Ability::Apps));
        let (buckets, users) = match (self.flow.step, self.flow.kind) {
            (Step::Forget, _) if sees => (1, 1),
            // The claim was deleted while no operator ran: an admin decides.
            (Step::Vanish, _) if sees => (1, self.users_of_vanished(left).await),
            (_, Kind::Retain) if sees => (1, 0),
            _ if sees && self.flow.keeps_record() => (1, 0),
            _ => (0, 0),
        };
        assert_eq!((left.store.buckets.len(), left.store.users.len()), (buckets, users), "{left:#?}");
        if uses {
            assert!(left.store.buckets.values().all(|bucket| bucket.objects == ["something"]), "{left:#?}");
        }
        if self.flow.has_bucket_before() {
            let was_used = uses && (self.flow.ends_bound() || matches!(self.flow.step, Step::Remove));
            let expected: &[_] = if was_used { &["something", "theirs"] } else { &["theirs"] };
            let now = self.stage.inventory().await;
            let objects = now.buckets.get(&self.bucket).map(|bucket| &bucket.objects);
            assert_eq!(objects.expect("the bucket that existed"), expected, "it is as it was left");
        }
    }
}
