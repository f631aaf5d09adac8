//! What the library makes of the four verbs of a store.
//!
//! lib-bucket-provisioner has the verbs Provision, Grant, Revoke and Delete. Two of them are pairs here: Provision is
//! [`create_bucket`](Provisioner::create_bucket), then [`grant`](Provisioner::grant); Delete is
//! [`revoke`](Provisioner::revoke), then [`delete_bucket`](Provisioner::delete_bucket). A store implements the four
//! parts. The library calls them in this order, so that it knows what a failure may have left, and that no bucket is
//! deleted while it can still be accessed.

use std::pin::pin;

use super::failure::CreateError;
use super::outcome::{AccessRemoval, AppCredentials, BucketRemoval, Content, Removal};
use super::{Call, Mode, Provisioner};

/// Creates bucket and access: [`create_bucket`](Provisioner::create_bucket), then [`grant`](Provisioner::grant), or both at
/// the same time if the store [allows it](Provisioner::creates_in_parallel).
///
/// # Errors
/// The first error. It is [`CreateError::Refused`] only if neither verb can have changed anything.
pub async fn provision<P: Provisioner>(store: &P, call: &Call<'_, P>) -> Result<AppCredentials, CreateError<P::Error>> {
    let call = call.creating();
    if !store.creates_in_parallel(&call).await {
        store.create_bucket(&call).await?;
        return store.grant(&call).await.map_err(CreateError::after_a_change);
    }
    let (bucket, access) = tokio::join!(Box::pin(store.create_bucket(&call)), Box::pin(store.grant(&call)));
    match (bucket, access) {
        (Ok(()), access) => access.map_err(CreateError::after_a_change),
        (Err(CreateError::Refused(error)), Err(CreateError::Refused(_))) => Err(CreateError::Refused(error)),
        (Err(error), _) => Err(error.after_a_change()),
    }
}

/// Removes access and bucket: [`revoke`](Provisioner::revoke), then [`delete_bucket`](Provisioner::delete_bucket), or both at
/// the same time if the store [allows it](Provisioner::deletes_in_parallel). The bucket is kept if nothing proves that
/// the access is the claim's ([`AccessRemoval::Unproven`]).
///
/// # Errors
/// That of `revoke`, else that of `delete_bucket`.
pub async fn delete<P: Provisioner>(store: &P, call: &Call<'_, P>, content: Content) -> Result<Removal, P::Error> {
    // A bucket that existed before is never deleted, whatever the caller asks for.
    if call.record.plan.mode == Mode::Granted {
        return revoke(store, call).await;
    }
    let call = call.deleting();
    if !store.deletes_in_parallel(&call) {
        let access = store.revoke(&call).await?;
        if access.is_unproven() {
            return Ok(Removal::of_access(access));
        }
        call.remove_access();
        let bucket = store.delete_bucket(&call, content).await?;
        return Ok(Removal { access, bucket });
    }
    let (mut revoke, mut delete) = (pin!(store.revoke(&call)), pin!(store.delete_bucket(&call, content)));
    let (access, bucket): (AccessRemoval, Result<BucketRemoval, P::Error>) = tokio::select! {
        biased;
        access = revoke.as_mut() => match access {
            Ok(access) if access.is_unproven() => return Ok(Removal::of_access(access)),
            Ok(access) => {
                call.remove_access();
                (access, delete.await)
            }
            // The deletion is dropped: only an empty bucket can be deleted by now.
            Err(error) => return Err(error),
        },
        bucket = delete.as_mut() => (revoke.await?, bucket),
    };
    if access.is_unproven() {
        return Ok(Removal::of_access(access));
    }
    Ok(Removal { access, bucket: bucket? })
}

