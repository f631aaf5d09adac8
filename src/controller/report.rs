//! What a claim says of itself: phase, conditions and events. Decides what changed (pure), then writes it.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Resource as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::claim::{Claim, Ignored};
use super::context::Context;
use super::decide::orphan::{self, Notice};
use super::decide::record::Author;
use super::error::{self, Error, FIELD_MANAGER, status_code};
use super::memory::{News, Told};
use super::state::conditions::Keeps;
use crate::api::{ClaimPhase, Condition, ConditionStatus, ObjectBucket, ObjectBucketClaimStatus, wire};
use crate::provisioner::{ClaimId, Failure, FailureClass};

/// Longest note of an event, in bytes (events.k8s.io/v1).
const MAX_NOTE: usize = 1024;

/// What there is to say of a claim.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    phase: ClaimPhase,
    ready: ConditionStatus,
    reason: &'static str,
    message: String,
    /// What the claim asks for and does not get.
    ignored: Ignored,
    severity: Severity,
    /// Name of the ObjectBucket that an admin has to mend: it is said of that one as well.
    damaged_record: Option<String>,
}

/// How an event is classed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    /// Things go as they should.
    Normal,
    /// Somebody should look.
    Warning,
    /// Progress: an event for the first report, none for those that follow.
    Progress,
}

impl Report {
    /// Everything is made and works.
    pub(crate) fn bound(bucket: &str, ignored: Ignored) -> Self {
        Self {
            phase: ClaimPhase::Bound,
            ready: ConditionStatus::True,
            reason: error::BOUND,
            message: format!(
                "bucket {bucket:?} is ready; Secret and ConfigMap of the claim's name hold what an app needs"
            ),
            ignored,
            severity: Severity::Normal,
            damaged_record: None,
        }
    }

    /// The store does not accept the new credentials yet.
    pub(crate) fn waiting_for_credentials(claim: &Claim, answer: &str) -> Self {
        Self {
            phase: if claim.bound() { ClaimPhase::Bound } else { ClaimPhase::Pending },
            ready: ConditionStatus::False,
            reason: error::WAITING_FOR_CREDENTIALS,
            message: format!(
                "the new credentials do not work yet ({answer}); this takes seconds on AWS, and is tried again"
            ),
            ignored: Ignored::default(),
            severity: Severity::Progress,
            damaged_record: None,
        }
    }

    /// A large bucket is being emptied.
    pub(crate) fn purging(claim: &Claim, bucket: &str, removed: u64) -> Self {
        Self {
            // Also emptied is what an edit of an unbound claim has made superfluous.
            phase: if claim.deleting { ClaimPhase::Released } else { ClaimPhase::Pending },
            ready: ConditionStatus::False,
            reason: error::PURGING,
            message: format!(
                "bucket {bucket:?} is being emptied before it is deleted; objects, versions and uploads removed so far: {removed}"
            ),
            ignored: Ignored::default(),
            severity: Severity::Progress,
            damaged_record: None,
        }
    }

    /// What was found is removed, and looked for once more.
    pub(crate) fn settling(claim: &Claim) -> Self {
        Self {
            phase: if claim.deleting { ClaimPhase::Released } else { ClaimPhase::Pending },
            ready: ConditionStatus::False,
            reason: error::SETTLING,
            message: "what was made so far is removed; the store may not show its newest things yet, so it is looked at once more in a few seconds".to_owned(),
            ignored: Ignored::default(),
            severity: Severity::Progress,
            damaged_record: None,
        }
    }

    /// Something is in the way. A claim that is bound stays Bound: what it was given still stands.
    pub(crate) fn problem(claim: &Claim, problem: &Error) -> Self {
        let phase = match (claim.deleting, claim.bound(), problem.class()) {
            (true, ..) => ClaimPhase::Released,
            (_, true, _) => ClaimPhase::Bound,
            (.., FailureClass::Terminal) => ClaimPhase::Failed,
            (.., FailureClass::Retryable) => ClaimPhase::Pending,
        };
        Self {
            phase,
            ready: ConditionStatus::False,
            reason: problem.reason(),
            message: problem.to_string(),
            ignored: Ignored::default(),
            severity: Severity::Warning,
            damaged_record: problem.damaged_record().map(str::to_owned),
        }
    }

