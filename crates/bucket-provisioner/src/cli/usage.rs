//! How much is in the bucket of a record, as the store says.

use std::fmt;

use super::accounts::credentials;
use super::session::Session;
use crate::controller::read_owner;
use crate::store::{Failure, Provisioner, Record, Usage};

/// Why that is not known.
pub(super) enum Unknown<E> {
    /// The owner cannot be read, or is another one than when the bucket was created.
    Owner(String),
    /// The store refused.
    Store(E),
}

impl<E: Failure> Unknown<E> {
    /// Whether the store says that the bucket is gone.
    pub(super) fn lost(&self) -> Option<&E> {
        match self {
            Self::Store(failure) if failure.is_lost() => Some(failure),
            Self::Store(_) | Self::Owner(_) => None,
        }
    }

    /// Whether it would be the same for all buckets of this owner and store.
    pub(super) fn affects_all_claims(&self) -> bool {
        match self {
            Self::Owner(_) => true,
            Self::Store(failure) => failure.affects_all_claims(),
        }
    }
}

impl<E: fmt::Display> fmt::Display for Unknown<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner(why) => f.write_str(why),
            Self::Store(failure) => failure.fmt(f),
        }
    }
}

/// How much is in it; `None` if this store does not say.
///
/// # Errors
/// That is not known.
pub(super) async fn usage<P: Provisioner>(
    session: &Session<P>,
    record: &Record,
) -> Result<Option<Usage>, Unknown<P::Error>> {
    let owner =
        read_owner::<P>(&session.client, record).await.map_err(|problem| Unknown::Owner(problem.to_string()))?;
    let call = owner.call(record);
    let account = session.store.account(&call).await.map_err(Unknown::Store)?;
    // What is missing in another account is not gone.
    if let (Some(now), Some(recorded)) = (&account, &record.account)
        && now != recorded
    {
        let now = credentials(record.plan.owner_secret.as_ref(), now);
        return Err(Unknown::Owner(format!("{now}, but the ObjectBucket records account {recorded}")));
    }
    session.store.usage(&call).await.map_err(Unknown::Store)
}
