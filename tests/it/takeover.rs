//! Taking over from the Go provisioner: objects as it wrote them (`fixtures/go-provisioner`), with their AWS
//! side.

use bucket_provisioner::controller::Options;
use kube::ResourceExt as _;
use kube::api::{DynamicObject, PostParams};
use kube::core::ApiResource;
use kube::{Api, Resource as _};
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::operator::{Kind, Operator};
use crate::support::other::{OtherCluster, fixture_crds};
use crate::support::{World, bucket_of};

fn fixture(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

/// What stands in a cluster and in AWS after the Go provisioner bound the claim `c2`.
struct Legacy {
    bucket: String,
    user: String,
    policy: String,
}

/// How far the Go provisioner came. It wrote the Secret, the ConfigMap, the record, its status, the claim, and the
/// claim's status, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reached {
    Taken,
    Outputs,
    Record,
    RecordBound,
    ClaimNamed,
    ClaimBound,
}

/// How the 2019 and the later libraries spell the sign of binding.
#[derive(Debug, Clone, Copy)]
enum Spelling {
    Upper,
    Lower,
}

/// A name that the Go provisioner generated: the claim's prefix and a UUID.
fn generated(world: &World) -> String {
    format!("b2-{}-0000-4ac0-973e-c511e96cabe8", &world.id[..8])
}

impl Legacy {
    async fn install(world: &World, class: &str, spelling: Spelling) -> Self {
        Self::install_up_to(world, class, spelling, Reached::ClaimBound).await
    }

    async fn install_up_to(world: &World, class: &str, spelling: Spelling, reached: Reached) -> Self {
        let mut claim = fixture(include_str!("fixtures/go-provisioner/obc.yaml"));
        let mut record = fixture(include_str!("fixtures/go-provisioner/ob.yaml"));
        let outputs = fixture(include_str!("fixtures/go-provisioner/cm-secret.yaml"));
        let label = world.provisioner.replace('/', "-");
        let bucket = generated(world);
        let user = format!("{bucket}-wb4Vy");

        world.account.create_bucket(&bucket).await;
        let iam = &world.account.iam;
        iam.create_user().user_name(&user).send().await.unwrap();
        let document = json!({ "Version": "2012-10-17", "Statement": [{
            "Effect": "Allow", "Action": "s3:*",
            "Resource": [format!("arn:aws:s3:::{bucket}"), format!("arn:aws:s3:::{bucket}/*")],
        }]});
        let policy = iam.create_policy().policy_name(&user).policy_document(document.to_string()).send().await.unwrap();
        let policy = policy.policy.unwrap().arn.unwrap();
        iam.attach_user_policy().user_name(&user).policy_arn(&policy).send().await.unwrap();
        let key = iam.create_access_key().user_name(&user).send().await.unwrap().access_key.unwrap();

        let metadata = |object: &mut Value| {
            let metadata = object["metadata"].as_object_mut().unwrap();
            for set_by_the_server in ["creationTimestamp", "generation", "resourceVersion", "uid", "annotations"] {
                metadata.remove(set_by_the_server);
            }
            metadata.insert("labels".into(), json!({ "bucket-provisioner": label }));
            if metadata.contains_key("namespace") {
                metadata.insert("namespace".into(), json!(world.namespace));
            }
        };
        metadata(&mut claim);
        claim["spec"]["storageClassName"] = json!(class);
        let name = format!("obc-{}-c2", world.namespace);
        claim["spec"].as_object_mut().unwrap().remove("ObjectBucketName");
        let field = match spelling {
            Spelling::Upper => "ObjectBucketName",
            Spelling::Lower => "objectBucketName",
        };
        let spec = claim["spec"].as_object_mut().unwrap();
        spec.remove("bucketName");
        if reached >= Reached::ClaimNamed {
            spec.insert("bucketName".into(), json!(bucket));
            spec.insert(field.into(), json!(name));
        }
        if reached < Reached::ClaimBound {
            claim["status"] = json!({ "phase": "Pending" });
        }
        let uid = create(world, &claim).await;

        metadata(&mut record);
        record["metadata"]["name"] = json!(name);
        record["spec"]["storageClassName"] = json!(class);
        record["spec"]["additionalState"] = json!({ "ARN": policy, "UserName": user });
        record["spec"]["endpoint"]["bucketName"] = json!(bucket);
        record["spec"]["claimRef"]["namespace"] = json!(world.namespace);
        record["spec"]["claimRef"]["uid"] = json!(uid);
        if reached < Reached::RecordBound {
            record.as_object_mut().unwrap().remove("status");
        }
        if reached >= Reached::Record {
            create(world, &record).await;
        }

        let no_outputs = vec![];
        let outputs = if reached >= Reached::Outputs { outputs["items"].as_array().unwrap() } else { &no_outputs };
        for output in outputs {
            let mut output = output.clone();
            metadata(&mut output);
            output["metadata"]["ownerReferences"][0]["uid"] = json!(uid);
            if output["kind"] == "Secret" {
                output.as_object_mut().unwrap().remove("data");
                output["stringData"] = json!({
                    "AWS_ACCESS_KEY_ID": key.access_key_id,
                    "AWS_SECRET_ACCESS_KEY": key.secret_access_key,
                });
            } else {
                output["data"]["BUCKET_NAME"] = json!(bucket);
            }
            create(world, &output).await;
        }
        Self { bucket, user, policy }
    }

