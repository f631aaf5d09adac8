//! Policies of users as AWS evaluates them: with their conditions, and with the paths of users and roles. The emulator does
//! neither.
//!
//! | rule | source |
//! |---|---|
//! | what no statement allows is denied; a Deny takes precedence | "Policy evaluation logic", IAM user guide |
//! | a condition is not met if the request lacks its key, except with `IfExists` | "Condition operators", IAM user guide |
//! | `aws:ResourceAccount` is the owner of the bucket | "Global condition context keys", IAM user guide |
//! | `iam:PermissionsBoundary` is that of the request, or of the user | Service Authorization Reference, IAM |
//! | `s3:x-amz-acl` is the header | Service Authorization Reference, S3 |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use aws_s3_provisioner::client::call::Operation;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::Response;
use provisioner_conformance::proxy::{Answer, Fault, respond};
use serde_json::{Value, json};

use super::AwsCall;
use super::eks;
use super::strict::{element, refuse};
use crate::support::account::Account;

/// The policies of users, as they are put through this proxy or [held](Policies::hold).
#[derive(Default)]
pub(super) struct Policies(Mutex<Known>);

#[derive(Default)]
struct Known {
    account: String,
    /// By user and name of the policy.
    documents: BTreeMap<String, BTreeMap<String, Value>>,
    /// Managed policies by their names.
    managed: BTreeMap<String, Value>,
    /// The users by the ids of their keys.
    keys: BTreeMap<String, String>,
    /// Users of people: those of claims have a path.
    people: BTreeSet<String>,
}

/// What a call is about, and what conditions ask of it. A key that it lacks is not there.
struct Request {
    resource: String,
    context: BTreeMap<String, String>,
}

impl Policies {
    /// From now on these hold for a user of this account, whose key this is, instead of those before.
    pub(super) fn hold(&self, account: &str, user: &str, key: &str, documents: Vec<Value>) {
        let mut known = self.0.lock().unwrap();
        known.account = account.to_owned();
        known.keys.insert(key.to_owned(), user.to_owned());
        let named = documents.into_iter().enumerate().map(|(nth, document)| (nth.to_string(), document));
        known.documents.insert(user.to_owned(), named.collect());
    }

    /// What the emulator gets instead of a policy that it cannot evaluate, as the body of the call.
    pub(super) fn rewritten(&self, call: &AwsCall) -> Option<Bytes> {
        let mut known = self.0.lock().unwrap();
        if call.operation == "CreatePolicy" {
            let fields: BTreeMap<String, String> = url::form_urlencoded::parse(&call.body).into_owned().collect();
            known.managed.insert(fields["PolicyName"].clone(), serde_json::from_str(&fields["PolicyDocument"]).ok()?);
        }
        let user = call.user.clone()?;
        if call.operation == "CreateUser" && call.path.is_none() {
            known.people.insert(user);
            return None;
        }
        let fields: BTreeMap<String, String> = url::form_urlencoded::parse(&call.body).into_owned().collect();
        if !known.people.contains(&user) {
            return None;
        }
        let (name, document) = match call.operation.as_str() {
            "PutUserPolicy" => (fields["PolicyName"].clone(), serde_json::from_str(&fields["PolicyDocument"]).ok()?),
            // A policy of its own is a boundary as well, which the emulator evaluates: so that it stays as it is, the user gets
            // an inline policy.
            "AttachUserPolicy" => {
                let name = fields["PolicyArn"].rsplit('/').next()?.to_owned();
                let document = known.managed.get(&name)?.clone();
                (name, document)
            }
            _ => return None,
        };
        let sent = for_emulator(document.clone()).to_string();
        known.documents.entry(user.clone()).or_default().insert(name.clone(), document);
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.append_pair("Action", "PutUserPolicy").append_pair("Version", &fields["Version"]);
        form.append_pair("UserName", &user).append_pair("PolicyName", &name).append_pair("PolicyDocument", &sent);
        Some(form.finish().into())
    }

