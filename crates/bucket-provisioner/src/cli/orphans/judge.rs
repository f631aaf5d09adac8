//! Which resources are orphans, and which actions are possible. Pure.

use std::collections::{HashMap, HashSet};

use k8s_openapi::jiff::Timestamp;

use super::orphan::{Kind, Orphan};
use crate::api::{ObjectBucket, Unreadable, object_name, wire};
use crate::cli::view::Records;
use crate::decide::action::Action;
use crate::decide::claim::Claim;
use crate::decide::orphan::{self, Due, PresentClaim};
use crate::decide::record::{self, Stored};
use crate::decide::{codec, notice, teardown};
use crate::reasons::{self, orphaned as reason};
use crate::store::{ClaimId, Record, ResourceKind, TaggedResource};

/// The reason of a bucket or user that no ObjectBucket records.
pub(crate) const RECORD_MISSING: &str = "RecordMissing";

/// Whether an ObjectBucket may be an orphan. `claims`: by uid, from a list.
pub(crate) fn is_suspect(object: &ObjectBucket, cluster: &str, claims: &HashMap<&str, &ClaimId>) -> bool {
    let (Some(uid), Some(named)) = (record::claim_uid(object), record::claim_name(object)) else { return false };
    let is_claims = claims.get(uid).is_some_and(|claim| (claim.namespace.as_str(), claim.name.as_str()) == named);
    !(is_claims && is_here(object, cluster))
}

fn is_here(object: &ObjectBucket, cluster: &str) -> bool {
    record::cluster_uid(object).is_none_or(|recorded| recorded == cluster)
}

/// Whether an ObjectBucket is an orphan; `present` is the claim of the recorded name, read after it.
pub(crate) fn of_record(
    object: ObjectBucket,
    cluster: &str,
    present: Option<&PresentClaim>,
    now: Timestamp,
) -> Option<Orphan> {
    let (namespace, name) = record::claim_name(&object)?;
    let uid = record::claim_uid(&object)?.to_owned();
    let claim = ClaimId { namespace: namespace.to_owned(), name: name.to_owned(), uid };
    let annotation = object.metadata.annotations.as_ref().and_then(|all| all.get(wire::annotation::ORPHAN)).cloned();
    let stored = codec::read(&object);
    let notice = match &stored {
        Err(_) if present.is_some() => return None,
        Err(problem) => notice::damaged(&problem.to_string()),
        // Its claim exists in this cluster. Such an ObjectBucket is due only for its annotation or its deletion.
        Ok(_) if present.is_some_and(|present| present.uid == claim.uid) && is_here(&object, cluster) => return None,
        Ok(stored) => {
            let (action, vanished, refused, awaited) = (&Ok(None), false, false, true);
            let facts = orphan::OrphanFacts { stored, action, cluster, present, refused, vanished, awaited, now };
            match orphan::due(&facts) {
                Due::Report(notice) | Due::Wait { notice: Some(notice), .. } => notice,
                Due::DeleteBucket if notice::reports_bucket_in_use(&object) => notice::bucket_in_use(stored),
                Due::DeleteBucket => notice::in_progress(stored, true),
                Due::RevokeVanished => notice::in_progress(stored, false),
                _ => return None,
            }
        }
    };
    let deletes = stored.as_ref().is_ok_and(|stored| teardown::undo_now(stored) != teardown::Undo::Revoke);
    let remove = deletes.then_some(Action::Remove);
    let can_adopt = present.is_some_and(|claim| !claim.deleting && claim.has_record.is_none());
    let adopt = can_adopt.then_some(Action::Adopt);
    let actions: Vec<Action> = match notice.reason {
        reason::RECORD_DAMAGED => vec![Action::Forget],
        reason::OTHER_CLUSTER => adopt.into_iter().chain([Action::Forget]).collect(),
        reason::IN_PROGRESS => vec![Action::Forget],
        reason::SCHEDULED
        | reason::BUCKET_IN_USE
        | reason::BUCKET_NOT_EMPTY
        | reason::CLAIM_VANISHED
        | reason::BUCKET_CONFLICT => remove.into_iter().chain([Action::Forget]).chain(adopt).collect(),
        _ => [Action::Remove, Action::Revoke, Action::Forget].into_iter().chain(adopt).collect(),
    };
    let record = stored.ok().map(|stored| stored.record);
    Some(Orphan {
        bucket: record::bucket(&object).map(str::to_owned),
        user: record.as_ref().and_then(|record| record.plan.user.clone()),
        service_account: record.as_ref().and_then(service_account),
        account: record.and_then(|record| record.account),
        actions: actions.into_iter().map(Action::word).collect(),
        annotation,
        present_uid: present.map(|claim| claim.uid.clone()),
        ..Orphan::new(Kind::ObjectBucket, record::name(&object), claim, notice.reason, notice.message)
    })
    .map(|orphan| Orphan { object: Some(Box::new(object)), ..orphan })
}

