//! An AWS account seen with certain credentials: those of the provisioner, or of an app.

use std::collections::BTreeMap;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_iam::types::StatusType;
use aws_sdk_s3::error::ProvideErrorMetadata as _;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{BucketVersioningStatus, Tag, Tagging, VersioningConfiguration};

pub(crate) struct Account {
    pub(crate) s3: aws_sdk_s3::Client,
    pub(crate) iam: aws_sdk_iam::Client,
    pub(crate) sts: aws_sdk_sts::Client,
    pub(crate) eks: aws_sdk_eks::Client,
}

impl Account {
    /// The provisioning account of the emulated AWS, past every proxy.
    pub(crate) fn owner() -> Self {
        Self::owner_of(&super::Store::aws())
    }

    /// The provisioning account of a store, past every proxy.
    pub(crate) fn owner_of(store: &super::Store) -> Self {
        Self::at(&store.url, super::REGION, &store.key, &store.secret)
    }

    /// Whoever these keys belong to.
    pub(crate) fn at(url: &str, region: &str, access_key_id: &str, secret_access_key: &str) -> Self {
        Self::by(url, region, Credentials::from_keys(access_key_id, secret_access_key, None))
    }

    /// A pod with this token and this role, which it assumes at this endpoint; the error's code if it is refused.
    pub(crate) async fn with_token(
        store: &super::Store,
        sts: &str,
        (role, token): (&str, &str),
    ) -> Result<Self, String> {
        let config = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(super::REGION))
            .endpoint_url(sts)
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .build();
        let assume = aws_sdk_sts::Client::new(&config).assume_role_with_web_identity().role_session_name("pod");
        let answer = assume.role_arn(role).web_identity_token(token).send().await;
        let answer = answer.map_err(|error| error.code().unwrap_or("no code").to_owned())?;
        let keys = answer.credentials.ok_or("no credentials")?;
        let token = Some(keys.session_token);
        let credentials = Credentials::from_keys(keys.access_key_id, keys.secret_access_key, token);
        Ok(Self::by(&store.url, super::REGION, credentials))
    }

    /// A session of this role that this policy limits.
    pub(crate) async fn limited(&self, role: &str, policy: &str) -> Self {
        let assume = self.sts.assume_role().role_arn(role).role_session_name("pod").policy(policy);
        let keys = assume.send().await.unwrap().credentials.unwrap();
        let token = Some(keys.session_token);
        let credentials = Credentials::from_keys(keys.access_key_id, keys.secret_access_key, token);
        Self::by(&super::aws_url(), super::REGION, credentials)
    }

    fn by(url: &str, region: &str, credentials: Credentials) -> Self {
        let config = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(region.to_owned()))
            .endpoint_url(url)
            // Without TLS there are no root certificates to load, which takes longer than a test's calls.
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .build();
        let s3 = aws_sdk_s3::config::Builder::from(&config).force_path_style(true).build();
        Self {
            s3: aws_sdk_s3::Client::from_conf(s3),
            iam: aws_sdk_iam::Client::new(&config),
            sts: aws_sdk_sts::Client::new(&config),
            eks: aws_sdk_eks::Client::new(&config),
        }
    }

    /// The app that has this environment, past every proxy of the store.
    pub(crate) fn of(store: &super::Store, environment: &BTreeMap<String, String>) -> Self {
        let get = |key: &str| environment.get(key).unwrap_or_else(|| panic!("{key} is not in the outputs")).as_str();
        Self::at(&store.url, get("BUCKET_REGION"), get("AWS_ACCESS_KEY_ID"), get("AWS_SECRET_ACCESS_KEY"))
    }

    pub(crate) async fn create_bucket(&self, bucket: &str) {
        use aws_sdk_s3::types::{BucketLocationConstraint, CreateBucketConfiguration};
        let region = BucketLocationConstraint::from(super::REGION);
        let config = CreateBucketConfiguration::builder().location_constraint(region).build();
        self.s3.create_bucket().bucket(bucket).create_bucket_configuration(config).send().await.unwrap();
    }

    pub(crate) async fn bucket_exists(&self, bucket: &str) -> bool {
        self.s3.head_bucket().bucket(bucket).send().await.is_ok()
    }

    pub(crate) async fn bucket_tags(&self, bucket: &str) -> BTreeMap<String, String> {
        let tags = self.s3.get_bucket_tagging().bucket(bucket).send().await.unwrap();
        tags.tag_set().iter().map(|tag| (tag.key().to_owned(), tag.value().to_owned())).collect()
    }

    /// Replaces the tags of a bucket.
    pub(crate) async fn tag_bucket(&self, bucket: &str, tags: &[(&str, &str)]) {
        let tags = tags.iter().map(|(key, value)| Tag::builder().key(*key).value(*value).build().unwrap()).collect();
        let tagging = Tagging::builder().set_tag_set(Some(tags)).build().unwrap();
        self.s3.put_bucket_tagging().bucket(bucket).tagging(tagging).send().await.unwrap();
    }

    pub(crate) async fn keep_versions(&self, bucket: &str) {
        let enabled = VersioningConfiguration::builder().status(BucketVersioningStatus::Enabled).build();
        self.s3.put_bucket_versioning().bucket(bucket).versioning_configuration(enabled).send().await.unwrap();
    }

    /// Puts an object; the error's code if it is refused.
    pub(crate) async fn put(&self, bucket: &str, key: &str) -> Result<(), String> {
        let body = ByteStream::from_static(b"content");
        let put = self.s3.put_object().bucket(bucket).key(key).body(body).send().await;
        put.map(drop).map_err(|error| error.code().unwrap_or("no code").to_owned())
    }

    pub(crate) async fn delete_object(&self, bucket: &str, key: &str) {
        self.s3.delete_object().bucket(bucket).key(key).send().await.unwrap();
    }

    /// Leaves nothing in a bucket but a delete marker and what is behind it.
    pub(crate) async fn leave_a_delete_marker(&self, bucket: &str) {
        self.keep_versions(bucket).await;
        self.delete_object(bucket, "deleted").await;
        assert!(self.list(bucket).await.unwrap().is_empty());
    }

    /// Begins an upload in parts, and leaves it.
    pub(crate) async fn begin_upload(&self, bucket: &str, key: &str) {
        self.s3.create_multipart_upload().bucket(bucket).key(key).send().await.unwrap();
    }

    /// The keys in a bucket, up to 1,000; the error's code if it is refused.
    pub(crate) async fn list(&self, bucket: &str) -> Result<Vec<String>, String> {
        let listed = self.s3.list_objects_v2().bucket(bucket).send().await;
        let listed = listed.map_err(|error| error.code().unwrap_or("no code").to_owned())?;
        Ok(listed.contents().iter().filter_map(|object| object.key().map(str::to_owned)).collect())
    }

    pub(crate) async fn user_exists(&self, user: &str) -> bool {
        self.iam.get_user().user_name(user).send().await.is_ok()
    }

    /// The ids of a user's access keys.
    pub(crate) async fn keys(&self, user: &str) -> Vec<String> {
        let keys = self.iam.list_access_keys().user_name(user).send().await.unwrap();
        keys.access_key_metadata().iter().filter_map(|key| key.access_key_id().map(str::to_owned)).collect()
    }

    /// The ids of those that are active.
    pub(crate) async fn active_keys(&self, user: &str) -> Vec<String> {
        let keys = self.iam.list_access_keys().user_name(user).send().await.unwrap();
        let active = keys.access_key_metadata().iter().filter(|key| key.status() == Some(&StatusType::Active));
        active.filter_map(|key| key.access_key_id().map(str::to_owned)).collect()
    }

    pub(crate) async fn set_key_active(&self, user: &str, key: &str, active: bool) {
        let status = if active { StatusType::Active } else { StatusType::Inactive };
        self.iam.update_access_key().user_name(user).access_key_id(key).status(status).send().await.unwrap();
    }

    /// Names of all users whose name contains `part`.
    pub(crate) async fn users_with(&self, part: &str) -> Vec<String> {
        let mut pages = self.iam.list_users().into_paginator().send();
        let mut names = Vec::new();
        while let Some(page) = pages.next().await {
            names.extend(page.unwrap().users().iter().map(|user| user.user_name().to_owned()));
        }
        names.retain(|name| name.contains(part));
        names
    }

    /// Names of all buckets whose name contains `part`.
    pub(crate) async fn buckets_with(&self, part: &str) -> Vec<String> {
        let buckets = self.s3.list_buckets().send().await.unwrap();
        let names = buckets.buckets().iter().filter_map(|bucket| bucket.name().map(str::to_owned));
        names.filter(|name| name.contains(part)).collect()
    }
}
