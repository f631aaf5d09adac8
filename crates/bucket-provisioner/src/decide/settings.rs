//! What a claim sets for its bucket: what its class lets it, and what the store accepts. Pure.

use std::borrow::Cow;
use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use crate::api::ObjectBucketClaimSpec;
use crate::api::wire::state::{ACCESS_MODE, SERVICE_ACCOUNT_NAME};
use crate::refusal::Refusal;
use crate::store::settings::{BUCKET_CLAIM_NAME, LONGEST, OUTPUT_ANNOTATIONS, OUTPUT_LABELS};
use crate::store::{Capabilities, MaySet, ParameterError, Plan, Record, SettingError, Settings};

/// What a user wrote: `spec.additionalConfig`.
pub(crate) type Config = BTreeMap<String, String>;

/// What a store has, and how it checks settings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) has: Capabilities,
    pub(crate) check: fn(&Plan) -> Result<(), SettingError>,
}

impl Rules {
    /// Of a claim whose settings are not applied.
    pub(crate) const NONE: Self = Self { has: Capabilities::NONE, check: |_| Ok(()) };
}

/// Most settings of a claim. A tenant can write thousands.
pub(crate) const MOST: usize = 64;
/// Longest value that is cached, and that messages repeat.
const SHOWN: usize = 64;
/// Begins what is cached of a longer one.
const DIGEST: &str = "sha256:";

/// What is cached of a value.
pub(crate) fn abridged(value: &str) -> Cow<'_, str> {
    if value.len() <= SHOWN {
        return Cow::Borrowed(value);
    }
    let digest = Sha256::digest(value.as_bytes());
    Cow::Owned(digest.iter().fold(DIGEST.to_owned(), |text, byte| format!("{text}{byte:02x}")))
}

/// Whether the cache may not have settings as they are: a cached value that is longer than others is a digest.
pub(crate) fn is_abridged(config: &Config, has: Capabilities) -> bool {
    config.values().any(|value| value.len() > SHOWN) || config.keys().filter(|key| is_known(key, has)).count() > MOST
}

/// Whether a key is a setting.
pub(crate) fn is_known(key: &str, has: Capabilities) -> bool {
    is_own(key, has) || has.setting(key).is_some()
}

/// Whether a key is a setting of the claim's own, and not of its bucket.
pub(crate) fn is_own(key: &str, has: Capabilities) -> bool {
    [OUTPUT_LABELS, OUTPUT_ANNOTATIONS].contains(&key)
        || has.access_modes && key == ACCESS_MODE
        || has.shared_buckets && key == BUCKET_CLAIM_NAME
        || has.service_accounts && key == SERVICE_ACCOUNT_NAME
}

/// Whether a claim still names what is recorded. The cache may have the name abridged.
pub(crate) fn is_same_name(now: Option<&str>, recorded: Option<&str>) -> bool {
    match (now, recorded) {
        (Some(now), Some(recorded)) => now == recorded || now == abridged(recorded),
        (now, recorded) => now == recorded,
    }
}

/// What the cache keeps of an unknown key, and what messages repeat of any.
pub(crate) fn cut(key: &str) -> String {
    key.chars().take(SHOWN).collect()
}

/// What a message repeats of a value.
pub(crate) fn shown(value: &str) -> String {
    match value.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", value.get(..end).unwrap_or_default()),
        None => value.to_owned(),
    }
}

/// What a claim sets of what its class lets it, and why the first of the others is refused.
pub(crate) fn of_claim(
    config: Option<&Config>,
    may_set: &MaySet,
    has: Capabilities,
    class: &str,
) -> (Config, Option<Refusal>) {
    let (mut set, mut first) = (Config::new(), None);
    let written = config.into_iter().flatten().filter(|(key, value)| !value.is_empty() && !is_own(key, has));
    for (key, value) in written {
        match refused(key, value, set.len(), may_set, has) {
            Verdict::Taken => drop(set.insert(key.clone(), value.clone())),
            Verdict::Ignored => {}
            Verdict::Refused(why) => first = first.or_else(|| Some(why.refusal(key, value, may_set, class))),
        }
    }
    (set, first)
}

