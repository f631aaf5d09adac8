//! What a verb gets: [`Call`], and [`ProbeCall`] for a verb that works with the app's credentials.

use std::fmt;
use std::sync::Arc;

use secrecy::SecretString;
use tokio::sync::watch;

use super::outcome::AppCredentials;
use super::record::Record;
use super::{Provisioner, Recorded};

/// How far the access of a claim is removed in a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Access {
    Works,
    Ended,
    Removed,
}

/// What a verb gets. Fields may be added, so a verb names those that it needs.
///
/// The library makes calls; the tests of a store can make them, too:
///
/// ```
/// # use bucket_provisioner::store::{Call, Record};
/// # use bucket_provisioner::Provisioner;
/// # fn example<P: Provisioner<Parameters = (), Owner = ()>>(_: &P, record: &Record) {
/// let call: Call<'_, P> = Call::new(record, &(), &());
/// # assert_eq!(call.present.is_none(), true);
/// # }
/// ```
#[non_exhaustive]
pub struct Call<'a, P: Provisioner + ?Sized> {
    /// The claim, and what was planned for it.
    pub record: &'a Record,
    /// The parameters of the class, as they were when the claim was planned.
    pub parameters: &'a Recorded<P>,
    /// The provisioning credentials.
    pub owner: &'a P::Owner,
    /// What the claim's apps use now: the credentials in the claim's Secret. `None` if it has none, or if its access was
    /// removed before.
    pub present: Option<&'a AppCredentials>,
    /// For [`examine`](Provisioner::examine): the issuer of the cluster's tokens, a URL, if it is known.
    pub issuer: Option<&'a str>,
    creates_bucket: bool,
    access: Arc<watch::Sender<Access>>,
}

impl<'a, P: Provisioner + ?Sized> Call<'a, P> {
    /// A call without present credentials.
    pub fn new(record: &'a Record, parameters: &'a Recorded<P>, owner: &'a P::Owner) -> Self {
        let access = Arc::new(watch::Sender::new(Access::Removed));
        Self { record, parameters, owner, present: None, issuer: None, creates_bucket: false, access }
    }

    /// With the credentials that the claim's apps use now.
    pub fn with_present(self, present: impl Into<Option<&'a AppCredentials>>) -> Self {
        Self { present: present.into(), ..self }
    }

    /// With the issuer of the cluster's tokens.
    pub fn with_issuer(self, issuer: Option<&'a str>) -> Self {
        Self { issuer, ..self }
    }

    /// The same for another record, such as one that has the account.
    pub fn with_record(self, record: &'a Record) -> Self {
        Self { record, ..self }
    }

    /// Name of the claim's bucket.
    pub fn bucket(&self) -> &'a str {
        &self.record.plan.bucket
    }

    /// Name of the claim's user, never empty; see [`Record::user`].
    pub fn user(&self) -> &'a str {
        self.record.user()
    }

    /// For [`grant`](Provisioner::grant): whether [`create_bucket`](Provisioner::create_bucket) of the same call has
    /// succeeded, or runs at the same time. Otherwise the bucket must be checked.
    pub fn creates_bucket(&self) -> bool {
        self.creates_bucket
    }

    /// For [`revoke`](Provisioner::revoke) of a store that [deletes in parallel](Provisioner::deletes_in_parallel): nobody
    /// can use the access any more, and only what remains of it is left to delete.
    pub fn end_access(&self) {
        self.access.send_if_modified(|access| {
            let ends = *access == Access::Works;
            if ends {
                *access = Access::Ended;
            }
            ends
        });
    }

    /// For [`delete_bucket`](Provisioner::delete_bucket) of a store that [deletes in
    /// parallel](Provisioner::deletes_in_parallel): waits until [`revoke`](Provisioner::revoke) has ended the access.
    /// **Nothing is deleted before**, and then only a bucket that is empty; reading is fine. If `revoke` fails, the library
    /// drops the verb.
    pub async fn access_ended(&self) {
        self.access_is(Access::Ended).await;
    }

    /// The same until [`revoke`](Provisioner::revoke) has succeeded. **No content is deleted before**: what a failed
    /// `revoke` finds next time may be that nothing proves whose the access was, and then everything is kept.
    pub async fn access_removed(&self) {
        self.access_is(Access::Removed).await;
    }

    async fn access_is(&self, wanted: Access) {
        // The sender lives as long as this.
        let _ = self.access.subscribe().wait_for(|access| *access >= wanted).await;
    }

    pub(super) fn remove_access(&self) {
        self.access.send_replace(Access::Removed);
    }

    /// The call of a creation.
    pub(super) fn creating(&self) -> Self {
        Self { creates_bucket: true, ..self.clone() }
    }

    /// The call of a deletion, in which the access has not ended yet.
    pub(super) fn deleting(&self) -> Self {
        Self { access: Arc::new(watch::Sender::new(Access::Works)), ..self.clone() }
    }
}

impl<P: Provisioner + ?Sized> Clone for Call<'_, P> {
    fn clone(&self) -> Self {
        let Self { record, parameters, owner, present, issuer, creates_bucket, access } = self;
        let (present, issuer, creates_bucket, access) = (*present, *issuer, *creates_bucket, Arc::clone(access));
        Self { record, parameters, owner, present, issuer, creates_bucket, access }
    }
}

/// Without credentials.
impl<P: Provisioner + ?Sized> fmt::Debug for Call<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("record", &self.record).finish_non_exhaustive()
    }
}

/// What [`probe`](Provisioner::probe) gets.
#[non_exhaustive]
pub struct ProbeCall<'a, P: Provisioner + ?Sized> {
    /// The claim, and what was planned for it.
    pub record: &'a Record,
    /// The parameters of the class, as they were when the claim was planned.
    pub parameters: &'a Recorded<P>,
    /// The credentials to try; [none](AppCredentials::without_keys) of a claim whose apps have access as a
    /// [ServiceAccount](super::Plan::service_account).
    pub credentials: &'a AppCredentials,
    /// A token of that ServiceAccount, if it names an audience.
    pub token: Option<&'a SecretString>,
    /// The provisioning credentials, if the store accepts no token of the ServiceAccount from the operator: it can get the same
    /// access with them. Otherwise `None`, because the app has none.
    pub owner: Option<&'a P::Owner>,
    /// The store has refused them for a minute or longer. So it shows everything, and a denial stays.
    pub is_settled: bool,
}

impl<'a, P: Provisioner + ?Sized> ProbeCall<'a, P> {
    /// A call that tries these credentials, which may be new.
    pub fn new(record: &'a Record, parameters: &'a Recorded<P>, credentials: &'a AppCredentials) -> Self {
        Self { record, parameters, credentials, token: None, owner: None, is_settled: false }
    }

    /// The same with a token of the claim's ServiceAccount.
    #[must_use]
    pub fn with_token(self, token: Option<&'a SecretString>) -> Self {
        Self { token, ..self }
    }

    /// The same with the provisioning credentials.
    #[must_use]
    pub fn with_owner(self, owner: Option<&'a P::Owner>) -> Self {
        Self { owner, ..self }
    }

    /// The same of credentials that were refused for long, or not.
    #[must_use]
    pub fn with_settled(self, is_settled: bool) -> Self {
        Self { is_settled, ..self }
    }
}

/// Without credentials.
impl<P: Provisioner + ?Sized> fmt::Debug for ProbeCall<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProbeCall").field("record", &self.record).finish_non_exhaustive()
    }
}
