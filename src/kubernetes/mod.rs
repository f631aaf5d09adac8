//! What each controller of this library needs of Kubernetes: watches that never end, pages of bounded size, events, and
//! whose turn is next. It knows neither buckets nor volumes.

pub(crate) mod answers;
pub(crate) mod events;
pub(crate) mod pages;
pub(crate) mod watch;
pub(crate) mod workers;
