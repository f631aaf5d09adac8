//! Annotates orphans with the actions that the admin chooses, after the plan was shown and confirmed.

use std::error::Error;
use std::process::ExitCode;

use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use serde_json::json;

use super::find::{self, Found};
use super::judge;
use super::orphan::Orphan;
use super::plan::{self, Planned};
use super::recorded::Recorded;
use super::{FOUND, OrphansArgs, Wanted, show};
use crate::cli::annotate::{self, ActionArg, ActionStatus, OperatorStatus, PendingAnnotation};
use crate::cli::output::{self, Format, clean};
use crate::cli::prompt;
use crate::cli::session::Session;
use crate::decide::action::Action;
use crate::decide::record;
use crate::store::Provisioner;
use clap::ValueEnum as _;
use operator_runtime::program::print;

/// The result for one orphan; the variants are on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    /// The operator has applied the action.
    Done,
    /// The ObjectBucket is annotated, and the command did not wait.
    Asked,
    /// Skipped.
    Left,
    /// The operator has not applied the action in time.
    Waiting,
    /// The action cannot be applied.
    Failed,
}

#[derive(Debug, Serialize)]
struct ActionResult {
    name: String,
    action: Option<&'static str>,
    outcome: Outcome,
    message: String,
}

/// Prints progress, and collects the results.
struct Report {
    format: Format,
    results: Vec<ActionResult>,
}

impl Report {
    /// Prints to standard error if the format is JSON or YAML: standard output is for the document then.
    fn print_line(&self, text: &str) -> Result<(), Box<dyn Error>> {
        let text = clean(text);
        match self.format {
            Format::Table | Format::Wide => print(&(text + "\n")),
            Format::Json | Format::Yaml => {
                eprintln!("{text}");
                Ok(())
            }
        }
    }

    fn add(
        &mut self,
        orphan: &Orphan,
        action: Option<Action>,
        outcome: Outcome,
        why: String,
    ) -> Result<(), Box<dyn Error>> {
        let colon = if why.is_empty() { "" } else { ": " };
        let (kind, result) = (show::kind(orphan.kind), serde_json::to_value(outcome)?);
        self.print_line(&format!("{kind} {}: {}{colon}{why}", orphan.name, result.as_str().unwrap_or("")))?;
        let (name, action) = (orphan.name.clone(), action.map(Action::word));
        self.results.push(ActionResult { name, action, outcome, message: why });
        Ok(())
    }

    fn end(self) -> Result<ExitCode, Box<dyn Error>> {
        let results = &self.results;
        if let Some(text) = output::document(&json!({ "results": results }), self.format)? {
            print(&text)?;
        }
        Ok(match results.iter().map(|result| result.outcome).max() {
            None | Some(Outcome::Done | Outcome::Asked) => ExitCode::SUCCESS,
            Some(Outcome::Left) => ExitCode::from(FOUND),
            Some(Outcome::Waiting | Outcome::Failed) => ExitCode::FAILURE,
        })
    }
}

/// Asks for the actions, shows the plan, asks for confirmation, and annotates the ObjectBuckets.
///
/// # Errors
/// Kubernetes refused, or standard input cannot be read.
pub(crate) async fn apply<P: Provisioner>(
    session: &Session<P>,
    mut found: Found,
    args: &OrphansArgs,
) -> Result<ExitCode, Box<dyn Error>> {
    let wanted = &args.wanted;
    let mut report = Report { format: args.output, results: Vec::new() };
    let orphans = chosen(&mut found, wanted)?;
    if orphans.is_empty() {
        report.print_line(show::none(&found))?;
    }
    let classes = session.classes().await?;
    let mut plans = Vec::new();
    for orphan in orphans {
        let Some(action) = choose_action(&mut report, &orphan, wanted)? else { continue };
        match plan::plan(session, &found, &classes, (orphan.clone(), action), wanted.class.as_deref()).await {
            Ok(planned) => plans.push(planned),
            Err(why) => report.add(&orphan, Some(action), Outcome::Left, why)?,
        }
    }
    let plans = require_operator(session, &mut report, plans, wanted).await?;
    let plans = confirmed(&mut report, plans, wanted)?;
    let recorded = match plans.iter().any(|planned| planned.is_new) {
        true => find::recorded(session).await?,
        false => Recorded::default(),
    };
    let (mut annotated, mut pending) = (Vec::new(), Vec::new());
    for planned in plans {
        match annotate_one(session, &planned, &found.cluster, &recorded).await {
            Ok(annotation) => {
                annotated.push(planned);
                pending.push(annotation);
            }
            Err(why) => report.add(&planned.orphan, Some(planned.action), Outcome::Failed, why)?,
        }
    }
    wait(session, &mut report, (&annotated, &pending), wanted).await?;
    report.end()
}

