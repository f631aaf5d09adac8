//! Moving a claim to the access that its class gives now: from keys to a ServiceAccount, or from one ServiceAccount, cluster
//! or issuer to another. An admin allows it with the annotation `adopt`; the previous access ends after a grace period. Pure.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::store::{Plan, PreviousAccess, Record, Rotation};

/// The record with the access that was planned for the claim now; `None` if it has that already, or cannot get it. Everything
/// else stays as it is recorded: bucket, settings, access mode, and what happens when the claim is deleted. `is_same_access`:
/// [of the store](crate::store::Provisioner::is_same_access).
pub(crate) fn moved(
    is_same_access: impl Fn(&Record, &Record) -> bool,
    recorded: &Record,
    planned: &Record,
) -> Option<Record> {
    let (before, next) = (&recorded.plan, &planned.plan);
    let creator = |plan: &Plan| plan.shared_from.as_ref().map(|from| from.name.clone());
    let is_same_bucket = before.mode == next.mode
        && before.endpoint == next.endpoint
        && before.bucket == next.bucket
        && creator(before) == creator(next);
    // Keys that replace others are issued by a rotation.
    let is_move = next.service_account.is_some() && !is_same_access(recorded, planned);
    if !(is_same_bucket && is_move) {
        return None;
    }
    let mut previous_access = recorded.previous_access.clone();
    previous_access.push(PreviousAccess::of(recorded, next));
    // A claim can be moved back.
    previous_access.retain(|previous| !is_same_access(&previous.record(recorded), planned));
    let plan = Plan {
        owner: next.owner.clone(),
        user: next.user.clone(),
        service_account: next.service_account.clone(),
        state: next.state.clone(),
        outputs: next.outputs.clone(),
        rotation: Rotation { every: None, ..before.rotation },
        ..before.clone()
    };
    Some(Record { class_name: planned.class_name.clone(), previous_access, plan, ..recorded.clone() })
}

/// The record of a claim whose apps have the new access from now on; and when the previous one ends, if that is known only
/// now.
pub(crate) fn published(record: &Record, now: Timestamp) -> (Record, Option<Timestamp>) {
    let ends_at = record.is_moving().then(|| now.checked_add(record.plan.rotation.grace).unwrap_or(Timestamp::MAX));
    let mut record = record.clone();
    record.previous_access.iter_mut().for_each(|previous| previous.ends_at = previous.ends_at.or(ends_at));
    (record, ends_at)
}

/// How long until the next previous access of a bound claim ends; `None` if there is none.
pub(crate) fn ends_in(record: &Record, now: Timestamp) -> Option<Duration> {
    let next = record.previous_access.iter().filter_map(|previous| previous.ends_at).min()?;
    Some(Duration::try_from(next.duration_since(now)).unwrap_or_default())
}

/// What ends now, and the record without it.
pub(crate) fn ended(record: &Record, now: Timestamp) -> (Vec<PreviousAccess>, Record) {
    let is_over = |previous: &PreviousAccess| previous.ends_at.is_some_and(|ends_at| ends_at <= now);
    let (over, rest) = record.previous_access.iter().cloned().partition(is_over);
    (over, Record { previous_access: rest, ..record.clone() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::decide::testing::record;
    use crate::store::{Access, AccessMode, Endpoint, Mode, ServiceAccount, SharedFrom};

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn same(one: &Record, other: &Record) -> bool {
        one.plan.user == other.plan.user
    }

    /// What a class without keys gives now to the claim of the ordinary record.
    fn planned(role: &str) -> Record {
        let mut planned = Record { class_name: "keyless".into(), ..record() };
        planned.plan.user = Some(role.into());
        planned.plan.service_account = Some(ServiceAccount::new("web").with_audience("store.example.com"));
        planned.plan.state.insert("provider".into(), role.into());
        planned.plan.outputs.insert("ROLE".into(), role.into());
        planned
    }

    #[test]
    fn a_claim_gets_the_access_of_its_class_and_keeps_the_rest() {
        let mut before = record();
        before.plan.access = Access::of_mode(AccessMode::WriteOnly);
        before.plan.rotation.every = Some(Duration::from_secs(86400));
        before.plan.state.insert("iamPath".into(), "/buckets/".into());
        before.plan.outputs.insert("KEYS".into(), "yes".into());
        let after = moved(same, &before, &planned("role")).unwrap();
        assert!(after.is_moving() && !before.is_moving());
        assert_eq!((after.class_name.as_str(), after.plan.user.as_deref()), ("keyless", Some("role")));
        assert_eq!(after.plan.rotation.every, None, "there are no keys");
        let kept = |record: &Record| (record.plan.bucket.clone(), record.plan.access.clone(), record.reclaim_policy);
        assert_eq!(kept(&after), kept(&before));
        let previous = &after.previous_access[0];
        assert_eq!(Vec::from_iter(&previous.outputs), ["KEYS"]);
        let Plan { user, service_account, state, owner, .. } = previous.record(&after).plan;
        assert_eq!((user, service_account, state), (before.plan.user, None, before.plan.state));
        assert_eq!(owner, before.plan.owner);
    }

    #[test]
    fn only_access_without_keys_to_the_same_bucket_replaces_another() {
        let refused = |edit: fn(&mut Record)| {
            let mut planned = planned("role");
            edit(&mut planned);
            assert_eq!(moved(same, &record(), &planned), None);
        };
        refused(|planned| planned.plan.service_account = None);
        refused(|planned| planned.plan.endpoint = Endpoint::new("elsewhere.example.com", 9000));
        refused(|planned| planned.plan.mode = Mode::Granted);
        refused(|planned| planned.plan.shared_from = Some(SharedFrom::new("loader", [])));
        refused(|planned| planned.plan.user = record().plan.user);
        refused(|planned| planned.plan.bucket = "another".into());
    }

    #[test]
    fn a_claim_can_be_moved_again_and_back() {
        let (first, _) = published(&moved(same, &record(), &planned("first")).unwrap(), NOW);
        let second = moved(same, &first, &planned("second")).unwrap();
        let ends = |record: &Record| Vec::from_iter(record.previous_access.iter().map(|previous| previous.ends_at));
        assert_eq!(ends(&second), [first.previous_access[0].ends_at, None]);
        let back = moved(same, &second, &planned("first")).unwrap();
        let users: Vec<_> =
            back.previous_access.iter().map(|previous| previous.user_name.as_deref().unwrap()).collect();
        assert_eq!(users, ["shop-photos-f30e0389", "second"], "the first role is not revoked");
        assert!(back.is_moving());
    }

    #[test]
    fn the_grace_period_begins_when_apps_have_the_new_access() {
        let moving = moved(same, &record(), &planned("role")).unwrap();
        assert_eq!((ends_in(&moving, NOW), ended(&moving, Timestamp::MAX).0), (None, Vec::new()));
        let (published, ends_at) = published(&moving, NOW);
        let ends_at = ends_at.unwrap();
        assert_eq!(ends_in(&published, NOW), Some(Rotation::DEFAULT_GRACE));
        assert!(!published.is_moving());
        assert_eq!(super::published(&published, ends_at), (published.clone(), None), "it is not prolonged");
        assert_eq!(ended(&published, NOW).0, Vec::new());
        let (over, rest) = ended(&published, ends_at);
        assert_eq!((over.len(), rest.previous_access.len()), (1, 0));
        assert_eq!(ends_in(&published, ends_at), Some(Duration::ZERO));
    }
}
