//! What a bound claim asks for that is not recorded yet: other access, other settings. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::decide::access;
use crate::decide::claim::Claim;
use crate::decide::settings::{self, Rules};
use crate::store::{AccessMode, Changes, Plan, Record, Settings, SharedFrom};

/// An edit of a bound claim that the store has to apply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Edit {
    access: Option<AccessMode>,
    settings: Option<Settings>,
    /// Not an edit of the claim: the claim whose bucket it shares has adopted it.
    creator: Option<SharedFrom>,
}

impl Edit {
    /// What it changes in settings, for an event.
    pub(crate) fn note(&self, plan: &Plan) -> Option<String> {
        self.settings.as_ref().map(|settings| difference(&plan.settings, settings))
    }

    /// The plan with it.
    pub(crate) fn applied(self, plan: &Plan) -> Plan {
        let mut plan = plan.clone();
        if let Some(mode) = self.access {
            plan.access.mode = mode;
            plan.changes = plan.changes.and(Changes::ACCESS);
        }
        if let Some(settings) = self.settings {
            plan.settings = settings;
            plan.changes = plan.changes.and(Changes::SETTINGS);
        }
        plan.shared_from = self.creator.or(plan.shared_from);
        plan
    }
}

/// What was edited, as far as class and store allow it. `creator`: what has changed of the claim whose bucket it shares.
pub(crate) fn of(claim: &Claim, record: &Record, rules: Rules, creator: Option<SharedFrom>) -> Option<Edit> {
    let spec = claim.spec().ok()?;
    let access = access::change(spec, record, rules.has);
    let settings = settings::change(spec, record, rules, claim.is_abridged(rules.has));
    let edit = Edit { access, settings, creator };
    (edit != Edit::default()).then_some(edit)
}

/// What an edit changes in settings, for an event: from the old value to the new one.
fn difference(before: &Settings, after: &Settings) -> String {
    let (before, after) = (before.effective(), after.effective());
    let keys: BTreeSet<_> = before.keys().chain(after.keys()).copied().collect();
    let value = |all: &BTreeMap<&str, &str>, key| {
        all.get(key).map_or_else(|| "none".to_owned(), |value| settings::shown(value))
    };
    let changed = keys.into_iter().filter(|key| before.get(key) != after.get(key));
    let changed: Vec<_> =
        changed.map(|key| format!("{key} from {} to {}", value(&before, key), value(&after, key))).collect();
    format!("settings of the bucket changed: {}", changed.join(", "))
}

/// The same without the old values, which are forgotten when the operator restarts before the store has applied the edit.
pub(crate) fn applied(settings: &Settings) -> String {
    let set: Vec<_> =
        settings.of_claim.iter().map(|(key, value)| format!("{key} to {}", settings::shown(value))).collect();
    let set = if set.is_empty() { "the claim sets none".to_owned() } else { set.join(", ") };
    format!("settings of the bucket changed: {set}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::decide::testing::record;

    #[test]
    fn an_edit_says_what_it_changes() {
        let plan = record().plan;
        let narrowed = Edit { access: Some(AccessMode::ReadOnly), ..Edit::default() };
        let plan = narrowed.applied(&plan);
        assert_eq!(plan.changes, Changes::ACCESS);

        let mut settings = Settings::default();
        settings.of_claim.insert("color".into(), "red".into());
        let plan = Edit { settings: Some(settings.clone()), ..Edit::default() }.applied(&plan);
        assert_eq!(plan.changes, Changes::ACCESS.and(Changes::SETTINGS));
        assert_eq!(
            difference(&Settings::default(), &settings),
            "settings of the bucket changed: color from none to red"
        );
        let mut other = Settings::default();
        other.of_class.insert("color".into(), "blue".into());
        assert_eq!(difference(&settings, &other), "settings of the bucket changed: color from red to blue");
        assert_eq!(applied(&settings), "settings of the bucket changed: color to red");
        assert!(applied(&other).ends_with("the claim sets none"));
    }
}
