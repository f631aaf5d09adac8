//! The content of the claim's Secret and ConfigMap, and the difference to what they should contain. Pure.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use kube::api::ObjectMeta;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::api::wire;
use crate::decide::keys;
use crate::decide::keys::KeyNotes;
use crate::decide::metadata::controller;
use crate::decide::output_metadata::{self, OutputMetadata};
use crate::store::{AppCredentials, ClaimId, Plan, Record};

/// What a claim inherits with a record that it adopts: outputs with our label that are controlled by one of the
/// previous claims, or by nobody, because backups leave out owner references.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PreviousOwner<'a> {
    label: &'a str,
    record: &'a Record,
}

impl<'a> PreviousOwner<'a> {
    /// `None` if the record was not adopted, so that nothing is inherited.
    pub(crate) fn of(record: &'a Record, adopting: bool, label: &'a str) -> Option<Self> {
        (adopting || !record.former_uids.is_empty()).then_some(Self { label, record })
    }

    pub(crate) fn inherits(&self, metadata: &ObjectMeta) -> bool {
        let labels = metadata.labels.as_ref();
        labels.and_then(|labels| labels.get(wire::PROVISIONER_LABEL)).is_some_and(|label| label == self.label)
            && controller(metadata).is_none_or(|uid| self.record.names_uid(uid))
    }
}

/// The two kinds of output.
pub(crate) trait Output:
    kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
    + Clone
    + std::fmt::Debug
    + DeserializeOwned
    + Serialize
{
    /// For messages, as the others.
    const KIND: &'static str;
    const WRITE: &'static str;
    const READ: &'static str;
    const DELETE: &'static str;

    /// Nothing but its metadata can be changed.
    fn is_immutable(&self) -> bool;

    /// The merge patch of `data` for the entries of `wanted` that are missing or different in `self`.
    fn differing(&self, wanted: &Self) -> Option<Value>;
}

impl Output for Secret {
    const KIND: &'static str = "Secret";
    const WRITE: &'static str = "write the claim's Secret";
    const READ: &'static str = "read the claim's Secret";
    const DELETE: &'static str = "delete the claim's Secret";

    fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }

    fn differing(&self, wanted: &Self) -> Option<Value> {
        let has = |secret: &Self, key: &str| secret.data.as_ref().is_some_and(|data| data.contains_key(key));
        let mut changed = differing(self.data.as_ref(), wanted.data.as_ref());
        // With the token of earlier keys, the present keys do not work; and SDKs prefer keys to a ServiceAccount.
        for key in wire::secret::ALL.into_iter().chain([wire::secret::SESSION_TOKEN]) {
            if has(self, key) && !has(wanted, key) {
                changed.get_or_insert_with(|| json!({}))[key] = Value::Null;
            }
        }
        changed
    }
}

impl Output for ConfigMap {
    const KIND: &'static str = "ConfigMap";
    const WRITE: &'static str = "write the claim's ConfigMap";
    const READ: &'static str = "read the claim's ConfigMap";
    const DELETE: &'static str = "delete the claim's ConfigMap";

    fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }

    fn differing(&self, wanted: &Self) -> Option<Value> {
        differing(self.data.as_ref(), wanted.data.as_ref())
    }
}

fn differing<V: PartialEq + Serialize>(
    is: Option<&BTreeMap<String, V>>,
    should: Option<&BTreeMap<String, V>>,
) -> Option<Value> {
    let changed: BTreeMap<_, _> =
        should.into_iter().flatten().filter(|(key, value)| is.and_then(|is| is.get(*key)) != Some(value)).collect();
    (!changed.is_empty()).then(|| json!(changed))
}

pub(crate) fn is_of(metadata: &ObjectMeta, claim: &ClaimId) -> bool {
    controller(metadata) == Some(&claim.uid)
}

