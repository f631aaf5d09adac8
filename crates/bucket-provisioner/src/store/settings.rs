//! Settings of buckets: the class parameters, what claims may set, and what is recorded of both.
//! [`settings`](crate::decide::settings) decides what a claim gets.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;

use super::parameter::{Parameter, ParameterError, names_of, read, table_of};
use super::variables;
use crate::api::wire::state::{ACCESS_MODE, CLAIM_SETTING, CLAIMS_MAY_SET, RELEASED_SETTINGS, SETTING};

/// What an admin wrote about claims.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Raw {
    /// The [settings of claims](#settings-of-a-claim), such as `expireAfter,tags.*,bucketClaimName`; the class has
    /// their defaults.
    #[schemars(extend("default" = "none"))]
    claims_may_set: Option<String>,
}

const MAY_SET: &str = "claimsMaySet";

/// The setting of a claim that shares the bucket of another one.
pub(crate) const BUCKET_CLAIM_NAME: &str = "bucketClaimName";

/// The settings of a claim about its Secret and ConfigMap, in every store.
pub(crate) const OUTPUT_LABELS: &str = "outputLabels";
pub(crate) const OUTPUT_ANNOTATIONS: &str = "outputAnnotations";

/// Longest value, in bytes.
pub(crate) const LONGEST: usize = 16 * 1024;

/// Stands for all settings of a family.
const ALL: &str = "*";

/// A setting of the buckets of a store: a class parameter and, if claims may set it, a key of `spec.additionalConfig`.
///
/// ```
/// use bucket_provisioner::store::Setting;
///
/// const SETTINGS: &[Setting] = &[
///     Setting::new("color", "`red` or `blue`.").of_claims(),
///     Setting::new("labels", "Labels of the bucket, such as `team=shop`."),
///     Setting::family("labels.", "One label."),
/// ];
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Setting {
    /// Its name; that of a family ends with `.`, and each key that begins with it is a setting of claims.
    pub name: &'static str,
    /// What it means, as Markdown.
    pub meaning: &'static str,
    /// Claims may set it, if their class lets them.
    pub is_of_claims: bool,
    /// It is also for buckets that existed before.
    pub is_of_existing_buckets: bool,
    /// It is also for the users of claims, whatever their buckets.
    pub is_of_users: bool,
}

impl Setting {
    /// A class parameter.
    pub const fn new(name: &'static str, meaning: &'static str) -> Self {
        Self { name, meaning, is_of_claims: false, is_of_existing_buckets: false, is_of_users: false }
    }

    /// Settings of claims whose keys begin with `name`, which ends with `.`.
    pub const fn family(name: &'static str, meaning: &'static str) -> Self {
        Self::new(name, meaning).of_claims()
    }

    /// And claims may set it, if their class lets them.
    #[must_use]
    pub const fn of_claims(self) -> Self {
        Self { is_of_claims: true, ..self }
    }

    /// And it is also for buckets that existed before.
    #[must_use]
    pub const fn of_existing_buckets(self) -> Self {
        Self { is_of_existing_buckets: true, ..self }
    }

    /// And it is also for the users of claims, whatever their buckets.
    #[must_use]
    pub const fn of_users(self) -> Self {
        Self { is_of_users: true, ..self }
    }

    fn is_family(&self) -> bool {
        self.name.ends_with('.')
    }

    /// Whether it has this key.
    pub(crate) fn has(&self, key: &str) -> bool {
        match self.is_family() {
            true => key.strip_prefix(self.name).is_some_and(|rest| !rest.is_empty()),
            false => key == self.name,
        }
    }

    /// Whether an entry of `claimsMaySet` can mean it.
    fn can_be(&self, entry: &str) -> bool {
        self.is_of_claims && self.has(entry)
    }
}

/// What classes and claims of a store can set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settable {
    pub(super) settings: &'static [Setting],
    pub(super) shared_buckets: bool,
}

impl Settable {
    /// Whether a class can let claims set something.
    fn has_any_of_claims(self) -> bool {
        self.shared_buckets || self.settings.iter().any(|setting| setting.is_of_claims)
    }
}