    /// Notes whose key was made.
    pub(super) async fn noted(&self, call: &AwsCall, answer: Answer) -> Result<Answer, Fault> {
        let (Some(user), "CreateAccessKey") = (&call.user, call.operation.as_str()) else { return Ok(answer) };
        let (parts, body) = answer.into_parts();
        let body = body.collect().await?.to_bytes();
        if let Some(key) = element(&body, "AccessKeyId") {
            self.0.lock().unwrap().keys.insert(key, user.clone());
        }
        Ok(respond(Response::from_parts(parts, body)))
    }

    /// How AWS refuses the call; `None` if it does not, or if this proxy does not know what the call needs.
    pub(super) async fn refuse(&self, call: &AwsCall) -> Option<Answer> {
        let (documents, account) = {
            let known = self.0.lock().unwrap();
            let user = known.keys.get(call.signer.as_ref()?)?;
            (known.documents.get(user)?.clone(), known.account.clone())
        };
        let operation = Operation::ALL.iter().find(|operation| operation.to_string() == call.operation)?;
        let of_pods = call.cluster.as_ref().map(|cluster| (cluster, account.clone()));
        let request = match of_pods {
            Some(_) => Request { resource: String::new(), context: BTreeMap::new() },
            None => request(call, account).await?,
        };
        let statements: Vec<_> = documents.values().flat_map(|one| one["Statement"].as_array().unwrap()).collect();
        let is_allowed = |action: &str| {
            let of_pods = of_pods.as_ref().map(|(cluster, account)| Request {
                resource: eks::resource(call, cluster, action, account),
                context: [
                    ("aws:PrincipalAccount", account.as_str()),
                    ("iam:PassedToService", "pods.eks.amazonaws.com"),
                ]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            });
            // A call of EKS that names no role passes none.
            let is_needed = of_pods.is_none() || !action.starts_with("iam:") || call.field("roleArn").is_some();
            let request = of_pods.as_ref().unwrap_or(&request);
            let matches =
                |effect: &str| statements.iter().any(|it| it["Effect"] == effect && fits(it, action, request));
            !is_needed || matches("Allow") && !matches("Deny")
        };
        let all = operation.actions().split(" and ").all(is_allowed);
        (!all).then(|| refuse(call, 403, "AccessDenied"))
    }
}

/// What the emulator can evaluate of a policy. A statement with a key or an operator that it does not know allows nothing
/// there; nor does it know paths of users and roles, of which user a key is, and the resources of calls that only `doctor` makes.
pub(crate) fn for_emulator(mut document: Value) -> Value {
    const LAST_USED: &str = "iam:GetAccessKeyLastUsed";
    const OF_DOCTOR: [&str; 4] =
        ["iam:SimulatePrincipalPolicy", "iam:GetRole", "iam:GetPolicy", "iam:GetAccountSummary"];
    let mut last_used = None;
    let statements = document["Statement"].as_array_mut().unwrap();
    // What is denied under a condition is for the proxy alone.
    statements.retain(|statement| statement["Effect"] != "Deny" || statement["Condition"].is_null());
    for statement in statements.iter_mut() {
        statement.as_object_mut().unwrap().remove("Condition");
        let actions = texts(&statement["Action"]);
        if actions.iter().any(|action| action == LAST_USED) {
            last_used = Some(json!({ "Effect": "Allow", "Action": LAST_USED, "Resource": "*" }));
        }
        // Nor which resource a call of EKS is about.
        let is_of_eks = actions.iter().any(|action| action.starts_with("eks:") || action == "iam:PassRole");
        if is_of_eks || actions.iter().any(|action| OF_DOCTOR.contains(&action.as_str())) {
            statement["Resource"] = "*".into();
        }
        let Some(resource) = statement["Resource"].as_str().map(str::to_owned) else { continue };
        // A call about user and group is about the user there.
        if let Some((account, _)) = resource.split_once(":user/").or_else(|| resource.split_once(":group/")) {
            statement["Resource"] = format!("{account}:user/*").into();
        } else if let Some((account, _)) = resource.split_once(":role/") {
            statement["Resource"] = format!("{account}:role/*").into();
        }
    }
    statements.extend(last_used);
    document
}

