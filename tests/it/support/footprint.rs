//! All that a world has in the cluster and in AWS, to be compared with what it had.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use kube::{Api, Resource, ResourceExt as _};
use serde_json::json;

use super::World;
use super::account::Account;

/// What there is, by name, and in which state: for objects of Kubernetes their version, for buckets their
/// tags and content, for users all that hangs on them.
pub(crate) type Footprint = BTreeMap<String, String>;

impl World {
    /// Everything with the world's id in its name, and everything in its namespace.
    pub(crate) async fn footprint(&self) -> Footprint {
        let of_world = |name: &str| name.contains(&self.id);
        let mut found = versions(&self.claims(), |_| true).await;
        found.extend(versions(&self.secrets(), |_| true).await);
        found.extend(versions(&self.config_maps(), |_| true).await);
        found.extend(versions(&self.records(), of_world).await);
        found.extend(versions(&Api::<StorageClass>::all(self.client.clone()), of_world).await);
        for bucket in self.account.buckets_with(&self.id).await {
            let state = bucket_state(&self.account, &bucket).await;
            found.insert(format!("bucket {bucket}"), state);
        }
        for user in self.account.users_with(&self.id).await {
            let state = user_state(&self.account, &user).await;
            found.insert(format!("user {user}"), state);
        }
        let policies = self.account.iam.list_policies().send().await.unwrap();
        let policies =
            policies.policies().iter().filter_map(|policy| policy.policy_name()).filter(|name| of_world(name));
        found.extend(policies.map(|name| (format!("policy {name}"), String::new())));
        found
    }

    /// Things of others that look like what the operator makes: a bucket, a user with a key, outputs, a claim of
    /// another provisioner with its record.
    pub(crate) async fn plant_bystanders(&self) {
        let foreign = self.unique("bystander");
        let Account { s3, iam } = &self.account;
        self.account.create_bucket(&foreign).await;
        self.account.put(&foreign, "theirs").await.unwrap();
        let tag = aws_sdk_s3::types::Tag::builder().key("team").value("theirs").build().unwrap();
        let tagging = aws_sdk_s3::types::Tagging::builder().tag_set(tag).build().unwrap();
        s3.put_bucket_tagging().bucket(&foreign).tagging(tagging).send().await.unwrap();
        let tag = aws_sdk_iam::types::Tag::builder().key("team").value("theirs").build().unwrap();
        iam.create_user().user_name(&foreign).tags(tag).send().await.unwrap();
        iam.create_access_key().user_name(&foreign).send().await.unwrap();
        let document = json!({ "Version": "2012-10-17", "Statement": [{
            "Effect": "Allow", "Action": "s3:*", "Resource": "*",
        }]});
        let put = iam.put_user_policy().user_name(&foreign).policy_name("theirs");
        put.policy_document(document.to_string()).send().await.unwrap();

        let metadata = || ObjectMeta { name: Some("bystander".to_owned()), ..ObjectMeta::default() };
        let secret = Secret { metadata: metadata(), ..Secret::default() };
        self.secrets().create(&PostParams::default(), &secret).await.unwrap();
        let config_map = ConfigMap { metadata: metadata(), ..ConfigMap::default() };
        self.config_maps().create(&PostParams::default(), &config_map).await.unwrap();
        self.create_class(json!({
            "metadata": { "name": foreign }, "provisioner": "another.example.com/bucket", "parameters": {},
        }))
        .await;
        self.claim("bystander", &foreign).await;
        let record = json!({
            "metadata": { "name": self.record_name("bystander") },
            "spec": { "storageClassName": foreign },
        });
        self.records().create(&PostParams::default(), &serde_json::from_value(record).unwrap()).await.unwrap();
    }

    /// Removes what other worlds see of this one: all operators list the classes and records of the cluster, and
    /// all footprints the users and buckets of the account.
    pub(crate) async fn clear_away(&self) {
        self.remove(self.footprint().await).await;
    }

    /// Removes this much of a footprint; what goes with its namespace stays.
    pub(crate) async fn remove(&self, footprint: Footprint) {
        let Account { s3, iam } = &self.account;
        for name in footprint.into_keys() {
            let all = DeleteParams::default();
            match name.split_once(' ').unwrap() {
                ("StorageClass", name) => {
                    drop(Api::<StorageClass>::all(self.client.clone()).delete(name, &all).await.unwrap())
                }
                ("ObjectBucket", name) => drop(self.records().delete(name, &all).await.unwrap()),
                ("bucket", name) => {
                    for key in self.account.list(name).await.unwrap() {
                        s3.delete_object().bucket(name).key(key).send().await.unwrap();
                    }
                    s3.delete_bucket().bucket(name).send().await.unwrap();
                }
                ("user", name) => {
                    for key in self.account.keys(name).await {
                        iam.delete_access_key().user_name(name).access_key_id(key).send().await.unwrap();
                    }
                    for policy in iam.list_user_policies().user_name(name).send().await.unwrap().policy_names {
                        iam.delete_user_policy().user_name(name).policy_name(policy).send().await.unwrap();
                    }
                    iam.delete_user().user_name(name).send().await.unwrap();
                }
                _ => {}
            }
        }
    }
}

async fn versions<K>(api: &Api<K>, wanted: impl Fn(&str) -> bool) -> Footprint
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let all = api.list(&ListParams::default()).await.unwrap();
    let mine = all.iter().filter(|object| wanted(&object.name_any()));
    let state = |object: &K| (format!("{} {}", K::kind(&()), object.name_any()), object.resource_version().unwrap());
    mine.map(state).collect()
}

async fn bucket_state(account: &Account, bucket: &str) -> String {
    // A bucket without tags is an error.
    let tags = account.s3.get_bucket_tagging().bucket(bucket).send().await.map(|tags| tags.tag_set).unwrap_or_default();
    format!("holds {:?}, tags {tags:?}", account.list(bucket).await)
}

async fn user_state(account: &Account, user: &str) -> String {
    let tags = account.iam.list_user_tags().user_name(user).send().await.unwrap().tags;
    let policies = account.iam.list_user_policies().user_name(user).send().await.unwrap().policy_names;
    format!("keys {:?}, policies {policies:?}, tags {tags:?}", account.keys(user).await)
}
