//! The calls to AWS: each call of each flow, failed in each way.
//!
//! Long, because the cases share the flows that they make fail.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bucket_provisioner::api::{ObjectBucket, wire};
use kube::api::{DeleteParams, Patch, PatchParams};
use provisioner_conformance::sampled;
use serde_json::json;
use tokio::sync::Notify;

use super::{Case, Nth, enumerate, run_all};
use crate::keyless;
use crate::owner_role::{EXTERNAL_ID, Role};
use crate::support::account::Account;
use crate::support::aws_proxy::{Aws, Strictness};
use crate::support::operator::Operator;
use crate::support::pods::Pods;
use crate::support::proxy::{Call, Proxy, Verdict};
use crate::support::{World, aws_url, ready, seen, settings};

/// The EKS cluster and the role of its pods.
const PODS: &str = "fault-pods";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Flow {
    Provision,
    /// The same with settings of the bucket.
    Configure,
    /// A bound claim's access mode and settings are edited.
    Reconfigure,
    /// The same as the first, in the account of a role.
    Assume,
    Grant,
    /// A claim gets access to the bucket of another one.
    Share,
    Repair,
    Adopt,
    Delete,
    Revoke,
    /// The first without keys, and its deletion.
    ProvisionKeyless,
    DeleteKeyless,
    /// The same by EKS Pod Identity.
    ProvisionPods,
    DeletePods,
    /// A deleted claim's bucket is kept, because it is not empty.
    Keep,
    /// The same of a claim whose keys were never published.
    KeepUnpublished,
    /// A claim is edited before it is bound, and gets another bucket.
    Replan,
    /// The claim is created again, and gets its bucket back.
    UndoDelete,
    /// The time comes at which the bucket of a deleted claim is deleted.
    DeleteLater,
    /// A claim is deleted without the operator, because somebody removed its finalizer.
    Vanish,
}

const FLOWS: [Flow; 20] = [
    Flow::Provision,
    Flow::Configure,
    Flow::Reconfigure,
    Flow::Assume,
    Flow::Grant,
    Flow::Share,
    Flow::Repair,
    Flow::Adopt,
    Flow::Delete,
    Flow::Revoke,
    Flow::ProvisionKeyless,
    Flow::DeleteKeyless,
    Flow::ProvisionPods,
    Flow::DeletePods,
    Flow::Keep,
    Flow::KeepUnpublished,
    Flow::Replan,
    Flow::UndoDelete,
    Flow::DeleteLater,
    Flow::Vanish,
];

impl Flow {
    /// The claim no longer exists while it runs, so the ObjectBucket reports what is wrong.
    fn is_without_claim(self) -> bool {
        matches!(self, Self::DeleteLater | Self::Vanish)
    }

    /// The class has buckets that outlive their claims.
    fn deletes_later(self) -> bool {
        matches!(self, Self::DeleteLater | Self::UndoDelete)
    }

    /// It begins with a claim that was not submitted.
    fn begins_unsubmitted(self) -> bool {
        use Flow::{Assume, Configure, Grant, Provision, ProvisionKeyless, ProvisionPods, Share};

        matches!(self, Provision | Configure | Assume | Grant | Share | ProvisionKeyless | ProvisionPods)
    }

    fn is_keyless(self) -> bool {
        matches!(self, Self::ProvisionKeyless | Self::DeleteKeyless) || self.is_by_pods()
    }

    fn is_by_pods(self) -> bool {
        matches!(self, Self::ProvisionPods | Self::DeletePods)
    }