/// What is set for a claim's bucket. Values are never empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// By its class.
    pub of_class: BTreeMap<String, String>,
    /// By the claim, as far as its class lets it.
    pub of_claim: BTreeMap<String, String>,
    /// What the claim may set, as the class had it when the claim was planned.
    pub claims_may_set: MaySet,
    /// What a bound claim no longer sets, until the store has [applied](super::Provisioner::check) that.
    pub released: BTreeSet<String>,
}

impl Settings {
    /// The value of a setting: the claim's, or else that of the class.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.of_claim.get(key).or_else(|| self.of_class.get(key)).map(String::as_str)
    }

    /// Those of the class that do not change a bucket, such as what its keys need.
    pub(crate) fn of_existing_buckets(self, known: &[Setting]) -> Self {
        self.of_class_where(known, |setting| setting.is_of_existing_buckets)
    }

    /// Those of the class for users alone.
    pub(crate) fn of_users(self, known: &[Setting]) -> Self {
        self.of_class_where(known, |setting| setting.is_of_users)
    }

    fn of_class_where(self, known: &[Setting], is_kept: impl Fn(&Setting) -> bool) -> Self {
        let mut of_class = self.of_class;
        of_class.retain(|key, _| known.iter().any(|setting| is_kept(setting) && setting.has(key)));
        Self { of_class, ..Self::default() }
    }

    /// Everything that is set, by class and claim.
    pub fn effective(&self) -> BTreeMap<&str, &str> {
        let all = self.of_class.iter().chain(&self.of_claim);
        all.map(|(key, value)| (key.as_str(), value.as_str())).collect()
    }

    /// Whether nothing is set, and nothing is left to be released.
    pub fn is_empty(&self) -> bool {
        self.of_class.is_empty() && self.of_claim.is_empty() && self.released.is_empty()
    }

    /// The settings of the claim whose keys begin with `prefix`, without it.
    pub fn family<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.of_claim.iter().filter_map(move |(key, value)| Some((key.strip_prefix(prefix)?, value.as_str())))
    }

    /// What is recorded of it.
    pub(crate) fn recorded(&self) -> impl Iterator<Item = (String, String)> {
        // Without `..`, so that a new field cannot be forgotten here.
        let Self { of_class, of_claim, claims_may_set, released } = self;
        let all = |prefix: &'static str, entries: &BTreeMap<String, String>| {
            entries.iter().map(|(key, value)| (format!("{prefix}{key}"), value.clone())).collect::<Vec<_>>()
        };
        let list = |key: &str, entries: &BTreeSet<String>| {
            let text = entries.iter().map(String::as_str).collect::<Vec<_>>().join(",");
            (!text.is_empty()).then(|| (key.to_owned(), text))
        };
        let lists = [list(CLAIMS_MAY_SET, &claims_may_set.0), list(RELEASED_SETTINGS, released)];
        all(SETTING, of_class).into_iter().chain(all(CLAIM_SETTING, of_claim)).chain(lists.into_iter().flatten())
    }

    /// Reads what is recorded. `all`: takes the entries whose keys begin so; `one`: takes an entry.
    pub(crate) fn read_recorded<S>(
        state: &mut S,
        all: impl Fn(&mut S, &str) -> BTreeMap<String, String>,
        one: impl Fn(&mut S, &str) -> Option<String>,
    ) -> Self {
        let mut list = |key: &str| one(state, key).map(|text| split(&text).map(str::to_owned).collect());
        let (may_set, released) = (list(CLAIMS_MAY_SET), list(RELEASED_SETTINGS));
        Self {
            of_class: all(state, SETTING),
            of_claim: all(state, CLAIM_SETTING),
            claims_may_set: MaySet(may_set.unwrap_or_default()),
            released: released.unwrap_or_default(),
        }
    }
}

fn split(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|entry| !entry.is_empty())
}

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SettingError {
    /// Its key.
    pub key: String,
    /// What is wrong with its value, as the end of a sentence.
    pub problem: String,
    /// What to write instead.
    pub remedy: String,
}

impl SettingError {
    /// "KEY: VALUE PROBLEM; REMEDY".
    pub fn new(key: impl Into<String>, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { key: key.into(), problem: problem.into(), remedy: remedy.into() }
    }
}

