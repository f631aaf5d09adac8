//! How much is in the bucket of an ObjectBucket, as the store reports.

use std::fmt;

use super::accounts::credentials;
use super::session::Session;
use crate::controller::read_owner;
use crate::error::Error;
use crate::refusal::Refusal;
use crate::store::{Failure, Provisioner, Record, Usage};

/// Why the usage is not known.
pub(super) enum Unknown<E> {
    /// The provisioning credentials cannot be read, or are of another account than when the bucket was created.
    Owner(String),
    /// The parameters in the ObjectBucket cannot be read.
    Record(String),
    /// The store refused.
    Store(E),
}

impl<E: Failure> Unknown<E> {
    /// The failure, if it is that the bucket no longer exists.
    pub(super) fn lost(&self) -> Option<&E> {
        match self {
            Self::Store(failure) if failure.is_lost() => Some(failure),
            Self::Store(_) | Self::Owner(_) | Self::Record(_) => None,
        }
    }

    /// Whether all buckets of these credentials and this store would meet the same failure.
    pub(super) fn affects_all_claims(&self) -> bool {
        match self {
            Self::Owner(_) => true,
            Self::Record(_) => false,
            Self::Store(failure) => failure.affects_all_claims(),
        }
    }
}

impl<E: fmt::Display> fmt::Display for Unknown<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner(why) | Self::Record(why) => f.write_str(why),
            Self::Store(failure) => failure.fmt(f),
        }
    }
}

/// How much is in the bucket; `None` if this store does not report that.
///
/// # Errors
/// Why it is not known.
pub(super) async fn usage<P: Provisioner>(
    session: &Session<P>,
    record: &Record,
) -> Result<Option<Usage>, Unknown<P::Error>> {
    let owner = read_owner::<P>(&session.client, record).await.map_err(|problem| match problem {
        Error::Refused(Refusal::RecordedParametersUnreadable(_)) => Unknown::Record(problem.to_string()),
        problem => Unknown::Owner(problem.to_string()),
    })?;
    let call = owner.call(record);
    let account = session.store.account(&call).await.map_err(Unknown::Store)?;
    // What is missing in another account may still exist in the recorded one.
    if let (Some(now), Some(recorded)) = (&account, &record.account)
        && now != recorded
    {
        let now = credentials(record.plan.owner_secret.as_ref(), now);
        return Err(Unknown::Owner(format!("{now}, but the ObjectBucket records account {recorded}")));
    }
    session.store.usage(&call).await.map_err(Unknown::Store)
}
