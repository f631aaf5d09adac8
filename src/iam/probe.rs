//! Trying a claim's keys on its bucket, once. It takes seconds until a new key works everywhere, and one host of the
//! store may accept it before the next one does. So there are two calls, each on its own connection.

use std::time::Duration;

use aws_sdk_s3::config::Config;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::ServerSideEncryption;
use aws_smithy_types::timeout::TimeoutConfig;
use tokio::time::sleep;

use crate::class::target::Target;
use crate::client::call::{Call, CallError, Identity, Operation, Resource, observe};
use crate::client::clients::AppClients;
use crate::client::error::Error;
use crate::s3::settings;
use bucket_provisioner::store::Probe;

/// With the claim's uid behind it, and its prefix before it, the key of an object that does not exist.
pub(crate) const NO_SUCH_KEY: &str = ".aws-s3-provisioner/tries-whether-keys-work/";

/// The MD5 of the part that is uploaded, `0`.
const MD5_OF_PART: &str = "z80ghJXVZe9m59/5+Ydk2g==";

/// How often, how far apart, and how long each time, an upload is aborted.
const ABORTS: u32 = 4;
const ABORT_WAIT: Duration = Duration::from_millis(500);
const ABORT_TIME: Duration = Duration::from_secs(2);

/// Lists at most one object, and reads one that does not exist; or begins an upload, and aborts it. A key of KMS is tried by
/// both; what it denies is final if the keys are settled.
pub(crate) async fn probe(app: &AppClients, target: &Target<'_>, is_settled: bool) -> Result<Probe, Error> {
    let mode = target.record.plan.access.mode;
    let read = if mode.reads() { reads(app, target).await? } else { Probe::Usable };
    let must_write = !mode.reads() || mode.writes() && settings::kms_key(&target.record.plan).is_some();
    if must_write && read == Probe::Usable { writes(app, target, is_settled).await } else { Ok(read) }
}

async fn reads(app: &AppClients, target: &Target<'_>) -> Result<Probe, Error> {
    let bucket = target.bucket_ref();
    let listed = app.s3.list_objects_v2().bucket(bucket.name).set_expected_bucket_owner(bucket.account()).max_keys(1);
    let listed = listed.set_prefix(target.record.plan.access.prefix.clone());
    // If the object exists, its content is not read.
    let read = app.s3.get_object().bucket(bucket.name).set_expected_bucket_owner(bucket.account()).key(key(target));
    let (listed, read) = tokio::join!(
        observe(&app.observer, call(target, Operation::ListObjectsV2), listed.send()),
        observe(&app.observer, call(target, Operation::GetObject), read.send()),
    );
    let read = match read {
        // The object does not exist. Keys that cannot list the bucket would get 403 instead.
        Err(error) if error.status() == 404 && error.code() != "NoSuchBucket" => Ok(()),
        // The key is known. A bucket that existed before can have a policy that allows only writing.
        Err(error) if target.existed_before() && error.code() == "AccessDenied" => Ok(()),
        answer => answer.map(drop),
    };
    let probe = both(outcome(target, listed)?, outcome(target, read)?)?;
    if probe == Probe::Usable {
        check_prefix(app, target).await?;
    }
    Ok(probe)
}

/// AWS lets keys list only what the policy allows; other stores may ignore its condition.
async fn check_prefix(app: &AppClients, target: &Target<'_>) -> Result<(), Error> {
    if target.record.plan.access.prefix.is_none() || !target.endpoints.iam_is_foreign() {
        return Ok(());
    }
    let list = app.s3.list_objects_v2().bucket(target.bucket()).max_keys(1).send();
    match observe(&app.observer, call(target, Operation::ListObjectsV2), list).await {
        Ok(_) => Err(Error::PrefixIgnored { bucket: target.bucket().to_owned() }),
        Err(_) => Ok(()),
    }
}

/// Leaves no object and no version, and an object lock does not keep it.
async fn writes(app: &AppClients, target: &Target<'_>, is_settled: bool) -> Result<Probe, Error> {
    let bucket = target.bucket_ref();
    let begin = app.s3.create_multipart_upload().bucket(bucket.name).key(key(target));
    let begin = begin.set_expected_bucket_owner(bucket.account());
    // A bucket that existed before may encrypt otherwise if the app does not name the key.
    let named = settings::kms_key(&target.record.plan).filter(|_| target.existed_before());
    let begin = begin.set_server_side_encryption(named.map(|_| ServerSideEncryption::AwsKms));
    let begin = begin.set_ssekms_key_id(named.map(str::to_owned)).send();
    let begun = observe(&app.observer, call(target, Operation::CreateMultipartUpload), begin).await;
    if let Some(unusable) = begun.as_ref().err().and_then(|error| key_unusable(target, error, is_settled)) {
        return Err(unusable);
    }
    if let Ok(begun) = &begun {
        let (upload, used) = (begun.upload_id(), begun.ssekms_key_id());
        if let (Some(wanted), Some(used)) = (settings::kms_key(&target.record.plan), used)
            && used != wanted
        {
            if let Some(upload) = upload {
                abort(app, target, upload).await?;
            }
            let code = "the bucket encrypts with another key".to_owned();
            return Err(Error::KeyUnusable { code });
        }
    }
    // A bucket that existed before can have a policy that demands more, such as a header. KMS denies with the same code.
    let may_demand_more = target.existed_before() && settings::kms_key(&target.record.plan).is_none();
    if may_demand_more && begun.as_ref().is_err_and(|error| error.code() == "AccessDenied") {
        let located =
            app.s3.get_bucket_location().bucket(bucket.name).set_expected_bucket_owner(bucket.account()).send();
        return outcome(target, observe(&app.observer, call(target, Operation::GetBucketLocation), located).await);
    }
    let upload = begun.as_ref().ok().and_then(|begun| begun.upload_id.clone());
    let begun = outcome(target, begun)?;
    let Some(upload) = upload else { return Ok(begun) };
    let written = upload_part(app, target, &upload, is_settled).await;
    let aborted = abort(app, target, &upload).await?;
    both(both(begun, written?)?, aborted)
}