    /// It begins with a claim whose bucket exists, and that has no keys.
    fn begins_unpublished(self) -> bool {
        matches!(self, Self::KeepUnpublished | Self::Replan)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum AwsFault {
    Throttled,
    Failing,
    Unavailable,
    Refused,
    Reset,
    Silent,
    /// AWS has done it, and its answer cannot be read.
    Garbled,
    Denied,
}

const AWS_FAULTS: [AwsFault; 8] = [
    // Those that take longest first.
    AwsFault::Silent,
    AwsFault::Throttled,
    AwsFault::Failing,
    AwsFault::Unavailable,
    AwsFault::Refused,
    AwsFault::Reset,
    AwsFault::Garbled,
    AwsFault::Denied,
];

impl AwsFault {
    fn verdict(self, call: &Call) -> Verdict {
        let is_iam = call.target == "/";
        let error = |status, code: &str| {
            let error = format!("<Error><Code>{code}</Code><Message>so it is</Message></Error>");
            Verdict::Answer(status, if is_iam { format!("<ErrorResponse>{error}</ErrorResponse>") } else { error })
        };
        match self {
            Self::Throttled if is_iam => error(400, "Throttling"),
            Self::Throttled => error(503, "SlowDown"),
            Self::Failing => error(500, "InternalError"),
            Self::Unavailable => Verdict::Answer(503, String::new()),
            Self::Denied => error(403, "AccessDenied"),
            Self::Reset => Verdict::Reset,
            // What refuses connections is the proxy itself: see `Meddler`.
            Self::Silent | Self::Refused => Verdict::Hang,
            Self::Garbled => Verdict::Distort(|answer| answer.map(|_| "neither here nor there".into())),
        }
    }

    /// Whether it lasts until the claim reports it. An answer that cannot be read may not have mattered, and a store
    /// that is not AWS may report no account.
    fn lasts(self, operation: &str) -> bool {
        let has_no_sts = matches!(self, Self::Denied | Self::Unavailable) && operation == "GetCallerIdentity";
        self != Self::Garbled && !has_no_sts
    }

    /// What a claim may say of it.
    fn reasons(self) -> &'static [&'static str] {
        match self {
            Self::Throttled | Self::Unavailable => &["Throttled"],
            Self::Failing => &["StoreFailing"],
            Self::Refused | Self::Reset | Self::Silent => &["StoreUnreachable"],
            // New keys are denied while they are not known everywhere.
            // A chosen bucket whose tags cannot be read may be of anybody.
            Self::Denied => {
                &["AccessDenied", "WaitingForCredentials", "BucketTaken", "OwnerRoleRefused", "PodRoleRefused"]
            }
            Self::Garbled => &[],
        }
    }
}

/// The answer to a call for a policy that is not to be written, as long as nothing is removed.
fn withheld(call: &Call, withholds_keys: &AtomicBool) -> Option<Verdict> {
    if call.name.starts_with("Delete") {
        withholds_keys.store(false, Ordering::SeqCst);
    }
    let refused = "<ErrorResponse><Error><Code>Oddity</Code></Error></ErrorResponse>";
    let is_withheld = call.name == "PutUserPolicy" && withholds_keys.load(Ordering::SeqCst);
    is_withheld.then(|| Verdict::Answer(400, refused.to_owned()))
}

/// A claim with a way to AWS of its own.
struct Cell<'a> {
    world: &'a World,
    aws: Proxy<Aws>,
    claim: String,
    class: String,
    flow: Flow,
    /// The role that the provisioning credentials assume.
    role: Option<Role>,
    /// The user gets no policy, so the claim no keys.
    withholds_keys: Arc<AtomicBool>,
}

