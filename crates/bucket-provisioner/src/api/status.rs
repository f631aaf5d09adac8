//! What the statuses of both kinds share: conditions like `metav1.Condition`, and tolerant reading.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not; reason and message show why.
    False,
    /// Not known.
    Unknown,
}

/// One aspect of an object's state, as in `metav1.Condition`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The aspect, such as `Ready`.
    #[serde(rename = "type")]
    pub type_: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Machine-readable cause in CamelCase.
    #[serde(default)]
    pub reason: String,
    /// The cause in a sentence, with the remedy.
    #[serde(default)]
    pub message: String,
    /// `metadata.generation` the condition was derived from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When `status` last changed, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: Option<String>,
}

/// Type and reason of the condition that our CRD gives each claim, until an operator reports something.
pub(super) const READY: &str = "Ready";
pub(super) const NOT_REPORTED: &str = "Pending";

impl Condition {
    /// Whether it is that of the CRD.
    pub(crate) fn is_default(&self) -> bool {
        self.type_ == READY && self.status == ConditionStatus::Unknown && self.reason == NOT_REPORTED
    }
}

/// Reads an optional enum. A value that this version does not know becomes `None`, because it must not make the whole
/// object unreadable.
pub(super) fn known_or_none<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: serde::de::DeserializeOwned,
{
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).ok())
}
