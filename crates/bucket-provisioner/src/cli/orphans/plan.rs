//! The plan for an action on an orphan: the ObjectBucket to annotate, and what the operator will do.

use indicatif::HumanBytes;

use super::find::Found;
use super::judge::RECORD_MISSING;
use super::orphan::{Kind, Orphan};
use super::places::planned;
use crate::api::ObjectBucket;
use crate::cli::annotate::{self, Annotation};
use crate::cli::disposition::{Disposition, on_removal};
use crate::cli::output::counted;
use crate::cli::session::{Session, refused};
use crate::cli::usage;
use crate::cli::view::Classes;
use crate::controller::of_tags;
use crate::decide::action::Action;
use crate::decide::claim::WantedBucket;
use crate::decide::class::Class;
use crate::decide::record::{self, Stored};
use crate::decide::sample::has_same_credentials;
use crate::decide::{codec, notice, teardown};
use crate::reasons::orphaned::OTHER_CLUSTER;
use crate::store::{Mode, Provisioner, ReclaimPolicy, Record};

/// One action on one orphan.
pub(crate) struct Planned {
    pub(crate) orphan: Orphan,
    pub(crate) annotation: Annotation,
    effects: Vec<Disposition>,
    /// The record whose bucket the action may delete.
    deletable: Option<Box<Record>>,
    /// What is in the bucket that will be deleted, unless it is certainly empty.
    content: Option<String>,
}

impl AsRef<Annotation> for Planned {
    fn as_ref(&self) -> &Annotation {
        &self.annotation
    }
}

impl Planned {
    /// The bucket, if it has content and will be deleted.
    pub(crate) fn full_bucket(&self) -> Option<&str> {
        self.content.as_ref().and(self.deletable.as_ref()).map(|record| record.plan.bucket.as_str())
    }

    /// The lines that the admin reads before anything is done.
    pub(crate) fn lines(&self) -> Vec<String> {
        let Self { orphan, annotation, effects, content, .. } = self;
        let (action, object) = (annotation.action, &annotation.object);
        let mut lines = vec![format!("{} {:?} {}", action.word(), orphan.kind, orphan.name)];
        if annotation.is_new {
            let class = object.spec.storage_class_name.as_deref().unwrap_or_default();
            lines.push(format!(
                "  writes the lost ObjectBucket {:?} again, with the settings of StorageClass {class:?}",
                annotation.record()
            ));
        }
        lines.extend(effects.iter().map(|disposition| format!("  {disposition}")));
        if let (Some(bucket), Some(content)) = (self.full_bucket(), content) {
            lines.push(format!("  bucket {bucket:?} has content: {content}"));
        }
        lines.extend(orphan.risk(action).map(|risk| format!("  warning: {risk}")));
        lines
    }

    /// Requires that a bucket that was empty in the plan is still empty: the admin has confirmed nothing else.
    ///
    /// # Errors
    /// It is not empty, or that is not known; a sentence for the admin.
    pub(crate) async fn require_still_empty<P: Provisioner>(&self, session: &Session<P>) -> Result<(), String> {
        let Some(record) = self.deletable.as_ref().filter(|_| self.content.is_none()) else { return Ok(()) };
        let bucket = &record.plan.bucket;
        match content(session, record).await {
            None => Ok(()),
            Some(content) => {
                Err(format!("bucket {bucket:?} was empty and has content now: {content}; {}", annotate::CHANGED))
            }
        }
    }
}

/// Plans an action on an orphan.
///
/// # Errors
/// The action is not possible; a sentence for the admin.
pub(crate) async fn plan<P: Provisioner>(
    session: &Session<P>,
    found: &Found,
    classes: &Classes,
    (orphan, action): (Orphan, Action),
    class: Option<&str>,
) -> Result<Planned, String> {
    if !orphan.allows(action) {
        let possible = if orphan.actions.is_empty() { "none".to_owned() } else { orphan.actions.join(", ") };
        let action = action.word();
        let problem = notice::without_values(&orphan.message);
        return Err(format!("{action} is not possible; possible actions: {possible}; {problem}"));
    }
    let (object, is_new) = match &orphan.object {
        Some(object) => ((**object).clone(), false),
        None => (lost(session, found, classes, &orphan, class).await?, true),
    };
    let stored = codec::read(&object);
    let mut effects = effects(stored.as_ref().ok(), action, &orphan);
    if is_new && orphan.kind == Kind::Bucket && action == Action::Remove {
        as_lost(&mut effects, &orphan, object.spec.storage_class_name.as_deref().unwrap_or_default());
    }
    let deletable = stored.ok().filter(|stored| action == Action::Remove && may_delete(stored));
    let deletable = deletable.map(|stored| Box::new(stored.record));
    let content = match &deletable {
        Some(record) => content(session, record).await,
        None => None,
    };
    let annotation = Annotation { action, claim: orphan.claim.clone(), object, is_new };
    Ok(Planned { orphan, annotation, effects, deletable, content })
}

