//! AWS, and what replaces it, as a backend of the conformance kit.

use std::collections::BTreeMap;
use std::sync::Arc;

use provisioner_conformance::proxy::Upstream;
use provisioner_conformance::{Ability, Backend, Bucket, Inventory, Outputs, Program, User};
use serde_json::json;

use super::account::Account;
use super::aws_proxy::{Aws, Strictness};
use super::operator::operator;
use super::pods::Pods;
use super::{REGION, Store};

/// The EKS cluster and the role of its pods.
pub(crate) const PODS: &str = "crash-pods";

pub(crate) struct AwsBackend {
    store: Store,
    aws: Arc<Aws>,
    account: Account,
    /// The inventory has all settings of buckets and the policies of users, which takes a dozen calls for each.
    shows_settings: bool,
    /// The inventory has the roles of ServiceAccounts.
    shows_roles: bool,
}

impl AwsBackend {
    /// This store, as strict and as slow as AWS where configured.
    pub(crate) fn at(store: Store, strictness: Option<Strictness>) -> Self {
        let aws = Arc::new(Aws::at(&store.url));
        if let Some(strictness) = strictness {
            aws.strict(strictness);
        }
        Self { account: Account::owner_of(&store), store, aws, shows_settings: false, shows_roles: false }
    }

    /// The same with all settings in its inventory.
    pub(crate) fn with_settings(self) -> Self {
        Self { shows_settings: true, ..self }
    }
}

impl AwsBackend {
    /// The same with the roles of ServiceAccounts in its inventory, as users without keys.
    pub(crate) fn with_roles(self) -> Self {
        Self { shows_roles: true, ..self }
    }

    async fn app(&self, outputs: &Outputs) -> Result<Account, String> {
        match (outputs.get("AWS_ROLE_ARN"), outputs.get("AWS_WEB_IDENTITY_TOKEN")) {
            (None, Some(token)) => {
                let pod = Pods::named(PODS).pod_with(&self.account, token).await;
                pod.ok_or_else(|| "there is no association".to_owned())
            }
            (Some(role), Some(token)) => Account::with_token(&self.store, &self.store.url, (role, token)).await,
            _ => Ok(Account::of(&self.store, outputs)),
        }
    }
}

impl Backend for AwsBackend {
    fn abilities(&self) -> Vec<Ability> {
        use Ability::{
            Apps, Brownfield, Greenfield, Http, Inventory, Owner, Persistence, Rotation, SharedBuckets, Tags,
        };
        vec![Greenfield, Brownfield, SharedBuckets, Tags, Rotation, Persistence, Inventory, Apps, Http, Owner]
    }

    fn program(&self) -> Program {
        operator()
    }

    fn upstream(&self) -> Option<Arc<dyn Upstream>> {
        Some(self.aws.clone())
    }

    fn parameters(&self, url: Option<&str>) -> BTreeMap<String, String> {
        let url = url.unwrap();
        let parameters = [("region", REGION), ("s3Endpoint", url), ("iamEndpoint", url)];
        parameters.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    fn owner(&self) -> BTreeMap<String, String> {
        let Store { key, secret, .. } = &self.store;
        [("AWS_ACCESS_KEY_ID", key), ("AWS_SECRET_ACCESS_KEY", secret)]
            .map(|(name, value)| (name.to_owned(), value.clone()))
            .into()
    }

    async fn inventory(&self, id: &str) -> Inventory {
        let mut found = self.account.inventory(id).await;
        if self.shows_roles {
            found.users.extend(self.account.roles_with(id).await);
            let associations = Pods::named(PODS).associations_with(&self.account, id).await;
            let as_user = |(name, settings)| (name, User { keys: Vec::new(), settings });
            found.users.extend(associations.into_iter().map(as_user));
        }
        if self.shows_settings {
            for (name, bucket) in &mut found.buckets {
                bucket.settings = self.account.settings(name).await;
            }
            for (name, user) in found.users.iter_mut().filter(|(name, _)| !name.starts_with("policy ")) {
                user.settings = format!("{}, {:?}", user.settings, self.account.policies(name).await);
            }
        }
        found
    }

    async fn remove(&self, what: &Inventory) {
        self.account.remove(what).await;
    }

    async fn create_bucket(&self, name: &str) {
        self.account.create_bucket(name).await;
        self.account.put(name, "theirs").await.unwrap();
    }

    async fn plant(&self, name: &str) {
        self.account.plant(name).await;
    }

    async fn create_user(&self, name: &str) -> bool {
        self.account.create_user(name).await;
        true
    }

    async fn remove_marks(&self, user: &str) -> bool {
        let iam = &self.account.iam;
        let tags = iam.list_user_tags().user_name(user).send().await.unwrap().tags;
        let keys = tags.into_iter().map(|tag| tag.key).collect();
        iam.untag_user().user_name(user).set_tag_keys(Some(keys)).send().await.unwrap();
        true
    }

    /// Emulators need not know the call.
    async fn rename_user(&self, user: &str, to: &str) -> bool {
        self.account.iam.update_user().user_name(user).new_user_name(to).send().await.is_ok()
    }

    async fn put(&self, app: &Outputs, object: &str) -> Result<(), String> {
        self.app(app).await?.put(&app["BUCKET_NAME"], object).await
    }

    async fn list(&self, app: &Outputs) -> Result<Vec<String>, String> {
        self.app(app).await?.list(&app["BUCKET_NAME"]).await
    }
}

impl Account {
    /// All buckets and users with `id` in their names, with all that an operator could change about them.
    pub(crate) async fn inventory(&self, id: &str) -> Inventory {
        let mut found = Inventory::default();
        for bucket in self.buckets_with(id).await {
            // A bucket without tags is an error.
            let tags = self.s3.get_bucket_tagging().bucket(&bucket).send().await;
            let settings = format!("tags {:?}", tags.map(|tags| tags.tag_set).unwrap_or_default());
            let objects = self.list(&bucket).await.unwrap();
            found.buckets.insert(bucket, Bucket { objects, settings });
        }
        for user in self.users_with(id).await {
            let tags = self.iam.list_user_tags().user_name(&user).send().await.unwrap().tags;
            let policies = self.iam.list_user_policies().user_name(&user).send().await.unwrap().policy_names;
            let settings = format!("policies {policies:?}, tags {tags:?}");
            let keys = self.keys(&user).await;
            found.users.insert(user, User { keys, settings });
        }
        // None should be made; one that is counts as a user.
        let policies = self.iam.list_policies().send().await.unwrap();
        let names = policies.policies().iter().filter_map(|policy| policy.policy_name());
        let names = names.filter(|name| name.contains(id)).map(|name| (format!("policy {name}"), User::default()));
        found.users.extend(names);
        found
    }

