//! Test data for the decisions.

use std::collections::BTreeMap;

use crate::controller::decide::record::{Author, Stored};
use crate::provisioner::{ClaimId, Endpoint, Mode, Plan, ReclaimPolicy, Record, Rotation};

/// The record of an ordinary claim `shop/photos`, as first written.
pub(crate) fn record() -> Record {
    Record {
        claim: ClaimId { namespace: "shop".into(), name: "photos".into(), uid: "f30e0389".into() },
        former_uids: Vec::new(),
        cluster: None,
        account: None,
        class_name: "s3-buckets".into(),
        reclaim_policy: ReclaimPolicy::Delete,
        handed_over: false,
        plan: Plan {
            bucket: "photos-f30e0389".into(),
            mode: Mode::Created,
            endpoint: Endpoint { host: "store.example.com".into(), port: 9000, region: "here".into(), url: None },
            owner_secret: None,
            user: Some("shop-photos-f30e0389".into()),
            rotation: Rotation::default(),
            state: BTreeMap::new(),
        },
    }
}

/// That record in the cluster.
pub(crate) fn stored() -> Stored {
    Stored {
        name: "obc-shop-photos".into(),
        uid: Some("0b0b".into()),
        resource_version: None,
        author: Author::Us,
        record: record(),
        says_bound: false,
        action: None,
    }
}