/// Whether `remove` may delete the bucket. For an ObjectBucket of the Go provisioner, the operator decides that by the
/// class.
fn may_delete(stored: &Stored) -> bool {
    !stored.by_us() || teardown::undo_now(stored) == teardown::Undo::Delete
}

fn effects(stored: Option<&Stored>, action: Action, orphan: &Orphan) -> Vec<Disposition> {
    let bucket = orphan.bucket.as_ref().map(|bucket| format!("bucket {bucket:?}"));
    let mut removed = stored.map(on_removal).unwrap_or_default();
    match action {
        Action::Remove => removed,
        Action::Revoke => {
            let access = removed.drain(1.min(removed.len())..);
            access.chain(bucket.map(|what| Disposition::kept(what, "revoke deletes only the access"))).collect()
        }
        Action::Forget => {
            let mut effects = forgotten(stored, orphan);
            effects.insert(0, Disposition::deleted("the ObjectBucket", "nothing else"));
            effects
        }
        Action::Adopt => {
            let kept = |what| {
                Disposition::kept(format!("{what} and the access to it"), format!("claim {} gets it", orphan.claim))
            };
            bucket.map(kept).into_iter().collect()
        }
    }
}

/// Of a bucket without an ObjectBucket, nothing is known but its class and what was found with it.
fn as_lost(effects: &mut [Disposition], orphan: &Orphan, class: &str) {
    if let Some(bucket) = effects.first_mut().filter(|bucket| bucket.is_deleted) {
        bucket.why = format!("the reclaimPolicy of StorageClass {class:?} is Delete");
    }
    if let Some(access) = effects.get_mut(1).filter(|access| access.is_deleted && !orphan.has_access()) {
        access.what.push_str(", if it still exists");
    }
}

/// What `forget` keeps. Buckets and users with tags of a claim of this cluster are orphans again, without an
/// ObjectBucket.
fn forgotten(stored: Option<&Stored>, orphan: &Orphan) -> Vec<Disposition> {
    // The Go provisioner writes no tags.
    let has_tags = orphan.reason != OTHER_CLUSTER && stored.is_none_or(|stored| stored.by_us());
    let is_created = stored.is_none_or(|stored| stored.record.plan.mode == Mode::Created);
    let kept = |kind: &str, name: &String, is_listed: bool| {
        let listed = format!(
            "; from then on `orphans` lists it without an ObjectBucket ({RECORD_MISSING}), until it is deleted or its tags are removed"
        );
        let why = format!("it stays as it is{}", if is_listed { &listed } else { "" });
        Disposition::kept(format!("{kind} {name:?}"), why)
    };
    let bucket = orphan.bucket.as_ref().map(|bucket| kept("bucket", bucket, has_tags && is_created));
    let what = if orphan.service_account.is_some() { "role" } else { "user" };
    let user = orphan.user.as_ref().map(|user| kept(what, user, has_tags));
    bucket.into_iter().chain(user).collect()
}

/// How much is in a bucket; `None` if it is certainly empty.
async fn content<P: Provisioner>(session: &Session<P>, record: &Record) -> Option<String> {
    Some(match usage::usage(session, record).await {
        Ok(Some(usage)) if usage.is_complete && usage.objects == 0 => return None,
        Ok(Some(usage)) => {
            let at_least = if usage.is_complete { "" } else { "at least " };
            let objects = counted(usage.objects, "object", "objects and versions");
            format!("{at_least}{objects}, {}", HumanBytes(usage.bytes))
        }
        Ok(None) => "not known, because this store does not report it".to_owned(),
        Err(problem) => format!("not known ({})", problem.why),
    })
}

