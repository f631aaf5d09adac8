//! Lifecycle rules: `bucketLifecycle` in the form of the AWS CLI, and `expireAfter`, `expireNoncurrentAfter` and
//! `abortIncompleteUploadsAfter`, which stand for the usual ones.
//!
//! The rules of a bucket are written as a whole, and compared as a whole: a bucket has no others.

use std::collections::HashSet;

use aws_sdk_s3::types as sdk;
use serde::Deserialize;

use super::rule::{Abort, Expiration, NoncurrentExpiration, OURS, Rule, from_sdk, to_sdk};
use super::sub_resource::SubResource;
use crate::class::target::BucketRef;
use crate::client::call::{CallError, Operation, Resource};
use crate::client::store::Store;

/// Most rules of a bucket, and the longest id ("LifecycleRule", Amazon S3 API reference).
const MOST: usize = 1000;
const LONGEST_ID: usize = 255;

/// The rules of a bucket, sorted by id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Lifecycle(Vec<Rule>);

/// What `bucketLifecycle` contains.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Written {
    rules: Vec<Rule>,
}

/// Why rules cannot be used, as the end of a sentence.
pub(super) struct Problem(pub(super) String);

impl Lifecycle {
    /// Parses `bucketLifecycle`.
    pub(super) fn parse(text: &str) -> Result<Self, Problem> {
        let problem = |problem: String| Err(Problem(problem));
        let written: Written = match serde_json::from_str(text) {
            Ok(written) => written,
            Err(error) => return problem(format!("is not a lifecycle configuration ({error})")),
        };
        if written.rules.is_empty() || written.rules.len() > MOST {
            return problem(format!("has {} rules, not 1 to {MOST}", written.rules.len()));
        }
        if written.rules.iter().any(Rule::has_prefix_and_filter) {
            return problem("has a rule with Prefix and Filter, of which it can have one".to_owned());
        }
        if written.rules.iter().any(Rule::has_no_day) {
            return problem("has a rule with a number of days below 1".to_owned());
        }
        let rules = written.rules.into_iter().enumerate().map(|(at, rule)| with_id(at, rule).normal());
        let rules: Vec<_> = rules.collect();
        let mut ids = HashSet::new();
        for rule in &rules {
            let id = rule.id.as_deref().unwrap_or_default();
            match () {
                () if id.len() > LONGEST_ID => return problem(format!("has the ID {id:?}, which is too long")),
                () if !ids.insert(id) => return problem(format!("has two rules with the ID {id:?}")),
                () if !rule.has_action() => return problem(format!("has the rule {id:?}, which does nothing")),
                () => {}
            }
        }
        Ok(Self::of(rules))
    }

    /// The rules for numbers of days.
    pub(super) fn of_days(expire: Option<i32>, noncurrent: Option<i32>, abort: Option<i32>) -> Option<Self> {
        let expire = expire.map(|days| Rule {
            expiration: Some(Expiration { days: Some(days), ..Expiration::default() }),
            ..Rule::new("expire")
        });
        let noncurrent = noncurrent.map(|days| Rule {
            noncurrent_version_expiration: Some(NoncurrentExpiration {
                noncurrent_days: Some(days),
                newer_noncurrent_versions: None,
            }),
            // Otherwise the delete markers of deleted objects would stay.
            expiration: Some(Expiration { expired_object_delete_marker: Some(true), ..Expiration::default() }),
            ..Rule::new("expire-noncurrent")
        });
        let abort = abort.map(|days| Rule {
            abort_incomplete_multipart_upload: Some(Abort { days_after_initiation: Some(days) }),
            ..Rule::new("abort-uploads")
        });
        let rules: Vec<_> = [expire, noncurrent, abort].into_iter().flatten().collect();
        (!rules.is_empty()).then(|| Self::of(rules))
    }

    fn of(rules: Vec<Rule>) -> Self {
        let mut rules: Vec<_> = rules.into_iter().map(Rule::normal).collect();
        rules.sort_by(|a, b| a.id.cmp(&b.id));
        Self(rules)
    }
}

fn with_id(at: usize, rule: Rule) -> Rule {
    let id = rule.id.filter(|id| !id.is_empty()).unwrap_or_else(|| format!("{OURS}{at}"));
    Rule { id: Some(id), ..rule }
}

/// Removes all rules of a bucket.
pub(super) async fn delete(store: &Store, bucket: BucketRef<'_>) -> Result<(), CallError> {
    let call = store.s3.delete_bucket_lifecycle().bucket(bucket.name).set_expected_bucket_owner(bucket.account());
    let send = || call.clone().send();
    store.call(Operation::DeleteBucketLifecycle, Resource::bucket(bucket.name), send).await.map(drop)
}

impl SubResource for Lifecycle {
    type Found = Self;

    const NAME: &'static str = "the lifecycle";
    const READ: Operation = Operation::GetBucketLifecycleConfiguration;
    const WRITE: Operation = Operation::PutBucketLifecycleConfiguration;

