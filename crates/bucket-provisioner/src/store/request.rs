//! What a claim asks for.

use std::collections::BTreeMap;

use super::access::Access;
use super::authentication::ServiceAccount;
use super::common::CommonParameters;
use super::endpoint::Endpoint;
use super::record::{ClaimId, Mode, Plan};
use super::settings::Settings;

/// What a claim requests, and the parameters of its class: the input of
/// [`Provisioner::plan`](super::Provisioner::plan).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Request<'a, T> {
    /// The claim.
    pub claim: &'a ClaimId,
    /// Name of its StorageClass, for messages.
    pub class_name: &'a str,
    /// The bucket, checked against the rules for names.
    pub bucket: String,
    /// Whether the bucket is to be created, or exists.
    pub mode: Mode,
    /// Name for a user of the claim.
    pub user: String,
    /// The ServiceAccount as which the claim's apps have access, without keys; `None`: they have keys.
    pub service_account: Option<ServiceAccount>,
    /// What the keys may do, by class and claim.
    pub access: Access,
    /// What class and claim set for the bucket.
    pub settings: Settings,
    /// The parameters of the class.
    pub parameters: &'a T,
    /// The store's own parameters, as the admin wrote them.
    pub written: &'a BTreeMap<String, String>,
    /// The common parameters of the class.
    pub common: &'a CommonParameters,
}

impl<'a, T> Request<'a, T> {
    /// A request as the library makes them, for tests of a store's own [`plan`](super::Provisioner::plan). `parameters`:
    /// parsed, as written, and the common ones.
    pub fn new(
        claim: &'a ClaimId,
        class_name: &'a str,
        bucket: impl Into<String>,
        mode: Mode,
        user: impl Into<String>,
        (parameters, written, common): (&'a T, &'a BTreeMap<String, String>, &'a CommonParameters),
    ) -> Self {
        let (bucket, user) = (bucket.into(), user.into());
        let (access, settings) = (common.access.of(claim.parts()), common.settings.of(claim.parts()));
        let service_account = None;
        Self { claim, class_name, bucket, mode, user, service_account, access, settings, parameters, written, common }
    }

    /// The usual plan: the bucket and a user at this endpoint, and the class parameters as state.
    pub fn plan(&self, endpoint: Endpoint) -> Plan {
        let plan = Plan::new(&self.bucket, self.mode, endpoint).with_user(&self.user).with_access(self.access.clone());
        let plan = self.common.apply(plan).with_settings(self.settings.clone());
        let plan = Plan { service_account: self.service_account.clone(), ..plan };
        self.written.iter().fold(plan, |plan, (name, value)| plan.with_parameter(name, value))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use schemars::JsonSchema;
    use serde::Deserialize;

    use super::*;
    use crate::api::wire;
    use crate::store::{
        Capabilities, NameRules, ParameterError, Parameters as _, RawParameters, ReclaimPolicy, Record,
    };

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    struct Shelf {
        /// Also the name of a key that the library records.
        mode: String,
        size: u8,
    }

    fn record(written: &[(&str, &str)]) -> Result<Record, ParameterError> {
        let claim = ClaimId { namespace: "shop".into(), name: "photos".into(), uid: "1".into() };
        let common = CommonParameters::parse(&BTreeMap::new(), NameRules::S3, Capabilities::NONE)?;
        let written = written.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let parameters = Shelf::parse(&RawParameters::new(&written, &common))?;
        let request = Request {
            claim: &claim,
            class_name: "shelves",
            bucket: "photos-1".into(),
            mode: Mode::Created,
            service_account: None,
            user: "shop-photos-1".into(),
            access: Access::default(),
            settings: Settings::default(),
            parameters: &parameters,
            written: &written,
            common: &common,
        };
        let endpoint = Endpoint::new("shelf", 80).with_region("here");
        let plan = request.plan(endpoint);
        Ok(Record::new(claim.clone(), "shelves", ReclaimPolicy::Delete, plan))
    }

    #[test]
    fn parameters_are_recorded_apart_from_the_librarys_keys() {
        let record = record(&[("mode", "deep"), ("size", "7")]).unwrap();
        assert!(!record.plan.state.contains_key(wire::state::MODE));
        assert_eq!(Shelf::recorded(&record), Ok(Shelf { mode: "deep".into(), size: 7 }));
    }

    #[test]
    fn a_parameter_that_the_type_does_not_accept_is_named() {
        let refused = record(&[("mode", "deep"), ("size", "big")]).unwrap_err();
        assert_eq!(refused.to_string(), "parameter size: \"big\" is not a whole number from 0 to 255");
        let refused = record(&[("mode", "deep")]).unwrap_err();
        assert_eq!(refused.to_string(), "parameter size is missing: the StorageClass must set it");
        let refused = record(&[("mode", ""), ("size", "7")]).unwrap_err();
        assert_eq!(refused.to_string(), "parameter mode: \"\" is empty; give it a value, or remove it");
    }
}
