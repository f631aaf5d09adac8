//! The CustomResourceDefinitions: whether they are served, where they come from, and what does not work with those of
//! other projects.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use serde_json::Value;

use crate::api::{self, wire};
use crate::cli::session::Session;
use crate::store::Finding;
use operator_runtime::kubernetes::answers::describe;

/// A CustomResourceDefinition and the findings about it.
pub(super) struct Crd {
    pub(super) name: String,
    pub(super) findings: Vec<Finding>,
    /// Whether there can be objects.
    pub(super) is_served: bool,
}

/// The field of a schema with rules in CEL.
const RULES: &str = "x-kubernetes-validations";

pub(super) async fn examine<P>(session: &Session<P>) -> Vec<Crd> {
    let (api, program) = (session.all::<CustomResourceDefinition>(), &session.program);
    let mut all = Vec::new();
    for (_, ours) in api::crds() {
        let name = ours.name_any();
        let found = api.get_opt(&name).await;
        let (findings, is_served) = match &found {
            Ok(Some(found)) => (judge(found, &ours, program), is_served(found)),
            Ok(None) => {
                let message = "it does not exist, so there can be no claims";
                (vec![Finding::about("served").bad(message).with_remedy(install(program))], false)
            }
            Err(error) => {
                let message = format!("it cannot be read: {}", describe(error));
                let remedy = "run this as a user who may read CustomResourceDefinitions";
                // There may be claims nevertheless.
                (vec![Finding::about("served").unknown(message).with_remedy(remedy)], true)
            }
        };
        all.push(Crd { name, findings, is_served });
    }
    all
}

fn install(program: &str) -> String {
    format!("run `{program} crds | kubectl apply --server-side --filename -`")
}

fn condition<'a>(crd: &'a CustomResourceDefinition, wanted: &str) -> Option<&'a str> {
    let conditions = crd.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == wanted).map(|condition| condition.status.as_str())
}

fn is_served(crd: &CustomResourceDefinition) -> bool {
    condition(crd, "Established") == Some("True") && version(crd).is_some()
}

/// The schema of the operator's version, if it is served.
fn version(crd: &CustomResourceDefinition) -> Option<Schema> {
    let version = crd.spec.versions.iter().find(|version| version.name == wire::VERSION && version.served)?;
    let schema = version.schema.as_ref()?.open_api_v3_schema.as_ref()?;
    let has_status = version.subresources.as_ref().is_some_and(|subresources| subresources.status.is_some());
    Some(Schema { schema: serde_json::to_value(schema).ok()?, has_status })
}

/// The schema of a CRD.
#[derive(Debug, PartialEq)]
struct Schema {
    schema: Value,
    /// Whether the status is a subresource.
    has_status: bool,
}

impl Schema {
    /// Whether the API server keeps a field.
    fn keeps(&self, path: &[&str]) -> bool {
        let mut at = &self.schema;
        for field in path {
            if at["x-kubernetes-preserve-unknown-fields"] == true
                || at.get("additionalProperties").is_some_and(|it| *it != false)
            {
                return true;
            }
            match at["properties"].get(field) {
                Some(next) => at = next,
                None => return false,
            }
        }
        true
    }

    /// Whether it is a schema of the operator, of any version.
    fn is_like(&self, ours: &Self) -> bool {
        let described = |schema: &Self| schema.schema["description"].as_str().map(str::to_owned);
        described(self).is_some() && described(self) == described(ours)
    }
}

fn judge(found: &CustomResourceDefinition, ours: &CustomResourceDefinition, program: &str) -> Vec<Finding> {
    let (schema, served) = match served(found, program) {
        Ok(schema) => (schema, Finding::about("served").good(format!("version {} is served", wire::VERSION))),
        Err(problem) => return vec![problem],
    };
    let variant = match version(ours) {
        Some(ours) => variant(&schema, &ours, program),
        None => Finding::about("variant").unknown("this program has no schema to compare with"),
    };
    let conversion = found.spec.conversion.as_ref().filter(|conversion| conversion.strategy != "None");
    let conversion = conversion.map(|conversion| {
        let message =
            format!("its objects are converted by a {}: claims stop when that does not answer", conversion.strategy);
        let remedy = "make sure that it is available, or remove spec.conversion";
        Finding::about("conversion").warning(message).with_remedy(remedy)
    });
    [served, variant].into_iter().chain(conversion).collect()
}

