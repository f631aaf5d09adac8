//! The bucket record as write-ahead log: its names, its form in an ObjectBucket, finding and writing it.
//!
//! A record is written before the first call to the store and holds all that is needed to undo the claim.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use kube::core::DeserializeGuard;

use super::claim::Claim;
use super::deletion;
use super::error::{Error, FIELD_MANAGER};
use super::gate::LabelOwner;
use crate::api::{BucketEndpoint, BucketPhase, ClaimReference, ObjectBucket, ObjectBucketSpec, wire};
use crate::provisioner::{ClaimId, Endpoint, Mode, Plan, ReclaimPolicy, Record, Rotation, SecretRef};

/// Longest name of a Kubernetes object (RFC 1123 subdomain).
const MAX_NAME: usize = 253;

/// The name a claim's record has by default, and the one it has when that is too long or taken: two
/// claims can share a default name (`a-b/c` and `a/b-c`), but not a uid.
pub(crate) fn names(claim: &ClaimId) -> (Option<String>, String) {
    let plain = format!("obc-{}-{}", claim.namespace, claim.name);
    let room = MAX_NAME - 1 - claim.uid.len().min(MAX_NAME / 2);
    let cut = plain.get(..room).unwrap_or(&plain).trim_end_matches(['-', '.']);
    let unique = format!("{cut}-{}", claim.uid);
    ((plain.len() <= MAX_NAME).then_some(plain), unique)
}

/// Who wrote a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Author {
    /// This operator: the record holds all that is needed to undo the claim.
    Us,
    /// The Go provisioner that this operator replaces. It recorded neither whose credentials it used nor
    /// whether it created the bucket; both are to be had from the class only, see `adopt.rs`. Until then
    /// the record is read in the harmless way: a bucket that existed before.
    GoProvisioner,
}

/// A record as it stands in the cluster.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) name: String,
    /// `metadata.uid` of the ObjectBucket: guards writes against one of the same name that was made since.
    pub(crate) uid: Option<String>,
    pub(crate) author: Author,
    pub(crate) record: Record,
    /// `status.phase` is Bound: everything was made and handed over.
    pub(crate) bound: bool,
}

/// The record of one claim.
#[derive(Debug)]
pub(crate) enum Found {
    /// There is one.
    Mine(Box<Stored>),
    /// There is none; this name is free for it.
    None { free_name: String },
}

/// UID of the claim that an ObjectBucket records, readable even where nothing else is.
pub(crate) fn claim_uid(object: &ObjectBucket) -> Option<&str> {
    state(object, wire::state::CLAIM_UID).or_else(|| object.spec.claim_ref.as_ref()?.uid.as_deref())
}

/// Whether an ObjectBucket names its claim elsewhere than in its claimRef, which some CRDs prune.
pub(crate) fn names_its_claim(object: &ObjectBucket) -> bool {
    [wire::state::CLAIM_NAMESPACE, wire::state::CLAIM_NAME, wire::state::CLAIM_UID]
        .into_iter()
        .all(|key| state(object, key).is_some())
}

/// Whether an ObjectBucket records this claim: the uid in it says so.
pub(crate) fn is_of(object: &ObjectBucket, claim: &Claim) -> bool {
    match claim_uid(object) {
        Some(uid) => uid == claim.id.uid,
        None => author(object) == Author::GoProvisioner && fits(object, claim),
    }
}

/// Whether a record of the Go provisioner whose claimRef a CRD pruned is the claim's, by all that it still says:
/// its name, class and bucket are those that the claim was bound with. A user can write all of these into a claim,
/// and two claims can share the name; but the claim it was made for is older than the record, and nobody can
/// submit one of those any more.
fn fits(object: &ObjectBucket, claim: &Claim) -> bool {
    let Ok(spec) = claim.spec() else { return false };
    let name = object.metadata.name.as_deref();
    let bucket = object.spec.endpoint.as_ref().and_then(|endpoint| endpoint.bucket_name.as_deref());
    let older = match (&claim.created, &object.metadata.creation_timestamp) {
        (Some(claim), Some(record)) => claim <= record,
        _ => false,
    };
    older
        && claim.label == LabelOwner::Ours
        && names(&claim.id).0.as_deref() == name
        && spec.object_bucket_name.as_deref() == name
        && spec.bucket_name.as_deref() == bucket
        && Some(spec.storage_class_name.as_str()) == object.spec.storage_class_name.as_deref()
}

/// Namespace and name of the claim that an ObjectBucket records.
pub(crate) fn claim_name(object: &ObjectBucket) -> Option<(&str, &str)> {
    let reference = object.spec.claim_ref.as_ref();
    let namespace = state(object, wire::state::CLAIM_NAMESPACE).or_else(|| reference?.namespace.as_deref())?;
    let name = state(object, wire::state::CLAIM_NAME).or_else(|| reference?.name.as_deref())?;
    Some((namespace, name))
}

