//! An app that uses the bucket of a claim. It knows nothing but its environment, which is what `envFrom`
//! of the claim's Secret and ConfigMap gives it: `BUCKET_NAME`, and what every AWS SDK reads by itself.
//!
//! `app [OTHER]` puts, lists, gets and deletes an object. If another bucket is named, it tries that one,
//! too, and expects to be refused. `app --read-only` lists, and expects that it may not put. `app --refused` expects that
//! its key does not work any more.

use std::error::Error;

use aws_sdk_s3::Client;
use aws_sdk_s3::error::ProvideErrorMetadata as _;
use aws_sdk_s3::primitives::ByteStream;

const KEY: &str = "hello.txt";
const TEXT: &[u8] = b"hello from the app";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let bucket =
        std::env::var("BUCKET_NAME").map_err(|_| "BUCKET_NAME is not set; use envFrom of the claim's ConfigMap")?;
    let s3 = Client::new(&aws_config::load_defaults(aws_config::BehaviorVersion::latest()).await);
    match std::env::args().nth(1).as_deref() {
        // A key that is deleted is unknown; some stores say so with the word for a missing permission.
        Some("--read-only") => only_read(&s3, &bucket).await,
        Some("--refused") => expect_refusal(&s3, &bucket, &["InvalidAccessKeyId", "AccessDenied"]).await,
        other => {
            use_bucket(&s3, &bucket).await?;
            match other {
                Some(other) => expect_refusal(&s3, other, &["AccessDenied"]).await,
                None => Ok(()),
            }
        }
    }
}

async fn use_bucket(s3: &Client, bucket: &str) -> Result<(), Box<dyn Error>> {
    s3.put_object().bucket(bucket).key(KEY).body(ByteStream::from_static(TEXT)).send().await?;
    println!("put     s3://{bucket}/{KEY}");

    let listed = s3.list_objects_v2().bucket(bucket).send().await?;
    let keys: Vec<_> = listed.contents().iter().filter_map(|object| object.key()).collect();
    println!("listed  s3://{bucket}/ {keys:?}");
    if !keys.contains(&KEY) {
        return Err(format!("{KEY} is not listed").into());
    }

    let got = s3.get_object().bucket(bucket).key(KEY).send().await?.body.collect().await?.into_bytes();
    println!("got     {:?}", String::from_utf8_lossy(&got));
    if got != TEXT {
        return Err("what was read is not what was written".into());
    }

    s3.delete_object().bucket(bucket).key(KEY).send().await?;
    println!("deleted s3://{bucket}/{KEY}");
    Ok(())
}

async fn only_read(s3: &Client, bucket: &str) -> Result<(), Box<dyn Error>> {
    let listed = s3.list_objects_v2().bucket(bucket).send().await?;
    let keys: Vec<_> = listed.contents().iter().filter_map(|object| object.key()).collect();
    println!("listed  s3://{bucket}/ {keys:?}");
    match s3.put_object().bucket(bucket).key(KEY).body(ByteStream::from_static(TEXT)).send().await {
        Ok(_) => Err(format!("{KEY} may be put").into()),
        Err(error) if error.code() == Some("AccessDenied") => {
            println!("refused s3://{bucket}/{KEY} AccessDenied");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Tries to list a bucket, and fails unless one of `codes` is the answer.
async fn expect_refusal(s3: &Client, bucket: &str, codes: &[&str]) -> Result<(), Box<dyn Error>> {
    match s3.list_objects_v2().bucket(bucket).send().await {
        Ok(_) => Err(format!("s3://{bucket}/ may be listed").into()),
        Err(error) => match error.code().filter(|code| codes.contains(code)) {
            Some(code) => {
                println!("refused s3://{bucket}/ {code}");
                Ok(())
            }
            None => Err(error.into()),
        },
    }
}
