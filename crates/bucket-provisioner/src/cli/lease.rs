//! Whether somebody holds a Lease. Pure.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;

/// Client-go's default, for a Lease without leaseDurationSeconds.
const DURATION: Duration = Duration::from_secs(15);

pub(crate) fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

pub(crate) fn leads(lease: &Lease, now: Timestamp) -> bool {
    holder(lease).is_some() && age(lease, now) <= valid(lease)
}

/// The time since the last renewal; zero if that is in the future, by another clock.
pub(crate) fn age(lease: &Lease, now: Timestamp) -> Duration {
    let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
    renewed.map_or(Duration::MAX, |renewed| Duration::try_from(now.duration_since(renewed.0)).unwrap_or_default())
}

pub(crate) fn valid(lease: &Lease) -> Duration {
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    seconds.and_then(|seconds| u64::try_from(seconds).ok()).map_or(DURATION, Duration::from_secs)
}