impl<'a> Cell<'a> {
    /// Everything that the flow begins with.
    async fn prepare(world: &'a World, name: String, flow: Flow) -> Self {
        let aws = Proxy::start(Aws::at(&aws_url())).await;
        // Which knows the users of one account.
        if flow != Flow::Assume {
            aws.upstream().strict(Strictness::PROMPT);
        }
        world.owner_secret(&format!("{name}-owner"), &OWNER).await;
        let archive = world.unique(&name);
        let mut parameters = vec![
            ("secretName", format!("{name}-owner")),
            ("s3Endpoint", aws.url.clone()),
            ("iamEndpoint", aws.url.clone()),
        ];
        if matches!(flow, Flow::Grant | Flow::Revoke) {
            world.account.create_bucket(&archive).await;
            parameters.push(("bucketName", archive));
        }
        match flow {
            Flow::Keep => parameters.push(("onDelete", "ifEmpty".to_owned())),
            Flow::Configure => parameters.extend(settings::SETTINGS.map(|(name, value)| (name, value.to_owned()))),
            Flow::Reconfigure => parameters.push(("claimsMaySet", "expireAfter".to_owned())),
            Flow::Share => parameters.push(("claimsMaySet", "bucketClaimName".to_owned())),
            flow if flow.is_by_pods() => {
                keyless::create_account(world, &name).await;
                parameters.extend(Pods::create(&world.account, PODS).await.parameters());
            }
            flow if flow.is_keyless() => {
                keyless::create_provider(&world.account).await;
                keyless::create_account(world, &name).await;
                parameters.push(("authentication", "ServiceAccount".to_owned()));
                parameters.push(("oidcProvider", keyless::provider()));
            }
            flow if flow.deletes_later() => parameters.push(("onDelete", "after:1h".to_owned())),
            _ => {}
        }
        let role = if flow == Flow::Assume { Some(Role::create(world, &name).await) } else { None };
        if let Some(role) = &role {
            parameters.push(("ownerRole", role.arn.clone()));
            parameters.push(("ownerRoleExternalId", EXTERNAL_ID.to_owned()));
        }
        let parameters: Vec<_> = parameters.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let class = world.class_with(&name, "Delete", &parameters).await;
        let cell = Self { world, aws, claim: name, class, flow, role, withholds_keys: Arc::default() };
        if flow == Flow::Share {
            world.claim(&cell.creator(), &cell.class).await;
            world.wait_bound(&cell.creator()).await;
        }
        if flow.begins_unpublished() {
            cell.begin_unpublished().await;
        } else if !flow.begins_unsubmitted() {
            cell.submit().await;
            world.wait_bound(&cell.claim).await;
            let bucket = world.environment(&cell.claim).await["BUCKET_NAME"].clone();
            world.account.put(&bucket, "a").await.unwrap();
        }
        if flow == Flow::Adopt {
            cell.restore().await;
        }
        if flow.deletes_later() {
            world.delete_claim(&cell.claim).await;
            world.wait_gone(&cell.claim).await;
            world.wait_condition(&world.record_name(&cell.claim), "DeletionScheduled", "Scheduled").await;
        }
        cell.aws.clear();
        cell
    }

    /// Takes the claim out of the cluster, and brings it back from a backup.
    async fn restore(&self) {
        let Self { world, claim, .. } = self;
        let backup = world.back_up(claim).await;
        let record = world.record_name(claim);
        world.set_action(&record, "forget").await;
        world.delete_claim(claim).await;
        world.wait_gone(claim).await;
        world.wait_record_gone(&record).await;
        for object in [&backup.secret, &backup.config_map, &backup.record, &backup.claim] {
            world.restore(object).await;
        }
        world.wait_reason(claim, "AdoptionNeeded").await;
    }

    /// Creates a claim with a bucket and a user, and without keys: what AWS refuses differs from all that is tried
    /// later.
    async fn begin_unpublished(&self) {
        let Self { world, claim, withholds_keys, .. } = self;
        withholds_keys.store(true, Ordering::SeqCst);
        let withholds = Arc::clone(withholds_keys);
        self.aws.inject(move |call| withheld(call, &withholds).unwrap_or(Verdict::Pass));
        world.claim_with(claim, json!({ "storageClassName": self.class, "bucketName": self.bucket("first") })).await;
        world.wait_reason(claim, "Rejected").await;
        if self.flow == Flow::KeepUnpublished {
            world.account.put(&self.bucket("first"), "a").await.unwrap();
        }
    }

    /// The name of a bucket that the claim chooses.
    fn bucket(&self, which: &str) -> String {
        format!("{}-{}-{which}", self.world.namespace, self.claim)
    }

    /// The claim whose bucket this one shares.
    fn creator(&self) -> String {
        format!("of-{}", self.claim)
    }

    /// Where buckets and users are.
    fn account(&self) -> &Account {
        self.role.as_ref().map_or(&self.world.account, |role| &role.account)
    }

