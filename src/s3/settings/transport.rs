//! `requireTLS`: a statement of the bucket's policy, beside those of others.

use serde_json::{Value, json};

use super::sub_resource::SubResource;
use crate::class::target::BucketRef;
use crate::client::call::{CallError, Operation, Resource};
use crate::client::store::Store;
use crate::iam::document::without_lists_of_one;

/// The name of our statement.
const SID: &str = "AwsS3ProvisionerRequireTLS";

/// Calls without TLS are denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequireTls {
    partition: &'static str,
}

impl RequireTls {
    pub(super) fn new(partition: &'static str) -> Self {
        Self { partition }
    }

    fn statement(&self, bucket: &str) -> Value {
        let arn = format!("arn:{}:s3:::{bucket}", self.partition);
        json!({
            "Sid": SID,
            "Effect": "Deny",
            "Principal": "*",
            "Action": "s3:*",
            "Resource": [arn, format!("{arn}/*")],
            "Condition": { "Bool": { "aws:SecureTransport": "false" } },
        })
    }
}

/// The bucket, and its policy.
#[derive(Debug)]
pub(crate) struct Policy {
    bucket: String,
    document: Option<Value>,
}

impl Policy {
    /// Its statements; a single one may stand without a list.
    fn statements(&self) -> Vec<Value> {
        match self.document.as_ref().and_then(|document| document.get("Statement")) {
            Some(Value::Array(all)) => all.clone(),
            Some(one) => vec![one.clone()],
            None => Vec::new(),
        }
    }
}

fn is_ours(statement: &Value) -> bool {
    statement.get("Sid").and_then(Value::as_str) == Some(SID)
}

/// A statement as S3 may give it back: lists in another order, or `{"AWS": "*"}` for everybody.
fn normal(statement: Value) -> Value {
    let mut statement = without_lists_of_one(statement);
    if let Some(resources) = statement.get_mut("Resource").and_then(Value::as_array_mut) {
        resources.sort_by_key(Value::to_string);
    }
    if let Some(principal) = statement.get_mut("Principal").filter(|principal| **principal == json!({ "AWS": "*" })) {
        *principal = json!("*");
    }
    statement
}

impl SubResource for RequireTls {
    type Found = Policy;

    const NAME: &'static str = "the statement about TLS in the policy";
    const IS_SHARED: bool = true;
    const READ: Operation = Operation::GetBucketPolicy;
    const WRITE: Operation = Operation::PutBucketPolicy;

    async fn read(store: &Store, bucket: BucketRef<'_>) -> Result<Policy, CallError> {
        let call = store.s3.get_bucket_policy().bucket(bucket.name);
        let call = call.set_expected_bucket_owner(bucket.account());
        let name = bucket.name.to_owned();
        let send = || call.clone().send();
        match store.call(Self::READ, Resource::bucket(bucket.name), send).await {
            Ok(answer) => {
                let text = answer.policy.unwrap_or_default();
                // What is not understood must not be overwritten.
                let unreadable = || store.unreadable(Self::READ, Resource::bucket(bucket.name));
                let document = serde_json::from_str(&text).ok().filter(Value::is_object);
                Ok(Policy { bucket: name, document: Some(document.ok_or_else(unreadable)?) })
            }
            Err(error) if error.code() == "NoSuchBucketPolicy" => Ok(Policy { bucket: name, document: None }),
            Err(error) => Err(error),
        }
    }

    fn is_in(&self, found: &Policy) -> bool {
        let wanted = normal(self.statement(&found.bucket));
        let mut ours = found.statements().into_iter().filter(is_ours);
        ours.next().map(normal) == Some(wanted) && ours.next().is_none()
    }

    async fn write(&self, store: &Store, bucket: BucketRef<'_>, found: Option<&Policy>) -> Result<(), CallError> {
        let mut statements = found.map(Policy::statements).unwrap_or_default();
        statements.retain(|statement| !is_ours(statement));
        statements.push(self.statement(bucket.name));
        let mut document =
            found.and_then(|found| found.document.clone()).unwrap_or_else(|| json!({ "Version": "2012-10-17" }));
        document["Statement"] = Value::Array(statements);
        let call = store.s3.put_bucket_policy().bucket(bucket.name).policy(document.to_string());
        let call = call.set_expected_bucket_owner(bucket.account());
        store.call(Self::WRITE, Resource::bucket(bucket.name), || call.clone().send()).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(statements: Value) -> Policy {
        Policy { bucket: "photos".into(), document: Some(json!({ "Version": "2012-10-17", "Statement": statements })) }
    }

    #[test]
    fn the_statement_is_known_as_s3_gives_it_back() {
        let tls = RequireTls::new("aws");
        let statement = tls.statement("photos");
        let mut given_back = statement.clone();
        given_back["Resource"] = json!(["arn:aws:s3:::photos/*", "arn:aws:s3:::photos"]);
        given_back["Principal"] = json!({ "AWS": ["*"] });
        given_back["Condition"] = json!({ "Bool": { "aws:SecureTransport": ["false"] } });
        let foreign = json!({ "Sid": "Theirs", "Effect": "Allow" });
        assert!(tls.is_in(&policy(json!([foreign, given_back]))));
        assert!(tls.is_in(&policy(statement.clone())), "a single one stands without a list");
        given_back["Condition"] = json!({});
        for other in [json!([]), json!([foreign]), json!([given_back]), json!([statement, given_back])] {
            assert!(!tls.is_in(&policy(other.clone())), "{other}");
        }
        assert!(!tls.is_in(&Policy { bucket: "photos".into(), document: None }));
    }
}
