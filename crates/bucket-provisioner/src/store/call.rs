//! What a verb gets: [`Call`], and [`ProbeCall`] for a verb that works with the app's credentials.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use super::outcome::AppCredentials;
use super::record::Record;
use super::{Provisioner, Recorded};

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
    creates_bucket: bool,
    /// Whether the claim's access has ended.
    access_ended: Arc<watch::Sender<bool>>,
}

impl<'a, P: Provisioner + ?Sized> Call<'a, P> {
    /// A call without present credentials.
    pub fn new(record: &'a Record, parameters: &'a Recorded<P>, owner: &'a P::Owner) -> Self {
        let access_ended = Arc::new(watch::Sender::new(true));
        Self { record, parameters, owner, present: None, creates_bucket: false, access_ended }
    }

    /// With the credentials that the claim's apps use now.
    pub fn with_present(self, present: impl Into<Option<&'a AppCredentials>>) -> Self {
        Self { present: present.into(), ..self }
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
    /// can use the access any more, and only its remains are left to delete. Success of `revoke` means the same.
    pub fn end_access(&self) {
        self.access_ended.send_replace(true);
    }

    /// For [`delete_bucket`](Provisioner::delete_bucket) of a store that [deletes in
    /// parallel](Provisioner::deletes_in_parallel): waits until [`revoke`](Provisioner::revoke) has ended the access.
    /// **Nothing is deleted before**; reading is fine. If `revoke` fails, this never returns, and the library drops the verb.
    pub async fn access_ended(&self) {
        // The sender lives as long as this.
        let _ = self.access_ended.subscribe().wait_for(|ended| *ended).await;
    }

    pub(super) fn has_access_ended(&self) -> bool {
        *self.access_ended.borrow()
    }

    /// The call of a creation.
    pub(super) fn creating(&self) -> Self {
        Self { creates_bucket: true, ..self.clone() }
    }

    /// The call of a deletion, in which the access has not ended yet.
    pub(super) fn deleting(&self) -> Self {
        Self { access_ended: Arc::new(watch::Sender::new(false)), ..self.clone() }
    }
}

impl<P: Provisioner + ?Sized> Clone for Call<'_, P> {
    fn clone(&self) -> Self {
        let Self { record, parameters, owner, present, creates_bucket, access_ended } = self;
        let access_ended = Arc::clone(access_ended);
        Self { record, parameters, owner, present: *present, creates_bucket: *creates_bucket, access_ended }
    }
}

/// Without credentials.
impl<P: Provisioner + ?Sized> fmt::Debug for Call<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("record", &self.record).finish_non_exhaustive()
    }
}

/// What [`probe`](Provisioner::probe) gets. It does not contain the provisioning credentials, because the app has none.
#[non_exhaustive]
pub struct ProbeCall<'a, P: Provisioner + ?Sized> {
    /// The claim, and what was planned for it.
    pub record: &'a Record,
    /// The parameters of the class, as they were when the claim was planned.
    pub parameters: &'a Recorded<P>,
    /// The credentials to try.
    pub credentials: &'a AppCredentials,
}

impl<'a, P: Provisioner + ?Sized> ProbeCall<'a, P> {
    /// A call that tries these credentials.
    pub fn new(record: &'a Record, parameters: &'a Recorded<P>, credentials: &'a AppCredentials) -> Self {
        Self { record, parameters, credentials }
    }
}

/// Without credentials.
impl<P: Provisioner + ?Sized> fmt::Debug for ProbeCall<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProbeCall").field("record", &self.record).finish_non_exhaustive()
    }
}
