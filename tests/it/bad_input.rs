//! Mistakes, and what the claim reports about them: each message names the field, the value and the remedy. (For what
//! belongs to others see `foreign`.)

use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::{Api, ResourceExt as _};
use rstest::rstest;
use serde_json::json;

use bucket_provisioner::api::{ClaimPhase, ObjectBucketClaim};

use crate::support::aws_proxy::Strictness;
use crate::support::operator::{Binary, Kind, Operator};
use crate::support::other::{OtherCluster, ours};
use crate::support::proxy::Verdict;
use crate::support::{World, assert_contains, bucket_of, condition, phase, seen};

#[rstest]
#[case::unknown("regoin", "eu-west-1", &["regoin", "do you mean \"region\"?", "create it again"])]
#[case::create_bucket_user("createBucketUser", "maybe", &["createBucketUser", "\"maybe\"", "yes", "no"])]
#[case::endpoint("s3Endpoint", "not a url", &["s3Endpoint", "not a url"])]
#[case::endpoint_scheme("iamEndpoint", "ftp://store", &["iamEndpoint", "ftp://store", "http"])]
#[case::region("region", "us west", &["region", "us west"])]
#[case::path_style("forcePathStyle", "sometimes", &["forcePathStyle", "sometimes", "true"])]
#[case::path("iamPath", "buckets", &["iamPath", "buckets", "/"])]
#[case::boundary("permissionsBoundary", "buckets-only", &["permissionsBoundary", "ARN"])]
#[case::class_bucket("bucketName", "Not_A_Bucket", &["bucketName", "Not_A_Bucket"])]
#[case::directory_bucket("bucketName", "logs--usw2-az1--x-s3", &["bucketName", "a directory bucket"])]
#[case::access_point("bucketName", "logs-abcdefgh-s3alias", &["bucketName", "an access point"])]
#[case::namespaces("allowedNamespaces", "billing,*payroll", &["allowedNamespaces", "entry 2", "team-*"])]
#[case::explicit_names("explicitNames", "never", &["explicitNames", "\"never\"", "yes", "no"])]
#[case::beginning("bucketNamePrefix", "Team", &["bucketNamePrefix", "\"Team\"", "lower-case"])]
#[tokio::test]
async fn a_class_parameter_that_cannot_be_used_is_named(
    #[case] name: &str,
    #[case] value: &str,
    #[case] parts: &[&str],
) {
    let world = World::new().await;
    let class = world.class_with("wrong", "Delete", &[(name, value)]).await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    let message = world.wait_reason("photos", "InvalidClassParameter").await;
    assert_contains(&message, parts);
    assert_contains(&message, &[&class]);
    if ["permissionsBoundary", "allowedNamespaces"].contains(&name) {
        let rest = message.split_once(&class).unwrap().1;
        assert!(value.split(',').all(|part| !rest.contains(part)), "it may name an account or tenants: {message}");
    }
    assert_eq!(
        phase(&world.claims().get("photos").await.unwrap()),
        Some(ClaimPhase::Pending),
        "it is not the claim that must be changed"
    );
    assert!(world.aws.names().is_empty(), "AWS is not asked: {:?}", world.aws.names());
    assert_eq!(world.wait_event("photos", "InvalidClassParameter").await, ("Warning".to_owned(), message));
}

/// AWS knows none of the account's keys there.
#[tokio::test]
async fn a_region_that_is_not_enabled_is_a_cause_in_the_message() {
    let world = World::new().await;
    world.aws.upstream().strict(Strictness { region_is_disabled: true, ..Strictness::PROMPT });
    let class = world.class("elsewhere").await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    assert_contains(&world.wait_reason("photos", "CredentialsRefused").await, &["has not enabled the region"]);
}

