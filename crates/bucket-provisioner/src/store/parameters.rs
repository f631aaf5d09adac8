//! The parameters of a StorageClass, typed.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::common::CommonParameters;
use super::record::Record;
use operator_runtime::parameters::{Parameter, ParameterError, check, names_of, read, table_of};

/// The parameters of a store's classes. Every struct that implements `serde::Deserialize` and `schemars::JsonSchema` is
/// one: each field is a parameter, its doc comment the documentation, and `#[serde(rename_all = "camelCase")]` gives the
/// usual names. `()` is a store without parameters of its own. Parameters that no field has are refused by name.
///
/// The [common parameters](CommonParameters) are parsed by the library; a store does not repeat them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the parameters of a store's classes",
    note = "derive `serde::Deserialize` and `schemars::JsonSchema` (of bucket_provisioner::schemars) for it"
)]
pub trait Parameters: Sized + Send + Sync + 'static {
    /// What a record keeps of them, for the verbs: a struct keeps itself.
    type Recorded: Send + Sync + 'static;

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
    fn parse(written: &RawParameters<'_>) -> Result<Self, ParameterError>;

    /// Reads what a record keeps. Pure.
    ///
    /// # Errors
    /// A parameter that the type does not accept: the record was made by a version with other parameters.
    fn recorded(record: &Record) -> Result<Self::Recorded, ParameterError>;
}

/// What an admin wrote into a class.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct RawParameters<'a> {
    /// The store's own parameters.
    pub own: &'a BTreeMap<String, String>,
    /// The common ones, parsed.
    pub common: &'a CommonParameters,
}

impl<'a> RawParameters<'a> {
    /// What an admin wrote.
    pub fn new(own: &'a BTreeMap<String, String>, common: &'a CommonParameters) -> Self {
        Self { own, common }
    }
}

impl<T: DeserializeOwned + JsonSchema + Send + Sync + 'static> Parameters for T {
    type Recorded = Self;

    fn names() -> &'static [&'static str] {
        names_of::<T>()
    }

    fn table() -> Vec<Parameter> {
        table_of::<T>()
    }

    fn check() -> Result<(), String> {
        check::<T>()
    }

    fn parse(written: &RawParameters<'_>) -> Result<Self, ParameterError> {
        // A record does not hold empty values, and what it gives back must be what was planned.
        if let Some((name, value)) = written.own.iter().find(|(_, value)| value.is_empty()) {
            return Err(ParameterError::bad(name.clone(), value, "is empty", "give it a value, or remove it"));
        }
        read(written.own)
    }

    fn recorded(record: &Record) -> Result<Self, ParameterError> {
        read(&record.written_parameters())
    }
}
