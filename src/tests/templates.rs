//! The templates in `deploy/aws/`: they give the operator what the documents in `docs/` say, and let nobody else have it.
//! (`.ci/policies` does the same for Terraform, and asks linters.)

use std::collections::BTreeMap;

use serde_json::{Value, json};

const CLOUDFORMATION: &str = include_str!("../../deploy/aws/cloudformation.yaml");
const IRSA: &str = include_str!("../../deploy/aws/irsa-trust-policy.json");
const POD_IDENTITY: &str = include_str!("../../deploy/aws/pod-identity-trust-policy.json");
const TRUSTED: &str = include_str!("../../deploy/aws/owner-role-trust-policy.json");
const BOUNDED: &str = include_str!("../../docs/owner-iam-policy-with-boundary.json");
const SETTINGS: &str = include_str!("../../docs/owner-iam-policy-settings.json");
const KEYLESS: &str = include_str!("../../docs/owner-iam-policy-keyless.json");
const OF_PODS: &str = include_str!("../../docs/owner-iam-policy-pod-identity.json");
const POD_ROLE: &str = include_str!("../../deploy/aws/pod-role-trust-policy.json");
const BOUNDARY: &str = include_str!("../../docs/permissions-boundary.json");

/// The template with the values of the documents.
struct Template {
    parameters: BTreeMap<String, String>,
    conditions: Value,
    resources: Value,
}

impl Template {
    fn with(given: &[(&str, &str)]) -> Self {
        let template: Value = serde_saphyr::from_str(CLOUDFORMATION).unwrap();
        let declared = template["Parameters"].as_object().unwrap().iter();
        let defaults =
            declared.map(|(name, declared)| (name.as_str(), declared["Default"].as_str().unwrap_or_default()));
        let of_documents = [
            ("AWS::Partition", "aws"),
            ("AWS::AccountId", "111122223333"),
            ("AWS::Region", "us-west-1"),
            ("ClusterName", "CLUSTER"),
            ("BucketPrefixes", "acme-"),
            ("ExistingBuckets", "company-archive"),
            ("UserPath", "/aws-s3-provisioner/"),
            ("Boundary", "arn:aws:iam::111122223333:policy/aws-s3-provisioner-boundary"),
        ];
        let parameters = defaults.chain(of_documents).chain(given.iter().copied());
        let parameters = parameters.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Self { parameters, conditions: template["Conditions"].clone(), resources: template["Resources"].clone() }
    }

    fn property(&self, resource: &str, property: &str) -> Value {
        self.resolved(&self.resources[resource]["Properties"][property])
    }

    fn exists(&self, resource: &str) -> bool {
        self.resources[resource]["Condition"].as_str().is_none_or(|condition| self.holds(condition))
    }

    fn holds(&self, condition: &str) -> bool {
        self.is_true(&self.conditions[condition])
    }

    fn is_true(&self, condition: &Value) -> bool {
        if let Some(inner) = condition.get("Fn::Not") {
            return !self.is_true(&inner[0]);
        }
        if let Some(all) = condition.get("Fn::And") {
            return all.as_array().unwrap().iter().all(|condition| self.is_true(condition));
        }
        if let Some(any) = condition.get("Fn::Or") {
            return any.as_array().unwrap().iter().any(|condition| self.is_true(condition));
        }
        if let Some(name) = condition.get("Condition") {
            return self.holds(name.as_str().unwrap());
        }
        let equal = self.resolved(&condition["Fn::Equals"]);
        equal[0] == equal[1]
    }

    fn list(&self, value: &Value) -> Vec<String> {
        match self.resolved(value) {
            Value::Array(values) => values.iter().map(|value| value.as_str().unwrap().to_owned()).collect(),
            Value::String(separated) => separated.split(',').map(str::to_owned).collect(),
            other => panic!("{other} is no list"),
        }
    }