#[tokio::test]
async fn a_missing_identity_is_reported_with_the_innermost_cause() {
    let world = World::new().await;
    let class = world.class_with("ambient", "Delete", &[("secretName", ""), ("secretNamespace", "")]).await;
    let identity = [
        ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/operator"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "/nowhere/token"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ];
    let operator = Binary::start(&world, &[], &identity);
    world.claim("photos", &class).await;
    let message = world.wait_reason("photos", "CredentialsUnavailable").await;
    assert_contains(&message, &["No such file", "give the operator's pod an AWS identity"]);
    assert!(!message.contains("123456789012"), "{message}");
    operator.kill().await;
}

#[tokio::test]
async fn one_half_of_a_secrets_name_is_not_enough() {
    let world = World::new().await;
    let class = world.class_with("half", "Delete", &[("secretNamespace", "")]).await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    assert_contains(&world.wait_reason("photos", "InvalidClassParameter").await, &["secretNamespace", "missing"]);
}

#[rstest]
#[case::lacks_a_key(&[("AWS_ACCESS_KEY_ID", "test")], &["AWS_SECRET_ACCESS_KEY"])]
#[case::empty(&[("AWS_ACCESS_KEY_ID", ""), ("AWS_SECRET_ACCESS_KEY", "test")], &["AWS_ACCESS_KEY_ID", "empty"])]
#[case::padded(&[("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test\n")], &["AWS_SECRET_ACCESS_KEY", "white space"])]
#[tokio::test]
async fn an_unusable_provisioning_secret_is_named_with_its_key(#[case] data: &[(&str, &str)], #[case] parts: &[&str]) {
    let world = World::new().await;
    world.owner_secret("broken", data).await;
    let class = world.class_with("broken", "Delete", &[("secretName", "broken")]).await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    let message = world.wait_reason("photos", "InvalidOwnerSecret").await;
    assert_contains(&message, parts);
    assert_contains(&message, &[&format!("{}/broken", world.namespace)]);
    assert!(world.aws.names().is_empty(), "AWS is not asked: {:?}", world.aws.names());
}

#[rstest]
#[case::too_short(json!({ "bucketName": "ab" }), &["spec.bucketName", "\"ab\"", "3"])]
#[case::upper_case(json!({ "bucketName": "Photos" }), &["spec.bucketName", "Photos", "lower"])]
#[case::underscore(json!({ "bucketName": "my_photos" }), &["spec.bucketName", "my_photos", "'_'"])]
#[case::two_dots(json!({ "bucketName": "my..photos" }), &["my..photos", "period"])]
#[case::hyphen_at_the_end(json!({ "bucketName": "photos-" }), &["photos-", "end"])]
#[case::like_an_address(json!({ "bucketName": "192.168.5.4" }), &["192.168.5.4", "IP"])]
#[case::reserved_prefix(json!({ "bucketName": "xn--photos" }), &["xn--photos", "xn--"])]
#[case::reserved_suffix(json!({ "bucketName": "photos-s3alias" }), &["photos-s3alias", "-s3alias"])]
#[case::prefix_upper_case(json!({ "generateBucketName": "Photos" }), &["spec.generateBucketName", "Photos", "'P'"])]
#[case::prefix_dots(json!({ "generateBucketName": "my..photos" }), &["spec.generateBucketName", "my..photos"])]
#[tokio::test]
async fn a_bucket_name_against_the_rules_is_refused_with_the_rule(
    #[case] mut spec: serde_json::Value,
    #[case] parts: &[&str],
) {
    let world = World::new().await;
    spec["storageClassName"] = json!(world.class("greenfield").await);
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim_with("photos", spec).await;
    assert_contains(&world.wait_reason("photos", "InvalidBucketName").await, parts);
    assert!(world.aws.names().is_empty(), "AWS is not asked: {:?}", world.aws.names());
}

#[tokio::test]
async fn a_prefix_of_sixty_characters_is_cut_and_works() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    let prefix = "p".repeat(60);
    let claim = world.claim_with("long", json!({ "storageClassName": class, "generateBucketName": prefix })).await;
    let bucket = bucket_of(&world.wait_bound("long").await);
    assert_eq!(bucket, format!("{}-{}", "p".repeat(26), claim.uid().unwrap()));
}

#[tokio::test]
async fn a_claim_that_names_no_bucket_is_refused_with_the_remedy() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim_with("nameless", json!({ "storageClassName": class })).await;
    let message = world.wait_reason("nameless", "BucketNameMissing").await;
    assert_contains(&message, &["spec.generateBucketName", "spec.bucketName", &class]);
}

#[tokio::test]
async fn a_name_with_a_prefix_is_refused_by_crd_or_operator() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let both = |name: &str| {
        let spec = json!({ "storageClassName": class, "bucketName": name, "generateBucketName": "photos" });
        ObjectBucketClaim::new("both", serde_json::from_value(spec).unwrap())
    };
    for name in ["other", "photos-of-mine"] {
        let refused = world.claims().create(&PostParams::default(), &both(name)).await.unwrap_err();
        assert_contains(&refused.to_string(), &["set either spec.bucketName or spec.generateBucketName, not both"]);
    }

    // As far as the CRD can tell, the operator may have written this name.
    let name = "photos-11111111-2222-3333-4444-555555555555";
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claims().create(&PostParams::default(), &both(name)).await.unwrap();
    let message = world.wait_reason("both", "ClaimUnreadable").await;
    assert_contains(&message, &["spec.bucketName", name, "spec.generateBucketName", "\"photos\"", "only one"]);
}

