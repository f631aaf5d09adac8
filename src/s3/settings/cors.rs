//! `bucketCors`: which web pages may use the bucket, in the form of the AWS CLI. The rules of a bucket are written and compared as
//! a whole.

use aws_sdk_s3::types as sdk;
use serde::Deserialize;

use super::sub_resource::SubResource;
use crate::class::target::BucketRef;
use crate::client::call::{CallError, Operation, Resource};
use crate::client::store::Store;

/// Most rules of a bucket, and the longest id ("CORSRule", Amazon S3 API reference).
const MOST: usize = 100;
const LONGEST_ID: usize = 255;
/// What a rule can allow.
const METHODS: [&str; 5] = ["GET", "PUT", "HEAD", "POST", "DELETE"];

/// The rules of a bucket. Of several that match, the first counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Cors(Vec<Rule>);

/// What `bucketCors` contains.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(rename = "CORSRules")]
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Rule {
    #[serde(rename = "ID")]
    id: Option<String>,
    #[serde(default)]
    allowed_headers: Vec<String>,
    allowed_methods: Vec<String>,
    allowed_origins: Vec<String>,
    #[serde(default)]
    expose_headers: Vec<String>,
    max_age_seconds: Option<i32>,
}

impl Rule {
    /// In the one form of what can be written in several.
    fn normal(mut self) -> Self {
        self.id = self.id.filter(|id| !id.is_empty());
        for list in
            [&mut self.allowed_headers, &mut self.allowed_methods, &mut self.allowed_origins, &mut self.expose_headers]
        {
            list.sort();
            list.dedup();
        }
        self
    }

    fn of_sdk(rule: sdk::CorsRule) -> Self {
        let rule = Self {
            id: rule.id,
            allowed_headers: rule.allowed_headers.unwrap_or_default(),
            allowed_methods: rule.allowed_methods,
            allowed_origins: rule.allowed_origins,
            expose_headers: rule.expose_headers.unwrap_or_default(),
            max_age_seconds: rule.max_age_seconds,
        };
        rule.normal()
    }

    fn into_sdk(self) -> Option<sdk::CorsRule> {
        let some = |list: Vec<String>| (!list.is_empty()).then_some(list);
        let rule = sdk::CorsRule::builder().set_id(self.id).set_max_age_seconds(self.max_age_seconds);
        let rule = rule.set_allowed_headers(some(self.allowed_headers)).set_expose_headers(some(self.expose_headers));
        rule.set_allowed_methods(Some(self.allowed_methods))
            .set_allowed_origins(Some(self.allowed_origins))
            .build()
            .ok()
    }
}

impl Cors {
    /// Parses `bucketCors`.
    ///
    /// # Errors
    /// The end of a sentence about what is wrong.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let Written { rules } =
            serde_json::from_str(text).map_err(|error| format!("is not a CORS configuration ({error})"))?;
        if rules.is_empty() || rules.len() > MOST {
            return Err(format!("has {} rules, not 1 to {MOST}", rules.len()));
        }
        for rule in &rules {
            let Rule { id, allowed_methods, allowed_origins, .. } = rule;
            let more_than_one = |origin: &&String| origin.matches('*').count() > 1;
            match () {
                () if allowed_methods.is_empty() || allowed_origins.is_empty() => {
                    return Err("has a rule without AllowedMethods or AllowedOrigins".to_owned());
                }
                () if id.as_ref().is_some_and(|id| id.len() > LONGEST_ID) => {
                    return Err(format!("has an ID of more than {LONGEST_ID} characters"));
                }
                () => {}
            }
            if let Some(method) = allowed_methods.iter().find(|method| !METHODS.contains(&method.as_str())) {
                return Err(format!("has the method {method:?}, which is none of {}", METHODS.join(", ")));
            }
            if let Some(origin) = allowed_origins.iter().find(more_than_one) {
                return Err(format!("has the origin {origin:?}, with more than one *"));
            }
        }
        Ok(Self(rules.into_iter().map(Rule::normal).collect()))
    }
}

