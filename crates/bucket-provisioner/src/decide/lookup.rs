//! Which ObjectBucket belongs to a claim. Pure.

use k8s_openapi::jiff::Timestamp;

use crate::api::{ObjectBucket, object_name};
use crate::decide::action::Action;
use crate::decide::claim::Claim;
use crate::decide::record::Stored;
use crate::decide::release::{Release, UndoRequest};
use crate::decide::{codec, record, release};
use crate::error::{CannotUndo, Error, KeptBucket, RecordProblem};

/// A name that a claim's record may have, with what was read under it.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) name: String,
    /// `None` if it does not exist; the error if it cannot be read.
    pub(crate) object: Option<Result<ObjectBucket, String>>,
}

/// What was found as the record of a claim.
#[derive(Debug)]
pub(crate) enum Found {
    /// Its record.
    Owned(Box<Stored>),
    /// Its record, but needed fields are missing; the text names them.
    Damaged { object: Box<ObjectBucket>, error: String },
    /// The record of a previous claim, which an admin gives to this one, or whose deletion this one undoes.
    ToAdopt(Box<Stored>),
    /// None, but the claim names a record that is not its own: the claim was restored or copied.
    Restored(RecordProblem),
    /// None; this name is free.
    None { free_name: String },
    /// None, but the claim asks for the bucket of a deleted claim, and does not get it.
    NothingToUndo { why: CannotUndo },
}

impl Found {
    /// Whether an admin allows the claim to move to the access that it names now.
    pub(crate) fn is_to_move(&self) -> bool {
        matches!(self, Self::Owned(stored) if stored.is_being_adopted())
    }
}

/// The names under which the record of a claim is searched. The name in the claim is only a hint, because a user can
/// write it: the uid in the record decides. `irregular`: other known records of a claim of this name.
pub(crate) fn names(claim: &Claim, irregular: Vec<String>) -> Vec<String> {
    let (plain, unique) = record::names(&claim.id);
    let hint = claim.named_record().and_then(object_name).map(str::to_owned);
    let mut names: Vec<_> = plain.into_iter().chain([unique]).chain(hint).chain(irregular).collect();
    let mut seen = std::collections::HashSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}

/// What else decides whose record it is.
pub(crate) struct Surroundings<'a, R> {
    /// UID of this cluster.
    pub(crate) cluster: &'a str,
    /// The name of this provisioner.
    pub(crate) provisioner: &'a str,
    /// Whether a record that no longer names its claim may belong to another claim.
    pub(crate) has_rival: R,
    /// Uid of the claim's namespace, if the claim asks for the bucket of a deleted one.
    pub(crate) namespace_uid: Option<&'a str>,
    /// When the claim was created.
    pub(crate) asked_at: Timestamp,
}

/// Finds the claim's record among the candidates.
///
/// # Errors
/// [`Error::RecordUnreadable`] if one of them may be the claim's, [`Error::RecordAmbiguous`] if it may also be another
/// claim's, [`Error::RecordTaken`] if even the name with the uid belongs to another claim.
pub(crate) fn look_up(
    claim: &Claim,
    candidates: Vec<Candidate>,
    surroundings: &Surroundings<'_, impl Fn(&ObjectBucket) -> bool>,
) -> Result<Found, Error> {
    let (plain, unique) = record::names(&claim.id);
    let is_free = |name: &str| candidates.iter().any(|c| c.name == name && c.object.is_none());
    let free_name = plain.filter(|name| is_free(name)).or_else(|| is_free(&unique).then(|| unique.clone()));
    let named = claim.named_record();
    let class = claim.spec().map(|spec| spec.storage_class_name.as_str()).unwrap_or_default();
    let request = UndoRequest { namespace_uid: surroundings.namespace_uid, class, asked_at: surroundings.asked_at };
    let (mut to_adopt, mut restored) = (None, None);
    let (mut to_undo, mut cannot_undo) = (Vec::new(), CannotUndo::NotScheduled);
    let undoes = |stored: &Stored| claim.undoes_deletion_of(&stored.name) && stored.release.is_some();
    for Candidate { name, object } in candidates {
        let is_named = named == Some(name.as_str());
        let object = match object {
            // It may be this claim's, so a second one must not be created.
            Some(Err(error)) => return Err(Error::RecordUnreadable { name, error }),
            Some(Ok(object)) => object,
            None if is_named => {
                restored = Some(RecordProblem::Missing { record: name });
                continue;
            }
            None => continue,
        };
        if record::is_owned(&object, claim, surroundings.cluster) {
            return Ok(mine(object, claim));
        }
        if record::seems_owned(&object, claim) {
            return match (surroundings.has_rival)(&object) {
                true => Err(Error::RecordAmbiguous { name }),
                false => Ok(mine(object, claim)),
            };
        }
        let is_predecessors = record::is_predecessors(&object, claim, surroundings.cluster);
        if !(is_predecessors && record::is_ours(&object, surroundings.provisioner)) {
            if is_named {
                restored = Some(RecordProblem::Foreign { record: name });
            }
            continue;
        }
        match codec::read(&object) {
            // The one that the claim names has precedence.
            Ok(stored) if may_adopt(&stored) && (is_named || to_adopt.is_none()) => {
                to_adopt = Some(Box::new(stored));
            }
            Ok(stored) if undoes(&stored) && !stored.is_restored() => match undo(&stored, &request) {
                Ok(()) => to_undo.push(stored),
                Err(why) => cannot_undo = why,
            },
            Ok(stored) if undoes(&stored) && !is_named => cannot_undo = CannotUndo::Restored,
            _ if is_named => restored = Some(RecordProblem::Predecessor { record: name }),
            _ => {}
        }
    }
    // Nothing can have this name.
    let nowhere = named.filter(|name| object_name(name).is_none());
    restored = restored.or(nowhere.map(|record| RecordProblem::NoName { record: record.to_owned() }));
    if to_adopt.is_none() && !to_undo.is_empty() {
        return Ok(one_of(to_undo));
    }
    match (to_adopt, restored, free_name) {
        (Some(stored), ..) => Ok(Found::ToAdopt(stored)),
        (None, Some(problem), _) => Ok(Found::Restored(problem)),
        (None, None, _) if claim.undoes() => Ok(Found::NothingToUndo { why: cannot_undo }),
        (None, None, Some(free_name)) => Ok(Found::None { free_name }),
        (None, None, None) => Err(Error::RecordTaken { name: unique }),
    }
}

