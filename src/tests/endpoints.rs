//! Where calls are sent, and for which region they are signed.

use super::provision::user_is_made;
use crate::class::environment::Environment;
use crate::class::region::Variants;
use crate::class::values::EndpointUrl;
use crate::testing::*;

fn caller() -> (&'static str, Answer) {
    let result = format!("<GetCallerIdentityResult><Account>{ACCOUNT}</Account></GetCallerIdentityResult>");
    ("GetCallerIdentity", ok(format!("<GetCallerIdentityResponse>{result}</GetCallerIdentityResponse>")))
}

fn all_calls() -> impl Iterator<Item = (&'static str, Answer)> {
    [("CreateBucket", ok("")), caller()].into_iter().chain(user_is_made())
}

async fn hosts(stage: &Stage) -> [String; 3] {
    stage.provision(&record()).await.unwrap();
    stage.account(&record()).await.unwrap();
    ["CreateBucket", "CreateUser", "GetCallerIdentity"].map(|operation| stage.addressed(operation).0)
}

#[tokio::test]
async fn fips_and_dual_stack_reach_all_clients() {
    let with = |variants| Environment { variants, ..Environment::default() };
    let bucket = record().plan.bucket;
    let fips = Stage::in_environment(with(Variants { fips: true, dual_stack: false }), all_calls());
    let expected = [
        format!("{bucket}.s3-fips.us-west-1.amazonaws.com"),
        "iam-fips.amazonaws.com".to_owned(),
        "sts-fips.us-west-1.amazonaws.com".to_owned(),
    ];
    assert_eq!(hosts(&fips).await, expected);
    let dual_stack = Stage::in_environment(with(Variants { fips: false, dual_stack: true }), all_calls());
    let expected = [
        format!("{bucket}.s3.dualstack.us-west-1.amazonaws.com"),
        "iam.global.api.aws".to_owned(),
        "sts.us-west-1.api.aws".to_owned(),
    ];
    assert_eq!(hosts(&dual_stack).await, expected);
}

/// Such an address is chosen because it is one of them, or it is not AWS.
#[tokio::test]
async fn switches_leave_configured_endpoints_alone() {
    let iam = Some(EndpointUrl::parse("AWS_ENDPOINT_URL_IAM", "https://iam.example").unwrap());
    let variants = Variants { fips: true, dual_stack: true };
    let stage = Stage::in_environment(Environment { iam, variants, ..Environment::default() }, all_calls());
    stage.provision(&record()).await.unwrap();
    assert_eq!(stage.addressed("CreateUser").0, "iam.example");
}

/// The region of the class is that of its buckets.
#[tokio::test]
async fn calls_to_sts_are_signed_for_the_region_of_its_host() {
    let sts = Some(EndpointUrl::parse("AWS_ENDPOINT_URL_STS", "https://sts.eu-west-1.amazonaws.com").unwrap());
    let stage = Stage::in_environment(Environment { sts, ..Environment::default() }, all_calls());
    stage.account(&record()).await.unwrap();
    let expected = ("sts.eu-west-1.amazonaws.com".to_owned(), "eu-west-1".to_owned());
    assert_eq!(stage.addressed("GetCallerIdentity"), expected);
    let stage = Stage::answering(all_calls());
    stage.account(&record()).await.unwrap();
    assert_eq!(stage.addressed("GetCallerIdentity").1, "us-west-1");
}
