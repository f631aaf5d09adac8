//! What a class gives a claim: the class's parameters, the name of the bucket, and the store's plan. Pure.

use std::collections::BTreeMap;

use crate::decide::access;
use crate::decide::claim::WantedBucket;
use crate::decide::class::Class;
use crate::decide::output_metadata::OutputMetadata;
use crate::decide::service_account;
use crate::decide::settings::{self, Config, Rules};
use crate::decide::shared_name;
use crate::decide::sharing::{self, Asking, Creator, Creators};
use crate::decide::store_outputs;
use crate::error::Error;
use crate::refusal::Refusal;
use crate::store::common::bad_bucket;
use crate::store::names;
use crate::store::{
    Access, Authentication, Changes, ClaimId, CommonParameters, Mode, ON_DELETE, ParameterError, Parameters as _, Plan,
    Provisioner, RawParameters, Reason, ReclaimPolicy, Record, Request, ServiceAccount, Settings,
};

/// Of a namespace.
pub(crate) type Labels = BTreeMap<String, String>;

/// Fields of a claim.
const NAME: &str = "spec.bucketName";
const PREFIX: &str = "spec.generateBucketName";

/// What a claim asks for.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) bucket: &'a WantedBucket,
    pub(crate) config: Option<&'a Config>,
    /// Looks up the claim that it names, if it names one.
    pub(crate) creators: &'a Creators<'a>,
}

impl<'a> Asked<'a> {
    /// For this bucket, and nothing else.
    pub(crate) fn bucket(bucket: &'a WantedBucket) -> Self {
        Self { bucket, config: None, creators: &|_| Creator::Missing }
    }
}

/// The plan for a claim. Restrictions of the class on what a claim can ask for apply to new claims, and not when an existing
/// one is planned again: then there are no `labels` of its namespace.
///
/// # Errors
/// A class parameter or a name that cannot be used, and those of the store.
pub(crate) fn plan<P: Provisioner>(
    provisioner: &P,
    class: &Class,
    claim: &ClaimId,
    asked: Asked<'_>,
    labels: Option<&Labels>,
) -> Result<Plan, Error> {
    let is_new = labels.is_some();
    let Asked { bucket: wanted, config, creators } = asked;
    let invalid = |problem| Refusal::InvalidClassParameter { class: class.name.clone(), problem };
    let Parsed { common, own, parameters } = parse::<P>(class).map_err(invalid)?;
    let is_named = common.namespaces.as_ref().is_none_or(|allowed| allowed.contain(&claim.namespace));
    let is_selected = |labels| common.namespace_selector.as_ref().is_none_or(|selector| selector.matches(labels));
    if labels.is_some_and(|labels| !is_named || !is_selected(labels)) {
        let (class, namespace) = (class.name.clone(), claim.namespace.clone());
        return Err(Refusal::NamespaceNotAllowed { class, namespace }.into());
    }
    if let Some(on_delete) = common.on_delete.filter(|_| class.reclaim_policy == ReclaimPolicy::Retain) {
        let problem = "has no effect, because the reclaimPolicy of the class is Retain";
        let remedy = "remove it, or create the class with reclaimPolicy Delete";
        return Err(invalid(ParameterError::bad(ON_DELETE, &on_delete.to_string(), problem, remedy)).into());
    }
    if is_new {
        OutputMetadata::parse(config)?;
    }
    let may_set = &common.settings.claims_may_set;
    // Later, the class may name a bucket.
    let named = shared_name::named(config, P::CAPABILITIES).filter(|_| is_new || common.bucket.is_none());
    let shared = named.map(|name| {
        let may_set = is_new.then_some(may_set);
        creators(name).share(&Asking { claim, name, wanted, class: &class.name, may_set }, P::CAPABILITIES.settings)
    });
    let shared = shared.transpose()?;
    let suffix = P::name_suffix(&parameters);
    let (bucket, mode) = match &shared {
        Some(shared) => (shared.bucket.clone(), Mode::Granted),
        None => bucket::<P>(class, (&common, &suffix), claim, wanted, is_new)?,
    };
    let has_suffix = mode == Mode::Created && bucket.ends_with(&suffix);
    let name_suffix = if has_suffix { suffix } else { String::new() };
    let most = match &shared {
        Some(shared) => shared.narrowed(common.access.mode, &class.name)?,
        None => common.access.mode,
    };
    let access_mode = access::mode(config, most, P::CAPABILITIES, &class.name)?;
    let service_account = service_account::of_claim(config, common.authentication, P::CAPABILITIES, &class.name);
    // Later, the class may give keys; without a claim, nothing names one.
    let must_have = is_new || config.is_some() && common.authentication == Authentication::ServiceAccount;
    let service_account = if must_have { service_account? } else { service_account.unwrap_or_default() };
    let (of_claim, refusal) = settings::of_claim(config, may_set, P::CAPABILITIES, &class.name);
    if let Some(refusal) = refusal.filter(|_| is_new) {
        return Err(refusal.into());
    }
    let of_class = common.settings.of(claim.parts());
    let settings = match &shared {
        Some(shared) if of_claim.is_empty() || !is_new => {
            let mut settings = of_class.of_users(P::CAPABILITIES.settings);
            settings.of_class.extend(shared.settings.of_class.clone());
            settings
        }
        Some(_) => return Err(sharing::no_settings(&of_claim).into()),
        None => Settings { of_claim, ..of_class },
    };
    let request = Request {
        claim,
        class_name: &class.name,
        bucket,
        mode,
        access: Access { mode: access_mode, most, ..common.access.of(claim.parts()) },
        settings,
        user: names::user(claim, P::USER_NAME_MAX),
        service_account,
        parameters: &parameters,
        written: &own,
        common: &common,
    };
    let plan = provisioner.plan(&request).map_err(Error::store)?;
    let endpoint = match &shared {
        Some(shared) => shared.endpoint(&plan, &class.name)?,
        None => plan.endpoint.clone(),
    };
    let shared_from = shared.map(|shared| shared.from);
    // Only the store knows the audience.
    let audience = plan.service_account.clone().and_then(|account| account.audience);
    let service_account = request.service_account.map(|account| ServiceAccount { audience, ..account });
    // A plan of the store's own may have been made without.
    let plan = Plan {
        endpoint,
        name_suffix,
        access: request.access,
        service_account,
        settings: request.settings,
        shared_from,
        changes: Changes::default(),
        ..plan
    };
    access::check(&plan, &class.name)?;
    if is_new {
        check_settings::<P>(&plan, &class.name)?;
    }
    check_parameters::<P>(&plan, claim)?;
    store_outputs::check_config_map(&plan)?;
    store_outputs::check_state(&plan)?;
    Ok(plan)
}