/// `None` for a call about neither bucket nor user nor role.
async fn request(call: &AwsCall, account: String) -> Option<Request> {
    let owner = Account::owner();
    let mut context = BTreeMap::from([("aws:PrincipalAccount".to_owned(), account.clone())]);
    if let Some(group) = super::form_field(&call.body, "GroupName") {
        return Some(Request { resource: format!("arn:aws:iam::{account}:group/{group}"), context });
    }
    if let Some(role) = call.form("RoleName") {
        let found = owner.iam.get_role().role_name(&role).send().await.ok().and_then(|found| found.role);
        // Of a role that does not exist, IAM does not know the path.
        let path = found.as_ref().map(|role| role.path.clone()).or_else(|| call.path.clone());
        let path = path.unwrap_or_else(|| "/".to_owned());
        let has = found.and_then(|role| role.permissions_boundary?.permissions_boundary_arn);
        context.extend(call.boundary.clone().or(has).map(|boundary| ("iam:PermissionsBoundary".to_owned(), boundary)));
        return Some(Request { resource: format!("arn:aws:iam::{account}:role{path}{role}"), context });
    }
    if let Some(user) = &call.user {
        let found = owner.iam.get_user().user_name(user).send().await.ok().and_then(|found| found.user);
        let path = match &found {
            Some(user) => user.path.clone(),
            None => call.path.clone().unwrap_or_else(|| "/".to_owned()),
        };
        let has = found.and_then(|user| user.permissions_boundary?.permissions_boundary_arn);
        context.extend(call.boundary.clone().or(has).map(|boundary| ("iam:PermissionsBoundary".to_owned(), boundary)));
        return Some(Request { resource: format!("arn:aws:iam::{account}:user{path}{user}"), context });
    }
    let bucket = call.bucket.as_ref()?;
    if owner.bucket_exists(bucket).await {
        context.insert("aws:ResourceAccount".to_owned(), account);
    }
    context.extend(call.acl.clone().map(|acl| ("s3:x-amz-acl".to_owned(), acl)));
    context.extend(call.ownership.clone().map(|ownership| ("s3:x-amz-object-ownership".to_owned(), ownership)));
    let body = String::from_utf8_lossy(&call.body);
    let tags = body.split("<Key>").skip(1).filter_map(|rest| rest.split_once("</Key>"));
    context.extend(tags.map(|(key, _)| (format!("aws:RequestTag/{key}"), "a value".to_owned())));
    // One call deletes many.
    let key = if call.operation == "DeleteObjects" { "/any" } else { call.key.as_str() };
    Some(Request { resource: format!("arn:aws:s3:::{bucket}{key}"), context })
}

fn fits(statement: &Value, action: &str, request: &Request) -> bool {
    let any = |field: &str, of: &str| texts(&statement[field]).iter().any(|pattern| is_like(of, pattern));
    let is_action = match &statement["NotAction"] {
        Value::Null => any("Action", action),
        _ => !any("NotAction", action),
    };
    let conditions = statement["Condition"].as_object().into_iter().flatten();
    let mut keys =
        conditions.flat_map(|(operator, keys)| keys.as_object().unwrap().iter().map(move |it| (operator, it)));
    let is_resource = any("Resource", &request.resource);
    is_action && is_resource && keys.all(|(operator, (key, values))| holds(operator, key, values, request))
}

fn holds(operator: &str, key: &str, values: &Value, request: &Request) -> bool {
    let has = request.context.get(key);
    let own = &request.context["aws:PrincipalAccount"];
    let values: Vec<_> = texts(values).iter().map(|value| value.replace("${aws:PrincipalAccount}", own)).collect();
    let any = |test: &dyn Fn(&str, &str) -> bool| has.is_some_and(|has| values.iter().any(|value| test(has, value)));
    match operator {
        "StringEquals" => any(&|has, value| has == value),
        "StringEqualsIfExists" => has.is_none() || any(&|has, value| has == value),
        "StringNotEquals" => !any(&|has, value| has == value),
        "StringLike" => any(&is_like),
        "Null" => has.is_none() == (values == ["true"]),
        other => panic!("no document had {other} before: evaluate it here"),
    }
}

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(one) => vec![one.clone()],
        many => many.as_array().into_iter().flatten().map(|one| one.as_str().unwrap().to_owned()).collect(),
    }
}

/// With `*` for anything.
fn is_like(text: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap()) else { return false };
    let parts: Vec<_> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}
