//! Access that a claim had before it was moved to another class or cluster, and that ends later.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{OwnerRef, Plan, Record, RoleRef, SecretRef, ServiceAccount};

/// What is needed to revoke it. It is recorded as JSON, with names as in the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PreviousAccess {
    /// The user or role; `None` if the claim shared the provisioning credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_account_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_audience: Option<String>,
    /// Namespace and name of the Secret with the provisioning credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<[String; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_role: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_role_external_id: Option<String>,
    /// The store's entries.
    pub(crate) state: BTreeMap<String, String>,
    /// The keys that only it had in the claim's ConfigMap.
    pub(crate) outputs: BTreeSet<String>,
    /// When it ends; `None`: apps do not have the new access yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ends_at: Option<Timestamp>,
}

impl PreviousAccess {
    /// The access of this record, which `next` replaces.
    pub(crate) fn of(record: &Record, next: &Plan) -> Self {
        let Plan { owner: OwnerRef { secret, role }, user, service_account, state, outputs, .. } = &record.plan;
        Self {
            user_name: user.clone(),
            service_account_name: service_account.as_ref().map(|account| account.name.clone()),
            token_audience: service_account.as_ref().and_then(|account| account.audience.clone()),
            secret: secret.clone().map(|SecretRef { namespace, name }| [namespace, name]),
            owner_role: role.as_ref().map(|role| role.name.clone()),
            owner_role_external_id: role.as_ref().and_then(|role| role.external_id.clone()),
            state: state.clone(),
            outputs: outputs.keys().filter(|key| !next.outputs.contains_key(*key)).cloned().collect(),
            ends_at: None,
        }
    }

    /// The record of the same claim and bucket as it was with this access.
    pub(crate) fn record(&self, now: &Record) -> Record {
        let account = |name: &String| ServiceAccount { name: name.clone(), audience: self.token_audience.clone() };
        let secret = self.secret.clone().map(|[namespace, name]| SecretRef { namespace, name });
        let role = self.owner_role.clone();
        let role = role.map(|name| RoleRef { name, external_id: self.owner_role_external_id.clone() });
        Record {
            previous_access: Vec::new(),
            plan: Plan {
                owner: OwnerRef { secret, role },
                user: self.user_name.clone(),
                service_account: self.service_account_name.as_ref().map(account),
                state: self.state.clone(),
                ..now.plan.clone()
            },
            ..now.clone()
        }
    }
}

impl Record {
    /// Whether the claim gets other access now: its apps do not have that yet.
    pub(crate) fn is_moving(&self) -> bool {
        self.previous_access.iter().any(|previous| previous.ends_at.is_none())
    }
}

/// What is recorded of it; nothing if the claim was never moved.
pub(crate) fn recorded(previous: &[PreviousAccess]) -> Option<String> {
    // It has only texts, so nothing can fail.
    (!previous.is_empty()).then(|| serde_json::to_string(previous).unwrap_or_default())
}

/// Reads what is recorded.
///
/// # Errors
/// Why it cannot be read.
pub(crate) fn read_recorded(text: &str) -> Result<Vec<PreviousAccess>, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}
