//! What a store adds to the claim's Secret, ConfigMap and record: which entries can be written. Pure.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret as _, SecretString};

use crate::api::wire;
use crate::refusal::Refusal;
use crate::store::{PARAMETER, Plan};

/// Most that a store can add to one object, in bytes. Kubernetes refuses a Secret or ConfigMap of more than 1 MiB, which
/// a retry would not change; half of that leaves room for what others add.
const SIZE_MAX: usize = 512 * 1024;

/// Most entries that a store can add to the ConfigMap. The cache keeps a trace of each, and of no more, because a tenant
/// could write thousands.
pub(crate) const COUNT_MAX: usize = 32;

/// Longest key that Kubernetes accepts.
const KEY_MAX: usize = 253;

/// Checks what the plan adds to the ConfigMap.
///
/// # Errors
/// [`Refusal::InvalidConfigMapOutput`]: the first entry that cannot be written.
pub(crate) fn check_config_map(plan: &Plan) -> Result<(), Refusal> {
    let (count, too_many) = (plan.outputs.len(), plan.outputs.len() > COUNT_MAX);
    let too_many = too_many.then(|| {
        format!("there are {count}, and {COUNT_MAX} are allowed; the operator's developers must merge or omit some")
    });
    // Records cannot hold empty values.
    let empty = || plan.outputs.iter().find(|(_, value)| value.is_empty());
    let problem = too_many
        .or_else(|| plan.outputs.keys().find_map(|key| bad_key(key)))
        .or_else(|| too_large(plan.outputs.iter().map(|(key, value)| key.len() + value.len()).sum()))
        .or_else(|| {
            empty().map(|(key, _)| format!("the value of {key:?} is empty; the operator's developers must omit it"))
        });
    problem.map_or(Ok(()), |problem| Err(Refusal::InvalidConfigMapOutput { problem }))
}

/// Checks the store's own state. A record gives back other state than this one, so it would never be what is planned, and
/// the operator would undo it and begin again for ever.
///
/// # Errors
/// [`Refusal::InvalidState`]: the first entry that cannot be recorded.
pub(crate) fn check_state(plan: &Plan) -> Result<(), Refusal> {
    let problem = plan.state.iter().find_map(|(key, value)| {
        if wire::state::ALL.contains(&key.as_str()) {
            return Some(format!("{key:?} is a key of the operator's library; {CHOOSE_ANOTHER}"));
        }
        if let Some(prefix) = wire::state::FAMILIES.into_iter().find(|prefix| key.starts_with(prefix)) {
            return Some(format!(
                "{key:?} begins with {prefix:?}, as entries of the operator's library do; {CHOOSE_ANOTHER}"
            ));
        }
        // A class parameter is what an admin wrote.
        (value.is_empty() && !key.starts_with(PARAMETER))
            .then(|| format!("the value of {key:?} is empty; the operator's developers must omit it"))
    });
    problem.map_or(Ok(()), |problem| Err(Refusal::InvalidState { problem }))
}

/// Takes out what cannot be written into the Secret, beside a ConfigMap with what the plan adds. Returns a note on it.
///
/// The keys are published without it: the store has issued them already, and would have to issue others with every
/// attempt. The ConfigMap wins, because its entries are recorded, and those of a bound claim never change.
pub(crate) fn take_out_refused(outputs: &mut BTreeMap<String, SecretString>, plan: &Plan) -> Option<String> {
    let mut problems = Vec::new();
    outputs.retain(|key, _| {
        let in_both = || format!("{key:?} is in the ConfigMap, too; {CHOOSE_ANOTHER}");
        let problem = bad_key(key).or_else(|| plan.outputs.contains_key(key).then(in_both));
        let is_good = problem.is_none();
        problems.extend(problem);
        is_good
    });
    let size = outputs.iter().map(|(key, value)| key.len() + value.expose_secret().len()).sum();
    if let Some(problem) = too_large(size) {
        outputs.clear();
        problems.push(problem);
    }
    (!problems.is_empty()).then(|| {
        format!("the claim's Secret lacks entries of the store, which cannot be written: {}", problems.join("; "))
    })
}

const CHOOSE_ANOTHER: &str = "the operator's developers must choose another key";

/// Why a store cannot add an entry with this key.
pub(crate) fn bad_key(key: &str) -> Option<String> {
    if wire::is_standard_output(key) {
        return Some(format!("{key:?} is a standard key; {CHOOSE_ANOTHER}"));
    }
    if !(1..=KEY_MAX).contains(&key.len()) {
        return Some(format!("a key has {} characters, not 1 to {KEY_MAX}; {CHOOSE_ANOTHER}", key.len()));
    }
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (key == "." || key.starts_with("..") || !key.bytes().all(fits)).then(|| {
        format!(
            "{key:?} is not a key that Kubernetes accepts (letters, digits, '-', '_' and '.', not \".\", and not \"..\" first); {CHOOSE_ANOTHER}"
        )
    })
}