/// Warns if no operator serves. Without confirmation, deletions are skipped then: the operator would apply them
/// whenever it starts, perhaps long after the command.
async fn require_operator<P: Provisioner>(
    session: &Session<P>,
    report: &mut Report,
    plans: Vec<Planned>,
    wanted: &Wanted,
) -> Result<Vec<Planned>, Box<dyn Error>> {
    if plans.is_empty() {
        return Ok(plans);
    }
    let operator = annotate::operator_status(session).await;
    if let Some(warning) = operator.warning() {
        report.print_line(warning)?;
    }
    if !(wanted.yes && wanted.wait && matches!(operator, OperatorStatus::Absent(_))) {
        return Ok(plans);
    }
    let deletes = |planned: &Planned| matches!(planned.action, Action::Remove | Action::Revoke);
    let (refused, rest): (Vec<_>, Vec<_>) = plans.into_iter().partition(deletes);
    for planned in refused {
        let why = "no operator serves, so the action would be applied at an unknown later time; start the operator, or add --wait=false";
        report.add(&planned.orphan, Some(planned.action), Outcome::Left, why.to_owned())?;
    }
    Ok(rest)
}

/// The orphans that the admin selects.
fn chosen(found: &mut Found, wanted: &Wanted) -> Result<Vec<Orphan>, String> {
    let mut orphans = std::mem::take(&mut found.orphans);
    if let Some(unknown) = wanted.only.iter().find(|name| !orphans.iter().any(|orphan| orphan.name == **name)) {
        return Err(format!("{unknown:?} is not an orphan; run the command without --apply to see which there are"));
    }
    // Scheduled deletions need no action, and users can undo them: they are selected only by name.
    orphans.retain(|orphan| match wanted.only.is_empty() {
        true => orphan.needs_decision(),
        false => wanted.only.contains(&orphan.name),
    });
    Ok(orphans)
}

/// The action for an orphan; `None` if it is skipped.
fn choose_action(report: &mut Report, orphan: &Orphan, wanted: &Wanted) -> Result<Option<Action>, Box<dyn Error>> {
    if let Some(annotation) = &orphan.annotation {
        let why = format!("it is annotated with {annotation:?} already");
        return report.add(orphan, None, Outcome::Left, why).map(|()| None);
    }
    if orphan.actions.is_empty() {
        return report.add(orphan, None, Outcome::Left, orphan.message.clone()).map(|()| None);
    }
    if let Some(action) = wanted.action {
        let action = action.action();
        return match orphan.risk(action).filter(|_| orphan.allows(action) && !wanted.only.contains(&orphan.name)) {
            Some(risk) => {
                let why = format!("{risk}; to apply the action anyway, add --only {}", orphan.name);
                report.add(orphan, Some(action), Outcome::Left, why).map(|()| None)
            }
            None => Ok(Some(action)),
        };
    }
    let name = format!("{} {}", show::kind(orphan.kind), orphan.name);
    report.print_line(&format!("{name}: {}", orphan.message))?;
    let actions = orphan.actions.join(", ");
    let question = format!("Which action for {}? ({actions}; Enter skips it):", clean(&orphan.name));
    let answer = prompt::read_line(&question)?;
    match ActionArg::from_str(&answer, false) {
        Ok(action) if orphan.allows(action.action()) => Ok(Some(action.action())),
        _ => {
            let why = match answer.is_empty() {
                true => "skipped".to_owned(),
                false => format!("{answer:?} is not one of these actions: {actions}"),
            };
            report.add(orphan, None, Outcome::Left, why).map(|()| None)
        }
    }
}