enum Verdict {
    Taken,
    /// It is reported as one that has no effect.
    Ignored,
    Refused(Why),
}

#[derive(Clone, Copy)]
enum Why {
    Unknown,
    OfAdmins,
    NotListed,
    TooLong,
    TooMany,
}

fn refused(key: &str, value: &str, already: usize, may_set: &MaySet, has: Capabilities) -> Verdict {
    Verdict::Refused(match has.setting(key) {
        None if may_set.is_empty() => return Verdict::Ignored,
        None => Why::Unknown,
        Some(setting) if !setting.is_of_claims => Why::OfAdmins,
        Some(_) if !may_set.contains(key) => Why::NotListed,
        Some(_) if value.len() > LONGEST => Why::TooLong,
        Some(_) if already == MOST => Why::TooMany,
        Some(_) => return Verdict::Taken,
    })
}

impl Why {
    fn refusal(self, key: &str, value: &str, may_set: &MaySet, class: &str) -> Refusal {
        let (key, class) = (cut(key), class.to_owned());
        let not_allowed = |key, remedy| Refusal::SettingNotAllowed { key, remedy };
        let invalid = |key, problem| Refusal::InvalidSetting { key, value: shown(value), problem };
        match self {
            Self::Unknown => Refusal::UnknownSetting { key, class, known: may_set.to_string() },
            Self::OfAdmins => not_allowed(
                key,
                format!("only admins set it: remove the setting, or use a class that has it, instead of {class:?}"),
            ),
            Self::NotListed => not_listed(&key, &class),
            Self::TooLong => invalid(key, format!("has {} bytes, and {LONGEST} are allowed", value.len())),
            Self::TooMany => invalid(key, format!("is one too many: a claim can have {MOST} settings")),
        }
    }
}

/// The refusal of a setting that the class does not list.
pub(crate) fn not_listed(key: &str, class: &str) -> Refusal {
    let remedy = format!(
        "StorageClass {class:?} does not let claims set it (claimsMaySet): remove the setting, or use another class"
    );
    Refusal::SettingNotAllowed { key: key.to_owned(), remedy }
}

/// Has the store check what is set in a plan.
///
/// # Errors
/// [`Refusal::InvalidSetting`], or [`Refusal::InvalidClassParameter`] about what the class has set.
pub(crate) fn check(plan: &Plan, class: &str, rules: Rules) -> Result<(), Refusal> {
    (rules.check)(plan).map_err(|SettingError { key, problem, remedy }| {
        let value = |entries: &Config| entries.get(&key).map(|value| shown(value));
        match value(&plan.settings.of_claim) {
            Some(value) => Refusal::InvalidSetting { key, value, problem: format!("{problem}; {remedy}") },
            None => {
                let value = value(&plan.settings.of_class).unwrap_or_default();
                // What only admins set may name an account or a bucket of theirs.
                let problem = match rules.has.setting(&key).is_some_and(|setting| setting.is_of_claims) {
                    true => ParameterError::bad(key, &value, problem, remedy),
                    false => ParameterError::Unshown { name: key.into(), problem, remedy: remedy.into() },
                };
                Refusal::InvalidClassParameter { class: class.to_owned(), problem }
            }
        }
    })
}

/// What a bound claim sets.
fn wanted(spec: &ObjectBucketClaimSpec, record: &Record, rules: Rules) -> Result<Config, Refusal> {
    let settings = &record.plan.settings;
    let config = spec.additional_config.as_ref();
    match of_claim(config, &settings.claims_may_set, rules.has, &record.class_name) {
        (_, Some(refusal)) => Err(refusal),
        (set, None) => Ok(set),
    }
}

fn is_same(set: &Config, recorded: &Config) -> bool {
    set.len() == recorded.len()
        && set.iter().zip(recorded).all(|((key, set), (recorded_key, recorded))| {
            key == recorded_key && (set == recorded || *set == abridged(recorded))
        })
}

