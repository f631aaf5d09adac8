//! The admin of the account that has the claims' buckets. `hack/demo.sh` runs it for what an admin does in AWS before
//! there are claims, and to check what is left after they are deleted.
//!
//! | command | what it does |
//! |---|---|
//! | `create BUCKET` | creates a bucket that holds `report.txt` |
//! | `unchanged BUCKET` | fails unless the bucket holds `report.txt` as it was, and nothing else |
//! | `remove BUCKET` | deletes such a bucket, whatever it holds by then |
//! | `put BUCKET KEY` | puts one more object into a bucket |
//! | `managed BUCKET TEAM` | fails unless the bucket keeps versions, blocks public access and has the tag `team` |
//! | `gone BUCKET NAME...` | fails if the bucket or an IAM user or role of the name is there, or what belongs to a user |
//!
//! Keys, region and `AWS_ENDPOINT_URL` come from the environment, as for every AWS SDK.

use std::error::Error;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_iam::error::ProvideErrorMetadata;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{BucketLocationConstraint, BucketVersioningStatus, CreateBucketConfiguration};

const REPORT: &str = "report.txt";
const TEXT: &[u8] = b"the report of last year";

type Failure = Box<dyn Error>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let config = aws_config::load_defaults(BehaviorVersion::latest()).await;
    let region = config.region().ok_or("AWS_REGION is not set")?.to_string();
    // A store of the user's own has no name for each bucket.
    let s3 = aws_sdk_s3::config::Builder::from(&config).force_path_style(config.endpoint_url().is_some()).build();
    let s3 = aws_sdk_s3::Client::from_conf(s3);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match *arguments.iter().map(String::as_str).collect::<Vec<_>>() {
        ["create", bucket] => create(&s3, bucket, &region).await,
        ["unchanged", bucket] => unchanged(&s3, bucket).await,
        ["remove", bucket] => remove(&s3, bucket).await,
        ["put", bucket, key] => put(&s3, bucket, key, b"deleted with its bucket").await,
        ["managed", bucket, team] => managed(&s3, bucket, team).await,
        ["gone", bucket, ref names @ ..] => {
            require_no_bucket(&s3, bucket).await?;
            require_no_identities(&config, names).await
        }
        _ => Err("unknown command; see examples/app/owner.rs".into()),
    }
}

async fn create(s3: &aws_sdk_s3::Client, bucket: &str, region: &str) -> Result<(), Failure> {
    if s3.head_bucket().bucket(bucket).send().await.is_ok() {
        return Err(format!("bucket {bucket} is there already").into());
    }
    let constraint = CreateBucketConfiguration::builder().location_constraint(BucketLocationConstraint::from(region));
    // The oldest region is the one that must not be named.
    let constraint = (region != "us-east-1").then(|| constraint.build());
    s3.create_bucket().bucket(bucket).set_create_bucket_configuration(constraint).send().await?;
    put(s3, bucket, REPORT, TEXT).await
}

async fn put(s3: &aws_sdk_s3::Client, bucket: &str, key: &str, text: &'static [u8]) -> Result<(), Failure> {
    s3.put_object().bucket(bucket).key(key).body(ByteStream::from_static(text)).send().await?;
    println!("bucket {bucket} holds {key}");
    Ok(())
}

async fn unchanged(s3: &aws_sdk_s3::Client, bucket: &str) -> Result<(), Failure> {
    let keys = keys(s3, bucket).await?;
    let got = s3.get_object().bucket(bucket).key(REPORT).send().await?.body.collect().await?.into_bytes();
    if keys != [REPORT] || got != TEXT {
        return Err(format!("bucket {bucket} is not as it was: {keys:?}, {REPORT} is {got:?}").into());
    }
    println!("there  bucket {bucket} with {REPORT}, as before");
    Ok(())
}

async fn managed(s3: &aws_sdk_s3::Client, bucket: &str, team: &str) -> Result<(), Failure> {
    let versioning = s3.get_bucket_versioning().bucket(bucket).send().await?.status;
    let blocked = s3.get_public_access_block().bucket(bucket).send().await?.public_access_block_configuration;
    let is_blocked = blocked.and_then(|blocked| blocked.block_public_policy) == Some(true);
    let lifecycle = s3.get_bucket_lifecycle_configuration().bucket(bucket).send().await?.rules.unwrap_or_default();
    let tags = s3.get_bucket_tagging().bucket(bucket).send().await?.tag_set;
    let has_tag = tags.iter().any(|tag| tag.key == "team" && tag.value == team);
    let keeps_versions = versioning == Some(BucketVersioningStatus::Enabled);
    if !(keeps_versions && is_blocked && has_tag && lifecycle.len() == 2) {
        return Err(format!("bucket {bucket} lacks settings: {versioning:?}, {lifecycle:?}, {tags:?}").into());
    }
    println!("bucket {bucket} keeps versions for 30 days, blocks public access, and has the tag team={team}");
    Ok(())
}

async fn keys(s3: &aws_sdk_s3::Client, bucket: &str) -> Result<Vec<String>, Failure> {
    let listed = s3.list_objects_v2().bucket(bucket).send().await?;
    Ok(listed.contents.unwrap_or_default().into_iter().filter_map(|object| object.key).collect())
}

async fn remove(s3: &aws_sdk_s3::Client, bucket: &str) -> Result<(), Failure> {
    for key in keys(s3, bucket).await? {
        s3.delete_object().bucket(bucket).key(key).send().await?;
    }
    s3.delete_bucket().bucket(bucket).send().await?;
    println!("gone   bucket {bucket}");
    Ok(())
}

async fn require_no_bucket(s3: &aws_sdk_s3::Client, bucket: &str) -> Result<(), Failure> {
    match s3.list_objects_v2().bucket(bucket).send().await {
        Ok(_) => return Err(format!("bucket {bucket} is still there").into()),
        Err(error) if error.code() == Some("NoSuchBucket") => println!("gone   bucket {bucket}"),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// An IAM user, its keys and its policies, or a role. Stores that keep them apart may answer with an empty list for a user that
/// is not there.
async fn require_no_identities(config: &SdkConfig, names: &[&str]) -> Result<(), Failure> {
    // Wherever the buckets are, IAM is in one place.
    let iam = aws_sdk_iam::config::Builder::from(config).region(Region::new("us-east-1")).build();
    let iam = aws_sdk_iam::Client::from_conf(iam);
    for name in names {
        let found = [
            count(iam.get_user().user_name(*name).send().await, |_| 1)?,
            count(iam.get_role().role_name(*name).send().await, |_| 1)?,
            count(iam.list_access_keys().user_name(*name).send().await, |keys| keys.access_key_metadata.len())?,
            count(iam.list_user_policies().user_name(*name).send().await, |policies| policies.policy_names.len())?,
        ];
        if found != [0; 4] {
            let [users, roles, keys, policies] = found;
            let left = format!("{users} user, {roles} role, {keys} keys, {policies} policies");
            return Err(format!("left of {name} in IAM: {left}").into());
        }
        println!("gone   {name} in IAM, with its keys and policies");
    }
    Ok(())
}

/// How many there are; none if the answer is that there is no such user.
fn count<T, E>(answer: Result<T, E>, number: impl Fn(T) -> usize) -> Result<usize, Failure>
where
    E: ProvideErrorMetadata + Error + 'static,
{
    match answer {
        Ok(found) => Ok(number(found)),
        Err(error) if error.code() == Some("NoSuchEntity") => Ok(0),
        Err(error) => Err(error.into()),
    }
}
