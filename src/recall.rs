//! What the tags of a bucket and of a user say about a claim whose record was lost.

use std::time::SystemTime;

use crate::class::names::USER_MAX;
use crate::class::target::Target;
use crate::client::error::Error;
use crate::client::store::Store;
use crate::iam::association::Association;
use crate::iam::{role, user};
use crate::s3::tagging;
use crate::s3::tags::{self, Tags};
use bucket_provisioner::store::{ClaimId, Mode, Recalled, names};

/// What the store knows about the claim for which a bucket was created; `None` if it knows nothing.
///
/// The uids in the names of bucket and user are those of the first claim: a record that was adopted keeps the names.
pub(crate) async fn recall(
    store: &Store,
    target: &Target<'_>,
    association: Option<&Association<'_>>,
) -> Result<Option<Recalled>, Error> {
    let claim = match target.record.plan.mode {
        Mode::Created => claimant(&tagging::read(store, target.bucket_ref()).await?),
        // A bucket that existed before was created for no claim.
        Mode::Granted => None,
    };
    // Nor has it a user of the claim's own.
    let claim = match claim {
        None if target.record.plan.mode == Mode::Granted => {
            let has_access = match (&target.role, association) {
                (Some(role), _) => role::has_policy(store, role).await?,
                (None, Some(association)) => association.has_statements().await?,
                (None, None) => false,
            };
            has_access.then(|| (target.record.claim.clone(), None))
        }
        claim => claim,
    };
    let user = match (&claim, target.user) {
        (_, None) => None,
        (Some((claim, _)), Some(_)) => match user_by_name(store, target, claim).await? {
            None => user_of(store, target, Some(claim)).await?,
            found => found,
        },
        (None, Some(_)) if target.record.plan.mode == Mode::Granted => user_of(store, target, None).await?,
        (None, Some(_)) => None,
    };
    let Some((claim, cluster)) = claim.or_else(|| user.as_ref().map(|(_, claimant)| claimant.clone())) else {
        return Ok(None);
    };
    let user = user.map(|(name, _)| name);
    let mut former_uids: Vec<_> = [user.as_deref(), Some(target.bucket())]
        .into_iter()
        .flatten()
        .filter_map(names::uid_in)
        .filter(|uid| *uid != claim.uid)
        .map(str::to_owned)
        .collect();
    former_uids.dedup();
    Ok(Some(Recalled::new(claim).with_cluster(cluster).with_former_uids(former_uids).with_user(user)))
}

/// The claim, and the cluster it is in.
pub(crate) type Claimant = (ClaimId, Option<String>);

pub(crate) fn claimant(tags: &Tags) -> Option<Claimant> {
    let tag = |key| tags::value(tags, key).map(str::to_owned);
    let claim =
        ClaimId { namespace: tag(tags::CLAIM_NAMESPACE)?, name: tag(tags::CLAIM_NAME)?, uid: tag(tags::CLAIM_UID)? };
    Some((claim, tag(tags::CLUSTER_UID)))
}

/// The user of a claim, if it has one of the names that it can be expected to have: with the uid of the claim, or of the
/// first claim, which the bucket's name may end in. One call, where a list of all users takes one for each thousand.
async fn user_by_name(
    store: &Store,
    target: &Target<'_>,
    claim: &ClaimId,
) -> Result<Option<(String, Claimant)>, Error> {
    let first = names::uid_in(target.bucket()).filter(|uid| *uid != claim.uid);
    for uid in std::iter::once(claim.uid.as_str()).chain(first) {
        let name = names::user(
            &ClaimId { namespace: claim.namespace.clone(), name: claim.name.clone(), uid: uid.to_owned() },
            USER_MAX,
        );
        let tags = match user::ignore_not_found(user::tags_of(store, &name).await).map_err(Error::from) {
            // Of a user that does not exist, IAM does not know the path, to which the provisioning policy is limited.
            Err(error) if error.is_denied() => None,
            answer => answer?,
        };
        if let Some(claimant) = tags.and_then(|tags| claimant(&tags)).filter(|(found, _)| found == claim) {
            return Ok(Some((name, claimant)));
        }
    }
    Ok(None)
}

/// The user of a claim; if the claim is not known, of any claim with the namespace and name. The search uses the start
/// of the user's name, because the uid at its end is another one if the record was adopted. The newest user wins.
async fn user_of(
    store: &Store,
    target: &Target<'_>,
    claim: Option<&ClaimId>,
) -> Result<Option<(String, Claimant)>, Error> {
    let path = target.user.map(|user| user.path).unwrap_or_default();
    let mut users = user::list(store, path).await?;
    let readable = names::user_beginning(&target.record.claim, USER_MAX);
    users.retain(|user| user.user_name().starts_with(&readable));
    users.sort_by_key(|user| std::cmp::Reverse(SystemTime::try_from(*user.create_date()).ok()));
    for user in users {
        let name = user.user_name;
        let found = user::ignore_not_found(user::tags_of(store, &name).await)?.and_then(|tags| claimant(&tags));
        let wanted = &target.record.claim;
        let is_wanted = |found: &ClaimId| match claim {
            Some(claim) => found == claim,
            None => (&found.namespace, &found.name) == (&wanted.namespace, &wanted.name),
        };
        if let Some(claimant) = found.filter(|(claim, _)| is_wanted(claim)) {
            return Ok(Some((name, claimant)));
        }
    }
    Ok(None)
}
