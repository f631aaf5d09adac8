//! How much is in the bucket of an ObjectBucket, as the store reports.

use super::accounts::credentials;
use super::session::Session;
use crate::controller::read_owner;
use crate::error::Error;
use crate::refusal::Refusal;
use crate::store::{Failure, Provisioner, Record, Usage};

/// Why the usage is not known.
#[derive(Debug)]
pub(super) struct Unknown {
    pub(super) why: String,
    /// The reason, if it is that the bucket no longer exists.
    pub(super) lost: Option<&'static str>,
    /// Whether all buckets of these credentials and this store would meet the same failure.
    pub(super) affects_all_claims: bool,
}

/// How much is in the bucket; `None` if this store does not report that.
///
/// # Errors
/// Why it is not known.
pub(super) async fn usage<P: Provisioner>(session: &Session<P>, record: &Record) -> Result<Option<Usage>, Unknown> {
    let owner = read_owner::<P>(&session.client, record).await.map_err(|problem| Unknown {
        affects_all_claims: !matches!(problem, Error::Refused(Refusal::RecordedParametersUnreadable(_))),
        lost: None,
        why: problem.to_string(),
    })?;
    let call = owner.call(record);
    let account = session.store.account(&call).await.map_err(of_store)?;
    // What is missing in another account may still exist in the recorded one.
    if let (Some(now), Some(recorded)) = (&account, &record.account)
        && now != recorded
    {
        let now = credentials(&record.plan.owner, now);
        let why = format!("{now}, but the ObjectBucket records account {recorded}");
        return Err(Unknown { why, lost: None, affects_all_claims: true });
    }
    session.store.usage(&call).await.map_err(of_store)
}

fn of_store(failure: impl Failure) -> Unknown {
    Unknown {
        why: failure.to_string(),
        lost: failure.is_lost().then(|| failure.reason()),
        affects_all_claims: failure.affects_all_claims(),
    }
}
