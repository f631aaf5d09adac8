//! Decides what to do about the lease. Pure: it gets what was seen, and when; it makes no call and reads no clock.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::core::ObjectMeta;
use tokio::time::Instant;

/// The annotation of the Lease with the version of its holder. `doctor` of any release reads it.
const HOLDER_VERSION: &str = "objectbucket.io/holder-version";

/// What one process knows about the lease.
pub(super) struct Election {
    name: String,
    identity: String,
    /// The version of this program, if it has one.
    version: Option<String>,
    lease_seconds: i32,
    /// The Lease as it was last seen, `None` if it does not exist.
    object: Option<Lease>,
    /// The record that was last seen. It stays when the Lease is deleted, because that does not end the holder's term.
    seen: Option<Seen>,
}

struct Seen {
    record: LeaseSpec,
    /// When this process first saw it. Only this decides when it expires.
    since: Instant,
}

/// What to do next. Each write has the resource version that was seen, so nobody overwrites a change that they have not
/// seen.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// Create the Lease, to take it.
    Create(Lease),
    /// Replace the Lease, to take or renew it.
    Replace(Lease),
    /// Somebody else holds it, at least until this time.
    Wait { holder: String, until: Instant },
}

impl Election {
    pub(super) fn new(name: &str, identity: &str, lease_seconds: i32) -> Self {
        let (name, identity) = (name.to_owned(), identity.to_owned());
        Self { name, identity, version: None, lease_seconds, object: None, seen: None }
    }

    /// The same, and each Lease that it writes has the version of its holder.
    pub(super) fn with_version(self, version: &str) -> Self {
        Self { version: Some(version.to_owned()).filter(|version| !version.is_empty()), ..self }
    }

    /// Notes what the Lease is at `now`. A record that has not changed keeps its age, even if the rest of the object
    /// has changed.
    pub(super) fn observe(&mut self, found: Option<Lease>, now: Instant) {
        if let Some(lease) = &found {
            let record = lease.spec.clone().unwrap_or_default();
            if self.seen.as_ref().is_none_or(|seen| seen.record != record) {
                self.seen = Some(Seen { record, since: now });
            }
        }
        self.object = found;
    }

    /// What to do at `now`, which is `wall` on the wall clock.
    pub(super) fn step(&self, now: Instant, wall: Timestamp) -> Step {
        let time = Some(MicroTime(wall));
        let mine = LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(self.lease_seconds),
            acquire_time: time.clone(),
            renew_time: time,
            lease_transitions: Some(0),
            ..LeaseSpec::default()
        };
        let Some(Seen { record, since }) = &self.seen else { return self.write(mine) };
        let transitions = record.lease_transitions.unwrap_or_default();
        match holder(record) {
            Some(holder) if holder == self.identity => self.write(LeaseSpec {
                acquire_time: record.acquire_time.clone(),
                lease_transitions: Some(transitions),
                ..mine
            }),
            Some(holder) if now < *since + self.duration(record) => {
                Step::Wait { holder: holder.to_owned(), until: *since + self.duration(record) }
            }
            _ => self.write(LeaseSpec { lease_transitions: Some(transitions.saturating_add(1)), ..mine }),
        }
    }

    /// The Lease to write in order to release it, if it is ours.
    pub(super) fn release(&self, wall: Timestamp) -> Option<Lease> {
        let (object, Seen { record, .. }) = (self.object.as_ref()?, self.seen.as_ref()?);
        if holder(record) != Some(&self.identity) {
            return None;
        }
        let time = Some(MicroTime(wall));
        let spec = LeaseSpec {
            holder_identity: Some(String::new()),
            // We take a lease without a holder at once; others may wait for its duration. 0 is invalid.
            lease_duration_seconds: Some(1),
            acquire_time: time.clone(),
            renew_time: time,
            ..record.clone()
        };
        Some(Lease { metadata: object.metadata.clone(), spec: Some(spec) })
    }

    fn write(&self, spec: LeaseSpec) -> Step {
        match &self.object {
            Some(object) => Step::Replace(Lease { metadata: self.signed(object.metadata.clone()), spec: Some(spec) }),
            None => {
                let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
                Step::Create(Lease { metadata: self.signed(metadata), spec: Some(spec) })
            }
        }
    }

    fn signed(&self, mut metadata: ObjectMeta) -> ObjectMeta {
        if let Some(version) = &self.version {
            let signature = holder_version(version, &self.identity);
            metadata.annotations.get_or_insert_default().insert(HOLDER_VERSION.to_owned(), signature);
        }
        metadata
    }

    /// The duration that the holder has written, or ours.
    fn duration(&self, record: &LeaseSpec) -> Duration {
        duration(record).unwrap_or(Duration::from_secs(self.lease_seconds.unsigned_abs().into()))
    }

    /// Whether this process holds the lease, as far as it was seen.
    pub(super) fn holds(&self) -> bool {
        self.seen.as_ref().is_some_and(|seen| holder(&seen.record) == Some(&self.identity))
    }
}

