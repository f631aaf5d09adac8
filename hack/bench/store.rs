//! AWS by the SDK alone: the calls of one claim.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aws_credential_types::Credentials;
use aws_sdk_iam as iam;
use aws_sdk_s3 as s3;
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use iam::types::Tag as IamTag;
use s3::config::retry::RetryConfig;
use s3::config::{BehaviorVersion, Region, RequestChecksumCalculation, ResponseChecksumValidation};
use s3::error::ProvideErrorMetadata as _;
use s3::types::{
    BucketLifecycleConfiguration, BucketLocationConstraint, BucketVersioningStatus, CreateBucketConfiguration,
    ExpirationStatus, LifecycleExpiration, LifecycleRule, LifecycleRuleFilter, ObjectOwnership, OwnershipControls,
    OwnershipControlsRule, PublicAccessBlockConfiguration, Tag, VersioningConfiguration,
};

use crate::Failure;

/// The policy of a user that the operator made: what it writes for others, but for the bucket's name.
pub(crate) struct Policy {
    name: String,
    document: String,
    bucket: String,
}

/// What a claim's bucket gets.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    /// The operator's own tags.
    Plain,
    /// Five settings: a tag, and four that take calls.
    Managed,
}

#[derive(Clone)]
pub(crate) struct Store {
    /// A new connection for each call.
    fresh_http: SharedHttpClient,
    url: String,
    region: String,
    pub(crate) s3: s3::Client,
    iam: iam::Client,
    calls: Arc<AtomicUsize>,
}

