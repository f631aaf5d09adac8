//! Buckets that several claims of a namespace share: what `bucketClaimName` asks for, and what the named claim can give. Pure.

use crate::decide::claim::{Claim, LabelOwner, WantedBucket};
use crate::decide::record::Stored;
use crate::decide::settings::{self, Config};
use crate::error::Error;
use crate::refusal::Refusal;
use crate::store::settings::BUCKET_CLAIM_NAME;
use crate::store::{AccessMode, ClaimId, Endpoint, MaySet, Mode, Plan, Record, Setting, Settings, SharedFrom};

/// The claim that another one names.
#[derive(Debug)]
pub(crate) enum Creator {
    /// It does not exist, or the other claim names none.
    Missing,
    /// As the caches show it, with its record.
    Shown { claim: Box<Claim>, stored: Option<Box<Stored>> },
    /// It is unknown, and the claim that names it is being deleted. The bucket is that which the latter had.
    Assumed { bucket: String },
}

/// Looks up a claim by its name, in the namespace of the claim that names it.
pub(crate) type Creators<'a> = dyn Fn(&str) -> Creator + Sync + 'a;

/// The bucket that a claim shares.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) from: SharedFrom,
    pub(crate) bucket: String,
    /// Where it is, and the class of its claim; `None`: not known.
    place: Option<(Endpoint, String)>,
    /// What its keys need.
    pub(crate) settings: Settings,
    /// The most that its class lets keys do.
    pub(crate) most: AccessMode,
}

/// What a claim asks for that names another one. `may_set`: what the class lets new claims set.
pub(crate) struct Asking<'a> {
    pub(crate) claim: &'a ClaimId,
    pub(crate) name: &'a str,
    pub(crate) wanted: &'a WantedBucket,
    pub(crate) class: &'a str,
    pub(crate) may_set: Option<&'a MaySet>,
}

impl Creator {
    /// For a claim that is being deleted.
    pub(crate) fn assumed(claim: &Claim) -> Self {
        // That of its Bound claim, which the operator has written.
        let bucket = claim.spec().ok().and_then(|spec| spec.bucket_name.clone()).unwrap_or_default();
        Self::Assumed { bucket }
    }

    /// The bucket that a claim gets which names this one.
    ///
    /// # Errors
    /// The class does not let claims share buckets, or there is no bucket to share, or not yet.
    pub(crate) fn share(&self, asking: &Asking<'_>, known: &[Setting]) -> Result<Shared, Error> {
        let Asking { claim, name, wanted, class, may_set } = *asking;
        if may_set.is_some_and(|may_set| !may_set.contains(BUCKET_CLAIM_NAME)) {
            return Err(settings::not_listed(BUCKET_CLAIM_NAME, class).into());
        }
        let refused = |problem: &str| Refusal::BucketClaimNotShareable {
            name: settings::shown(name),
            problem: problem.to_owned(),
        };
        if name == claim.name {
            return Err(refused("is this claim itself: name the claim that has the bucket").into());
        }
        let not_found = |problem, remedy| Error::BucketClaimNotFound { name: settings::shown(name), problem, remedy };
        let (creator, stored) = match self {
            Self::Missing => {
                return Err(not_found("does not exist in this namespace", "create it, or correct the name"));
            }
            Self::Assumed { bucket } => {
                let from = SharedFrom::new(name, []);
                let bucket = bucket.clone();
                return Ok(Shared {
                    from,
                    bucket,
                    place: None,
                    settings: Settings::default(),
                    most: AccessMode::default(),
                });
            }
            Self::Shown { claim, stored } => (claim, stored),
        };
        if creator.label == LabelOwner::Foreign {
            return Err(refused("is a claim of another provisioner: use its StorageClass").into());
        }
        if creator.deleting {
            return Err(refused("is being deleted: name another claim").into());
        }
        let Some(stored) = stored.as_ref().filter(|stored| stored.published() && !stored.is_being_adopted()) else {
            return Err(not_found("is not Bound yet", "its status shows what it waits for"));
        };
        let Record { plan, .. } = &stored.record;
        if let Some(SharedFrom { name, .. }) = &plan.shared_from {
            return Err(refused(&format!("shares the bucket of another claim itself: name {name:?}")).into());
        }
        if !stored.by_us() {
            return Err(refused("has a bucket that an earlier provisioner created, which nothing marks as the claim's: ask an admin for a StorageClass with bucketName").into());
        }
        if plan.mode == Mode::Granted {
            return Err(refused("has access to a bucket that was not created for it: use its StorageClass").into());
        }
        let bucket = plan.bucket.clone();
        match wanted {
            WantedBucket::Named(asked) if *asked != bucket => {
                return Err(refused(&format!(
                    "has the bucket {bucket:?}, but spec.bucketName is {asked:?}: remove one of both"
                ))
                .into());
            }
            WantedBucket::Generated { .. } => {
                return Err(refused(
                    "has a bucket already, but spec.generateBucketName asks for a new one: remove one of both",
                )
                .into());
            }
            WantedBucket::Named(_) | WantedBucket::Recorded(_) | WantedBucket::Unspecified => {}
        }
        let from = SharedFrom::new(name, stored.record.uids().map(str::to_owned));
        let settings = plan.settings.clone().of_existing_buckets(known);
        let place = Some((plan.endpoint.clone(), stored.record.class_name.clone()));
        Ok(Shared { from, bucket, place, settings, most: plan.access.most })
    }

