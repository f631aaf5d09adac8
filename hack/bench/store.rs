//! AWS by the SDK alone: the calls of one claim, and full buckets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aws_config::{BehaviorVersion, Region};
use aws_credential_types::Credentials;
use aws_sdk_iam as iam;
use aws_sdk_s3 as s3;
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use iam::types::Tag as IamTag;
use s3::config::retry::RetryConfig;
use s3::config::{RequestChecksumCalculation, ResponseChecksumValidation};
use s3::error::ProvideErrorMetadata as _;
use s3::primitives::ByteStream;
use s3::types::{
    BucketLocationConstraint, BucketVersioningStatus, CreateBucketConfiguration, Delete, ObjectIdentifier, Tag,
    VersioningConfiguration,
};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::Failure;
use crate::load::all;

const POLICY: &str = "bucket-access";
/// DeleteObjects calls that run at once.
const DELETES_IN_FLIGHT: usize = 4;
/// PutObject calls that run at once.
const PUTS_IN_FLIGHT: usize = 32;

#[derive(Clone)]
pub(crate) struct Store {
    /// A new connection for each call.
    fresh_http: SharedHttpClient,
    url: String,
    region: String,
    s3: s3::Client,
    iam: iam::Client,
    calls: Arc<AtomicUsize>,
}

