//! Moving a claim to the access that its class gives now: from keys to a ServiceAccount, or from one ServiceAccount, cluster
//! or issuer to another. An admin allows it with the annotation `adopt`; the previous access ends after a grace period. Pure.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::api::ConditionStatus::{False, True};
use crate::decide::claim::Claim;
use crate::decide::keys::text;
use crate::decide::report::KeysCondition;
use crate::reasons;
use crate::store::{Plan, PreviousAccess, Record, Rotation};

/// The end of what apps never had.
const AT_ONCE: Timestamp = Timestamp::UNIX_EPOCH;

/// Longest list of previous access, each of which has to be revoked.
const MOST: usize = 8;

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
    if !is_same_bucket {
        return None;
    }
    let mut previous_access = recorded.previous_access.clone();
    let is_same = |previous: &PreviousAccess| is_same_access(&previous.record(recorded), planned);
    let again = previous_access.iter().position(is_same).map(|at| previous_access.remove(at));
    let keeps = is_same_access(recorded, planned);
    if !keeps {
        previous_access.push(PreviousAccess::of(recorded, next));
    }
    let rotation = match (&next.service_account, &again) {
        // It never had the new access, and has its keys.
        (None, Some(PreviousAccess { ends_at: None, .. })) => {
            previous_access.iter_mut().for_each(|previous| previous.ends_at = previous.ends_at.or(Some(AT_ONCE)));
            next.rotation
        }
        // Other keys are issued by a rotation.
        (None, _) => return None,
        // What it has works, or will. Otherwise, the class that it named before could not give it.
        (Some(_), _) if keeps && !(recorded.is_moving() && recorded.class_name != planned.class_name) => return None,
        (Some(_), _) => Rotation { every: None, ..before.rotation },
    };
    let plan = Plan {
        owner: next.owner.clone(),
        user: next.user.clone(),
        service_account: next.service_account.clone(),
        // Names of what it has there are those of that time.
        state: again.map_or_else(|| next.state.clone(), |again| again.state),
        outputs: next.outputs.clone(),
        rotation,
        ..before.clone()
    };
    let record = Record { class_name: planned.class_name.clone(), previous_access, plan, ..recorded.clone() };
    (record != *recorded && record.previous_access.len() <= MOST).then_some(record)
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

/// The condition KeysCurrent of a bound claim without keys; `None` if it never had others. `failure`: why previous access could
/// not be revoked.
pub(crate) fn condition(claim: &Claim, record: &Record, failure: Option<&str>) -> Option<KeysCondition> {
    let has_condition = claim.condition(reasons::KEYS_CURRENT).is_some();
    let condition = |status, reason, message| Some(KeysCondition { status, reason, message });
    let now = record.plan.identity().unwrap_or_default();
    let works = |previous: &PreviousAccess| {
        Some((previous.record(record).plan.identity()?, previous.ends_at.filter(|at| *at > AT_ONCE)?))
    };
    match (failure, record.previous_access.iter().rev().find_map(works)) {
        (Some(failure), _) => condition(False, reasons::CHECK_FAILED, failure.to_owned()),
        (None, Some((previous, ends_at))) => {
            let until = text(ends_at);
            let message = format!(
                "apps have access by {now}; the previous access ({previous}) works until {until}: before then, restart pods that still have it"
            );
            condition(True, reasons::ACCESS_MOVED, message)
        }
        (None, None) if has_condition && !record.is_moving() => condition(
            True,
            reasons::PREVIOUS_ACCESS_DELETED,
            format!("apps have access by {now}, and there is no other"),
        ),
        (None, None) => None,
    }
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
        let mut often = record();
        for number in 0..MOST {
            often = moved(same, &often, &planned(&number.to_string())).unwrap();
        }
        assert_eq!(moved(same, &often, &planned("once more")), None, "each has to be revoked");
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
        assert_eq!(back.plan.state, first.plan.state, "what it has there has the names of that time");
    }

    #[test]
    fn a_move_that_does_not_succeed_is_corrected_or_undone() {
        let moving = moved(same, &record(), &planned("role")).unwrap();
        assert_eq!(moved(same, &moving, &planned("role")), None);
        let mut corrected = Record { class_name: "corrected".into(), ..planned("role") };
        corrected.plan.state.insert("provider".into(), "another".into());
        let again = moved(same, &moving, &corrected).unwrap();
        assert_eq!((&again.plan.state, &again.previous_access), (&corrected.plan.state, &moving.previous_access));

        let with_keys = Record { class_name: "keys".into(), ..record() };
        let back = moved(same, &moving, &with_keys).unwrap();
        assert_eq!((&back.plan, back.is_moving()), (&record().plan, false), "its keys were never deleted");
        let over = ended(&back, NOW).0;
        assert_eq!(over[0].user_name.as_deref(), Some("role"), "it is revoked at once");
        let (published, _) = published(&moving, NOW);
        assert_eq!(moved(same, &published, &with_keys), None, "its apps no longer have keys");
        assert_eq!(moved(same, &published, &corrected), None);
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