    /// The uids that the creator has now, if its record was adopted since.
    pub(crate) fn renamed(&self, record: &Record) -> Option<SharedFrom> {
        let from = record.plan.shared_from.as_ref()?;
        let Self::Shown { stored: Some(creator), .. } = self else { return None };
        let Record { plan, .. } = &creator.record;
        let is_it = plan.mode == Mode::Created
            && plan.bucket == record.plan.bucket
            && from.uids.iter().any(|uid| creator.record.names_uid(uid));
        let now = SharedFrom::new(&from.name, creator.record.uids().map(str::to_owned));
        (is_it && now != *from).then_some(now)
    }

    /// Whether the bucket of this claim is in the account of that record.
    ///
    /// # Errors
    /// [`Refusal::BucketClaimNotShareable`].
    pub(crate) fn check_account(&self, record: &Record) -> Result<(), Refusal> {
        let (Some(from), Self::Shown { stored: Some(stored), .. }) = (&record.plan.shared_from, self) else {
            return Ok(());
        };
        match (&stored.record.account, &record.account) {
            (Some(theirs), Some(ours)) if theirs != ours => {
                Err(elsewhere(from, "in another account", &record.class_name))
            }
            _ => Ok(()),
        }
    }
}

impl Shared {
    /// Where the bucket is, if a plan of this class has its buckets there. The endpoint may be another one by now in the same
    /// class: that of the operator can change.
    ///
    /// # Errors
    /// [`Refusal::BucketClaimNotShareable`].
    pub(crate) fn endpoint(&self, plan: &Plan, class: &str) -> Result<Endpoint, Refusal> {
        match &self.place {
            Some((endpoint, of)) if *endpoint != plan.endpoint && of != class => {
                Err(elsewhere(&self.from, "at another store or in another region", class))
            }
            Some((endpoint, _)) => Ok(endpoint.clone()),
            None => Ok(plan.endpoint.clone()),
        }
    }

    /// What a class lets keys do that allows `most`.
    ///
    /// # Errors
    /// [`Refusal::BucketClaimNotShareable`].
    pub(crate) fn narrowed(&self, most: AccessMode, class: &str) -> Result<AccessMode, Refusal> {
        most.and(self.most).ok_or_else(|| Refusal::BucketClaimNotShareable {
            name: settings::shown(&self.from.name),
            problem: format!(
                "has a bucket whose class allows only {}, and StorageClass {class:?} allows only {most}: use the class of that claim",
                self.most
            ),
        })
    }
}

