//! One claim's details as text.

use k8s_openapi::jiff::Timestamp;

use super::details::{ClaimDetails, Lookup, RecordStory};
use super::table;
use crate::api::ClaimPhase;
use crate::cli::output::{ago, bytes, clean, painted, until};

/// The details for people.
pub(crate) fn render(details: &ClaimDetails, colours: bool, now: Timestamp) -> String {
    let mut page = Page { text: String::new() };
    let row = &details.claim;
    let says = format!("{} {}", table::phase(row.phase), row.reason.as_deref().unwrap_or_default());
    page.line("Claim", &format!("{}/{} (uid {})", row.namespace, row.name, row.uid));
    let says = match says.trim() {
        "" => "nothing, because no operator has looked at it yet; `doctor` says whether one serves",
        says => says,
    };
    page.coloured("Says", &painted(&clean(says), table::tone(row.attention), colours));
    page.some("", row.message.as_deref());
    if row.is_deleted && row.phase != Some(ClaimPhase::Released) {
        page.line(
            "",
            "the claim is deleted, but no operator has begun to remove what it has; `doctor` says whether one serves",
        );
    }
    page.line("Age", &ago(row.created_at, now));
    page.some("Waiting for", row.waiting_since.map(|since| ago(Some(since), now)).as_deref());
    page.line("Class", row.class.as_deref().unwrap_or("not known"));
    if let Some(waits) = &details.waits_for {
        page.some("It means", Some(waits.meaning.as_str()).filter(|text| !text.is_empty()));
        page.some("What helps", Some(waits.remedy.as_str()).filter(|text| !text.is_empty()));
    }
    match &details.record {
        Lookup::Unavailable(why) => page.line("ObjectBucket", why),
        Lookup::Value(record) => of_record(&mut page, record),
    }
    match &details.usage {
        Lookup::Unavailable(why) => page.line("Content", &format!("not known: {why}")),
        Lookup::Value(usage) => {
            let at_least = if usage.is_complete { "" } else { "at least " };
            let size = bytes(usage.bytes);
            page.line("Content", &format!("{at_least}{} objects and versions, {at_least}{size}", usage.objects));
        }
    }
    of_keys(&mut page, details, now);
    for (number, disposition) in details.on_deletion.iter().enumerate() {
        let heading = if number == 0 { "On deletion" } else { "" };
        let verb = if disposition.is_deleted { "deletes" } else { "keeps" };
        page.line(heading, &format!("{verb} {}: {}", disposition.what, disposition.why));
    }
    of_events(&mut page, details, now);
    page.text
}

fn of_record(page: &mut Page, record: &RecordStory) {
    page.line("ObjectBucket", &record.name);
    page.line("Bucket", &format!("{}, {}", record.bucket, record.mode));
    page.line("Region", &format!("{} at {}", record.region, record.host));
    page.some("Account", record.account.as_deref());
    page.line("User", record.user.as_deref().unwrap_or("none: the claim shares the owner's keys"));
    page.line("Owner's Secret", record.owner_secret.as_deref().unwrap_or("none: the operator's own identity"));
    page.line("Reclaim policy", record.reclaim_policy);
    if !record.is_handed_over {
        page.line("", "no app has had keys for it yet");
    }
    let former = record.former_claim_uids.join(", ");
    page.some("Adopted from", Some(former.as_str()).filter(|uids| !uids.is_empty()));
}

fn of_keys(page: &mut Page, details: &ClaimDetails, now: Timestamp) {
    let row = &details.claim;
    match &details.keys {
        Lookup::Unavailable(why) => page.line("Keys", &format!("not known: {why}")),
        Lookup::Value(keys) => {
            let age = row.keys_issued_at.map(|at| format!(", issued {} ago", ago(Some(at), now))).unwrap_or_default();
            let due = row.rotation_due_at.map(|at| format!(", replaced in {}", until(Some(at), now)));
            let due = due.unwrap_or_default().replace("replaced in now", "replaced now");
            page.line("Keys", &format!("{}{age}{due}", keys.present_id.as_deref().unwrap_or("none")));
            if let Some(id) = &keys.former_id {
                let end = until(row.former_key_deleted_at, now);
                let what = if keys.is_former_inactive { "is deactivated, and is deleted in" } else { "works for" };
                page.line("", &format!("{id}, the former one, {what} {end}"));
            }
        }
    }
}

fn of_events(page: &mut Page, details: &ClaimDetails, now: Timestamp) {
    match &details.events {
        Lookup::Unavailable(why) => page.line("Events", why),
        Lookup::Value(events) if events.is_empty() => page.line("Events", "none in the last hour"),
        Lookup::Value(events) => {
            for (number, event) in events.iter().enumerate() {
                let heading = if number == 0 { "Events" } else { "" };
                let kind = if event.is_warning { "Warning " } else { "" };
                page.line(heading, &format!("{} ago: {kind}{}: {}", ago(event.at, now), event.reason, event.note));
            }
        }
    }
}

/// Lines of a heading and what is said.
struct Page {
    text: String,
}

impl Page {
    /// A line with what others may have written.
    fn line(&mut self, heading: &str, said: &str) {
        self.coloured(heading, &clean(said));
    }

    fn some(&mut self, heading: &str, said: Option<&str>) {
        if let Some(said) = said {
            self.line(heading, said);
        }
    }

    fn coloured(&mut self, heading: &str, said: &str) {
        let heading = if heading.is_empty() { String::new() } else { format!("{heading}:") };
        self.text.push_str(&format!("{heading:<16}{said}\n"));
    }
}