/// Has the store check the settings of a plan. A claim that exists keeps those it has.
///
/// # Errors
/// Those of [`settings::check`].
pub(crate) fn check_settings<P: Provisioner>(plan: &Plan, class: &str) -> Result<(), Refusal> {
    settings::check(plan, class, rules::<P>())
}

/// What the store has, and how it checks settings.
pub(crate) fn rules<P: Provisioner>() -> Rules {
    Rules { has: P::CAPABILITIES, check: P::check_settings }
}

/// What the store warns about a class that can be used.
pub(crate) fn warning<P: Provisioner>(provisioner: &P, class: &Class) -> Option<(&'static Reason, String)> {
    provisioner.class_warning(&parse::<P>(class).ok()?.parameters)
}

/// The parameters of a class.
struct Parsed<P: Provisioner> {
    common: CommonParameters,
    /// The store's own, as they were written.
    own: BTreeMap<String, String>,
    parameters: P::Parameters,
}

fn parse<P: Provisioner>(class: &Class) -> Result<Parsed<P>, ParameterError> {
    let (common, own) = split::<P>(&class.parameters)?;
    let parameters = P::Parameters::parse(&RawParameters::new(&own, &common))?;
    Ok(Parsed { common, own, parameters })
}

/// The verbs get the parameters from the record.
fn check_parameters<P: Provisioner>(plan: &Plan, claim: &ClaimId) -> Result<(), Refusal> {
    let record = Record::new(claim.clone(), "", ReclaimPolicy::Retain, plan.clone());
    P::Parameters::recorded(&record).map(drop).map_err(Refusal::ParametersNotRecorded)
}