    async fn read(store: &Store, bucket: BucketRef<'_>) -> Result<Self, CallError> {
        let call = store.s3.get_bucket_lifecycle_configuration().bucket(bucket.name);
        let call = call.set_expected_bucket_owner(bucket.account());
        let send = || call.clone().send();
        match store.call(Self::READ, Resource::bucket(bucket.name), send).await {
            Ok(answer) => Ok(Self::of(answer.rules.unwrap_or_default().into_iter().map(from_sdk).collect())),
            Err(error) if error.code() == "NoSuchLifecycleConfiguration" => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    fn is_in(&self, found: &Self) -> bool {
        self == found
    }

    async fn write(&self, store: &Store, bucket: BucketRef<'_>, _: Option<&Self>) -> Result<(), CallError> {
        // Building one fails only without a status or an id, and these have both.
        let rules: Vec<_> = self.0.iter().cloned().filter_map(to_sdk).collect();
        let configuration = sdk::BucketLifecycleConfiguration::builder().set_rules(Some(rules)).build().ok();
        let call = store.s3.put_bucket_lifecycle_configuration().bucket(bucket.name);
        let call = call.set_lifecycle_configuration(configuration);
        let call = call.set_expected_bucket_owner(bucket.account());
        store.call(Self::WRITE, Resource::bucket(bucket.name), || call.clone().send()).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(text: &str) -> Lifecycle {
        Lifecycle::parse(text).map_err(|Problem(problem)| problem).unwrap()
    }

    fn problem(text: &str) -> String {
        Lifecycle::parse(text).err().map(|Problem(problem)| problem).unwrap_or_default()
    }

    const ALL: &str = r#"{"Rules": [
        {"ID": "b", "Status": "Enabled", "Filter": {"And": {"Prefix": "logs/", "Tags": [
            {"Key": "b", "Value": "2"}, {"Key": "a", "Value": "1"}], "ObjectSizeGreaterThan": 10}},
         "Transitions": [{"Days": 30, "StorageClass": "GLACIER"}],
         "NoncurrentVersionTransitions": [{"NoncurrentDays": 5, "StorageClass": "STANDARD_IA"}],
         "Expiration": {"Date": "2030-01-31"}},
        {"ID": "a", "Status": "Disabled", "Prefix": "tmp/", "Expiration": {"Days": 7},
         "NoncurrentVersionExpiration": {"NoncurrentDays": 3, "NewerNoncurrentVersions": 2},
         "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}}]}"#;

    #[test]
    fn rules_come_back_as_they_were_sent() {
        let sent = parse(ALL);
        let stored: Vec<_> = sent.0.iter().cloned().filter_map(to_sdk).collect();
        assert_eq!(stored.len(), 2);
        let mut given_back: Vec<_> = stored.into_iter().map(from_sdk).collect();
        given_back.reverse();
        assert_eq!(Lifecycle::of(given_back), sent);
    }

    #[test]
    fn the_same_rules_can_be_written_in_several_ways() {
        let days = r#""Expiration": {"Days": 1}"#;
        let rule =
            |filter: &str| parse(&format!(r#"{{"Rules": [{{"ID": "a", "Status": "Enabled", {filter} {days}}}]}}"#));
        assert_eq!(rule(""), rule(r#""Filter": {},"#));
        assert_eq!(rule(""), rule(r#""Filter": {"Prefix": ""},"#));
        assert_eq!(rule(r#""Prefix": "a/","#), rule(r#""Filter": {"Prefix": "a/"},"#));
        assert_ne!(rule(r#""Prefix": "a/","#), rule(""));
    }

    #[test]
    fn each_rule_has_an_id() {
        let two = parse(
            r#"{"Rules": [{"Status": "Enabled", "Expiration": {"Days": 1}}, {"Status": "Enabled", "Expiration": {"Days": 2}}]}"#,
        );
        let ids: Vec<_> = two.0.iter().filter_map(|rule| rule.id.as_deref()).collect();
        assert_eq!(ids, ["objectbucket.io/0", "objectbucket.io/1"]);
    }

    #[test]
    fn what_s3_would_refuse_is_refused_before() {
        for (text, expected) in [
            ("30d", "is not a lifecycle configuration"),
            (r#"{"Rules": []}"#, "has 0 rules"),
            (r#"{"Rules": [{"Status": "Enabled", "Expire": {}}]}"#, "unknown field `Expire`"),
            (r#"{"Rules": [{"Status": "on", "Expiration": {"Days": 1}}]}"#, "unknown variant `on`"),
            (r#"{"Rules": [{"ID": "a", "Status": "Enabled"}]}"#, "does nothing"),
            (r#"{"Rules": [{"Status": "Enabled", "Expiration": {"Days": 0}}]}"#, "below 1"),
            (
                r#"{"Rules": [{"Status": "Enabled", "Prefix": "a/", "Filter": {}, "Expiration": {"Days": 1}}]}"#,
                "Prefix and Filter",
            ),
            (
                r#"{"Rules": [{"Status": "Enabled", "Expiration": {"ExpiredObjectDeleteMarker": false}}]}"#,
                "does nothing",
            ),
            (r#"{"Rules": [{"Status": "Enabled", "Expiration": {"Date": "soon"}}]}"#, "is not a date"),
        ] {
            assert!(problem(text).contains(expected), "{}", problem(text));
        }
        let rule = r#"{"ID": "a", "Status": "Enabled", "Expiration": {"Days": 1}}"#;
        assert!(problem(&format!(r#"{{"Rules": [{rule}, {rule}]}}"#)).contains("two rules with the ID"));
    }

    #[test]
    fn days_become_the_usual_rules() {
        let rules = Lifecycle::of_days(Some(30), Some(7), Some(1)).unwrap();
        let ids: Vec<_> = rules.0.iter().filter_map(|rule| rule.id.as_deref()).collect();
        assert_eq!(
            ids,
            ["objectbucket.io/abort-uploads", "objectbucket.io/expire", "objectbucket.io/expire-noncurrent"]
        );
        assert_eq!(Lifecycle::of_days(None, None, None), None);
    }
}
