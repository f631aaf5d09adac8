//! Annotates orphans with the actions that the admin chooses, after the plan was shown and confirmed.

use std::error::Error;
use std::process::ExitCode;

use clap::ValueEnum as _;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use serde_json::json;

use super::find::{self, Found};
use super::orphan::Orphan;
use super::plan::{self, Planned};
use super::{FOUND, OrphansArgs, Wanted, judge, show};
use crate::cli::annotate::{self, OperatorStatus, Outcome};
use crate::cli::output::{self, Format, clean};
use crate::cli::prompt;
use crate::cli::session::{Session, refused};
use crate::cli::view::{Classes, Records};
use crate::decide::action::Action;
use crate::decide::notice;
use crate::store::Provisioner;

#[derive(Debug, Serialize)]
struct ActionResult {
    name: String,
    #[serde(skip)]
    full_name: String,
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
    fn print_line(&self, text: &str) -> Result<(), Box<dyn Error>> {
        output::progress(self.format, text)
    }

    fn add(
        &mut self,
        orphan: &Orphan,
        action: Option<Action>,
        outcome: Outcome,
        why: String,
    ) -> Result<(), Box<dyn Error>> {
        let colon = if why.is_empty() { "" } else { ": " };
        let result = match outcome {
            Outcome::Left => "skipped".to_owned(),
            Outcome::Asked => "annotated".to_owned(),
            outcome => format!("{outcome:?}").to_lowercase(),
        };
        self.print_line(&format!("{:?} {}: {result}{colon}{why}", orphan.kind, orphan.name))?;
        let (name, action) = (orphan.name.clone(), action.map(Action::word));
        self.results.push(ActionResult { name, full_name: orphan.full_name(), action, outcome, message: why });
        Ok(())
    }