/// Removes all rules of a bucket.
pub(super) async fn delete(store: &Store, bucket: BucketRef<'_>) -> Result<(), CallError> {
    let call = store.s3.delete_bucket_cors().bucket(bucket.name).set_expected_bucket_owner(bucket.account());
    let send = || call.clone().send();
    store.call(Operation::DeleteBucketCors, Resource::bucket(bucket.name), send).await.map(drop)
}

impl SubResource for Cors {
    type Found = Self;

    const NAME: &'static str = "the CORS configuration";
    const READ: Operation = Operation::GetBucketCors;
    const WRITE: Operation = Operation::PutBucketCors;

    async fn read(store: &Store, bucket: BucketRef<'_>) -> Result<Self, CallError> {
        let call = store.s3.get_bucket_cors().bucket(bucket.name).set_expected_bucket_owner(bucket.account());
        let send = || call.clone().send();
        match store.call(Self::READ, Resource::bucket(bucket.name), send).await {
            Ok(answer) => Ok(Self(answer.cors_rules.unwrap_or_default().into_iter().map(Rule::of_sdk).collect())),
            Err(error) if error.code() == "NoSuchCORSConfiguration" => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// An id that S3 has given to a rule without one does not count.
    fn is_in(&self, found: &Self) -> bool {
        let is_same = |(wanted, found): (&Rule, &Rule)| {
            let id = wanted.id.clone().or_else(|| found.id.clone());
            Rule { id, ..wanted.clone() } == *found
        };
        self.0.len() == found.0.len() && self.0.iter().zip(&found.0).all(is_same)
    }

    async fn write(&self, store: &Store, bucket: BucketRef<'_>, _: Option<&Self>) -> Result<(), CallError> {
        // Building one fails only without methods or origins, and these have both.
        let rules: Vec<_> = self.0.iter().cloned().filter_map(Rule::into_sdk).collect();
        let configuration = sdk::CorsConfiguration::builder().set_cors_rules(Some(rules)).build().ok();
        let call = store.s3.put_bucket_cors().bucket(bucket.name).set_cors_configuration(configuration);
        let call = call.set_expected_bucket_owner(bucket.account());
        store.call(Self::WRITE, Resource::bucket(bucket.name), || call.clone().send()).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const ALL: &str = r#"{"CORSRules": [
        {"ID": "a", "AllowedHeaders": ["*"], "AllowedMethods": ["PUT", "GET"], "AllowedOrigins": ["https://b", "https://a"],
         "ExposeHeaders": ["ETag"], "MaxAgeSeconds": 60},
        {"AllowedMethods": ["GET"], "AllowedOrigins": ["*"]}]}"#;

    #[test]
    fn rules_come_back_as_they_were_sent() {
        let sent = Cors::parse(ALL).unwrap();
        let stored: Vec<_> = sent.0.iter().cloned().filter_map(Rule::into_sdk).collect();
        let mut given_back = Cors(stored.into_iter().map(Rule::of_sdk).collect());
        assert!(given_back.0.len() == 2 && sent.is_in(&given_back));
        given_back.0[1].id = Some("invented".into());
        assert!(sent.is_in(&given_back));
        given_back.0[0].id = Some("other".into());
        assert!(!sent.is_in(&given_back));
        let reversed = Cors(sent.0.iter().rev().cloned().collect());
        assert!(!sent.is_in(&reversed), "the first that matches counts");
    }

    #[test]
    fn what_s3_would_refuse_is_refused_before() {
        for (text, expected) in [
            ("*", "is not a CORS configuration"),
            (r#"{"CORSRules": []}"#, "has 0 rules"),
            (r#"{"CORSRules": [{"AllowedMethods": ["GET"]}]}"#, "missing field `AllowedOrigins`"),
            (r#"{"CORSRules": [{"AllowedMethods": [], "AllowedOrigins": ["*"]}]}"#, "without AllowedMethods"),
            (r#"{"CORSRules": [{"AllowedMethods": ["PATCH"], "AllowedOrigins": ["*"]}]}"#, "\"PATCH\""),
            (r#"{"CORSRules": [{"AllowedMethods": ["GET"], "AllowedOrigins": ["http*.*"]}]}"#, "more than one *"),
            (r#"{"CORSRules": [{"Methods": ["GET"]}]}"#, "unknown field"),
        ] {
            let problem = Cors::parse(text).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        }
    }
}