    /// `Null` for what is left out.
    fn resolved(&self, value: &Value) -> Value {
        let call = |function: &str| value.get(function);
        if let Some(name) = call("Ref") {
            return match name.as_str().unwrap() {
                "AWS::NoValue" => Value::Null,
                name @ ("ExternalIds" | "OwnerRoleArns") => json!(self.parameters[name].split(',').collect::<Vec<_>>()),
                name => json!(self.parameters[name]),
            };
        }
        if let Some(text) = call("Fn::Sub") {
            let put = |text: String, (name, value): (&String, &String)| text.replace(&format!("${{{name}}}"), value);
            return json!(self.parameters.iter().fold(text.as_str().unwrap().to_owned(), put));
        }
        if let Some(choice) = call("Fn::If") {
            let chosen = if self.holds(choice[0].as_str().unwrap()) { 1 } else { 2 };
            return self.resolved(&choice[chosen]);
        }
        if let Some(joined) = call("Fn::Join") {
            return json!(self.list(&joined[1]).join(joined[0].as_str().unwrap()));
        }
        if let Some(select) = call("Fn::Select") {
            return json!(self.list(&select[1])[usize::try_from(select[0].as_u64().unwrap()).unwrap()]);
        }
        if let Some(split) = call("Fn::Split") {
            let text = self.resolved(&split[1]);
            return json!(text.as_str().unwrap().split(split[0].as_str().unwrap()).collect::<Vec<_>>());
        }
        match value {
            Value::Array(values) => {
                values.iter().map(|value| self.resolved(value)).filter(|value| !value.is_null()).collect()
            }
            Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), self.resolved(value))).collect(),
            other => other.clone(),
        }
    }

    /// A document in which buckets have the partition of the documents. Only a literal can separate what is joined, so
    /// that the template has any partition there.
    fn policy(&self, resource: &str) -> Value {
        let document = self.property(resource, "PolicyDocument").to_string();
        document_of(&document.replace("arn:*:s3:::", &format!("arn:{}:s3:::", self.parameters["AWS::Partition"])))
    }
}

fn resources(document: &Value) -> Vec<String> {
    let statements = document["Statement"].as_array().unwrap().iter();
    let lists = statements.filter_map(|statement| statement["Resource"].as_array());
    lists.flatten().map(|resource| resource.as_str().unwrap().to_owned()).collect()
}

fn document_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn cloudformation_creates_the_policies_of_the_docs() {
    let template = Template::with(&[]);
    assert_eq!(template.policy("Boundary"), document_of(BOUNDARY));
    assert_eq!(template.policy("OwnerPolicy"), document_of(BOUNDED));
    assert_eq!(template.policy("SettingsPolicy"), document_of(SETTINGS));
    assert_eq!(template.policy("KeylessPolicy"), document_of(KEYLESS));
    assert_eq!(template.policy("PodIdentityPolicy"), document_of(OF_PODS));
    assert_eq!(template.property("PodRole", "AssumeRolePolicyDocument"), document_of(POD_ROLE));
    assert_eq!(template.property("PodRole", "ManagedPolicyArns")[0], template.parameters["Boundary"]);
    for resource in ["PodIdentityPolicy", "PodRole"] {
        assert!(!template.exists(resource) && Template::with(&[("PodIdentity", "yes")]).exists(resource), "{resource}");
    }
    let theirs = "arn:aws:iam::111122223333:policy/company-boundary";
    let bounded = Template::with(&[("PodIdentity", "yes"), ("ExistingBoundaryArn", theirs)]);
    assert_eq!(bounded.property("PodRole", "PermissionsBoundary"), theirs);
    assert_eq!(bounded.property("PodRole", "ManagedPolicyArns")[0], template.parameters["Boundary"]);
    assert!(bounded.exists("Boundary") && bounded.property("Boundary", "ManagedPolicyName").is_null());
    assert_eq!(template.property("PodRole", "PermissionsBoundary"), Value::Null);
    assert!(!Template::with(&[("ExistingBoundaryArn", theirs)]).exists("Boundary"));
    assert!(!template.exists("KeylessPolicy") && Template::with(&[("Keyless", "yes")]).exists("KeylessPolicy"));
    assert!(
        !template.exists("SettingsPolicy") && Template::with(&[("BucketSettings", "yes")]).exists("SettingsPolicy")
    );
    assert_eq!(template.property("Boundary", "ManagedPolicyName"), "aws-s3-provisioner-boundary-CLUSTER");
    assert_eq!(template.property("Role", "RoleName"), "aws-s3-provisioner-CLUSTER");
    assert_eq!(template.property("Role", "PermissionsBoundary"), Value::Null);
}

