//! Policy documents as stores give them back.

use serde_json::Value;

/// Reads a document as IAM returns it: percent-encoded (RFC 3986).
pub(crate) fn read(text: &str) -> Option<Value> {
    let text = percent_encoding::percent_decode_str(text).decode_utf8().ok()?;
    serde_json::from_str(&text).ok().map(without_lists_of_one)
}

/// A list of one element means the same as the element, and some stores return one for the other.
pub(crate) fn without_lists_of_one(value: Value) -> Value {
    match value {
        Value::Array(mut values) if values.len() == 1 => values.pop().map_or(Value::Null, without_lists_of_one),
        Value::Array(values) => values.into_iter().map(without_lists_of_one).collect(),
        Value::Object(entries) => {
            Value::Object(entries.into_iter().map(|(key, value)| (key, without_lists_of_one(value))).collect())
        }
        value => value,
    }
}
