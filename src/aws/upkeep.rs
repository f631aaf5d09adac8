//! A bound claim over time: keys that follow others, and whether all is as it was made.
//!
//! What proves that a user is the claim's own, though somebody took its tags off, is that it holds the key which
//! the operator issued to the claim.

use super::bucket::{self, NameKind};
use super::call::{CallError, Operation, Resource};
use super::clients::Store;
use super::error::Error;
use super::plan::{Target, UserSpec};
use super::policy::{self, POLICY_NAME};
use super::tags::{Ownership, Tags, ownership};
use super::user;
use crate::provisioner::{AppCredentials, Checkup, Mode};

/// Issues a key beside `present`; any other one of the user is deleted first.
pub(crate) async fn rotate(store: &Store, user: UserSpec<'_>, present: &str) -> Result<AppCredentials, Error> {
    user::delete_access_keys(store, user.name, &[present]).await?;
    user::create_only_key(store, user.name, &[present]).await
}

/// Compares bucket, user, policy and keys with what was made, and sets right what can be.
pub(crate) async fn check(store: &Store, target: &Target<'_>, tags: &Tags, keys: &[&str]) -> Result<Checkup, Error> {
    let mut checkup = Checkup::default();
    match target.record.plan.mode {
        Mode::Granted => bucket::check(store, target).await?,
        // One of the Go provisioner's carries no tags.
        Mode::Created if target.go_policy.is_some() => bucket::check(store, target).await?,
        Mode::Created => check_tags(store, target, tags, &mut checkup).await?,
    }
    if let Some(user) = target.user {
        check_user(store, target, user, tags, keys, &mut checkup).await?;
    }
    Ok(checkup)
}

/// What is to be done about the tags of the claim's bucket.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Fine,
    /// Write these, which keeps those of others.
    Write(Tags),
    /// Nothing proves any more that the bucket is the claim's.
    Lost,
}

fn judge(found: Tags, wanted: &Tags, target: &Target<'_>) -> Verdict {
    match (ownership(&found, &target.record.claim), NameKind::of(target)) {
        (Ownership::OtherClaim(_), _) => return Verdict::Lost,
        (Ownership::Untagged | Ownership::Foreign, NameKind::Chosen) => return Verdict::Lost,
        (Ownership::Ours, _) | (_, NameKind::Generated) => {}
    }
    if wanted.iter().all(|tag| found.contains(tag)) {
        return Verdict::Fine;
    }
    // AWS keeps its own tags by itself, and lets nobody write them.
    let others = found.into_iter().filter(|(key, _)| !key.starts_with("aws:") && wanted.iter().all(|(k, _)| k != key));
    Verdict::Write(others.chain(wanted.iter().cloned()).collect())
}

async fn check_tags(store: &Store, target: &Target<'_>, tags: &Tags, checkup: &mut Checkup) -> Result<(), Error> {
    let bucket = target.bucket();
    let found = match bucket::tags_of(store, bucket).await {
        Err(error) if error.code() == "NoSuchBucket" => return Err(Error::BucketGone { bucket: bucket.to_owned() }),
        found => found?,
    };
    match judge(found, tags, target) {
        Verdict::Fine => Ok(()),
        Verdict::Lost => Err(Error::OwnershipLost { bucket: bucket.to_owned(), uid: target.record.claim.uid.clone() }),
        Verdict::Write(tags) => match bucket::put_tags(store, target, &tags).await {
            // A store without tags lacks none.
            Err(error) if error.lacks_operation() => Ok(()),
            result => {
                result?;
                checkup.repaired.push(format!("bucket {bucket:?} had lost the tags of this claim; they are set again"));
                Ok(())
            }
        },
    }
}

async fn check_user(
    store: &Store,
    target: &Target<'_>,
    user: UserSpec<'_>,
    tags: &Tags,
    keys: &[&str],
    checkup: &mut Checkup,
) -> Result<(), Error> {
    let name = user.name;
    let Some(found) = user::gone_is_fine(user::tags_of(store, name).await)? else {
        checkup.keys_lost = true;
        return Ok(());
    };
    let held = user::access_keys(store, name).await?;
    if keys.first().is_none_or(|present| !held.iter().any(|key| key == present)) {
        checkup.keys_lost = true;
        return Ok(());
    }
    if target.go_policy.is_none() {
        if ownership(&found, &target.record.claim) != Ownership::Ours {
            user::put_tags(store, name, tags).await?;
            checkup.repaired.push(format!("user {name:?} had lost the tags of this claim; they are set again"));
        }
        if !has_policy(store, target, name).await? {
            user::put_policy(store, target, name).await?;
            checkup.repaired.push(format!("the policy {POLICY_NAME:?} of user {name:?} had changed; it is set again"));
        }
    }
    for id in held.into_iter().filter(|id| !keys.contains(&id.as_str())) {
        user::delete_access_key(store, name, &id).await?;
        checkup.deleted_keys.push(id);
    }
    Ok(())
}

async fn has_policy(store: &Store, target: &Target<'_>, user: &str) -> Result<bool, CallError> {
    let sent = store.iam.get_user_policy().user_name(user).policy_name(POLICY_NAME).send();
    let answer = user::gone_is_fine(store.call(Operation::GetUserPolicy, Resource::user(user), sent).await)?;
    let wanted = policy::document(target.bucket(), &target.endpoints.region);
    Ok(answer.is_some_and(|answer| policy::same(&answer.policy_document, &wanted)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aws::plan::Environment;
    use crate::aws::tags::of_claim;
    use crate::aws::testing::{named, record};
    use crate::provisioner::ClaimId;

    fn tag(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn lost_tags_of_a_generated_bucket_are_set_again_and_those_of_others_kept() {
        let record = record();
        let wanted = of_claim("p", &record.claim);
        let target = Target::of(&record, &Environment::default());
        assert_eq!(judge(wanted.clone(), &wanted, &target), Verdict::Fine);
        let found = vec![tag("team", "a"), tag("aws:x", "y")];
        let Verdict::Write(written) = judge(found, &wanted, &target) else { panic!("they are to be written") };
        assert!(written.contains(&tag("team", "a")) && wanted.iter().all(|tag| written.contains(tag)));
        assert!(!written.contains(&tag("aws:x", "y")), "AWS refuses its own tags");
    }

    #[test]
    fn a_chosen_name_without_tags_and_any_bucket_of_another_claim_are_lost() {
        let record = named("us-west-1");
        let wanted = of_claim("p", &record.claim);
        let target = Target::of(&record, &Environment::default());
        assert_eq!(judge(Vec::new(), &wanted, &target), Verdict::Lost);
        let other = of_claim("p", &ClaimId { uid: "another".into(), ..record.claim.clone() });
        assert_eq!(judge(other, &wanted, &target), Verdict::Lost);
    }
}