/// The schema that is served, or the problem.
fn served(found: &CustomResourceDefinition, program: &str) -> Result<Schema, Finding> {
    let about = Finding::about("served");
    if found.metadata.deletion_timestamp.is_some() {
        let remedy = format!(
            "the operator deletes nothing in the store meanwhile; to keep buckets and data, follow the \
             operator's documentation (CRDs that were deleted by mistake); to delete them, annotate the CRD with {}=yes, \
             wait, and then {}",
            wire::annotation::CONFIRM_DELETION,
            install(program)
        );
        return Err(about.bad("it is being deleted, and all its objects with it").with_remedy(remedy));
    }
    let Some(schema) = version(found) else {
        let message = format!("it does not serve version {} with a schema", wire::VERSION);
        return Err(about.bad(message).with_remedy(install(program)));
    };
    if condition(found, "Established") != Some("True") {
        let problem = match condition(found, "NamesAccepted") {
            Some("False") => "another CustomResourceDefinition has its names",
            _ => "the API server has not established it",
        };
        let remedy = format!("see the conditions in `kubectl describe crd {}`", found.name_any());
        return Err(about.bad(problem).with_remedy(remedy));
    }
    Ok(schema)
}

/// Where the schema comes from, and what does not work with it.
fn variant(found: &Schema, ours: &Schema, program: &str) -> Finding {
    const WHAT: &str = "variant";
    if !found.keeps(&["spec", "additionalState"]) && ours.keeps(&["spec", "additionalState"]) {
        let message = "it drops spec.additionalState, in which ObjectBuckets record what was created";
        return Finding::about(WHAT).bad(message).with_remedy(install(program));
    }
    if found == ours {
        return Finding::about(WHAT).good("it is the one of this version");
    }
    if found.is_like(ours) {
        let message = "it is the operator's own, of another version, and may drop fields that this version writes";
        return Finding::about(WHAT).warning(message).with_remedy(install(program));
    }
    let losses = losses(found, ours);
    if losses.is_empty() {
        return Finding::about(WHAT).good("it is another project's, and keeps all fields that the operator writes");
    }
    let message = format!("it is another project's: {}", losses.join("; "));
    let remedy =
        format!("none, if that is acceptable; otherwise, if no other software needs this schema, {}", install(program));
    Finding::about(WHAT).warning(message).with_remedy(remedy)
}

/// What does not work with this schema.
fn losses(found: &Schema, ours: &Schema) -> Vec<&'static str> {
    let mut losses = Vec::new();
    if !found.keeps(&["status", "conditions"]) {
        losses.push("it drops conditions, so reasons are in events only");
    }
    if ours.keeps(&["spec", "claimRef"]) && !found.keeps(&["spec", "claimRef", "name"]) {
        losses.push("it drops claimRef, so `kubectl get ob` does not show the claim");
    }
    if !found.has_status {
        losses.push("the status is not a subresource, so users can edit it");
    }
    if excludes_names(&found.schema) {
        losses.push("bucketName and generateBucketName exclude each other, so claims do not show the generated name of their bucket");
    }
    losses
}