/// Outside of the partition `aws`, for a boundary that exists, for another path and for other buckets.
#[test]
fn cloudformation_follows_its_parameters() {
    let existing = "arn:aws-us-gov:iam::111122223333:policy/limit";
    let template = Template::with(&[
        ("AWS::Partition", "aws-us-gov"),
        ("ExistingBoundaryArn", existing),
        ("RoleBoundaryArn", "arn:aws-us-gov:iam::111122223333:policy/roles"),
        ("RoleName", "storage"),
        ("UserPath", "/claims/"),
        ("BucketPrefixes", "shop-"),
    ]);
    let wanted = BOUNDED
        .replace("arn:aws:", "arn:aws-us-gov:")
        .replace("arn:aws-us-gov:iam::111122223333:policy/aws-s3-provisioner-boundary", existing)
        .replace("user/aws-s3-provisioner/", "user/claims/")
        .replace("acme-", "shop-");
    assert_eq!(template.policy("OwnerPolicy"), document_of(&wanted));
    assert_eq!(template.property("Role", "RoleName"), "storage");
    assert_eq!(template.property("Role", "PermissionsBoundary"), "arn:aws-us-gov:iam::111122223333:policy/roles");
    assert!(!template.exists("Boundary"), "it exists");
    assert!(Template::with(&[]).exists("Boundary"));
    assert!(!template.property("Boundary", "PolicyDocument").to_string().contains("arn:aws:"));
}

/// Two clusters in one account have nothing in common.
#[test]
fn names_in_iam_end_in_the_name_of_the_cluster() {
    let template = Template::with(&[("UserPath", "")]);
    let owner = template.policy("OwnerPolicy").to_string();
    assert_eq!(owner.matches(":user/aws-s3-provisioner-CLUSTER/*").count(), 2);
    assert_eq!(owner.matches(":user/").count(), 3, "the third one is of users whose path is unknown: {owner}");
}

#[test]
fn cloudformation_limits_buckets_to_what_is_given() {
    let given = [("BucketPrefixes", "acme-,shop-"), ("ExistingBuckets", "archive,logs")];
    let template = Template::with(&given);
    let prefixes = ["arn:aws:s3:::acme-*", "arn:aws:s3:::shop-*"];
    let (names, objects) =
        (["arn:aws:s3:::archive", "arn:aws:s3:::logs"], ["arn:aws:s3:::archive/*", "arn:aws:s3:::logs/*"]);
    let owner = resources(&template.policy("OwnerPolicy"));
    assert_eq!(owner, [&prefixes[..], &prefixes, &names].concat());
    let boundary = resources(&template.policy("Boundary"));
    assert_eq!(boundary, [&prefixes[..], &names, &objects, &prefixes, &objects].concat());
    let template = Template::with(&[("BucketPrefixes", "*"), ("ExistingBuckets", "")]);
    for document in ["OwnerPolicy", "Boundary"] {
        assert_eq!(resources(&template.policy(document)), ["arn:aws:s3:::**"; 2], "{document}");
    }
    let declared: Value = serde_saphyr::from_str(CLOUDFORMATION).unwrap();
    assert!(declared["Parameters"]["BucketPrefixes"].get("Default").is_none(), "nobody gets all buckets unasked");
}

#[test]
fn cloudformation_trusts_whom_the_trust_policies_trust() {
    let provider = "oidc.eks.us-west-1.amazonaws.com/id/EXAMPLED539D4633E53DE1B71EXAMPLE";
    for (given, wanted) in [(("OidcProvider", provider), IRSA), (("OidcProvider", ""), POD_IDENTITY)] {
        let trust = Template::with(&[given]).property("Role", "AssumeRolePolicyDocument");
        assert_eq!(document_of(trust.as_str().unwrap()), document_of(wanted));
    }
    assert!(Template::with(&[]).exists("Association"));
}

/// In the account of the buckets, and in that of the cluster.
#[test]
fn cloudformation_connects_two_accounts() {
    let operator = "arn:aws:iam::111122223333:role/aws-s3-provisioner-my-cluster";
    for given in [("ClusterName", "my-cluster"), ("ExternalIds", "my-cluster")] {
        let template = Template::with(&[("TrustedRoleArn", operator), given]);
        assert_eq!(template.property("Role", "AssumeRolePolicyDocument"), document_of(TRUSTED));
        assert!(!template.exists("Association") && !template.exists("RolesPolicy"));
    }
    let roles = ("OwnerRoleArns", "arn:aws:iam::444455556666:role/aws-s3-provisioner-my-cluster");
    let template = Template::with(&[
        roles,
        ("OwnerPolicy", "arn:aws:iam::111122223333:policy/a"),
        ("RolesPolicy", "arn:aws:iam::111122223333:policy/b"),
    ]);
    assert!(template.exists("RolesPolicy"));
    assert_eq!(template.list(&json!({ "Ref": "OwnerRoleArns" })).len(), 1);
    let policies = template.property("Role", "ManagedPolicyArns");
    assert_eq!(policies.as_array().unwrap().len(), 2, "{policies}");
}

/// Without a subject any pod of the cluster could have the role, and without an audience any token.
#[test]
fn only_the_operators_service_account_is_trusted() {
    let conditions = |text: &str| {
        let document = document_of(text);
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
