//! Which claims share a store, and so its workers.

use std::sync::Arc;

use crate::store::Record;

/// The store of a record's bucket, with the provisioning credentials that are used.
pub(crate) fn store_of(record: &Record) -> Arc<str> {
    let endpoint = &record.plan.endpoint;
    let owner = record.plan.owner_secret.as_ref().map(ToString::to_string).unwrap_or_default();
    format!("{}:{} {owner}", endpoint.host, endpoint.port).into()
}

/// Host and port of such a store.
pub(crate) fn host_of(store: &str) -> &str {
    store.split(' ').next().unwrap_or_default()
}
