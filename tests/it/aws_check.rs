//! What the first day in a real account tries (`hack/aws-check.sh`), against AWS as strict as the proxy knows it.

use std::process::Stdio;

use tokio::process::Command;

use crate::support::aws_proxy::Strictness;
use crate::support::{REGION, World, needed};

#[tokio::test]
async fn the_check_of_an_account_passes_at_a_strict_aws() {
    let world = World::new().await;
    world.aws.upstream().strict(Strictness { refuses_tags: true, ..Strictness::PROMPT });
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/hack/aws-check.sh");
    let few = ["--claims", "4", "--early", "4", "--within", "2", "--versions", "40", "--timeout", "180"];
    // In a sample of the cases those that take seconds. Two of them all need options.
    let (only, summary) = match std::env::var_os("TEST_SAMPLE") {
        Some(_) => ("1,2,5,8,10,12", "6 done, 0 skipped"),
        None => ("1-12", "10 done, 2 skipped"),
    };
    let mut check = Command::new(script);
    check.args(["--account", "000000000000", "--region", REGION, "--regions", REGION]).args(few);
    check.args(["--kubeconfig", &needed("KUBECONFIG"), "--operator", env!("CARGO_BIN_EXE_aws-s3-provisioner")]);
    check.args(["--only", only, "--kit", "a_bucket_is_usable_when_bound_and_deleted_with_its_claim"]);
    check.env("AWS_ENDPOINT_URL", &world.aws.url).stdin(Stdio::null()).kill_on_drop(true);
    let done = check.output().await.unwrap();
    let (report, log) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{report}\n{log}");
    assert!(report.contains("test result: ok. 1 passed"), "{report}\n{log}");
    assert!(report.contains(&format!("\n{summary}, 0 FAILED\n")), "{report}\n{log}");
}