/// Whether the tags name a claim that can exist. Whoever may tag a bucket can write anything there, and these names
/// become part of requests to Kubernetes.
pub(crate) fn names_a_claim(stock: &TaggedResource) -> bool {
    object_name(&stock.claim.namespace).is_some() && object_name(&stock.claim.name).is_some()
}

/// A bucket or user, with the index of the place in which it was found.
pub(crate) type Held = (usize, TaggedResource);

/// What no ObjectBucket records: of this cluster; and of another, or of one that the tags do not name. The same bucket or user can be found in two places.
pub(crate) fn unrecorded(
    held: impl IntoIterator<Item = Held>,
    recorded: &Records,
    cluster: &str,
) -> (Vec<Held>, Vec<Held>) {
    let mut seen = HashSet::new();
    let unrecorded = held.into_iter().filter(|(_, stock)| !recorded.names(stock));
    let once = unrecorded.filter(|(_, stock)| seen.insert((stock.kind, stock.name.clone(), stock.claim.uid.clone())));
    once.partition(|(_, stock)| stock.cluster.as_deref() == Some(cluster))
}

fn service_account(record: &Record) -> Option<String> {
    record.plan.service_account.as_ref().map(|account| account.name.clone())
}

/// Orphans of the store. `present`: the claim that now has the tagged name. A bucket and the access of the same claim are
/// one orphan, because one ObjectBucket can be rebuilt for both.
pub(crate) fn of_stock(
    stock: Vec<Held>,
    recorded: &Records,
    present: impl Fn(&ClaimId) -> Option<PresentClaim>,
    account: impl Fn(usize) -> Option<String>,
) -> Vec<Orphan> {
    let buckets: HashSet<_> =
        stock.iter().filter(|(_, s)| s.kind == ResourceKind::Bucket).map(|(_, s)| s.claim.uid.clone()).collect();
    let accesses: HashMap<_, _> = stock
        .iter()
        .filter(|(_, s)| s.kind != ResourceKind::Bucket)
        .map(|(_, s)| (s.claim.uid.clone(), (s.name.clone(), s.service_account.clone())))
        .collect();
    let is_second = |s: &TaggedResource| s.kind != ResourceKind::Bucket && buckets.contains(&s.claim.uid);
    let orphans = stock.into_iter().filter(|(_, s)| !is_second(s)).map(|(place, stock)| {
        let (is_bucket, access) = (stock.kind == ResourceKind::Bucket, accesses.get(&stock.claim.uid).cloned());
        let (user, service_account) = access.map_or((None, None), |(name, account)| (Some(name), account));
        let present = present(&stock.claim);
        let (message, actions) = judged(&stock, recorded, present.as_ref(), user.is_some());
        let kind = match stock.kind {
            ResourceKind::Bucket => Kind::Bucket,
            ResourceKind::User => Kind::User,
            ResourceKind::Role => Kind::Role,
        };
        let name = match &service_account {
            // The role is that of others, too.
            Some(account) if !is_bucket => format!("{}/{account}/{}", stock.claim.namespace, stock.claim.uid),
            _ => stock.name.clone(),
        };
        Orphan {
            bucket: is_bucket.then(|| stock.name.clone()),
            user,
            service_account,
            account: account(place),
            actions: actions.into_iter().map(Action::word).collect(),
            present_uid: present.map(|claim| claim.uid),
            place: Some(place),
            ..Orphan::new(kind, name, stock.claim, RECORD_MISSING, message)
        }
    });
    orphans.collect()
}

