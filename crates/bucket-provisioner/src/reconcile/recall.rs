//! The lost record of a claim, reconstructed from the store, for an admin who applies it and has the claim adopt it.

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::{Api, Client};

use crate::api::{ObjectBucket, ObjectBucketClaim, object_name, wire};
use crate::decide::claim::WantedBucket;
use crate::decide::class::Class;
use crate::decide::request::{self, Asked};
use crate::decide::{codec, output_data, record, service_account};
use crate::error::Error;
use crate::options::Options;
use crate::reconcile::owner;
use crate::store::{ClaimId, Mode, Plan, Provisioner, Recalled, ReclaimPolicy, Record};

/// Why a record cannot be reconstructed.
#[derive(Debug, thiserror::Error)]
pub enum RecallError {
    /// There is no such claim.
    #[error("ObjectBucketClaim {0} does not exist; restore it first")]
    NoClaim(String),
    /// The claim's class does not exist, or belongs to another provisioner.
    #[error("StorageClass {class:?} does not exist or does not name provisioner {provisioner:?}; restore it first")]
    NoClass {
        /// Name of the class.
        class: String,
        /// Name of this provisioner.
        provisioner: String,
    },
    /// Neither claim nor class names the bucket.
    #[error(
        "the claim does not name its bucket; name it with --bucket (the command `orphans` lists buckets without an ObjectBucket)"
    )]
    NoBucket,
    /// Nothing shows for which claim the bucket was created.
    #[error(
        "nothing shows for which claim bucket {bucket:?} was created: its tags are missing, or it existed before the claim and the claim's user does not exist; restore the ObjectBucket from a backup"
    )]
    NothingKnown {
        /// Name of the bucket.
        bucket: String,
    },
    /// The bucket was created for a claim of another name.
    #[error("bucket {bucket:?} was created for claim {found}, not for {wanted}")]
    AnotherClaim {
        /// Name of the bucket.
        bucket: String,
        /// The claim that it belongs to.
        found: String,
        /// The claim that was asked for.
        wanted: String,
    },
    /// The store or Kubernetes refused; the sentence names the request.
    #[error("{0}")]
    Refused(String),
}

impl From<Error> for RecallError {
    fn from(error: Error) -> Self {
        Self::Refused(error.to_string())
    }
}

/// The ObjectBucket of the claim `namespace/name`, reconstructed from the store. Only reads.
///
/// `bucket`: the bucket that the claim had; needed only if neither the claim nor its class names it.
///
/// # Errors
/// See [`RecallError`].
pub async fn recall<P: Provisioner>(
    client: Client,
    provisioner: P,
    options: &Options,
    (namespace, name): (&str, &str),
    bucket: Option<String>,
) -> Result<ObjectBucket, RecallError> {
    of_claim(&client, &provisioner, &options.provisioner_name, (namespace, name), bucket).await
}

/// As [`recall`], with a client and a store that are still needed.
pub(crate) async fn of_claim<P: Provisioner>(
    client: &Client,
    provisioner: &P,
    provisioner_name: &str,
    (namespace, name): (&str, &str),
    bucket: Option<String>,
) -> Result<ObjectBucket, RecallError> {
    let claims: Api<ObjectBucketClaim> = Api::namespaced(client.clone(), namespace);
    let found = claims.get_opt(name).await.map_err(Error::kubernetes("read the claim"))?;
    let claim = found.ok_or_else(|| RecallError::NoClaim(format!("{namespace}/{name}")))?;
    let class = class(client, &claim.spec.storage_class_name, provisioner_name).await?;

    let id =
        ClaimId { namespace: namespace.to_owned(), name: name.to_owned(), uid: claim.metadata.uid.unwrap_or_default() };
    let given = |bucket: Option<String>| bucket.filter(|bucket| !bucket.is_empty());
    let wanted = match (given(bucket), given(claim.spec.bucket_name)) {
        (Some(bucket), _) => WantedBucket::Recorded(bucket),
        (None, Some(bucket)) => WantedBucket::Named(bucket),
        (None, None) => published(client, namespace, name).await?,
    };
    let config = claim.spec.additional_config.as_ref();
    let account = config.and_then(|config| config.get(wire::state::SERVICE_ACCOUNT_NAME)).map(String::as_str);
    let record = of_tags(client, provisioner, &class, id, (&wanted, account)).await?;
    let name = claim.spec.object_bucket_name.filter(|name| object_name(name).is_some());
    let (plain, unique) = record::names(&record.claim);
    let name = name.or(plain).unwrap_or(unique);
    Ok(codec::to_object(&record, &name, provisioner_name))
}

