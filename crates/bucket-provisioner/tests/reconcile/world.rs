//! A cluster and a store, the operators that serve them, and what must be true of a claim in the end.

use std::collections::BTreeMap;
use std::time::Duration;

use bucket_provisioner::api::wire;
use bucket_provisioner::controller::{self, Options};
use bucket_provisioner::store::AccessMode;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::api_server::ApiServer;
use crate::calls::Calls;
use crate::store::{Bucket, Contents, Store, User};

const PROVISIONER: &str = "example.com/store";
pub const NAMESPACE: &str = "shop";
/// The claim of every test, and so its Secret and its ConfigMap.
pub const CLAIM: &str = "photos";
/// Its ObjectBucket.
pub const RECORD: &str = "obc-shop-photos";
/// The claim whose bucket others share.
pub const CREATOR: &str = "creator";
/// The bucket that existed before, for brownfield classes.
pub const EXISTING: &str = "existing";

/// How long a state may take, however often calls fail: some of the longest waits.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Longer than what follows a state takes: events, and a second check of the store.
const AFTERWARDS: Duration = Duration::from_secs(60);

pub struct World {
    pub api: ApiServer,
    pub store: Store,
    /// Becomes true when the operators end.
    pub shutdown: watch::Sender<bool>,
    /// What there is beside the claim.
    others: Mutex<(BTreeMap<String, Value>, Contents)>,
}

impl World {
    /// Without a claim. The class is the StorageClass without its name and its provisioner.
    pub fn new(class: Value) -> Self {
        let world = Self {
            api: ApiServer::default(),
            store: Store::default(),
            shutdown: watch::Sender::new(false),
            others: Default::default(),
        };
        for name in ["kube-system", NAMESPACE] {
            world.api.create("namespaces", "", json!({ "metadata": { "name": name } }));
        }
        for name in wire::CRDS {
            world.api.create("customresourcedefinitions", "", json!({ "metadata": { "name": name } }));
        }
        let admin = json!({ "metadata": { "name": "admin" }, "data": { "TOKEN": "YWRtaW4=" } });
        world.api.create("secrets", "kube-system", admin);
        let mut class = class;
        class["metadata"]["name"] = json!("class");
        class["provisioner"] = json!(PROVISIONER);
        class["parameters"]["secretName"] = json!("admin");
        class["parameters"]["secretNamespace"] = json!("kube-system");
        world.api.create("storageclasses", "", class);
        {
            let mut contents = world.store.contents.lock();
            let bucket = Bucket { uid: None, objects: vec!["theirs".to_owned()], color: None };
            contents.buckets.insert(EXISTING.to_owned(), bucket);
            let keys = BTreeMap::from([("theirs".to_owned(), tokio::time::Instant::now())]);
            contents
                .users
                .insert("somebody".to_owned(), User { uid: "another".to_owned(), mode: AccessMode::default(), keys });
        }
        world.keep_what_is_there();
        world
    }

    /// What there is now is others', and is to stay as it is.
    fn keep_what_is_there(&self) {
        *self.others.lock() = (self.objects(), self.store.contents.lock().clone());
    }

    /// Another claim of the namespace gets a bucket, if it has none.
    pub async fn bind_creator(&self) {
        if self.claim_named(CREATOR).is_some() {
            return;
        }
        let _operator = self.start(&Calls::default());
        self.submit_named(CREATOR, json!({ "generateBucketName": CREATOR }));
        self.until("bound", |world| world.claim_named(CREATOR).is_some_and(|claim| phase(&claim) == "Bound")).await;
        self.afterwards().await;
        self.keep_what_is_there();
    }

    /// Starts an operator. It ends when what is returned is dropped.
    pub fn start(&self, calls: &Calls) -> JoinSet<()> {
        let options = Options::new(PROVISIONER).with_resync(None);
        let (client, store) = (self.api.client(calls), self.store.for_calls(calls));
        let mut shutdown = self.shutdown.subscribe();
        let shutdown = async move { drop(shutdown.wait_for(|ends| *ends).await) };
        let mut operator = JoinSet::new();
        operator.spawn(controller::run(client, store, options, shutdown));
        operator
    }

