//! The provisioning policies as they are shipped, put on a user of the emulated AWS.
//!
//! The emulator evaluates actions, resources, `Deny` and boundaries. What it cannot evaluate is taken out of what it gets
//! ([`for_emulator`]), and checked by the world's proxy, which operators use.

use serde_json::Value;

use super::World;
use super::account::Account;
use super::aws_proxy::for_emulator;

pub(crate) const PLAIN: &str = include_str!("../../../docs/owner-iam-policy.json");
pub(crate) const BOUNDED: &str = include_str!("../../../docs/owner-iam-policy-with-boundary.json");
pub(crate) const SETTINGS: &str = include_str!("../../../docs/owner-iam-policy-settings.json");
pub(crate) const KEYLESS: &str = include_str!("../../../docs/owner-iam-policy-keyless.json");
pub(crate) const POD_IDENTITY: &str = include_str!("../../../docs/owner-iam-policy-pod-identity.json");
pub(crate) const GROUPS: &str = include_str!("../../../docs/owner-iam-policy-groups.json");
pub(crate) const GO_PROVISIONER: &str = include_str!("../../../docs/owner-iam-policy-go-provisioner.json");
pub(crate) const DOCTOR: &str = include_str!("../../../docs/owner-iam-policy-doctor.json");
const BOUNDARY: &str = include_str!("../../../docs/permissions-boundary.json");

/// Placeholders of the account, of the buckets and of the boundary in the shipped documents.
const PLACEHOLDER: &str = "111122223333";
const PREFIX: &str = "acme-";
const EXISTING: &str = "company-archive";
const BOUNDARY_NAME: &str = "aws-s3-provisioner-boundary";

/// A provisioning user with the permissions of a policy, and a boundary for the users of claims.
pub(crate) struct PolicedOwner {
    pub(crate) user: String,
    /// Of its account.
    id: String,
    /// ARN of the boundary of this world.
    pub(crate) boundary: String,
    /// Past the proxy.
    pub(crate) account: Account,
    keys: (String, String),
    buckets: Buckets,
}

/// To which buckets the documents are limited.
#[derive(Debug, Clone)]
pub(crate) struct Buckets {
    /// How names of new ones begin; empty for any.
    pub(crate) prefix: String,
    pub(crate) existing: String,
}

impl Buckets {
    /// `*` instead of a prefix.
    pub(crate) fn all() -> Self {
        Self { prefix: String::new(), existing: EXISTING.to_owned() }
    }

    fn in_document(&self, document: &str) -> String {
        document.replace(PREFIX, &self.prefix).replace(EXISTING, &self.existing)
    }
}

impl PolicedOwner {
    /// Creates the provisioning user and the boundary, and writes its keys to the world's Secret.
    pub(crate) async fn new(world: &World, policies: &[&str]) -> Self {
        Self::limited_to(world, policies, Buckets::all()).await
    }

    /// The same, where the documents are limited to these buckets.
    pub(crate) async fn limited_to(world: &World, policies: &[&str], buckets: Buckets) -> Self {
        let iam = &world.account.iam;
        let user = world.unique("owner");
        let made = iam.create_user().user_name(&user).send().await.unwrap();
        let arn = made.user.unwrap().arn;
        let id = arn.split(':').nth(4).unwrap().to_owned();
        let name = world.unique(BOUNDARY_NAME);
        let document = buckets.in_document(&BOUNDARY.replace(PLACEHOLDER, &id));
        let made = iam.create_policy().policy_name(&name).policy_document(document).send().await.unwrap();
        let boundary = made.policy.unwrap().arn.unwrap();
        let key = iam.create_access_key().user_name(&user).send().await.unwrap().access_key.unwrap();
        let keys = (key.access_key_id, key.secret_access_key);
        let account = Account::at(&super::aws_url(), super::REGION, &keys.0, &keys.1);
        let owner = Self { user, id, boundary, account, keys, buckets };
        owner.allow(world, policies).await;
        owner.write_keys_to(world).await;
        owner
    }

    /// Puts its keys into the Secret `owner` of a world.
    pub(crate) async fn write_keys_to(&self, world: &World) {
        let (id, secret) = &self.keys;
        world.owner_secret("owner", &[("AWS_ACCESS_KEY_ID", id), ("AWS_SECRET_ACCESS_KEY", secret)]).await;
    }

    /// Id of its access key.
    pub(crate) fn key(&self) -> &str {
        &self.keys.0
    }

    /// Allows this from now on; the policies before are replaced, in their order.
    pub(crate) async fn allow(&self, world: &World, policies: &[&str]) {
        let documents: Vec<_> = policies.iter().map(|policy| self.named(policy)).collect();
        for (index, document) in documents.iter().enumerate() {
            let put = world.account.iam.put_user_policy().user_name(&self.user).policy_name(format!("p{index}"));
            put.policy_document(for_emulator(document.clone()).to_string()).send().await.unwrap();
        }
        world.aws.upstream().hold(&self.id, &self.user, &self.keys.0, documents);
    }

    /// The provisioning account, through the proxy, where the condition is enforced.
    pub(crate) fn through(&self, world: &World) -> Account {
        Account::at(&world.aws.url, super::REGION, &self.keys.0, &self.keys.1)
    }

    /// A shipped document with the names of this world.
    pub(crate) fn named(&self, policy: &str) -> Value {
        let shipped = format!("arn:aws:iam::{PLACEHOLDER}:policy/{BOUNDARY_NAME}");
        serde_json::from_str(&self.buckets.in_document(&policy.replace(&shipped, &self.boundary))).unwrap()
    }
}