/// `claimsMaySet`: keys, and families with `*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MaySet(BTreeSet<String>);

impl MaySet {
    fn parse(text: &str, has: Settable) -> Result<Self, ParameterError> {
        let known = has.settings;
        let entries: BTreeSet<_> = split(text).map(str::to_owned).collect();
        let shares = |entry: &str| has.shared_buckets && entry == BUCKET_CLAIM_NAME;
        let is_settable = |entry: &str| shares(entry) || known.iter().any(|setting| setting.can_be(entry));
        let names = || {
            let names = known.iter().filter(|setting| setting.is_of_claims);
            let name = |setting: &Setting| {
                if setting.is_family() { format!("{}{ALL}", setting.name) } else { setting.name.to_owned() }
            };
            let names = names.map(name).chain(has.shared_buckets.then(|| BUCKET_CLAIM_NAME.to_owned()));
            names.collect::<Vec<_>>().join(", ")
        };
        if let Some(entry) = entries.iter().find(|entry| !is_settable(entry)) {
            let problem = match known.iter().any(|setting| setting.has(entry)) {
                true => format!("has {entry:?}, which only admins may set"),
                false if entry == ACCESS_MODE => "has \"accessMode\", which claims may always narrow".to_owned(),
                false => format!("has {entry:?}, which is not a setting"),
            };
            return Err(ParameterError::bad(MAY_SET, text, problem, format!("use some of: {}", names())));
        }
        Ok(Self(entries))
    }

    /// These, for tests: keys, and families such as `labels.*`.
    pub fn of<const N: usize>(entries: [&str; N]) -> Self {
        Self(entries.map(str::to_owned).into())
    }

    /// Whether claims may set nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a claim may set this.
    pub fn contains(&self, key: &str) -> bool {
        self.0.contains(key)
            || self.0.iter().filter_map(|entry| entry.strip_suffix(ALL)).any(|family| key.starts_with(family))
    }
}

impl fmt::Display for MaySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
    }
}

/// The class parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassSettings {
    /// The settings of the class, as they are written.
    pub set: BTreeMap<String, String>,
    /// `claimsMaySet`.
    pub claims_may_set: MaySet,
}