    // What users and admins do.

    pub fn submit(&self, spec: Value) {
        self.submit_named(CLAIM, spec);
    }

    pub fn submit_named(&self, claim: &str, spec: Value) {
        let mut spec = spec;
        spec["storageClassName"] = json!("class");
        self.api.create("objectbucketclaims", NAMESPACE, json!({ "metadata": { "name": claim }, "spec": spec }));
    }

    pub fn delete_claim(&self) {
        self.api.delete("objectbucketclaims", NAMESPACE, CLAIM);
    }

    pub fn edit_claim(&self, patch: &Value) {
        self.api.edit("objectbucketclaims", NAMESPACE, CLAIM, patch);
    }

    pub fn edit_config_map(&self, patch: &Value) {
        self.api.edit("configmaps", NAMESPACE, CLAIM, patch);
    }

    pub fn edit_record(&self, patch: &Value) {
        self.api.edit("objectbuckets", "", RECORD, patch);
    }

    pub fn delete_secret(&self) {
        self.api.delete("secrets", NAMESPACE, CLAIM);
    }

    /// An admin's annotation on the ObjectBucket.
    pub fn set_action(&self, action: &str) {
        self.edit_record(&json!({ "metadata": { "annotations": { wire::annotation::ORPHAN: action } } }));
    }

    /// The time at which the bucket is deleted.
    pub fn set_deletion(&self, at: &Timestamp) {
        let at = at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        self.edit_record(&json!({ "spec": { "additionalState": { wire::state::DELETE_AT: at } } }));
    }

    pub fn has_action(&self) -> bool {
        !self.record().unwrap_or_default()["metadata"]["annotations"][wire::annotation::ORPHAN].is_null()
    }

    /// Somebody deletes the claim without the operator.
    pub fn force_out_claim(&self) {
        self.api.delete_by_force("objectbucketclaims", NAMESPACE, CLAIM);
    }

    /// The cluster is lost, and the claim with its objects comes from a backup: with other uids, and without owners and
    /// status.
    pub fn restore_from_backup(&self) {
        let kinds = ["secrets", "configmaps", "objectbuckets", "objectbucketclaims"];
        let of_claim = |kind| if kind == "objectbuckets" { ("", RECORD) } else { (NAMESPACE, CLAIM) };
        let read = |kind| self.api.get(kind, of_claim(kind).0, of_claim(kind).1).expect("a bound claim");
        let backup = kinds.map(|kind| (kind, read(kind)));
        for kind in kinds {
            self.api.delete_by_force(kind, of_claim(kind).0, of_claim(kind).1);
        }
        for (kind, mut object) in backup {
            let metadata = object["metadata"].as_object_mut().expect("metadata");
            metadata
                .retain(|field, _| ["name", "namespace", "labels", "annotations", "finalizers"].contains(&&**field));
            self.api.create(kind, of_claim(kind).0, object);
        }
    }

    /// An app writes something into the claim's bucket.
    pub fn use_bucket(&self) {
        let bucket = self.config_map().expect("a ConfigMap")["data"]["BUCKET_NAME"].clone();
        let mut contents = self.store.contents.lock();
        let objects = &mut contents.buckets.get_mut(bucket.as_str().expect("a name")).expect("a bucket").objects;
        objects.retain(|object| object != "mine");
        objects.push("mine".to_owned());
    }

    // What there is.

    pub fn claim(&self) -> Option<Value> {
        self.claim_named(CLAIM)
    }

    pub fn claim_named(&self, claim: &str) -> Option<Value> {
        self.api.get("objectbucketclaims", NAMESPACE, claim)
    }

    pub fn record(&self) -> Option<Value> {
        self.api.get("objectbuckets", "", RECORD)
    }

    fn class(&self) -> Value {
        self.api.get("storageclasses", "", "class").expect("a class")
    }

