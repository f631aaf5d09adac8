//! Quotas of an account: 5,000 users, 10,000 buckets. When one is reached, every new claim would be refused. So one of
//! them asks now and then, and the others are refused without a call, until something was deleted.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::client::call::{CallError, Operation, Resource};
use crate::client::error::Error;

/// How long nobody asks after a refusal, at first and at most.
const FIRST: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(120);

/// The refusals of all accounts, by what shares a quota.
#[derive(Debug, Default)]
pub(crate) struct Quotas(Mutex<HashMap<(String, Operation), Refusal>>);

#[derive(Debug)]
struct Refusal {
    code: String,
    message: Option<String>,
    wait: Duration,
    ask_at: Instant,
}

impl Quotas {
    /// Fails if the quota of an operation was reached, unless it is time to ask again.
    ///
    /// # Errors
    /// The store's last refusal.
    pub(crate) fn check(&self, scope: String, operation: Operation, resource: Resource) -> Result<(), Error> {
        let mut refusals = self.0.lock();
        let Some(refusal) = refusals.get_mut(&(scope, operation)) else { return Ok(()) };
        if refusal.ask_at <= Instant::now() {
            refusal.ask_at = Instant::now() + refusal.wait;
            return Ok(());
        }
        let (code, message) = (refusal.code.clone(), refusal.message.clone());
        Err(Error::QuotaExceeded { operation, resource, code, message }.without_side_effects())
    }

    /// Notes how a call ended that creates something.
    pub(crate) fn note(&self, scope: String, operation: Operation, error: Option<&CallError>) {
        let (mut refusals, now, key) = (self.0.lock(), Instant::now(), (scope, operation));
        match error {
            None => drop(refusals.remove(&key)),
            Some(error) if error.is_about_quota() => {
                let wait = refusals.get(&key).map_or(FIRST, |before| (before.wait * 2).min(LONGEST));
                let (code, message) = (error.code().to_owned(), error.message().map(str::to_owned));
                refusals.insert(key, Refusal { code, message, wait, ask_at: now + wait });
            }
            // It failed for another reason, which proves nothing about the quota: another claim asks.
            Some(_) => refusals.get_mut(&key).into_iter().for_each(|refusal| refusal.ask_at = now),
        }
    }

    /// Something was deleted, so there may be room.
    pub(crate) fn freed(&self, scope: &str) {
        let mut refusals = self.0.lock();
        let of_scope = refusals.iter_mut().filter(|((refused, _), _)| refused == scope);
        of_scope.for_each(|(_, refusal)| refusal.ask_at = Instant::now());
    }
}
