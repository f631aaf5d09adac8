//! Test data for the decisions.

use crate::decide::record::{Author, Stored};
use crate::store::{ClaimId, Endpoint, Mode, Plan, ReclaimPolicy, Record};

/// The record of an ordinary claim `shop/photos`, as first written.
pub(crate) fn record() -> Record {
    let endpoint = Endpoint::new("store.example.com", 9000).with_region("here");
    let plan = Plan::new("photos-f30e0389", Mode::Created, endpoint).with_user("shop-photos-f30e0389");
    Record::new(
        ClaimId { namespace: "shop".into(), name: "photos".into(), uid: "f30e0389".into() },
        "s3-buckets",
        ReclaimPolicy::Delete,
        plan,
    )
}

/// That record in the cluster.
pub(crate) fn stored() -> Stored {
    Stored {
        name: "obc-shop-photos".into(),
        uid: Some("0b0b".into()),
        resource_version: None,
        author: Author::Us,
        record: record(),
        status_is_bound: false,
        claim_was_bound: false,
        action: None,
        release: None,
        created: None,
        deleted: false,
        claim_ref: true,
        labelled: true,
    }
}