/// Whether an admin wants a claim to adopt the record, and it is not too late.
fn may_adopt(stored: &Stored) -> bool {
    stored.action == Some(Action::Adopt) && !stored.release.as_ref().is_some_and(Release::is_final)
}

fn undo(stored: &Stored, request: &UndoRequest<'_>) -> Result<(), CannotUndo> {
    let release = stored.release.as_ref().ok_or(CannotUndo::NotScheduled)?;
    release.undo(request, &stored.record.class_name)
}

/// The bucket of the deleted claim. Nothing but the claim can identify the right one of several.
fn one_of(deleted: Vec<Stored>) -> Found {
    match <[_; 1]>::try_from(deleted) {
        Ok([stored]) => Found::ToAdopt(Box::new(stored)),
        Err(several) => {
            let mut kept: Vec<_> = several.into_iter().map(kept).collect();
            // The latest is most often the right one.
            kept.sort_by(|a, b| b.released_at.cmp(&a.released_at));
            Found::NothingToUndo { why: CannotUndo::Several { kept } }
        }
    }
}

fn kept(stored: Stored) -> KeptBucket {
    let released_at = stored.release.map(|release| release::text(release.at)).unwrap_or_default();
    KeptBucket { record: stored.name, bucket: stored.record.plan.bucket, released_at }
}

/// The claim's ObjectBucket with the reference to the claim, which some CRDs prune.
pub(crate) fn whole(object: ObjectBucket, claim: &Claim) -> ObjectBucket {
    let names_it = record::claim_uid(&object).is_some() && record::claim_name(&object).is_some();
    if names_it { object } else { codec::naming(&object, &claim.id) }
}

fn mine(object: ObjectBucket, claim: &Claim) -> Found {
    let whole = whole(object, claim);
    match codec::read(&whole) {
        Ok(mut stored) => {
            stored.claim_was_bound = stored.by_us() && claim.was_bound();
            Found::Owned(Box::new(stored))
        }
        Err(Error::RecordUnreadable { error, .. }) => Found::Damaged { object: Box::new(whole), error },
        Err(other) => Found::Damaged { object: Box::new(whole), error: other.to_string() },
    }
}