fn state<'a>(object: &'a ObjectBucket, key: &str) -> Option<&'a str> {
    object.spec.additional_state.as_ref()?.get(key).map(String::as_str)
}

/// The ObjectBucket that holds `record`.
pub(crate) fn to_object(record: &Record, name: &str, label: &str) -> ObjectBucket {
    // Destructured in full: a new field that is not recorded is lost for deletion.
    let Record { claim, class_name, reclaim_policy, plan } = record;
    let Plan { bucket, mode, endpoint, owner_secret, user, rotation, state } = plan;
    let Rotation { every, grace } = rotation;
    let Endpoint { host, port, region, url } = endpoint;

    let mut recorded = state.clone();
    let mut set = |key: &str, value: &str| recorded.insert(key.to_owned(), value.to_owned());
    set(wire::state::CLAIM_NAMESPACE, &claim.namespace);
    set(wire::state::CLAIM_NAME, &claim.name);
    set(wire::state::CLAIM_UID, &claim.uid);
    set(wire::state::MODE, mode.as_str());
    if let Some(user) = user {
        set(wire::state::USER_NAME, user);
    }
    if let Some(url) = url {
        set(wire::state::ENDPOINT_URL, url);
    }
    if let Some(every) = every {
        set(wire::state::ROTATE_KEYS_EVERY, &every.as_secs().to_string());
    }
    if *grace != Rotation::DEFAULT_GRACE {
        set(wire::state::KEY_GRACE_PERIOD, &grace.as_secs().to_string());
    }
    if let Some(secret) = owner_secret {
        set(wire::state::SECRET_NAMESPACE, &secret.namespace);
        set(wire::state::SECRET_NAME, &secret.name);
    }

    ObjectBucket {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some([(wire::PROVISIONER_LABEL.to_owned(), label.to_owned())].into()),
            // So that nobody deletes the record by hand while there is something to undo.
            finalizers: Some(vec![wire::FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: ObjectBucketSpec {
            storage_class_name: Some(class_name.clone()),
            reclaim_policy: Some(reclaim_policy.as_str().to_owned()),
            claim_ref: Some(reference(claim)),
            endpoint: Some(BucketEndpoint {
                bucket_host: Some(host.clone()),
                bucket_port: Some(i32::from(*port)),
                bucket_name: Some(bucket.clone()),
                region: Some(region.clone()),
                sub_region: None,
                additional_config: None,
            }),
            additional_state: Some(recorded),
        },
        status: None,
    }
}

fn reference(claim: &ClaimId) -> ClaimReference {
    ClaimReference {
        api_version: Some(wire::API_VERSION.to_owned()),
        kind: Some(wire::CLAIM_KIND.to_owned()),
        namespace: Some(claim.namespace.clone()),
        name: Some(claim.name.clone()),
        uid: Some(claim.uid.clone()),
    }
}

fn author(object: &ObjectBucket) -> Author {
    let ours = [wire::state::MODE, wire::state::CLAIM_UID];
    match ours.into_iter().any(|key| state(object, key).is_some()) {
        true => Author::Us,
        false => Author::GoProvisioner,
    }
}

/// Reads a record back.
///
/// # Errors
/// Names the field that is missing or cannot be used.
pub(crate) fn from_object(object: &ObjectBucket) -> Result<Record, String> {
    let missing = |field: &str| format!("{field} is missing");
    let spec = &object.spec;
    let mut state: BTreeMap<String, String> = spec.additional_state.clone().unwrap_or_default();
    // The Go library writes what it does not have as an empty string.
    state.retain(|_, value| !value.is_empty());
    let mut take = |key: &str| state.remove(key);
    let required =
        |value: Option<String>, key: &str| value.ok_or_else(|| missing(&format!("spec.additionalState.{key}")));

    let (claim, mode) = match author(object) {
        Author::Us => {
            let claim = ClaimId {
                namespace: required(take(wire::state::CLAIM_NAMESPACE), wire::state::CLAIM_NAMESPACE)?,
                name: required(take(wire::state::CLAIM_NAME), wire::state::CLAIM_NAME)?,
                uid: required(take(wire::state::CLAIM_UID), wire::state::CLAIM_UID)?,
            };
            let mode = match required(take(wire::state::MODE), wire::state::MODE)?.as_str() {
                "created" => Mode::Created,
                "granted" => Mode::Granted,
                other => return Err(format!("spec.additionalState.mode is {other:?}, neither created nor granted")),
            };
            (claim, mode)
        }
        Author::GoProvisioner => {
            let reference = spec.claim_ref.clone().unwrap_or_default();
            let claim = ClaimId {
                namespace: reference.namespace.ok_or_else(|| missing("spec.claimRef.namespace"))?,
                name: reference.name.ok_or_else(|| missing("spec.claimRef.name"))?,
                uid: reference.uid.ok_or_else(|| missing("spec.claimRef.uid"))?,
            };
            (claim, Mode::Granted)
        }
    };
    let user = take(wire::state::USER_NAME);
    let url = take(wire::state::ENDPOINT_URL);
    let owner_secret = match (take(wire::state::SECRET_NAMESPACE), take(wire::state::SECRET_NAME)) {
        (Some(namespace), Some(name)) => Some(SecretRef { namespace, name }),
        (None, None) => None,
        _ => return Err("spec.additionalState has one of secretName and secretNamespace, not both".to_owned()),
    };
    let mut seconds = |key: &str| match take(key) {
        None => Ok(None),
        Some(value) => match value.parse() {
            Ok(seconds) => Ok(Some(Duration::from_secs(seconds))),
            Err(_) => Err(format!("spec.additionalState.{key} is {value:?}, not a number of seconds")),
        },
    };
    let rotation = Rotation {
        every: seconds(wire::state::ROTATE_KEYS_EVERY)?,
        grace: seconds(wire::state::KEY_GRACE_PERIOD)?.unwrap_or(Rotation::DEFAULT_GRACE),
    };
    let endpoint = spec.endpoint.as_ref().ok_or_else(|| missing("spec.endpoint"))?;
    let port = endpoint.bucket_port.ok_or_else(|| missing("spec.endpoint.bucketPort"))?;
    let reclaim_policy = match spec.reclaim_policy.as_deref() {
        Some("Delete") => ReclaimPolicy::Delete,
        Some("Retain") => ReclaimPolicy::Retain,
        Some(other) => return Err(format!("spec.reclaimPolicy is {other:?}, neither Delete nor Retain")),
        None => return Err(missing("spec.reclaimPolicy")),
    };
    Ok(Record {
        claim,
        class_name: spec.storage_class_name.clone().ok_or_else(|| missing("spec.storageClassName"))?,
        reclaim_policy,
        plan: Plan {
            bucket: endpoint.bucket_name.clone().ok_or_else(|| missing("spec.endpoint.bucketName"))?,
            mode,
            endpoint: Endpoint {
                host: endpoint.bucket_host.clone().ok_or_else(|| missing("spec.endpoint.bucketHost"))?,
                port: u16::try_from(port).map_err(|_| format!("spec.endpoint.bucketPort is {port}, not a TCP port"))?,
                region: endpoint.region.clone().ok_or_else(|| missing("spec.endpoint.region"))?,
                url,
            },
            owner_secret,
            user,
            rotation,
            state,
        },
    })
}

/// A record that was read from the cluster or from the cache.
pub(crate) fn read(object: &ObjectBucket) -> Result<Stored, Error> {
    let name = object.metadata.name.clone().unwrap_or_default();
    let record = from_object(object).map_err(|error| Error::RecordUnreadable { name: name.clone(), error })?;
    let bound = object.status.as_ref().and_then(|s| s.phase) == Some(BucketPhase::Bound);
    Ok(Stored { name, uid: object.metadata.uid.clone(), author: author(object), record, bound })
}

/// A record that [is of](is_of) this claim.
pub(crate) fn stored(object: &ObjectBucket, claim: &ClaimId) -> Result<Stored, Error> {
    let mut whole = Cow::Borrowed(object);
    if claim_uid(object).is_none() {
        whole.to_mut().spec.claim_ref = Some(reference(claim));
    }
    read(&whole)
}

/// Looks the claim's record up, in the cluster itself: what is undone or made rests on it.
///
/// # Errors
/// [`Error::RecordUnreadable`], or [`Error::RecordTaken`] if even the name with the uid is another's.
pub(crate) async fn find(api: &Api<DeserializeGuard<ObjectBucket>>, claim: &Claim) -> Result<Found, Error> {
    let (plain, unique) = names(&claim.id);
    let look_up = |name: String| async move {
        let object = api.get_opt(&name).await.map_err(Error::kubernetes("read the ObjectBucket"))?;
        Ok::<_, Error>(object.map(|guard| (name, guard.0)))
    };
    let (at_plain, at_unique) = tokio::try_join!(
        async {
            match plain.clone() {
                Some(name) => look_up(name).await,
                None => Ok(None),
            }
        },
        look_up(unique.clone()),
    )?;
    let plain_is_free = plain.is_some() && at_plain.is_none();
    let unique_is_free = at_unique.is_none();
    for (name, object) in [at_plain, at_unique].into_iter().flatten() {
        match object {
            Ok(object) if is_of(&object, claim) => {
                return Ok(Found::Mine(Box::new(stored(&object, &claim.id)?)));
            }
            Ok(_) => {}
            // It may be this claim's: stop rather than make a second one beside it.
            Err(invalid) => return Err(Error::RecordUnreadable { name, error: invalid.error }),
        }
    }
    match plain {
        Some(free_name) if plain_is_free => Ok(Found::None { free_name }),
        _ if unique_is_free => Ok(Found::None { free_name: unique }),
        _ => Err(Error::RecordTaken { name: unique }),
    }
}

/// Writes a new record. Fails with a conflict if the name was taken since it was found free.
pub(crate) async fn create(
    api: &Api<ObjectBucket>,
    name: String,
    record: Record,
    label: &str,
) -> Result<Stored, Error> {
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let created = api.create(&params, &to_object(&record, &name, label)).await;
    let created = created.map_err(Error::kubernetes("write the ObjectBucket"))?;
    Ok(Stored { name, uid: created.metadata.uid, author: Author::Us, record, bound: false })
}

/// Deletes a record for which nothing is left in the store. Gone already is as good, and so is one that was
/// reconstructed because there was none.
///
/// # Errors
/// Kubernetes refused, also because another record has taken the name since.
pub(crate) async fn delete(api: &Api<DeserializeGuard<ObjectBucket>>, stored: &Stored) -> Result<(), Error> {
    match &stored.uid {
        Some(uid) => {
            deletion::delete(api, &stored.name, uid).await.map_err(Error::kubernetes("delete the ObjectBucket"))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn record() -> Record {
        Record {
            claim: ClaimId { namespace: "shop".into(), name: "photos".into(), uid: "f30e0389".into() },
            class_name: "s3-buckets".into(),
            reclaim_policy: ReclaimPolicy::Retain,
            plan: Plan {
                bucket: "photos-f30e0389".into(),
                mode: Mode::Created,
                endpoint: Endpoint {
                    host: "store.example.com".into(),
                    port: 9000,
                    region: "us-west-1".into(),
                    url: Some("http://store.example.com:9000".into()),
                },
                owner_secret: Some(SecretRef { namespace: "infra".into(), name: "owner".into() }),
                user: Some("shop-photos-f30e0389".into()),
                rotation: Rotation { every: Some(Duration::from_secs(30 * 86400)), grace: Duration::from_secs(3600) },
                state: [("iamPath".to_owned(), "/buckets/".to_owned())].into(),
            },
        }
    }

    #[test]
    fn a_record_is_read_back_as_it_was_written() {
        let mut bare = record();
        bare.plan.endpoint.url = None;
        bare.plan.owner_secret = None;
        bare.plan.user = None;
        bare.plan.rotation = Rotation::default();
        bare.plan.mode = Mode::Granted;
        for record in [record(), bare] {
            let object = to_object(&record, "obc-shop-photos", "label");
            let wire = serde_json::to_value(&object).unwrap();
            let object: ObjectBucket = serde_json::from_value(wire).unwrap();
            assert_eq!(from_object(&object).unwrap(), record);
        }
    }

    #[test]
    fn a_record_survives_a_crd_that_prunes_its_claim_reference() {
        let mut object = to_object(&record(), "obc-shop-photos", "label");
        object.spec.claim_ref = Some(ClaimReference::default());
        assert_eq!(claim_uid(&object), Some("f30e0389"));
        assert_eq!(claim_name(&object), Some(("shop", "photos")));
        assert_eq!(from_object(&object).unwrap(), record());
    }

    #[test]
    fn a_record_that_lacks_something_names_it() {
        let mut object = to_object(&record(), "obc-shop-photos", "label");
        object.spec.additional_state.as_mut().unwrap().remove("mode");
        assert_eq!(from_object(&object).unwrap_err(), "spec.additionalState.mode is missing");
    }

    #[test]
    fn no_empty_string_is_written_because_some_crds_refuse_it() {
        let object = serde_json::to_string(&to_object(&record(), "obc-shop-photos", "label")).unwrap();
        assert!(!object.contains("\"\""), "{object}");
    }

    proptest! {
        #[test]
        fn record_names_are_valid_and_those_with_the_uid_differ(
            namespace in "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?",
            name in "[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?",
        ) {
            let claim = |uid: &str| ClaimId { namespace: namespace.clone(), name: name.clone(), uid: uid.into() };
            let (one, other) = ("f30e0389-0689-48a2-bfaa-74d1bf1fd950", "00000000-0689-48a2-bfaa-74d1bf1fd950");
            let (plain, unique) = names(&claim(one));
            prop_assert!(unique.len() <= MAX_NAME && unique.ends_with(one));
            prop_assert!(plain.as_ref().is_none_or(|plain| plain.len() <= MAX_NAME));
            prop_assert_eq!(&names(&claim(one)), &(plain, unique.clone()));
            prop_assert_ne!(names(&claim(other)).1, unique);
        }
    }
}
