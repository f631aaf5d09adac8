//! The tags that mark a bucket or a user as a claim's own, and what they prove.

use crate::provisioner::{ClaimId, Record};

/// Name of the provisioner that made the thing.
pub(crate) const MANAGED_BY: &str = "objectbucket.io/managed-by";
/// Namespace of the claim that it was made for.
pub(crate) const CLAIM_NAMESPACE: &str = "objectbucket.io/claim-namespace";
/// Name of that claim.
pub(crate) const CLAIM_NAME: &str = "objectbucket.io/claim-name";
/// Uid of that claim: the tag that counts.
pub(crate) const CLAIM_UID: &str = "objectbucket.io/claim-uid";

/// Uid of the cluster that claim is in (of its namespace `kube-system`).
pub(crate) const CLUSTER_UID: &str = "objectbucket.io/cluster-uid";

/// A tag set, as key and value.
pub(crate) type Tags = Vec<(String, String)>;

/// The tags of whatever is made for a claim.
pub(crate) fn of_record(provisioner: &str, record: &Record) -> Tags {
    let ClaimId { namespace, name, uid } = &record.claim;
    [
        (MANAGED_BY, Some(provisioner)),
        (CLAIM_NAMESPACE, Some(namespace)),
        (CLAIM_NAME, Some(name)),
        (CLAIM_UID, Some(uid)),
        (CLUSTER_UID, record.cluster.as_deref()),
    ]
    .into_iter()
    .filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())))
    .collect()
}

/// Whose a thing is, as far as its tags say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// The claim's.
    Ours,
    /// That of a claim whose record this one has adopted: its own, but for the tags.
    Inherited,
    /// Another claim's: one that was made anew has the name of the former.
    OtherClaim,
    /// Nobody's in particular: it has no tags, save those that AWS itself sets.
    Untagged,
    /// Somebody's: it has tags, but none of an operator.
    Foreign,
}

impl Ownership {
    /// Whether the tags say that it is the claim's.
    pub(crate) fn is_proven(&self) -> bool {
        matches!(self, Self::Ours | Self::Inherited)
    }
}

/// Reads the ownership of a thing from its tags. Only the uid counts: names can be used again.
pub(crate) fn ownership(tags: &[(String, String)], record: &Record) -> Ownership {
    match value(tags, CLAIM_UID) {
        Some(uid) if uid == record.claim.uid => Ownership::Ours,
        Some(uid) if record.names_uid(uid) => Ownership::Inherited,
        Some(uid) => {
            // In the log, and not on the claim: it is none of its user's business.
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

/// What is to be written so that a thing has the tags that it should have, and keeps those of others; `None` if it has
/// them.
pub(crate) fn completed(found: &Tags, wanted: &Tags) -> Option<Tags> {
    if wanted.iter().all(|tag| found.contains(tag)) {
        return None;
    }
    // AWS keeps its own tags by itself, and lets nobody write them.
    let others = found.iter().filter(|(key, _)| !key.starts_with("aws:") && value(wanted, key).is_none());
    Some(others.chain(wanted).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aws::testing::record;

    fn of(uid: &str) -> Record {
        let record = record();
        Record { claim: ClaimId { uid: uid.into(), ..record.claim }, ..record }
    }

    fn tags(uid: &str) -> Tags {
        of_record("aws-s3.io/bucket", &of(uid))
    }

    #[test]
    fn what_is_made_for_a_claim_is_known_as_its_own_and_says_where_it_was_made() {
        assert_eq!(ownership(&tags("u1"), &of("u1")), Ownership::Ours);
        let here = Record { cluster: Some("c1".into()), ..of("u1") };
        assert!(of_record("p", &here).contains(&(CLUSTER_UID.to_owned(), "c1".to_owned())));
    }

    #[test]
    fn a_claim_of_the_same_name_but_another_uid_is_another_claim_unless_its_record_was_adopted() {
        assert_eq!(ownership(&tags("u1"), &of("u2")), Ownership::OtherClaim);
        let heir = Record { former_uids: vec!["u0".into(), "u1".into()], ..of("u2") };
        assert_eq!(ownership(&tags("u1"), &heir), Ownership::Inherited);
    }

    #[test]
    fn tags_of_aws_itself_say_nothing_and_those_of_others_say_hands_off() {
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
        assert!(!written.contains(&tag("aws:x", "y")), "AWS refuses its own tags");
        assert_eq!(written.iter().filter(|(key, _)| key == CLAIM_UID).count(), 1);
    }
}
