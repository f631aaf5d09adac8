//! An app of a claim without keys: an SDK as it is in images, with what its pod has and nothing else.

use std::process::Stdio;

use tokio::process::Command;

use super::{AUDIENCE, bind, keyless, token};
use crate::support::operator::{Kind, Operator};
use crate::support::tool::Folder;
use crate::support::{World, needed};

const APP: &str = r#"
import os, botocore.session
s3 = botocore.session.get_session().create_client("s3")
bucket = os.environ["BUCKET_NAME"]
s3.put_object(Bucket=bucket, Key="precious", Body=b"0")
print([entry["Key"] for entry in s3.list_objects_v2(Bucket=bucket)["Contents"]])
"#;

/// The environment is that of `envFrom` with the claim's Secret and ConfigMap, and the token is where the pod mounts it.
async fn run(world: &World, claim: &str, account: &str, folder: &Folder) -> Result<String, String> {
    let file = folder.0.join("token");
    std::fs::write(&file, token(world, account, AUDIENCE).await).unwrap();
    let mut app = Command::new(needed("AWS_EMULATOR_PYTHON"));
    app.args(["-c", APP]).env_clear().envs(world.environment(claim).await);
    app.env("AWS_WEB_IDENTITY_TOKEN_FILE", &file).env("AWS_EC2_METADATA_DISABLED", "true");
    let done = app.stdin(Stdio::null()).kill_on_drop(true).output().await.unwrap();
    match done.status.success() {
        true => Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned()),
        false => Err(String::from_utf8_lossy(&done.stderr).into_owned()),
    }
}

#[tokio::test]
async fn an_sdk_needs_only_what_the_pod_has() {
    let (world, class) = keyless(&["web", "other"]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    bind(&world, &class, "photos").await;
    let folder = Folder::new(&world.id);
    assert_eq!(run(&world, "photos", "web", &folder).await.unwrap(), "['precious']");
    let refused = run(&world, "photos", "other", &folder).await.unwrap_err();
    assert!(refused.contains("AssumeRoleWithWebIdentity"), "{refused}");
    operator.stop().await;
}