    /// The status that says so, given the one that stands. Conditions of other types are kept.
    fn status(&self, current: &ObjectBucketClaimStatus, generation: Option<i64>, now: &str) -> ObjectBucketClaimStatus {
        let was = |type_: &str| current.conditions.iter().find(|c| c.type_ == type_);
        let condition = |type_: &str, status, reason: &str, message: &str| {
            let since = was(type_).filter(|c| c.status == status).and_then(|c| c.last_transition_time.clone());
            Condition {
                type_: type_.to_owned(),
                status,
                reason: reason.to_owned(),
                message: message.to_owned(),
                observed_generation: generation,
                last_transition_time: Some(since.unwrap_or_else(|| now.to_owned())),
            }
        };
        let mut conditions = vec![condition(error::READY, self.ready, self.reason, &self.message)];
        match outdated(&self.ignored) {
            Some((reason, message)) => {
                conditions.push(condition(error::UP_TO_DATE, ConditionStatus::False, reason, &message));
            }
            None if was(error::UP_TO_DATE).is_some() => {
                conditions.push(condition(error::UP_TO_DATE, ConditionStatus::True, error::BOUND, ""));
            }
            None => {}
        }
        let others = current.conditions.iter().filter(|c| c.type_ != error::READY && c.type_ != error::UP_TO_DATE);
        conditions.extend(others.cloned());
        ObjectBucketClaimStatus { phase: Some(self.phase), conditions }
    }
}

/// The conditions of an ObjectBucket that say what there is to say of it; `None` if they say so already.
pub(crate) fn noticed(current: &[Condition], notice: &Notice) -> Option<Vec<Condition>> {
    let Notice { orphaned, reason, message } = notice;
    let status = if *orphaned { ConditionStatus::True } else { ConditionStatus::False };
    let was = current.iter().find(|c| c.type_ == error::ORPHANED);
    match was {
        Some(was) if (was.status, was.reason.as_str(), was.message.as_str()) == (status, *reason, message) => {
            return None;
        }
        _ => {}
    }
    let since = was.filter(|was| was.status == status).and_then(|was| was.last_transition_time.clone());
    let says = Condition {
        type_: error::ORPHANED.to_owned(),
        status,
        reason: (*reason).to_owned(),
        message: message.clone(),
        observed_generation: None,
        last_transition_time: Some(since.unwrap_or_else(now)),
    };
    let others = current.iter().filter(|c| c.type_ != error::ORPHANED).cloned();
    Some(std::iter::once(says).chain(others).collect())
}

/// Whether the last thing said on an ObjectBucket is that an admin's word could not be followed.
pub(crate) fn is_refused(object: &ObjectBucket) -> bool {
    let conditions = object.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|c| c.type_ == error::ORPHANED && c.reason == orphan::reason::ACTION_REFUSED)
}

/// Whether two statuses say the same. The generation is left out: CRDs without a status subresource
/// raise it with every status that is written, and following it would never end.
fn same(a: &ObjectBucketClaimStatus, b: &ObjectBucketClaimStatus) -> bool {
    let said = |c: &Condition| (c.type_.clone(), c.status, c.reason.clone(), c.message.clone());
    a.phase == b.phase && a.conditions.iter().map(said).eq(b.conditions.iter().map(said))
}

/// Whether a claim is to have conditions. Those that the Go provisioner bound have none, and stay as they are.
pub(crate) fn keeps<P>(ctx: &Context<P>, author: Author) -> Keeps {
    match author {
        Author::Us => ctx.conditions.keeps(),
        Author::GoProvisioner => Keeps::No,
    }
}

/// Whether the claim says that all is well: by its Ready condition if the CRD keeps it, else by the phase alone.
pub(crate) fn says_ready(claim: &Claim, keeps: Keeps) -> bool {
    let ready = claim.status.conditions.iter().find(|c| c.type_ == error::READY);
    claim.bound() && ready.map_or(keeps != Keeps::Yes, |c| c.status == ConditionStatus::True)
}

/// Reason and message of the condition that says what of a claim has no effect.
fn outdated(ignored: &Ignored) -> Option<(&'static str, String)> {
    let Ignored { edit, config } = ignored;
    let reason = if edit.is_some() { error::EDIT_IGNORED } else { error::CONFIG_IGNORED };
    let said: Vec<&str> = [edit, config].into_iter().flatten().map(String::as_str).collect();
    (!said.is_empty()).then(|| (reason, said.join("; ")))
}

/// Whether the claim's status says already that it is bound, and all that is ignored of it.
pub(crate) fn says_bound(claim: &Claim, ignored: &Ignored, keeps: Keeps) -> bool {
    let said =
        claim.status.conditions.iter().find(|c| c.type_ == error::UP_TO_DATE && c.status == ConditionStatus::False);
    let says = |ignored: &Ignored| said.map(|c| &c.message) == outdated(ignored).map(|(_, message)| message).as_ref();
    // Where conditions may not stay, the settings are told once, when the claim is bound.
    let in_part = || keeps != Keeps::Yes && says(&Ignored { edit: ignored.edit.clone(), config: None });
    says_ready(claim, keeps) && (says(ignored) || in_part())
}