/// How long a record is valid after its last renewal.
pub(super) fn duration(record: &LeaseSpec) -> Option<Duration> {
    let seconds = record.lease_duration_seconds.filter(|seconds| *seconds > 0)?;
    Some(Duration::from_secs(seconds.unsigned_abs().into()))
}

/// Names the holder, too: one of a version that does not know the annotation leaves that of its predecessor.
fn holder_version(version: &str, identity: &str) -> String {
    format!("{version} {identity}")
}

/// The version of the holder, if the Lease has it.
pub fn version_of_holder(lease: &Lease) -> Option<&str> {
    let (version, identity) = lease.metadata.annotations.as_ref()?.get(HOLDER_VERSION)?.split_once(' ')?;
    (holder(lease.spec.as_ref()?) == Some(identity)).then_some(version)
}

pub(super) fn holder(record: &LeaseSpec) -> Option<&str> {
    record.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const HOUR: i64 = 3600;

    fn election() -> Election {
        Election::new("l", "me", 15)
    }

    /// The wall clock is arbitrary here, and some tests set clocks that differ.
    fn wall(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).unwrap()
    }

    fn record(holder: &str, renewed: i64) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            acquire_time: Some(MicroTime(wall(-100))),
            renew_time: Some(MicroTime(wall(renewed))),
            lease_transitions: Some(4),
            ..LeaseSpec::default()
        }
    }

    fn object(version: &str, record: LeaseSpec) -> Option<Lease> {
        let metadata = ObjectMeta {
            name: Some("l".into()),
            resource_version: Some(version.into()),
            labels: Some([("kept".to_owned(), "yes".to_owned())].into()),
            ..ObjectMeta::default()
        };
        Some(Lease { metadata, spec: Some(record) })
    }

    fn replaced(step: Step) -> (String, LeaseSpec) {
        let Step::Replace(lease) = step else { panic!("not replaced: {step:?}") };
        assert!(lease.metadata.labels.is_some(), "the rest of the object is kept");
        (lease.metadata.resource_version.unwrap(), lease.spec.unwrap())
    }

    #[test]
    fn a_lease_that_does_not_exist_is_created() {
        let mut election = election();
        election.observe(None, Instant::now());
        let Step::Create(lease) = election.step(Instant::now(), wall(0)) else { panic!("not created") };
        assert_eq!(lease.metadata.name.as_deref(), Some("l"));
        let expected =
            LeaseSpec { acquire_time: Some(MicroTime(wall(0))), lease_transitions: Some(0), ..record("me", 0) };
        assert_eq!(lease.spec, Some(expected));
    }

    #[test]
    fn a_renewal_changes_the_renew_time_alone() {
        let mut election = election();
        election.observe(object("7", record("me", 0)), Instant::now());
        let (version, renewed) = replaced(election.step(Instant::now(), wall(2)));
        assert_eq!((version.as_str(), renewed), ("7", record("me", 2)));
    }

    #[test]
    fn a_holder_is_replaced_after_its_own_lease_duration() {
        let (mut election, start) = (election(), Instant::now());
        let slow = LeaseSpec { lease_duration_seconds: Some(40), ..record("other", 0) };
        election.observe(object("7", slow.clone()), start);
        let until = start + 40 * SECOND;
        let wait = Step::Wait { holder: "other".to_owned(), until };
        assert_eq!(election.step(until - SECOND / 1000, wall(40)), wait);
        // A new version with the same record keeps its age.
        election.observe(object("8", slow), start + 20 * SECOND);
        assert_eq!(election.step(start + 20 * SECOND, wall(20)), wait);
        let (version, taken) = replaced(election.step(until, wall(41)));
        let expected =
            LeaseSpec { acquire_time: Some(MicroTime(wall(41))), lease_transitions: Some(5), ..record("me", 41) };
        assert_eq!((version.as_str(), taken), ("8", expected));
    }

    #[test]
    fn a_record_that_changes_has_a_new_age() {
        let (mut election, start) = (election(), Instant::now());
        election.observe(object("7", record("other", 0)), start);
        election.observe(object("8", record("other", 2)), start + 14 * SECOND);
        let until = start + 29 * SECOND;
        assert_eq!(election.step(start + 28 * SECOND, wall(0)), Step::Wait { holder: "other".to_owned(), until });
        replaced(election.step(until, wall(0)));
    }

    #[test]
    fn wall_clocks_do_not_matter() {
        for skew in [-HOUR, 0, HOUR] {
            let (mut election, start) = (election(), Instant::now());
            election.observe(object("7", record("other", skew)), start);
            assert!(matches!(election.step(start + 14 * SECOND, wall(14)), Step::Wait { .. }), "{skew}");
            replaced(election.step(start + 15 * SECOND, wall(15)));
        }
    }

    #[test]
    fn a_lease_that_was_released_or_has_no_holder_is_free_at_once() {
        for holder in [Some(String::new()), None] {
            let mut election = election();
            let free = LeaseSpec { holder_identity: holder, ..record("", 0) };
            election.observe(object("7", free), Instant::now());
            assert_eq!(replaced(election.step(Instant::now(), wall(0))).1.lease_transitions, Some(5));
        }
    }

    #[test]
    fn a_deleted_lease_stays_with_its_holder_until_it_expires() {
        let (mut election, start) = (election(), Instant::now());
        election.observe(object("7", record("other", 0)), start);
        election.observe(None, start + SECOND);
        assert!(matches!(election.step(start + 14 * SECOND, wall(0)), Step::Wait { .. }));
        assert!(matches!(election.step(start + 15 * SECOND, wall(0)), Step::Create(_)));
        // Its holder recreates it.
        let mut holder = Election::new("l", "other", 15);
        holder.observe(object("7", record("other", 0)), start);
        holder.observe(None, start);
        let Step::Create(lease) = holder.step(start, wall(2)) else { panic!("not created") };
        assert_eq!(lease.spec, Some(record("other", 2)));
    }

    #[test]
    fn the_lease_has_the_version_of_its_holder() {
        let (mut election, now) = (election().with_version("1.2.3"), Instant::now());
        let Step::Create(lease) = election.step(now, wall(0)) else { panic!("not created") };
        assert_eq!(version_of_holder(&lease), Some("1.2.3"));
        election.observe(object("7", record("me", 0)), now);
        let Step::Replace(renewed) = election.step(now, wall(2)) else { panic!("not renewed") };
        assert_eq!(version_of_holder(&renewed), Some("1.2.3"));
        assert!(renewed.metadata.labels.is_some(), "the rest of the object is kept");
        let released = Lease { metadata: renewed.metadata.clone(), ..election.release(wall(3)).unwrap() };
        assert_eq!(version_of_holder(&released), None);
        let of_old_version = Lease { spec: Some(record("other", 4)), ..renewed };
        assert_eq!(version_of_holder(&of_old_version), None, "it left the annotation as it was");
    }

    /// A holder without a duration is treated as one with ours.
    #[test]
    fn an_empty_lease_is_free_and_durations_have_a_default() {
        let (mut election, start) = (election(), Instant::now());
        election.observe(object("7", LeaseSpec::default()), start);
        assert_eq!(replaced(election.step(start, wall(0))).1.lease_transitions, Some(1));
        let silent = LeaseSpec { lease_duration_seconds: None, ..record("other", 0) };
        election.observe(object("8", silent), start);
        assert!(matches!(election.step(start, wall(0)), Step::Wait { until, .. } if until == start + 15 * SECOND));
    }

    #[test]
    fn only_the_holder_releases_the_lease_as_client_go_does() {
        let (mut election, now) = (election(), Instant::now());
        assert_eq!(election.release(wall(0)), None);
        election.observe(object("7", record("other", 0)), now);
        assert_eq!(election.release(wall(0)), None);
        election.observe(object("8", record("me", 0)), now);
        let released = election.release(wall(3)).unwrap();
        assert_eq!(released.metadata.resource_version.as_deref(), Some("8"));
        let expected =
            LeaseSpec { lease_duration_seconds: Some(1), acquire_time: Some(MicroTime(wall(3))), ..record("", 3) };
        assert_eq!(released.spec, Some(expected));
    }
}
