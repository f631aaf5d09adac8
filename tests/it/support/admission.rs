//! The ValidatingAdmissionPolicies that the chart ships. They apply to all namespaces, so each test has its own, with the
//! label and the ServiceAccount of its world, which no other test has.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::shipped::apply;
use super::{PATIENCE, World, api_of};

const API: &str = "admissionregistration.k8s.io/v1";
const RBAC: &str = "rbac.authorization.k8s.io";
const FOLDER: &str = "deploy/helm/aws-s3-provisioner/files/admission-policies";

/// What the chart's values say of an operator.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Values<'a> {
    /// Its ServiceAccount, as the API server calls it.
    pub(crate) operator: &'a str,
    /// `watchNamespaces`, with commas.
    pub(crate) watched: &'a str,
    /// `admissionPolicies.finalizers.allowedGroups`.
    pub(crate) groups: &'a [&'a str],
}

/// A policy that the API server enforces.
pub(crate) struct Policy {
    pub(crate) name: String,
    objects: [Value; 2],
}

impl Policy {
    /// Applies one of the policies under a name of this world.
    async fn apply(world: &World, file: &str, values: &Values<'_>) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER).join(format!("{file}.yaml"));
        let watched: Vec<_> = values.watched.split(',').filter(|name| !name.is_empty()).collect();
        // As templates/admissionpolicies.yaml does.
        let spec = std::fs::read_to_string(path)
            .unwrap()
            .replace("OPERATOR-USER", values.operator)
            .replace("PROVISIONER-LABEL", &label(world))
            .replace("WATCHED-NAMESPACES", &json!(watched).to_string())
            .replace("ALLOWED-GROUPS", &json!(values.groups).to_string());
        let spec: Value = serde_saphyr::from_str(&spec).unwrap();
        let name = world.unique(file);
        let object = |kind: &str, spec: Value| json!({ "apiVersion": API, "kind": kind, "metadata": { "name": name }, "spec": spec });
        let binding = json!({ "policyName": name, "validationActions": ["Deny", "Audit"] });
        let objects = [object("ValidatingAdmissionPolicy", spec), object("ValidatingAdmissionPolicyBinding", binding)];
        for object in &objects {
            apply(&world.client, object).await;
        }
        Self { name, objects }
    }

    /// Applies the policy about finalizers, and waits until it is enforced.
    pub(crate) async fn finalizers(world: &World, values: &Values<'_>) -> Self {
        let policy = Self::apply(world, "finalizers", values).await;
        let probe = held(world, "ObjectBucket", "probe");
        let (admin, operator) = (cluster_admin(world).await, acting_as(world, values.operator, &[]));
        create(&world.client, &probe).await.unwrap();
        policy.until_refused(async || patch(&admin, &probe, &unfinalized(), DryRun::Yes).await).await;
        // A new role takes a moment, too.
        until("the operator has its role", async || patch(&operator, &probe, &unfinalized(), DryRun::No).await.is_ok())
            .await;
        delete(&world.client, &probe, DryRun::No).await.unwrap();
        policy
    }

    /// Applies the policy about outputs, and waits until it is enforced.
    pub(crate) async fn outputs(world: &World, values: &Values<'_>) -> Self {
        let policy = Self::apply(world, "outputs", values).await;
        let operator = acting_as(world, values.operator, &[]);
        let probe = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "probe", "namespace": world.namespace },
        });
        policy.until_refused(async || dry_create(&operator, &probe).await).await;
        policy
    }

    /// Repeats a request until this policy refuses it: until then roles may be missing, or the policy.
    async fn until_refused<T>(&self, request: impl AsyncFn() -> Result<T, kube::Error>) {
        until(&self.name, async || self.refusal(request().await.err().as_ref()).is_some()).await;
    }

    /// The message with which this policy refused a request.
    fn refusal<'a>(&self, error: Option<&'a kube::Error>) -> Option<&'a str> {
        let Some(kube::Error::Api(status)) = error else { return None };
        let is_ours =
            status.code == 403 && status.message.contains(&format!("ValidatingAdmissionPolicy '{}'", self.name));
        is_ours.then_some(&status.message)
    }

    /// Requires that this policy refused a request; returns its message.
    #[track_caller]
    pub(crate) fn refused<T>(&self, answer: Result<T, kube::Error>) -> String {
        let error = answer.err();
        let message = self.refusal(error.as_ref());
        message.unwrap_or_else(|| panic!("not refused by {}: {error:?}", self.name)).to_owned()
    }

    /// Removes it, so that the API server does not evaluate it for other tests.
    pub(crate) async fn remove(self, client: &Client) {
        for object in self.objects.iter().rev() {
            delete(client, object, DryRun::No).await.unwrap();
        }
    }
}

/// Whether a request changes something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DryRun {
    Yes,
    No,
}

/// The value of the label `bucket-provisioner` in a world.
pub(crate) fn label(world: &World) -> String {
    bucket_provisioner::api::wire::provisioner_label(&world.provisioner)
}

