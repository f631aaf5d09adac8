//! The class parameters that all stores share, because the library does what they ask for.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::access::ClassAccess;
use super::authentication::Authentication;
use super::capabilities::Capabilities;
use super::names::NameRules;
use super::namespaces::{NamespaceSelector, Namespaces};
use super::on_delete::{ON_DELETE, OnDelete};
use super::owner::{Owner, OwnerSource};
use super::owner_ref::{OwnerRef, SecretRef};
use super::parameter::{Parameter, ParameterError, names_of, read, table_of, yes_or_no};
use super::record::Plan;
use super::rotation::Rotation;
use super::settings::ClassSettings;
use crate::api::object_name;

/// What an admin wrote.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Raw {
    /// The existing bucket to which claims get access. The operator never deletes, empties or reconfigures it.
    #[schemars(extend("default" = "none"))]
    bucket_name: Option<String>,
    /// Name of the [Secret with provisioning credentials](#secret-with-provisioning-credentials).
    #[schemars(extend("default" = "none"))]
    secret_name: Option<String>,
    /// Its namespace.
    #[schemars(extend("default" = "none"))]
    secret_namespace: Option<String>,
    /// Namespaces whose claims may use the class: names, and prefixes with `*`, such as `shop,team-*`.
    #[schemars(extend("default" = "all"))]
    allowed_namespaces: Option<String>,
    /// Label selector of these namespaces, such as `team=shop` or `tier in (prod,test),!legacy`. With
    /// `allowedNamespaces`, both must match.
    #[schemars(extend("default" = "none"))]
    allowed_namespace_selector: Option<String>,
    /// `no`: claims may not choose the whole name of a new bucket (`spec.bucketName`).
    #[schemars(extend("default" = "`yes`"))]
    explicit_names: Option<String>,
    /// Required prefix of the names of new buckets: lower-case letters, digits, `.` and `-`, first a letter or a digit. At
    /// most 26 characters, or no generated name can begin with it.
    #[schemars(extend("default" = "none"))]
    bucket_name_prefix: Option<String>,
    /// [What happens to the bucket](#ondelete) of a deleted claim: `purge`, `after:7d` or `ifEmpty`. Excludes
    /// reclaimPolicy Retain.
    #[schemars(extend("default" = "`purge`"))]
    on_delete: Option<String>,
}

/// The parameters that all stores share.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommonParameters {
    /// `bucketName`: the existing bucket that every claim of the class gets access to.
    pub bucket: Option<String>,
    /// `secretName` and `secretNamespace`: where the provisioning credentials are; `None` is the operator's own
    /// identity.
    pub owner_secret: Option<SecretRef>,
    /// `allowedNamespaces`: the namespaces whose claims can use the class; `None` for all.
    pub namespaces: Option<Namespaces>,
    /// `allowedNamespaceSelector`: the labels of the namespaces whose claims can use the class; `None` for any.
    pub namespace_selector: Option<NamespaceSelector>,
    /// `explicitNames` and `bucketNamePrefix`: how claims can name their buckets.
    pub naming: Naming,
    /// `rotateKeysEvery` and `keyGracePeriod`: when the keys of users are rotated.
    pub rotation: Rotation,
    /// `authentication`: how apps prove who they are.
    pub authentication: Authentication,
    /// `onDelete`: what happens to a created bucket when its claim is deleted; `None` if the class does not say.
    pub on_delete: Option<OnDelete>,
    /// `accessMode` and `prefix`: what the keys of claims may do.
    pub access: ClassAccess,
    /// What is set for buckets, and what claims may set.
    pub settings: ClassSettings,
}

impl CommonParameters {
    /// The age at which keys are rotated; `None`: only on request.
    pub fn rotate_keys_every(&self) -> Option<Duration> {
        self.rotation.every
    }

    /// The plan with what is the same for every store.
    pub(super) fn apply(&self, plan: Plan) -> Plan {
        Plan {
            owner: OwnerRef { secret: self.owner_secret.clone(), role: None },
            rotation: self.rotation,
            on_delete: self.on_delete.unwrap_or_default(),
            ..plan
        }
    }