    async fn assert_gone(&self, world: &World) {
        assert!(!world.account.bucket_exists(&self.bucket).await);
        assert!(!world.account.user_exists(&self.user).await);
        assert!(!self.policy_exists(world).await);
    }

    async fn policy_exists(&self, world: &World) -> bool {
        world.account.iam.get_policy().policy_arn(&self.policy).send().await.is_ok()
    }
}

/// Creates an object as the Go provisioner left it, status and all; returns its uid.
async fn create(world: &World, object: &Value) -> String {
    let status = object.get("status").cloned();
    let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    let types = object.types.clone().unwrap();
    let (group, version) = types.api_version.split_once('/').unwrap_or(("", &types.api_version));
    let gvk = kube::core::GroupVersionKind::gvk(group, version, &types.kind);
    let resource = ApiResource::from_gvk(&gvk);
    let api: Api<DynamicObject> = match object.namespace() {
        Some(namespace) => Api::namespaced_with(world.client.clone(), &namespace, &resource),
        None => Api::all_with(world.client.clone(), &resource),
    };
    let created = api.create(&PostParams::default(), &object).await.unwrap();
    if let Some(status) = status {
        let patch = kube::api::Patch::Merge(json!({ "status": status }));
        api.patch_status(&object.name_any(), &Default::default(), &patch).await.unwrap();
    }
    created.meta().uid.clone().unwrap()
}

async fn versions(world: &World) -> Vec<Option<String>> {
    vec![
        world.claims().get("c2").await.unwrap().resource_version(),
        world.records().get(&world.record_name("c2")).await.unwrap().resource_version(),
        world.secrets().get("c2").await.unwrap().resource_version(),
        world.config_maps().get("c2").await.unwrap().resource_version(),
    ]
}

#[rstest]
#[case::spelled_in_2019(Spelling::Upper)]
#[case::spelled_later(Spelling::Lower)]
#[tokio::test]
async fn what_the_go_provisioner_bound_is_left_as_it_is_and_deleted_completely_on_request(#[case] spelling: Spelling) {
    let world = World::new().await;
    let class = world.class("legacy").await;
    let legacy = Legacy::install(&world, &class, spelling).await;
    world.app("c2").await.put(&legacy.bucket, "a").await.unwrap();
    let before = versions(&world).await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("new", &class).await;
    world.wait_bound("new").await;
    if let Spelling::Lower = spelling {
        assert_eq!(versions(&world).await, before, "nothing is written");
    }
    let of_legacy = |name: &str| world.aws.calls().iter().any(|call| call.target.contains(name));
    assert!(!of_legacy(&legacy.bucket), "AWS is not asked: {:#?}", world.aws.calls());

    world.delete_claim("c2").await;
    world.wait_gone("c2").await;
    world.assert_no_objects("c2").await;
    legacy.assert_gone(&world).await;
}