pub(crate) fn owner(claim: &ClaimId) -> OwnerReference {
    OwnerReference {
        api_version: wire::API_VERSION.to_owned(),
        kind: wire::CLAIM_KIND.to_owned(),
        name: claim.name.clone(),
        uid: claim.uid.clone(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

fn metadata(claim: &ClaimId, label: &str, extra: &OutputMetadata) -> ObjectMeta {
    let mut metadata = ObjectMeta {
        namespace: Some(claim.namespace.clone()),
        name: Some(claim.name.clone()),
        labels: Some([(wire::PROVISIONER_LABEL.to_owned(), label.to_owned())].into()),
        owner_references: Some(vec![owner(claim)]),
        ..ObjectMeta::default()
    };
    extra.add(&mut metadata);
    metadata
}

/// The claim's Secret with `credentials`, and with notes on them. Without keys it is empty, so that pods can refer to it.
pub(crate) fn secret(
    claim: &ClaimId,
    (label, extra): (&str, &OutputMetadata),
    credentials: &AppCredentials,
    notes: &KeyNotes,
) -> Secret {
    let AppCredentials { access_key_id, secret_access_key, session_token, outputs } = credentials;
    let entry = |key: &str, value: &str| (key.to_owned(), ByteString(value.as_bytes().to_vec()));
    let mut data: BTreeMap<_, _> = outputs.iter().map(|(key, value)| entry(key, value.expose_secret())).collect();
    if credentials.has_keys() {
        data.extend([
            entry(wire::secret::ACCESS_KEY_ID, access_key_id),
            entry(wire::secret::SECRET_ACCESS_KEY, secret_access_key.expose_secret()),
        ]);
    }
    if let Some(token) = session_token {
        data.extend([entry(wire::secret::SESSION_TOKEN, token.expose_secret())]);
    }
    let mut metadata = metadata(claim, label, extra);
    let noted = notes.annotations().into_iter().filter_map(|(key, note)| Some((key.to_owned(), note?)));
    metadata.annotations.get_or_insert_default().extend(noted);
    Secret { metadata, type_: Some("Opaque".to_owned()), data: Some(data), ..Secret::default() }
}

/// What a claim's Secret will look like, with other keys.
pub(crate) fn sample_secret(claim: &ClaimId, plan: &Plan, label: &str, extra: &OutputMetadata) -> Secret {
    let keys = match &plan.service_account {
        Some(_) => AppCredentials::without_keys(),
        None => AppCredentials::new("-", "-".into()),
    };
    secret(claim, (label, extra), &keys, &KeyNotes::default())
}

/// The credentials in the Secret of a claim with this plan: no keys, if its apps have access without them.
pub(crate) fn credentials_by(plan: &Plan, secret: &Secret) -> Option<AppCredentials> {
    match &plan.service_account {
        Some(_) => Some(AppCredentials::without_keys()),
        None => credentials(secret),
    }
}

/// The keys in a Secret of ours, without what the store added; `None` if a part is missing or empty.
pub(crate) fn credentials(secret: &Secret) -> Option<AppCredentials> {
    let text = |key: &str| {
        let bytes = &secret.data.as_ref()?.get(key)?.0;
        std::str::from_utf8(bytes).ok().filter(|text| !text.is_empty())
    };
    let keys = AppCredentials::new(text(wire::secret::ACCESS_KEY_ID)?, text(wire::secret::SECRET_ACCESS_KEY)?.into());
    Some(AppCredentials { session_token: text(wire::secret::SESSION_TOKEN).map(SecretString::from), ..keys })
}

/// The ConfigMap with the name and endpoint of the claim's bucket, and what the store adds.
pub(crate) fn config_map((label, extra): (&str, &OutputMetadata), record: &Record) -> ConfigMap {
    let endpoint = &record.plan.endpoint;
    let entry = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let mut data = record.plan.outputs.clone();
    // Standard keys win, because somebody may have edited the record.
    data.extend([
        entry(wire::config::BUCKET_NAME, &record.plan.bucket),
        entry(wire::config::BUCKET_HOST, &endpoint.host),
        entry(wire::config::BUCKET_PORT, &endpoint.port.to_string()),
        entry(wire::config::BUCKET_REGION, &endpoint.region),
        entry(wire::config::BUCKET_SUBREGION, ""),
        entry(wire::config::AWS_REGION, &endpoint.region),
        entry(wire::config::AWS_DEFAULT_REGION, &endpoint.region),
    ]);
    if let Some(prefix) = &record.plan.access.prefix {
        data.extend([entry(wire::config::BUCKET_PREFIX, prefix)]);
    }
    if let Some(url) = &endpoint.url {
        data.extend([entry(wire::config::AWS_ENDPOINT_URL_S3, url)]);
    }
    ConfigMap { metadata: metadata(&record.claim, label, extra), data: Some(data), ..ConfigMap::default() }
}

/// The bucket that a claim's ConfigMap names.
pub(crate) fn bucket(config_map: Option<&ConfigMap>) -> Option<&str> {
    config_map?.data.as_ref()?.get(wire::config::BUCKET_NAME).map(String::as_str)
}

/// The merge patch from `found` to `wanted`; `None` if nothing differs.
pub(crate) fn difference<T: Output>(found: &T, wanted: &T) -> Option<Value> {
    // Objects without the label are not watched.
    let label = |output: &T| output.labels().get(wire::PROVISIONER_LABEL).cloned();
    let data = found.differing(wanted);
    let notes: BTreeMap<_, _> = keys::ANNOTATIONS
        .into_iter()
        .map(|key| (key, wanted.annotations().get(key)))
        .filter(|(key, note)| found.annotations().get(*key) != *note)
        .collect();
    let extra = output_metadata::difference(found.meta(), wanted.meta());
    if data.is_none() && notes.is_empty() && extra.is_none() && label(found) == label(wanted) {
        return None;
    }
    // The uid guards against an object that was replaced since it was read.
    let mut patch = json!({
        "metadata": { "uid": found.meta().uid, "labels": { wire::PROVISIONER_LABEL: label(wanted) } },
        "data": data.unwrap_or_else(|| json!({})),
    });
    if !notes.is_empty() {
        patch["metadata"]["annotations"] = json!(notes);
    }
    for (field, entries) in extra.iter().flat_map(|extra| extra.as_object()).flatten() {
        for (key, value) in entries.as_object().into_iter().flatten() {
            patch["metadata"][field][key] = value.clone();
        }
    }
    Some(patch)
}

/// What replaces an immutable output that differs by this merge patch; `None` if the output can be patched. What
/// others have added to it is kept.
pub(crate) fn replacement<T: Output>(found: &T, wanted: &T, patch: &Value) -> Option<Result<T, serde_json::Error>> {
    let changes_data = patch["data"].as_object().is_some_and(|data| !data.is_empty());
    (found.is_immutable() && changes_data).then(|| patched(found, wanted, patch))
}

fn patched<T: Output>(found: &T, wanted: &T, patch: &Value) -> Result<T, serde_json::Error> {
    let mut object = serde_json::to_value(found)?;
    json_patch::merge(&mut object, patch);
    let metadata: ObjectMeta = serde_json::from_value(object["metadata"].take())?;
    let metadata = ObjectMeta {
        labels: metadata.labels,
        annotations: metadata.annotations,
        name: metadata.name,
        namespace: metadata.namespace,
        owner_references: wanted.meta().owner_references.clone(),
        ..ObjectMeta::default()
    };
    object["metadata"] = serde_json::to_value(metadata)?;
    object["immutable"].take();
    serde_json::from_value(object)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn secret_with_token(token: Option<&str>) -> Secret {
        let claim = ClaimId { namespace: "ns".into(), name: "c".into(), uid: "u".into() };
        let credentials = AppCredentials {
            session_token: token.map(SecretString::from),
            ..AppCredentials::new("AKIA1", "one".into())
        };
        secret(&claim, ("label", &OutputMetadata::default()), &credentials, &KeyNotes::default())
    }

    #[test]
    fn what_is_up_to_date_is_not_written() {
        assert_eq!(secret_with_token(None).differing(&secret_with_token(None)), None);
        assert_eq!(secret_with_token(Some("t")).differing(&secret_with_token(Some("t"))), None);
    }

    #[test]
    fn a_token_of_earlier_keys_is_removed() {
        let patch = secret_with_token(Some("old")).differing(&secret_with_token(None)).unwrap();
        assert_eq!(patch, json!({ "AWS_SESSION_TOKEN": null }));
    }

    #[test]
    fn entries_of_others_are_kept() {
        let mut current = secret_with_token(None);
        current.data.as_mut().unwrap().insert("EXTRA".into(), ByteString(b"kept".to_vec()));
        assert_eq!(current.differing(&secret_with_token(None)), None);
    }

    #[test]
    fn entries_of_the_store_are_written_with_the_keys_and_kept() {
        let claim = ClaimId { namespace: "ns".into(), name: "c".into(), uid: "u".into() };
        let issued = AppCredentials::new("AKIA1", "one".into()).with_output("CA_BUNDLE", "-----BEGIN".into());
        let written = secret(&claim, ("label", &OutputMetadata::default()), &issued, &KeyNotes::default());
        assert_eq!(written.data.as_ref().unwrap()["CA_BUNDLE"].0, b"-----BEGIN");
        assert_eq!(secret_with_token(None).differing(&written).unwrap()["CA_BUNDLE"], json!("LS0tLS1CRUdJTg=="));
        let present = credentials(&written).unwrap();
        assert!(present.outputs.is_empty());
        assert_eq!(
            written.differing(&secret(&claim, ("label", &OutputMetadata::default()), &present, &KeyNotes::default())),
            None
        );
    }

    #[test]
    fn what_the_store_adds_to_the_config_map_is_repaired() {
        let mut record = crate::decide::testing::record();
        record.plan = record.plan.with_output("FORMAT", "parquet").with_output("BUCKET_HOST", "elsewhere");
        let wanted = config_map(("label", &OutputMetadata::default()), &record);
        let data = wanted.data.as_ref().unwrap();
        assert_eq!((data["FORMAT"].as_str(), data["BUCKET_HOST"].as_str()), ("parquet", "store.example.com"));
        let mut edited = wanted.clone();
        edited.data.as_mut().unwrap().insert("FORMAT".into(), "csv".into());
        assert_eq!(edited.differing(&wanted), Some(json!({ "FORMAT": "parquet" })));
        edited.data.as_mut().unwrap().remove("FORMAT");
        assert_eq!(edited.differing(&wanted), Some(json!({ "FORMAT": "parquet" })));
    }

    #[test]
    fn what_the_library_writes_has_standard_keys() {
        let mut record = crate::decide::testing::record();
        record.plan.endpoint = record.plan.endpoint.with_url("https://store.example.com:9000");
        let (secret, config_map) = (
            secret_with_token(Some("token")).data.unwrap(),
            config_map(("label", &OutputMetadata::default()), &record).data.unwrap(),
        );
        for key in secret.keys().chain(config_map.keys()) {
            assert!(wire::is_standard_output(key), "{key}");
        }
    }

    #[test]
    fn credentials_with_a_part_missing_are_none() {
        let mut current = secret_with_token(None);
        assert_eq!(credentials(&current).unwrap().access_key_id, "AKIA1");
        current.data.as_mut().unwrap().insert("AWS_SECRET_ACCESS_KEY".into(), ByteString(vec![]));
        assert!(credentials(&current).is_none());
    }
}
