//! What each controller of this library needs of Kubernetes: watches that never end, pages of bounded size, and
//! events. It knows neither buckets nor volumes.

pub mod answers;
pub mod events;
pub mod pages;
pub mod watch;

/// The name with which an operator writes, if it has no other: that of its provisioner, no longer than the API server accepts.
pub fn field_manager(provisioner_name: &str) -> String {
    const LONGEST: usize = 128;
    provisioner_name.chars().take(LONGEST).collect()
}