    /// The roles with `id` in their names.
    async fn roles_with(&self, id: &str) -> BTreeMap<String, User> {
        let iam = &self.iam;
        let mut found = BTreeMap::new();
        let roles: Vec<_> = iam.list_roles().into_paginator().items().send().try_collect().await.unwrap();
        for role in roles.into_iter().filter(|role| role.role_name.contains(id)) {
            let policies = iam.list_role_policies().role_name(&role.role_name).send().await.unwrap().policy_names;
            let tags = iam.list_role_tags().role_name(&role.role_name).send().await.unwrap().tags;
            let settings = format!("policies {policies:?}, tags {tags:?}, {:?}", role.assume_role_policy_document);
            found.insert(role.role_name, User { keys: Vec::new(), settings });
        }
        found
    }

    /// Removes buckets with their objects and users with their keys, if they are there.
    pub(crate) async fn remove(&self, what: &Inventory) {
        let Self { s3, iam, .. } = self;
        for bucket in what.buckets.keys() {
            for key in self.list(bucket).await.unwrap_or_default() {
                s3.delete_object().bucket(bucket).key(key).send().await.unwrap();
            }
            let _ = s3.delete_bucket().bucket(bucket).send().await;
        }
        for user in what.users.keys() {
            if Pods::named(PODS).delete(self, user).await {
                continue;
            }
            if let Ok(policies) = iam.list_role_policies().role_name(user).send().await {
                for policy in policies.policy_names {
                    iam.delete_role_policy().role_name(user).policy_name(policy).send().await.unwrap();
                }
                iam.delete_role().role_name(user).send().await.unwrap();
                continue;
            }
            for key in self.keys(user).await {
                iam.delete_access_key().user_name(user).access_key_id(key).send().await.unwrap();
            }
            for policy in iam.list_user_policies().user_name(user).send().await.unwrap().policy_names {
                iam.delete_user_policy().user_name(user).policy_name(policy).send().await.unwrap();
            }
            iam.delete_user().user_name(user).send().await.unwrap();
        }
    }

    /// Tags a bucket and creates a user as another user of the same account would.
    pub(crate) async fn plant(&self, name: &str) {
        let s3 = &self.s3;
        let tag = aws_sdk_s3::types::Tag::builder().key("team").value("theirs").build().unwrap();
        let tagging = aws_sdk_s3::types::Tagging::builder().tag_set(tag).build().unwrap();
        s3.put_bucket_tagging().bucket(name).tagging(tagging).send().await.unwrap();
        self.create_user(name).await;
    }

    /// Makes a user with a key as somebody else would who has the same account.
    pub(crate) async fn create_user(&self, name: &str) {
        let iam = &self.iam;
        let tag = aws_sdk_iam::types::Tag::builder().key("team").value("theirs").build().unwrap();
        iam.create_user().user_name(name).tags(tag).send().await.unwrap();
        iam.create_access_key().user_name(name).send().await.unwrap();
        let document = json!({ "Version": "2012-10-17", "Statement": [{
            "Effect": "Allow", "Action": "s3:*", "Resource": "*",
        }]});
        let put = iam.put_user_policy().user_name(name).policy_name("theirs");
        put.policy_document(document.to_string()).send().await.unwrap();
    }
}
