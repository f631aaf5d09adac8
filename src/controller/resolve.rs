//! Looks up what a claim refers to: its class, and the owner's credentials. Decides nothing.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::core::{ApiResource, DynamicObject};

use super::claim::Claim;
use super::context::Context;
use super::error::Error;
use super::gate::ClassOwner;
use crate::provisioner::{OwnerSource, Provisioner, ReclaimPolicy, Record, SecretRef};

/// The parts of a StorageClass that a plan is made from.
#[derive(Debug, Clone)]
pub(crate) struct Class {
    pub(crate) name: String,
    pub(crate) provisioner: String,
    pub(crate) parameters: BTreeMap<String, String>,
    pub(crate) reclaim_policy: ReclaimPolicy,
}

impl Class {
    pub(crate) fn read(class: &StorageClass) -> Self {
        Self {
            name: class.metadata.name.clone().unwrap_or_default(),
            provisioner: class.provisioner.clone(),
            parameters: class.parameters.clone().unwrap_or_default(),
            // The API server admits nothing but Delete and Retain (and, for volumes of old, Recycle), and
            // fills in Delete.
            reclaim_policy: match class.reclaim_policy.as_deref() {
                None | Some("Delete") => ReclaimPolicy::Delete,
                Some(_) => ReclaimPolicy::Retain,
            },
        }
    }
}

/// A claim's class, as far as it can be told.
#[derive(Debug, Clone)]
pub(crate) enum ClassLookup {
    Found(Class),
    Missing { name: String },
    Unnamed,
}

impl ClassLookup {
    pub(crate) fn owner(&self, provisioner: &str) -> ClassOwner {
        match self {
            Self::Found(class) if class.provisioner == provisioner => ClassOwner::Ours,
            Self::Found(_) => ClassOwner::Foreign,
            Self::Missing { .. } => ClassOwner::Missing,
            Self::Unnamed => ClassOwner::Unnamed,
        }
    }
}

/// Finds the claim's class: in the cache, else in the cluster, for it may be newer than the cache.
pub(crate) async fn class<P>(ctx: &Context<P>, claim: &Claim) -> Result<ClassLookup, Error> {
    let name = match claim.spec() {
        Ok(spec) => spec.storage_class_name.clone(),
        Err(_) => match class_name_of_unreadable(ctx, claim).await? {
            Some(name) => name,
            None => return Ok(ClassLookup::Unnamed),
        },
    };
    class_named(ctx, name).await
}

/// Finds the class of this name.
pub(crate) async fn class_named<P>(ctx: &Context<P>, name: String) -> Result<ClassLookup, Error> {
    if let Some(class) = ctx.caches.classes.get(None, &name) {
        return Ok(ClassLookup::Found(Class::read(&class)));
    }
    let api: Api<StorageClass> = Api::all(ctx.client.clone());
    let found = api.get_opt(&name).await.map_err(Error::kubernetes("read the StorageClass"))?;
    Ok(match found {
        Some(class) => ClassLookup::Found(Class::read(&class)),
        None => ClassLookup::Missing { name },
    })
}

/// Even a claim that does not parse mostly names a class, and by it belongs to somebody.
async fn class_name_of_unreadable<P>(ctx: &Context<P>, claim: &Claim) -> Result<Option<String>, Error> {
    let resource = ApiResource::erase::<crate::api::ObjectBucketClaim>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(ctx.client.clone(), &claim.id.namespace, &resource);
    let raw = api.get_opt(&claim.id.name).await.map_err(Error::kubernetes("read the claim"))?;
    let name = raw.as_ref().and_then(|raw| raw.data.pointer("/spec/storageClassName")?.as_str());
    Ok(name.filter(|name| !name.is_empty()).map(str::to_owned))
}

/// The owner's credentials.
pub(crate) struct Owner<O> {
    pub(crate) credentials: O,
    /// Resource version of the Secret that they were read from.
    pub(crate) version: Option<String>,
    /// The account that they belong to, if the store says.
    pub(crate) account: Option<String>,
}

/// Reads the owner's credentials that a record refers to, always anew: an edited Secret counts at once.
///
/// # Errors
/// [`Error::OwnerSecretNotFound`], whatever the provisioner says of what is in the Secret, and
/// [`Error::AccountChanged`] if they are not those of the account in which the record was made: what is missing there
/// is not gone.
pub(crate) async fn owner<P: Provisioner>(ctx: &Context<P>, record: &Record) -> Result<Owner<P::Owner>, Error> {
    let mut version = None;
    let source = match &record.plan.owner_secret {
        None => OwnerSource::Ambient,
        Some(reference) => {
            ctx.memory.depends_on(&record.claim, reference);
            ctx.owner_secrets.watch(&ctx.client, reference);
            let api = ctx.secrets_in(&reference.namespace);
            let found = api.get_opt(&reference.name).await;
            let found = found.map_err(Error::kubernetes("read the owner's Secret"))?;
            version = found.as_ref().and_then(|secret| secret.metadata.resource_version.clone());
            ctx.memory.has_read(&record.claim, version.clone());
            ctx.owner_secrets.saw(reference, version.as_deref());
            source(reference, found)?
        }
    };
    let credentials = ctx.provisioner.owner(record, source).map_err(Error::store)?;
    let account = ctx.asking_once(record, Box::pin(ctx.provisioner.account(record, &credentials))).await?;
    same_account(record, account.as_deref())?;
    Ok(Owner { credentials, version, account })
}

/// What an owner's Secret holds.
///
/// # Errors
/// [`Error::OwnerSecretNotFound`].
pub(crate) fn source(reference: &SecretRef, found: Option<Secret>) -> Result<OwnerSource, Error> {
    let secret = found.ok_or_else(|| Error::OwnerSecretNotFound(reference.clone()))?;
    let data = secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect();
    Ok(OwnerSource::Secret { reference: reference.clone(), data })
}

/// Requires that the owner's credentials are not known to be those of another account than the recorded one. A store
/// may not tell.
fn same_account(record: &Record, now: Option<&str>) -> Result<(), Error> {
    let (Some(recorded), Some(now)) = (record.account.as_deref(), now) else { return Ok(()) };
    if recorded == now {
        return Ok(());
    }
    tracing::warn!(recorded, now, bucket = record.plan.bucket, "the owner's credentials are those of another account");
    let place = match &record.plan.owner_secret {
        Some(secret) => format!("Secret {secret}"),
        None => "the operator's own identity".to_owned(),
    };
    Err(Error::AccountChanged { place })
}