impl Store {
    /// With the keys and the region of the environment.
    pub(crate) fn new(url: &str) -> Result<Self, Failure> {
        let region = std::env::var("AWS_REGION")?;
        let keys = Credentials::from_keys(
            std::env::var("AWS_ACCESS_KEY_ID")?,
            std::env::var("AWS_SECRET_ACCESS_KEY")?,
            std::env::var("AWS_SESSION_TOKEN").ok(),
        );
        let http = aws_smithy_http_client::Builder::new().build_http();
        let fresh_http = aws_smithy_http_client::Builder::new().pool_max_idle_per_host(0).build_http();
        let iam = iam::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .http_client(http.clone())
            .credentials_provider(keys.clone())
            .region(Region::new("us-east-1"))
            .endpoint_url(url)
            .retry_config(RetryConfig::disabled())
            .build();
        Ok(Self {
            s3: s3_client(&http, url, &region, keys),
            iam: iam::Client::from_conf(iam),
            fresh_http,
            url: url.to_owned(),
            region,
            calls: Arc::default(),
        })
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn region(&self) -> &str {
        &self.region
    }

    pub(crate) fn count(&self) -> &Self {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self
    }

    /// The policy of `user`, which may use `bucket`. IAM returns documents URL-encoded.
    pub(crate) async fn policy(&self, bucket: &str, user: &str) -> Result<Policy, Failure> {
        let listed = self.iam.list_user_policies().user_name(user).send().await?;
        let name = listed.policy_names.into_iter().next().ok_or("the operator's user has no policy")?;
        let got = self.iam.get_user_policy().user_name(user).policy_name(&name).send().await?;
        let document = percent_encoding::percent_decode_str(&got.policy_document).decode_utf8()?.into_owned();
        if !document.contains(bucket) {
            return Err("the policy of the operator's user does not name its bucket".into());
        }
        Ok(Policy { name, document, bucket: bucket.to_owned() })
    }

    /// Fails if there is a user or a bucket.
    pub(crate) async fn check_nothing_left(&self) -> Result<(), Failure> {
        let users = self.iam.list_users().send().await?.users;
        let buckets = self.s3.list_buckets().send().await?.buckets.unwrap_or_default();
        let roles = self.iam.list_roles().path_prefix("/aws-s3-provisioner/").send().await?.roles;
        if users.is_empty() && roles.is_empty() && buckets.is_empty() {
            return Ok(());
        }
        let (users, roles, buckets) = (users.len(), roles.len(), buckets.len());
        Err(format!("left in AWS: {users} users, {roles} roles and {buckets} buckets").into())
    }

    /// Bucket beside user, policy beside key; returns the key.
    pub(crate) async fn make(
        &self,
        bucket: &str,
        user: &str,
        tags: &[(&str, &str)],
        policy: &Policy,
        kind: Kind,
    ) -> Result<(String, String), Failure> {
        let sdk_tags = tags.iter().map(|(key, value)| Tag::builder().key(*key).value(*value).build());
        let configuration = CreateBucketConfiguration::builder()
            .location_constraint(BucketLocationConstraint::from(self.region.as_str()))
            .set_tags(Some(sdk_tags.collect::<Result<_, _>>()?))
            .build();
        let created = self.count().s3.create_bucket().bucket(bucket).create_bucket_configuration(configuration);
        let bucket_made = created.send();
        let sdk_tags = tags.iter().map(|(key, value)| IamTag::builder().key(*key).value(*value).build());
        let sdk_tags = sdk_tags.collect::<Result<_, _>>()?;
        let created = self.count().iam.create_user().user_name(user).path("/aws-s3-provisioner/");
        let user_made = created.set_tags(Some(sdk_tags)).send();
        match kind {
            Kind::Plain => {
                let (bucket_made, user_made) = tokio::join!(bucket_made, user_made);
                bucket_made?;
                user_made?;
            }
            Kind::Managed => {
                bucket_made.await?;
                self.set(bucket).await?;
                user_made.await?;
            }
        }
        let put = self.count().iam.put_user_policy().user_name(user).policy_name(&policy.name);
        let put = put.policy_document(policy.document.replace(&policy.bucket, bucket)).send();
        let (put, issued) = tokio::join!(put, self.count().iam.create_access_key().user_name(user).send());
        put?;
        let key = issued?.access_key.ok_or("no key in the answer")?;
        Ok((key.access_key_id, key.secret_access_key))
    }

    /// Four settings, each read again, because a store that is not AWS may not keep it.
    async fn set(&self, bucket: &str) -> Result<(), Failure> {
        let rule = OwnershipControlsRule::builder().object_ownership(ObjectOwnership::BucketOwnerPreferred).build()?;
        let controls = OwnershipControls::builder().rules(rule).build()?;
        let s3 = &self.s3;
        self.count();
        s3.put_bucket_ownership_controls().bucket(bucket).ownership_controls(controls).send().await?;
        self.count();
        s3.get_bucket_ownership_controls().bucket(bucket).send().await?;
        let enabled = VersioningConfiguration::builder().status(BucketVersioningStatus::Enabled).build();
        self.count();
        s3.put_bucket_versioning().bucket(bucket).versioning_configuration(enabled).send().await?;
        self.count();
        s3.get_bucket_versioning().bucket(bucket).send().await?;
        let rule = LifecycleRule::builder()
            .id("expire")
            .status(ExpirationStatus::Enabled)
            .filter(LifecycleRuleFilter::builder().prefix("").build())
            .expiration(LifecycleExpiration::builder().days(30).build())
            .build()?;
        let lifecycle = BucketLifecycleConfiguration::builder().rules(rule).build()?;
        self.count();
        s3.put_bucket_lifecycle_configuration().bucket(bucket).lifecycle_configuration(lifecycle).send().await?;
        self.count();
        s3.get_bucket_lifecycle_configuration().bucket(bucket).send().await?;
        let blocked = PublicAccessBlockConfiguration::builder()
            .block_public_acls(true)
            .ignore_public_acls(true)
            .block_public_policy(true)
            .restrict_public_buckets(true)
            .build();
        self.count();
        s3.put_public_access_block().bucket(bucket).public_access_block_configuration(blocked).send().await?;
        self.count();
        s3.get_public_access_block().bucket(bucket).send().await?;
        Ok(())
    }

    /// Two looks into the bucket with its own key, each on a new connection.
    pub(crate) async fn probe(&self, bucket: &str, id: &str, secret: &str) -> Result<(), Failure> {
        let app = s3_client(&self.fresh_http, &self.url, &self.region, Credentials::from_keys(id, secret, None));
        self.count();
        self.count();
        let listed = app.list_objects_v2().bucket(bucket).max_keys(1).send();
        let (listed, read) = tokio::join!(listed, app.get_object().bucket(bucket).key("no-such-object").send());
        listed?;
        match read {
            Err(error) if error.as_service_error().is_some_and(|error| error.is_no_such_key()) => Ok(()),
            answer => Ok(answer.map(drop)?),
        }
    }

    /// User with key and policy, beside them the bucket, and then all that is in it.
    pub(crate) async fn unmake(&self, bucket: &str, user: &str, policy: &Policy) -> Result<(), Failure> {
        let (found, keys, tags) = tokio::join!(
            self.count().iam.get_user().user_name(user).send(),
            self.count().iam.list_access_keys().user_name(user).send(),
            self.count().s3.get_bucket_tagging().bucket(bucket).send(),
        );
        found?;
        tags?;
        let id = keys?.access_key_metadata.pop().and_then(|key| key.access_key_id).ok_or("the user has no key")?;
        let (key, put, deleted) = tokio::join!(
            self.count().iam.delete_access_key().user_name(user).access_key_id(id).send(),
            self.count().iam.delete_user_policy().user_name(user).policy_name(&policy.name).send(),
            self.count().s3.delete_bucket().bucket(bucket).send(),
        );
        key?;
        put?;
        self.count().iam.delete_user().user_name(user).send().await?;
        let mut answer = deleted.map(drop);
        // More than once, because the emulator's listing leaves out versions behind one that is deleted meanwhile.
        while answer.as_ref().is_err_and(|error| error.code() == Some("BucketNotEmpty")) {
            self.purge(bucket).await?;
            self.count().s3.list_multipart_uploads().bucket(bucket).send().await?;
            answer = self.count().s3.delete_bucket().bucket(bucket).send().await.map(drop);
        }
        Ok(answer?)
    }
}

fn s3_client(http: &SharedHttpClient, url: &str, region: &str, keys: Credentials) -> s3::Client {
    let config = s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .http_client(http.clone())
        .credentials_provider(keys)
        .region(Region::new(region.to_owned()))
        .endpoint_url(url)
        .force_path_style(true)
        .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
        .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
        .retry_config(RetryConfig::disabled());
    s3::Client::from_conf(config.build())
}
