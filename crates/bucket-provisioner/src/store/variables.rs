//! Variables in class parameters, which stand for the claim.

/// All of them, for messages.
pub(super) const KNOWN: &str = "${namespace}, ${claim} and ${uid}";

const NAMES: [&str; 3] = ["${namespace}", "${claim}", "${uid}"];

/// The text for a claim of this namespace, name and uid.
pub(super) fn replaced(text: &str, claim: [&str; 3]) -> String {
    NAMES.iter().zip(claim).fold(text.to_owned(), |text, (variable, value)| text.replace(variable, value))
}

/// The text without its variables.
pub(super) fn removed(text: &str) -> String {
    replaced(text, [""; 3])
}

/// The first part of a text that looks like a variable, and is none of them.
pub(super) fn unknown(text: &str) -> Option<String> {
    let rest = removed(text);
    let (_, after) = rest.split_once("${")?;
    Some(format!("${{{}}}", after.split('}').next().unwrap_or_default()))
}
