//! Which ObjectBucket a claim adopts. Pure.

use crate::api::ObjectBucket;
use crate::decide::{claim, codec, record};

/// How the admin and the claim select the ObjectBucket.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wanted<'a> {
    /// The ObjectBucket that the admin names.
    pub(super) record: Option<&'a str>,
    /// The ObjectBucket that the claim names.
    pub(super) named: Option<&'a str>,
    /// The bucket that the admin names; else the one that the claim names.
    pub(super) bucket: Option<&'a str>,
}

/// The ObjectBucket to adopt, of those that record a previous claim of this name; `None` if it is lost. The
/// ObjectBucket of an older claim may also exist, with a bucket of its own: only the admin may choose one with another
/// bucket.
///
/// # Errors
/// The ObjectBucket that the admin names is not among them, or several are possible; a sentence for the admin.
pub(super) fn choose<'a>(
    previous: &[&'a ObjectBucket],
    wanted: &Wanted<'_>,
) -> Result<Option<&'a ObjectBucket>, String> {
    let is_named = |object: &ObjectBucket, name| object.metadata.name.as_deref() == Some(name);
    if let Some(name) = wanted.record {
        let chosen = previous.iter().copied().find(|object| is_named(object, name));
        let unknown = || format!("ObjectBucket {name:?} does not record a previous claim of this name");
        return chosen.map(Some).ok_or_else(unknown);
    }
    let has = |object: &ObjectBucket, name: &str| match codec::read(object) {
        Ok(stored) => claim::is_named(&stored.record.plan, name),
        Err(_) => record::bucket(object) == Some(name),
    };
    let fits = |object: &&ObjectBucket| wanted.bucket.is_none_or(|wanted| has(object, wanted));
    let fitting: Vec<_> = previous.iter().copied().filter(fits).collect();
    let named = fitting.iter().find(|object| wanted.named.is_some_and(|name| is_named(object, name)));
    match (named, &*fitting) {
        // The others have buckets of other claims.
        (None, _) if wanted.named.is_some() && wanted.bucket.is_none() => Ok(None),
        (Some(object), _) | (None, [object]) => Ok(Some(object)),
        (None, []) => Ok(None),
        (None, several) => {
            let names: Vec<_> = several.iter().map(|object| record::name(object)).collect();
            Err(format!("several ObjectBuckets are possible; choose one with --record: {}", names.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::decide::testing::record;

    fn object(name: &str, bucket: &str) -> ObjectBucket {
        let mut record = record();
        record.plan.bucket = bucket.into();
        codec::to_object(&record, name, "ours")
    }

    fn chosen(previous: &[ObjectBucket], wanted: Wanted<'_>) -> Result<Option<String>, String> {
        choose(&previous.iter().collect::<Vec<_>>(), &wanted).map(|object| object.map(record::name))
    }

    #[test]
    fn an_object_bucket_with_another_bucket_is_adopted_only_by_name() {
        let old = [object("obc-old", "old")];
        for named in [None, Some("obc-new"), Some("obc-old")] {
            assert_eq!(chosen(&old, Wanted { named, bucket: Some("new"), ..Wanted::default() }), Ok(None), "{named:?}");
        }
        let by_bucket = Wanted { named: Some("obc-new"), bucket: Some("old"), ..Wanted::default() };
        assert_eq!(chosen(&old, by_bucket), Ok(Some("obc-old".into())));
        assert_eq!(chosen(&old, Wanted::default()), Ok(Some("obc-old".into())), "no other bucket is named");
        let by_name = Wanted { record: Some("obc-old"), bucket: Some("new"), ..Wanted::default() };
        assert_eq!(chosen(&old, by_name), Ok(Some("obc-old".into())));
    }

    #[test]
    fn a_claim_names_its_bucket_without_what_the_store_appends() {
        let mut record = record();
        record.plan.bucket = "photos-123456789012-eu-west-1-an".into();
        record.plan.name_suffix = "-123456789012-eu-west-1-an".into();
        let old = [codec::to_object(&record, "obc-old", "ours")];
        for (bucket, found) in
            [("photos", Some("obc-old".to_owned())), (&*record.plan.bucket, Some("obc-old".into())), ("other", None)]
        {
            assert_eq!(chosen(&old, Wanted { bucket: Some(bucket), ..Wanted::default() }), Ok(found), "{bucket}");
        }
    }

    #[test]
    fn of_several_the_claim_or_the_admin_names_one() {
        let both = [object("one", "a"), object("two", "b")];
        let named = |name| Wanted { named: Some(name), ..Wanted::default() };
        assert_eq!(chosen(&both, named("two")), Ok(Some("two".into())));
        assert_eq!(chosen(&both, named("lost")), Ok(None));
        assert_eq!(chosen(&both[..1], named("lost")), Ok(None));
        let bucket = Wanted { bucket: Some("a"), ..Wanted::default() };
        assert_eq!(chosen(&both, bucket), Ok(Some("one".into())));
        assert!(chosen(&both, Wanted::default()).unwrap_err().contains("one, two"));
        let unknown = Wanted { record: Some("three"), ..Wanted::default() };
        assert!(chosen(&both, unknown).unwrap_err().contains("three"));
    }
}
