//! The parts of the bench: each measures the operator, and beside it the floor.

use std::sync::Arc;
use tokio::sync::oneshot;

use crate::counters::Requests;
use crate::kubernetes::{CLASS, Claimed, Kubernetes};
use crate::measure::{Work, by_floor, by_operator};
use crate::network::{Network, Proxy};
use crate::operator::Operator;
use crate::store::{Policy, Store};
use crate::table::Row;
use crate::{Failure, load, say};

/// What a claim costs, to be taken off where one claim is not what is measured.
const WRITES_A_CLAIM: u64 = 8;
/// The claim that waits while the operator starts.
const WAITING: &str = "waiting";

pub(crate) struct Bench {
    pub(crate) kubernetes: Kubernetes,
    pub(crate) store: Store,
    /// The AWS that the operator and the floor use: that of `store`, or a proxy in front of it.
    pub(crate) url: String,
    /// The most that the operator's memory was while it created claims, in MiB.
    pub(crate) peak: f64,
    /// Rows of the second table.
    pub(crate) in_all: Vec<Row>,
}

/// Which parts of `claims` are wanted.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) rows: bool,
    pub(crate) restart: bool,
}

impl Bench {
    pub(crate) async fn new() -> Result<Self, Failure> {
        let url = std::env::var("AWS_ENDPOINT_URL")?;
        let store = Store::new(&url)?;
        let kubernetes = Kubernetes::new(Claimed::Buckets).await?;
        Ok(Self { kubernetes, store, url, peak: 0.0, in_all: Vec::new() })
    }

    /// `n` claims from their creation to all Bound, and from their deletion to all gone. The names of the rows end
    /// with `suffix`.
    pub(crate) async fn claims(&mut self, n: usize, suffix: &str, wanted: Wanted) -> Result<(), Failure> {
        say(&format!("{n} claims{suffix}"));
        let (created, deleted) = (format!("created{suffix}"), format!("deleted{suffix}"));
        let mut operator = Operator::start(&self.url).await?;
        let create =
            by_operator(&self.kubernetes, &operator, &created, n, n, load::create(&self.kubernetes, n)).await?;
        self.peak = self.peak.max(operator.peak_memory()?);
        let policy = self.policy().await?;
        if wanted.restart {
            operator.stop().await?;
            operator = self.restart(n, &policy).await?;
        }
        let delete = by_operator(&self.kubernetes, &operator, &deleted, n, n, load::delete(&self.kubernetes)).await?;
        operator.stop().await?;
        self.check_nothing_left().await?;
        if wanted.rows {
            let floor_create = by_floor(&self.kubernetes, &self.url, &create, n, &policy, Work::Create(n)).await?;
            let floor_delete = by_floor(&self.kubernetes, &self.url, &delete, n, &policy, Work::Delete).await?;
            self.check_nothing_left().await?;
            for row in [create, floor_create, delete, floor_delete] {
                row.print();
            }
        }
        Ok(())
    }

    /// The same with `ms` added to each answer of AWS.
    pub(crate) async fn delayed(&mut self, ms: u64, n: usize) -> Result<(), Failure> {
        let proxy = Proxy::start(Network { delay: ms, ..Network::default() }, &self.url)?;
        let url = std::mem::replace(&mut self.url, proxy.url.clone());
        self.claims(n, &format!(", {ms} ms"), Wanted { rows: true, restart: false }).await?;
        self.url = url;
        Ok(())
    }

    /// The operator starts again with `n` claims bound. It is ready when a claim that waited for it is Bound, too; what
    /// this one costs is not counted.
    pub(crate) async fn restart(&mut self, n: usize, policy: &Arc<Policy>) -> Result<Operator, Failure> {
        let waiting = self.kubernetes.create_claim(WAITING, CLASS).await?;
        let floor = by_floor(
            &self.kubernetes,
            &self.url,
            &Row::new("restarted, operator", n, 0.0),
            n,
            policy,
            Work::Restart(waiting),
        )
        .await?;

        self.kubernetes.create_claim(WAITING, CLASS).await?;
        let before = Requests::until_now(&self.kubernetes).await?;
        let (started, starts) = oneshot::channel();
        let url = self.url.clone();
        let took = load::until_bound(&self.kubernetes, async move {
            // Nobody waits for it if the watch has failed; then it is dropped, and so stopped.
            started.send(Operator::spawn(&url)?).map_err(|_| "the bench has ended".into())
        });
        let took = took.await?;
        let operator = starts.await?;
        operator.ready().await?;
        let requests = Requests::until_now(&self.kubernetes).await?.since(before);
        let seconds = took.as_secs_f64();
        self.in_all.push(Row {
            processor_seconds: operator.processor_seconds()?,
            aws_calls: operator.aws_calls_but_for(WAITING)? as f64,
            writes: requests.writes as f64 - WRITES_A_CLAIM as f64,
            mib: Some(operator.memory()?),
            ..Row::new("restarted, operator", n, seconds)
        });
        self.in_all.push(Row { ratio: Some(seconds / floor.seconds), aws_calls: 0.0, writes: 0.0, ..floor });
        operator.during(self.kubernetes.delete_claim(WAITING)).await?;
        operator.settle().await?;
        Ok(operator)
    }

    /// The policy that the operator writes.
    pub(crate) async fn policy(&self) -> Result<Arc<Policy>, Failure> {
        let (bucket, user) = self.kubernetes.bucket_and_user().await?;
        Ok(Arc::new(self.store.policy(&bucket, &user).await?))
    }

    pub(crate) async fn check_nothing_left(&self) -> Result<(), Failure> {
        self.kubernetes.check_nothing_left().await?;
        self.store.check_nothing_left().await
    }
}