/// `size`: of keys and values, in bytes.
fn too_large(size: usize) -> Option<String> {
    (size > SIZE_MAX).then(|| {
        format!("the entries have {size} bytes, and {SIZE_MAX} are allowed; the operator's developers must reduce them")
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::decide::testing::record;
    use crate::error::Error;
    use crate::store::{AppCredentials, Failure as _, FailureClass};

    fn plan(entries: &[(&str, &str)]) -> Plan {
        entries.iter().fold(record().plan, |plan, (key, value)| plan.with_output(*key, *value))
    }

    /// The keys of what is left, and the note on the rest.
    fn in_secret(entries: &[(&str, &str)], plan: &Plan) -> (Vec<String>, Option<String>) {
        let keys = AppCredentials::new("AKIA1", "hunter1".into());
        let mut keys = entries.iter().fold(keys, |keys, (key, value)| keys.with_output(*key, (*value).into()));
        let note = take_out_refused(&mut keys.outputs, plan);
        (keys.outputs.into_keys().collect(), note)
    }

    #[test]
    fn keys_that_kubernetes_accepts_can_be_added_to_both() {
        let longest = "k".repeat(KEY_MAX);
        let keys = ["CA_BUNDLE", "ca.crt", ".hidden", "-", "0", &longest];
        for key in keys {
            check_config_map(&plan(&[(key, "v")])).unwrap();
            assert_eq!(in_secret(&[(key, "v")], &plan(&[("FORMAT", "parquet")])), (vec![key.to_owned()], None));
        }
    }

    #[test]
    fn an_invalid_entry_is_refused_without_showing_its_value() {
        let (long, large) = ("k".repeat(KEY_MAX + 1), "hunter2".repeat(SIZE_MAX / 7 + 1));
        let cases = [
            ("AWS_ACCESS_KEY_ID", "hunter2", "\"AWS_ACCESS_KEY_ID\" is a standard key"),
            ("AWS_SECRET_ACCESS_KEY", "hunter2", "standard key"),
            ("AWS_SESSION_TOKEN", "hunter2", "standard key"),
            ("BUCKET_NAME", "hunter2", "standard key"),
            ("AWS_DEFAULT_REGION", "hunter2", "standard key"),
            ("AWS_ENDPOINT_URL_S3", "hunter2", "standard key"),
            ("", "hunter2", "a key has 0 characters, not 1 to 253"),
            (&long, "hunter2", "a key has 254 characters"),
            ("a b", "hunter2", "\"a b\" is not a key that Kubernetes accepts"),
            ("ä", "hunter2", "not a key that Kubernetes accepts"),
            (".", "hunter2", "not a key that Kubernetes accepts"),
            ("..a", "hunter2", "not a key that Kubernetes accepts"),
            ("a", &large, "and 524288 are allowed"),
        ];
        for (key, value, problem) in cases {
            let planned = Error::from(check_config_map(&plan(&[(key, value)])).unwrap_err());
            assert_eq!((planned.reason(), planned.class()), ("InvalidOutput", FailureClass::Terminal));
            assert!(matches!(planned, Error::Refused(_)), "{key}");
            let (left, issued) = in_secret(&[(key, value)], &plan(&[]));
            assert_eq!(left, Vec::<String>::new());
            for message in [planned.to_string(), issued.unwrap()] {
                assert!(message.contains(problem) && message.contains("developers must"), "{message}");
                assert!(!message.contains("hunter2"), "{message}");
            }
        }
        let many = (0..=COUNT_MAX).fold(plan(&[]), |plan, n| plan.with_output(format!("KEY_{n}"), "v"));
        insta::assert_snapshot!(check_config_map(&many).unwrap_err(), @"the entries that the store adds to the claim's ConfigMap cannot be written: there are 33, and 32 are allowed; the operator's developers must merge or omit some");
        let most = (0..COUNT_MAX).fold(plan(&[]), |plan, n| plan.with_output(format!("KEY_{n}"), "v"));
        check_config_map(&most).unwrap();
        insta::assert_snapshot!(check_config_map(&plan(&[("FORMAT", "")])).unwrap_err(), @r#"the entries that the store adds to the claim's ConfigMap cannot be written: the value of "FORMAT" is empty; the operator's developers must omit it"#);
    }

    #[test]
    fn state_that_a_record_would_change_is_refused() {
        let refused = |key: &str, value: &str| check_state(&record().plan.with_state(key, value)).err();
        for key in wire::state::ALL.into_iter().chain(["output.FORMAT", "output."]) {
            let refusal = Error::from(refused(key, "v").unwrap());
            assert!(refusal.to_string().contains(&format!("{key:?}")), "{refusal}");
            assert_eq!((refusal.reason(), refusal.class()), ("InvalidOutput", FailureClass::Terminal));
        }
        for key in ["shelf", "output", "parameter.mode", "parameter.output.x"] {
            assert!(refused(key, "v").is_none(), "{key}");
        }
        insta::assert_snapshot!(refused("mode", "v").unwrap(), @r#"the state that the store plans cannot be recorded: "mode" is a key of the operator's library; the operator's developers must choose another key"#);
        insta::assert_snapshot!(refused("shelf", "").unwrap(), @r#"the state that the store plans cannot be recorded: the value of "shelf" is empty; the operator's developers must omit it"#);
    }

    #[test]
    fn keys_are_written_without_invalid_entries() {
        let entries = [("CA_BUNDLE", "v"), ("FORMAT", "parquet"), ("BUCKET_NAME", "v")];
        let (left, note) = in_secret(&entries, &plan(&[("FORMAT", "csv")]));
        assert_eq!(left, ["CA_BUNDLE"]);
        insta::assert_snapshot!(note.unwrap(), @r#"the claim's Secret lacks entries of the store, which cannot be written: "BUCKET_NAME" is a standard key; the operator's developers must choose another key; "FORMAT" is in the ConfigMap, too; the operator's developers must choose another key"#);
    }
}
