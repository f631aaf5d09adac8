//! Has the operator do what the admin wants, after the plan was shown and agreed to.

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
use crate::cli::annotate::{self, Answer, PendingAnnotation, Service, Word};
use crate::cli::ask;
use crate::cli::output::{self, Format, clean};
use crate::cli::session::Session;
use crate::decide::action::Action;
use crate::decide::record;
use crate::store::Provisioner;
use clap::ValueEnum as _;
use operator_runtime::program::print;

/// What became of an orphan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    /// The operator has done it.
    Done,
    /// The operator was told, and nobody waited for it.
    Asked,
    /// Nothing was done about it.
    Left,
    /// The operator has not done it in time.
    Waiting,
    /// It cannot be done.
    Failed,
}

/// What became of an orphan, and why.
#[derive(Debug, Serialize)]
struct Treated {
    name: String,
    action: Option<&'static str>,
    outcome: Outcome,
    message: String,
}

/// What is said to the admin meanwhile, and what came of it.
struct Report {
    format: Format,
    results: Vec<Treated>,
}

impl Report {
    /// With JSON or YAML, standard output is for machines.
    fn say(&self, text: &str) -> Result<(), Box<dyn Error>> {
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
        let word = serde_json::to_value(outcome)?;
        self.say(&format!("{} {}: {}{colon}{why}", show::kind(orphan.kind), orphan.name, word.as_str().unwrap_or("")))?;
        let (name, action) = (orphan.name.clone(), action.map(Action::word));
        self.results.push(Treated { name, action, outcome, message: why });
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

/// Asks what is to be done, shows the plan, asks whether to go on, and has it done.
///
/// # Errors
/// Kubernetes refused, or nobody can be asked.
pub(crate) async fn apply<P: Provisioner>(
    session: &Session<P>,
    mut found: Found,
    args: &OrphansArgs,
) -> Result<ExitCode, Box<dyn Error>> {
    let wanted = &args.wanted;
    let mut report = Report { format: args.output, results: Vec::new() };
    let orphans = chosen(&mut found, wanted)?;
    if orphans.is_empty() {
        report.say(show::none(&found))?;
    }
    let classes = session.classes().await?;
    let mut plans = Vec::new();
    for orphan in orphans {
        let Some(action) = choose(&mut report, &orphan, wanted)? else { continue };
        match plan::plan(session, &found, &classes, (orphan.clone(), action), wanted.class.as_deref()).await {
            Ok(planned) => plans.push(planned),
            Err(why) => report.add(&orphan, Some(action), Outcome::Left, why)?,
        }
    }
    let plans = served(session, &mut report, plans, wanted).await?;
    let plans = agreed(&mut report, plans, wanted)?;
    let recorded = match plans.iter().any(|planned| planned.is_new) {
        true => find::recorded(session).await?,
        false => Recorded::default(),
    };
    let (mut followed, mut given) = (Vec::new(), Vec::new());
    for planned in plans {
        match give(session, &planned, &found.cluster, &recorded).await {
            Ok(word) => {
                followed.push(planned);
                given.push(word);
            }
            Err(why) => report.add(&planned.orphan, Some(planned.action), Outcome::Failed, why)?,
        }
    }
    follow(session, &mut report, (&followed, &given), wanted).await?;
    report.end()
}

/// Says whether an operator serves, and leaves what nobody should ask for without one: it would be done whenever one
/// starts, by when nobody remembers.
async fn served<P: Provisioner>(
    session: &Session<P>,
    report: &mut Report,
    plans: Vec<Planned>,
    wanted: &Wanted,
) -> Result<Vec<Planned>, Box<dyn Error>> {
    if plans.is_empty() {
        return Ok(plans);
    }
    let service = annotate::service(session).await;
    if let Some(warning) = service.warning() {
        report.say(warning)?;
    }
    if !(wanted.yes && wanted.wait && matches!(service, Service::Nobody(_))) {
        return Ok(plans);
    }
    let deletes = |planned: &Planned| matches!(planned.action, Action::Remove | Action::Revoke);
    let (refused, rest): (Vec<_>, Vec<_>) = plans.into_iter().partition(deletes);
    for planned in refused {
        let why = "no operator serves, so it would be done at some later time; start the operator, or add --wait=false";
        report.add(&planned.orphan, Some(planned.action), Outcome::Left, why.to_owned())?;
    }
    Ok(rest)
}

/// The orphans that the admin means.
fn chosen(found: &mut Found, wanted: &Wanted) -> Result<Vec<Orphan>, String> {
    let mut orphans = std::mem::take(&mut found.orphans);
    if let Some(unknown) = wanted.only.iter().find(|name| !orphans.iter().any(|orphan| orphan.name == **name)) {
        return Err(format!("{unknown:?} is not an orphan; run the command without --apply to see which there are"));
    }
    // What is scheduled goes by itself, and its users can undo that: only an admin who names it means it.
    orphans.retain(|orphan| match wanted.only.is_empty() {
        true => orphan.needs_decision(),
        false => wanted.only.contains(&orphan.name),
    });
    Ok(orphans)
}

/// What is to be done about an orphan; `None` for nothing.
fn choose(report: &mut Report, orphan: &Orphan, wanted: &Wanted) -> Result<Option<Action>, Box<dyn Error>> {
    if let Some(word) = &orphan.annotation {
        let why = format!("it is annotated with {word:?} already");
        return report.add(orphan, None, Outcome::Left, why).map(|()| None);
    }
    if orphan.actions.is_empty() {
        return report.add(orphan, None, Outcome::Left, orphan.message.clone()).map(|()| None);
    }
    if let Some(word) = wanted.action {
        let action = word.action();
        return match orphan.risk(action).filter(|_| orphan.allows(action) && !wanted.only.contains(&orphan.name)) {
            Some(risk) => {
                let why = format!("{risk}; if it may be deleted all the same, add --only {}", orphan.name);
                report.add(orphan, Some(action), Outcome::Left, why).map(|()| None)
            }
            None => Ok(Some(action)),
        };
    }
    let name = format!("{} {}", show::kind(orphan.kind), orphan.name);
    report.say(&format!("{name}: {}", orphan.message))?;
    let words = orphan.actions.join(", ");
    let answer =
        ask::answer(&format!("What shall be done about {}? ({words}; only Enter leaves it):", clean(&orphan.name)))?;
    match Word::from_str(&answer, false) {
        Ok(word) if orphan.allows(word.action()) => Ok(Some(word.action())),
        _ => {
            let why = match answer.is_empty() {
                true => "as you say".to_owned(),
                false => format!("{answer:?} is none of these words: {words}"),
            };
            report.add(orphan, None, Outcome::Left, why).map(|()| None)
        }
    }
}

/// Shows the plan, and keeps of it what the admin agrees to.
fn agreed(report: &mut Report, plans: Vec<Planned>, wanted: &Wanted) -> Result<Vec<Planned>, Box<dyn Error>> {
    if plans.is_empty() {
        return Ok(plans);
    }
    report.say("The plan:")?;
    for line in plans.iter().flat_map(Planned::lines) {
        report.say(&format!("  {line}"))?;
    }
    let mut agreed = Vec::new();
    for planned in plans {
        let may = match &planned.full_bucket {
            None => true,
            Some(full) if wanted.bucket.contains(&full.name) => true,
            Some(_) if wanted.yes => false,
            Some(full) => {
                let question = format!("Type the name of bucket {:?} to delete it with all its content:", full.name);
                ask::answer(&clean(&question))? == full.name
            }
        };
        if may {
            agreed.push(planned);
        } else {
            let name = planned.full_bucket.as_ref().map(|full| full.name.as_str()).unwrap_or_default();
            let why =
                format!("bucket {name:?} has content; to delete it anyway, type its name, or use --bucket {name}");
            report.add(&planned.orphan, Some(planned.action), Outcome::Left, why)?;
        }
    }
    if agreed.is_empty() || wanted.yes || ask::agrees("The operator will do this.")? {
        return Ok(agreed);
    }
    for planned in agreed {
        report.add(&planned.orphan, Some(planned.action), Outcome::Left, "as you say".to_owned())?;
    }
    Ok(Vec::new())
}

/// Gives the operator the word, if the orphan is still what the plan was made for.
/// `recorded`: what the ObjectBuckets name since the admin agreed, if something is to be written for a lost one.
async fn give<P: Provisioner>(
    session: &Session<P>,
    planned: &Planned,
    cluster: &str,
    recorded: &Recorded,
) -> Result<PendingAnnotation, String> {
    let Planned { orphan, action, object, is_new, .. } = planned;
    let mut given = PendingAnnotation {
        record: record::name(object),
        uid: object.metadata.uid.clone(),
        action: *action,
        claim: orphan.claim(),
    };
    planned.is_as_empty(session).await?;
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
        given.uid = annotate::create(session, object.clone(), *action).await?;
        return Ok(given);
    }
    let fresh = annotate::fresh(session, object).await?;
    let recorded = Recorded::default();
    let present =
        find::present(session, &orphan.claim_namespace, &orphan.claim_name, &recorded, Some(&given.record)).await;
    let present = present.map_err(|problem| problem.to_string())?;
    let again = judge::of_record(fresh.clone(), cluster, present.as_ref(), Timestamp::now());
    if again.is_none_or(|again| (&again.reason, &again.present_uid) != (&orphan.reason, &orphan.present_uid)) {
        return Err(annotate::CHANGED.to_owned());
    }
    annotate::annotate(session, &fresh, *action).await?;
    Ok(given)
}

/// Waits for what the operator says, as far as the admin wants that.
async fn follow<P: Provisioner>(
    session: &Session<P>,
    report: &mut Report,
    (plans, given): (&[Planned], &[PendingAnnotation]),
    wanted: &Wanted,
) -> Result<(), Box<dyn Error>> {
    let mut add = |index: usize, outcome, why| match plans.get(index) {
        Some(planned) => report.add(&planned.orphan, Some(planned.action), outcome, why),
        None => Ok(()),
    };
    if !wanted.wait {
        for (index, word) in given.iter().enumerate() {
            let why = format!("`kubectl describe ob {}` shows how it goes", word.record);
            add(index, Outcome::Asked, why)?;
        }
        return Ok(());
    }
    annotate::wait(session, given, wanted.timeout, |index, answer| {
        let (outcome, why) = match answer {
            Answer::Done => (Outcome::Done, String::new()),
            Answer::Refused(why) => (Outcome::Failed, why),
            Answer::NotYet(why) => (Outcome::Waiting, why),
        };
        add(index, outcome, why)
    })
    .await
}