    pub fn secret(&self) -> Option<Value> {
        self.api.get("secrets", NAMESPACE, CLAIM)
    }

    pub fn config_map(&self) -> Option<Value> {
        self.api.get("configmaps", NAMESPACE, CLAIM)
    }

    /// Whether a condition of the ObjectBucket has this reason.
    pub fn record_reports(&self, reason: &str) -> bool {
        let record = self.record().unwrap_or_default();
        record["status"]["conditions"].as_array().into_iter().flatten().any(|condition| condition["reason"] == reason)
    }

    pub fn is_bound(&self) -> bool {
        self.claim().is_some_and(|claim| phase(&claim) == "Bound" && ready(&claim)["status"] == "True")
    }

    /// Whether the key in the claim's Secret works.
    pub fn has_working_key(&self) -> bool {
        let contents = self.store.contents.lock();
        self.key().is_some_and(|key| contents.users.values().any(|user| user.has_working(&key)))
    }

    /// Whether the keys of the claim's user only read, and the record shows that this is confirmed.
    pub fn only_reads(&self) -> bool {
        let state = &self.record().unwrap_or_default()["spec"]["additionalState"];
        let uid = self.claim().unwrap_or_default()["metadata"]["uid"].clone();
        let contents = self.store.contents.lock();
        let user = contents.users.values().find(|user| uid == user.uid);
        user.is_some_and(|user| user.mode == AccessMode::ReadOnly)
            && state[wire::state::ACCESS_MODE] == "ReadOnly"
            && state[wire::state::CHANGES].is_null()
    }

    /// Whether the claim's bucket is red, by the record, too.
    pub fn is_red(&self) -> bool {
        let record = self.record().unwrap_or_default();
        let state = &record["spec"]["additionalState"];
        let contents = self.store.contents.lock();
        let mut buckets = contents.buckets.values().filter(|bucket| bucket.uid.is_some());
        buckets.any(|bucket| bucket.color.as_deref() == Some("red"))
            && state[format!("{}color", wire::state::CLAIM_SETTING)] == "red"
            && state[wire::state::CHANGES].is_null()
    }

    /// Whether apps may have used the bucket.
    pub fn is_published(&self) -> bool {
        self.record().unwrap_or_default()["spec"]["additionalState"][wire::state::HANDED_OVER] == "true"
    }

    /// The id of the key in the claim's Secret.
    pub fn key(&self) -> Option<String> {
        let secret: Secret = serde_json::from_value(self.secret()?).expect("a Secret");
        String::from_utf8(secret.data?.remove(wire::secret::ACCESS_KEY_ID)?.0).ok()
    }

    /// All objects but the events, by kind and name.
    fn objects(&self) -> BTreeMap<String, Value> {
        let objects = self.api.objects().into_iter().filter(|(key, _)| key.plural != "events");
        objects.map(|(key, object)| (format!("{} {}", key.plural, key.name), object)).collect()
    }

    /// The kinds and names of the claim's objects. What is others' is as it was.
    pub fn made(&self) -> Vec<String> {
        assert_eq!(self.api.unexpected(), [""; 0], "requests that the API server in memory does not expect");
        let mut objects = self.objects();
        for (name, other) in &self.others.lock().0 {
            assert_eq!(objects.remove(name).as_ref(), Some(other), "{name} is changed");
        }
        objects.into_keys().collect()
    }

    /// The claim's buckets and users. What is others' is as it was, but for what is in their buckets.
    pub fn stored(&self) -> Contents {
        let mut contents = self.store.contents.lock().clone();
        let (_, others) = &*self.others.lock();
        for (name, user) in &others.users {
            assert_eq!(contents.users.remove(name).as_ref(), Some(user), "user {name} is changed");
        }
        for (name, Bucket { uid, objects, color }) in &others.buckets {
            let now = contents.buckets.remove(name).expect("the bucket that existed");
            assert!(now.uid == *uid && now.color == *color && now.objects.starts_with(objects), "{name}: {now:?}");
        }
        contents
    }

