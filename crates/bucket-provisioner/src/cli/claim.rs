//! `env`, `rotate` and `retry`: what a user does with one claim.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::api::Patch;
use serde_json::json;

use super::output::{self, Format, clean};
use super::session::{Session, no_claim, refused};
use crate::api::{ObjectBucketClaim, wire};
use crate::decide::claim::{Claim, LabelOwner};
use crate::decide::keys::KeyNotes;
use crate::decide::{metadata, service_account};
use crate::store::ClaimId;
use operator_runtime::kubernetes::answers::status_code;
use operator_runtime::program::print;

/// What another login has left in a shell, and what does not fit the keys of a claim.
const OF_OTHER_LOGINS: [&str; 2] = ["AWS_PROFILE", "AWS_SESSION_TOKEN"];
/// What another claim has left there, and this one may lack.
const OF_OTHER_CLAIMS: [&str; 4] = [
    "AWS_ENDPOINT_URL",
    wire::config::AWS_ENDPOINT_URL_S3,
    wire::config::BUCKET_PREFIX,
    wire::config::AWS_S3_ADDRESSING_STYLE,
];
/// So that a script whose `eval` has failed does not continue with another claim.
const NOTHING: &str = "unset BUCKET_NAME AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY; false\n";

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ClaimArgs {
    /// This claim; NAME alone is in the namespace of --namespace, or of the context
    #[arg(value_name = "[NAMESPACE/]NAME")]
    claim: String,
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct EnvArgs {
    #[command(flatten)]
    claim: ClaimArgs,
    /// Print in this format
    ///
    /// `table` prints commands of a shell.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Format,
}

/// Prints the variables that pods of the claim have.
///
/// # Errors
/// Kubernetes refused, or the claim has no Secret and ConfigMap of its own.
pub(crate) async fn env<P>(session: &Session<P>, args: &EnvArgs) -> Result<(), Box<dyn Error>> {
    let shown = show(session, args).await;
    if shown.is_err() && args.output.is_text() {
        print(NOTHING)?;
    }
    shown
}

async fn show<P>(session: &Session<P>, args: &EnvArgs) -> Result<(), Box<dyn Error>> {
    let (namespace, name) = session.named(&args.claim.claim)?;
    let claim = Claim::read(&session.claim(&namespace, &name).await?, &session.label());
    let problem = |kind: &str, exists: bool| {
        let what = if exists { format!("does not own the {kind} of its name") } else { format!("has no {kind}") };
        format!("claim {} {what}; `{} status {}` shows why", claim.id, session.program, claim.id)
    };
    let is_its = |meta: &ObjectMeta| metadata::controller(meta) == Some(&claim.id.uid);
    let config_map = session.of::<ConfigMap>(&namespace).get_opt(&name).await;
    let config_map = config_map.map_err(refused("read the claim's ConfigMap"))?;
    let exists = config_map.is_some();
    let config_map = config_map.filter(|found| is_its(&found.metadata)).ok_or_else(|| problem("ConfigMap", exists))?;
    let secret = session.of::<Secret>(&namespace).get_opt(&name).await.map_err(refused("read the claim's Secret"))?;
    let exists = secret.is_some();
    let secret = secret.filter(|found| is_its(&found.metadata)).ok_or_else(|| problem("Secret", exists))?;
    let mut variables: BTreeMap<_, _> = config_map.data.unwrap_or_default().into_iter().collect();
    for (key, value) in secret.data.unwrap_or_default() {
        let value = String::from_utf8(value.0).map_err(|_| format!("the entry {key:?} of the Secret is not text"))?;
        variables.insert(key, value);
    }
    match args.output {
        // These formats escape control characters themselves.
        Format::Json => print(&(serde_json::to_string_pretty(&variables)? + "\n")),
        Format::Yaml => print(&serde_saphyr::to_string(&variables)?),
        Format::Name => print(&variables.keys().map(|name| clean(name) + "\n").collect::<String>()),
        Format::Table | Format::Wide => {
            for name in variables.keys().filter(|name| !is_exported(name)) {
                eprintln!("{} is left out, because others may have written it; `-o json` shows it", clean(name));
            }
            if !variables.contains_key(wire::secret::ACCESS_KEY_ID) {
                eprintln!(
                    "claim {} has no keys, so this shell gets no access: only pods with its ServiceAccount do",
                    claim.id
                );
            }
            print(&commands(&variables))
        }
    }
}

/// Also what S3 stores add: whoever may edit the ConfigMap gains nothing by it.
fn is_exported(name: &str) -> bool {
    wire::is_standard_output(name) || name == wire::config::AWS_S3_ADDRESSING_STYLE
}

/// The known variables as commands of a shell. Whoever may edit the ConfigMap could add `PATH` or `PROMPT_COMMAND`.
fn commands(variables: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    for (name, value) in variables.iter().filter(|(name, _)| is_exported(name)) {
        let value = clean(value).replace('\'', r"'\''");
        // Writing to a String does not fail.
        let _ = writeln!(text, "export {name}='{value}';");
    }
    // A claim without keys leaves the login of the user.
    let of_logins = OF_OTHER_LOGINS.into_iter().filter(|_| variables.contains_key(wire::secret::ACCESS_KEY_ID));
    for name in of_logins.chain(OF_OTHER_CLAIMS).filter(|name| !variables.contains_key(*name) || !is_exported(name)) {
        let _ = writeln!(text, "unset {name};");
    }
    text
}

/// Requests new keys.
///
/// # Errors
/// Kubernetes refused, or there is no such claim.
pub(crate) async fn rotate<P>(session: &Session<P>, args: &ClaimArgs) -> Result<(), Box<dyn Error>> {
    let claim = own_claim(session, args).await?;
    has_keys(session, &claim).await?;
    annotate(session, &claim.id, wire::annotation::ROTATE_KEYS, "new keys requested").await
}

/// Has the operator try again, or check a bound claim.
///
/// # Errors
/// Kubernetes refused, or there is no such claim.
pub(crate) async fn retry<P>(session: &Session<P>, args: &ClaimArgs) -> Result<(), Box<dyn Error>> {
    let claim = own_claim(session, args).await?;
    annotate(session, &claim.id, wire::annotation::RETRY, "retry requested").await
}

/// # Errors
/// Kubernetes refused, there is no such claim, or it belongs to another provisioner.
async fn own_claim<P>(session: &Session<P>, args: &ClaimArgs) -> Result<Claim, String> {
    let (namespace, name) = session.named(&args.claim)?;
    let claim = Claim::read(&session.claim(&namespace, &name).await?, &session.label());
    if claim.label == LabelOwner::Foreign {
        return Err(format!("claim {} belongs to another provisioner, so nothing was done", claim.id));
    }
    Ok(claim)
}

async fn annotate<P>(session: &Session<P>, claim: &ClaimId, key: &str, done: &str) -> Result<(), Box<dyn Error>> {
    let ClaimId { namespace, name, .. } = claim;
    let patch = json!({ "metadata": { "annotations": { key: Timestamp::now().to_string() } } });
    let claims = session.of::<ObjectBucketClaim>(namespace);
    match claims.patch_metadata(name, &session.field_manager.merges(), &Patch::Merge(&patch)).await {
        Ok(_) => {
            let claim_name = output::claim_name(name);
            print(&format!("{claim_name}: {done}; `kubectl describe obc {name} -n {namespace}` shows the result\n"))
        }
        Err(error) if status_code(&error) == Some(404) => Err(no_claim(namespace, name).into()),
        Err(error) => Err(refused("annotate the claim")(error).into()),
    }
}

/// # Errors
/// The claim has no keys of its own that could be rotated.
async fn has_keys<P>(session: &Session<P>, claim: &Claim) -> Result<(), String> {
    let why = if !claim.bound() {
        "is not Bound, so it has no keys yet"
    } else if service_account::is_named(claim.config()) {
        "has no keys, but a ServiceAccount"
    } else {
        let secret = session.of::<Secret>(&claim.id.namespace).get_metadata_opt(&claim.id.name).await.ok().flatten();
        let notes = KeyNotes::read(secret.as_ref().and_then(|secret| secret.metadata.annotations.as_ref()));
        if notes.shared_from.is_none() {
            return Ok(());
        }
        "has the provisioning keys (`createBucketUser: no`): rotate those"
    };
    Err(format!("claim {} {why}", claim.id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_quoted_for_a_shell() {
        let all = [
            ("AWS_REGION", "eu"),
            ("BUCKET_NAME", "it's; $(x)"),
            ("PROMPT_COMMAND", "curl"),
            ("AWS_ACCESS_KEY_ID", "A\x1b"),
        ];
        let all = all.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let text = commands(&all);
        let exports =
            "export AWS_ACCESS_KEY_ID='A\u{fffd}';\nexport AWS_REGION='eu';\nexport BUCKET_NAME='it'\\''s; $(x)';\n";
        assert!(text.starts_with(exports), "{text}");
        for stale in ["AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "BUCKET_PREFIX"] {
            assert!(text.contains(&format!("unset {stale};\n")), "{stale}: {text}");
        }
        assert!(!commands(&BTreeMap::new()).contains("AWS_PROFILE"), "a claim without keys leaves the login");
    }
}
