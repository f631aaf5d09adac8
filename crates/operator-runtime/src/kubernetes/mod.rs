//! What each controller of this library needs of Kubernetes: watches that never end, pages of bounded size, and
//! events. It knows neither buckets nor volumes.

pub mod answers;
pub mod events;
pub mod pages;
pub mod watch;
