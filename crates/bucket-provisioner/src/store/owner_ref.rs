//! Which provisioning credentials a claim has, by name.

use std::fmt;

/// A Secret by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SecretRef {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The provisioning credentials of a claim, by name. The default is the operator's own (ambient) identity.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct OwnerRef {
    /// The Secret with their keys; `None` is the operator's own identity.
    pub secret: Option<SecretRef>,
    /// The role that these assume at the store; `None`: none.
    pub role: Option<RoleRef>,
}

/// A role that provisioning credentials assume.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct RoleRef {
    /// The role, as the store names it; on AWS, its ARN.
    pub name: String,
    /// What the role may demand of those who assume it, which is no secret.
    pub external_id: Option<String>,
}

impl RoleRef {
    /// A role that demands no external id.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), external_id: None }
    }

    /// With its external id.
    pub fn with_external_id(self, id: impl Into<String>) -> Self {
        Self { external_id: Some(id.into()), ..self }
    }
}

impl fmt::Display for RoleRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl OwnerRef {
    /// The keys in a Secret.
    pub fn of_secret(secret: SecretRef) -> Self {
        Self { secret: Some(secret), role: None }
    }

    /// The role that they assume.
    pub fn with_role(self, role: RoleRef) -> Self {
        Self { role: Some(role), ..self }
    }
}

/// For claims: without the name of the role, which may contain an account.
impl fmt::Display for OwnerRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { role: Some(_), .. } => f.write_str("the role that the StorageClass names"),
            Self { secret: Some(secret), role: None } => write!(f, "Secret {secret}"),
            Self { secret: None, role: None } => f.write_str("the operator's own identity"),
        }
    }
}
