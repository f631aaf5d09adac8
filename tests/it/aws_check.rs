//! What the first day in a real account tries (`hack/aws-check.sh`), against AWS as strict as the proxy knows it.

use std::process::Stdio;

use tokio::process::Command;

use crate::support::aws_proxy::Strictness;
use crate::support::{REGION, World, needed};

#[tokio::test]
async fn the_check_of_an_account_reports_twelve_experiments() {
    let world = World::new().await;
    world.aws.upstream().strict(Strictness { refuses_tags: true, ..Strictness::PROMPT });
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/hack/aws-check.sh");
    let few = ["--claims", "4", "--early", "4", "--spread", "2", "--versions", "40", "--patience", "180"];
    let mut check = Command::new(script);
    check.args(["--account", "000000000000", "--region", REGION, "--skip-kit"]).args(few);
    check.args(["--operator", env!("CARGO_BIN_EXE_aws-s3-provisioner")]);
    check.env("KUBECONFIG", needed("KUBECONFIG")).env("AWS_ENDPOINT_URL", &world.aws.url);
    check.stdin(Stdio::null()).kill_on_drop(true);
    let done = check.output().await.unwrap();
    let (report, log) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    let ends = |how: &str| report.lines().filter(|line| line.starts_with(&format!("   {how}"))).count();
    assert_eq!((ends("as expected"), ends("skipped"), ends("DIFFERS")), (10, 2, 0), "{report}\n{log}");
    assert!(done.status.success(), "{report}\n{log}");
    assert!(report.contains("12 experiments, 0 of them with a difference"), "{report}");
}
