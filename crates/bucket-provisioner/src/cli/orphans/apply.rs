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
use crate::cli::annotate::{self, Annotation, OperatorStatus, Outcome};
use crate::cli::output::{self, Format, clean};
use crate::cli::prompt;
use crate::cli::session::{Session, refused};
use crate::cli::view::{Classes, Records};
use crate::decide::action::Action;
use crate::store::Provisioner;
use operator_runtime::program::print;

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
        let result = format!("{outcome:?}").to_lowercase();
        self.print_line(&format!("{:?} {}: {result}{colon}{why}", orphan.kind, orphan.name))?;
        let (name, action) = (orphan.name.clone(), action.map(Action::word));
        self.results.push(ActionResult { name, action, outcome, message: why });
        Ok(())
    }

    fn end(self) -> Result<ExitCode, Box<dyn Error>> {
        let results = &self.results;
        output::show(&json!({ "results": results }), self.format, String::new)?;
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
        let Some(action) = choose_action(&mut report, &orphan, wanted)? else { continue };
        match plan::plan(session, &found, &classes, (orphan.clone(), action), wanted.class.as_deref()).await {
            Ok(planned) => plans.push(planned),
            Err(why) => report.add(&orphan, Some(action), Outcome::Left, why)?,
        }
    }
    let plans = require_operator(session, &mut report, plans, wanted).await?;
    let plans = confirmed(&mut report, plans, wanted)?;
    let records = match plans.iter().any(|planned| planned.annotation.is_new) {
        true => find::records(session).await?,
        false => Records::default(),
    };
    let (mut orphans, mut annotated) = (Vec::new(), Vec::new());
    for planned in plans {
        let (orphan, action) = (planned.orphan.clone(), planned.annotation.action);
        match annotate_one(session, planned, &found.cluster, &records).await {
            Ok(annotation) => {
                orphans.push(orphan);
                annotated.push(annotation);
            }
            Err(why) => report.add(&orphan, Some(action), Outcome::Failed, why)?,
        }
    }
    wait(session, &mut report, &orphans, &annotated, wanted).await?;
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
        return match orphan.risk(action).filter(|_| orphan.allows(action) && !wanted.only.contains(&orphan.name)) {
            Some(risk) => {
                let why = format!("{risk}; to apply the action anyway, add --only {}", orphan.name);
                report.add(orphan, Some(action), Outcome::Left, why).map(|()| None)
            }
            None => Ok(Some(action)),
        };
    }
    report.print_line(&format!("{:?} {}: {}", orphan.kind, orphan.name, orphan.message))?;
    let actions = orphan.actions.join(", ");
    let question = format!("Which action for {}? ({actions}; Enter skips it):", clean(&orphan.name));
    let answer = prompt::read_line(&question)?;
    match Action::from_str(&answer, false) {
        Ok(action) if orphan.allows(action) => Ok(Some(action)),
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
    planned: Planned,
    cluster: &str,
    records: &Records,
) -> Result<Annotation, String> {
    planned.require_still_empty(session).await?;
    let Planned { orphan, mut annotation, .. } = planned;
    let Orphan { claim, bucket, user, .. } = &orphan;
    let record = Some(annotation.record()).filter(|_| !annotation.is_new);
    if !annotation.is_new {
        annotation.refresh(session).await?;
    }
    let present = find::present(session, &claim.namespace, &claim.name, &Records::default(), record.as_deref()).await?;
    let is_same = if annotation.is_new {
        !records.may_name(&claim.uid, bucket.as_ref(), user.as_ref())
            && present.map(|claim| claim.uid) == orphan.present_uid
    } else {
        let again = judge::of_record(annotation.object.clone(), cluster, present.as_ref(), Timestamp::now());
        again.is_some_and(|again| (&again.reason, &again.present_uid) == (&orphan.reason, &orphan.present_uid))
    };
    if !is_same {
        return Err(annotate::CHANGED.to_owned());
    }
    annotation.write(session).await.map(|()| annotation)
}

/// Waits for the operator, unless the admin has disabled that.
async fn wait<P>(
    session: &Session<P>,
    report: &mut Report,
    orphans: &[Orphan],
    annotated: &[Annotation],
    wanted: &Wanted,
) -> Result<(), Box<dyn Error>> {
    if !wanted.wait {
        for (orphan, annotation) in orphans.iter().zip(annotated) {
            let why = format!("`kubectl describe ob {}` shows the progress", annotation.record());
            report.add(orphan, Some(annotation.action), Outcome::Asked, why)?;
        }
        return Ok(());
    }
    annotate::wait(session, annotated, wanted.timeout, |index, outcome, why| {
        match (orphans.get(index), annotated.get(index)) {
            (Some(orphan), Some(annotation)) => report.add(orphan, Some(annotation.action), outcome, why),
            _ => Ok(()),
        }
    })
    .await
}
