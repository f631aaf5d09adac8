//! Records as ObjectBuckets: encoding and decoding. Pure.
//!
//! Long, because an ObjectBucket is written and read by one list of fields, which must agree.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;
use serde_json::{Value, json};

use super::{record, release};
use crate::api::{BucketEndpoint, ClaimReference, ObjectBucket, ObjectBucketSpec, object_name, wire};
use crate::decide::action;
use crate::decide::record::{Author, Stored};
use crate::decide::release::Release;
use crate::decide::store_outputs;
use crate::error::Error;
use crate::store::{
    Access, Changes, ClaimId, Endpoint, Mode, OnDelete, OwnerRef, Plan, ReclaimPolicy, Record, RoleRef, Rotation,
    SecretRef, ServiceAccount, Settings, SharedFrom, previous_access,
};

/// The value of [`wire::state::HANDED_OVER`].
const TRUE: &str = "true";

/// The ObjectBucket that holds `record`.
pub(crate) fn to_object(record: &Record, name: &str, provisioner: &str) -> ObjectBucket {
    let Record { claim, class_name, reclaim_policy, plan: Plan { bucket, endpoint, .. }, .. } = record;
    ObjectBucket {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(
                [
                    (wire::PROVISIONER_LABEL.to_owned(), wire::provisioner_label(provisioner)),
                    (wire::BUCKET_LABEL.to_owned(), wire::bucket_label(bucket)),
                ]
                .into(),
            ),
            // So that nobody deletes the record by hand while bucket or user exist.
            finalizers: Some(vec![wire::FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: ObjectBucketSpec {
            storage_class_name: Some(class_name.clone()),
            reclaim_policy: Some(reclaim_policy.as_str().to_owned()),
            claim_ref: Some(reference(claim)),
            endpoint: Some(BucketEndpoint {
                bucket_host: Some(endpoint.host.clone()),
                bucket_port: Some(i32::from(endpoint.port)),
                bucket_name: Some(bucket.clone()),
                region: Some(endpoint.region.clone()),
                sub_region: None,
                additional_config: None,
            }),
            additional_state: Some(additional_state(record, provisioner)),
        },
        status: None,
    }
}

/// Everything that has no other field in an ObjectBucket.
fn additional_state(record: &Record, provisioner: &str) -> BTreeMap<String, String> {
    // Without `..`, because a field that is not recorded is missing when the claim is deleted.
    let Record {
        claim,
        former_uids,
        cluster,
        account,
        claim_created_at,
        class_name: _,
        reclaim_policy: _,
        credentials_published,
        previous_access,
        plan,
    } = record;
    let Plan {
        bucket: _,
        mode,
        endpoint,
        owner,
        user,
        service_account,
        rotation,
        on_delete,
        name_suffix,
        access,
        settings,
        shared_from,
        changes,
        state,
        outputs,
    } = plan;
    let OwnerRef { secret: owner_secret, role: owner_role } = owner;
    let Endpoint { host: _, port: _, region: _, url } = endpoint;

    let mut recorded = state.clone();
    recorded.extend(outputs.iter().map(|(key, value)| (format!("{}{key}", wire::state::OUTPUT), value.clone())));
    recorded.extend(settings.recorded());
    let mut set = |key: &str, value: &str| recorded.insert(key.to_owned(), value.to_owned());
    set(wire::state::PROVISIONER, provisioner);
    set(wire::state::CLAIM_NAMESPACE, &claim.namespace);
    set(wire::state::CLAIM_NAME, &claim.name);
    set(wire::state::CLAIM_UID, &claim.uid);
    set(wire::state::MODE, mode.as_str());
    if !former_uids.is_empty() {
        set(wire::state::FORMER_CLAIM_UIDS, &former_uids.join(","));
    }
    if let Some(cluster) = cluster {
        set(wire::state::CLUSTER_UID, cluster);
    }
    if let Some(account) = account {
        set(wire::state::ACCOUNT_ID, account);
    }
    if let Some(at) = claim_created_at.and_then(|at| Timestamp::try_from(at).ok()) {
        set(wire::state::CLAIM_CREATED_AT, &release::text(at));
    }
    // Also the default: that it is missing must not mean that everything may be deleted.
    if *mode == Mode::Created {
        set(wire::state::ON_DELETE, &on_delete.to_string());
    }
    if !name_suffix.is_empty() {
        set(wire::state::NAME_SUFFIX, name_suffix);
    }
    if let Some(changes) = changes.recorded() {
        set(wire::state::CHANGES, &changes);
    }
    if *credentials_published {
        set(wire::state::HANDED_OVER, TRUE);
    }
    if let Some(previous) = previous_access::recorded(previous_access) {
        set(wire::state::PREVIOUS_ACCESS, &previous);
    }
    if let Some(user) = user {
        set(wire::state::USER_NAME, user);
    }
    if let Some(url) = url {
        set(wire::state::ENDPOINT_URL, url);
    }
    let service_account = ServiceAccount::recorded(service_account.as_ref());
    let creator = creator(shared_from.as_ref());
    for (key, value) in rotation.recorded().chain(access.recorded()).chain(creator).chain(service_account) {
        set(key, &value);
    }
    if let Some(secret) = owner_secret {
        set(wire::state::SECRET_NAMESPACE, &secret.namespace);
        set(wire::state::SECRET_NAME, &secret.name);
    }
    if let Some(RoleRef { name, external_id }) = owner_role {
        set(wire::state::OWNER_ROLE, name);
        if let Some(id) = external_id {
            set(wire::state::OWNER_ROLE_EXTERNAL_ID, id);
        }
    }
    recorded
}

/// What is recorded of the claim whose bucket is shared.
fn creator(from: Option<&SharedFrom>) -> impl Iterator<Item = (&'static str, String)> {
    let entries = |SharedFrom { name, uids }: &SharedFrom| {
        [(wire::state::BUCKET_CLAIM_NAME, name.clone()), (wire::state::BUCKET_CLAIM_UIDS, uids.join(","))]
    };
    from.map(entries).into_iter().flatten()
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

/// Who wrote a record, by the fields that are there, never by missing ones. `None` if it is unknown.
fn author(object: &ObjectBucket) -> Option<Author> {
    let has = |key: &str| record::state(object, key).is_some();
    let ours =
        [wire::state::CLAIM_UID, wire::state::CLAIM_NAMESPACE, wire::state::CLAIM_NAME, wire::state::CLUSTER_UID];
    match () {
        () if has(wire::state::MODE) => Some(Author::Us),
        // The Go provisioner always wrote this key, also empty.
        () if has(wire::state::GO_POLICY_ARN) => Some(Author::GoProvisioner),
        () if ours.into_iter().any(has) => Some(Author::Us),
        () => None,
    }
}

/// An ObjectBucket, as far as it can be read.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) author: Author,
    pub(crate) record: Record,
    pub(crate) release: Option<Release>,
}

/// Decodes a record.
///
/// # Errors
/// A field that is missing or invalid; the text names it.
pub(crate) fn from_object(object: &ObjectBucket) -> Result<Decoded, String> {
    let spec = &object.spec;
    let author = author(object).ok_or_else(|| missing("spec.additionalState"))?;
    let mut state = State::read(object);
    let release = Release::read(&mut state.0)?;
    // The ARN of the Go provisioner's policy contains the account.
    let go_account = state.0.get(wire::state::GO_POLICY_ARN).and_then(|arn| arn.split(':').nth(4)).map(str::to_owned);
    state.take(wire::state::PROVISIONER);
    let (claim, mode) = claim_and_mode(object, author, &mut state)?;
    let former_uids = state.list(wire::state::FORMER_CLAIM_UIDS);
    let record = Record {
        claim,
        former_uids,
        cluster: state.take(wire::state::CLUSTER_UID),
        account: state.take(wire::state::ACCOUNT_ID).or(go_account),
        claim_created_at: state.time(wire::state::CLAIM_CREATED_AT)?,
        credentials_published: release::flag(wire::state::HANDED_OVER, state.take(wire::state::HANDED_OVER))?,
        class_name: spec.storage_class_name.clone().ok_or_else(|| missing("spec.storageClassName"))?,
        reclaim_policy: match spec.reclaim_policy.as_deref() {
            Some("Delete") => ReclaimPolicy::Delete,
            Some("Retain") => ReclaimPolicy::Retain,
            Some(other) => return Err(format!("spec.reclaimPolicy is {other:?}, neither Delete nor Retain")),
            None => return Err(missing("spec.reclaimPolicy")),
        },
        previous_access: match state.take(wire::state::PREVIOUS_ACCESS) {
            Some(text) => previous_access::read_recorded(&text).map_err(|why| {
                format!("spec.additionalState.{} cannot be read: {why}", wire::state::PREVIOUS_ACCESS)
            })?,
            None => Vec::new(),
        },
        plan: plan(object, mode, state)?,
    };
    same_bucket(object, &record.plan.bucket)?;
    Ok(Decoded { author, record, release })
}

/// The label names the bucket that the operator has recorded. If the name was edited, it is unknown which of both is
/// the claim's.
fn same_bucket(object: &ObjectBucket, bucket: &str) -> Result<(), String> {
    match record::bucket_label(object) {
        Some(label) if label != wire::bucket_label(bucket) => {
            Err(format!("spec.endpoint.bucketName is {bucket:?}, but label {} is {label:?}", wire::BUCKET_LABEL))
        }
        _ => Ok(()),
    }
}

fn missing(field: &str) -> String {
    format!("{field} is missing")
}

/// The entries of `additionalState` that were not read yet.
struct State(BTreeMap<String, String>);

impl State {
    fn read(object: &ObjectBucket) -> Self {
        let mut entries = object.spec.additional_state.clone().unwrap_or_default();
        // The Go library writes missing values as empty strings.
        entries.retain(|_, value| !value.is_empty());
        Self(entries)
    }

    fn take(&mut self, key: &str) -> Option<String> {
        self.0.remove(key)
    }

    /// The entries whose keys begin with `prefix`, without it.
    fn take_all(&mut self, prefix: &str) -> BTreeMap<String, String> {
        let mut taken = BTreeMap::new();
        for (key, value) in std::mem::take(&mut self.0) {
            match key.strip_prefix(prefix) {
                Some(rest) => taken.insert(rest.to_owned(), value),
                None => self.0.insert(key, value),
            };
        }
        taken
    }

    fn list(&mut self, key: &str) -> Vec<String> {
        self.take(key).map(|text| text.split(',').map(str::to_owned).collect()).unwrap_or_default()
    }

    fn required(&mut self, key: &str) -> Result<String, String> {
        self.take(key).ok_or_else(|| missing(&format!("spec.additionalState.{key}")))
    }

    fn time(&mut self, key: &str) -> Result<Option<SystemTime>, String> {
        let Some(value) = self.take(key) else { return Ok(None) };
        match value.parse::<Timestamp>() {
            Ok(at) => Ok(Some(at.into())),
            Err(_) => Err(format!("spec.additionalState.{key} is {value:?}, which is not a time in RFC 3339")),
        }
    }

    fn name(&mut self, key: &str) -> Result<String, String> {
        name_in(&format!("spec.additionalState.{key}"), self.required(key)?)
    }

    fn seconds(&mut self, key: &str) -> Result<Option<Duration>, String> {
        let Some(value) = self.take(key) else { return Ok(None) };
        match value.parse() {
            Ok(seconds) => Ok(Some(Duration::from_secs(seconds))),
            Err(_) => Err(format!("spec.additionalState.{key} is {value:?}, not a number of seconds")),
        }
    }
}

/// The name of an object, as a field gives it.
fn name_in(field: &str, value: String) -> Result<String, String> {
    match object_name(&value) {
        Some(_) => Ok(value),
        None => Err(format!("{field} is {value:?}, which cannot be the name of an object")),
    }
}

/// The claim of the record, and whether its bucket was created for it.
fn claim_and_mode(object: &ObjectBucket, author: Author, state: &mut State) -> Result<(ClaimId, Mode), String> {
    if author == Author::Us {
        let claim = ClaimId {
            namespace: state.name(wire::state::CLAIM_NAMESPACE)?,
            name: state.name(wire::state::CLAIM_NAME)?,
            uid: state.required(wire::state::CLAIM_UID)?,
        };
        return match state.required(wire::state::MODE)?.as_str() {
            "created" => Ok((claim, Mode::Created)),
            "granted" => Ok((claim, Mode::Granted)),
            other => Err(format!("spec.additionalState.mode is {other:?}, neither created nor granted")),
        };
    }
    let reference = object.spec.claim_ref.clone().unwrap_or_default();
    let mut either = |key: &str, referred: Option<String>, field: &str| {
        state.take(key).or(referred).ok_or_else(|| missing(&format!("spec.claimRef.{field}")))
    };
    let claim = ClaimId {
        namespace: name_in(
            "spec.claimRef.namespace",
            either(wire::state::CLAIM_NAMESPACE, reference.namespace, "namespace")?,
        )?,
        name: name_in("spec.claimRef.name", either(wire::state::CLAIM_NAME, reference.name, "name")?)?,
        uid: either(wire::state::CLAIM_UID, reference.uid, "uid")?,
    };
    Ok((claim, Mode::Granted))
}

/// What an ObjectBucket has recorded of settings, also if the rest cannot be read.
pub(crate) fn settings(object: &ObjectBucket) -> Settings {
    Settings::read_recorded(&mut State::read(object), State::take_all, State::take)
}

/// The plan. The provisioner's own entries are what is left of `state`.
fn plan(object: &ObjectBucket, mode: Mode, mut state: State) -> Result<Plan, String> {
    let user = state.take(wire::state::USER_NAME);
    let url = state.take(wire::state::ENDPOINT_URL);
    let secret = match (state.take(wire::state::SECRET_NAMESPACE), state.take(wire::state::SECRET_NAME)) {
        (Some(namespace), Some(name)) => Some(SecretRef {
            namespace: name_in("spec.additionalState.secretNamespace", namespace)?,
            name: name_in("spec.additionalState.secretName", name)?,
        }),
        (None, None) => None,
        _ => return Err("spec.additionalState has only one of secretName and secretNamespace".to_owned()),
    };
    let external_id = state.take(wire::state::OWNER_ROLE_EXTERNAL_ID);
    let role = state.take(wire::state::OWNER_ROLE).map(|name| RoleRef { name, external_id });
    let rotation = Rotation::read_recorded(|key| state.seconds(key))?;
    let access = Access::read_recorded(|key| state.take(key))?;
    let service_account = ServiceAccount::read_recorded(|key| state.take(key));
    let settings = Settings::read_recorded(&mut state, State::take_all, State::take);
    let changes = state.take(wire::state::CHANGES).map(|words| Changes::of_recorded(&words)).unwrap_or_default();
    let uids = state.list(wire::state::BUCKET_CLAIM_UIDS);
    let shared_from = state.take(wire::state::BUCKET_CLAIM_NAME).map(|name| SharedFrom { name, uids });
    if shared_from.is_some() && mode == Mode::Created {
        let (key, mode) = (wire::state::BUCKET_CLAIM_NAME, wire::state::MODE);
        return Err(format!("spec.additionalState has {key}, and {mode} is \"created\""));
    }
    let on_delete = match state.take(wire::state::ON_DELETE) {
        // Earlier versions recorded neither.
        None if mode == Mode::Created && record::state(object, wire::state::CLAIM_CREATED_AT).is_some() => {
            return Err(missing(&format!("spec.additionalState.{}", wire::state::ON_DELETE)));
        }
        None => OnDelete::default(),
        Some(value) => value.parse().map_err(|problem| {
            format!("spec.additionalState.{} is {value:?}, which {problem}", wire::state::ON_DELETE)
        })?,
    };
    let endpoint = object.spec.endpoint.as_ref().ok_or_else(|| missing("spec.endpoint"))?;
    let port = endpoint.bucket_port.ok_or_else(|| missing("spec.endpoint.bucketPort"))?;
    Ok(Plan {
        bucket: endpoint.bucket_name.clone().ok_or_else(|| missing("spec.endpoint.bucketName"))?,
        mode,
        endpoint: Endpoint {
            host: endpoint.bucket_host.clone().ok_or_else(|| missing("spec.endpoint.bucketHost"))?,
            port: u16::try_from(port).map_err(|_| format!("spec.endpoint.bucketPort is {port}, not a TCP port"))?,
            region: endpoint.region.clone().ok_or_else(|| missing("spec.endpoint.region"))?,
            url,
        },
        owner: OwnerRef { secret, role },
        user,
        service_account,
        rotation,
        on_delete,
        name_suffix: state.take(wire::state::NAME_SUFFIX).unwrap_or_default(),
        access,
        settings,
        shared_from,
        changes,
        outputs: outputs(&mut state),
        state: state.0,
    })
}

/// What the store adds to the ConfigMap, without what it cannot add: somebody edited the record. Such an entry would give
/// the claim's apps other keys, or could not be written.
fn outputs(state: &mut State) -> BTreeMap<String, String> {
    let mut outputs = state.take_all(wire::state::OUTPUT);
    outputs.retain(|key, _| store_outputs::bad_key(key).is_none());
    outputs
}

/// Decodes an ObjectBucket from the cluster or from the cache.
///
/// # Errors
/// [`Error::RecordUnreadable`] names the field that is missing or invalid.
pub(crate) fn read(object: &ObjectBucket) -> Result<Stored, Error> {
    let name = object.metadata.name.clone().unwrap_or_default();
    let Decoded { author, record, release } =
        from_object(object).map_err(|error| Error::RecordUnreadable { name: name.clone(), error })?;
    Ok(Stored {
        name,
        uid: object.metadata.uid.clone(),
        resource_version: object.metadata.resource_version.clone(),
        author,
        record,
        status_is_bound: record::status_is_bound(object),
        claim_was_bound: false,
        action: action::action(object).ok().flatten(),
        release,
        created: object.metadata.creation_timestamp.as_ref().map(|created| created.0),
        deleted: object.metadata.deletion_timestamp.is_some(),
        claim_ref: record::has_claim_ref(object),
        labelled: record::bucket_label(object).is_some(),
    })
}

/// A damaged ObjectBucket, with the record that it contained before.
pub(crate) fn stored(object: &ObjectBucket, record: Record) -> Stored {
    Stored {
        name: record::name(object),
        uid: object.metadata.uid.clone(),
        resource_version: object.metadata.resource_version.clone(),
        author: Author::Us,
        record,
        status_is_bound: record::status_is_bound(object),
        claim_was_bound: true,
        action: None,
        release: None,
        created: object.metadata.creation_timestamp.as_ref().map(|created| created.0),
        deleted: object.metadata.deletion_timestamp.is_some(),
        claim_ref: record::has_claim_ref(object),
        labelled: record::bucket_label(object).is_some(),
    }
}

/// The same object with a reference to this claim.
pub(crate) fn naming(object: &ObjectBucket, claim: &ClaimId) -> ObjectBucket {
    let mut object = object.clone();
    object.spec.claim_ref = Some(reference(claim));
    object
}

/// The merge patch that writes why an ObjectBucket outlives its claim; `None`: it has its claim again.
pub(crate) fn release(stored: &Stored, release: Option<&Release>) -> Value {
    let mut state = Release::write(release);
    // The status changes with the release, and no longer shows this.
    if stored.by_us() && stored.published() {
        state[wire::state::HANDED_OVER] = json!(TRUE);
    }
    json!({ "metadata": { "uid": stored.uid }, "spec": { "additionalState": state } })
}

/// The merge patch from `stored` to `record`: of what differs in `spec.additionalState`, with what some CRDs prune. Bucket,
/// endpoint and reclaimPolicy cannot change.
pub(crate) fn change(stored: &Stored, record: &Record) -> Value {
    let Record { claim, cluster, account, credentials_published, .. } = record;
    let mut state = json!({
        wire::state::CLUSTER_UID: cluster,
        wire::state::ACCOUNT_ID: account,
        wire::state::HANDED_OVER: credentials_published.then_some(TRUE),
    });
    let (before, now) = (additional_state(&stored.record, ""), additional_state(record, ""));
    for key in before.keys().chain(now.keys()).filter(|key| before.get(*key) != now.get(*key)) {
        state[key.as_str()] = json!(now.get(key));
    }
    let mut spec = json!({ "claimRef": reference(claim), "additionalState": state });
    if record.class_name != stored.record.class_name {
        spec["storageClassName"] = json!(record.class_name);
    }
    json!({ "metadata": { "uid": stored.uid }, "spec": spec })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use super::*;
    use crate::decide::release::{Retained, Schedule};
    use crate::store::{AccessMode, MaySet, PreviousAccess};

    fn settings() -> Settings {
        let mut settings = Settings::default();
        settings.of_class.insert("tags".into(), "team=a,env=b".into());
        settings.of_claim.insert("tags.owner".into(), "c".into());
        settings.released.insert("expireAfter".into());
        settings.claims_may_set = MaySet::of(["tags.*"]);
        settings
    }

    fn whole() -> Record {
        Record {
            claim: ClaimId { namespace: "shop".into(), name: "photos".into(), uid: "f30e0389".into() },
            former_uids: vec!["00000000".into(), "11111111".into()],
            cluster: Some("22222222".into()),
            account: Some("123456789012".into()),
            claim_created_at: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)),
            credentials_published: true,
            class_name: "s3-buckets".into(),
            reclaim_policy: ReclaimPolicy::Retain,
            previous_access: vec![PreviousAccess::of(
                &crate::decide::testing::record(),
                &crate::decide::testing::record().plan,
            )],
            plan: Plan {
                bucket: "photos-f30e0389".into(),
                mode: Mode::Created,
                endpoint: Endpoint {
                    host: "store.example.com".into(),
                    port: 9000,
                    region: "us-west-1".into(),
                    url: Some("http://store.example.com:9000".into()),
                },
                owner: OwnerRef {
                    secret: Some(SecretRef { namespace: "infra".into(), name: "owner".into() }),
                    role: Some(RoleRef::new("arn:aws:iam::123456789012:role/buckets").with_external_id("id")),
                },
                user: Some("shop-photos-f30e0389".into()),
                service_account: Some(ServiceAccount::new("web").with_audience("store.example.com")),
                rotation: Rotation { every: Some(Duration::from_secs(30 * 86400)), grace: Duration::from_secs(3600) },
                on_delete: OnDelete::After(Duration::from_secs(7 * 86400)),
                name_suffix: "-f30e0389".into(),
                access: Access { mode: AccessMode::ReadOnly, most: AccessMode::ReadOnly, prefix: Some("shop/".into()) },
                settings: settings(),
                shared_from: None,
                changes: Changes::ACCESS,
                state: [("iamPath".to_owned(), "/buckets/".to_owned())].into(),
                // Also the name of a key that the library records.
                outputs: [("mode".to_owned(), "s3v4".to_owned())].into(),
            },
        }
    }

    fn decoded(object: &ObjectBucket) -> (Author, Record) {
        let Decoded { author, record, release } = from_object(object).unwrap();
        assert_eq!(release, None);
        (author, record)
    }

    fn sharing() -> Record {
        let mut record = whole();
        record.plan.mode = Mode::Granted;
        record.plan.on_delete = OnDelete::Purge;
        record.plan.shared_from = Some(SharedFrom::new("loader", ["33333333".to_owned(), "44444444".to_owned()]));
        record
    }

    #[test]
    fn a_shared_bucket_was_not_created_for_the_claim() {
        let mut object = to_object(&sharing(), "obc-shop-photos", "label");
        object.spec.additional_state.as_mut().unwrap().insert(wire::state::MODE.into(), "created".into());
        let problem = from_object(&object).unwrap_err();
        assert_eq!(problem, "spec.additionalState has bucketClaimName, and mode is \"created\"");
    }

    #[test]
    fn access_that_replaces_another_is_written_whole() {
        let stored = Stored { record: whole(), ..crate::decide::testing::stored() };
        let mut moved = whole();
        moved.class_name = "keyless".into();
        moved.plan.owner = OwnerRef::default();
        moved.plan.user = Some("role".into());
        moved.plan.service_account = None;
        moved.plan.state = [("provider".to_owned(), "here".to_owned())].into();
        moved.plan.outputs = [("ROLE".to_owned(), "role".to_owned())].into();
        moved.previous_access.clear();
        let patch = change(&stored, &moved);
        let mut object = serde_json::to_value(to_object(&stored.record, "obc-shop-photos", "label")).unwrap();
        let entries = patch["spec"]["additionalState"].as_object().unwrap();
        for (key, value) in entries {
            let state = object["spec"]["additionalState"].as_object_mut().unwrap();
            match value.is_null() {
                true => drop(state.remove(key)),
                false => drop(state.insert(key.clone(), value.clone())),
            }
        }
        object["spec"]["storageClassName"] = patch["spec"]["storageClassName"].clone();
        assert_eq!(object, serde_json::to_value(to_object(&moved, "obc-shop-photos", "label")).unwrap());
    }

    #[test]
    fn a_record_is_read_back_as_it_was_written() {
        let mut bare = whole();
        bare.former_uids.clear();
        (bare.cluster, bare.account, bare.claim_created_at, bare.credentials_published) = (None, None, None, false);
        bare.plan.on_delete = OnDelete::Purge;
        bare.plan.endpoint.url = None;
        bare.plan.owner = OwnerRef::default();
        bare.plan.user = None;
        bare.plan.rotation = Rotation::default();
        bare.plan.mode = Mode::Granted;
        bare.plan.outputs.clear();
        (bare.plan.settings, bare.plan.changes) = (Settings::default(), Changes::default());
        for record in [whole(), sharing(), bare] {
            let object = to_object(&record, "obc-shop-photos", "label");
            let wire = serde_json::to_value(&object).unwrap();
            let object: ObjectBucket = serde_json::from_value(wire).unwrap();
            assert_eq!(decoded(&object), (Author::Us, record));
        }
    }

    #[test]
    fn what_the_library_records_has_keys_that_a_store_cannot_use() {
        let state = |record: &Record| to_object(record, "obc-shop-photos", "label").spec.additional_state.unwrap();
        let state: BTreeMap<_, _> = state(&whole()).into_iter().chain(state(&sharing())).collect();
        let is_family = |key: &str| wire::state::FAMILIES.into_iter().any(|family| key.starts_with(family));
        let ours = state.into_keys().filter(|key| key != "iamPath" && !is_family(key));
        let schedule = Schedule { at: Timestamp::UNIX_EPOCH, namespace_uid: Some("ns".into()) };
        let released = Release { at: Timestamp::UNIX_EPOCH, why: Retained::Scheduled(schedule), deleting: true };
        let Value::Object(released) = Release::write(Some(&released)) else { unreachable!() };
        let all = [wire::state::GO_POLICY_ARN.to_owned()]
            .into_iter()
            .chain(ours)
            .chain(released.into_iter().map(|(key, _)| key));
        assert_eq!(all.collect::<BTreeSet<_>>(), wire::state::ALL.map(str::to_owned).into());
    }

    #[test]
    fn a_bucket_name_that_the_label_contradicts_is_damage() {
        let mut object = to_object(&whole(), "obc-shop-photos", "label");
        object.spec.endpoint.as_mut().unwrap().bucket_name = Some("company-archive".into());
        let problem = from_object(&object).unwrap_err();
        assert_eq!(
            problem,
            "spec.endpoint.bucketName is \"company-archive\", but label objectbucket.io/bucket is \"photos-f30e0389\""
        );
        object.metadata.labels.as_mut().unwrap().remove(wire::BUCKET_LABEL);
        assert!(from_object(&object).is_ok(), "those of earlier versions have no label");
    }

    #[test]
    fn a_deleted_claims_bucket_shows_until_when_it_is_kept() {
        let mut object = to_object(&whole(), "obc-shop-photos", "label");
        let schedule = Schedule { at: Timestamp::from_second(1_800_000_000).unwrap(), namespace_uid: None };
        let released = Release { at: Timestamp::UNIX_EPOCH, why: Retained::Scheduled(schedule), deleting: false };
        let patch = release(&read(&object).unwrap(), Some(&released));
        let written = patch["spec"]["additionalState"].as_object().unwrap().clone();
        assert_eq!(written["deleteAt"], "2027-01-15T08:00:00Z");
        let entries = written.into_iter().filter_map(|(key, value)| Some((key, value.as_str()?.to_owned())));
        object.spec.additional_state.as_mut().unwrap().extend(entries);
        assert_eq!(read(&object).unwrap().release, Some(released));
    }

    #[test]
    fn foreign_entries_of_the_config_map_are_not_read() {
        let mut object = to_object(&whole(), "obc-shop-photos", "label");
        let state = object.spec.additional_state.as_mut().unwrap();
        for key in ["AWS_ACCESS_KEY_ID", "AWS_REGION", "AWS_ENDPOINT_URL_S3", "a b", "..", ""] {
            state.insert(format!("output.{key}"), "edited".to_owned());
        }
        assert_eq!(decoded(&object), (Author::Us, whole()));
    }

    #[test]
    fn a_record_survives_a_crd_that_prunes_its_claim_reference() {
        let mut object = to_object(&whole(), "obc-shop-photos", "label");
        object.spec.claim_ref = Some(ClaimReference::default());
        assert_eq!(record::claim_uid(&object), Some("f30e0389"));
        assert_eq!(record::claim_name(&object), Some(("shop", "photos")));
        assert_eq!(decoded(&object), (Author::Us, whole()));
    }

    #[test]
    fn a_record_that_lacks_something_names_it() {
        let mut object = to_object(&whole(), "obc-shop-photos", "label");
        object.spec.additional_state.as_mut().unwrap().remove("mode");
        assert_eq!(from_object(&object).unwrap_err(), "spec.additionalState.mode is missing");
    }

    #[test]
    fn no_empty_string_is_written_because_some_crds_refuse_it() {
        let object = serde_json::to_string(&to_object(&whole(), "obc-shop-photos", "label")).unwrap();
        assert!(!object.contains("\"\""), "{object}");
    }
}
