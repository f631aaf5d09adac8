//! The tags that mark a bucket or a user as a claim's own, and what they prove.

use crate::provisioner::ClaimId;

/// Name of the provisioner that made the thing.
pub(crate) const MANAGED_BY: &str = "objectbucket.io/managed-by";
/// Namespace of the claim that it was made for.
pub(crate) const CLAIM_NAMESPACE: &str = "objectbucket.io/claim-namespace";
/// Name of that claim.
pub(crate) const CLAIM_NAME: &str = "objectbucket.io/claim-name";
/// Uid of that claim: the tag that counts.
pub(crate) const CLAIM_UID: &str = "objectbucket.io/claim-uid";

/// A tag set, as key and value.
pub(crate) type Tags = Vec<(String, String)>;

/// The tags of whatever is made for a claim.
pub(crate) fn of_claim(provisioner: &str, claim: &ClaimId) -> Tags {
    let ClaimId { namespace, name, uid } = claim;
    [(MANAGED_BY, provisioner), (CLAIM_NAMESPACE, namespace), (CLAIM_NAME, name), (CLAIM_UID, uid)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

/// Whose a thing is, as far as its tags say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// The claim's.
    Ours,
    /// Another claim's, `namespace/name` and uid: a claim that was made anew has the name of the former.
    OtherClaim(String),
    /// Nobody's in particular: it has no tags, save those that AWS itself sets.
    Untagged,
    /// Somebody's: it has tags, but none of an operator.
    Foreign,
}

/// Reads the ownership of a thing from its tags. Only the uid counts: names can be used again.
pub(crate) fn ownership(tags: &[(String, String)], claim: &ClaimId) -> Ownership {
    let value = |wanted: &str| tags.iter().find(|(key, _)| key == wanted).map(|(_, value)| value.as_str());
    match value(CLAIM_UID) {
        Some(uid) if uid == claim.uid => Ownership::Ours,
        Some(uid) => Ownership::OtherClaim(format!(
            "{}/{} (uid {uid})",
            value(CLAIM_NAMESPACE).unwrap_or("?"),
            value(CLAIM_NAME).unwrap_or("?")
        )),
        None if tags.iter().all(|(key, _)| key.starts_with("aws:")) => Ownership::Untagged,
        None => Ownership::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(uid: &str) -> ClaimId {
        ClaimId { namespace: "shop".into(), name: "photos".into(), uid: uid.into() }
    }

    #[test]
    fn what_is_made_for_a_claim_is_known_as_its_own() {
        assert_eq!(ownership(&of_claim("aws-s3.io/bucket", &claim("u1")), &claim("u1")), Ownership::Ours);
    }

    #[test]
    fn a_claim_of_the_same_name_but_another_uid_is_another_claim() {
        let tags = of_claim("aws-s3.io/bucket", &claim("u1"));
        assert_eq!(ownership(&tags, &claim("u2")), Ownership::OtherClaim("shop/photos (uid u1)".into()));
    }

    #[test]
    fn tags_of_aws_itself_say_nothing_and_those_of_others_say_hands_off() {
        let tag = |key: &str| vec![(key.to_owned(), "x".to_owned())];
        assert_eq!(ownership(&[], &claim("u")), Ownership::Untagged);
        assert_eq!(ownership(&tag("aws:cloudformation:stack-name"), &claim("u")), Ownership::Untagged);
        assert_eq!(ownership(&tag("cost-center"), &claim("u")), Ownership::Foreign);
    }
}