    async fn submit(&self) {
        let mut spec = json!({ "storageClassName": self.class });
        if !matches!(self.flow, Flow::Grant | Flow::Share | Flow::Revoke) {
            spec["generateBucketName"] = json!("b");
        }
        match self.flow {
            Flow::Share => spec["additionalConfig"] = json!({ "bucketClaimName": self.creator() }),
            flow if flow.is_keyless() => spec["additionalConfig"] = json!({ "serviceAccountName": self.claim }),
            Flow::Reconfigure => spec["additionalConfig"] = json!({ "accessMode": "ReadOnly", "expireAfter": "7d" }),
            _ => {}
        }
        self.world.claim_with(&self.claim, spec).await;
    }

    /// Runs the flow, with whatever the proxy does to it; `meanwhile` runs once it is begun.
    async fn run(&self, meanwhile: impl Future<Output = ()>) {
        let Self { world, claim, .. } = self;
        let user = format!("{}-{claim}-", world.namespace);
        let users = || self.account().users_with(&user);
        match self.flow {
            Flow::Provision | Flow::Configure | Flow::Assume | Flow::Grant | Flow::Share => {
                self.submit().await;
                meanwhile.await;
                world.wait_bound(claim).await;
            }
            Flow::ProvisionKeyless => {
                self.submit().await;
                meanwhile.await;
                world.wait_bound(claim).await;
                let bucket = world.environment(claim).await["BUCKET_NAME"].clone();
                keyless::pod_past_proxies(world, claim, claim).await.put(&bucket, "b").await.unwrap();
                let role = keyless::role(world, claim).await;
                assert_eq!(keyless::policies(world, &role).await.map(|policies| policies.len()), Some(1));
                return;
            }
            Flow::DeleteKeyless => {
                let (role, bucket) =
                    (keyless::role(world, claim).await, world.environment(claim).await["BUCKET_NAME"].clone());
                world.delete_claim(claim).await;
                meanwhile.await;
                world.wait_gone(claim).await;
                world.assert_no_objects(claim).await;
                assert_eq!(keyless::policies(world, &role).await, None, "a role is left");
                assert!(!world.account.bucket_exists(&bucket).await, "{bucket}");
                return;
            }
            Flow::ProvisionPods => {
                self.submit().await;
                meanwhile.await;
                world.wait_bound(claim).await;
                let bucket = world.environment(claim).await["BUCKET_NAME"].clone();
                let (pods, of) = (Pods::named(PODS), [world.namespace.as_str(), claim.as_str()]);
                pods.pod(&world.account, of).await.unwrap().put(&bucket, "b").await.unwrap();
                assert_eq!(pods.ids(&world.account, of).await.len(), 1);
                return;
            }
            Flow::DeletePods => {
                let bucket = world.environment(claim).await["BUCKET_NAME"].clone();
                world.delete_claim(claim).await;
                meanwhile.await;
                world.wait_gone(claim).await;
                world.assert_no_objects(claim).await;
                let left = Pods::named(PODS).association(&world.account, [&world.namespace, claim]).await;
                assert!(left.is_none(), "{left:?}");
                assert!(!world.account.bucket_exists(&bucket).await, "{bucket}");
                return;
            }
            Flow::Reconfigure => {
                let edit =
                    json!({ "spec": { "additionalConfig": { "accessMode": "ReadWrite", "expireAfter": "30d" } } });
                world.claims().patch(claim, &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
                meanwhile.await;
                world.wait_event(claim, "AccessChanged").await;
                world.wait_event(claim, "SettingsApplied").await;
            }
            Flow::Repair => {
                let old = world.environment(claim).await["AWS_ACCESS_KEY_ID"].clone();
                world.secrets().delete(claim, &DeleteParams::default()).await.unwrap();
                meanwhile.await;
                world.wait_secret(claim, |keys| keys["AWS_ACCESS_KEY_ID"] != old).await;
                world.wait_reason(claim, "Bound").await;
            }
            Flow::Adopt => {
                world.set_action(&world.record_name(claim), "adopt").await;
                meanwhile.await;
                world.wait_bound(claim).await;
                world.wait_reason(claim, "Bound").await;
            }
            Flow::DeleteLater => {
                let record = world.record_name(claim);
                let bucket = world.records().get(&record).await.unwrap().spec.endpoint.unwrap().bucket_name.unwrap();
                self.set_state(wire::state::DELETE_AT, "2026-01-01T00:00:00Z").await;
                meanwhile.await;
                world.wait_record_gone(&record).await;
                assert!(!world.account.bucket_exists(&bucket).await, "{bucket}");
                return;
            }
            Flow::Vanish => {
                let bucket = world.environment(claim).await["BUCKET_NAME"].clone();
                world.forget_object(&world.claims(), claim).await;
                meanwhile.await;
                world.wait_orphaned(&world.record_name(claim), "ClaimVanished").await;
                assert!(users().await.is_empty(), "a user is left");
                assert_eq!(world.account.list(&bucket).await.unwrap(), ["a"]);
                return;
            }
            Flow::UndoDelete => {
                world.create_again(claim, &json!({ "storageClassName": self.class, "generateBucketName": "b" })).await;
                meanwhile.await;
                world.wait_bound(claim).await;
                let bucket = world.environment(claim).await["BUCKET_NAME"].clone();
                assert_eq!(world.account.list(&bucket).await.unwrap(), ["a"]);
            }
            Flow::Replan => {
                let edit = Patch::Merge(json!({ "spec": { "bucketName": self.bucket("second") } }));
                world.claims().patch(claim, &PatchParams::default(), &edit).await.unwrap();
                meanwhile.await;
                world.wait_bound(claim).await;
                assert_eq!(world.environment(claim).await["BUCKET_NAME"], self.bucket("second"));
                assert!(!world.account.bucket_exists(&self.bucket("first")).await, "the first bucket is left");
            }
            Flow::Keep | Flow::KeepUnpublished => {
                let bucket = match self.flow {
                    Flow::Keep => world.environment(claim).await["BUCKET_NAME"].clone(),
                    _ => self.bucket("first"),
                };
                world.delete_claim(claim).await;
                meanwhile.await;
                world.wait_gone(claim).await;
                world.wait_orphaned(&world.record_name(claim), "BucketNotEmpty").await;
                assert!(users().await.is_empty(), "a user is left");
                assert_eq!(world.account.list(&bucket).await.unwrap(), ["a"]);
                return;
            }
            Flow::Delete | Flow::Revoke => {
                let bucket = world.environment(claim).await["BUCKET_NAME"].clone();
                world.delete_claim(claim).await;
                meanwhile.await;
                world.wait_gone(claim).await;
                world.assert_no_objects(claim).await;
                assert!(users().await.is_empty(), "a user is left");
                assert_eq!(world.account.bucket_exists(&bucket).await, self.flow == Flow::Revoke, "{bucket}");
                return;
            }
        }
        let environment = world.environment(claim).await;
        let users = users().await;
        assert_eq!(users.len(), 1, "{users:?}");
        let held = [
            self.account().settings(&environment["BUCKET_NAME"]).await,
            format!("{:?}", self.account().policies(&users[0]).await),
        ];
        for part in self.settings() {
            assert!(held.iter().any(|held| held.contains(part)), "{part} is missing: {held:#?}");
        }
        world.app(claim).await.put(&environment["BUCKET_NAME"], "b").await.unwrap();
        assert_eq!(self.account().keys(&users[0]).await, [environment["AWS_ACCESS_KEY_ID"].clone()]);
    }

    /// What bucket and user have in the end because class and claim ask for it.
    fn settings(&self) -> Vec<&'static str> {
        match self.flow {
            Flow::Configure => settings::OF_BUCKET.into_iter().chain(settings::OF_USER).collect(),
            Flow::Reconfigure => vec!["days: Some(30)", "s3%3APutObject"],
            _ => Vec::new(),
        }
    }

