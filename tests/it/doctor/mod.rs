//! `doctor` against a real API server and a store: what it finds, and that it changes nothing.

mod accounts;
mod owner_role;
mod shared_secrets;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use operator_runtime::lease;
use serde_json::{Value, json};

use crate::conformance::example;
use crate::support::operator::{Binary, Kind, Operator, operator};
use crate::support::other::{OtherCluster, fixture_crds};
use crate::support::owner_policy::{Buckets, DOCTOR, PLAIN, PolicedOwner};
use crate::support::proxy::Verdict;
use crate::support::{Store, World};

/// The output of one run.
struct Examined {
    code: Option<i32>,
    text: String,
    log: String,
}

impl Examined {
    /// Runs `doctor` on the claims of the world's namespace.
    async fn text(world: &World, args: &[&str]) -> Self {
        let args = [&["doctor", "--namespace", &world.namespace], args].concat();
        Self::of(operator().args(args).output(world).await)
    }

    fn of(output: std::process::Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), text: text(output.stdout), log: text(output.stderr) }
    }

    async fn json(world: &World, args: &[&str]) -> Self {
        Self::text(world, &[&["-o", "json"], args].concat()).await
    }

    fn findings(&self) -> Vec<Value> {
        let json: Value = serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("{}\n{}", self.text, self.log));
        json["findings"].as_array().unwrap().clone()
    }

    /// The findings about this subject, or one that ends so.
    #[track_caller]
    fn about(&self, subject: &str, what: &str) -> Vec<Value> {
        let of_subject = |finding: &Value| finding["subject"].as_str().unwrap().ends_with(subject);
        self.findings().into_iter().filter(|finding| of_subject(finding) && finding["what"] == what).collect()
    }

    /// Requires a finding with this verdict, with these words in its message, and a remedy if it is needed.
    #[track_caller]
    fn assert_finds(&self, subject: &str, what: &str, verdict: &str, words: &str) {
        let about = self.about(subject, what);
        let is_so = |finding: &&Value| {
            let message = finding["message"].as_str().unwrap();
            finding["verdict"] == verdict && message.contains(words)
        };
        let found = about.iter().find(is_so);
        let found =
            found.unwrap_or_else(|| panic!("no {verdict} {what} of {subject} has {words:?}: {:#?}", self.findings()));
        assert!(verdict == "good" || found["remedy"] != "", "what to do? {found}");
    }
}

/// Where the operator of the test has its lease.
fn place(world: &World) -> [&str; 2] {
    ["--lease-namespace", &world.namespace]
}

const NO_LEASE: &str = "--leader-elect=false";

