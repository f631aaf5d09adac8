//! The store for AWS: buckets in S3, users in IAM.
//!
//! | module | what it holds |
//! |---|---|
//! | `verbs` | the verbs; read this first |
//! | [`class`] | `params`, `values`, `environment`: what an admin configures; `plan`, `target`: what a claim gets, an ObjectBucket as the verbs read it; `region`: partitions and hosts; `names`: names that AWS reserves |
//! | `s3` | `bucket`: creation; `tags`: what proves whose a bucket is; `purge`, `empty`, `emptying`, `listing`, `budget`, `access_points`: deletion |
//! | `iam` | `user`: creation; `role`, `association`: access without keys; `policy`, `session_policy`: what an app may do; `probe`: its keys are tried; `upkeep`: keys are rotated, changes found and repaired; `revoke`: removal |
//! | [`client`] | `clients`, `http`: clients, and connections, which are blocked when the lease is lost; [`client::owner`]: the credentials of a class; `session`: the role that they assume; `account`, `sts`, `clock`: their account; `limiter`, `quota`: how fast it may be called, what it has no room for; [`client::call`], `codes`: a call, and what its error means; [`client::error`], `remedy`, `failure`: messages, remedies, whether a retry can help |
//! | `progress` | how far a creation came |
//! | `doctor` | the checks of `doctor`: whether claims of a class can work |
//! | `flags` | the operator's own flags |
//! | `inventory`, `recall` | what the account holds; a claim whose ObjectBucket was lost, restored from tags |
//! | `reasons` | reason codes, which users read |
//!
//! Functions that decide (`plan`, `judge`, `may_delete`, `ownership`, the mapping of errors) are pure; functions that
//! call AWS decide nothing.

pub mod class;
pub mod client;
mod doctor;
mod flags;
mod iam;
mod inventory;
mod progress;
mod reasons;
mod recall;
mod s3;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod verbs;

pub use self::client::error::Error;
pub use self::client::owner::Owner;
pub use self::flags::Flags;
pub use self::verbs::AwsProvisioner;

/// `StorageClass.provisioner` of the classes for AWS, by default.
pub const PROVISIONER_NAME: &str = "aws-s3.io/bucket";