    /// Their names, of a store with these capabilities.
    pub fn names(has: Capabilities) -> impl Iterator<Item = &'static str> {
        let rotation = if has.rotation { Rotation::names() } else { &[] };
        names_of::<Raw>()
            .iter()
            .chain(rotation)
            .chain(Authentication::names(has))
            .copied()
            .chain(ClassAccess::names(has))
            .chain(ClassSettings::names(has.settable()))
    }

    /// All of them, of a store with these capabilities.
    pub fn table(has: Capabilities) -> Vec<Parameter> {
        let mut table = table_of::<Raw>();
        if has.rotation {
            table.extend(Rotation::table());
        }
        table.extend(Authentication::table(has));
        table.extend(ClassAccess::table(has));
        table.extend(ClassSettings::table(has.settable()));
        table
    }

    /// Their documentation for a store with these provisioning credentials: the Secret is required if the store cannot use the
    /// operator's own identity, and is not mentioned if the store needs no credentials.
    #[must_use]
    pub fn table_for<O: Owner>(has: Capabilities) -> Vec<Parameter> {
        let is_needed = std::any::TypeId::of::<O>() != std::any::TypeId::of::<()>();
        let is_required = O::parse(&OwnerSource::Ambient).is_err();
        let is_of_secret = |parameter: &Parameter| ["secretName", "secretNamespace"].contains(&parameter.name.as_str());
        let mut table = Self::table(has);
        table.retain(|parameter| is_needed || !is_of_secret(parameter));
        for parameter in table.iter_mut().filter(|parameter| is_of_secret(parameter)) {
            parameter.is_required |= is_required;
        }
        table
    }

    /// What an admin wrote: the common parameters, parsed, and the store's own, as they are.
    ///
    /// # Errors
    /// The first common parameter that cannot be used, by name.
    pub fn split(
        written: &BTreeMap<String, String>,
        names: NameRules,
        has: Capabilities,
    ) -> Result<(Self, BTreeMap<String, String>), ParameterError> {
        let is_own = |name: &str| Self::names(has).all(|common| common != name);
        let own = written.iter().filter(|(name, _)| is_own(name)).map(|(name, value)| (name.clone(), value.clone()));
        Ok((Self::parse(written, names, has)?, own.collect()))
    }

    /// Parses the common parameters of what an admin wrote. Others do not matter.
    ///
    /// # Errors
    /// The first parameter that cannot be used, by name.
    pub fn parse(
        written: &BTreeMap<String, String>,
        names: NameRules,
        has: Capabilities,
    ) -> Result<Self, ParameterError> {
        let raw: Raw = read(written)?;
        let naming = Naming::parse(&raw, names)?;
        let rotation = if has.rotation { Rotation::parse(written)? } else { Rotation::default() };
        if let Some(bucket) = &raw.bucket_name {
            names.check(bucket).map_err(|error| bad_bucket(bucket, &error.rule))?;
        }
        Ok(Self {
            owner_secret: owner_secret(raw.secret_name, raw.secret_namespace)?,
            on_delete: raw.on_delete.as_deref().map(OnDelete::parse).transpose()?,
            access: ClassAccess::parse(written, has, raw.bucket_name.is_some())?,
            settings: ClassSettings::parse(written, has.settable(), raw.bucket_name.is_some())?,
            bucket: raw.bucket_name,
            namespaces: raw.allowed_namespaces.as_deref().map(Namespaces::parse).transpose()?,
            namespace_selector: raw.allowed_namespace_selector.as_deref().map(NamespaceSelector::parse).transpose()?,
            naming,
            authentication: Authentication::parse(written, has, rotation.every.is_some())?,
            rotation,
        })
    }
}

/// `bucketName` breaks a rule.
pub(crate) fn bad_bucket(bucket: &str, rule: &str) -> ParameterError {
    ParameterError::bad("bucketName", bucket, format!("is not a bucket name: {rule}"), "name an existing bucket")
}

fn owner_secret(name: Option<String>, namespace: Option<String>) -> Result<Option<SecretRef>, ParameterError> {
    match (name, namespace) {
        (None, None) => Ok(None),
        (Some(name), Some(namespace)) => Ok(Some(SecretRef {
            namespace: dns_name("secretNamespace", namespace)?,
            name: dns_name("secretName", name)?,
        })),
        (Some(_), None) => Err(ParameterError::missing(
            "secretNamespace",
            "secretName is set, and a StorageClass has no namespace of its own",
        )),
        (None, Some(_)) => Err(ParameterError::missing(
            "secretName",
            "secretNamespace is set; set both, or neither to use the operator's own identity",
        )),
    }
}