/// The problem of a bucket or user, and the possible actions.
fn judged(
    stock: &TaggedResource,
    recorded: &Records,
    present: Option<&PresentClaim>,
    has_user: bool,
) -> (String, Vec<Action>) {
    let TaggedResource { kind, claim, .. } = stock;
    let what = match kind {
        ResourceKind::Bucket => "bucket",
        ResourceKind::User => "user",
        ResourceKind::Role => "role",
    };
    let lost = match kind {
        ResourceKind::Role => {
            let (role, account) = (&stock.name, stock.service_account.as_deref().unwrap_or_default());
            let uid = &claim.uid;
            format!(
                "ServiceAccount {account:?} has access by role {role:?} for claim {claim} of this cluster (uid {uid})"
            )
        }
        _ => format!("the tags of this {what} name claim {claim} of this cluster (uid {})", claim.uid),
    };
    if !recorded.unreadable.is_empty() {
        let names = recorded.unreadable.iter().map(Unreadable::name).collect::<Vec<_>>().join(", ");
        let message = format!("{lost}, which an unreadable ObjectBucket may record; correct these first: {names}");
        return (message, Vec::new());
    }
    if let Some(record) = recorded.of_uid(&claim.uid).map(record::name) {
        let rest = if *kind == ResourceKind::Role { "access" } else { what };
        let message = format!(
            "{lost}, whose ObjectBucket {record:?} names another {what}; delete the {rest} by hand if nobody needs it"
        );
        return (message, Vec::new());
    }
    match present {
        Some(present) if present.uid == claim.uid => {
            let message = format!("{lost}, which exists without an ObjectBucket; a serving operator writes it again");
            (message, Vec::new())
        }
        Some(_) => {
            let message = format!(
                "{lost}, but another claim has that name now, and no ObjectBucket records it; if the claim was restored, the command `adopt` gives it back"
            );
            (message, possible_actions(*kind, has_user))
        }
        None => {
            let kept = match *kind == ResourceKind::Bucket && !has_user {
                true => {
                    "; no user or role of the claim was found, so perhaps the bucket was kept on purpose (reclaimPolicy Retain)"
                }
                false => "",
            };
            let message = format!("{lost}, which does not exist, and no ObjectBucket records it{kept}");
            (message, possible_actions(*kind, has_user))
        }
    }
}

/// Access without its bucket can only be revoked: the name of the bucket is not known.
fn possible_actions(kind: ResourceKind, has_user: bool) -> Vec<Action> {
    match kind {
        ResourceKind::User | ResourceKind::Role => vec![Action::Revoke],
        ResourceKind::Bucket if has_user => vec![Action::Remove, Action::Revoke],
        ResourceKind::Bucket => vec![Action::Remove],
    }
}

/// A claim that was bound and has no ObjectBucket.
pub(crate) fn of_claim(claim: &Claim, program: &str) -> Orphan {
    let (spec, claim) = (claim.spec().ok(), claim.id.clone());
    let bucket = spec.and_then(|spec| spec.bucket_name.clone());
    let record = spec.and_then(|spec| spec.object_bucket_name.as_deref()).map_or_else(
        || "its ObjectBucket no longer exists".to_owned(),
        |name| format!("it names ObjectBucket {name:?}, which no longer exists or belongs to a previous claim"),
    );
    let message =
        format!("claim {claim} was bound, but {record}; `{program} adopt {claim}` restores its access to the bucket");
    Orphan {
        bucket,
        ..Orphan::new(Kind::ObjectBucketClaim, claim.to_string(), claim, reasons::ADOPTION_NEEDED, message)
    }
}