/// And nothing is changed.
#[tokio::test]
async fn a_good_installation_has_only_good_findings() {
    let world = World::new().await;
    let (archive, prefix) = (world.unique("archive"), world.unique("new-"));
    let buckets = Buckets { prefix: prefix.clone(), existing: archive.clone() };
    let _owner = PolicedOwner::limited_to(&world, &[PLAIN, DOCTOR], buckets).await;
    let parameters = [("allowedNamespaces", world.namespace.as_str()), ("bucketNamePrefix", &prefix)];
    let class = world.class_with("new", "Delete", &parameters).await;
    world.account.create_bucket(&archive).await;
    let existing = world.class_with("existing", "Retain", &[("bucketName", &archive)]).await;
    // It does not renew its lease while the test runs.
    let times = ["--leader-elect", "--lease-duration=10m", "--lease-renew-deadline=9m", "--lease-retry-period=5m"];
    let _operator = Binary::start(&world, &[&times[..], &place(&world)].concat(), &[]);
    let generated = format!("{prefix}photos");
    world.claim_with("photos", json!({ "storageClassName": class, "generateBucketName": generated })).await;
    world.wait_bound("photos").await;

    let before = world.objects().await;
    world.kubernetes.clear();
    world.aws.clear();
    let examined = Examined::json(&world, &place(&world)).await;
    assert_eq!(examined.code, Some(0), "{}\n{}", examined.text, examined.log);
    let other: Vec<_> = examined.findings().into_iter().filter(|finding| finding["verdict"] != "good").collect();
    assert!(other.is_empty(), "{other:#?}");
    let summary: Value = serde_json::from_str(&examined.text).unwrap();
    assert_eq!(summary["summary"]["good"], examined.findings().len());

    examined.assert_finds("", "version", "good", "v1.");
    for crd in ["objectbucketclaims.objectbucket.io", "objectbuckets.objectbucket.io"] {
        examined.assert_finds(crd, "variant", "good", "of this version");
    }
    let lease = lease::name(&world.provisioner, Some(&world.namespace));
    examined.assert_finds(&lease, "holder", "good", "leads");
    examined.assert_finds(&lease, "version", "good", env!("CARGO_PKG_VERSION"));
    examined.assert_finds(&class, "namespaces", "good", &format!("these namespaces may use it: {}", world.namespace));
    examined.assert_finds(&class, "permissions", "good", "IAM allows the provisioning credentials all");
    examined.assert_finds(&class, "buckets of others", "good", "cannot delete buckets of other names");
    examined.assert_finds(&class, "credentials", "good", "of account");
    examined.assert_finds(&existing, "bucket", "good", &archive);
    examined.assert_finds("", "records", "good", "the only ObjectBucket");
    examined.assert_finds("", "phases", "good", "the only claim of these classes");

    let changes = |name: &String| name != "create selfsubjectaccessreviews";
    assert_eq!(world.kubernetes.writes().into_iter().filter(changes).collect::<Vec<_>>(), [""; 0]);
    assert_eq!(world.aws.writes(), [""; 0]);
    assert!(world.aws.names().contains(&"SimulatePrincipalPolicy".to_owned()), "{:?}", world.aws.names());
    assert_eq!(world.objects().await, before);
}

/// No secret is shown.
#[tokio::test]
async fn problems_of_a_class_are_found_with_their_remedy() {
    let world = World::new().await;
    let secret = format!("hunter2-{}", world.id);
    world.owner_secret("wrong", &[("AWS_ACCESS_KEY_ID", "AKIAUNKNOWN"), ("AWS_SECRET_ACCESS_KEY", &secret)]).await;
    world.owner_secret("half", &[("AWS_ACCESS_KEY_ID", "AKIAUNKNOWN")]).await;
    let good = world.class("good").await;
    let owner_missing = world.class_with("owner-missing", "Delete", &[("secretName", "missing")]).await;
    let owner_half = world.class_with("owner-half", "Delete", &[("secretName", "half")]).await;
    let owner_wrong = world.class_with("owner-wrong", "Delete", &[("secretName", "wrong")]).await;
    let unknown = world.class_with("unknown", "Delete", &[("tier", "gold")]).await;
    let settings = [
        ("encryption", "aws-kms"),
        ("tags", "aws:team=shop"),
        ("expireAfter", "12h"),
        ("objectLock", "GOVERNANCE"),
        ("bucketVersioning", "enabled"),
        ("bucketCors", "{}"),
    ];
    let mut refused = Vec::new();
    for (key, value) in settings {
        refused.push((key, world.class_with(&key.to_lowercase(), "Delete", &[(key, value)]).await));
    }
    let (nowhere, elsewhere) = (world.unique("nowhere"), world.unique("elsewhere"));
    let bucket_missing = world.class_with("bucket-missing", "Delete", &[("bucketName", &nowhere)]).await;
    let bucket_elsewhere = world.class_with("bucket-elsewhere", "Delete", &[("bucketName", &elsewhere)]).await;
    let nobody = world.class_with("nobody", "Delete", &[("allowedNamespaces", "no-such-team-*")]).await;
    let bound = "arn:aws:iam::000000000000:policy/no-such-boundary";
    let boundary = world.class_with("boundary", "Delete", &[("permissionsBoundary", bound)]).await;
    world.aws.inject(move |call| match call.name.as_str() {
        "HeadBucket" if call.target.contains(&elsewhere) => {
            let answer = hyper::Response::builder().status(301).header("x-amz-bucket-region", "eu-west-1");
            Verdict::AnswerWith(answer.body(String::new()).unwrap())
        }
        _ => Verdict::Pass,
    });
    world.claim("lost", "no-such-class").await;

    let examined = Examined::json(&world, &[NO_LEASE]).await;
    assert_eq!(examined.code, Some(1), "{}\n{}", examined.text, examined.log);
    examined.assert_finds(&good, "credentials", "good", "accepts");
    examined.assert_finds(&owner_missing, "owner", "bad", "Secret");
    examined.assert_finds(&owner_half, "owner", "bad", "has no key AWS_SECRET_ACCESS_KEY");
    examined.assert_finds(&owner_wrong, "credentials", "bad", "AWS refused");
    examined.assert_finds(&unknown, "parameters", "bad", "unknown parameter \"tier\"");
    for (key, class) in &refused {
        examined.assert_finds(class, "parameters", "bad", key);
    }
    examined.assert_finds(&bucket_missing, "bucket", "bad", "does not exist");
    examined.assert_finds(&bucket_elsewhere, "bucket", "bad", "is in region eu-west-1");
    examined.assert_finds(&nobody, "namespaces", "warning", "\"no-such-team-*\"");
    examined.assert_finds(&nobody, "store", "warning", &format!("the same as for StorageClass {boundary:?}: identity"));
    examined.assert_finds(&boundary, "boundary", "bad", bound);
    examined.assert_finds("", "classes", "warning", "no-such-class");
    assert_eq!(world.aws.writes(), [""; 0]);

    for args in [&["-v=5", NO_LEASE][..], &["-v=5", "-o", "json", NO_LEASE]] {
        let examined = Examined::text(&world, args).await;
        assert_eq!(examined.code, Some(1));
        assert!(examined.text.contains("AWS refused") && examined.log.contains("DEBUG"), "{}", examined.log);
        assert!(!examined.text.contains(&secret) && !examined.log.contains(&secret));
    }
}