/// The name of a Kubernetes object.
fn dns_name(parameter: &'static str, value: String) -> Result<String, ParameterError> {
    if object_name(&value).is_some() {
        return Ok(value);
    }
    let remedy = "use lower-case letters and digits, and '-' and '.' between them";
    Err(ParameterError::bad(parameter, &value, "cannot be the name of a Kubernetes object", remedy))
}

/// How claims can name their new buckets: `explicitNames` and `bucketNamePrefix`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Naming {
    /// Whether a claim can choose the whole name.
    pub explicit: bool,
    /// What each name must start with; empty for anything.
    pub prefix: String,
}

impl Naming {
    fn parse(raw: &Raw, names: NameRules) -> Result<Self, ParameterError> {
        const EXPLICIT: &str = "explicitNames";
        const PREFIX: &str = "bucketNamePrefix";
        let (explicit, prefix) = (raw.explicit_names.as_deref(), raw.bucket_name_prefix.as_deref());
        let on_delete = raw.on_delete.as_deref();
        let given = [(EXPLICIT, explicit), (PREFIX, prefix), (ON_DELETE, on_delete)]
            .into_iter()
            .find_map(|(name, value)| Some((name, value?)));
        if let Some((name, value)) = given.filter(|_| raw.bucket_name.is_some()) {
            let problem = "applies to new buckets, but bucketName names an existing one";
            return Err(ParameterError::bad(name, value, problem, "remove it"));
        }
        let explicit = yes_or_no(EXPLICIT, explicit, true)?;
        let prefix = prefix.unwrap_or_default();
        names.check_prefix(prefix).map_err(|error| {
            let problem = format!("cannot be the start of a bucket name: {}", error.rule);
            let remedy = "write the first characters of bucket names, such as \"acme-\"";
            ParameterError::bad(PREFIX, prefix, problem, remedy)
        })?;
        Ok(Self { explicit, prefix: prefix.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(entries: &[(&str, &str)]) -> Result<CommonParameters, ParameterError> {
        let written = entries.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        CommonParameters::parse(&written, NameRules::S3, Capabilities::ALL)
    }

    fn message(entries: &[(&str, &str)]) -> String {
        parse(entries).unwrap_err().to_string()
    }

    #[test]
    fn parameters_of_the_store_are_left_as_they_are_written() {
        let written = [("secretName", "s"), ("secretNamespace", "n"), ("rotateKeysEvery", "30d"), ("shelf", "left")];
        let written = written.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let (common, own) = CommonParameters::split(&written, NameRules::S3, Capabilities::ALL).unwrap();
        assert!(common.owner_secret.is_some() && common.rotation.every.is_some());
        assert_eq!(own.into_iter().collect::<Vec<_>>(), [("shelf".to_owned(), "left".to_owned())]);
        let (common, own) = CommonParameters::split(&written, NameRules::S3, Capabilities::NONE).unwrap();
        assert!(common.rotation.every.is_none() && own.contains_key("rotateKeysEvery"), "this store cannot rotate");
    }

    #[test]
    fn half_a_secret_reference_names_the_other_half() {
        assert!(message(&[("secretName", "s")]).starts_with("parameter secretNamespace is missing"));
        assert!(message(&[("secretNamespace", "n")]).starts_with("parameter secretName is missing"));
    }

    #[test]
    fn a_bad_value_names_parameter_value_and_remedy() {
        for (name, value, remedy) in [
            ("bucketName", "Photos", "name an existing bucket"),
            ("explicitNames", "true", "write \"yes\" or \"no\""),
            ("bucketNamePrefix", "-", "\"acme-\""),
        ] {
            let message = message(&[(name, value)]);
            assert!(message.starts_with(&format!("parameter {name}: {value:?} ")), "{message}");
            assert!(message.contains(remedy), "{message}");
        }
    }

    #[test]
    fn a_list_that_may_name_tenants_is_not_repeated() {
        insta::assert_snapshot!(message(&[("allowedNamespaces", "billing,*payroll")]), @r#"parameter allowedNamespaces cannot be used: entry 2 is neither the name of a namespace nor a prefix with '*'; write names and prefixes, separated by commas, such as "shop,team-*""#);
    }

    #[test]
    fn name_restrictions_need_a_new_bucket() {
        for other in [("explicitNames", "no"), ("bucketNamePrefix", "acme-"), ("onDelete", "purge")] {
            assert!(message(&[("bucketName", "photos"), other]).contains("bucketName names an existing one"));
        }
    }
}