/// Removes the access and keeps the bucket: [`revoke`](Provisioner::revoke).
///
/// # Errors
/// That of `revoke`.
pub(crate) async fn revoke<P: Provisioner>(store: &P, call: &Call<'_, P>) -> Result<Removal, P::Error> {
    store.revoke(call).await.map(Removal::of_access)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Mutex;
    use std::time::Duration;

    use tokio::time::sleep;

    use super::super::{ClaimId, Endpoint, Plan, Reason, ReclaimPolicy, Record, StoreError, Topic};
    use super::*;

    const FULL: Reason = Reason::new("Full", Topic::Store).meaning("it is full").remedy("add room");

    /// What a verb does after its time.
    #[derive(Clone, Copy, PartialEq)]
    enum Does {
        Succeed,
        Refuse,
        Fail,
        FindNothing,
        ProveNothing,
    }

    /// A store whose verbs end as configured, and which records the order of calls.
    struct Scripted {
        in_parallel: bool,
        bucket: (u64, Does),
        access: (u64, Does),
        log: Mutex<Vec<&'static str>>,
    }

    impl Scripted {
        fn new(in_parallel: bool, bucket: (u64, Does), access: (u64, Does)) -> Self {
            Self { in_parallel, bucket, access, log: Mutex::default() }
        }

        fn note(&self, what: &'static str) {
            self.log.lock().unwrap().push(what);
        }

        fn log(&self) -> Vec<&'static str> {
            self.log.lock().unwrap().clone()
        }
    }

    fn created<T>(does: Does, done: T) -> Result<T, CreateError<StoreError>> {
        match does {
            Does::Refuse => Err(CreateError::Refused(StoreError::terminal(&FULL, "refused"))),
            Does::Fail => Err(StoreError::retryable(&FULL, "failed").into()),
            _ => Ok(done),
        }
    }

    impl Provisioner for Scripted {
        type Parameters = ();
        type Owner = ();
        type Error = StoreError;

        fn endpoint(&self, (): &()) -> Endpoint {
            Endpoint::new("shelf", 80)
        }

        async fn creates_in_parallel(&self, _: &Call<'_, Self>) -> bool {
            self.in_parallel
        }

        fn deletes_in_parallel(&self, _: &Call<'_, Self>) -> bool {
            self.in_parallel
        }

        async fn create_bucket(&self, _: &Call<'_, Self>) -> Result<(), CreateError<StoreError>> {
            self.note("create");
            sleep(Duration::from_secs(self.bucket.0)).await;
            self.note("created");
            created(self.bucket.1, ())
        }

        async fn grant(&self, call: &Call<'_, Self>) -> Result<AppCredentials, CreateError<StoreError>> {
            self.note(if call.creates_bucket() { "grant with bucket" } else { "grant" });
            sleep(Duration::from_secs(self.access.0)).await;
            created(self.access.1, AppCredentials::new("id", "secret".into()))
        }

        async fn revoke(&self, call: &Call<'_, Self>) -> Result<AccessRemoval, StoreError> {
            self.note("revoke");
            sleep(Duration::from_secs(self.access.0)).await;
            match self.access.1 {
                Does::Fail | Does::Refuse => return Err(StoreError::retryable(&FULL, "revoke failed")),
                Does::FindNothing => return Ok(AccessRemoval::NotFound),
                Does::ProveNothing => return Ok(AccessRemoval::Unproven("why".to_owned())),
                Does::Succeed => call.end_access(),
            }
            self.note("access ended");
            sleep(Duration::from_secs(1)).await;
            Ok(AccessRemoval::Deleted)
        }

        async fn delete_bucket(&self, call: &Call<'_, Self>, _: Content) -> Result<BucketRemoval, StoreError> {
            self.note("find bucket");
            call.access_ended().await;
            self.note("delete bucket");
            sleep(Duration::from_secs(self.bucket.0)).await;
            self.note("deleted");
            match self.bucket.1 {
                Does::Fail | Does::Refuse => Err(StoreError::retryable(&FULL, "delete failed")),
                Does::FindNothing => Ok(BucketRemoval::NotFound),
                Does::Succeed | Does::ProveNothing => Ok(BucketRemoval::Deleted),
            }
        }
    }

    fn record(mode: Mode) -> Record {
        let claim = ClaimId { namespace: "shop".into(), name: "photos".into(), uid: "1".into() };
        Record::new(claim, "shelves", ReclaimPolicy::Delete, Plan::new("photos", mode, Endpoint::new("shelf", 80)))
    }

    async fn provisioned(store: &Scripted) -> Result<AppCredentials, CreateError<StoreError>> {
        provision(store, &Call::new(&record(Mode::Created), &(), &())).await
    }

    async fn deleted(store: &Scripted) -> Result<(AccessRemoval, BucketRemoval), String> {
        let record = record(Mode::Created);
        let removal = delete(store, &Call::new(&record, &(), &()), Content::Delete).await;
        removal.map(|removal| (removal.access, removal.bucket)).map_err(|error| error.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn access_is_granted_after_the_bucket_is_created() {
        let store = Scripted::new(false, (1, Does::Succeed), (1, Does::Succeed));
        provisioned(&store).await.unwrap();
        assert_eq!(store.log(), ["create", "created", "grant with bucket"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_counts_only_if_nothing_was_created_before() {
        use Does::{Fail, Refuse, Succeed};
        for (in_parallel, bucket, access, nothing_changed) in [
            (false, Refuse, Succeed, true),
            (false, Fail, Succeed, false),
            (false, Succeed, Refuse, false),
            (true, Refuse, Refuse, true),
            (true, Refuse, Succeed, false),
            (true, Succeed, Refuse, false),
            (true, Fail, Refuse, false),
            (true, Refuse, Fail, false),
        ] {
            let store = Scripted::new(in_parallel, (1, bucket), (2, access));
            let error = provisioned(&store).await.unwrap_err();
            assert_eq!(matches!(error, CreateError::Refused(_)), nothing_changed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_bucket_stays_until_the_access_has_ended() {
        use Does::Succeed;
        let store = Scripted::new(true, (1, Succeed), (5, Succeed));
        assert_eq!(deleted(&store).await, Ok((AccessRemoval::Deleted, BucketRemoval::Deleted)));
        assert_eq!(store.log(), ["revoke", "find bucket", "access ended", "delete bucket", "deleted"]);
        let store = Scripted::new(false, (1, Succeed), (5, Succeed));
        assert_eq!(deleted(&store).await, Ok((AccessRemoval::Deleted, BucketRemoval::Deleted)));
        assert_eq!(store.log(), ["revoke", "access ended", "find bucket", "delete bucket", "deleted"]);
    }

    #[tokio::test(start_paused = true)]
    async fn no_bucket_is_deleted_if_the_access_stays() {
        for in_parallel in [false, true] {
            let store = Scripted::new(in_parallel, (1, Does::Succeed), (1, Does::Fail));
            assert_eq!(deleted(&store).await, Err("revoke failed".to_owned()));
            assert!(!store.log().contains(&"delete bucket"));
            let store = Scripted::new(in_parallel, (1, Does::Succeed), (1, Does::ProveNothing));
            let unproven = AccessRemoval::Unproven("why".to_owned());
            assert_eq!(deleted(&store).await, Ok((unproven, BucketRemoval::Kept)));
            assert!(!store.log().contains(&"delete bucket"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn access_that_is_not_found_has_ended() {
        for in_parallel in [false, true] {
            let store = Scripted::new(in_parallel, (1, Does::FindNothing), (1, Does::FindNothing));
            assert_eq!(deleted(&store).await, Ok((AccessRemoval::NotFound, BucketRemoval::NotFound)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_bucket_that_existed_before_is_never_deleted() {
        let store = Scripted::new(true, (1, Does::Succeed), (1, Does::Succeed));
        let record = record(Mode::Granted);
        let removal = delete(&store, &Call::new(&record, &(), &()), Content::Delete).await.unwrap();
        assert_eq!(removal, Removal::of_access(AccessRemoval::Deleted));
        assert_eq!(store.log(), ["revoke", "access ended"]);
    }
}
