//! Large removals of one tenant, and one of another: how long that one takes beside them, and alone.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::json;

use crate::kubernetes::RECORDS;
use crate::network::{Network, Proxy};
use crate::operator::Operator;
use crate::parts::Bench;
use crate::table::Row;
use crate::{Failure, load, say};

/// Deletes buckets a while after their claims: such removals wait in the queue of large ones, whatever the buckets hold.
const CLASS: &str = "s3-later";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
/// The namespace of the other tenant, and the claim in it.
const OTHER: &str = "other";
/// The milliseconds that each call to AWS takes, so that a removal is work.
const DELAY: u64 = 150;

impl Bench {
    /// The buckets of `n` claims of one tenant are due to be deleted, and then the bucket of another.
    pub(crate) async fn queue(&mut self, n: usize) -> Result<(), Failure> {
        say(&format!("the scheduled deletions of {n} buckets of one tenant, and of one of another"));
        let namespace = json!({ "metadata": { "name": OTHER } });
        self.kubernetes.send(Method::POST, "/api/v1/namespaces", Some(&namespace)).await?;
        let mut class = self.kubernetes.get(&format!("{CLASSES}/s3-buckets")).await?;
        class["metadata"] = json!({ "name": CLASS });
        class["parameters"]["onDelete"] = json!("after:1h");
        self.kubernetes.send(Method::POST, CLASSES, Some(&class)).await?;

        let proxy = Proxy::start(Network { delay: DELAY, ..Network::default() }, &self.url)?;
        let operator = Operator::start(&proxy.url).await?;
        operator.during(self.released(OTHER)).await?;
        let alone = operator.during(self.deleted(OTHER)).await?;

        let names = (1..=n).map(|number| format!("c{number}")).collect();
        operator.during(load::create_named(&self.kubernetes, CLASS, names, |_| Ok(()))).await?;
        let names = self.kubernetes.claims().await?.into_iter().map(|claim| claim.name).collect::<Vec<_>>();
        operator.during(load::delete(&self.kubernetes)).await?;
        operator.during(self.released(OTHER)).await?;
        let began = Instant::now();
        for name in &names {
            self.is_due(&record("bench", name)).await?;
        }
        let behind = operator.during(self.deleted(OTHER)).await?;
        let left = self.left(&names).await?;
        say(&format!("{left} of {n} buckets of the first tenant were left when that of the other was deleted"));
        while self.left(&names).await? > 0 {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let all = began.elapsed().as_secs_f64();
        operator.stop().await?;
        let (alone, behind) = (alone.as_secs_f64(), behind.as_secs_f64());
        self.in_all.push(Row { a_second: Some(n as f64 / all), ..Row::new("queue, one tenant", n, all) });
        self.in_all.push(Row { ratio: Some(behind / alone), ..Row::new("queue, another beside", 1, behind) });
        self.in_all.push(Row::new("queue, another alone", 1, alone));
        self.check_nothing_left().await
    }

    /// A claim is bound and deleted, and its bucket is not due yet.
    async fn released(&self, name: &str) -> Result<(), Failure> {
        let path = format!("/apis/objectbucket.io/v1alpha1/namespaces/{OTHER}/objectbucketclaims");
        let claim = json!({
            "apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucketClaim", "metadata": { "name": name },
            "spec": { "storageClassName": CLASS, "generateBucketName": name },
        });
        self.kubernetes.send(Method::POST, &path, Some(&claim)).await?;
        let one = format!("{path}/{name}");
        while self.kubernetes.get(&one).await?["status"]["phase"] != "Bound" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.kubernetes.send(Method::DELETE, &one, None).await?;
        while self.kubernetes.get(&one).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// The time from when the bucket of the other tenant is due until its ObjectBucket is deleted.
    async fn deleted(&self, name: &str) -> Result<Duration, Failure> {
        let record = record(OTHER, name);
        let began = Instant::now();
        self.is_due(&record).await?;
        while self.kubernetes.get(&record).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(began.elapsed())
    }

    async fn is_due(&self, record: &str) -> Result<(), Failure> {
        let now = k8s_openapi::jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let due = json!({ "spec": { "additionalState": { "deleteAt": now } } });
        self.kubernetes.send(Method::PATCH, record, Some(&due)).await.map(drop)
    }

    /// How many of these claims of the first tenant still have their ObjectBucket.
    async fn left(&self, names: &[String]) -> Result<usize, Failure> {
        let listed = self.kubernetes.get(RECORDS).await?;
        let items = listed["items"].as_array().ok_or("no list of ObjectBuckets")?;
        let is_left = |name: &&String| {
            let record = format!("obc-bench-{name}");
            items.iter().any(|item| item["metadata"]["name"] == record.as_str())
        };
        Ok(names.iter().filter(is_left).count())
    }
}

/// The ObjectBucket of a claim.
fn record(namespace: &str, name: &str) -> String {
    format!("{RECORDS}/obc-{namespace}-{name}")
}