/// Shows the plan, and keeps the part that the admin confirms.
fn confirmed(report: &mut Report, plans: Vec<Planned>, wanted: &Wanted) -> Result<Vec<Planned>, Box<dyn Error>> {
    if plans.is_empty() {
        return Ok(plans);
    }
    report.print_line("The plan:")?;
    for line in plans.iter().flat_map(Planned::lines) {
        report.print_line(&format!("  {line}"))?;
    }
    let mut confirmed = Vec::new();
    for planned in plans {
        let may = match &planned.full_bucket {
            None => true,
            Some(full) if wanted.bucket.contains(&full.name) => true,
            Some(_) if wanted.yes => false,
            Some(full) => {
                let question = format!("Type the name of bucket {:?} to delete it with all its content:", full.name);
                prompt::read_line(&clean(&question))? == full.name
            }
        };
        if may {
            confirmed.push(planned);
        } else {
            let name = planned.full_bucket.as_ref().map(|full| full.name.as_str()).unwrap_or_default();
            let why =
                format!("bucket {name:?} has content; to delete it anyway, type its name, or use --bucket {name}");
            report.add(&planned.orphan, Some(planned.action), Outcome::Left, why)?;
        }
    }
    if confirmed.is_empty() || wanted.yes || prompt::confirm("The operator will do this.")? {
        return Ok(confirmed);
    }
    for planned in confirmed {
        report.add(&planned.orphan, Some(planned.action), Outcome::Left, "not confirmed".to_owned())?;
    }
    Ok(Vec::new())
}

/// Annotates the ObjectBucket, if the orphan has not changed since the plan was made. `recorded`: what the
/// ObjectBuckets name now, if a lost one must be created.
async fn annotate_one<P: Provisioner>(
    session: &Session<P>,
    planned: &Planned,
    cluster: &str,
    recorded: &Recorded,
) -> Result<PendingAnnotation, String> {
    let Planned { orphan, action, object, is_new, .. } = planned;
    let mut pending = PendingAnnotation {
        record: record::name(object),
        uid: object.metadata.uid.clone(),
        action: *action,
        claim: orphan.claim(),
    };
    planned.require_still_empty(session).await?;
    if *is_new {
        if recorded.may_name(orphan) {
            return Err(annotate::CHANGED.to_owned());
        }
        let none = Recorded::default();
        let present = find::present(session, &orphan.claim_namespace, &orphan.claim_name, &none, None).await;
        let present = present.map_err(|problem| problem.to_string())?;
        if present.map(|claim| claim.uid) != orphan.present_uid {
            return Err(annotate::CHANGED.to_owned());
        }
        pending.uid = annotate::create(session, object.clone(), *action).await?;
        return Ok(pending);
    }
    let fresh = annotate::fresh(session, object).await?;
    let recorded = Recorded::default();
    let present =
        find::present(session, &orphan.claim_namespace, &orphan.claim_name, &recorded, Some(&pending.record)).await;
    let present = present.map_err(|problem| problem.to_string())?;
    let again = judge::of_record(fresh.clone(), cluster, present.as_ref(), Timestamp::now());
    if again.is_none_or(|again| (&again.reason, &again.present_uid) != (&orphan.reason, &orphan.present_uid)) {
        return Err(annotate::CHANGED.to_owned());
    }
    annotate::annotate(session, &fresh, *action).await?;
    Ok(pending)
}

/// Waits for the operator, unless the admin has disabled that.
async fn wait<P: Provisioner>(
    session: &Session<P>,
    report: &mut Report,
    (plans, pending): (&[Planned], &[PendingAnnotation]),
    wanted: &Wanted,
) -> Result<(), Box<dyn Error>> {
    let mut add = |index: usize, outcome, why| match plans.get(index) {
        Some(planned) => report.add(&planned.orphan, Some(planned.action), outcome, why),
        None => Ok(()),
    };
    if !wanted.wait {
        for (index, annotation) in pending.iter().enumerate() {
            let why = format!("`kubectl describe ob {}` shows the progress", annotation.record);
            add(index, Outcome::Asked, why)?;
        }
        return Ok(());
    }
    annotate::wait(session, pending, wanted.timeout, |index, status| {
        let (outcome, why) = match status {
            ActionStatus::Done => (Outcome::Done, String::new()),
            ActionStatus::Refused(why) => (Outcome::Failed, why),
            ActionStatus::Pending(why) => (Outcome::Waiting, why),
        };
        add(index, outcome, why)
    })
    .await
}
