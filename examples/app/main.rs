//! An app that uses the bucket of a claim. It knows nothing but its environment, which is what `envFrom`
//! of the claim's Secret and ConfigMap gives it: `BUCKET_NAME`, and what every AWS SDK reads by itself.
//!
//! It puts, lists, gets and deletes an object. If another bucket is named on the command line, it tries
//! that one, too, and expects to be refused.

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

    s3.put_object().bucket(&bucket).key(KEY).body(ByteStream::from_static(TEXT)).send().await?;
    println!("put     s3://{bucket}/{KEY}");

    let listed = s3.list_objects_v2().bucket(&bucket).send().await?;
    let keys: Vec<_> = listed.contents().iter().filter_map(|object| object.key()).collect();
    println!("listed  s3://{bucket}/ {keys:?}");
    if !keys.contains(&KEY) {
        return Err(format!("{KEY} is not listed").into());
    }

    let got = s3.get_object().bucket(&bucket).key(KEY).send().await?.body.collect().await?.into_bytes();
    println!("got     {:?}", String::from_utf8_lossy(&got));
    if got != TEXT {
        return Err("what was read is not what was written".into());
    }

    s3.delete_object().bucket(&bucket).key(KEY).send().await?;
    println!("deleted s3://{bucket}/{KEY}");

    if let Some(other) = std::env::args().nth(1) {
        match s3.list_objects_v2().bucket(&other).send().await {
            Ok(_) => return Err(format!("s3://{other}/ is not the claim's bucket, but may be listed").into()),
            Err(error) => println!("refused s3://{other}/ {}", error.code().unwrap_or("without a code")),
        }
    }
    Ok(())
}