/// Puts a report on the claim: status, event and log line, each only if there is news in it.
///
/// # Errors
/// Kubernetes refused the status; with a conflict if the claim is not as it was read or as the operator left it.
/// A lost event is only logged.
pub(crate) async fn tell<P>(ctx: &Context<P>, claim: &Claim, report: &Report) -> Result<(), Error> {
    if claim.is_gone() {
        return Ok(());
    }
    let next = report.status(&claim.status, claim.generation, &now());
    let told =
        Told::new(report.reason, &format!("{}{}", report.message, outdated(&report.ignored).unwrap_or_default().1));
    let news = ctx.memory.news(&claim.id, &told);
    // What was told and did not come back was pruned by the CRD; only the phase is in all of them. Of a
    // claim that cannot be read, the status cannot be read either.
    let phase_stands = claim.status.phase == next.phase || claim.spec().is_err();
    // Where conditions are kept, one that is missing was dropped by somebody.
    let dropped = ctx.conditions.keeps() == Keeps::Yes && claim.status.conditions.is_empty();
    if news == News::None && !dropped && phase_stands || same(&claim.status, &next) {
        ctx.memory.told(&claim.id, told);
        return Ok(());
    }
    let severity = report.severity;
    if severity == Severity::Warning {
        tracing::warn!(reason = report.reason, "{}", report.message);
    } else {
        tracing::info!(reason = report.reason, "{}", report.message);
    }
    // What the cache shows may be long past, and another claim have the name by now. The resource version guards
    // against both; the API server does not compare the uid where a status is written.
    let version = ctx.memory.version(&claim.id).or_else(|| claim.resource_version.clone());
    let patch = json!({ "metadata": { "uid": claim.id.uid, "resourceVersion": version }, "status": next });
    let answer = patch_status(&ctx.claims_in(&claim.id.namespace), &claim.id.name, &patch).await;
    match answer {
        Ok(written) => {
            ctx.memory.wrote(&claim.id, written.meta().resource_version.as_deref());
            // Of a claim that cannot be read, the status cannot be read either.
            if let Ok(written) = &written.0 {
                ctx.conditions.written(written.status.as_ref().is_some_and(|status| !status.conditions.is_empty()));
            }
        }
        // Nobody is left to tell.
        Err(error) if status_code(&error) == Some(404) => return Ok(()),
        Err(error) => return Err(Error::kubernetes("write the claim's status")(error)),
    }
    ctx.memory.told(&claim.id, told);
    // A bound claim that is merely told of an ignored edit is not bound anew.
    let bound_before = claim.bound() && report.reason == error::BOUND;
    let further_progress = severity == Severity::Progress && news == News::Message;
    if !bound_before && !further_progress {
        event(ctx, &claim.id, severity, report.reason, &report.message).await;
    }
    if let Some(name) = &report.damaged_record {
        let uid = ctx.caches.records.object(name).and_then(|object| object.metadata.uid);
        record_event(ctx, name, uid.as_deref(), severity, report.reason, &report.message).await;
    }
    for (reason, ignored) in
        [(error::EDIT_IGNORED, &report.ignored.edit), (error::CONFIG_IGNORED, &report.ignored.config)]
    {
        if let Some(ignored) = ignored {
            event(ctx, &claim.id, Severity::Warning, reason, ignored).await;
        }
    }
    Ok(())
}

/// Publishes one event on a claim. Best effort: an event that is lost changes nothing.
///
/// kube's Recorder is not used because it folds events of one reason into the first one's text, and a
/// reason that stays while its cause changes ("access denied" to this, then to that) is what an admin
/// needs to see.
pub(crate) async fn event<P>(ctx: &Context<P>, claim: &ClaimId, severity: Severity, reason: &str, note: &str) {
    let about = ObjectReference {
        api_version: Some(wire::API_VERSION.to_owned()),
        kind: Some(wire::CLAIM_KIND.to_owned()),
        namespace: Some(claim.namespace.clone()),
        name: Some(claim.name.clone()),
        uid: Some(claim.uid.clone()),
        ..ObjectReference::default()
    };
    publish(ctx, about, severity, reason, note).await;
}

