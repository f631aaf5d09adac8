//! What happens to a created bucket and its content when its claim is deleted: the class parameter `onDelete`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::parameter::ParameterError;

/// The name of the class parameter.
pub(crate) const ON_DELETE: &str = "onDelete";

const PURGE: &str = "purge";
const IF_EMPTY: &str = "ifEmpty";
const AFTER: &str = "after:";

/// Longest time between the deletion of a claim and that of its bucket.
const LONGEST: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

/// What happens to a created bucket and its content when its claim is deleted and the reclaimPolicy is Delete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDelete {
    /// The bucket is emptied and deleted at once.
    #[default]
    Purge,
    /// The bucket is deleted if it is empty. Otherwise it stays until an admin decides.
    IfEmpty,
    /// The bucket stays for this time, in which the deletion can be undone. Then it is emptied and deleted.
    After(Duration),
}

impl fmt::Display for OnDelete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Purge => f.write_str(PURGE),
            Self::IfEmpty => f.write_str(IF_EMPTY),
            Self::After(time) => {
                let seconds = time.as_secs();
                let units = [(86_400, 'd'), (3_600, 'h'), (60, 'm')];
                match units.into_iter().find(|(unit, _)| seconds % unit == 0) {
                    Some((unit, letter)) => write!(f, "{AFTER}{}{letter}", seconds / unit),
                    None => write!(f, "{AFTER}{}", humantime::format_duration(*time)),
                }
            }
        }
    }
}

/// Why a text is not an [`OnDelete`]. What is wrong, then the remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{problem}; {remedy}")]
pub struct InvalidOnDelete {
    problem: &'static str,
    remedy: &'static str,
}

impl FromStr for OnDelete {
    type Err = InvalidOnDelete;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = |problem, remedy| Err(InvalidOnDelete { problem, remedy });
        let time = match text {
            PURGE => return Ok(Self::Purge),
            IF_EMPTY => return Ok(Self::IfEmpty),
            _ => text.strip_prefix(AFTER),
        };
        let Some(time) = time else {
            return invalid(
                "is not a known value",
                "write \"purge\", \"ifEmpty\", or \"after:\" and a duration, such as \"after:7d\"",
            );
        };
        match humantime::parse_duration(time) {
            Err(_) => invalid(
                "has no valid duration",
                "write a number with a unit after \"after:\", such as \"after:7d\" or \"after:12h\"",
            ),
            Ok(time) if time < Duration::from_secs(1) => {
                invalid("is too short", "write \"after:1s\" or more, or \"purge\" to delete the bucket at once")
            }
            Ok(time) if time > LONGEST => invalid(
                "is too long",
                "write \"after:3650d\" or less; a class with reclaimPolicy Retain keeps buckets forever",
            ),
            // Recorded in whole seconds.
            Ok(time) => Ok(Self::After(Duration::from_secs(time.as_secs()))),
        }
    }
}

impl OnDelete {
    /// What an admin wrote.
    pub(super) fn parse(value: &str) -> Result<Self, ParameterError> {
        value
            .parse()
            .map_err(|InvalidOnDelete { problem, remedy }| ParameterError::bad(ON_DELETE, value, problem, remedy))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_value_is_read_back_as_it_is_recorded() {
        let after = |hours: u64| OnDelete::After(Duration::from_secs(hours * 3_600));
        for (written, parsed, recorded) in [
            ("purge", OnDelete::Purge, "purge"),
            ("ifEmpty", OnDelete::IfEmpty, "ifEmpty"),
            ("after:7d", after(168), "after:7d"),
            ("after:168h", after(168), "after:7d"),
            ("after:1day 12h", after(36), "after:36h"),
            ("after:90m", OnDelete::After(Duration::from_secs(5_400)), "after:90m"),
            ("after:90s", OnDelete::After(Duration::from_secs(90)), "after:1m 30s"),
        ] {
            assert_eq!(written.parse(), Ok(parsed));
            assert_eq!(parsed.to_string(), recorded);
            assert_eq!(recorded.parse(), Ok(parsed));
        }
    }

    #[test]
    fn a_bad_value_names_parameter_value_and_remedy() {
        for (value, remedy) in [
            ("retain", "write \"purge\""),
            ("7d", "\"after:7d\""),
            ("after:", "a number with a unit"),
            ("after:soon", "a number with a unit"),
            ("after:0s", "\"after:1s\" or more"),
            ("after:4000d", "reclaimPolicy Retain"),
        ] {
            let message = OnDelete::parse(value).unwrap_err().to_string();
            assert!(message.starts_with(&format!("parameter onDelete: {value:?} ")), "{message}");
            assert!(message.contains(remedy), "{message}");
        }
    }
}
