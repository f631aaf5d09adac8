//! What a claim of a class would get, for an admin who examines the class. Pure.

use crate::decide::claim::WantedBucket;
use crate::decide::class::Class;
use crate::decide::request::{self, Asked};
use crate::decide::service_account;
use crate::error::Error;
use crate::refusal::Refusal;
use crate::store::{ClaimId, CommonParameters, Mode, Plan, Provisioner, Reason, ReclaimPolicy, Record};

/// The name of the claim, and the start of its bucket's name.
const NAME: &str = "doctor";

/// A class, and the record that a new claim of it would have.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) common: CommonParameters,
    pub(crate) record: Record,
    /// What the store warns about the class.
    pub(crate) warning: Option<(&'static Reason, String)>,
}

impl Sample {
    /// Plans a claim with this uid, in the cluster with that one. Which namespaces may use the class does not matter here.
    ///
    /// # Errors
    /// What every claim of the class would report.
    pub(crate) fn of<P: Provisioner>(provisioner: &P, class: &Class, uid: &str, cluster: &str) -> Result<Self, Error> {
        let claim = ClaimId { namespace: NAME.into(), name: NAME.into(), uid: uid.into() };
        let wanted = |common: Option<&CommonParameters>| match common {
            // The class names it.
            Some(CommonParameters { bucket: Some(_), .. }) => WantedBucket::Unspecified,
            Some(CommonParameters { naming, .. }) => {
                WantedBucket::Generated { prefix: format!("{}{NAME}", naming.prefix) }
            }
            None => WantedBucket::Generated { prefix: NAME.to_owned() },
        };
        let split = CommonParameters::split(&class.parameters, P::BUCKET_NAMES, P::CAPABILITIES);
        let common = split.as_ref().ok().map(|(common, _)| common);
        let wanted = wanted(common);
        let config = service_account::config(class, NAME);
        // Refuses what cannot be split, with the message that a claim would report.
        let asked = Asked { config: config.as_ref(), ..Asked::bucket(&wanted) };
        let plan = request::plan(provisioner, class, &claim, asked, None)?;
        let (common, _) =
            split.map_err(|problem| Refusal::InvalidClassParameter { class: class.name.clone(), problem })?;
        let reclaim_policy = match plan.mode {
            Mode::Created => class.reclaim_policy,
            Mode::Granted => ReclaimPolicy::Retain,
        };
        let record = Record::new(claim, &class.name, reclaim_policy, plan).with_cluster(cluster);
        Ok(Self { common, record, warning: request::warning(provisioner, class) })
    }

    /// Whether an examination of this one finds the same as one of the other: same credentials, same endpoint, same
    /// permissions.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let examined = |Self { common, record, .. }: &Self| {
            let mut plan = record.plan.clone();
            plan.user = plan.user.map(|_| String::new());
            (plan.rotation, plan.on_delete, plan.access) = Default::default();
            if plan.mode == Mode::Created {
                plan.bucket = common.naming.prefix.clone();
            }
            plan
        };
        examined(self) == examined(other)
    }
}

/// Whether both use the same credentials at the same store.
pub(crate) fn has_same_credentials(one: &Record, other: &Record) -> bool {
    let credentials = |record: &Record| {
        let Plan { owner, endpoint, mut state, user, .. } = record.plan.clone();
        // What is named after the claim.
        state.retain(|_, value| !record.uids().any(|uid| value.contains(uid)));
        (owner, endpoint, state, user.is_some())
    };
    credentials(one) == credentials(other)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::decide::model::planner::Planner;

    const UID: &str = "f30e0389-0689-48a2-bfaa-74d1bf1fd950";

    fn sample(parameters: &[(&str, &str)]) -> Result<Sample, Error> {
        let class = Class {
            name: "fast".into(),
            uid: None,
            provisioner: "p".into(),
            parameters: parameters.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            reclaim_policy: ReclaimPolicy::Delete,
        };
        Sample::of(&Planner, &class, UID, "cluster")
    }

    #[test]
    fn a_sample_keeps_the_rules_of_its_class() {
        let greenfield = sample(&[("bucketNamePrefix", "acme-"), ("allowedNamespaces", "shop")]).unwrap().record.plan;
        assert_eq!((greenfield.mode, &*greenfield.bucket), (Mode::Created, &*format!("acme-doctor-{UID}")));
        let brownfield = sample(&[("bucketName", "archive")]).unwrap().record;
        assert_eq!((brownfield.plan.mode, &*brownfield.plan.bucket), (Mode::Granted, "archive"));
        assert_eq!(brownfield.reclaim_policy, ReclaimPolicy::Retain);
        let refused = sample(&[("tier", "gold")]).unwrap_err().to_string();
        assert!(refused.starts_with("StorageClass \"fast\": unknown parameter \"tier\""), "{refused}");
    }

    #[test]
    fn classes_are_alike_with_same_credentials_and_endpoint() {
        let plain = sample(&[]).unwrap();
        assert!(plain.is_like(&sample(&[("allowedNamespaces", "shop")]).unwrap()));
        assert!(plain.is_like(&sample(&[("explicitNames", "no")]).unwrap()));
        assert!(plain.is_like(&sample(&[("onDelete", "ifEmpty")]).unwrap()));
        for other in [
            &[("bucketNamePrefix", "acme-")][..],
            &[("bucketName", "archive")],
            &[("secretName", "s"), ("secretNamespace", "n")],
        ] {
            assert!(!plain.is_like(&sample(other).unwrap()), "{other:?}");
        }
        assert!(has_same_credentials(&plain.record, &sample(&[("bucketName", "archive")]).unwrap().record));
        assert!(!has_same_credentials(
            &plain.record,
            &sample(&[("secretName", "s"), ("secretNamespace", "n")]).unwrap().record
        ));
    }
}