/// The settings of a bound claim, if they are not those that are recorded. What cannot be set changes nothing. `is_abridged`: as
/// the cache has them, so that the store cannot check them.
pub(crate) fn change(
    spec: &ObjectBucketClaimSpec,
    record: &Record,
    rules: Rules,
    is_abridged: bool,
) -> Option<Settings> {
    let before = &record.plan.settings;
    let of_claim = wanted(spec, record, rules).ok().filter(|set| !is_same(set, &before.of_claim))?;
    let mut after = Settings { of_claim, ..before.clone() };
    after.released.extend(before.of_claim.keys().cloned());
    let Settings { of_class, of_claim, released, .. } = &mut after;
    released.retain(|key| !of_class.contains_key(key) && !of_claim.contains_key(key));
    while released.len() > 4 * MOST {
        released.pop_last();
    }
    let plan = Plan { settings: after, ..record.plan.clone() };
    let is_accepted = is_abridged || (rules.check)(&plan).is_ok();
    is_accepted.then_some(plan.settings)
}

/// A message about settings of a bound claim that have no effect.
pub(crate) fn ignored(spec: &ObjectBucketClaimSpec, record: &Record, rules: Rules) -> Option<String> {
    let refused = || {
        let of_claim = wanted(spec, record, rules)?;
        if is_same(&of_claim, &record.plan.settings.of_claim) {
            return Ok(());
        }
        let plan = Plan { settings: Settings { of_claim, ..record.plan.settings.clone() }, ..record.plan.clone() };
        check(&plan, &record.class_name, rules)
    };
    refused().err().map(|refusal| format!("{refusal}; the settings of the bucket stay as they were"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::decide::testing::record;
    use crate::store::capabilities::LONGEST_KEY;
    use crate::store::{CommonParameters, NameRules, Setting};

    const SETTINGS: &[Setting] =
        &[Setting::new("color", "").of_claims(), Setting::new("vault", ""), Setting::family("labels.", "")];
    const RULES: Rules = Rules {
        has: Capabilities::NONE.with_access_modes().with_settings(SETTINGS),
        check: |plan| match plan.settings.get("color") {
            Some("red" | "blue") | None => Ok(()),
            Some(_) => Err(SettingError::new("color", "is no color", "write red or blue")),
        },
    };

    fn may_set(list: &str) -> MaySet {
        let written = [("claimsMaySet".to_owned(), list.to_owned())].into();
        CommonParameters::parse(&written, NameRules::S3, RULES.has).unwrap().settings.claims_may_set
    }

    fn spec(entries: &[(&str, &str)]) -> ObjectBucketClaimSpec {
        let additional_config = Some(entries.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect());
        ObjectBucketClaimSpec { additional_config, ..ObjectBucketClaimSpec::default() }
    }

    fn bound(may: &str, of_claim: &[(&str, &str)]) -> Record {
        let mut record = record();
        record.plan.settings.claims_may_set = may_set(may);
        record.plan.settings.of_claim = spec(of_claim).additional_config.unwrap();
        record
    }

    fn refused(may: Option<&str>, entries: &[(&str, &str)]) -> String {
        let may = may.map(may_set).unwrap_or_default();
        let (_, refusal) = of_claim(spec(entries).additional_config.as_ref(), &may, RULES.has, "fast");
        refusal.map(|refusal| refusal.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_claim_sets_what_its_class_lets_it() {
        let config = spec(&[("color", "red"), ("labels.team", "a"), ("accessMode", "ReadOnly"), ("vault", "")]);
        let (set, refusal) = of_claim(config.additional_config.as_ref(), &may_set("color,labels.*"), RULES.has, "fast");
        assert!(refusal.is_none() && set.keys().eq(["color", "labels.team"]), "{set:?} {refusal:?}");
        for (may, given, problem) in [
            (None, ("color", "red"), "spec.additionalConfig.color: StorageClass \"fast\" does not let claims set it"),
            (Some("color"), ("labels.a", "b"), "spec.additionalConfig.labels.a: StorageClass \"fast\" does not let"),
            (Some("color"), ("vault", "b"), "spec.additionalConfig.vault: only admins set it"),
            (Some("color"), ("colour", "b"), "spec.additionalConfig.colour: there is no such setting"),
            (None, ("colour", "b"), ""),
        ] {
            let message = refused(may, &[given]);
            assert!(message.starts_with(problem) && message.is_empty() == problem.is_empty(), "{message}");
        }
        assert!(refused(Some("color"), &[("color", &"r".repeat(LONGEST + 1))]).contains("bytes"));
        let many: Vec<_> = (0..=MOST).map(|number| format!("labels.{number}")).collect();
        let many: Vec<_> = many.iter().map(|key| (key.as_str(), "x")).collect();
        assert!(refused(Some("labels.*"), &many).contains("one too many"));
    }

    fn change(spec: &ObjectBucketClaimSpec, record: &Record, rules: Rules) -> Option<Settings> {
        super::change(spec, record, rules, false)
    }

    #[test]
    fn a_bound_claim_changes_and_releases_settings() {
        let record = bound("color,labels.*", &[("color", "red"), ("labels.team", "a")]);
        let same = spec(&[("color", "red"), ("labels.team", "a")]);
        assert_eq!(change(&same, &record, RULES), None);
        let changed = change(&spec(&[("color", "blue")]), &record, RULES).unwrap();
        assert_eq!(changed.get("color"), Some("blue"));
        assert!(changed.released.iter().eq(["labels.team"]), "{changed:?}");
        for refused in [("color", "green"), ("vault", "a"), ("colour", "red")] {
            assert_eq!(change(&spec(&[refused]), &record, RULES), None);
            let message = ignored(&spec(&[refused]), &record, RULES).unwrap();
            assert!(message.contains(refused.0) && message.ends_with("stay as they were"), "{message}");
        }
        assert_eq!(ignored(&same, &record, RULES), None);
    }

    #[test]
    fn what_is_set_again_is_not_released() {
        let mut record = bound("color", &[]);
        record.plan.settings.released.insert("color".into());
        assert!(change(&spec(&[("color", "red")]), &record, RULES).unwrap().released.is_empty());
    }

    #[test]
    fn a_long_value_is_known_by_its_digest() {
        let long = "x".repeat(SHOWN + 1);
        let cached = abridged(&long);
        assert!(is_abridged(&[("labels.a".to_owned(), cached.to_string())].into(), RULES.has), "{cached}");
        let record = bound("labels.*", &[("labels.a", &long)]);
        assert_eq!(change(&spec(&[("labels.a", &cached)]), &record, RULES), None);
        assert_eq!(change(&spec(&[("labels.a", &long)]), &record, RULES), None);
        assert!(change(&spec(&[("labels.a", "y")]), &record, RULES).is_some());
        // A value that looks like one is checked as any other.
        let literal = [("labels.a", "sha256:12"), ("color", "green")];
        assert_eq!(change(&spec(&literal), &bound("color,labels.*", &[]), RULES), None);
    }

    #[test]
    fn a_long_key_is_no_setting_and_is_not_repeated() {
        let long = format!("labels.{}", "x".repeat(LONGEST_KEY));
        let message = refused(Some("labels.*"), &[(&long, "y")]);
        assert!(message.contains("there is no such setting") && message.len() < 300, "{message}");
    }

    #[test]
    fn the_store_refuses_by_claim_or_by_class() {
        let plan = bound("color", &[("color", "green")]).plan;
        let message = check(&plan, "fast", RULES).unwrap_err().to_string();
        assert_eq!(message, "spec.additionalConfig.color: \"green\" is no color; write red or blue");
        let mut plan = bound("color", &[]).plan;
        plan.settings.of_class.insert("color".into(), "green".into());
        let message = check(&plan, "fast", RULES).unwrap_err().to_string();
        let remedy = "; an admin must delete the class and create it again";
        let expected = "StorageClass \"fast\": parameter color: \"green\" is no color; write red or blue";
        assert_eq!(message.strip_suffix(remedy), Some(expected));
        let of_vault = Rules { check: |_| Err(SettingError::new("vault", "is no vault", "name one")), ..RULES };
        plan.settings.of_class.insert("vault".into(), "arn:123456789012".into());
        let message = check(&plan, "fast", of_vault).unwrap_err().to_string();
        assert_eq!(message.strip_suffix(remedy), Some("StorageClass \"fast\": parameter vault is no vault; name one"));
    }
}