/// Missing, forbidden, or in another region.
#[tokio::test]
async fn an_unusable_bucket_of_a_class_is_reported_with_the_cause() {
    let world = World::new().await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    let missing = world.unique("missing");
    let class = world.class_with("missing", "Delete", &[("bucketName", &missing)]).await;
    world.claim_with("missing", json!({ "storageClassName": class })).await;
    assert_contains(&world.wait_reason("missing", "BucketMissing").await, &[&missing, "create it"]);

    // Without a body the status is all there is to go by.
    let (forbidden, elsewhere) = (world.unique("forbidden"), world.unique("elsewhere"));
    let (at_forbidden, at_elsewhere) = (format!("/{forbidden}"), format!("/{elsewhere}"));
    world.aws.inject(move |call| match call.name.as_str() {
        "GetBucketTagging" if call.target.starts_with(&at_forbidden) => Verdict::Answer(403, String::new()),
        "GetBucketTagging" if call.target.starts_with(&at_elsewhere) => Verdict::Answer(301, String::new()),
        _ => Verdict::Pass,
    });
    let class = world.class_with("forbidden", "Delete", &[("bucketName", &forbidden)]).await;
    world.claim_with("forbidden", json!({ "storageClassName": class })).await;
    assert_contains(&world.wait_reason("forbidden", "AccessDenied").await, &[&forbidden, "s3:GetBucketTagging"]);
    let class = world.class_with("elsewhere", "Delete", &[("bucketName", &elsewhere)]).await;
    world.claim_with("elsewhere", json!({ "storageClassName": class })).await;
    assert_contains(&world.wait_reason("elsewhere", "WrongRegion").await, &[&elsewhere, "region"]);
}

#[tokio::test]
async fn a_claim_may_not_choose_another_bucket_than_its_class_gives() {
    let world = World::new().await;
    let (given, asked) = (world.unique("given"), world.unique("asked"));
    let class = world.class_with("brownfield", "Delete", &[("bucketName", &given)]).await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim_with("greedy", json!({ "storageClassName": class, "bucketName": asked })).await;
    assert_contains(&world.wait_reason("greedy", "BucketNotOfClass").await, &["spec.bucketName", &given, &asked]);
    assert!(world.aws.names().is_empty());
}

/// The claim stays unbound.
#[tokio::test]
async fn a_denied_iam_never_shares_the_provisioning_keys() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let denied = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>User: arn:aws:iam::1:user/owner is not authorized to perform: iam:CreateUser</Message></Error></ErrorResponse>";
    world.aws.inject(move |call| match call.name.as_str() {
        "CreateUser" => Verdict::Answer(403, denied.to_owned()),
        _ => Verdict::Pass,
    });
    let _operator = Operator::start(&world, Kind::InProcess).await;
    let uid = world.claim("photos", &class).await.uid().unwrap();
    assert_contains(
        &world.wait_reason("photos", "AccessDenied").await,
        &["CreateUser", "iam:CreateUser", &format!("{}/owner", world.namespace)],
    );
    assert!(world.secrets().get_opt("photos").await.unwrap().is_none());
    assert_ne!(phase(&world.claims().get("photos").await.unwrap()), Some(ClaimPhase::Bound));
    // What was created before the refusal is deleted with the claim.
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    assert!(world.account.buckets_with(&uid).await.is_empty());
}

#[tokio::test]
async fn a_denied_s3_names_the_permission_that_is_missing() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let denied = "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>";
    world.aws.inject(move |call| match call.name.as_str() {
        "CreateBucket" => Verdict::Answer(403, denied.to_owned()),
        _ => Verdict::Pass,
    });
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    assert_contains(&world.wait_reason("photos", "AccessDenied").await, &["s3:CreateBucket", "s3:TagResource"]);
}

/// And the claim can be deleted.
#[rstest]
#[case::unknown_key("InvalidAccessKeyId")]
#[case::wrong_secret("SignatureDoesNotMatch")]
#[tokio::test]
async fn refused_provisioning_keys_are_named(#[case] code: &str) {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let refused = format!("<Error><Code>{code}</Code><Message>refused</Message></Error>");
    world.aws.inject(move |_| Verdict::Answer(403, refused.clone()));
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    assert_contains(
        &world.wait_reason("photos", "CredentialsRefused").await,
        &[&format!("{}/owner", world.namespace), code],
    );
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
}

