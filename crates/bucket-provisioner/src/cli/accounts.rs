//! The accounts that ObjectBuckets record. With credentials of another account, their buckets and users are not found.
//! Pure.

use std::collections::BTreeMap;

use crate::store::{OwnerRef, Plan, Record};

/// Names of the ObjectBuckets by provisioning credentials, store and account that they record. Without the URL of a store, the SDK derives
/// the endpoint from the region, and credentials are of the same account in every region.
#[derive(Debug, Default)]
pub(crate) struct Accounts(BTreeMap<(OwnerRef, Option<String>, String), Vec<String>>);

impl Accounts {
    /// Adds the record of the ObjectBucket with this name.
    pub(crate) fn add(&mut self, record: &Record, name: &str) {
        let Some(account) = &record.account else { return };
        let Plan { owner, endpoint, .. } = &record.plan;
        let key = (owner.clone(), endpoint.url.clone(), account.clone());
        self.0.entry(key).or_default().push(name.to_owned());
    }

    /// The accounts of those that use the provisioning credentials and the store of this record, each with the start of a sentence.
    pub(crate) fn of(&self, record: &Record) -> impl Iterator<Item = (&str, String)> {
        let Plan { owner, endpoint, .. } = &record.plan;
        let alike = self.0.iter().filter(move |((of, url, _), _)| of == owner && *url == endpoint.url);
        alike.map(|((_, _, account), names)| {
            let records = match &**names {
                [name] => format!("ObjectBucket {name:?} records account {account}"),
                names => {
                    let first = names.first().map_or("", String::as_str);
                    format!("{} ObjectBuckets, such as {first:?}, record account {account}", names.len())
                }
            };
            (account.as_str(), records)
        })
    }
}

/// The start of a sentence: which credentials are of this account.
pub(crate) fn credentials(owner: &OwnerRef, account: &str) -> String {
    match owner {
        OwnerRef { role: Some(role), .. } => format!("role {role} is of account {account}"),
        OwnerRef { secret: Some(secret), .. } => format!("Secret {secret} has credentials of account {account}"),
        _ => format!("the operator's own identity is of account {account}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::testing::record;
    use crate::store::RoleRef;

    #[test]
    fn object_buckets_are_counted_by_owner_store_and_account() {
        let in_account = |account: Option<&str>| Record { account: account.map(str::to_owned), ..record() };
        let mut elsewhere = in_account(Some("3"));
        elsewhere.plan.owner.role = Some(RoleRef::new("another"));
        let mut accounts = Accounts::default();
        for (name, record) in [("a", in_account(Some("1"))), ("b", in_account(Some("1"))), ("c", in_account(Some("2")))]
        {
            accounts.add(&record, name);
        }
        accounts.add(&in_account(None), "unknown");
        accounts.add(&elsewhere, "elsewhere");
        let shown = |record: &Record| accounts.of(record).map(|(_, records)| records).collect::<Vec<_>>();
        assert_eq!(
            shown(&in_account(None)),
            ["2 ObjectBuckets, such as \"a\", record account 1", "ObjectBucket \"c\" records account 2"]
        );
        assert_eq!(shown(&elsewhere), ["ObjectBucket \"elsewhere\" records account 3"]);
    }
}