/// Namespaces and names of all claims whose record has this default name: it is the same for `team/prod-x` and
/// `team-prod/x`.
pub(crate) fn namesakes(record: &str) -> impl Iterator<Item = (&str, &str)> {
    let rest = record.strip_prefix("obc-").unwrap_or_default();
    rest.match_indices('-').filter_map(|(at, _)| Some((rest.get(..at)?, rest.get(at + 1..)?)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use rstest::rstest;

    use super::*;
    use crate::api::{ClaimPhase, Guard, ObjectBucketClaim, ObjectBucketClaimSpec, wire};
    use crate::decide::release::{Release, Retained, Schedule};
    use crate::decide::testing::record;
    use crate::store::{ClaimId, Record};

    const HERE: &str = "cluster-here";
    const PLAIN: &str = "obc-shop-photos";

    fn claim(uid: &str, names: Option<&str>) -> Claim {
        let spec = ObjectBucketClaimSpec {
            storage_class_name: "s3-buckets".into(),
            object_bucket_name: names.map(str::to_owned),
            ..ObjectBucketClaimSpec::default()
        };
        let mut object = ObjectBucketClaim::new("photos", spec);
        object.metadata.namespace = Some("shop".into());
        object.metadata.uid = Some(uid.into());
        Claim::read(&Guard(Ok(object)), "ours")
    }

    /// The ObjectBucket of a claim with this uid, created in this cluster.
    fn object(uid: &str, cluster: &str, action: Option<&str>) -> ObjectBucket {
        let record =
            Record { claim: ClaimId { uid: uid.into(), ..record().claim }, cluster: Some(cluster.into()), ..record() };
        let mut object = codec::to_object(&record, PLAIN, "ours");
        object.metadata.annotations =
            action.map(|value| [(wire::annotation::ORPHAN.to_owned(), value.to_owned())].into());
        object
    }

    fn find(claim: &Claim, at_plain: Option<ObjectBucket>) -> Result<Found, Error> {
        let (_, unique) = record::names(&claim.id);
        let mut candidates: Vec<_> =
            names(claim, Vec::new()).into_iter().map(|name| Candidate { name, object: None }).collect();
        assert!(candidates.iter().any(|c| c.name == unique));
        candidates[0].object = at_plain.map(Ok);
        look_up(claim, candidates, &surroundings())
    }

    fn surroundings() -> Surroundings<'static, impl Fn(&ObjectBucket) -> bool> {
        Surroundings {
            cluster: HERE,
            provisioner: "ours",
            has_rival: |_: &ObjectBucket| false,
            namespace_uid: Some("ns"),
            asked_at: at(50),
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    #[test]
    fn a_new_claim_with_the_name_of_a_previous_one_gets_a_record() {
        let found = find(&claim("new", None), Some(object("old", HERE, None))).unwrap();
        assert!(matches!(&found, Found::None { free_name } if free_name == "obc-shop-photos-new"), "{found:?}");
    }

    #[rstest]
    #[case::a_previous_claims(Some(object("old", HERE, None)))]
    #[case::one_of_another_cluster(Some(object("new", "elsewhere", None)))]
    #[case::no_record_at_all(None)]
    fn a_claim_that_names_a_foreign_record_gets_no_new_one(#[case] at_plain: Option<ObjectBucket>) {
        let found = find(&claim("new", Some(PLAIN)), at_plain).unwrap();
        assert!(matches!(found, Found::Restored(_)), "{found:?}");
    }

    #[rstest]
    #[case::a_claim_that_names_it(Some(PLAIN), "old", HERE)]
    #[case::a_claim_that_names_nothing(None, "old", HERE)]
    #[case::one_of_another_cluster(Some(PLAIN), "new", "elsewhere")]
    fn a_record_is_adopted_if_an_admin_requests_it(
        #[case] names: Option<&str>,
        #[case] uid: &str,
        #[case] cluster: &str,
    ) {
        let found = find(&claim("new", names), Some(object(uid, cluster, Some("adopt")))).unwrap();
        assert!(matches!(found, Found::ToAdopt(_)), "{found:?}");
        let other_word = find(&claim("new", Some(PLAIN)), Some(object(uid, cluster, Some("remove")))).unwrap();
        assert!(matches!(other_word, Found::Restored(_)), "{other_word:?}");
    }

    #[test]
    fn a_record_of_another_provisioner_is_not_adopted() {
        let mut foreign = object("old", HERE, Some("adopt"));
        foreign.metadata.labels = Some([(wire::PROVISIONER_LABEL.to_owned(), "theirs".to_owned())].into());
        let found = find(&claim("new", None), Some(foreign)).unwrap();
        assert!(matches!(found, Found::None { .. }), "{found:?}");
    }

    #[test]
    fn a_claims_own_record_is_found_whatever_else_exists() {
        let found = find(&claim("new", Some("obc-other")), Some(object("new", HERE, None))).unwrap();
        assert!(matches!(found, Found::Owned(_)), "{found:?}");
    }

    #[test]
    fn a_record_that_lost_its_state_is_damaged_and_nobody_elses() {
        let mut object = object("new", HERE, None);
        object.spec.additional_state = None;
        let found = find(&claim("new", None), Some(object)).unwrap();
        assert!(matches!(&found, Found::Damaged { error, .. } if error.contains("additionalState")), "{found:?}");
    }

    #[test]
    fn claims_with_the_same_default_name_are_found_by_it() {
        let all: Vec<_> = namesakes("obc-team-prod-x").collect();
        assert_eq!(all, [("team", "prod-x"), ("team-prod", "x")]);
    }

    /// The ObjectBucket of a claim that was deleted, whose bucket is deleted at 100.
    fn scheduled(name: &str, deleted_at: i64, namespace_uid: &str) -> ObjectBucket {
        let schedule = Schedule { at: at(100), namespace_uid: Some(namespace_uid.into()) };
        let release = Release { at: at(deleted_at), why: Retained::Scheduled(schedule), deleting: false };
        let mut object = object("old", HERE, None);
        object.metadata.name = Some(name.into());
        let patch = codec::release(&codec::read(&object).unwrap(), Some(&release));
        let written = patch["spec"]["additionalState"].as_object().unwrap().clone();
        let entries = written.into_iter().filter_map(|(key, value)| Some((key, value.as_str()?.to_owned())));
        object.spec.additional_state.as_mut().unwrap().extend(entries);
        object
    }

    fn undoing(uid: &str) -> Claim {
        let mut claim = claim(uid, None);
        claim.undo_request = Some("yes".into());
        claim
    }

    #[test]
    fn a_deleted_bucket_comes_back_at_the_request_of_its_claim_only() {
        let found = find(&undoing("new"), Some(scheduled(PLAIN, 0, "ns"))).unwrap();
        assert!(matches!(found, Found::ToAdopt(_)), "{found:?}");
        let found = find(&claim("new", None), Some(scheduled(PLAIN, 0, "ns"))).unwrap();
        assert!(matches!(found, Found::None { .. }), "without the annotation it gets a new one: {found:?}");
    }

    #[rstest]
    #[case::nothing_was_deleted(None, CannotUndo::NotScheduled)]
    #[case::a_later_namespace(Some(scheduled(PLAIN, 0, "previous")), CannotUndo::OtherNamespace)]
    #[case::a_claim_that_exists(Some(object("old", HERE, None)), CannotUndo::NotScheduled)]
    fn a_claim_that_cannot_undo_gets_no_new_bucket(#[case] at_plain: Option<ObjectBucket>, #[case] why: CannotUndo) {
        let found = find(&undoing("new"), at_plain).unwrap();
        assert!(matches!(found, Found::NothingToUndo { why: ref found } if *found == why), "{found:?}");
    }

    #[test]
    fn of_several_deleted_buckets_the_claim_has_to_name_one() {
        let candidate = |name: &str, deleted_at| Candidate {
            name: name.into(),
            object: Some(Ok(scheduled(name, deleted_at, "ns"))),
        };
        let candidates = || vec![candidate("obc-a", 1), candidate("obc-b", 9), candidate("obc-c", 5)];
        let found = look_up(&undoing("new"), candidates(), &surroundings()).unwrap();
        let Found::NothingToUndo { why: CannotUndo::Several { kept } } = found else { panic!("{found:?}") };
        assert_eq!(kept.iter().map(|kept| &*kept.record).collect::<Vec<_>>(), ["obc-b", "obc-c", "obc-a"]);
        assert_eq!(kept[0].released_at, release::text(at(9)));
        let mut named = claim("new", Some("obc-c"));
        named.undo_request = Some("yes".into());
        let Ok(Found::ToAdopt(stored)) = look_up(&named, candidates(), &surroundings()) else { panic!() };
        assert_eq!(stored.name, "obc-c");
    }

    #[test]
    fn a_claim_takes_the_deleted_bucket_of_no_other_claim() {
        let candidates = || {
            let free = |name: &str| Candidate { name: name.into(), object: None };
            vec![
                free(PLAIN),
                free("obc-mine"),
                Candidate { name: "obc-a".into(), object: Some(Ok(scheduled("obc-a", 1, "ns"))) },
            ]
        };
        let mut named = claim("new", Some("obc-mine"));
        named.undo_request = Some("yes".into());
        let found = look_up(&named, candidates(), &surroundings()).unwrap();
        assert!(matches!(found, Found::Restored(RecordProblem::Missing { .. })), "it names another: {found:?}");
        let mut bound = undoing("new");
        bound.status.phase = Some(ClaimPhase::Bound);
        let found = look_up(&bound, candidates(), &surroundings()).unwrap();
        assert!(!matches!(found, Found::ToAdopt(_)), "it has a bucket: {found:?}");
    }

    #[test]
    fn nothing_is_adopted_whose_deletion_has_begun() {
        let mut object = scheduled(PLAIN, 0, "ns");
        object.metadata.annotations = Some([(wire::annotation::ORPHAN.to_owned(), "adopt".to_owned())].into());
        assert!(matches!(find(&claim("new", None), Some(object.clone())), Ok(Found::ToAdopt(_))));
        let entries = object.spec.additional_state.as_mut().unwrap();
        entries.insert(wire::state::DELETION_STARTED.to_owned(), "true".to_owned());
        let found = find(&claim("new", None), Some(object)).unwrap();
        assert!(matches!(found, Found::None { .. }), "{found:?}");
    }
}
