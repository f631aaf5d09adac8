//! When the keys of claims are rotated: the class parameters, and what is recorded of them. [`keys`](crate::decide::keys)
//! decides when that is due, `reconcile/provide/rotation.rs` does it.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::parameter::{Parameter, ParameterError, names_of, read, table_of};
use crate::api::wire::state::{KEY_GRACE_PERIOD, ROTATE_KEYS_EVERY};

/// What an admin wrote.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Raw {
    /// Age at which the operator replaces keys, such as `30d` or `720h`: at least an hour, and longer than
    /// `keyGracePeriod`.
    #[schemars(extend("default" = "never"))]
    rotate_keys_every: Option<String>,
    /// How long replaced keys still work; up to twice as long while they are used.
    #[schemars(extend("default" = "`24h`, or half of `rotateKeysEvery` if that is shorter"))]
    key_grace_period: Option<String>,
}

/// Keys are not rotated more often than this, because every app of the claim has to read the new ones.
const MIN_ROTATION: Duration = Duration::from_secs(60 * 60);

/// When the keys of a claim are rotated, and how long the previous ones still work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rotation {
    /// The age at which keys are rotated; `None`: only on request.
    pub every: Option<Duration>,
    /// How long the previous keys are kept, for apps that have not read the new ones yet.
    pub grace: Duration,
}

/// Only on request.
impl Default for Rotation {
    fn default() -> Self {
        Self { every: None, grace: Self::DEFAULT_GRACE }
    }
}

impl Rotation {
    /// The default grace period: there is a day to restart apps that read their keys only once.
    pub const DEFAULT_GRACE: Duration = Duration::from_secs(24 * 60 * 60);

    /// With the age at which keys are rotated.
    pub fn with_every(self, age: Duration) -> Self {
        Self { every: Some(age), ..self }
    }

    /// With the time for which the previous keys are kept.
    pub fn with_grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    pub(super) fn names() -> &'static [&'static str] {
        names_of::<Raw>()
    }

    pub(super) fn table() -> Vec<Parameter> {
        table_of::<Raw>()
    }

    /// Parses what an admin wrote. Other parameters do not matter.
    pub(super) fn parse(written: &BTreeMap<String, String>) -> Result<Self, ParameterError> {
        let raw: Raw = read(written)?;
        let parsed = duration(ROTATE_KEYS_EVERY, raw.rotate_keys_every.as_deref())?;
        let kept = duration(KEY_GRACE_PERIOD, raw.key_grace_period.as_deref())?;
        let (Some(text), Some(every)) = (raw.rotate_keys_every, parsed) else {
            return Ok(Self { every: None, grace: kept.unwrap_or(Self::DEFAULT_GRACE) });
        };
        // Frequent rotation shortens the default grace period.
        let grace = kept.unwrap_or(Self::DEFAULT_GRACE.min(every / 2));
        let bad = |problem: String, remedy| Err(ParameterError::bad(ROTATE_KEYS_EVERY, &text, problem, remedy));
        if every < MIN_ROTATION {
            return bad("is too short".to_owned(), "write \"1h\" or more");
        }
        if every <= grace {
            let kept = raw.key_grace_period.unwrap_or_default();
            let problem = format!("is not longer than keyGracePeriod ({kept:?})");
            return bad(problem, "make it longer: a user has two keys at most");
        }
        Ok(Self { every: Some(every), grace })
    }

    /// What is recorded of it, in seconds.
    pub(crate) fn recorded(&self) -> impl Iterator<Item = (&'static str, String)> {
        let grace = (self.grace != Self::DEFAULT_GRACE).then_some((KEY_GRACE_PERIOD, self.grace));
        let every = self.every.map(|every| (ROTATE_KEYS_EVERY, every));
        [every, grace].into_iter().flatten().map(|(key, value)| (key, value.as_secs().to_string()))
    }

    /// Reads what is recorded, with a function that reads a number of seconds.
    pub(crate) fn read_recorded<E>(mut seconds: impl FnMut(&str) -> Result<Option<Duration>, E>) -> Result<Self, E> {
        let every = seconds(ROTATE_KEYS_EVERY)?;
        Ok(Self { every, grace: seconds(KEY_GRACE_PERIOD)?.unwrap_or(Self::DEFAULT_GRACE) })
    }
}

fn duration(name: &'static str, value: Option<&str>) -> Result<Option<Duration>, ParameterError> {
    let Some(text) = value else { return Ok(None) };
    humantime::parse_duration(text).map(Some).map_err(|_| {
        let remedy = "write a number with a unit, such as \"720h\" or \"30d\"";
        ParameterError::bad(name, text, "is not a duration", remedy)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(entries: &[(&str, &str)]) -> Result<Rotation, ParameterError> {
        Rotation::parse(&entries.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    #[test]
    fn a_bad_value_names_parameter_value_and_remedy() {
        for (name, value, remedy) in [
            ("rotateKeysEvery", "monthly", "\"30d\""),
            ("rotateKeysEvery", "10m", "\"1h\" or more"),
            ("keyGracePeriod", "1 fortnight", "\"720h\""),
        ] {
            let message = parse(&[(name, value)]).unwrap_err().to_string();
            assert!(message.starts_with(&format!("parameter {name}: {value:?} ")), "{message}");
            assert!(message.contains(remedy), "{message}");
        }
    }

    #[test]
    fn the_grace_period_is_shorter_than_the_rotation() {
        let hour = Duration::from_secs(3600);
        let hourly = parse(&[("rotateKeysEvery", "1h")]).unwrap();
        assert_eq!(hourly, Rotation::default().with_every(hour).with_grace(hour / 2));
        let refused = parse(&[("rotateKeysEvery", "1h"), ("keyGracePeriod", "2h")]).unwrap_err().to_string();
        assert!(refused.contains("\"1h\" is not longer than keyGracePeriod (\"2h\")"), "{refused}");
        parse(&[("rotateKeysEvery", "1h"), ("keyGracePeriod", "1h")]).unwrap_err();
    }
}
