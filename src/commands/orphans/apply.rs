//! Has the operator do what the admin wants, after the plan was shown and agreed to.

use std::error::Error;
use std::process::ExitCode;

use serde::Serialize;
use serde_json::json;

use super::find::{self, Found};
use super::judge::{self, Orphan, Recorded};
use super::plan::{self, Planned};
use super::{FOUND, OrphansArgs, Wanted, show};
use crate::commands::ask;
use crate::commands::output::{self, Format, clean};
use crate::commands::session::Session;
use crate::commands::word::{self, Answer, Given, Word};
use crate::controller::decide::orphan::Action;
use crate::controller::decide::record;
use crate::provisioner::Provisioner;
use crate::runtime::program::print;
use clap::ValueEnum as _;

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
        report.say("no orphans")?;
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
    let plans = agreed(&mut report, plans, wanted)?;
    let mut given = Vec::new();
    for planned in plans {
        match give(session, &planned, &found.cluster).await {
            Ok(word) => given.push((planned, word)),
            Err(why) => report.add(&planned.orphan, Some(planned.action), Outcome::Failed, why)?,
        }
    }
    if !given.is_empty()
        && let Some(warning) = word::nobody_serves(session).await
    {
        report.say(&warning)?;
    }
    for (planned, word) in given {
        let (outcome, why) = follow(session, &word, wanted).await?;
        report.add(&planned.orphan, Some(planned.action), outcome, why)?;
    }
    report.end()
}

/// The orphans that the admin means.
fn chosen(found: &mut Found, wanted: &Wanted) -> Result<Vec<Orphan>, String> {
    let mut orphans = std::mem::take(&mut found.orphans);
    if let Some(unknown) = wanted.only.iter().find(|name| !orphans.iter().any(|orphan| orphan.name == **name)) {
        return Err(format!("{unknown:?} is not an orphan; run the command without --apply to see which there are"));
    }
    orphans.retain(|orphan| wanted.only.is_empty() || wanted.only.contains(&orphan.name));
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
        return Ok(Some(word.action()));
    }
    let name = format!("{} {}", show::kind(orphan.kind), orphan.name);
    report.say(&format!("{name}: {}", orphan.message))?;
    let words = orphan.actions.join(", ");
    let answer = ask::answer(&format!("What shall be done about {}? ({words}, or nothing):", clean(&orphan.name)))?;
    match Word::from_str(&answer, false) {
        Ok(word) if orphan.allows(word.action()) => Ok(Some(word.action())),
        _ => report.add(orphan, None, Outcome::Left, "as you say".to_owned()).map(|()| None),
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
async fn give<P: Provisioner>(session: &Session<P>, planned: &Planned, cluster: &str) -> Result<Given, String> {
    let Planned { orphan, action, object, is_new, .. } = planned;
    let mut given = Given {
        record: record::name(object),
        uid: object.metadata.uid.clone(),
        action: *action,
        claim: orphan.claim(),
    };
    if *is_new {
        let none = Recorded::default();
        let present = find::present(session, &orphan.claim_namespace, &orphan.claim_name, &none, None).await;
        let present = present.map_err(|problem| problem.to_string())?;
        if present.map(|claim| claim.uid) != orphan.present_uid {
            return Err(word::CHANGED.to_owned());
        }
        given.uid = word::create(session, object.clone(), *action).await?;
        return Ok(given);
    }
    let fresh = word::fresh(session, object).await?;
    let recorded = Recorded::default();
    let present = find::present(session, &orphan.claim_namespace, &orphan.claim_name, &recorded, None).await;
    let present = present.map_err(|problem| problem.to_string())?;
    let again = judge::of_record(fresh.clone(), cluster, present.as_ref());
    if again.is_none_or(|again| (&again.reason, &again.present_uid) != (&orphan.reason, &orphan.present_uid)) {
        return Err(word::CHANGED.to_owned());
    }
    word::say(session, &fresh, *action).await?;
    Ok(given)
}

async fn follow<P: Provisioner>(
    session: &Session<P>,
    word: &Given,
    wanted: &Wanted,
) -> Result<(Outcome, String), Box<dyn Error>> {
    if !wanted.wait {
        return Ok((Outcome::Asked, format!("`kubectl describe ob {}` shows how it goes", word.record)));
    }
    Ok(match word::wait(session, word, wanted.timeout).await? {
        Answer::Done => (Outcome::Done, String::new()),
        Answer::Refused(why) => (Outcome::Failed, why),
        Answer::NotYet(why) => (Outcome::Waiting, why),
    })
}