    // What must be so.

    /// Waits for a state. Some change with the time alone.
    pub async fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let mut changes = self.api.changes();
        let waiting = async {
            while !is_so(self) {
                let _ = timeout(Duration::from_secs(1), changes.changed()).await;
            }
        };
        let waited = timeout(PATIENCE, waiting).await;
        assert!(waited.is_ok(), "not {what}: {:#?}\n{:#?}", self.objects(), self.store.contents.lock());
    }

    /// Lets what follows a state happen.
    pub async fn afterwards(&self) {
        sleep(AFTERWARDS).await;
    }

    /// Requires one of each for the bound claim, with one key that works.
    pub fn assert_bound(&self) {
        assert!(self.is_bound() && self.has_working_key(), "{:#?}", self.claim());
        let objects =
            ["configmaps photos", "objectbucketclaims photos", "objectbuckets obc-shop-photos", "secrets photos"];
        assert_eq!(self.made(), objects);
        let (claim, record) = (self.claim().unwrap_or_default(), self.record().unwrap_or_default());
        assert_eq!(claim["metadata"]["finalizers"], json!([wire::FINALIZER]));
        assert_eq!(record["spec"]["additionalState"][wire::state::CLAIM_UID], claim["metadata"]["uid"]);
        assert_eq!(record["status"]["phase"], "Bound");
        let bucket = self.config_map().unwrap_or_default()["data"]["BUCKET_NAME"].clone();
        assert_eq!(record["spec"]["endpoint"]["bucketName"], bucket);
        let stored = self.stored();
        let buckets: Vec<_> = stored.buckets.keys().map(String::as_str).collect();
        let wanted = bucket.as_str().filter(|bucket| !self.others.lock().1.buckets.contains_key(*bucket));
        assert_eq!(buckets, wanted.into_iter().collect::<Vec<_>>());
        let keys: Vec<_> = stored.users.values().map(|user| user.keys.keys().collect::<Vec<_>>()).collect();
        assert_eq!(keys, [[&self.key().unwrap_or_default()]], "one user with one key");
    }

    /// Requires that of the claim only these are left: buckets with this content, users, and objects.
    pub fn assert_left(&self, buckets: &[&[&str]], users: usize, objects: &[&str]) {
        assert_eq!(self.made(), objects);
        let stored = self.stored();
        assert_eq!(stored.users.len(), users, "{stored:#?}");
        let contents: Vec<_> = stored.buckets.into_values().map(|bucket| bucket.objects).collect();
        assert_eq!(contents, buckets);
    }

    /// Requires what is true at any time: whatever the store holds for a claim is recorded, and whatever is recorded has
    /// a claim with our finalizer. So any later operator finds it.
    pub fn assert_nothing_forgotten(&self) {
        let (claim, record) = (self.claim().unwrap_or_default(), self.record().unwrap_or_default());
        let stored = self.stored();
        let state = &record["spec"]["additionalState"];
        // The ObjectBucket of a retained bucket is deleted.
        let has_bucket = !stored.buckets.is_empty() && self.class()["reclaimPolicy"] != "Retain";
        if has_bucket || !stored.users.is_empty() {
            assert!(!record.is_null(), "without an ObjectBucket: {stored:#?}");
        }
        if !record.is_null() && state[wire::state::RELEASED_AT].is_null() {
            assert_eq!(claim["metadata"]["uid"], state[wire::state::CLAIM_UID], "an ObjectBucket without its claim");
            assert_eq!(claim["metadata"]["finalizers"], json!([wire::FINALIZER]));
        }
    }
}

/// The condition Ready of a claim; null if it has none.
pub fn ready(claim: &Value) -> &Value {
    let mut conditions = claim["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|condition| condition["type"] == "Ready").unwrap_or(&Value::Null)
}

pub fn phase(claim: &Value) -> &Value {
    &claim["status"]["phase"]
}
