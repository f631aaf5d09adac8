//! The templates in `deploy/aws/`: they give the operator what the documents in `docs/` say, and let nobody else have it.
//! (`.ci/policies` does the same for Terraform, and asks linters.)

use std::collections::BTreeMap;

use serde_json::{Value, json};

const CLOUDFORMATION: &str = include_str!("../../deploy/aws/cloudformation.yaml");
const IRSA: &str = include_str!("../../deploy/aws/irsa-trust-policy.json");
const POD_IDENTITY: &str = include_str!("../../deploy/aws/pod-identity-trust-policy.json");
const BOUNDED: &str = include_str!("../../docs/owner-iam-policy-with-boundary.json");
const BOUNDARY: &str = include_str!("../../docs/permissions-boundary.json");

/// The template with the values of the documents.
struct Template {
    parameters: BTreeMap<String, String>,
    resources: Value,
}

impl Template {
    fn with(given: &[(&str, &str)]) -> Self {
        let template: Value = serde_saphyr::from_str(CLOUDFORMATION).unwrap();
        let declared = template["Parameters"].as_object().unwrap().iter();
        let defaults = declared.map(|(name, declared)| (name.as_str(), declared["Default"].as_str().unwrap()));
        let of_aws =
            [("AWS::Partition", "aws"), ("AWS::AccountId", "111122223333"), ("AWS::Region", "us-west-1")].into_iter();
        let parameters = defaults.chain(of_aws).chain(given.iter().copied());
        let parameters = parameters.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Self { parameters, resources: template["Resources"].clone() }
    }

    fn property(&self, resource: &str, property: &str) -> Value {
        self.resolved(&self.resources[resource]["Properties"][property])
    }

    fn resolved(&self, value: &Value) -> Value {
        match value {
            Value::Array(values) => values.iter().map(|value| self.resolved(value)).collect(),
            Value::Object(fields) if fields.contains_key("Ref") => {
                json!(self.parameters[fields["Ref"].as_str().unwrap()])
            }
            Value::Object(fields) if fields.contains_key("Fn::Sub") => {
                let text = fields["Fn::Sub"].as_str().unwrap().to_owned();
                let put =
                    |text: String, (name, value): (&String, &String)| text.replace(&format!("${{{name}}}"), value);
                json!(self.parameters.iter().fold(text, put))
            }
            Value::Object(fields) if fields.contains_key("Fn::If") => {
                assert_eq!(fields["Fn::If"][0], "ByPodIdentity");
                let chosen = if self.parameters["ClusterName"].is_empty() { 2 } else { 1 };
                self.resolved(&fields["Fn::If"][chosen])
            }
            Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), self.resolved(value))).collect(),
            other => other.clone(),
        }
    }
}

fn document(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn cloudformation_creates_the_policies_of_the_docs() {
    let template = Template::with(&[]);
    assert_eq!(template.property("Boundary", "PolicyDocument"), document(BOUNDARY));
    assert_eq!(template.property("Boundary", "ManagedPolicyName"), "aws-s3-provisioner-boundary");
    assert_eq!(template.property("OwnerPolicy", "PolicyDocument"), document(BOUNDED));
}

/// Outside of the partition `aws`, for a boundary of another name, and for another path.
#[test]
fn cloudformation_follows_its_parameters() {
    let partition = ("AWS::Partition", "aws-us-gov");
    let template = Template::with(&[partition, ("BoundaryName", "limit"), ("UserPath", "/claims/")]);
    let wanted = BOUNDED
        .replace("arn:aws:", "arn:aws-us-gov:")
        .replace("aws-s3-provisioner-boundary", "limit")
        .replace("user/aws-s3-provisioner/", "user/claims/");
    assert_eq!(template.property("OwnerPolicy", "PolicyDocument"), document(&wanted));
    assert!(!template.property("Boundary", "PolicyDocument").to_string().contains("arn:aws:"));
}

#[test]
fn cloudformation_trusts_whom_the_trust_policies_trust() {
    let provider = "oidc.eks.us-west-1.amazonaws.com/id/EXAMPLED539D4633E53DE1B71EXAMPLE";
    for (given, wanted) in [(("OidcProvider", provider), IRSA), (("ClusterName", "CLUSTER"), POD_IDENTITY)] {
        let trust = Template::with(&[given]).property("Role", "AssumeRolePolicyDocument");
        assert_eq!(document(trust.as_str().unwrap()), document(wanted));
    }
}

/// Without a subject any pod of the cluster could have the role, and without an audience any token.
#[test]
fn only_the_operators_service_account_is_trusted() {
    let conditions = |text: &str| {
        let document = document(text);
        let [statement] = &document["Statement"].as_array().unwrap()[..] else { panic!("{document}") };
        statement["Condition"]["StringEquals"].as_object().unwrap().clone()
    };
    let shipped = |kind: &str| {
        let documents = include_str!("../../deploy/operator.yaml").split("\n---\n");
        let objects = documents.map(|document| serde_saphyr::from_str::<Value>(document).unwrap());
        objects.filter(|object| object["kind"] == kind).map(|object| object["metadata"].clone()).next().unwrap()
    };
    let account = shipped("ServiceAccount");
    let (namespace, name) = (account["namespace"].as_str().unwrap(), account["name"].as_str().unwrap());
    let irsa = conditions(IRSA);
    let of = |suffix: &str| irsa.iter().find(|(key, _)| key.ends_with(suffix)).unwrap().1;
    assert_eq!(*of(":sub"), format!("system:serviceaccount:{namespace}:{name}"));
    assert_eq!(*of(":aud"), "sts.amazonaws.com");
    let pod_identity = conditions(POD_IDENTITY);
    assert_eq!(pod_identity["aws:RequestTag/kubernetes-namespace"], namespace);
    assert_eq!(pod_identity["aws:RequestTag/kubernetes-service-account"], name);
    assert!(pod_identity.contains_key("aws:RequestTag/eks-cluster-arn"));
}