/// Credentials of a class without a Secret may be right in the pod.
#[tokio::test]
async fn what_only_the_pod_can_check_is_reported_as_unknown() {
    let world = World::new().await;
    let class = world.class_with("ambient", "Delete", &[("secretName", ""), ("secretNamespace", "")]).await;
    let examined = async |variables: &[(&str, &str)]| {
        let keys = [("AWS_ACCESS_KEY_ID", "AKIAUNKNOWN"), ("AWS_SECRET_ACCESS_KEY", "of-this-machine")];
        let program = operator().args(["doctor", "-o", "json", NO_LEASE]);
        let program = keys.iter().chain(variables).fold(program, |program, (name, value)| program.env(*name, *value));
        Examined::of(program.output(&world).await)
    };
    let outside = examined(&[]).await;
    assert_eq!(outside.code, Some(0), "{}\n{}", outside.text, outside.log);
    outside.assert_finds(&class, "owner", "unknown", "cannot be seen from here");
    outside.assert_finds(&class, "credentials", "unknown", "AWS refused");
    let in_the_pod = examined(&[("KUBERNETES_SERVICE_HOST", "10.0.0.1")]).await;
    assert_eq!(in_the_pod.code, Some(1));
    in_the_pod.assert_finds(&class, "owner", "good", "the operator's own identity");
    in_the_pod.assert_finds(&class, "credentials", "bad", "AWS refused");
}