/// A bound claim whose bucket does not exist, with the message of the store.
pub(crate) fn of_lost_bucket(stored: &Stored, reason: &str, message: String) -> Orphan {
    let service_account = service_account(&stored.record);
    let Record { claim, plan, account, .. } = stored.record.clone();
    Orphan {
        bucket: Some(plan.bucket),
        user: plan.user,
        service_account,
        account,
        ..Orphan::new(Kind::ObjectBucketClaim, claim.to_string(), claim, reason, message)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::api::Guard;
    use crate::decide::testing::record;

    const HERE: &str = "cluster-here";
    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn object(cluster: &str) -> ObjectBucket {
        codec::to_object(&Record { cluster: Some(cluster.into()), ..record() }, "obc-shop-photos", "ours")
    }

    fn stock(kind: ResourceKind, name: &str, uid: &str, cluster: Option<&str>) -> TaggedResource {
        TaggedResource::new(
            kind,
            name,
            ClaimId { namespace: "shop".into(), name: "photos".into(), uid: uid.into() },
            cluster.map(str::to_owned),
        )
    }

    fn may_name(recorded: &Records, orphan: &Orphan) -> bool {
        recorded.may_name(&orphan.claim.uid, orphan.bucket.as_ref(), orphan.user.as_ref())
    }

    fn present(uid: &str) -> PresentClaim {
        PresentClaim { uid: uid.into(), deleting: false, has_record: None, names_it: false, undoes: false }
    }

    #[test]
    fn an_object_bucket_is_an_orphan_by_the_rules_of_the_operator() {
        let judge = |cluster, present: Option<&PresentClaim>| of_record(object(cluster), HERE, present, NOW);
        assert!(judge(HERE, Some(&present(&record().claim.uid))).is_none());
        let gone = judge(HERE, None).unwrap();
        assert_eq!((gone.reason.as_str(), &*gone.actions), ("ClaimGone", &["remove", "revoke", "forget"][..]));
        let replaced = judge(HERE, Some(&present("new"))).unwrap();
        assert!(replaced.reason == "ClaimReplaced" && replaced.allows(Action::Adopt));
        let has_own = PresentClaim { has_record: Some("obc".into()), ..present("new") };
        assert!(!judge(HERE, Some(&has_own)).unwrap().allows(Action::Adopt));
        let foreign = judge("elsewhere", Some(&present("new"))).unwrap();
        assert_eq!(foreign.actions, ["adopt", "forget"], "nothing is removed from here");
    }

    #[test]
    fn what_is_recorded_or_of_another_cluster_is_not_an_orphan() {
        let recorded = Records::of([Guard(Ok(object(HERE)))]);
        let plan = record().plan;
        let held = [
            stock(ResourceKind::Bucket, &plan.bucket, "any", Some(HERE)),
            stock(ResourceKind::User, plan.user.as_deref().unwrap(), "any", Some(HERE)),
            stock(ResourceKind::Bucket, "lost", "u1", Some(HERE)),
            stock(ResourceKind::Bucket, "lost", "u1", Some(HERE)),
            stock(ResourceKind::Bucket, "theirs", "u1", Some("elsewhere")),
            stock(ResourceKind::Bucket, "unknown", "u1", None),
        ];
        let (here, elsewhere) = unrecorded(held.into_iter().map(|stock| (0, stock)), &recorded, HERE);
        let names = |all: Vec<Held>| all.into_iter().map(|(_, one)| one.name).collect::<Vec<_>>();
        assert_eq!((names(here), names(elsewhere)), (vec!["lost".into()], vec!["theirs".into(), "unknown".into()]));
    }

    // While the claim exists, no action is possible.
    #[test]
    fn a_bucket_and_its_user_are_one_orphan() {
        let both = || {
            let kinds = [(ResourceKind::Bucket, "b"), (ResourceKind::User, "u")];
            kinds.map(|(kind, name)| (0, stock(kind, name, "u1", Some(HERE)))).to_vec()
        };
        let judge =
            |stock, claim: Option<PresentClaim>| of_stock(stock, &Records::default(), |_| claim.clone(), |_| None);
        let lost = judge(both(), None);
        assert_eq!((lost.len(), lost[0].user.as_deref(), &*lost[0].actions), (1, Some("u"), &["remove", "revoke"][..]));
        assert!(judge(both(), Some(present("u1")))[0].actions.is_empty());
        let user = vec![(0, stock(ResourceKind::User, "u", "u1", Some(HERE)))];
        assert_eq!(judge(user, None)[0].actions, ["revoke"]);
    }

    #[test]
    fn tags_that_name_no_valid_claim_are_skipped() {
        let named = |namespace: &str, name: &str| {
            names_a_claim(&TaggedResource::new(
                ResourceKind::Bucket,
                "b",
                ClaimId { namespace: namespace.into(), name: name.into(), uid: "u1".into() },
                None,
            ))
        };
        assert!(named("shop", "photos"));
        for (namespace, name) in
            [("", "photos"), ("shop", ""), ("..", "photos"), ("shop", "a/../../x"), ("shop", "a?b")]
        {
            assert!(!named(namespace, name), "{namespace}/{name}");
        }
    }

    // It may record any of them.
    #[test]
    fn an_unreadable_object_bucket_blocks_all_removals() {
        let text = r#"{ "metadata": { "name": "obc-torn" }, "spec": "torn" }"#;
        let recorded = Records::of([serde_json::from_str(text).unwrap()]);
        let lost = vec![(0, stock(ResourceKind::Bucket, "b", "u1", Some(HERE)))];
        let orphan = of_stock(lost, &recorded, |_| None, |_| None).remove(0);
        assert!(orphan.actions.is_empty() && orphan.message.contains("obc-torn"), "{orphan:?}");
        assert!(may_name(&recorded, &orphan));
    }

    #[test]
    fn an_object_bucket_written_meanwhile_names_the_orphan() {
        let lost = |uid, bucket: &str| {
            of_stock(
                vec![(0, stock(ResourceKind::Bucket, bucket, uid, Some(HERE)))],
                &Records::default(),
                |_| None,
                |_| None,
            )
            .remove(0)
        };
        let recorded = Records::of([Guard(Ok(object(HERE)))]);
        assert!(!may_name(&recorded, &lost("u1", "b")));
        assert!(may_name(&recorded, &lost("u1", &record().plan.bucket)));
        assert!(may_name(&recorded, &lost(&record().claim.uid, "b")));
    }

    #[test]
    fn deleting_what_a_clone_or_a_claim_may_use_is_a_risk() {
        let mut of_go = object(HERE);
        of_go.spec.additional_state.as_mut().unwrap().remove(wire::state::CLUSTER_UID);
        let of_go = of_record(of_go, HERE, None, NOW).unwrap();
        let waited_for = of_record(object(HERE), HERE, Some(&present("new")), NOW).unwrap();
        for orphan in [of_go, waited_for] {
            assert!(orphan.risk(Action::Remove).is_some() && orphan.risk(Action::Revoke).is_some(), "{orphan:?}");
            assert!(orphan.risk(Action::Forget).is_none() && orphan.risk(Action::Adopt).is_none());
        }
        assert_eq!(of_record(object(HERE), HERE, None, NOW).unwrap().risk(Action::Remove), None);
    }
}
