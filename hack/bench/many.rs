//! Many bound claims, made without AWS: what the operator needs to keep them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{TryStreamExt as _, stream};
use http::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::bodies::names;
use crate::floor::{CONFIG_MAPS, SECRETS};
use crate::kubernetes::{CLAIMS, CLASS, Claim, Kubernetes, RECORDS};
use crate::measure::by_operator;
use crate::operator::Operator;
use crate::parts::Bench;
use crate::table::Row;
use crate::{Failure, load, say};

/// The claim that the operator binds, and of which the others are copies: a name that is in none of its other texts.
const MODEL: &str = "the-model";
/// Claims that are copied at the same time.
const AT_ONCE: usize = 32;
/// Claims that are changed, one after another.
const CHANGES: usize = 1000;
/// How many times the operator starts: making the claims takes longer than all of them.
const STARTS: usize = 3;
/// How many times its metrics are read.
const SCRAPES: u32 = 20;
/// Whose the copies are.
const MANAGER: &str = "fieldManager=aws-s3-provisioner";

impl Bench {
    /// The operator starts with `n` claims bound, several times, and then some of them change.
    pub(crate) async fn many(&mut self, n: usize) -> Result<(), Failure> {
        say(&format!("{n} bound claims, made without AWS"));
        let operator = Operator::start(&self.url).await?;
        let empty = operator.memory()?;
        operator.during(load::create_named(&self.kubernetes, CLASS, vec![MODEL.to_owned()], |_| Ok(()))).await?;
        operator.settle().await?;
        let policy = self.policy().await?;
        let model = Arc::new(Model::read(&self.kubernetes).await?);
        operator.stop().await?;
        let copies = (1..n).map(|number| Ok::<_, Failure>(format!("copy-{number}")));
        stream::iter(copies).try_for_each_concurrent(AT_ONCE, |name| model.copy(&self.kubernetes, name)).await?;

        for _ in 1..STARTS {
            self.restart(n, &policy).await?.stop().await?;
        }
        let operator = self.restart(n, &policy).await?;
        let full = operator.memory()?;
        let changes = async {
            let began = Instant::now();
            for number in 1..=CHANGES.min(n - 1) {
                let path = format!("{CLAIMS}/copy-{number}");
                let change = json!({ "metadata": { "annotations": { "somebody": "was here" } } });
                self.kubernetes.send(Method::PATCH, &path, Some(&change)).await?;
            }
            Ok(began.elapsed())
        };
        let changed = CHANGES.min(n - 1);
        // Those that changed the claims are the bench's own.
        let row = by_operator(&self.kubernetes, &operator, "changed", changed, changed, changes).await?;
        self.in_all.push(Row { writes: row.writes - 1.0, ..row });
        println!("\nresident memory: {:.0} bytes for each of {n} claims", (full - empty) * 1_048_576.0 / n as f64);
        self.scrapes(n, &operator).await?;
        operator.stop().await
    }

    /// What it costs to be scraped with `n` claims bound.
    async fn scrapes(&self, n: usize, operator: &Operator) -> Result<(), Failure> {
        operator.settle().await?;
        let (before, mut size, mut took) = (operator.processor_seconds()?, 0, Duration::ZERO);
        for _ in 0..SCRAPES {
            // A text is served for a second.
            sleep(Duration::from_millis(1100)).await;
            let began = Instant::now();
            size = operator.scrape().await?.len();
            took += began.elapsed();
        }
        let processor = operator.processor_seconds()? - before;
        println!(
            "scraped {SCRAPES} times with {n} claims: {:.1} ms and {:.1} ms of processor time each, {size} bytes; \
             resident memory then: {:.1} MiB",
            took.as_secs_f64() * 1000.0 / f64::from(SCRAPES),
            processor * 1000.0 / f64::from(SCRAPES),
            operator.memory()?
        );
        Ok(())
    }
}

/// The objects of a claim that the operator bound, as text.
struct Model {
    uid: String,
    claim: Value,
    record: String,
    secret: String,
    config_map: String,
}

impl Model {
    async fn read(kubernetes: &Kubernetes) -> Result<Self, Failure> {
        let claim = kubernetes.get(&format!("{CLAIMS}/{MODEL}")).await?;
        let uid = claim["metadata"]["uid"].as_str().ok_or("a claim without uid")?.to_owned();
        let (_, _, record) = names(&Claim { name: MODEL.to_owned(), uid: uid.clone() });
        let text = async |path: String| Ok::<_, Failure>(bare(kubernetes.get(&path).await?).to_string());
        Ok(Self {
            uid,
            claim: bare(claim),
            record: text(format!("{RECORDS}/{record}")).await?,
            secret: text(format!("{SECRETS}/{MODEL}")).await?,
            config_map: text(format!("{CONFIG_MAPS}/{MODEL}")).await?,
        })
    }

    /// Makes a claim as bound as the model.
    async fn copy(&self, kubernetes: &Kubernetes, name: String) -> Result<(), Failure> {
        let claim = kubernetes.create_claim(&name, CLASS).await?;
        let (_, _, record) = names(&claim);
        let of = |text: &str| -> Result<Value, Failure> {
            Ok(serde_json::from_str(&text.replace(&self.uid, &claim.uid).replace(MODEL, &name))?)
        };
        let mut whole = of(&self.claim.to_string())?;
        let status = json!({ "status": whole["status"].take() });
        let send = async |method, path: String, body: &Value| {
            kubernetes.send(method, &format!("{path}?{MANAGER}"), Some(body)).await.map(drop)
        };
        send(Method::PATCH, format!("{CLAIMS}/{name}"), &whole).await?;
        let recorded = of(&self.record)?;
        send(Method::POST, RECORDS.to_owned(), &recorded).await?;
        let bound = json!({ "status": recorded["status"] });
        send(Method::PATCH, format!("{RECORDS}/{record}/status"), &bound).await?;
        send(Method::POST, SECRETS.to_owned(), &of(&self.secret)?).await?;
        send(Method::POST, CONFIG_MAPS.to_owned(), &of(&self.config_map)?).await?;
        send(Method::PATCH, format!("{CLAIMS}/{name}/status"), &status).await
    }
}

/// An object without what the API server adds.
fn bare(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for added in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
            metadata.remove(added);
        }
    }
    object
}