/// In their ObjectBuckets.
#[tokio::test]
async fn problems_of_claims_without_class_are_found() {
    let world = World::new().await;
    let class = world.class("new").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let names = ["photos", "films", "notes"];
    let mut records = Vec::new();
    for name in names {
        world.claim(name, &class).await;
        world.wait_bound(name).await;
        records.push(world.claims().get(name).await.unwrap().spec.object_bucket_name.unwrap());
    }
    operator.stop().await;
    let healthy = Examined::json(&world, &[NO_LEASE]).await;
    healthy.assert_finds("", "records", "good", "all 3 ObjectBuckets");

    world.delete_class(&class).await;
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), &world.namespace);
    secrets.delete("owner", &DeleteParams::default()).await.unwrap();
    let [photos, films, notes] = &records[..] else { panic!("{records:?}") };
    let elsewhere = json!({ "spec": { "additionalState": { "clusterUID": "another" } } });
    let damaged = json!({ "spec": { "endpoint": { "bucketName": null } } });
    for (record, patch) in [(films, elsewhere), (notes, damaged)] {
        world.records().patch(record, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }
    let examined = Examined::json(&world, &[NO_LEASE]).await;
    assert_eq!(examined.code, Some(1), "{}\n{}", examined.text, examined.log);
    examined.assert_finds("", "owner", "bad", &format!("does not exist, but is needed by {photos}"));
    examined.assert_finds("", "records", "bad", &format!("{notes} (spec.endpoint.bucketName is missing)"));
    examined.assert_finds("", "records", "warning", &format!("another cluster, so nothing is done with them: {films}"));
}

#[tokio::test]
async fn a_hanging_store_is_reported_and_delays_no_other_class() {
    let world = World::new().await;
    let hanging = world.neighbour().await;
    hanging.aws.inject(|_| Verdict::Hang);
    let endpoints = [("s3Endpoint", hanging.aws.url.as_str()), ("iamEndpoint", &hanging.aws.url)];
    let hangs = world.class_with("hangs", "Delete", &endpoints).await;
    let also = world.class_with("hangs-also", "Retain", &[&endpoints[..], &[("bucketName", "archive")]].concat()).await;
    let good = world.class("good").await;
    let examined = Examined::json(&world, &[NO_LEASE]).await;
    assert_eq!(examined.code, Some(1));
    examined.assert_finds(&hangs, "store", "bad", "did not answer within");
    examined.assert_finds(&also, "store", "bad", &format!("the same as for StorageClass {hangs:?}: store"));
    assert_eq!(hanging.aws.names(), ["GetCallerIdentity"]);
    examined.assert_finds(&good, "credentials", "good", "accepts");
}

#[tokio::test]
async fn what_an_account_may_not_do_is_named() {
    let world = World::new().await;
    world.class("good").await;
    let accounts: Api<ServiceAccount> = Api::namespaced(world.client.clone(), &world.namespace);
    let account = serde_json::from_value(json!({ "metadata": { "name": "powerless" } })).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let name = format!("{}/powerless", world.namespace);
    let place = place(&world);
    let examined = Examined::json(&world, &["--service-account", &name, place[0], place[1]]).await;
    assert_eq!(examined.code, Some(1));
    let lease = lease::name(&world.provisioner, Some(&world.namespace));
    for missing in [
        format!("get, list, watch, patch objectbucketclaims.objectbucket.io in namespace {}", world.namespace),
        "get, list, watch, create, patch, delete objectbuckets.objectbucket.io".to_owned(),
        format!("create, patch, delete secrets in namespace {}", world.namespace),
        "get namespaces kube-system".to_owned(),
        format!("get namespaces {}", world.namespace),
        "get customresourcedefinitions.apiextensions.k8s.io objectbucketclaims.objectbucket.io".to_owned(),
        format!("get, list, watch, update leases.coordination.k8s.io {lease}"),
    ] {
        examined.assert_finds(&name, "cluster", "bad", &missing);
    }
    let wrong = Examined::text(&world, &["--service-account", "powerless"]).await;
    assert_eq!(wrong.code, Some(2), "{}", wrong.log);
}

