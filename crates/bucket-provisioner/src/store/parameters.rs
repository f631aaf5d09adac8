//! The parameters of a StorageClass, typed.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::common::CommonParameters;
use operator_runtime::parameters::{Parameter, ParameterError, check, names_of, read, table_of};

/// The parameters of a store's classes. Every struct that implements `serde::Deserialize` and `schemars::JsonSchema` is
/// one: each field is a parameter, its doc comment the documentation, and `#[serde(rename_all = "camelCase")]` gives the
/// usual names. `()` is a store without parameters of its own. Parameters that no field has are refused by name.
///
/// The [common parameters](CommonParameters) are parsed by the library; a store does not repeat them.
pub trait Parameters: Sized + Send + Sync + 'static {
    /// Their names. Others are refused.
    fn names() -> &'static [&'static str];

    /// All of them, for documentation.
    fn table() -> Vec<Parameter>;

    /// Whether the type can be used. An operator asks when it starts.
    ///
    /// # Errors
    /// What is wrong with the type, and the remedy.
    fn check() -> Result<(), String> {
        Ok(())
    }

    /// Parses what an admin wrote. Pure.
    ///
    /// # Errors
    /// The first parameter that cannot be used.
    fn parse(written: &Written<'_>) -> Result<Self, ParameterError>;
}

/// What an admin wrote into a class.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Written<'a> {
    /// The store's own parameters.
    pub own: &'a BTreeMap<String, String>,
    /// The common ones, parsed.
    pub common: &'a CommonParameters,
}

impl<'a> Written<'a> {
    /// What an admin wrote.
    pub fn new(own: &'a BTreeMap<String, String>, common: &'a CommonParameters) -> Self {
        Self { own, common }
    }
}

impl<T: DeserializeOwned + JsonSchema + Send + Sync + 'static> Parameters for T {
    fn names() -> &'static [&'static str] {
        names_of::<T>()
    }

    fn table() -> Vec<Parameter> {
        table_of::<T>()
    }

    fn check() -> Result<(), String> {
        check::<T>()
    }

    fn parse(written: &Written<'_>) -> Result<Self, ParameterError> {
        // A record does not hold empty values, and what it gives back must be what was planned.
        if let Some((name, value)) = written.own.iter().find(|(_, value)| value.is_empty()) {
            return Err(ParameterError::bad(name.clone(), value, "is empty", "give it a value, or remove it"));
        }
        read(written.own)
    }
}