/// Publishes one event on an ObjectBucket. Best effort, as [`event`].
pub(crate) async fn record_event<P>(
    ctx: &Context<P>,
    name: &str,
    uid: Option<&str>,
    severity: Severity,
    reason: &str,
    note: &str,
) {
    let about = ObjectReference {
        api_version: Some(wire::API_VERSION.to_owned()),
        kind: Some(wire::RECORD_KIND.to_owned()),
        name: Some(name.to_owned()),
        uid: uid.map(str::to_owned),
        ..ObjectReference::default()
    };
    publish(ctx, about, severity, reason, note).await;
}

async fn publish<P>(ctx: &Context<P>, about: ObjectReference, severity: Severity, reason: &str, note: &str) {
    let event = event_about(about, severity, reason, note, &ctx.options.provisioner_name);
    let namespace = event.metadata.namespace.clone().unwrap_or_default();
    let api: Api<Event> = Api::namespaced(ctx.client.clone(), &namespace);
    if let Err(error) = api.create(&PostParams::default(), &event).await {
        tracing::debug!(%error, reason, "the event could not be written");
    }
}

/// Events on objects without a namespace stand in `default`, where `kubectl describe` looks for them.
fn event_about(about: ObjectReference, severity: Severity, reason: &str, note: &str, provisioner: &str) -> Event {
    let time = Timestamp::now();
    let (namespace, name) = (about.namespace.clone(), about.name.clone().unwrap_or_default());
    Event {
        metadata: ObjectMeta {
            namespace: Some(namespace.unwrap_or_else(|| "default".to_owned())),
            name: Some(format!("{name:.230}.{:x}", time.as_nanosecond())),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(time)),
        type_: Some(if severity == Severity::Warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(reason.to_owned()),
        note: Some(shorten(note, MAX_NOTE)),
        action: Some("Reconcile".to_owned()),
        regarding: Some(about),
        reporting_controller: Some(provisioner.to_owned()),
        reporting_instance: Some(provisioner.to_owned()),
        ..Event::default()
    }
}

/// Cuts text to at most `max` bytes, at a character's border.
fn shorten(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let end = (0..=max - 3).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    format!("{}...", text.get(..end).unwrap_or_default())
}

fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Writes a status; returns the object as it is then. Some CRDs have no status subresource, and answer
/// that with 404: there the status is a field like any other.
pub(crate) async fn patch_status<K>(api: &Api<K>, name: &str, patch: &Value) -> Result<K, kube::Error>
where
    K: kube::Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    patch_status_with(api, name, &params, patch).await
}

/// As [`patch_status`], with other parameters.
pub(crate) async fn patch_status_with<K>(
    api: &Api<K>,
    name: &str,
    params: &PatchParams,
    patch: &Value,
) -> Result<K, kube::Error>
where
    K: kube::Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    match api.patch_status(name, params, &Patch::Merge(patch)).await {
        Err(error) if status_code(&error) == Some(404) => api.patch(name, params, &Patch::Merge(patch)).await,
        answer => answer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn current() -> ObjectBucketClaimStatus {
        Report::bound("b", Ignored::default()).status(
            &ObjectBucketClaimStatus::default(),
            Some(1),
            "2026-01-01T00:00:00Z",
        )
    }

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let again = Report::bound("b", Ignored::default()).status(&current(), Some(2), "2026-02-02T00:00:00Z");
        assert_eq!(again.conditions[0].last_transition_time.as_deref(), Some("2026-01-01T00:00:00Z"));
        assert!(same(&current(), &again), "a new generation alone is no news");
    }

    #[test]
    fn an_ignored_edit_is_a_condition_of_its_own_and_goes_when_the_edit_is_undone() {
        let edited =
            Report::bound("b", Ignored { edit: Some("spec.x".into()), config: None }).status(&current(), Some(2), "t");
        assert_eq!(edited.phase, Some(ClaimPhase::Bound));
        assert_eq!(edited.conditions[1].status, ConditionStatus::False);
        let undone = Report::bound("b", Ignored::default()).status(&edited, Some(3), "t");
        assert_eq!(undone.conditions[1].status, ConditionStatus::True);
    }

    #[test]
    fn conditions_of_others_are_kept() {
        let mut status = current();
        let foreign = Condition { type_: "Audited".into(), ..status.conditions[0].clone() };
        status.conditions.push(foreign.clone());
        let next = Report::bound("b", Ignored::default()).status(&status, Some(1), "t");
        assert!(next.conditions.contains(&foreign));
    }

    #[test]
    fn a_long_note_is_cut_at_a_character() {
        let note = shorten(&"ä".repeat(1000), MAX_NOTE);
        assert!(note.len() <= MAX_NOTE && note.ends_with("..."), "{}", note.len());
    }
}
