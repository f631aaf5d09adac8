//! The accounts that ObjectBuckets record. With credentials of another account, their buckets and users are not found.
//! Pure.

use std::collections::BTreeMap;
use std::fmt;

use crate::store::{Record, SecretRef};

/// The ObjectBuckets of each account, by Secret and store. Without a URL, the SDK derives the endpoint from the region,
/// and credentials are of the same account in every region.
#[derive(Debug, Default)]
pub(crate) struct Accounts(BTreeMap<(Option<SecretRef>, Option<String>), BTreeMap<String, InAccount>>);

/// ObjectBuckets that record the same account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InAccount {
    pub(crate) account: String,
    count: usize,
    /// Name of the first one.
    name: String,
}

impl fmt::Display for InAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { account, count, name } = self;
        match count {
            1 => write!(f, "ObjectBucket {name} records account {account}"),
            _ => write!(f, "{count} ObjectBuckets, such as {name}, record account {account}"),
        }
    }
}

impl Accounts {
    /// Adds the record of the ObjectBucket with this name.
    pub(crate) fn add(&mut self, record: &Record, name: &str) {
        let Some(account) = &record.account else { return };
        let in_account = self.0.entry(key(record)).or_default().entry(account.clone());
        let new = InAccount { account: account.clone(), count: 0, name: name.to_owned() };
        in_account.or_insert(new).count += 1;
    }

    /// Those that use the Secret and the store of this record.
    pub(crate) fn of(&self, record: &Record) -> impl Iterator<Item = &InAccount> {
        self.0.get(&key(record)).into_iter().flat_map(BTreeMap::values)
    }
}

fn key(record: &Record) -> (Option<SecretRef>, Option<String>) {
    (record.plan.owner_secret.clone(), record.plan.endpoint.url.clone())
}

/// The start of a sentence: which credentials are of this account.
pub(crate) fn credentials(secret: Option<&SecretRef>, account: &str) -> String {
    match secret {
        Some(secret) => format!("Secret {secret} has credentials of account {account}"),
        None => format!("the operator's own identity is of account {account}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::testing::record;

    #[test]
    fn object_buckets_are_counted_by_secret_store_and_account() {
        let in_account = |account: Option<&str>| Record { account: account.map(str::to_owned), ..record() };
        let mut elsewhere = in_account(Some("3"));
        elsewhere.plan.owner_secret = Some(SecretRef { namespace: "ops".into(), name: "another".into() });
        let mut accounts = Accounts::default();
        for (name, record) in [("a", in_account(Some("1"))), ("b", in_account(Some("1"))), ("c", in_account(Some("2")))]
        {
            accounts.add(&record, name);
        }
        accounts.add(&in_account(None), "unknown");
        accounts.add(&elsewhere, "elsewhere");
        let shown = |record: &Record| accounts.of(record).map(InAccount::to_string).collect::<Vec<_>>();
        assert_eq!(
            shown(&in_account(None)),
            ["2 ObjectBuckets, such as a, record account 1", "ObjectBucket c records account 2"]
        );
        assert_eq!(shown(&elsewhere), ["ObjectBucket elsewhere records account 3"]);
    }
}