/// An ObjectBucketClaim or ObjectBucket as the world's operator keeps it: with label and finalizer.
pub(crate) fn held(world: &World, kind: &str, name: &str) -> Value {
    let metadata =
        json!({ "labels": { "bucket-provisioner": label(world) }, "finalizers": ["objectbucket.io/finalizer"] });
    let mut object = json!({ "apiVersion": "objectbucket.io/v1alpha1", "kind": kind, "metadata": metadata });
    if kind == "ObjectBucket" {
        object["metadata"]["name"] = json!(world.unique(name));
        object["spec"] = json!({ "additionalState": { "claimNamespace": world.namespace } });
    } else {
        object["metadata"]["name"] = json!(name);
        object["metadata"]["namespace"] = json!(world.namespace);
        // Without a class that exists, no operator serves it.
        object["spec"] = json!({ "storageClassName": world.unique("none") });
    }
    object
}

/// A merge patch that removes all finalizers.
pub(crate) fn unfinalized() -> Patch<Value> {
    Patch::Merge(json!({ "metadata": { "finalizers": null } }))
}

/// A client that impersonates a user.
pub(crate) fn acting_as(world: &World, user: &str, groups: &[&str]) -> Client {
    let mut config = world.cluster.clone();
    config.auth_info.impersonate = Some(user.to_owned());
    let groups: Vec<_> = groups.iter().map(|group| (*group).to_owned()).collect();
    config.auth_info.impersonate_groups = (!groups.is_empty()).then_some(groups);
    Client::try_from(config).unwrap()
}

/// A user who may do everything, and who is in no group that does not check permissions.
pub(crate) async fn cluster_admin(world: &World) -> Client {
    let user = world.unique("admin");
    bind(world, None, "cluster-admin", &user).await;
    acting_as(world, &user, &[])
}

/// Creates a ClusterRole with these rules, binds a user to it, in a namespace or in all of them, and waits until the API
/// server knows.
pub(crate) async fn grant(world: &World, namespace: Option<&str>, rules: &[Value], user: &str) {
    let role = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": { "name": user }, "rules": rules,
    });
    apply(&world.client, &role).await;
    bind(world, namespace, user, user).await;
    let rule = &rules[0];
    let review = json!({ "spec": { "user": user, "resourceAttributes": {
        "namespace": namespace, "group": rule["apiGroups"][0], "resource": rule["resources"][0], "verb": rule["verbs"][0],
    }}});
    let review: SubjectAccessReview = serde_json::from_value(review).unwrap();
    let reviews: Api<SubjectAccessReview> = Api::all(world.client.clone());
    until(user, async || {
        let answer = reviews.create(&PostParams::default(), &review).await.unwrap();
        answer.status.unwrap().allowed
    })
    .await;
}

/// Repeats a check until it succeeds.
async fn until(what: &str, check: impl AsyncFn() -> bool) {
    let succeeded = async {
        while !check().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, succeeded).await.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"));
}

/// Binds a user to a ClusterRole, in a namespace or in all of them.
async fn bind(world: &World, namespace: Option<&str>, role: &str, user: &str) {
    let kind = if namespace.is_some() { "RoleBinding" } else { "ClusterRoleBinding" };
    let binding = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": kind,
        "metadata": { "name": user, "namespace": namespace },
        "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": role },
        "subjects": [{ "apiGroup": RBAC, "kind": "User", "name": user }],
    });
    apply(&world.client, &binding).await;
}

/// Creates an object.
pub(crate) async fn create(client: &Client, object: &Value) -> Result<DynamicObject, kube::Error> {
    create_with(client, object, DryRun::No).await
}

/// Has the API server check whether an object can be created.
pub(crate) async fn dry_create(client: &Client, object: &Value) -> Result<DynamicObject, kube::Error> {
    create_with(client, object, DryRun::Yes).await
}

async fn create_with(client: &Client, object: &Value, dry: DryRun) -> Result<DynamicObject, kube::Error> {
    let object = dynamic(object);
    let params = PostParams { dry_run: dry == DryRun::Yes, ..PostParams::default() };
    api_of(client, &object).create(&params, &object).await
}

/// Patches an object.
pub(crate) async fn patch(
    client: &Client,
    object: &Value,
    patch: &Patch<Value>,
    dry: DryRun,
) -> Result<DynamicObject, kube::Error> {
    let object = dynamic(object);
    let params = match patch {
        Patch::Apply(_) => PatchParams::apply("tests").force(),
        _ => PatchParams::default(),
    };
    let params = PatchParams { dry_run: dry == DryRun::Yes, ..params };
    api_of(client, &object).patch(&object.name_any(), &params, patch).await
}

/// Deletes an object.
pub(crate) async fn delete(client: &Client, object: &Value, dry: DryRun) -> Result<(), kube::Error> {
    let object = dynamic(object);
    let params = DeleteParams { dry_run: dry == DryRun::Yes, ..DeleteParams::default() };
    api_of(client, &object).delete(&object.name_any(), &params).await.map(drop)
}

/// Reads an object.
pub(crate) async fn read(client: &Client, object: &Value) -> Result<Option<DynamicObject>, kube::Error> {
    let object = dynamic(object);
    api_of(client, &object).get_opt(&object.name_any()).await
}

fn dynamic(object: &Value) -> DynamicObject {
    serde_json::from_value(object.clone()).unwrap()
}
