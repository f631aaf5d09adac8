//! The namespaces whose claims can use a class.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use kube::core::{Expression, Selector, SelectorExt as _};

use super::parameter::ParameterError;

/// Name of the parameter with a label selector.
pub(crate) const SELECTOR: &str = "allowedNamespaceSelector";

/// Namespaces by name or prefix: `allowedNamespaces`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespaces(Vec<String>);

impl fmt::Display for Namespaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

impl Namespaces {
    pub(super) fn parse(value: &str) -> Result<Self, ParameterError> {
        let patterns: Vec<_> = value.split(',').map(|pattern| pattern.trim().to_owned()).collect();
        let fits = |pattern: &String| {
            let name = pattern.strip_suffix('*').unwrap_or(pattern);
            !pattern.is_empty()
                && name.len() <= 63
                && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        };
        match patterns.iter().position(|pattern| !fits(pattern)) {
            None => Ok(Self(patterns)),
            // The list may name other tenants.
            Some(index) => Err(ParameterError::Unshown {
                name: "allowedNamespaces".into(),
                problem: format!(
                    "cannot be used: entry {} is neither the name of a namespace nor a prefix with '*'",
                    index + 1
                ),
                remedy: "write names and prefixes, separated by commas, such as \"shop,team-*\"".into(),
            }),
        }
    }

    /// Names, and prefixes with `*`, as the admin wrote them.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = Self> + '_ {
        self.0.iter().map(|pattern| Self(vec![pattern.clone()]))
    }

    /// Whether a namespace is one of these.
    pub fn contain(&self, namespace: &str) -> bool {
        self.0.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => namespace.starts_with(prefix),
            None => namespace == pattern,
        })
    }
}

/// Namespaces by their labels: `allowedNamespaceSelector`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceSelector(Selector);

impl fmt::Display for NamespaceSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl NamespaceSelector {
    /// As the command kubectl takes a selector ("Labels and Selectors", Kubernetes documentation).
    pub(super) fn parse(value: &str) -> Result<Self, ParameterError> {
        let requirements: Option<Vec<_>> = requirements(value).map(requirement).collect();
        match requirements {
            Some(all) if !all.is_empty() => Ok(Self(all.into_iter().collect())),
            _ => {
                let remedy =
                    "write requirements, separated by commas, such as \"team=shop,tier in (prod,test),!legacy\"";
                Err(ParameterError::bad(SELECTOR, value, "is not a label selector", remedy))
            }
        }
    }

    /// Whether a namespace with these labels is one of these.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.matches(labels)
    }
}

/// What is between commas, but for those in parentheses.
fn requirements(value: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    value.split(move |c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    })
}

fn requirement(text: &str) -> Option<Expression> {
    let text = text.trim();
    let key = |text: &str| Some(text.trim().to_owned()).filter(|key| is_key(key));
    let value = |text: &str| Some(text.trim().to_owned()).filter(|value| value.is_empty() || is_name(value));
    if let Some(rest) = text.strip_prefix('!') {
        return Some(Expression::DoesNotExist(key(rest)?));
    }
    if let Some(list) = text.strip_suffix(')') {
        let (head, list) = list.split_once('(')?;
        let values: Option<BTreeSet<_>> = list.split(',').map(value).collect();
        let (name, operator) = head.trim().rsplit_once(char::is_whitespace)?;
        return match operator {
            "in" => Some(Expression::In(key(name)?, values?)),
            "notin" => Some(Expression::NotIn(key(name)?, values?)),
            _ => None,
        };
    }
    if let Some((name, wanted)) = text.split_once("!=") {
        return Some(Expression::NotEqual(key(name)?, value(wanted)?));
    }
    match text.split_once('=') {
        Some((name, wanted)) => Some(Expression::Equal(key(name)?, value(wanted.strip_prefix('=').unwrap_or(wanted))?)),
        None => Some(Expression::Exists(key(text)?)),
    }
}

/// A name, perhaps behind a prefix and a slash.
fn is_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => crate::api::object_name(prefix).is_some() && is_name(name),
        None => is_name(key),
    }
}

fn is_name(name: &str) -> bool {
    let is_end = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    name.len() <= 63
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        && is_end(name.bytes().next())
        && is_end(name.bytes().last())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_selector_is_read_as_kubectl_reads_it() {
        let matches = |selector: &str, labels: &[(&str, &str)]| {
            let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            NamespaceSelector::parse(selector).unwrap().matches(&labels)
        };
        let shop = [("team", "shop"), ("kubernetes.io/tier", "prod")];
        for (selector, fits) in [
            ("team=shop", true),
            ("team == shop", true),
            ("team!=shop", false),
            ("team", true),
            ("!team", false),
            ("team in (shop, payments), kubernetes.io/tier notin (test)", true),
            ("team=shop,legacy", false),
            ("team=", false),
        ] {
            assert_eq!(matches(selector, &shop), fits, "{selector}");
        }
        assert!(!matches("team=shop", &[]));
        let text = "team in (a,b),!legacy";
        assert_eq!(NamespaceSelector::parse(text).unwrap().to_string(), text);
    }

    #[test]
    fn what_is_no_selector_is_refused() {
        for value in ["", "team=shop,", "team in shop", "team in (", "a b", "-x=1", "team=a/b", "x>1", "!", "a/b/c"] {
            let error = NamespaceSelector::parse(value).unwrap_err().to_string();
            assert!(error.contains(SELECTOR) && error.contains("tier in (prod,test)"), "{error}");
        }
    }
}
