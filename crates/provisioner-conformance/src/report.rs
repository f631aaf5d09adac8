//! What a check reports that fails: first the duty that is broken, then the claims in a line each, then all else.
//!
//! A panic prints its message at once, and a running operator its log when it is dropped. Within a check all of this is
//! collected, and printed in this order when the check ends.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use kube::ResourceExt as _;
use kube::api::ListParams;

use super::world::{World, panic_text, phase, ready};

thread_local! {
    /// `None` outside of checks.
    static SEEN: RefCell<Option<Seen>> = const { RefCell::new(None) };
}

#[derive(Default)]
struct Seen {
    claims: Vec<String>,
    notes: Vec<String>,
}

/// Adds to what a check reports if it fails; prints it outside of checks.
pub(crate) fn note(text: String) {
    if let Some(text) = keep(text) {
        eprintln!("{text}");
    }
}

/// The text again outside of checks.
fn keep(text: String) -> Option<String> {
    SEEN.with_borrow_mut(|seen| match seen {
        Some(seen) => {
            seen.notes.push(text);
            None
        }
        None => Some(text),
    })
}

/// Adds the claims of a world, a line each.
pub(crate) async fn note_claims(world: &World) {
    let claims = world.claims().list(&ListParams::default()).await;
    let lines = claims.into_iter().flatten().map(|claim| {
        let (phase, ready) = (phase(&claim), ready(&claim));
        let phase = phase.map_or_else(|| "no phase".to_owned(), |phase| format!("{phase:?}"));
        let deleted = if claim.metadata.deletion_timestamp.is_some() { ", being deleted" } else { "" };
        let ready = ready.map_or_else(String::new, |ready| format!(", {}: {}", ready.reason, ready.message));
        format!("claim {}: {phase}{deleted}{ready}", claim.name_any())
    });
    let lines: Vec<_> = lines.collect();
    SEEN.with_borrow_mut(|seen| {
        if let Some(seen) = seen {
            seen.claims.extend(lines);
        }
    });
}

/// Runs a check. Its name is the duty that is broken if it fails.
#[doc(hidden)]
pub fn run_check(name: &str, check: impl FnOnce()) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if keep(panic.to_string()).is_some() {
                usual(panic);
            }
        }));
    });
    SEEN.set(Some(Seen::default()));
    let outcome = panic::catch_unwind(AssertUnwindSafe(check));
    let seen = SEEN.take().unwrap_or_default();
    let Err(panic) = outcome else { return };
    let mut notes = seen.notes;
    if notes.is_empty() {
        notes.push(panic_text(&*panic).to_owned());
    }
    let lines = [format!("broken: {}", name.replace('_', " "))].into_iter().chain(seen.claims).chain(notes);
    panic!("{}", lines.collect::<Vec<_>>().join("\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_begins_with_the_duty() {
        let check = || {
            note("the log".to_owned());
            panic!("the keys still work");
        };
        let failed = panic::catch_unwind(|| run_check("access_is_removed", check)).unwrap_err();
        let lines: Vec<_> = panic_text(&*failed).lines().collect();
        assert_eq!(lines[..2], ["broken: access is removed", "the log"]);
        assert_eq!(lines.last(), Some(&"the keys still work"));
    }
}