fn elsewhere(from: &SharedFrom, place: &str, class: &str) -> Refusal {
    Refusal::BucketClaimNotShareable {
        name: settings::shown(&from.name),
        problem: format!("has its bucket {place} than StorageClass {class:?} has buckets: use the class of that claim"),
    }
}

/// The refusal of a claim that shares a bucket, and sets this.
pub(crate) fn no_settings(of_claim: &Config) -> Refusal {
    let key = of_claim.keys().next().cloned().unwrap_or_default();
    let remedy = "the claim shares the bucket of another one, and only that one sets it: remove the setting".to_owned();
    Refusal::SettingNotAllowed { key, remedy }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::api::{Guard, ObjectBucketClaim};
    use crate::decide::record::Author;
    use crate::decide::testing::stored;
    use crate::store::{Access, Failure as _};

    fn may_set() -> MaySet {
        MaySet::of([BUCKET_CLAIM_NAME])
    }

    fn reader() -> ClaimId {
        ClaimId { namespace: "shop".into(), name: "reader".into(), uid: "2".into() }
    }

    fn creator(change: impl FnOnce(&mut Claim, &mut Stored)) -> Creator {
        let metadata = serde_json::json!({ "namespace": "shop", "name": "photos", "uid": "f30e0389" });
        let object: ObjectBucketClaim =
            serde_json::from_value(serde_json::json!({ "metadata": metadata, "spec": { "storageClassName": "fast" } }))
                .unwrap();
        let mut claim = Claim::read(&Guard(Ok(object)), "ours");
        let mut stored = stored();
        stored.record.credentials_published = true;
        change(&mut claim, &mut stored);
        Creator::Shown { claim: claim.into(), stored: Some(stored.into()) }
    }

    fn asked(creator: &Creator, wanted: &WantedBucket, name: &str) -> Result<Shared, Error> {
        let claim = reader();
        let may_set = may_set();
        creator.share(&Asking { claim: &claim, name, wanted, class: "fast", may_set: Some(&may_set) }, &[])
    }

    fn refused(creator: &Creator, wanted: &WantedBucket) -> (&'static str, String) {
        let error = asked(creator, wanted, "photos").unwrap_err();
        (error.reason(), error.to_string())
    }

    #[test]
    fn a_claim_shares_the_bucket_that_was_created_for_another() {
        let creator = creator(|_, stored| stored.record.former_uids = vec!["1".into()]);
        for wanted in [WantedBucket::Unspecified, WantedBucket::Named("photos-f30e0389".into())] {
            let shared = asked(&creator, &wanted, "photos").unwrap();
            assert_eq!(shared.bucket, "photos-f30e0389");
            assert_eq!(shared.from, SharedFrom::new("photos", ["f30e0389".to_owned(), "1".to_owned()]));
        }
    }

    #[test]
    fn a_claim_waits_for_one_that_is_missing_or_not_bound() {
        let any = &WantedBucket::Unspecified;
        let not_bound = creator(|_, stored| stored.record.credentials_published = false);
        let unknown = match creator(|_, _| {}) {
            Creator::Shown { claim, .. } => Creator::Shown { claim, stored: None },
            other => other,
        };
        for (creator, why) in [(Creator::Missing, "does not exist"), (not_bound, "not Bound"), (unknown, "not Bound")] {
            let (reason, message) = refused(&creator, any);
            assert_eq!(reason, "BucketClaimNotFound");
            assert!(message.contains("\"photos\"") && message.contains(why), "{message}");
        }
    }

    #[test]
    fn what_cannot_be_shared_has_a_remedy() {
        let any = WantedBucket::Unspecified;
        let other = SharedFrom::new("loader", ["3".to_owned()]);
        let named = |name: &str| WantedBucket::Named(name.to_owned());
        let as_is = || creator(|_, _| {});
        for (creator, wanted, remedy) in [
            (creator(|claim, _| claim.deleting = true), &any, "name another claim"),
            (creator(|claim, _| claim.label = LabelOwner::Foreign), &any, "use its StorageClass"),
            (creator(|_, stored| stored.record.plan.mode = Mode::Granted), &any, "use its StorageClass"),
            (creator(|_, stored| stored.record.plan.shared_from = Some(other)), &any, "name \"loader\""),
            (creator(|_, stored| stored.author = Author::GoProvisioner), &any, "ask an admin"),
            (as_is(), &named("other"), "remove one of both"),
            (as_is(), &WantedBucket::Generated { prefix: "x".into() }, "remove one of both"),
        ] {
            let (reason, message) = refused(&creator, wanted);
            assert_eq!(reason, "BucketClaimNotShareable", "{message}");
            assert!(message.ends_with(remedy) || message.contains(remedy), "{message}");
        }
        let itself = asked(&as_is(), &any, "reader").unwrap_err().to_string();
        assert!(itself.contains("this claim itself"), "{itself}");
    }

    #[test]
    fn the_class_decides_before_anything_is_looked_up() {
        let (claim, nothing) = (reader(), MaySet::default());
        let asking = |may_set| Asking {
            claim: &claim,
            name: "photos",
            wanted: &WantedBucket::Unspecified,
            class: "fast",
            may_set,
        };
        for creator in [Creator::Missing, creator(|_, _| {})] {
            assert_eq!(creator.share(&asking(Some(&nothing)), &[]).unwrap_err().reason(), "SettingNotAllowed");
        }
        assert!(creator(|_, _| {}).share(&asking(None), &[]).is_ok(), "it was planned before");
    }

    #[test]
    fn the_bucket_is_where_the_class_has_its_buckets() {
        let creator = creator(|_, stored| stored.record.account = Some("1".into()));
        let shared = asked(&creator, &WantedBucket::Unspecified, "photos").unwrap();
        let mut record = stored().record;
        record.plan.shared_from = Some(shared.from.clone());
        shared.endpoint(&record.plan, "fast").unwrap();
        record.plan.endpoint.region = "there".into();
        let elsewhere = shared.endpoint(&record.plan, "fast").unwrap_err().to_string();
        assert!(elsewhere.contains("in another region than StorageClass \"fast\""), "{elsewhere}");
        assert_eq!(shared.endpoint(&record.plan, "s3-buckets").unwrap().region, "here", "the operator's may change");
        for (account, is_refused) in [(None, false), (Some("1"), false), (Some("2"), true)] {
            record.account = account.map(str::to_owned);
            assert_eq!(creator.check_account(&record).is_err(), is_refused, "{account:?}");
        }
    }

    #[test]
    fn an_adopted_bucket_is_known_by_its_new_uid() {
        let mut record = stored().record;
        record.plan.shared_from = Some(SharedFrom::new("photos", ["1".to_owned()]));
        let adopted = creator(|_, stored| stored.record.former_uids = vec!["1".into()]);
        let now = adopted.renamed(&record).unwrap();
        assert_eq!(now.uids, ["f30e0389", "1"]);
        for other in [Creator::Missing, creator(|_, _| {}), creator(|_, stored| stored.record.plan.bucket = "x".into())]
        {
            assert_eq!(other.renamed(&record), None, "{other:?}");
        }
        record.plan.shared_from = Some(now);
        assert_eq!(adopted.renamed(&record), None);
    }

    #[test]
    fn nobody_gets_more_than_the_class_of_the_bucket_allows() {
        use AccessMode::{ReadOnly, ReadWrite, WriteOnly};

        for (of_bucket, of_class, gets) in [
            (ReadWrite, ReadWrite, Some(ReadWrite)),
            (ReadWrite, ReadOnly, Some(ReadOnly)),
            (WriteOnly, ReadWrite, Some(WriteOnly)),
            (WriteOnly, ReadOnly, None),
        ] {
            let creator = creator(|_, stored| stored.record.plan.access = Access::of_mode(of_bucket));
            let shared = asked(&creator, &WantedBucket::Unspecified, "photos").unwrap();
            assert_eq!(shared.narrowed(of_class, "fast").ok(), gets, "{of_bucket} {of_class}");
        }
    }
}