/// The lost ObjectBucket of a bucket or user, rebuilt.
async fn lost<P: Provisioner>(
    session: &Session<P>,
    found: &Found,
    classes: &Classes,
    orphan: &Orphan,
    class: Option<&str>,
) -> Result<ObjectBucket, String> {
    let class = choose(session, found, classes, orphan, class)?;
    let record = match (orphan.kind, &orphan.bucket) {
        (Kind::Bucket, Some(bucket)) => {
            let recorded = WantedBucket::Recorded(bucket.clone());
            let asked = (&recorded, orphan.service_account.as_deref());
            let known = of_tags(&session.client, &session.store, &class, orphan.claim.clone(), asked).await;
            known.map_err(|problem| problem.to_string())?
        }
        _ => of_user(session, &class, orphan, &found.cluster)?,
    };
    if record.cluster.as_ref() != Some(&found.cluster) || record.claim.uid != orphan.claim.uid {
        return Err("its tags have changed since; run the command again".to_owned());
    }
    let (plain, unique) = record::names(&record.claim);
    let name = match plain {
        Some(plain) => {
            let taken = session.all::<ObjectBucket>().get_metadata_opt(&plain).await;
            let taken = taken.map_err(refused("read an ObjectBucket"))?;
            if taken.is_none() { plain } else { unique }
        }
        None => unique,
    };
    Ok(codec::to_object(&record, &name, &session.provisioner))
}

/// The record of a user whose bucket is no longer known. It records that the bucket existed before the claim, so that
/// the operator deletes no bucket for it, but only the user, if its tags name the claim.
fn of_user<P: Provisioner>(
    session: &Session<P>,
    class: &Class,
    orphan: &Orphan,
    cluster: &str,
) -> Result<Record, String> {
    let mut record = planned_for(session, class, orphan)?;
    (record.plan.mode, record.reclaim_policy) = (Mode::Granted, ReclaimPolicy::Retain);
    record.plan.user.clone_from(&orphan.user);
    (record.cluster, record.account) = (Some(cluster.to_owned()), orphan.account.clone());
    Ok(record)
}

fn planned_for<P: Provisioner>(session: &Session<P>, class: &Class, orphan: &Orphan) -> Result<Record, String> {
    // A bucket that is alone was of any class. What has a user was of a class with keys.
    let nobody = if orphan.user.is_none() { "nobody" } else { "" };
    let account = orphan.service_account.as_deref().unwrap_or(nobody);
    planned(&session.store, class, orphan.claim.clone(), account)
}

/// Whether a record is of the store and account of a place. A class with keys and one without are at the same.
fn is_at(record: &Record, place: &Record) -> bool {
    let is_keyless = |record: &Record| record.plan.service_account.is_some();
    match is_keyless(record) == is_keyless(place) {
        true => has_same_credentials(record, place),
        false => (&record.plan.owner, &record.plan.endpoint) == (&place.plan.owner, &place.plan.endpoint),
    }
}

/// The class with whose settings the lost ObjectBucket is rebuilt. If the admin names none, a class of that store that
/// retains buckets is preferred.
fn choose<P: Provisioner>(
    session: &Session<P>,
    found: &Found,
    classes: &Classes,
    orphan: &Orphan,
    wanted: Option<&str>,
) -> Result<Class, String> {
    let place = orphan.place.and_then(|place| found.places.get(place)).ok_or("its store and account are unknown")?;
    let fits = |class: &Class| {
        wanted.is_none_or(|wanted| wanted == class.name)
            && planned_for(session, class, orphan).is_ok_and(|record| {
                // The name of a role is a digest of what the class sets for it.
                let has_role = orphan.service_account.is_none() || record.plan.user == orphan.user;
                is_at(&record, &place.record)
                    && has_role
                    && (orphan.kind != Kind::Bucket || record.plan.mode == Mode::Created)
            })
    };
    let mut fitting: Vec<_> = classes.served_by(&session.provisioner).map(Class::read).filter(fits).collect();
    fitting.sort_by_key(|class| class.reclaim_policy != ReclaimPolicy::Retain);
    match (fitting.first(), wanted) {
        (Some(class), _) => Ok(class.clone()),
        (None, Some(wanted)) => Err(format!("StorageClass {wanted:?} has another store, account or mode")),
        (None, None) => Err(format!(
            "no StorageClass of {} creates buckets in that store and account; create one, or delete it by hand",
            session.provisioner
        )),
    }
}