    fn end(self) -> Result<ExitCode, Box<dyn Error>> {
        let results = &self.results;
        let names = || results.iter().map(|result| result.full_name.clone()).collect();
        output::show(&json!({ "results": results }), self.format, names, String::new)?;
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
    let classes = Classes::read(session).await.map_err(refused("list StorageClasses"))?;
    let mut plans = Vec::new();
    for orphan in orphans {
        let planned = match choose_action(&report, &orphan, wanted)? {
            Ok(action) => {
                let planned = plan::plan(session, &found, &classes, (orphan.clone(), action), wanted.class.as_deref());
                planned.await.map_err(|why| (Some(action), why))
            }
            Err(skipped) => Err(skipped),
        };
        match planned {
            Ok(planned) => plans.push(planned),
            Err((action, why)) => report.add(&orphan, action, Outcome::Left, why)?,
        }
    }
    let plans = require_operator(session, &mut report, plans, wanted).await?;
    let plans = confirmed(&mut report, plans, wanted)?;
    let records = match plans.iter().any(|planned| planned.annotation.is_new) {
        true => find::records(session).await?,
        false => Records::default(),
    };
    let write = async |planned: &mut Planned| annotate_one(session, planned, &found.cluster, &records).await;
    annotate::apply(session, plans, write, wanted.wait.then_some(wanted.timeout), |planned, outcome, why| {
        let why = match outcome {
            Outcome::Asked => format!("`kubectl describe ob {}` shows the progress", planned.annotation.record()),
            _ => why,
        };
        report.add(&planned.orphan, Some(planned.annotation.action), outcome, why)
    })
    .await?;
    report.end()
}

/// Warns if no operator serves. Without confirmation, deletions are skipped then: the operator would apply them
/// whenever it starts, perhaps long after the command.
async fn require_operator<P>(
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
    let deletes = |planned: &Planned| matches!(planned.annotation.action, Action::Remove | Action::Revoke);
    let (refused, rest): (Vec<_>, Vec<_>) = plans.into_iter().partition(deletes);
    for planned in refused {
        let why = "no operator serves, so the action would be applied at an unknown later time; start the operator, or add --wait=false";
        report.add(&planned.orphan, Some(planned.annotation.action), Outcome::Left, why.to_owned())?;
    }
    Ok(rest)
}

/// The orphans that the admin selects.
fn chosen(found: &mut Found, wanted: &Wanted) -> Result<Vec<Orphan>, String> {
    let mut orphans = std::mem::take(&mut found.orphans);
    if let Some(unknown) = wanted.only.iter().find(|name| !orphans.iter().any(|orphan| orphan.is_called(name))) {
        return Err(format!("{unknown:?} is not an orphan; run the command without --apply to see which there are"));
    }
    // Scheduled deletions need no action, and users can undo them: they are selected only by name.
    orphans.retain(|orphan| match wanted.only.is_empty() {
        true => orphan.needs_decision(),
        false => is_selected(orphan, wanted),
    });
    Ok(orphans)
}

fn is_selected(orphan: &Orphan, wanted: &Wanted) -> bool {
    wanted.only.iter().any(|name| orphan.is_called(name))
}

/// An action that was not possible, and why an orphan is skipped.
type Skipped = (Option<Action>, String);

/// The action for an orphan, or why it is skipped.
fn choose_action(report: &Report, orphan: &Orphan, wanted: &Wanted) -> Result<Result<Action, Skipped>, Box<dyn Error>> {
    let skip = |why: String| Ok(Err((None, why)));
    if let Some(annotation) = &orphan.annotation {
        return skip(format!("it is annotated with {annotation:?} already"));
    }
    if orphan.actions.is_empty() {
        return skip(orphan.message.clone());
    }
    if let Some(action) = wanted.action {
        let risk = orphan.risk(action).filter(|_| orphan.allows(action) && !is_selected(orphan, wanted));
        let why = |risk| format!("{risk}; to apply the action anyway, add --only {}", orphan.name);
        return Ok(risk.map_or(Ok(action), |risk| Err((Some(action), why(risk)))));
    }
    let problem = notice::without_values(&orphan.message);
    report.print_line(&format!("{:?} {}: {problem}", orphan.kind, orphan.name))?;
    let actions = orphan.actions.join(", ");
    let question = format!("Action for {} ({actions}; Enter skips it):", clean(&orphan.name));
    let answer = prompt::read_line(&question)?;
    match Action::from_str(&answer, false) {
        Ok(action) if orphan.allows(action) => Ok(Ok(action)),
        _ if answer.is_empty() => skip(String::new()),
        _ => skip(format!("{answer:?} is not one of these actions: {actions}")),
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
        let name = planned.full_bucket().unwrap_or_default();
        let is_confirmed = match planned.full_bucket() {
            None => true,
            Some(name) if wanted.bucket.iter().any(|bucket| bucket == name) => true,
            Some(_) if wanted.yes => false,
            Some(name) => {
                let question = format!("Type the name of bucket {name:?} to delete it with all its content:");
                prompt::read_line(&clean(&question))? == name
            }
        };
        if is_confirmed {
            confirmed.push(planned);
        } else {
            let why =
                format!("bucket {name:?} has content; to delete it anyway, type its name, or use --bucket {name}");
            report.add(&planned.orphan, Some(planned.annotation.action), Outcome::Left, why)?;
        }
    }
    if confirmed.is_empty() || wanted.yes || prompt::confirm("The operator will do this.")? {
        return Ok(confirmed);
    }
    for planned in confirmed {
        report.add(&planned.orphan, Some(planned.annotation.action), Outcome::Left, "not confirmed".to_owned())?;
    }
    Ok(Vec::new())
}

/// Annotates the ObjectBucket, if the orphan has not changed since the plan was made. `records`: what the ObjectBuckets
/// name now, if a lost one must be created.
async fn annotate_one<P: Provisioner>(
    session: &Session<P>,
    planned: &mut Planned,
    cluster: &str,
    records: &Records,
) -> Result<(), String> {
    planned.require_still_empty(session).await?;
    let Planned { orphan, annotation, .. } = planned;
    let Orphan { claim, bucket, .. } = &*orphan;
    // The role is that of other claims, too.
    let user = orphan.user.as_ref().filter(|_| orphan.service_account.is_none());
    let record = Some(annotation.record()).filter(|_| !annotation.is_new);
    if !annotation.is_new {
        annotation.refresh(session).await?;
    }
    let present = find::present(session, &claim.namespace, &claim.name, &Records::default(), record.as_deref()).await?;
    let is_same = if annotation.is_new {
        !records.may_name(&claim.uid, bucket.as_ref(), user) && present.map(|claim| claim.uid) == orphan.present_uid
    } else {
        let again = judge::of_record(annotation.object.clone(), cluster, present.as_ref(), Timestamp::now());
        again.is_some_and(|again| (&again.reason, &again.present_uid) == (&orphan.reason, &orphan.present_uid))
    };
    if !is_same {
        return Err(annotate::CHANGED.to_owned());
    }
    annotation.write(session).await
}
