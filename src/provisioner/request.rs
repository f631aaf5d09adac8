//! What a claim asks for.

use std::collections::BTreeMap;

use super::common::CommonParameters;
use super::record::{ClaimId, Endpoint, Mode, Plan};

/// Which bucket a claim asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WantedBucket {
    /// `spec.generateBucketName`: a new name that starts with this prefix (as the user wrote it).
    Generated {
        /// Prefix of the name, not yet checked against the store's rules.
        prefix: String,
    },
    /// `spec.bucketName`: exactly this name, not yet checked against the store's rules.
    Named(String),
    /// Neither; only possible with a class that names a bucket.
    Unspecified,
}

/// What a claim asks for, and what its class says: the input of [`Provisioner::plan`](super::Provisioner::plan).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Request<'a, T> {
    /// The claim.
    pub claim: &'a ClaimId,
    /// Name of its StorageClass, for messages.
    pub class_name: &'a str,
    /// The bucket, checked against the rules for names.
    pub bucket: String,
    /// Whether the bucket is to be created, or exists.
    pub mode: Mode,
    /// Name for a user of the claim.
    pub user: String,
    /// The parameters of the class.
    pub parameters: &'a T,
    /// The store's own parameters, as the admin wrote them.
    pub written: &'a BTreeMap<String, String>,
    /// The common parameters of the class.
    pub common: &'a CommonParameters,
}

impl<T> Request<'_, T> {
    /// The usual plan: the bucket and a user at this endpoint, and the class parameters as state.
    pub fn plan(&self, endpoint: Endpoint) -> Plan {
        Plan {
            bucket: self.bucket.clone(),
            mode: self.mode,
            endpoint,
            owner_secret: self.common.owner_secret.clone(),
            user: Some(self.user.clone()),
            rotation: self.common.rotation,
            state: self.written.clone(),
        }
    }
}
