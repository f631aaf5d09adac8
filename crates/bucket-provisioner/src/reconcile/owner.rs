//! The provisioning credentials: read from their Secret, and compared with the account that a record names.

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

use crate::error::Error;
use crate::refusal::Refusal;
use crate::state::context::Context;
use crate::store::{self, Call, OwnerSource, Parameters as _, Provisioner, Record, Recorded, SecretRef};

/// The provisioning credentials.
pub(crate) struct Owner<P: Provisioner> {
    pub(crate) credentials: P::Owner,
    /// What the record keeps of the parameters of its class, which every verb gets together with the credentials.
    parameters: Recorded<P>,
    /// Resource version of the Secret that they were read from.
    pub(crate) version: Option<String>,
    /// The account that they belong to, if the store reports it.
    pub(crate) account: Option<String>,
}

impl<P: Provisioner> Owner<P> {
    /// A call of a verb for the record.
    pub(crate) fn call<'a>(&'a self, record: &'a Record) -> Call<'a, P> {
        Call::new(record, &self.parameters, &self.credentials)
    }
}

/// What a record keeps of the parameters of its class.
///
/// # Errors
/// [`Refusal::RecordedParametersUnreadable`].
pub(crate) fn parameters<P: Provisioner>(record: &Record) -> Result<Recorded<P>, Refusal> {
    P::Parameters::recorded(record).map_err(Refusal::RecordedParametersUnreadable)
}

/// Reads the provisioning credentials that a record refers to. An edited Secret is used at once.
///
/// # Errors
/// [`Error::OwnerSecretNotFound`], those of [`parse`], and
/// [`Error::AccountChanged`] if they belong to another account than the recorded one: what is missing in another account
/// was not deleted.
pub(crate) async fn of_record<P: Provisioner>(ctx: &Context<P>, record: &Record) -> Result<Owner<P>, Error> {
    let mut version = None;
    let source = match &record.plan.owner.secret {
        None => OwnerSource::Ambient,
        Some(reference) => {
            ctx.memory.entry(&record.claim, |m| m.waits.depends_on(reference));
            ctx.owner_secrets.watch(&ctx.client, reference);
            let found = ctx.owner_secrets.read(&ctx.client, reference).await;
            let found = found.map_err(Error::kubernetes("read the Secret with the provisioning credentials"))?;
            version = found.as_ref().and_then(|secret| secret.metadata.resource_version.clone());
            ctx.memory.entry(&record.claim, |m| m.waits.has_read(version.clone()));
            source(reference, found)?
        }
    };
    let credentials = parse(record, &source)?;
    let owner = Owner { credentials, parameters: parameters::<P>(record)?, version, account: None };
    let account = ctx.call_store_once(record, Box::pin(ctx.provisioner.account(&owner.call(record)))).await?;
    same_account(record, account.as_deref())?;
    Ok(Owner { account, ..owner })
}

/// The provisioning credentials that a record refers to, read once, for a command.
///
/// # Errors
/// [`Error::OwnerSecretNotFound`], those of [`parse`], and that the Secret cannot be read.
pub(crate) async fn read<P: Provisioner>(client: &Client, record: &Record) -> Result<Owner<P>, Error> {
    let source = match &record.plan.owner.secret {
        None => OwnerSource::Ambient,
        Some(reference) => {
            let secrets: Api<Secret> = Api::namespaced(client.clone(), &reference.namespace);
            let found = secrets.get_opt(&reference.name).await;
            source(reference, found.map_err(Error::kubernetes("read the Secret with the provisioning credentials"))?)?
        }
    };
    let credentials = parse(record, &source)?;
    Ok(Owner { credentials, parameters: parameters::<P>(record)?, version: None, account: None })
}

/// The content of a Secret with provisioning credentials.
///
/// # Errors
/// [`Error::OwnerSecretNotFound`].
pub(crate) fn source(reference: &SecretRef, found: Option<Secret>) -> Result<OwnerSource, Error> {
    let secret = found.ok_or_else(|| Error::OwnerSecretNotFound(reference.clone()))?;
    let data = secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect();
    Ok(OwnerSource::Secret { reference: reference.clone(), data })
}

/// The provisioning credentials.
///
/// # Errors
/// [`Refusal::InvalidOwnerSecret`], or that the class names no Secret although the store needs one.
pub(crate) fn parse<O: store::Owner>(record: &Record, source: &OwnerSource) -> Result<O, Refusal> {
    if let (OwnerSource::Ambient, Some(secret)) = (source, &record.plan.owner.secret) {
        // The operator's own permissions are often wider: there is no silent fallback to them.
        return Err(Refusal::InvalidOwnerSecret {
            secret: secret.clone(),
            problem: "was not read, and the operator's own identity does not replace it".to_owned(),
        });
    }
    O::parse(source).map_err(|problem| match source {
        OwnerSource::Secret { reference, .. } => Refusal::InvalidOwnerSecret { secret: reference.clone(), problem },
        OwnerSource::Ambient => Refusal::OwnerSecretMissing,
    })
}

/// Fails if the provisioning credentials belong to another account than the recorded one, as far as the store reports
/// it.
fn same_account(record: &Record, now: Option<&str>) -> Result<(), Error> {
    let (Some(recorded), Some(now)) = (record.account.as_deref(), now) else { return Ok(()) };
    if recorded == now {
        return Ok(());
    }
    tracing::warn!(
        recorded,
        now,
        bucket = record.plan.bucket,
        "the provisioning credentials belong to another account"
    );
    Err(Error::AccountChanged { place: record.plan.owner.to_string() })
}