/// The common parameters, parsed, and the store's own, as they were written.
fn split<P: Provisioner>(
    written: &BTreeMap<String, String>,
) -> Result<(CommonParameters, BTreeMap<String, String>), ParameterError> {
    let known = || CommonParameters::names(P::CAPABILITIES).chain(P::Parameters::names().iter().copied());
    if let Some(name) = written.keys().find(|name| known().all(|known| known != **name)) {
        let mut known: Vec<_> = known().collect();
        known.sort_unstable();
        return Err(ParameterError::Unknown { name: name.clone(), known: known.join(", ") });
    }
    CommonParameters::split(written, P::BUCKET_NAMES, P::CAPABILITIES)
}

fn bucket<P: Provisioner>(
    class: &Class,
    (common, suffix): (&CommonParameters, &str),
    claim: &ClaimId,
    wanted: &WantedBucket,
    is_new: bool,
) -> Result<(String, Mode), Refusal> {
    let not_allowed = |field, name: &str, remedy: String| Refusal::BucketNameNotAllowed {
        class: class.name.clone(),
        field,
        name: name.to_owned(),
        remedy,
    };
    if let Some(bucket) = &common.bucket {
        return match wanted {
            WantedBucket::Named(asked) | WantedBucket::Recorded(asked) if asked != bucket => {
                Err(Refusal::BucketNotOfClass {
                    class: class.name.clone(),
                    bucket: bucket.clone(),
                    asked: asked.clone(),
                })
            }
            _ => match P::check_bucket_name(bucket, Mode::Granted) {
                Ok(()) => Ok((bucket.clone(), Mode::Granted)),
                Err(rule) => Err(Refusal::InvalidClassParameter {
                    class: class.name.clone(),
                    problem: bad_bucket(bucket, &rule),
                }),
            },
        };
    }
    let (field, asked, bucket) = match wanted {
        WantedBucket::Unspecified => return Err(Refusal::BucketNameMissing { class: class.name.clone() }),
        WantedBucket::Named(name) if is_new && !common.naming.explicit => {
            let remedy = "set spec.generateBucketName instead (explicitNames is \"no\")".to_owned();
            return Err(not_allowed(NAME, name, remedy));
        }
        WantedBucket::Named(name) => (NAME, name, named::<P>(name, suffix)),
        WantedBucket::Recorded(name) => (NAME, name, P::BUCKET_NAMES.check(name).map(|()| name.clone())),
        WantedBucket::Generated { prefix } if suffix.is_empty() => {
            (PREFIX, prefix, P::BUCKET_NAMES.generate(prefix, claim))
        }
        WantedBucket::Generated { prefix } => (PREFIX, prefix, P::BUCKET_NAMES.generate_short(prefix, claim, suffix)),
    };
    let own = |bucket: &str| bucket.strip_suffix(suffix).unwrap_or(bucket).to_owned();
    let bucket = bucket.and_then(|bucket| match P::check_bucket_name(&own(&bucket), Mode::Created) {
        Ok(()) => Ok(bucket),
        Err(rule) => Err(names::NameError { name: asked.clone(), rule }),
    });
    let bucket = bucket.map_err(|problem| Refusal::InvalidBucketName { field, problem })?;
    // The bucket's name is checked, because a long generateBucketName is cut.
    if is_new && !bucket.starts_with(&common.naming.prefix) {
        let remedy = format!("start it with {:?} (bucketNamePrefix)", common.naming.prefix);
        return Err(not_allowed(field, asked, remedy));
    }
    Ok((bucket, Mode::Created))
}