#[tokio::test]
async fn with_its_class_gone_the_access_goes_and_the_bucket_stays_and_that_is_said() {
    let world = World::new().await;
    let legacy = Legacy::install(&world, &world.unique("gone"), Spelling::Lower).await;
    world.app("c2").await.put(&legacy.bucket, "kept").await.unwrap();
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.delete_claim("c2").await;
    world.wait_gone("c2").await;
    world.assert_no_objects("c2").await;
    assert!(!world.account.user_exists(&legacy.user).await);
    assert!(!legacy.policy_exists(&world).await);
    assert_eq!(world.account.list(&legacy.bucket).await.unwrap(), ["kept"]);
    let (type_, note) = world.wait_event("c2", "LeftInPlace").await;
    assert_eq!(type_, "Warning");
    assert!(note.contains(&legacy.bucket) && note.contains("is gone"), "{note}");
}

#[tokio::test]
async fn a_bucket_that_the_class_names_was_granted_and_stays() {
    let world = World::new().await;
    let bucket = generated(&world);
    let class = world.class_with("brownfield", "Delete", &[("bucketName", &bucket)]).await;
    let legacy = Legacy::install(&world, &class, Spelling::Lower).await;
    world.app("c2").await.put(&legacy.bucket, "kept").await.unwrap();
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.delete_claim("c2").await;
    world.wait_gone("c2").await;
    assert!(!world.account.user_exists(&legacy.user).await);
    assert_eq!(world.account.list(&legacy.bucket).await.unwrap(), ["kept"]);
}

/// Why a bucket of the Go provisioner stays although its class names none today.
#[derive(Debug, Clone, Copy)]
enum Doubt {
    /// The claim chose the name. Another claim, or an admin, may have made the bucket before.
    ChosenName,
    /// Somebody put tags on it.
    Tags,
}

#[rstest]
#[case(Doubt::ChosenName)]
#[case(Doubt::Tags)]
#[tokio::test]
async fn a_bucket_that_nothing_proves_to_be_created_for_its_claim_stays_and_that_is_said(#[case] doubt: Doubt) {
    let world = World::new().await;
    let class = world.class("legacy").await;
    let legacy = Legacy::install(&world, &class, Spelling::Lower).await;
    world.app("c2").await.put(&legacy.bucket, "kept").await.unwrap();
    let spec = match doubt {
        Doubt::ChosenName => json!({ "generateBucketName": null }),
        Doubt::Tags => json!({}),
    };
    if let Doubt::Tags = doubt {
        world.account.tag_bucket(&legacy.bucket, &[("team", "ledger")]).await;
    }
    let edit = kube::api::Patch::Merge(json!({ "spec": spec }));
    world.claims().patch("c2", &Default::default(), &edit).await.unwrap();
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.delete_claim("c2").await;
    world.wait_gone("c2").await;
    world.assert_no_objects("c2").await;
    assert!(!world.account.user_exists(&legacy.user).await);
    assert_eq!(world.account.list(&legacy.bucket).await.unwrap(), ["kept"]);
    let (type_, note) = world.wait_event("c2", "LeftInPlace").await;
    assert!(type_ == "Warning" && note.contains(&legacy.bucket), "{note}");
    let (_, note) = world.wait_event("c2", "Removed").await;
    assert!(note.contains("access is deleted") && !note.contains("is deleted with all"), "{note}");
}

#[tokio::test]
async fn a_secret_of_the_go_provisioner_that_is_deleted_comes_back_with_a_new_key() {
    let world = World::new().await;
    let class = world.class("legacy").await;
    let legacy = Legacy::install(&world, &class, Spelling::Lower).await;
    let old = world.environment("c2").await["AWS_ACCESS_KEY_ID"].clone();
    let _operator = Operator::start(&world, Kind::InProcess).await;
    let unfinalized = kube::api::Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    world.secrets().patch("c2", &Default::default(), &unfinalized).await.unwrap();
    world.secrets().delete("c2", &Default::default()).await.unwrap();
    world.wait_secret("c2", |keys| keys["AWS_ACCESS_KEY_ID"] != old).await;
    world.app("c2").await.put(&legacy.bucket, "a").await.unwrap();
    assert_eq!(world.account.keys(&legacy.user).await.len(), 1);
}

