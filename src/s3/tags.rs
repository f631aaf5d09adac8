//! The tags that mark a bucket or a user as a claim's, and what they prove.

use crate::s3::settings::tags::of as set_by;
use bucket_provisioner::store::{ClaimId, Record};

/// Name of the provisioner that created the bucket or user.
pub(crate) const MANAGED_BY: &str = "objectbucket.io/managed-by";
/// Namespace of the claim for which it was created.
pub(crate) const CLAIM_NAMESPACE: &str = "objectbucket.io/claim-namespace";
/// Name of that claim.
pub(crate) const CLAIM_NAME: &str = "objectbucket.io/claim-name";
/// Uid of that claim: the tag that proves ownership.
pub(crate) const CLAIM_UID: &str = "objectbucket.io/claim-uid";
/// ServiceAccount of that namespace, on the role that its claims share.
pub(crate) const SERVICE_ACCOUNT: &str = "objectbucket.io/service-account";
/// Uid of that claim's cluster (of the namespace `kube-system`).
pub(crate) const CLUSTER_UID: &str = "objectbucket.io/cluster-uid";

/// Pairs of key and value.
pub(crate) type Tags = Vec<(String, String)>;

/// The tags of what is created for a claim: those of the operator, and what class and claim set.
pub(crate) fn of_record(provisioner: &str, record: &Record) -> Tags {
    let ClaimId { namespace, name, uid, .. } = &record.claim;
    let own = with_values([
        (MANAGED_BY, Some(provisioner)),
        (CLAIM_NAMESPACE, Some(namespace.as_str())),
        (CLAIM_NAME, Some(name.as_str())),
        (CLAIM_UID, Some(uid.as_str())),
        (CLUSTER_UID, record.cluster.as_deref()),
    ]);
    own.chain(set_by(&record.plan.settings)).collect()
}

/// The operator's own tags of the role of a ServiceAccount.
pub(crate) fn of_role(provisioner: &str, record: &Record, service_account: &str) -> Tags {
    let own = with_values([
        (MANAGED_BY, Some(provisioner)),
        (CLAIM_NAMESPACE, Some(record.claim.namespace.as_str())),
        (SERVICE_ACCOUNT, Some(service_account)),
        (CLUSTER_UID, record.cluster.as_deref()),
    ]);
    own.collect()
}

fn with_values<const N: usize>(tags: [(&str, Option<&str>); N]) -> impl Iterator<Item = (String, String)> {
    tags.map(|(key, value)| Some((key.to_owned(), value?.to_owned()))).into_iter().flatten()
}

/// Who owns a bucket or a user, by its tags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// This claim.
    Ours,
    /// A previous claim whose ObjectBucket this claim adopted, so it is this claim's.
    PreviousClaim,
    /// Another claim, perhaps one that had the same name.
    OtherClaim,
    /// Not known: it has no tags, except those that AWS itself sets.
    Untagged,
    /// Somebody else: it has tags, but none of a claim.
    Foreign,
}

impl Ownership {
    /// Whether the tags prove that it is the claim's.
    pub(crate) fn is_proven(&self) -> bool {
        matches!(self, Self::Ours | Self::PreviousClaim)
    }
}

/// Reads the owner from the tags. Only the uid counts, because names can be reused.
pub(crate) fn ownership(tags: &[(String, String)], record: &Record) -> Ownership {
    match value(tags, CLAIM_UID) {
        Some(uid) if uid == record.claim.uid => Ownership::Ours,
        Some(uid) if record.names_uid(uid) => Ownership::PreviousClaim,
        Some(uid) => {
            // For the log only: the user of this claim must not see the names of another one.
            let (namespace, name) = (value(tags, CLAIM_NAMESPACE), value(tags, CLAIM_NAME));
            tracing::info!(bucket = record.plan.bucket, namespace, name, uid, "the tags name another claim");
            Ownership::OtherClaim
        }
        None if tags.iter().all(|(key, _)| key.starts_with("aws:")) => Ownership::Untagged,
        None => Ownership::Foreign,
    }
}

/// The value of a tag.
pub(crate) fn value<'a>(tags: &'a [(String, String)], wanted: &str) -> Option<&'a str> {
    tags.iter().find(|(key, _)| key == wanted).map(|(_, value)| value.as_str())
}

/// The tags that are left without these keys; `None` if none of them is there.
pub(crate) fn without(found: &Tags, keys: &[&str]) -> Option<Tags> {
    let (gone, left): (Tags, Tags) = found.iter().cloned().partition(|(key, _)| keys.contains(&key.as_str()));
    (!gone.is_empty()).then_some(left)
}

/// The tags to write, so that all wanted ones are there and those of others stay; `None` if nothing is missing.
pub(crate) fn completed(found: &Tags, wanted: &Tags) -> Option<Tags> {
    if wanted.iter().all(|tag| found.contains(tag)) {
        return None;
    }
    // Also AWS's own: S3 refuses a set without them ("System Tags cannot be removed by requester").
    let others = found.iter().filter(|(key, _)| value(wanted, key).is_none());
    Some(others.chain(wanted).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::record;

    fn of(uid: &str) -> Record {
        let mut record = record();
        record.claim.uid = uid.into();
        record
    }

    fn tags(uid: &str) -> Tags {
        of_record("aws-s3.io/bucket", &of(uid))
    }

    #[test]
    fn tags_identify_the_claim_and_its_cluster() {
        assert_eq!(ownership(&tags("u1"), &of("u1")), Ownership::Ours);
        let here = of("u1").with_cluster("c1");
        assert!(of_record("p", &here).contains(&(CLUSTER_UID.to_owned(), "c1".to_owned())));
    }

    #[test]
    fn another_uid_is_another_claim_unless_it_was_adopted() {
        assert_eq!(ownership(&tags("u1"), &of("u2")), Ownership::OtherClaim);
        let previous_owner = of("u2").with_former_uids(["u0".into(), "u1".into()]);
        assert_eq!(ownership(&tags("u1"), &previous_owner), Ownership::PreviousClaim);
    }

    #[test]
    fn aws_tags_prove_nothing_and_other_tags_mean_foreign() {
        let tag = |key: &str| vec![(key.to_owned(), "x".to_owned())];
        assert_eq!(ownership(&[], &of("u")), Ownership::Untagged);
        assert_eq!(ownership(&tag("aws:cloudformation:stack-name"), &of("u")), Ownership::Untagged);
        assert_eq!(ownership(&tag("cost-center"), &of("u")), Ownership::Foreign);
    }

    #[test]
    fn tags_are_completed_and_those_of_others_kept() {
        let tag = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(completed(&tags("u1"), &tags("u1")), None);
        let found = [tags("u1"), vec![tag("team", "a"), tag("aws:x", "y")]].concat();
        let Some(written) = completed(&found, &tags("u2")) else { panic!("they are to be written") };
        assert!(written.contains(&tag("team", "a")) && tags("u2").iter().all(|tag| written.contains(tag)));
        assert!(written.contains(&tag("aws:x", "y")), "S3 refuses to remove its own tags");
        assert_eq!(written.iter().filter(|(key, _)| key == CLAIM_UID).count(), 1);
    }
}
