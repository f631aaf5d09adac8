//! What the Go provisioner left in a cluster and in AWS, up to any of its steps.

use aws_sdk_iam::types::AccessKey;
use kube::api::{DynamicObject, PostParams};
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value, json};

use crate::support::{World, api_of};

fn fixture(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

/// What exists in a cluster and in AWS after the Go provisioner bound the claim `c2`.
pub(crate) struct Legacy {
    pub(crate) bucket: String,
    pub(crate) user: String,
    pub(crate) policy: String,
}

/// How far the Go provisioner came. It wrote the Secret, the ConfigMap, the ObjectBucket, its status, the claim, and
/// the claim's status, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reached {
    Taken,
    Outputs,
    Record,
    RecordBound,
    ClaimNamed,
    ClaimBound,
}

/// How the 2019 and the later libraries spell the sign of binding.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Spelling {
    Upper,
    Lower,
}

/// A name that the Go provisioner generated: the claim's prefix and a UUID.
pub(crate) fn generated(world: &World) -> String {
    format!("b2-{}-0000-4ac0-973e-c511e96cabe8", &world.id[..8])
}

impl Legacy {
    pub(crate) async fn install(world: &World, class: &str, spelling: Spelling) -> Self {
        Self::install_up_to(world, class, spelling, Reached::ClaimBound).await
    }

    pub(crate) async fn install_up_to(world: &World, class: &str, spelling: Spelling, reached: Reached) -> Self {
        let (legacy, key) = Self::create_in_aws(world).await;
        let uid = create(world, &legacy.claim(world, class, spelling, reached)).await;
        if reached >= Reached::Record {
            create(world, &legacy.record(world, class, &uid, reached)).await;
        }
        if reached >= Reached::Outputs {
            for output in legacy.outputs(world, &uid, &key) {
                create(world, &output).await;
            }
        }
        legacy
    }

    /// The bucket, and a user with a policy and a key of its own.
    async fn create_in_aws(world: &World) -> (Self, AccessKey) {
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
        (Self { bucket, user, policy }, key)
    }

    fn claim(&self, world: &World, class: &str, spelling: Spelling, reached: Reached) -> Value {
        let mut claim = fixture(include_str!("../fixtures/go-provisioner/obc.yaml"));
        settle(world, &mut claim);
        let spec = claim["spec"].as_object_mut().unwrap();
        spec.insert("storageClassName".into(), json!(class));
        spec.remove("ObjectBucketName");
        spec.remove("bucketName");
        if reached >= Reached::ClaimNamed {
            let field = match spelling {
                Spelling::Upper => "ObjectBucketName",
                Spelling::Lower => "objectBucketName",
            };
            spec.insert("bucketName".into(), json!(self.bucket));
            spec.insert(field.into(), json!(world.record_name("c2")));
        }
        if reached < Reached::ClaimBound {
            claim["status"] = json!({ "phase": "Pending" });
        }
        claim
    }

    fn record(&self, world: &World, class: &str, uid: &str, reached: Reached) -> Value {
        let mut record = fixture(include_str!("../fixtures/go-provisioner/ob.yaml"));
        settle(world, &mut record);
        record["metadata"]["name"] = json!(world.record_name("c2"));
        record["spec"]["storageClassName"] = json!(class);
        record["spec"]["additionalState"] = json!({ "ARN": self.policy, "UserName": self.user });
        record["spec"]["endpoint"]["bucketName"] = json!(self.bucket);
        record["spec"]["claimRef"]["namespace"] = json!(world.namespace);
        record["spec"]["claimRef"]["uid"] = json!(uid);
        if reached < Reached::RecordBound {
            record.as_object_mut().unwrap().remove("status");
        }
        record
    }

    /// The Secret and the ConfigMap.
    fn outputs(&self, world: &World, uid: &str, key: &AccessKey) -> Vec<Value> {
        let mut outputs = fixture(include_str!("../fixtures/go-provisioner/cm-secret.yaml"));
        let outputs = outputs["items"].as_array_mut().unwrap();
        for output in outputs.iter_mut() {
            settle(world, output);
            output["metadata"]["ownerReferences"][0]["uid"] = json!(uid);
            if output["kind"] == "Secret" {
                output.as_object_mut().unwrap().remove("data");
                output["stringData"] = json!({
                    "AWS_ACCESS_KEY_ID": key.access_key_id,
                    "AWS_SECRET_ACCESS_KEY": key.secret_access_key,
                });
            } else {
                output["data"]["BUCKET_NAME"] = json!(self.bucket);
            }
        }
        std::mem::take(outputs)
    }

    pub(crate) async fn assert_gone(&self, world: &World) {
        assert!(!world.account.bucket_exists(&self.bucket).await);
        assert!(!world.account.user_exists(&self.user).await);
        assert!(!self.policy_exists(world).await);
    }

    pub(crate) async fn policy_exists(&self, world: &World) -> bool {
        world.account.iam.get_policy().policy_arn(&self.policy).send().await.is_ok()
    }
}

/// Makes an object of the fixtures one of this world. What a server sets is left out.
fn settle(world: &World, object: &mut Value) {
    let metadata = object["metadata"].as_object_mut().unwrap();
    for set_by_the_server in ["creationTimestamp", "generation", "resourceVersion", "uid", "annotations"] {
        metadata.remove(set_by_the_server);
    }
    let label = world.provisioner.replace('/', "-");
    metadata.insert("labels".into(), json!({ "bucket-provisioner": label }));
    if metadata.contains_key("namespace") {
        metadata.insert("namespace".into(), json!(world.namespace));
    }
}

/// Creates an object as the Go provisioner left it, status and all; returns its uid.
pub(crate) async fn create(world: &World, object: &Value) -> String {
    let status = object.get("status").cloned();
    let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    let api = api_of(&world.client, &object);
    let mut created = api.create(&PostParams::default(), &object).await.unwrap();
    let uid = created.meta().uid.clone().unwrap();
    if let Some(status) = status {
        // It replaced the status, together with the condition that our CRD begins with.
        created.data["status"] = status;
        api.replace_status(&object.name_any(), &PostParams::default(), &created).await.unwrap();
    }
    uid
}
