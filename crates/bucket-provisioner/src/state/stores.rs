//! Which claims share a store, and so its workers.

use std::sync::Arc;

use crate::store::{OwnerRef, Plan, Record};

/// The store of a record's bucket, with the provisioning credentials that are used.
pub(crate) fn store_of(record: &Record) -> Arc<str> {
    let Plan { endpoint, owner: OwnerRef { secret, role }, .. } = &record.plan;
    let secret = secret.as_ref().map(ToString::to_string).unwrap_or_default();
    let role = role.as_ref().map(|role| format!("{role} {:?}", role.external_id)).unwrap_or_default();
    format!("{}:{} {secret} {role}", endpoint.host, endpoint.port).into()
}

/// Host and port of such a store.
pub(crate) fn host_of(store: &str) -> &str {
    store.split(' ').next().unwrap_or_default()
}
