//! Buckets in S3: created, tagged, emptied, deleted.

pub(crate) mod access_points;
pub(crate) mod bucket;
pub(crate) mod budget;
pub(crate) mod creation;
pub(crate) mod empty;
pub(crate) mod emptying;
pub(crate) mod listing;
pub(crate) mod locks;
pub(crate) mod purge;
pub(crate) mod settings;
pub(crate) mod tagging;
pub(crate) mod tags;
