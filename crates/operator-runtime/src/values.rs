//! The values of flags: what is accepted, and the errors for what is not.

use std::ffi::OsString;
use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;

use crate::name;

/// A value that is not empty.
pub fn given(text: &Option<String>) -> Option<String> {
    text.clone().filter(|text| !text.is_empty())
}

/// Go's flag package accepts `-flag` for `--flag`.
pub fn go_style(arg: OsString) -> OsString {
    match arg.to_str() {
        Some(text) if is_long_with_one_dash(text) => format!("-{text}").into(),
        _ => arg,
    }
}

fn is_long_with_one_dash(arg: &str) -> bool {
    let Some(name) = arg.strip_prefix('-').map(|rest| rest.split('=').next().unwrap_or(rest)) else {
        return false;
    };
    name.len() > 1 && name.starts_with(|c: char| c.is_ascii_alphabetic()) && !is_short_with_value(name)
}

/// `-v2` and `-ojson` are short flags with their values.
fn is_short_with_value(name: &str) -> bool {
    name.strip_prefix('v').is_some_and(|value| value.bytes().all(|b| b.is_ascii_digit()))
        || name.strip_prefix('o').is_some_and(|value| ["table", "wide", "yaml", "json"].contains(&value))
}

/// What the API server accepts as `StorageClass.provisioner`.
pub fn provisioner_name(name: &str) -> Result<String, String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if name.is_empty() || name.len() > 253 || !name.chars().all(allowed) {
        return Err("must consist of letters, digits, '-', '_', '.' and '/', like StorageClass.provisioner".to_owned());
    }
    Ok(name.to_owned())
}

/// A duration in Go's format: `15s`, `500ms`, `1m30s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<SignedDuration>().ok().and_then(|parsed| Duration::try_from(parsed).ok());
    match parsed {
        Some(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("must be a duration longer than zero, such as 15s, 500ms or 1m".to_owned()),
    }
}

/// The name of an object: a DNS subdomain. An empty name counts as not set.
pub fn object_name(name: &str) -> Result<String, String> {
    if !name.is_empty() && name::object_name(name).is_none() {
        return Err("must consist of lower-case letters, digits, '-' and '.', like the name of an object".to_owned());
    }
    Ok(name.to_owned())
}

/// A namespace and a name, as NAMESPACE/NAME.
pub fn namespaced_name(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err("write a namespace and a name, such as shop/photos".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_in_go() {
        let read = [("15s", 15_000), ("500ms", 500), ("1m", 60_000), ("1h1m1.5s", 3_661_500), ("1.5m", 90_000)];
        for (text, milliseconds) in read {
            assert_eq!(duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "15", "0s", "-1s", "s", "1x"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