/// No leader, a stale lease, and two leaders.
#[tokio::test]
async fn problems_of_the_lease_are_reported() {
    let world = World::new().await;
    world.class("good").await;
    let name = lease::name(&world.provisioner, Some(&world.namespace));
    let absent = Examined::json(&world, &[]).await;
    absent.assert_finds(&name, "holder", "bad", "there is no Lease");

    let hold = async |namespace: &str, holder: &str, renewed: &str| {
        let leases: Api<Lease> = Api::namespaced(world.client.clone(), namespace);
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": name },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed },
        });
        leases.patch(&name, &PatchParams::apply("tests").force(), &Patch::Apply(&lease)).await.unwrap();
    };
    hold(&world.namespace, "pod-1", "2026-01-01T00:00:00.000000Z").await;
    let stale = Examined::json(&world, &[]).await;
    assert_eq!(stale.code, Some(1));
    stale.assert_finds(&name, "holder", "bad", "pod-1 holds the lease, but renewed it");
    stale.assert_finds(&name, "version", "unknown", "does not report its version");

    let second = world.unique("second");
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let namespace = serde_json::from_value(json!({ "metadata": { "name": second } })).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    for (namespace, holder) in [(&world.namespace, "pod-1"), (&second, "pod-2")] {
        hold(namespace, holder, "2999-01-01T00:00:00.000000Z").await;
    }
    let two = Examined::json(&world, &[]).await;
    two.assert_finds(&name, "leaders", "bad", "several namespaces");
    hold(&world.namespace, "", "2999-01-01T00:00:00.000000Z").await;
    let free = Examined::json(&world, &place(&world)).await;
    free.assert_finds(&name, "holder", "bad", "nobody holds the lease");
    namespaces.delete(&second, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn missing_and_foreign_crds_are_reported() {
    let other = OtherCluster::take().await;
    let world = other.world().await;
    world.class("good").await;
    other.install(&fixture_crds(include_str!("../fixtures/crds/phase-only.yaml"))).await;
    let costly = Examined::json(&world, &[NO_LEASE]).await;
    assert_eq!(costly.code, Some(0), "{}\n{}", costly.text, costly.log);
    costly.assert_finds("objectbucketclaims.objectbucket.io", "variant", "warning", "reasons are in events only");

    other.delete_crds().await;
    other.wait_crds_gone().await;
    let missing = Examined::json(&world, &[NO_LEASE]).await;
    assert_eq!(missing.code, Some(1));
    missing.assert_finds("objectbuckets.objectbucket.io", "served", "bad", "does not exist");
    let remedy = missing.about("objectbuckets.objectbucket.io", "served")[0]["remedy"].clone();
    assert_eq!(remedy, "run `aws-s3-provisioner crds | kubectl apply --server-side --filename -`");
    assert!(missing.findings().iter().all(|finding| finding["group"] != "Claims"));
}

#[tokio::test]
async fn an_api_server_that_does_not_answer_is_reported() {
    let world = World::new().await;
    world.kubernetes.down().await;
    let examined = Examined::json(&world, &[NO_LEASE]).await;
    assert_eq!(examined.code, Some(1));
    let [finding] = &examined.findings()[..] else { panic!("{}", examined.text) };
    assert_eq!((&finding["group"], &finding["verdict"]), (&json!("API server"), &json!("bad")));
    world.kubernetes.up();
}

/// It has no simulation of policies.
#[tokio::test]
async fn permissions_are_unknown_at_seaweedfs() {
    let world = World::at(Store::seaweedfs()).await;
    let class = world.class("good").await;
    let examined = Examined::json(&world, &[NO_LEASE]).await;
    assert_eq!(examined.code, Some(0), "{}\n{}", examined.text, examined.log);
    examined.assert_finds(&class, "permissions", "unknown", "could not be checked: ");
    assert_eq!(world.aws.writes(), [""; 0]);
    let text = Examined::text(&world, &[NO_LEASE]).await;
    assert!(text.text.contains(&format!("\nStorageClass {class}\n  ✓ parameters: ")), "{}", text.text);
    assert!(!text.text.contains('\x1b'), "no colours without a terminal");
}

/// Not of the Secret, which is fine.
#[tokio::test]
async fn parameters_that_cannot_be_read_are_the_records_problem() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    world.wait_bound("photos").await;
    // A store whose parameter `server` the ObjectBucket does not have.
    let args = ["doctor", "--namespace", &world.namespace, NO_LEASE, "-o", "json"];
    let examined = Examined::of(example("http-provisioner").args(args).output(&world).await);
    examined.assert_finds("", "records", "bad", &world.record_name("photos"));
    examined.assert_finds("", "records", "bad", "server");
    assert!(examined.about("", "owner").is_empty(), "{:#?}", examined.about("", "owner"));
}
