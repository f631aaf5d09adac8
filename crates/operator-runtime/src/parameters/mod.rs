//! The parameters of a StorageClass: their documentation, and how they are read.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub mod written;

use self::written::Problem;

/// The documentation of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// Its default, as Markdown; empty if there is none to show.
    pub default: String,
    /// What it means, as Markdown.
    pub meaning: String,
    /// Whether it must be set.
    pub is_required: bool,
}

impl Parameter {
    /// One that can be left out.
    pub fn new(name: impl Into<String>, default: impl Into<String>, meaning: impl Into<String>) -> Self {
        Self { name: name.into(), default: default.into(), meaning: meaning.into(), is_required: false }
    }
}

/// The names of the fields of a struct, in their order.
pub fn names_of<T: DeserializeOwned>() -> &'static [&'static str] {
    written::fields::<T>()
}

/// The documentation of the fields of a struct, in their order: doc comments, and defaults that
/// `#[schemars(extend("default" = "…"))]` declares.
pub fn table_of<T: DeserializeOwned + JsonSchema>() -> Vec<Parameter> {
    let schema = schemars::schema_for!(T);
    let required: Vec<_> = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let parameter = |name: &&str| {
        let property = schema.get("properties").and_then(|properties| properties.get(name));
        let text = |key: &str| {
            let text = property.and_then(|property| property.get(key)).and_then(Value::as_str).unwrap_or_default();
            // Line breaks of the comment do not matter.
            text.replace('\n', " ")
        };
        Parameter {
            name: (*name).to_owned(),
            default: text("default"),
            meaning: text("description"),
            is_required: required.iter().any(|required| required == *name),
        }
    };
    names_of::<T>().iter().map(parameter).collect()
}

/// Parameters as a table in Markdown.
#[must_use]
pub fn markdown(parameters: &[Parameter]) -> String {
    let mut text = "| parameter | default | meaning |\n|---|---|---|\n".to_owned();
    for Parameter { name, default, meaning, is_required } in parameters {
        let default = if *is_required { "(required)" } else { default };
        text += &format!("| `{name}` | {default} | {meaning} |\n");
    }
    text
}

/// Checks that the parameters of a struct are known by the names of its fields.
///
/// # Errors
/// What has no such name, and the remedy: serde lists no field of a struct with `#[serde(flatten)]`, and none of a type that
/// is no struct.
pub fn check<T: DeserializeOwned + JsonSchema>() -> Result<(), String> {
    let schema = schemars::schema_for!(T);
    let names = names_of::<T>();
    let properties = schema.get("properties").and_then(Value::as_object);
    let unknown = properties.into_iter().flat_map(|all| all.keys()).find(|name| !names.contains(&name.as_str()));
    let remedy = "write one struct with a field for each parameter, without #[serde(flatten)]";
    if let Some(name) = unknown {
        return Err(format!("parameter {name:?} cannot be found by its name; {remedy}"));
    }
    let is_of = |schema: &Value, kind: &str| match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(|one| one == kind),
        one => one.is_some_and(|one| one == kind),
    };
    let unfit = |schema: &&Value| is_of(schema, "array") || is_of(schema, "object");
    if let Some((name, _)) = properties.into_iter().flatten().find(|(_, schema)| unfit(schema)) {
        return Err(format!(
            "parameter {name:?} is a list or a struct, but a StorageClass has texts only; use a type with #[serde(try_from = \"String\")] and #[schemars(with = \"String\")]"
        ));
    }
    let is_open = schema.get("additionalProperties").is_some_and(|more| *more != Value::Bool(false));
    if is_open || ["oneOf", "anyOf", "allOf"].into_iter().any(|choice| schema.get(choice).is_some()) {
        return Err(format!("not all parameters have a name; {remedy}"));
    }
    Ok(())
}

/// A struct with a field for each parameter, from what an admin wrote. Numbers and booleans are parsed.
///
/// # Errors
/// A parameter that is missing, or that its field does not accept.
pub fn read<T: DeserializeOwned>(written: &BTreeMap<String, String>) -> Result<T, ParameterError> {
    written::read(written).map_err(|problem| match problem {
        Problem::Missing(name) => {
            ParameterError::Missing { missing: name.into(), because: "the StorageClass must set it".into() }
        }
        Problem::Bad(name, problem) => {
            let value = written.get(&name).cloned().unwrap_or_default();
            ParameterError::Unfit { name, value, problem }
        }
        Problem::Other(problem) => ParameterError::Unreadable(problem),
    })
}