#[rstest]
#[case(Reached::Record)]
#[case(Reached::RecordBound)]
#[case(Reached::ClaimNamed)]
#[tokio::test]
async fn what_the_go_provisioner_recorded_and_did_not_bind_is_finished(#[case] reached: Reached) {
    let world = World::new().await;
    let class = world.class("legacy").await;
    let legacy = Legacy::install_up_to(&world, &class, Spelling::Lower, reached).await;
    world.app("c2").await.put(&legacy.bucket, "kept").await.unwrap();
    let key = world.environment("c2").await["AWS_ACCESS_KEY_ID"].clone();
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_bound("c2").await;
    assert_eq!(world.environment("c2").await["BUCKET_NAME"], legacy.bucket);
    assert_eq!(world.environment("c2").await["AWS_ACCESS_KEY_ID"], key);
    assert_eq!(world.account.list(&legacy.bucket).await.unwrap(), ["kept"]);

    world.delete_claim("c2").await;
    world.wait_gone("c2").await;
    world.assert_no_objects("c2").await;
    legacy.assert_gone(&world).await;
}

/// Nothing proves that what has no record is the claim's: not even its name, which the claim's user can write into
/// the ConfigMap.
#[rstest]
#[case::and_goes_on(false)]
#[case::and_is_deleted(true)]
#[tokio::test]
async fn a_claim_that_the_go_provisioner_began_is_served_anew_and_what_is_in_no_record_is_named(#[case] delete: bool) {
    let world = World::new().await;
    let class = world.class("legacy").await;
    let legacy = Legacy::install_up_to(&world, &class, Spelling::Lower, Reached::Outputs).await;
    let uid = world.claims().get("c2").await.unwrap().uid().unwrap();
    if delete {
        world.delete_claim("c2").await;
    }
    let _operator = Operator::start(&world, Kind::InProcess).await;
    if !delete {
        let bucket = bucket_of(&world.wait_bound("c2").await);
        assert_ne!(bucket, legacy.bucket);
        world.app("c2").await.put(&bucket, "a").await.unwrap();
        assert_eq!(world.account.users_with(&uid).await.len(), 1);
    }
    let (type_, note) = world.wait_event("c2", "LeftInPlace").await;
    assert_eq!(type_, "Warning");
    assert!(note.contains(&legacy.bucket), "{note}");
    if !delete {
        world.delete_claim("c2").await;
    }
    world.wait_gone("c2").await;
    world.assert_no_objects("c2").await;
    assert!(world.account.bucket_exists(&legacy.bucket).await);
    assert!(world.account.user_exists(&legacy.user).await);
    assert!(world.account.users_with(&uid).await.is_empty());
    assert!(world.account.buckets_with(&uid).await.is_empty());
}

#[tokio::test]
async fn a_claim_that_the_go_provisioner_only_took_on_is_served_as_any_other() {
    let world = World::new().await;
    let class = world.class("legacy").await;
    Legacy::install_up_to(&world, &class, Spelling::Lower, Reached::Taken).await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    let bucket = bucket_of(&world.wait_bound("c2").await);
    world.app("c2").await.put(&bucket, "a").await.unwrap();
    world.delete_claim("c2").await;
    world.wait_gone("c2").await;
    world.assert_no_objects("c2").await;
    assert!(!world.account.bucket_exists(&bucket).await);
}