/// Whether a rule refuses all claims that have both fields.
fn excludes_names(schema: &Value) -> bool {
    let rules = schema["properties"]["spec"][RULES].as_array();
    rules.into_iter().flatten().filter_map(|rule| rule["rule"].as_str()).any(|rule| {
        let rule: String = rule.chars().filter(|c| !c.is_whitespace()).collect();
        rule.contains("!has(self.bucketName)||!has(self.generateBucketName)") && !rule.contains("startsWith")
            || rule.contains("!(has(self.bucketName)&&has(self.generateBucketName))")
            || rule.contains("!has(self.generateBucketName)||!has(self.bucketName)")
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::store::Verdict;

    /// As the API server returns it.
    fn established(mut crd: Value) -> CustomResourceDefinition {
        crd["status"] = json!({
            "acceptedNames": { "kind": "K", "plural": "ks" }, "storedVersions": ["v1alpha1"],
            "conditions": [{ "type": "Established", "status": "True" }, { "type": "NamesAccepted", "status": "True" }],
        });
        serde_json::from_value(crd).unwrap()
    }

    fn verdicts(found: &[CustomResourceDefinition]) -> Vec<(Verdict, String)> {
        let pairs = found.iter().zip(api::crds());
        pairs
            .map(|(found, (_, ours))| {
                let finding = judge(found, &ours, "p").into_iter().find(|finding| finding.what == "variant").unwrap();
                (finding.verdict, finding.message)
            })
            .collect()
    }

    fn fixture(text: &str) -> Vec<(Verdict, String)> {
        let documents = text.split("\n---\n").map(|document| serde_saphyr::from_str::<Value>(document).unwrap());
        verdicts(&documents.map(established).collect::<Vec<_>>())
    }

    fn ours() -> Vec<CustomResourceDefinition> {
        api::crds().map(|(_, crd)| established(serde_json::to_value(crd).unwrap())).to_vec()
    }

    #[test]
    fn the_own_schema_is_good_and_an_older_one_a_warning() {
        assert!(verdicts(&ours()).iter().all(|(verdict, _)| *verdict == Verdict::Good));
        let mut older = ours();
        for crd in &mut older {
            let schema = crd.spec.versions[0].schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
            schema.properties.as_mut().unwrap().get_mut("spec").unwrap().x_kubernetes_validations = None;
            schema.properties.as_mut().unwrap().get_mut("status").unwrap().properties = None;
        }
        for (verdict, message) in verdicts(&older) {
            assert!(verdict == Verdict::Warning && message.contains("of another version"), "{message}");
        }
    }

    #[rstest]
    #[case::keeps_unknown(include_str!("../../../../../tests/it/fixtures/crds/keeps-unknown.yaml"), ["keeps all", "keeps all"])]
    #[case::phase_only(include_str!("../../../../../tests/it/fixtures/crds/phase-only.yaml"), ["drops conditions", "drops claimRef"])]
    #[case::strict(include_str!("../../../../../tests/it/fixtures/crds/strict.yaml"), ["keeps all", "drops conditions"])]
    #[case::exclusive(include_str!("../../../../../tests/it/fixtures/crds/exclusive.yaml"), ["exclude each other", "not a subresource"])]
    fn the_losses_of_other_schemas_are_reported(#[case] text: &str, #[case] losses: [&str; 2]) {
        for ((_, message), loss) in fixture(text).iter().zip(losses) {
            assert!(message.contains("another project's") && message.contains(loss), "{message}");
        }
    }

    #[test]
    fn a_schema_without_additional_state_is_bad() {
        let mut found = ours();
        let schema = found[1].spec.versions[0].schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
        let spec = schema.properties.as_mut().unwrap().get_mut("spec").unwrap();
        spec.properties.as_mut().unwrap().remove("additionalState");
        assert_eq!(verdicts(&found)[1].0, Verdict::Bad);
    }

    #[test]
    fn a_crd_that_is_not_served_is_bad_with_the_reason() {
        let [claims, _] = api::crds().map(|(_, crd)| crd);
        let first = |crd: &CustomResourceDefinition| judge(crd, &claims, "p").swap_remove(0);
        let mut refused = ours().swap_remove(0);
        for condition in refused.status.as_mut().unwrap().conditions.as_mut().unwrap() {
            condition.status = "False".to_owned();
        }
        assert!(first(&refused).message.contains("another CustomResourceDefinition has its names"));
        let mut other = ours().swap_remove(0);
        other.spec.versions[0].name = "v1".to_owned();
        assert!(first(&other).message.contains("does not serve version v1alpha1") && !is_served(&other));
        let mut deleted = ours().swap_remove(0);
        deleted.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
        assert!(first(&deleted).message.contains("being deleted"));
        let mut converted = ours().swap_remove(0);
        converted.spec.conversion = serde_json::from_value(json!({ "strategy": "Webhook" })).unwrap();
        assert!(judge(&converted, &claims, "p").iter().any(|finding| finding.message.contains("Webhook")));
    }
}
