//! The setting `bucketClaimName` of a claim: which claim it names, and that it cannot be edited once the claim is Bound. Pure.

use crate::decide::settings::{self, Config};
use crate::store::settings::BUCKET_CLAIM_NAME;
use crate::store::{Capabilities, Record};

/// The claim that this configuration names.
pub(crate) fn named(config: Option<&Config>, has: Capabilities) -> Option<&str> {
    let name = config?.get(BUCKET_CLAIM_NAME).map(String::as_str);
    name.filter(|name| has.shared_buckets && !name.is_empty())
}

/// A message about a bound claim that names another claim than it did before.
pub(crate) fn ignored(config: Option<&Config>, record: &Record, has: Capabilities) -> Option<String> {
    if !has.shared_buckets {
        return None;
    }
    let before = record.plan.shared_from.as_ref().map(|from| from.name.as_str());
    let now = named(config, has);
    (!settings::is_same_name(now, before)).then(|| {
        let bucket = &record.plan.bucket;
        let shown = |name: Option<&str>| name.map_or_else(|| "missing".to_owned(), |name| format!("{:?}", settings::shown(name)));
        format!(
            "spec.additionalConfig.{BUCKET_CLAIM_NAME} is {} and was {} when the claim was bound to bucket {bucket:?}: the edit has no effect; for another bucket, create a new claim",
            shown(now), shown(before)
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::decide::testing::record;
    use crate::store::SharedFrom;

    const HAS: Capabilities = Capabilities::NONE.with_shared_buckets();

    #[test]
    fn a_bound_claim_keeps_its_bucket() {
        let config = |name: &str| Config::from([(BUCKET_CLAIM_NAME.to_owned(), name.to_owned())]);
        let mut record = record();
        assert_eq!(ignored(None, &record, HAS), None);
        assert_eq!(ignored(Some(&config("photos")), &record, Capabilities::NONE), None);
        assert!(ignored(Some(&config("photos")), &record, HAS).unwrap().contains("was missing when"));
        record.plan.shared_from = Some(SharedFrom::new("photos", []));
        assert_eq!(ignored(Some(&config("photos")), &record, HAS), None);
        for edited in [config("other"), Config::new()] {
            let message = ignored(Some(&edited), &record, HAS).unwrap();
            assert!(message.contains("was \"photos\"") && message.contains("has no effect"), "{message}");
        }
    }
}