/// The bucket that a claim names, with what the store appends unless the name has it.
fn named<P: Provisioner>(name: &str, suffix: &str) -> Result<String, names::NameError> {
    let bucket = if name.ends_with(suffix) { name.to_owned() } else { format!("{name}{suffix}") };
    P::BUCKET_NAMES.check(&bucket).map(|()| bucket)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::decide::model::planner::Planner;
    use crate::store::{Failure as _, FailureClass, ReclaimPolicy};

    const UID: &str = "f30e0389-0689-48a2-bfaa-74d1bf1fd950";

    fn planned(parameters: &[(&str, &str)], wanted: &WantedBucket) -> Result<Plan, Error> {
        planned_by("fast", parameters, wanted)
    }

    fn planned_by(class: &str, parameters: &[(&str, &str)], wanted: &WantedBucket) -> Result<Plan, Error> {
        let claim = ClaimId { namespace: "shop".into(), name: "photos".into(), uid: UID.into() };
        let class = Class {
            name: class.into(),
            uid: None,
            provisioner: "example.com/bucket".into(),
            parameters: parameters.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            reclaim_policy: ReclaimPolicy::Delete,
        };
        let labels = [("team".to_owned(), "shop".to_owned())].into();
        plan(&Planner, &class, &claim, Asked::bucket(wanted), Some(&labels))
    }

    fn generated() -> WantedBucket {
        WantedBucket::Generated { prefix: "photos".into() }
    }

    #[test]
    fn the_generated_name_may_also_be_asked_for_by_name() {
        let named = planned(&[], &WantedBucket::Named(format!("photos-{UID}"))).unwrap();
        assert_eq!(named, planned(&[], &generated()).unwrap());
        assert_eq!(named.user.as_deref(), Some(&*format!("shop-photos-{UID}")));
    }

    #[test]
    fn a_class_that_names_a_bucket_grants_access_to_it() {
        let class = [("bucketName", "shared")];
        for wanted in [WantedBucket::Unspecified, generated(), WantedBucket::Named("shared".into())] {
            let plan = planned(&class, &wanted).unwrap();
            assert_eq!((plan.bucket.as_str(), plan.mode), ("shared", Mode::Granted));
        }
        let error = planned(&class, &WantedBucket::Named("mine".into())).unwrap_err();
        insta::assert_snapshot!(error, @r#"spec.bucketName is "mine", but StorageClass "fast" gives access to bucket "shared" only: remove spec.bucketName, or use another class"#);
        assert_eq!(error.class(), FailureClass::Terminal);
        assert!(matches!(error, Error::Refused(_)));
    }

    #[test]
    fn the_error_of_a_claim_without_a_name_has_the_remedy() {
        insta::assert_snapshot!(planned(&[], &WantedBucket::Unspecified).unwrap_err(), @r#"the claim names no bucket: set spec.generateBucketName or spec.bucketName, or use a StorageClass with the parameter bucketName ("fast" has none)"#);
    }

    #[test]
    fn a_bad_prefix_names_field_value_character_and_remedy() {
        insta::assert_snapshot!(planned(&[], &WantedBucket::Generated { prefix: "Photos".into() }).unwrap_err(), @r#"spec.generateBucketName: "Photos" cannot be used: 'P' is not allowed; use lower-case letters, digits, '.' and '-'"#);
    }

    #[test]
    fn a_name_from_a_prefix_begins_with_the_class_prefix() {
        let prefix = "acme-production-analytics-team-";
        let asked = WantedBucket::Generated { prefix: prefix.to_owned() };
        let error = planned(&[("bucketNamePrefix", prefix)], &asked).unwrap_err();
        assert!(error.to_string().contains("bucketNamePrefix"), "{error}");
    }

    #[test]
    fn the_stores_plan_for_config_map_and_record_is_checked() {
        assert_eq!(planned(&[], &generated()).unwrap().outputs["fast"], "model");
        let error = planned_by("AWS_REGION", &[], &generated()).unwrap_err();
        assert!(matches!(error, Error::Refused(Refusal::InvalidConfigMapOutput { .. })), "{error}");
        assert!(matches!(error, Error::Refused(_)));
        let error = planned_by("mode", &[], &generated()).unwrap_err();
        assert!(matches!(error, Error::Refused(Refusal::InvalidState { .. })), "{error}");
        assert!(matches!(error, Error::Refused(_)));
    }

    #[test]
    fn a_class_serves_the_namespaces_that_both_parameters_allow() {
        let (named, selected) = (("allowedNamespaces", "sh*"), ("allowedNamespaceSelector", "team=shop"));
        planned(&[named, selected], &generated()).unwrap();
        for other in [("allowedNamespaces", "team-*"), ("allowedNamespaceSelector", "team!=shop")] {
            let error = planned(&[other, if other.0 == named.0 { selected } else { named }], &generated()).unwrap_err();
            assert!(error.to_string().contains("does not serve namespace \"shop\""), "{error}");
        }
    }

    #[test]
    fn an_unknown_parameter_names_the_class_and_what_is_known() {
        insta::assert_snapshot!(planned(&[("tier", "gold")], &generated()).unwrap_err(), @r#"StorageClass "fast": unknown parameter "tier"; remove it, or use one of: accessMode, allowedNamespaceSelector, allowedNamespaces, bucketName, bucketNamePrefix, explicitNames, onDelete, secretName, secretNamespace; an admin must delete the class and create it again"#);
    }
}