/// Why the parameters of a class cannot be used. The messages are shown on claims, so they contain no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[non_exhaustive]
pub enum ParameterError {
    /// A parameter that does not exist. `known` lists all that do.
    #[error("unknown parameter {name:?}{}", instead(.name, .known))]
    Unknown { name: String, known: String },
    /// A value that cannot be used, and the remedy.
    #[error("parameter {name}: {value:?} {problem}; {remedy}")]
    Bad { name: Cow<'static, str>, value: String, problem: String, remedy: Cow<'static, str> },
    /// A value that its type does not accept.
    #[error("parameter {name}: {value:?} {problem}")]
    Unfit { name: String, value: String, problem: String },
    /// A value that cannot be used and is not repeated on claims, because it may name an account or other tenants.
    #[error("parameter {name} {problem}; {remedy}")]
    Unshown { name: Cow<'static, str>, problem: String, remedy: Cow<'static, str> },
    /// A parameter without another one that it needs.
    #[error("parameter {missing} is missing: {because}")]
    Missing { missing: Cow<'static, str>, because: Cow<'static, str> },
    /// Any other error of serde.
    #[error("the parameters cannot be read: {0}")]
    Unreadable(String),
}

/// What to write instead of an unknown parameter: the known one that was probably meant, or else any of them.
fn instead(name: &str, known: &str) -> String {
    // Longer names are no slips, and would take long to compare.
    let compared = known.split(", ").filter(|known| name.len().abs_diff(known.len()) <= SLIPS);
    match compared.map(|known| (distance(name, known), known)).min() {
        Some((slips, known)) if slips <= SLIPS && slips < known.len() / 2 => format!(" (do you mean {known:?}?)"),
        _ => format!("; remove it, or use one of: {known}"),
    }
}

/// How many characters of a name may be wrong.
const SLIPS: usize = 2;

/// How many characters must be added, removed or replaced to get one name from the other, whatever their case.
fn distance(one: &str, other: &str) -> usize {
    let letters = |name: &str| name.to_lowercase().chars().collect::<Vec<_>>();
    let (one, other) = (letters(one), letters(other));
    let mut above: Vec<usize> = (0..=other.len()).collect();
    for (row, letter) in one.iter().enumerate() {
        let mut left = row + 1;
        let mut current = vec![left];
        for (other, pair) in other.iter().zip(above.windows(2)) {
            let [diagonal, above] = pair else { continue };
            left = (diagonal + usize::from(letter != other)).min(above + 1).min(left + 1);
            current.push(left);
        }
        above = current;
    }
    above.last().copied().unwrap_or_default()
}

impl ParameterError {
    /// A value that cannot be used, and the remedy: "parameter NAME: VALUE PROBLEM; REMEDY".
    pub fn bad(
        name: impl Into<Cow<'static, str>>,
        value: &str,
        problem: impl Into<String>,
        remedy: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::Bad { name: name.into(), value: value.to_owned(), problem: problem.into(), remedy: remedy.into() }
    }

    /// A parameter that must be set, because of another one.
    pub fn missing(missing: impl Into<Cow<'static, str>>, because: impl Into<Cow<'static, str>>) -> Self {
        Self::Missing { missing: missing.into(), because: because.into() }
    }
}

/// Reads a parameter that is "yes" or "no"; `default` counts where it is left out.
///
/// # Errors
/// Any other value.
pub fn yes_or_no(name: &'static str, value: Option<&str>, default: bool) -> Result<bool, ParameterError> {
    match value {
        None => Ok(default),
        Some("yes") => Ok(true),
        Some("no") => Ok(false),
        Some(other) => Err(ParameterError::bad(name, other, "is neither yes nor no", "write \"yes\" or \"no\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameter_that_was_probably_meant_is_named() {
        let known = "iamPath, region, secretName, secretNamespace, tags";
        let shown = |name: &str| ParameterError::Unknown { name: name.into(), known: known.into() }.to_string();
        for (name, meant) in [("Region", "region"), ("regoin", "region"), ("secretNames", "secretName")] {
            assert_eq!(shown(name), format!("unknown parameter {name:?} (do you mean {meant:?}?)"));
        }
        for name in ["tier", "x", "", "secret"] {
            assert_eq!(shown(name), format!("unknown parameter {name:?}; remove it, or use one of: {known}"));
        }
    }
}
