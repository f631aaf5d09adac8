//! The least that an app needs to use the bucket of a claim.

use aws_sdk_s3::Client;
use aws_sdk_s3::primitives::ByteStream;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bucket = std::env::var("BUCKET_NAME")?;
    let s3 = Client::new(&aws_config::load_defaults(aws_config::BehaviorVersion::latest()).await);
    let body = ByteStream::from_static(b"hello from Rust");
    s3.put_object().bucket(&bucket).key("hello.txt").body(body).send().await?;
    let object = s3.get_object().bucket(&bucket).key("hello.txt").send().await?;
    println!("{}", String::from_utf8(object.body.collect().await?.to_vec())?);
    Ok(())
}