/// The bucket in the claim's ConfigMap, which may be restored: the operator does not write every name into the claim. The
/// bucket's tags prove whose it is.
async fn published(client: &Client, namespace: &str, name: &str) -> Result<WantedBucket, RecallError> {
    let config_maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let found = config_maps.get_opt(name).await.map_err(Error::kubernetes("read the ConfigMap"))?;
    Ok(output_data::bucket(found.as_ref())
        .map_or(WantedBucket::Unspecified, |bucket| WantedBucket::Recorded(bucket.to_owned())))
}

/// The record of a claim with the namespace and name of `claim`, from the tags of its bucket or user. `claim` itself need
/// not exist any more. `account`: the ServiceAccount of its apps.
///
/// # Errors
/// See [`RecallError`].
pub(crate) async fn of_tags<P: Provisioner>(
    client: &Client,
    provisioner: &P,
    class: &Class,
    claim: ClaimId,
    (bucket, account): (&WantedBucket, Option<&str>),
) -> Result<Record, RecallError> {
    let wanted = claim.clone();
    let mut record = would_be(class, plan(provisioner, class, &claim, (bucket, account))?, claim);
    let bucket = record.plan.bucket.clone();
    let owner = owner::read::<P>(client, &record).await?;
    record.account = provisioner.account(&owner.call(&record)).await.map_err(Error::store)?;
    let recalled = provisioner.recall(&owner.call(&record)).await.map_err(Error::store)?;
    let Recalled { claim: previous, cluster, former_uids, user } =
        recalled.ok_or_else(|| RecallError::NothingKnown { bucket: bucket.clone() })?;
    if (&previous.namespace, &previous.name) != (&wanted.namespace, &wanted.name) {
        return Err(RecallError::AnotherClaim { bucket, found: previous.to_string(), wanted: wanted.to_string() });
    }
    // A record without a user would mean that the claim has the provisioning keys. A missing user is recreated.
    // Names are those of the first claim.
    let first = ClaimId { uid: former_uids.first().unwrap_or(&previous.uid).clone(), ..previous.clone() };
    let planned = plan(provisioner, class, &first, (&WantedBucket::Recorded(bucket), account))?;
    (record.plan.access, record.plan.state) = (planned.access, planned.state);
    record.plan.user = planned.user.map(|planned| user.unwrap_or(planned));
    (record.claim, record.cluster, record.former_uids) = (previous, cluster, former_uids);
    Ok(record)
}

/// The record of a claim that was bound with this plan.
pub(crate) fn would_be(class: &Class, plan: Plan, claim: ClaimId) -> Record {
    Record {
        previous_access: Vec::new(),
        claim,
        former_uids: Vec::new(),
        cluster: None,
        account: None,
        claim_created_at: None,
        class_name: class.name.clone(),
        reclaim_policy: match plan.mode {
            Mode::Created => class.reclaim_policy,
            Mode::Granted => ReclaimPolicy::Retain,
        },
        credentials_published: true,
        plan,
    }
}

async fn class(client: &Client, name: &str, provisioner: &str) -> Result<Class, RecallError> {
    let classes: Api<StorageClass> = Api::all(client.clone());
    let found = match object_name(name) {
        Some(name) => classes.get_opt(name).await.map_err(Error::kubernetes("read the StorageClass"))?,
        None => None,
    };
    let class = found.as_ref().map(Class::read).filter(|class| class.provisioner == provisioner);
    class.ok_or_else(|| RecallError::NoClass { class: name.to_owned(), provisioner: provisioner.to_owned() })
}

/// The plan that the class gives now for the bucket that the claim had.
fn plan<P: Provisioner>(
    provisioner: &P,
    class: &Class,
    claim: &ClaimId,
    (bucket, account): (&WantedBucket, Option<&str>),
) -> Result<Plan, RecallError> {
    let config = service_account::config(class, account.unwrap_or_default());
    let asked = Asked { config: config.as_ref(), ..Asked::bucket(bucket) };
    match request::plan(provisioner, class, claim, asked, None) {
        // The class may set something else than it did for this bucket.
        Ok(plan) => Ok(Plan { settings: plan.settings.clone().of_existing_buckets(P::CAPABILITIES.settings), ..plan }),
        Err(_) if *bucket == WantedBucket::Unspecified => Err(RecallError::NoBucket),
        Err(error) => Err(error.into()),
    }
}