/// Only a part proves that the key of KMS can decrypt, too ("CreateMultipartUpload", Amazon S3 API reference).
async fn upload_part(app: &AppClients, target: &Target<'_>, upload: &str, is_settled: bool) -> Result<Probe, Error> {
    if settings::kms_key(&target.record.plan).is_none() {
        return Ok(Probe::Usable);
    }
    let bucket = target.bucket_ref();
    let part = app.s3.upload_part().bucket(bucket.name).key(key(target)).upload_id(upload).part_number(1);
    // A bucket with a default retention demands a checksum ("PutObject", Amazon S3 API reference).
    let part = part
        .body(ByteStream::from_static(b"0"))
        .content_md5(MD5_OF_PART)
        .set_expected_bucket_owner(bucket.account())
        .send();
    let answer = observe(&app.observer, call(target, Operation::UploadPart), part).await;
    match answer.as_ref().err().and_then(|error| key_unusable(target, error, is_settled)) {
        Some(unusable) => Err(unusable),
        None => outcome(target, answer),
    }
}

/// The error about a key of KMS ("Error responses", Amazon S3 API reference). KMS denies with the code of S3, and the message
/// names the action, such as kms:GenerateDataKey; at first because KMS does not know the policy of a new user yet.
fn key_unusable(target: &Target<'_>, error: &CallError, is_settled: bool) -> Option<Error> {
    let has_key = settings::kms_key(&target.record.plan).is_some();
    let names_kms = || error.message().is_some_and(|message| message.contains("kms:"));
    let is_denied = is_settled && has_key && error.status() == 403 && names_kms();
    let is_about_key = error.code().starts_with("KMS.") || is_denied;
    is_about_key.then(|| Error::KeyUnusable { code: error.code().to_owned() })
}

/// Nobody would find an upload again that is not aborted.
async fn abort(app: &AppClients, target: &Target<'_>, upload: &str) -> Result<Probe, Error> {
    let bucket = target.bucket_ref();
    let timeouts = TimeoutConfig::builder().operation_timeout(ABORT_TIME).build();
    let mut left = ABORTS;
    loop {
        let abort = app.s3.abort_multipart_upload().bucket(bucket.name).key(key(target)).upload_id(upload);
        let abort = abort.set_expected_bucket_owner(bucket.account()).customize();
        let abort = abort.config_override(Config::builder().timeout_config(timeouts.clone())).send();
        let aborted = observe(&app.observer, call(target, Operation::AbortMultipartUpload), abort).await;
        left -= 1;
        match aborted {
            Err(error) if error.status() == 404 => return Ok(Probe::Usable),
            // Another host may not know the key yet, or be busy.
            Err(_) if left > 0 => sleep(ABORT_WAIT).await,
            aborted => return outcome(target, aborted),
        }
    }
}

/// The key of an object that does not exist.
fn key(target: &Target<'_>) -> String {
    let prefix = target.record.plan.access.prefix.as_deref().unwrap_or_default();
    format!("{prefix}{NO_SUCH_KEY}{}", target.record.claim.uid)
}

fn call(target: &Target<'_>, operation: Operation) -> Call {
    Call { operation, resource: Resource::bucket(target.bucket()), identity: whose(target), session: false }
}

fn outcome<T>(target: &Target<'_>, answer: Result<T, CallError>) -> Result<Probe, Error> {
    match answer {
        Ok(_) => Ok(Probe::Usable),
        // The keys of the claim's user are valid, and will work soon. The provisioning credentials are not new, so a
        // refusal is final.
        Err(error) if target.has_own_access() && is_unknown(&error) => Ok(Probe::NotYet(code_or_status(&error))),
        Err(error) if target.has_own_access() && error.status() == 403 => Ok(Probe::Denied(code_or_status(&error))),
        Err(error) => Err(Error::from(error)),
    }
}

/// What two calls show together.
fn both(first: Probe, second: Probe) -> Result<Probe, Error> {
    Ok(match (first, second) {
        (Probe::Usable, second) => second,
        // One host knows the key, and another one does not yet.
        (Probe::Denied(_), Probe::NotYet(code)) => Probe::NotYet(code),
        (refused, _) => refused,
    })
}

/// A claim without its own user shares the provisioning credentials.
fn whose(target: &Target<'_>) -> Identity {
    match (target.has_own_access(), &target.record.plan.owner.secret) {
        (false, Some(secret)) => Identity::Secret(secret.clone()),
        _ => Identity::App,
    }
}

/// Whether the store does not know the key.
fn is_unknown(error: &CallError) -> bool {
    matches!(error.code(), "InvalidAccessKeyId" | "InvalidClientTokenId" | "SignatureDoesNotMatch")
}

fn code_or_status(error: &CallError) -> String {
    match error.code() {
        "" => error.status().to_string(),
        code => code.to_owned(),
    }
}
