//! The details of one claim as text.

use k8s_openapi::jiff::Timestamp;

use indicatif::HumanBytes;

use super::details::{ClaimDetails, EventRow, Keys, RecordDetails};
use super::table;
use crate::cli::output::{ago, clean, counted, painted, until};

pub(crate) fn render(details: &ClaimDetails, now: Timestamp) -> String {
    let mut page = Page { text: String::new() };
    let row = &details.claim;
    page.line("Claim", &format!("{}/{} (uid {})", row.namespace, row.name, row.uid));
    let status = |text: &str| painted(&clean(text), table::colour(row.attention));
    if row.awaits_cleanup() {
        // Reason and message are older than the deletion.
        let phase = if row.phase.is_some() { format!("{}, but ", row.phase()) } else { String::new() };
        let deleted = "deleted: no operator has started the cleanup; `doctor` shows whether one serves";
        page.coloured("Phase", &status(&format!("{phase}{deleted}")));
    } else {
        let phase = match &*row.phase() {
            "" => "none, because no operator has processed the claim yet; `doctor` shows whether one serves".to_owned(),
            phase => phase.to_owned(),
        };
        page.coloured("Phase", &status(&phase));
        if let Some(reason) = row.reason.as_deref().filter(|reason| *reason != phase) {
            page.coloured("Reason", &status(reason));
        }
        page.some("Message", row.message.as_deref());
    }
    page.line("Age", &ago(row.created_at.as_ref(), now));
    page.some("Waiting for", row.waiting_since.as_ref().map(|since| ago(Some(since), now)).as_deref());
    page.line("Class", row.class.as_deref().unwrap_or("not known"));
    if let Some(waits) = &details.waits_for {
        page.some("Meaning", Some(waits.meaning));
        page.some("Remedy", Some(waits.remedy));
    }
    match &details.record {
        Err(why) => page.line("ObjectBucket", why),
        Ok(record) => of_record(&mut page, record),
    }
    match &details.usage {
        Err(why) => page.line("Content", &format!("not known: {why}")),
        Ok(usage) => {
            let at_least = if usage.is_complete { "" } else { "at least " };
            let objects = counted(usage.objects, "object", "objects and versions");
            let size = HumanBytes(usage.bytes);
            page.line("Content", &format!("{at_least}{objects}, {at_least}{size}"));
        }
    }
    of_keys(&mut page, details, now);
    page.list("On deletion", details.on_deletion.iter().map(ToString::to_string));
    of_events(&mut page, details, now);
    page.text
}

fn of_record(page: &mut Page, record: &RecordDetails) {
    page.line("ObjectBucket", &record.name);
    page.line("Bucket", &format!("{}, {}", record.bucket, record.mode));
    let prefix = record.prefix.as_ref().map_or_else(String::new, |prefix| format!(", only {prefix}*"));
    let pending = |is_pending: bool| if is_pending { " (not applied yet)" } else { "" };
    page.line("Access", &format!("{}{prefix}{}", record.access_mode, pending(record.changes.access)));
    if !record.settings.is_empty() || record.changes.settings {
        let settings: Vec<_> = record.settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let settings = if settings.is_empty() { "none".to_owned() } else { settings.join(", ") };
        page.line("Settings", &format!("{settings}{}", pending(record.changes.settings)));
    }
    page.line("Region", &format!("{} at {}", record.region, record.host));
    page.some("Account", record.account.as_deref());
    match &record.service_account {
        Some(account) => {
            page.some("Role", record.user.as_deref());
            page.line("ServiceAccount", account);
        }
        None => {
            page.line("User", record.user.as_deref().unwrap_or("none: the claim uses the provisioning credentials"));
        }
    }
    for previous in &record.previous_access {
        page.line("Previous access", previous);
    }
    let secret = record.owner_secret.as_ref().map(|secret| format!("Secret {secret}"));
    page.line("Credentials", secret.as_deref().unwrap_or("the operator's own identity"));
    page.some("Assumed role", record.owner_role.as_deref());
    page.line("Reclaim policy", record.reclaim_policy);
    if !record.is_handed_over {
        page.line("", "its credentials have not been published yet");
    }
    let previous = record.former_claim_uids.join(", ");
    page.some("Adopted from", Some(&previous));
}

fn of_keys(page: &mut Page, details: &ClaimDetails, now: Timestamp) {
    let row = &details.claim;
    let is_keyless = details.record.as_ref().is_ok_and(|record| record.service_account.is_some());
    match &details.keys {
        Ok(Keys { present_id: None, .. }) if is_keyless => {
            page.line("Keys", "none: apps have access as the ServiceAccount")
        }
        Err(why) => page.line("Keys", &format!("not known: {why}")),
        Ok(keys) => {
            page.line("Keys", &format!("{}{}", keys.present_id.as_deref().unwrap_or("none"), row.keys.text(now)));
            if let Some(id) = &keys.former_id {
                let end = until(row.keys.former_key_deleted_at.as_ref(), now);
                let what = if keys.is_former_inactive { "is deactivated, and is deleted in" } else { "is valid for" };
                page.line("", &format!("{id}, the previous key, {what} {end}"));
            }
        }
    }
}

fn of_events(page: &mut Page, details: &ClaimDetails, now: Timestamp) {
    match &details.events {
        Err(why) => page.line("Events", why),
        Ok(events) if events.is_empty() => page.line("Events", "none in the last hour"),
        Ok(events) => page.list(
            "Events",
            events.iter().map(|EventRow { at, is_warning, reason, note }| {
                let kind = if *is_warning { "Warning " } else { "" };
                format!("{} ago: {kind}{reason}: {note}", ago(at.as_ref(), now))
            }),
        ),
    }
}

/// Lines of a heading and text.
struct Page {
    text: String,
}

impl Page {
    /// A line with text that tenants may have written.
    fn line(&mut self, heading: &str, text: &str) {
        self.coloured(heading, &clean(text));
    }

    /// One heading for all lines.
    fn list(&mut self, heading: &str, lines: impl Iterator<Item = String>) {
        lines.enumerate().for_each(|(number, line)| self.line(if number == 0 { heading } else { "" }, &line));
    }

    fn some(&mut self, heading: &str, text: Option<&str>) {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            self.line(heading, text);
        }
    }

    fn coloured(&mut self, heading: &str, text: &str) {
        let heading = if heading.is_empty() { String::new() } else { format!("{heading}:") };
        self.text.push_str(&format!("{heading:<16}{text}\n"));
    }
}