#[tokio::test]
async fn a_record_whose_claim_reference_was_pruned_is_its_claims_and_nobody_elses() {
    let other = OtherCluster::take().await;
    other.install(&fixture_crds(include_str!("fixtures/crds/phase-only.yaml"))).await;
    // `obc-t-ID-x-c2` is what both `t-ID-x/c2` and `t-ID/x-c2` are recorded under.
    let thief = other.world().await;
    let world = other.world_called(&format!("{}-x", thief.id)).await;
    let class = world.class("legacy").await;
    let legacy = Legacy::install(&world, &class, Spelling::Lower).await;
    let name = world.record_name("c2");
    let record = world.records().get(&name).await.unwrap();
    assert_eq!(record.spec.claim_ref, Some(Default::default()), "it is pruned");
    world.app("c2").await.put(&legacy.bucket, "a").await.unwrap();
    let before = versions(&world).await;

    // As like the other as a user can make it: all but younger, by one second at least.
    let claim = json!({
        "apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucketClaim",
        "metadata": {
            "name": "x-c2", "namespace": thief.namespace, "finalizers": ["objectbucket.io/finalizer"],
            "labels": { "bucket-provisioner": world.provisioner.replace('/', "-") },
        },
        "spec": { "storageClassName": class, "bucketName": legacy.bucket, "objectBucketName": name },
        "status": { "phase": "Bound" },
    });
    let born = record.creation_timestamp().unwrap();
    loop {
        create(&thief, &claim).await;
        if thief.claims().get("x-c2").await.unwrap().creation_timestamp().unwrap() > born {
            break;
        }
        let unfinalized = kube::api::Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        thief.claims().patch("x-c2", &Default::default(), &unfinalized).await.unwrap();
        thief.delete_claim("x-c2").await;
    }
    let _operator = Operator::with(&world, Options { namespace: None, ..Operator::options(&world) });
    thief.wait_event("x-c2", "AdoptionNeeded").await;
    thief.delete_claim("x-c2").await;
    thief.wait_gone("x-c2").await;
    world.claim("new", &class).await;
    world.wait_bound("new").await;
    assert_eq!(versions(&world).await, before, "nothing is written");
    assert_eq!(world.app("c2").await.list(&legacy.bucket).await.unwrap(), ["a"]);

    world.delete_claim("c2").await;
    world.wait_gone("c2").await;
    world.assert_no_objects("c2").await;
    assert!(world.records().get_opt(&name).await.unwrap().is_none());
    legacy.assert_gone(&world).await;
}

/// `team/prod-x` and `team-prod/x` have their records under one name. Where a CRD pruned the reference to the claim,
/// nothing in the record tells them apart, and what their users can write into a claim is no proof.
#[tokio::test]
async fn a_record_that_may_be_either_of_two_claims_is_acted_upon_for_neither_until_an_admin_says_whose_it_is() {
    let other = OtherCluster::take().await;
    other.install(&fixture_crds(include_str!("fixtures/crds/phase-only.yaml"))).await;
    let rival = other.world().await;
    let world = other.world_called(&format!("{}-x", rival.id)).await;
    let class = world.class("legacy").await;
    // As old as the other, or older: the Go provisioner never came to serve it, for the name was taken.
    let claim = json!({
        "apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucketClaim",
        "metadata": { "name": "x-c2", "namespace": rival.namespace },
        "spec": { "storageClassName": class, "generateBucketName": "b2" },
    });
    create(&rival, &claim).await;
    let legacy = Legacy::install(&world, &class, Spelling::Lower).await;
    world.app("c2").await.put(&legacy.bucket, "kept").await.unwrap();
    let name = world.record_name("c2");
    let _operator = Operator::with(&world, Options { namespace: None, ..Operator::options(&world) });
    world.delete_claim("c2").await;
    let (type_, note) = world.wait_event("c2", "ObjectBucketAmbiguous").await;
    assert!(type_ == "Warning" && note.contains(&name) && note.contains("claimUID"), "{note}");
    assert!(world.claims().get("c2").await.is_ok());
    assert_eq!(world.app("c2").await.list(&legacy.bucket).await.unwrap(), ["kept"]);

    let uid = world.claims().get("c2").await.unwrap().uid().unwrap();
    let said = kube::api::Patch::Merge(json!({ "spec": { "additionalState": { "claimUID": uid } } }));
    world.records().patch(&name, &Default::default(), &said).await.unwrap();
    world.wait_gone("c2").await;
    legacy.assert_gone(&world).await;
    rival
        .wait_claim("x-c2", "bound", |claim| {
            crate::support::phase(claim) == Some(bucket_provisioner::api::ClaimPhase::Bound)
        })
        .await;
}