impl ClassSettings {
    pub(super) fn names(has: Settable) -> impl Iterator<Item = &'static str> {
        let known = has.settings;
        let lists = if has.has_any_of_claims() { names_of::<Raw>() } else { &[] };
        known.iter().filter(|setting| !setting.is_family()).map(|setting| setting.name).chain(lists.iter().copied())
    }

    pub(super) fn table(has: Settable) -> Vec<Parameter> {
        let settings = has.settings.iter().filter(|setting| !setting.is_family());
        let mut table: Vec<_> = settings.map(|setting| Parameter::new(setting.name, "none", setting.meaning)).collect();
        if has.has_any_of_claims() {
            table.extend(table_of::<Raw>());
        }
        table
    }

    /// Parses what an admin wrote. Other parameters do not matter. `names_bucket`: the class has `bucketName`.
    pub(super) fn parse(
        written: &BTreeMap<String, String>,
        has: Settable,
        names_bucket: bool,
    ) -> Result<Self, ParameterError> {
        let of_new_buckets = |name: &str| {
            let problem = "applies to new buckets, but bucketName names an existing one".to_owned();
            Err(ParameterError::Unshown { name: name.to_owned().into(), problem, remedy: "remove it".into() })
        };
        let mut set = BTreeMap::new();
        for setting in has.settings {
            let Some(value) = written.get(setting.name) else { continue };
            if names_bucket && !setting.is_of_existing_buckets && !setting.is_of_users {
                return of_new_buckets(setting.name);
            }
            let unshown = |problem: String, remedy: String| ParameterError::Unshown {
                name: setting.name.into(),
                problem,
                remedy: remedy.into(),
            };
            if value.is_empty() {
                return Err(unshown("is empty".to_owned(), "give it a value, or remove it".to_owned()));
            }
            if value.len() > LONGEST {
                let problem = format!("has {} bytes", value.len());
                return Err(unshown(problem, format!("write up to {LONGEST}")));
            }
            if let Some(variable) = variables::unknown(value) {
                let problem = format!("has the variable {variable:?}");
                return Err(unshown(problem, format!("use only {}", variables::KNOWN)));
            }
            set.insert(setting.name.to_owned(), value.clone());
        }
        let text =
            has.has_any_of_claims().then(|| read::<Raw>(written)).transpose()?.and_then(|raw| raw.claims_may_set);
        let claims_may_set = match text {
            Some(_) if names_bucket => return of_new_buckets(MAY_SET),
            Some(text) => MaySet::parse(&text, has)?,
            None => MaySet::default(),
        };
        Ok(Self { set, claims_may_set })
    }

    /// What a claim of this namespace, name and uid gets that sets nothing.
    pub(crate) fn of(&self, claim: [&str; 3]) -> Settings {
        let of_class = self.set.iter().map(|(key, value)| (key.clone(), variables::replaced(value, claim))).collect();
        Settings { of_class, claims_may_set: self.claims_may_set.clone(), ..Settings::default() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const SETTINGS: &[Setting] = &[
        Setting::new("color", "").of_claims(),
        Setting::new("labels", ""),
        Setting::family("labels.", ""),
        Setting::new("vault", "").of_existing_buckets(),
    ];

    fn parse(entries: &[(&str, &str)], names_bucket: bool) -> Result<ClassSettings, ParameterError> {
        let written = entries.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        ClassSettings::parse(&written, Settable { settings: SETTINGS, shared_buckets: false }, names_bucket)
    }

    #[test]
    fn claims_may_set_what_the_class_lists() {
        let may_set = parse(&[("claimsMaySet", "color, labels.*")], false).unwrap().claims_may_set;
        for (key, may) in [("color", true), ("labels.team", true), ("labels", false), ("vault", false)] {
            assert_eq!(may_set.contains(key), may, "{key}");
        }
        let one = parse(&[("claimsMaySet", "labels.team")], false).unwrap().claims_may_set;
        assert!(one.contains("labels.team") && !one.contains("labels.owner"));
        assert!(!ClassSettings::default().claims_may_set.contains("color"));
    }

    #[test]
    fn a_bad_list_names_the_entry_and_those_that_can_be_used() {
        for (list, problem) in [("labels", "only admins"), ("vault", "only admins"), ("colour", "is not a setting")] {
            let message = parse(&[("claimsMaySet", list)], false).unwrap_err().to_string();
            assert!(message.contains(problem) && message.ends_with("use some of: color, labels.*"), "{message}");
        }
    }

    #[test]
    fn an_existing_bucket_is_not_changed() {
        for given in [("color", "red"), ("claimsMaySet", "color")] {
            let message = parse(&[given], true).unwrap_err().to_string();
            assert!(message.contains("bucketName names an existing one"), "{message}");
        }
        assert_eq!(parse(&[("vault", "a")], true).unwrap().set["vault"], "a");
    }

    #[test]
    fn a_class_uses_variables_of_the_claim() {
        let class = parse(&[("labels", "team=${namespace}")], false).unwrap();
        assert_eq!(class.of(["shop", "photos", "u"]).get("labels"), Some("team=shop"));
        let message = parse(&[("labels", "team=${team}")], false).unwrap_err().to_string();
        assert!(message.contains("\"${team}\"") && message.contains("${namespace}"), "{message}");
    }

    #[test]
    fn what_is_recorded_is_read_again() {
        let class = parse(&[("color", "red"), ("claimsMaySet", "labels.*,color")], false).unwrap();
        let mut settings = class.of(["shop", "photos", "u"]);
        settings.of_claim.insert("labels.team".into(), "a,b".into());
        settings.released.insert("color".into());
        let mut state: BTreeMap<_, _> = settings.recorded().collect();
        let all = |state: &mut BTreeMap<String, String>, prefix: &str| {
            let (taken, rest): (BTreeMap<_, _>, _) =
                std::mem::take(state).into_iter().partition(|(key, _)| key.starts_with(prefix));
            *state = rest;
            taken.into_iter().map(|(key, value)| (key[prefix.len()..].to_owned(), value)).collect()
        };
        assert_eq!(Settings::read_recorded(&mut state, all, |state, key| state.remove(key)), settings);
        assert!(state.is_empty(), "{state:?}");
    }
}
