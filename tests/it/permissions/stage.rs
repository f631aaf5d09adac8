//! A cluster and an account in which an operator has what is shipped, and nothing else: the permissions that the
//! command `rbac` prints, and the policies of `docs/`.

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams};
use operator_runtime::lease;
use serde_json::{Value, json};

use super::account::Account;
use super::audit::Audit;
use crate::support::admission::{Policy, Values};
use crate::support::aws_proxy::Strictness;
use crate::support::operator::Binary;
use crate::support::owner_policy::{GROUPS, PolicedOwner};
use crate::support::{World, seen};

/// Only the watch of the lease is quick enough for these times.
const SLOW: [&str; 4] =
    ["--leader-elect", "--lease-duration=10m", "--lease-renew-deadline=9m", "--lease-retry-period=5m"];

/// Nothing hangs on a user that is deleted, as in AWS.
const STRICT: Strictness = Strictness::PROMPT;

/// Whose claims the operator serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    AllNamespaces,
    OneNamespace,
}

pub(super) struct Stage {
    /// Where the claims are.
    pub(super) world: World,
    /// Where the operator and the Secret with the provisioning credentials are.
    pub(super) vault: World,
    pub(super) owner: PolicedOwner,
    pub(super) account: Account,
    /// What the command `rbac` prints.
    pub(super) objects: Vec<Value>,
    pub(super) audit: Option<Audit>,
    policies: Vec<Policy>,
    scope: Scope,
}

impl Stage {
    /// The provisioning user has this policy, and the one for users that are added to groups. The API server enforces
    /// the admission policies, and the tests' own user may remove finalizers.
    pub(super) async fn new(scope: Scope, policy: &str) -> Self {
        let (world, vault) = (World::new().await, World::new().await);
        let owner = PolicedOwner::new(&world, &[policy, GROUPS]).await;
        owner.write_keys_to(&vault).await;
        world.aws.upstream().strict(STRICT);
        let name = world.unique("operator");
        let secret = format!("{}/owner", vault.namespace);
        let mut args = vec!["rbac", "--operator-namespace", &vault.namespace, "--service-account", &name];
        if scope == Scope::OneNamespace {
            args.extend(["--namespace", &world.namespace, "--owner-secret", &secret]);
        }
        let printed = Binary::run(&world, &args).await.unwrap();
        let documents = printed.split("---\n").filter(|document| !document.is_empty());
        let objects: Vec<Value> = documents.map(|document| serde_saphyr::from_str(document).unwrap()).collect();
        let audit = Audit::from_now_on();
        let account = Account::of(&world, &objects).await;
        let watched = if scope == Scope::OneNamespace { world.namespace.as_str() } else { "" };
        let values = Values { operator: &account.user, watched, groups: &["system:masters"] };
        let policies = vec![Policy::finalizers(&world, &values).await, Policy::outputs(&world, &values).await];
        Self { world, vault, owner, account, objects, audit, policies, scope }
    }

    pub(super) async fn end(self) {
        for policy in self.policies {
            policy.remove(&self.world.client).await;
        }
    }

    /// A class with the provisioning credentials, and these parameters on top.
    pub(super) async fn class(&self, name: &str, parameters: &[(&str, &str)]) -> String {
        let own = [("secretNamespace", self.vault.namespace.as_str()), ("permissionsBoundary", &self.owner.boundary)];
        self.world.class_with(name, "Delete", &[&own, parameters].concat()).await
    }

    pub(super) fn start(&self) -> Binary {
        let scope: &[&str] = match self.scope {
            Scope::AllNamespaces => &[],
            Scope::OneNamespace => &["--namespace", &self.world.namespace],
        };
        Binary::start_with(&self.world, &self.account.kubeconfig, &[&SLOW, scope].concat(), &[])
    }

    /// Another installation has just been killed: the next operator waits for the lease that both share.
    pub(super) async fn killed_another_installation(&self) {
        let namespace = (self.scope == Scope::OneNamespace).then_some(self.world.namespace.as_str());
        let leases: Api<Lease> = Api::namespaced(self.world.client.clone(), lease::CLUSTER_NAMESPACE);
        let held = json!({ "spec": { "holderIdentity": "elsewhere", "leaseDurationSeconds": 3 } });
        let name = lease::cluster_name(&lease::name(&self.world.provisioner, namespace));
        leases.patch(&name, &PatchParams::default(), &Patch::Merge(held)).await.unwrap();
    }

    /// Waits until another holder than `before` leads; returns it.
    pub(super) async fn wait_leader(&self, before: Option<&str>) -> String {
        let namespace = (self.scope == Scope::OneNamespace).then_some(self.world.namespace.as_str());
        let leases: Api<Lease> = Api::namespaced(self.world.client.clone(), &self.vault.namespace);
        let holder = |lease: Option<&Lease>| lease?.spec.as_ref()?.holder_identity.clone().filter(|h| !h.is_empty());
        let is_next = |lease: Option<&Lease>| holder(lease).is_some_and(|next| Some(next.as_str()) != before);
        let lease = seen(&leases, &lease::name(&self.world.provisioner, namespace), is_next).await;
        holder(lease.expect("somebody leads").as_ref()).unwrap()
    }
}