    /// Writes an entry of the ObjectBucket's `additionalState`.
    async fn set_state(&self, key: &str, value: &str) {
        let patch = json!({ "spec": { "additionalState": { key: value } } });
        let record = self.world.record_name(&self.claim);
        self.world.records().patch(&record, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Waits until the claim reports that this call fails; returns the reason, if the failure delays the claim as well:
    /// one that adopts a bucket continues without tags that cannot be written now, and one that is edited stays bound.
    async fn failure_of(&self, call: &str) -> Option<String> {
        if self.flow == Flow::Reconfigure || self.flow == Flow::Adopt && !["ListObjectsV2", "GetObject"].contains(&call)
        {
            self.world.wait_event(&self.claim, "CheckFailed").await;
            return None;
        }
        if self.flow.is_without_claim() {
            let failed = |record: Option<&ObjectBucket>| {
                let status = record.and_then(|record| record.status.as_ref());
                status.is_some_and(|status| status.conditions.iter().any(|c| c.reason == "RemovalFailed"))
            };
            let record = self.world.record_name(&self.claim);
            // A call is repeated for half a minute that is refused for its rate, and the attempt waits in the queue.
            let _ = seen(&self.world.records(), &record, failed).await;
            let reported = seen(&self.world.records(), &record, failed).await;
            assert!(reported.is_ok(), "not reported: {:#?}", self.world.records().get_opt(&record).await);
            return None;
        }
        Some(self.failure().await)
    }

    /// Waits until the claim reports a failure; returns the reason.
    async fn failure(&self) -> String {
        // KubernetesError: the API server was busy, and the next attempt meets the fault.
        let others = ["Bound", "AdoptionNeeded", "Removing", "Rejected", "KubernetesError"];
        let in_the_way = |claim: &_| ready(claim).is_some_and(|ready| !others.contains(&ready.reason.as_str()));
        // A call is repeated for half a minute that is refused for its rate.
        let _ = seen(&self.world.claims(), &self.claim, |claim| claim.is_some_and(in_the_way)).await;
        let claim = self.world.wait_claim(&self.claim, "reported with a reason", in_the_way).await;
        ready(&claim).unwrap().reason.clone()
    }

    /// Has one call fail, until the claim reports it where the fault lasts.
    async fn run_with(&self, call: &Nth, fault: AwsFault) -> Outcome {
        let (hit, lifted) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
        let mut seen = 0;
        let may_be_so = match (self.flow, call.name.as_str()) {
            // A bucket that existed before may be one to write to only.
            (Flow::Grant, "GetObject") => fault == AwsFault::Denied,
            // Objects are enough to see that it is not empty. Where they are deleted, the next attempt deletes the bucket,
            // maybe before anybody has seen the report.
            (_, "ListMultipartUploads") => true,
            // Tags prove of which claim it is, and its age could only disprove them.
            (Flow::KeepUnpublished | Flow::Replan, "ListBuckets") => fault == AwsFault::Denied,
            _ => false,
        };
        let lasts = fault.lasts(&call.name) && !may_be_so;
        let name = call.name.clone();
        let (rule_hit, rule_lifted, call) = (Arc::clone(&hit), Arc::clone(&lifted), call.clone());
        let withholds_keys = Arc::clone(&self.withholds_keys);
        self.aws.inject(move |now| {
            if let Some(refused) = withheld(now, &withholds_keys) {
                return refused;
            }
            if now.name != call.name {
                return Verdict::Pass;
            }
            seen += 1;
            if seen <= call.nth || rule_lifted.load(Ordering::SeqCst) {
                return Verdict::Pass;
            }
            rule_lifted.store(!lasts, Ordering::SeqCst);
            rule_hit.notify_one();
            fault.verdict(now)
        });
        let reason = std::cell::OnceCell::new();
        let meanwhile = async {
            if !lasts {
                return;
            }
            hit.notified().await;
            if fault == AwsFault::Refused {
                self.aws.down().await;
            }
            let reported = self.failure_of(&name).await;
            lifted.store(true, Ordering::SeqCst);
            if fault == AwsFault::Refused {
                self.aws.up();
            }
            if fault == AwsFault::Denied {
                // Permissions are fixed where nothing watches; touching the Secret has the claim retried at once.
                let touch = Patch::Merge(json!({ "metadata": { "annotations": { "mended": "yes" } } }));
                if self.flow.is_without_claim() {
                    self.set_state("mended", "yes").await;
                }
                let owner = format!("{}-owner", self.claim);
                self.world.secrets().patch(&owner, &PatchParams::default(), &touch).await.unwrap();
            }
            if let Some(reported) = reported {
                assert!(fault.reasons().contains(&reported.as_str()), "reported {reported}");
                reason.set(reported).unwrap();
            }
        };
        self.run(meanwhile).await;
        Outcome { reason: reason.into_inner(), calls: self.aws.calls().len() }
    }
}

struct Outcome {
    reason: Option<String>,
    calls: usize,
}

const OWNER: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_aws_call_of_every_flow_may_fail_in_every_way() {
    let world = World::with_rules(&keyless::rules()).await;
    let _operator = Operator::with(&world, Operator::options(&world).with_concurrency(100));
    let mut cases = vec![];
    let mut clean = BTreeMap::new();
    for flow in FLOWS {
        let cell = Cell::prepare(&world, format!("{flow:?}").to_lowercase(), flow).await;
        cell.run(async {}).await;
        let mut calls = enumerate(cell.aws.names());
        clean.insert(flow, calls.len());
        // A process that is young looks once more whether what is missing appears.
        let looks_again = |call: &Nth| call.nth > 0 && ["GetUser", "GetBucketTagging"].contains(&call.name.as_str());
        calls.retain(|call| !(flow.is_without_claim() && looks_again(call)));
        println!("{flow:?}: {} AWS calls × {} faults", calls.len(), AWS_FAULTS.len());
        for fault in AWS_FAULTS {
            let failing = calls.iter().map(|call| Case { flow, calls: vec![call.clone()], fault }).collect();
            cases.extend(sampled(&format!("{flow:?}, {fault:?}"), failing));
        }
    }
    cases.sort_by_key(|case| case.fault != AwsFault::Silent);
    let total = cases.len();
    let most = AtomicUsize::new(0);
    let reasons = run_all(cases, 60, async |number, case| {
        let cell = Cell::prepare(&world, format!("c{number}"), case.flow).await;
        let Outcome { reason, calls } = cell.run_with(&case.calls[0], case.fault).await;
        most.fetch_max(calls, Ordering::SeqCst);
        // A call is tried several times in one attempt, and two attempts may pass until the reported reason was seen.
        assert!(calls <= 6 * clean[&case.flow].max(8), "{calls} calls: {:?}", cell.aws.names());
        reason
    })
    .await;
    let reasons: BTreeSet<_> = reasons.into_iter().flatten().collect();
    println!("{total} cases; the most calls of one: {most:?}; claims reported {reasons:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_aws_calls_all_fail_delays_no_other() {
    let all = futures::future::join_all(AWS_FAULTS.into_iter().filter(|fault| fault.lasts("")).map(async |fault| {
        let world = World::new().await;
        let _operator = Operator::with(&world, Operator::options(&world).with_concurrency(1));
        let stuck = Cell::prepare(&world, "stuck".to_owned(), Flow::Provision).await;
        stuck.aws.inject(move |call| fault.verdict(call));
        if fault == AwsFault::Refused {
            stuck.aws.down().await;
        }
        let class = world.class("greenfield").await;
        stuck.submit().await;
        if fault != AwsFault::Refused {
            stuck.aws.wait_until("a call", |calls| !calls.is_empty()).await;
        }
        for claim in ["one", "two"] {
            world.claim(claim, &class).await;
            world.wait_bound(claim).await;
        }
        let reported = stuck.failure().await;
        assert!(fault.reasons().contains(&reported.as_str()), "{fault:?} is reported as {reported}");
        assert!(stuck.aws.calls().len() <= 12, "{fault:?}: {:?}", stuck.aws.names());
    }));
    all.await;
}