#[tokio::test]
async fn an_edit_of_a_bound_claim_is_refused_by_the_crd() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    world.wait_bound("photos").await;
    for (field, value) in [("storageClassName", "other"), ("generateBucketName", "pho"), ("objectBucketName", "other")]
    {
        let edit = Patch::Merge(json!({ "spec": { field: value } }));
        let refused = world.claims().patch("photos", &PatchParams::default(), &edit).await.unwrap_err();
        assert_contains(&refused.to_string(), &[&format!("spec.{field}"), "cannot be changed"]);
    }
    let edit = Patch::Merge(json!({ "spec": { "bucketName": "photos-other" } }));
    let refused = world.claims().patch("photos", &PatchParams::default(), &edit).await.unwrap_err();
    assert_contains(&refused.to_string(), &["spec.bucketName cannot be changed"]);
}

#[tokio::test]
async fn an_edit_that_the_crd_lets_pass_is_reported_and_ignored() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let other = world.class("other").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    world.wait_bound("photos").await;
    // Dropping the operator's own field lifts the CRD's guard; other CRDs have none.
    operator.stop().await;
    let mut claim = world.claims().get("photos").await.unwrap();
    claim.spec.object_bucket_name = None;
    claim.metadata.managed_fields = None;
    world.claims().replace("photos", &PostParams::default(), &claim).await.unwrap();
    let edit = Patch::Merge(json!({ "spec": { "storageClassName": other } }));
    world.claims().patch("photos", &PatchParams::default(), &edit).await.unwrap();
    let _operator = Operator::start(&world, Kind::InProcess).await;
    let edited = |claim: &ObjectBucketClaim| condition(claim, "UpToDate").is_some_and(|c| c.reason == "EditIgnored");
    let claim = world.wait_claim("photos", "reported as edited", edited).await;
    assert_contains(
        &condition(&claim, "UpToDate").unwrap().message,
        &["spec.storageClassName", &other, &class, "has no effect", "create a new claim"],
    );
    assert_eq!(phase(&claim), Some(ClaimPhase::Bound));
}

#[tokio::test]
async fn a_malformed_claim_is_reported_and_delays_no_other() {
    let other = OtherCluster::take().await;
    // Our CRD lets nothing of that in; those that others installed do.
    let [mut claims, records] = ours();
    let schema = &mut claims["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema.as_object_mut().unwrap().remove("required");
    schema["properties"]["spec"] = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    other.install(&[claims, records]).await;
    let world = other.world().await;
    let class = world.class("greenfield").await;
    let resource = ApiResource::erase::<ObjectBucketClaim>(&());
    let raw: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), &world.namespace, &resource);
    let object = |name: &str, rest: serde_json::Value| {
        let mut object =
            json!({ "apiVersion": resource.api_version, "kind": resource.kind, "metadata": { "name": name } });
        object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        serde_json::from_value::<DynamicObject>(object).unwrap()
    };
    let wrong = json!({ "spec": { "storageClassName": class, "generateBucketName": 7 } });

    raw.create(&PostParams::default(), &object("wrong", wrong)).await.unwrap();
    raw.create(&PostParams::default(), &object("empty", json!({}))).await.unwrap();
    let foreign = json!({ "spec": { "storageClassName": world.unique("foreign"), "bucketName": ["a"] } });
    world
        .create_class(json!({ "metadata": { "name": world.unique("foreign") }, "provisioner": "example.com/other" }))
        .await;
    raw.create(&PostParams::default(), &object("foreign", foreign)).await.unwrap();

    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("right", &class).await;
    world.wait_bound("right").await;
    let message = |name: &'static str| {
        let raw = raw.clone();
        async move {
            let reason = |claim: Option<&DynamicObject>| {
                let reason = claim.and_then(|claim| claim.data.pointer("/status/conditions/0/reason"));
                reason.is_some_and(|reason| reason != "Pending")
            };
            let claim = seen(&raw, name, reason).await;
            let claim = claim.unwrap_or_else(|_| panic!("{name} has no condition")).unwrap();
            let condition = claim.data.pointer("/status/conditions/0").unwrap().clone();
            assert_eq!(condition["reason"], "ClaimUnreadable");
            condition["message"].as_str().unwrap().to_owned()
        }
    };
    assert_contains(&message("wrong").await, &["7", "string", "correct spec"]);
    assert_contains(&message("empty").await, &["spec"]);
    let foreign = raw.get("foreign").await.unwrap();
    let reason = foreign.data.pointer("/status/conditions/0/reason").unwrap();
    assert_eq!(reason, "Pending", "another provisioner's claim is left alone");
    assert!(foreign.data.pointer("/status/phase").is_none());
}