impl Store {
    /// Where AWS_ENDPOINT_URL says, with the keys of the environment.
    pub(crate) fn new() -> Result<Self, Failure> {
        let url = std::env::var("AWS_ENDPOINT_URL")?;
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
            .endpoint_url(&url)
            .retry_config(RetryConfig::disabled())
            .build();
        Ok(Self {
            s3: s3_client(&http, &url, &region, keys),
            iam: iam::Client::from_conf(iam),
            fresh_http,
            url,
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

    fn count(&self) -> &Self {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self
    }

    /// Bucket, user, policy and key; returns the key.
    pub(crate) async fn make(
        &self,
        bucket: &str,
        user: &str,
        tags: &[(&str, &str)],
    ) -> Result<(String, String), Failure> {
        let sdk_tags = tags.iter().map(|(key, value)| Tag::builder().key(*key).value(*value).build());
        let configuration = CreateBucketConfiguration::builder()
            .location_constraint(BucketLocationConstraint::from(self.region.as_str()))
            .set_tags(Some(sdk_tags.collect::<Result<_, _>>()?))
            .build();
        self.count().s3.create_bucket().bucket(bucket).create_bucket_configuration(configuration).send().await?;
        let sdk_tags = tags.iter().map(|(key, value)| IamTag::builder().key(*key).value(*value).build());
        let sdk_tags = sdk_tags.collect::<Result<_, _>>()?;
        let created = self.count().iam.create_user().user_name(user).path("/aws-s3-provisioner/");
        created.set_tags(Some(sdk_tags)).send().await?;
        let policy = self.count().iam.put_user_policy().user_name(user).policy_name(POLICY);
        policy.policy_document(document(bucket)).send().await?;
        let issued = self.count().iam.create_access_key().user_name(user).send().await?;
        let key = issued.access_key.ok_or("no key in the answer")?;
        Ok((key.access_key_id, key.secret_access_key))
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

    /// User with key and policy, and bucket with all that is in it.
    pub(crate) async fn unmake(&self, bucket: &str, user: &str) -> Result<(), Failure> {
        self.count().iam.get_user().user_name(user).send().await?;
        let keys = self.count().iam.list_access_keys().user_name(user).send().await?;
        for id in keys.access_key_metadata.into_iter().filter_map(|key| key.access_key_id) {
            self.count().iam.delete_access_key().user_name(user).access_key_id(id).send().await?;
        }
        self.count().iam.delete_user_policy().user_name(user).policy_name(POLICY).send().await?;
        self.count().iam.delete_user().user_name(user).send().await?;

        self.count().s3.get_bucket_tagging().bucket(bucket).send().await?;
        match self.count().s3.delete_bucket().bucket(bucket).send().await {
            Err(error) if error.code() == Some("BucketNotEmpty") => {
                self.purge(bucket).await?;
                self.count().s3.list_multipart_uploads().bucket(bucket).send().await?;
                self.count().s3.delete_bucket().bucket(bucket).send().await?;
                Ok(())
            }
            answer => Ok(answer.map(drop)?),
        }
    }

    /// Deletes all versions, 1,000 at a time, while the next are listed.
    async fn purge(&self, bucket: &str) -> Result<(), Failure> {
        let turns = Arc::new(Semaphore::new(DELETES_IN_FLIGHT));
        let mut tasks = JoinSet::new();
        let (mut key, mut version) = (None, None);
        loop {
            let listed = self.count().s3.list_object_versions().bucket(bucket).max_keys(1000);
            let page = listed.set_key_marker(key).set_version_id_marker(version).send().await?;
            let versions = page.versions.unwrap_or_default().into_iter().map(|v| (v.key, v.version_id));
            let markers = page.delete_markers.unwrap_or_default().into_iter().map(|m| (m.key, m.version_id));
            let objects = versions.chain(markers).map(|(key, version)| {
                ObjectIdentifier::builder().key(key.unwrap_or_default()).set_version_id(version).build()
            });
            let delete = Delete::builder().set_objects(Some(objects.collect::<Result<_, _>>()?)).quiet(true).build()?;
            let turn = Arc::clone(&turns).acquire_owned().await?;
            let deleted = self.count().s3.delete_objects().bucket(bucket).delete(delete).send();
            tasks.spawn(async move {
                let _turn = turn;
                deleted.await?;
                Ok(())
            });
            (key, version) = (page.next_key_marker, page.next_version_id_marker);
            if page.is_truncated != Some(true) {
                return all(tasks).await;
            }
        }
    }

    /// Puts objects, then further versions of some.
    pub(crate) async fn fill(&self, bucket: &str, objects: usize, versions: usize) -> Result<(), Failure> {
        let enabled = VersioningConfiguration::builder().status(BucketVersioningStatus::Enabled).build();
        self.s3.put_bucket_versioning().bucket(bucket).versioning_configuration(enabled).send().await?;
        for count in [objects, versions] {
            let turns = Arc::new(Semaphore::new(PUTS_IN_FLIGHT));
            let mut tasks = JoinSet::new();
            for number in 0..count {
                let (s3, bucket, turns) = (self.s3.clone(), bucket.to_owned(), Arc::clone(&turns));
                tasks.spawn(async move {
                    let _turn = turns.acquire().await?;
                    let body = ByteStream::from_static(b"content");
                    s3.put_object().bucket(bucket).key(format!("object-{number}")).body(body).send().await?;
                    Ok(())
                });
            }
            all(tasks).await?;
        }
        Ok(())
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

/// As long as that of the operator, so that it costs as much to send.
fn document(bucket: &str) -> String {
    let arn = format!("arn:aws:s3:::{bucket}");
    let on_bucket = ["s3:GetBucketLocation", "s3:ListBucket", "s3:ListBucketMultipartUploads", "s3:ListBucketVersions"];
    let on_objects = [
        "s3:AbortMultipartUpload",
        "s3:DeleteObject",
        "s3:DeleteObjectVersion",
        "s3:GetObject",
        "s3:GetObjectAttributes",
        "s3:GetObjectVersion",
        "s3:GetObjectVersionAttributes",
        "s3:ListMultipartUploadParts",
        "s3:PutObject",
    ];
    let statements = json!([
        { "Effect": "Allow", "Action": on_bucket, "Resource": arn },
        { "Effect": "Allow", "Action": on_objects, "Resource": format!("{arn}/*") },
    ]);
    json!({ "Version": "2012-10-17", "Statement": statements }).to_string()
}
