//! One measurement: what the operator does during some work, or the floor, becomes a row.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::counters::{Process, Requests};
use crate::floor::Floor;
use crate::kubernetes::{Claim, Kubernetes};
use crate::operator::Operator;
use crate::store::Policy;
use crate::table::Row;

/// Measures what the operator does during `work`, a row of `number` things whose calls and writes are those of
/// one of `each`.
pub(crate) async fn by_operator(
    kubernetes: &Kubernetes,
    operator: &Operator,
    name: &str,
    number: usize,
    each: usize,
    work: impl Future<Output = Result<Duration, Failure>>,
) -> Result<Row, Failure> {
    let before = Requests::until_now(kubernetes).await?;
    let (calls, processor) = (operator.aws_calls().await?, operator.processor_seconds()?);
    let took = operator.during(work).await?;
    operator.settle().await?;
    let requests = Requests::until_now(kubernetes).await?.since(before);
    let seconds = took.as_secs_f64();
    Ok(Row {
        a_second: Some(number as f64 / seconds),
        processor_seconds: operator.processor_seconds()? - processor,
        aws_calls: (operator.aws_calls().await? - calls) as f64 / each as f64,
        writes: requests.writes as f64 / each as f64,
        events: Some(requests.events as f64 / each as f64),
        requests: Some(requests.all as f64 / each as f64),
        p99_ms: Some(requests.p99()),
        mib: Some(operator.memory()?),
        ..Row::new(&format!("{name}, operator"), number, seconds)
    })
}

/// Measures the floor, for the row beside that of the operator.
pub(crate) async fn by_floor(
    kubernetes: &Kubernetes,
    url: &str,
    operator: &Row,
    each: usize,
    policy: &Arc<Policy>,
    work: Work,
) -> Result<Row, Failure> {
    let before = Requests::until_now(kubernetes).await?;
    let processor = Process::this().processor_seconds()?;
    let (took, aws_calls) = work.by_floor(url, policy).await?;
    let processor_seconds = Process::this().processor_seconds()? - processor;
    let requests = Requests::until_now(kubernetes).await?.since(before);
    let seconds = took.as_secs_f64();
    let number = operator.number;
    Ok(Row {
        a_second: operator.a_second.map(|_| number as f64 / seconds),
        ratio: Some(operator.seconds / seconds),
        processor_seconds,
        aws_calls: aws_calls as f64 / each as f64,
        writes: requests.writes as f64 / each as f64,
        events: operator.events.map(|_| requests.events as f64 / each as f64),
        requests: operator.requests.map(|_| requests.all as f64 / each as f64),
        p99_ms: operator.p99_ms.map(|_| requests.p99()),
        ..Row::new(&operator.name.replace("operator", "floor"), number, seconds)
    })
}

/// What the floor does.
pub(crate) enum Work {
    Create(usize),
    /// Of a class with settings.
    CreateManaged(usize, &'static str),
    Delete,
    Restart(Claim),
}

impl Work {
    /// How long it took, and with how many AWS calls.
    async fn by_floor(self, url: &str, policy: &Arc<Policy>) -> Result<(Duration, usize), Failure> {
        // As for the operator, the time of a restart includes reading the kubeconfig and connecting.
        let mut began = Instant::now();
        let floor = Floor::new(url, policy).await?;
        let took = match self {
            Self::Create(n) => {
                floor.claims().await?;
                began = Instant::now();
                floor.create(n).await?;
                began.elapsed()
            }
            Self::CreateManaged(n, class) => {
                let floor = floor.clone().managed(class);
                floor.claims().await?;
                began = Instant::now();
                floor.create(n).await?;
                began.elapsed()
            }
            Self::Delete => {
                let claims = floor.claims().await?;
                began = Instant::now();
                floor.delete(claims).await?;
                began.elapsed()
            }
            Self::Restart(waiting) => {
                floor.restart(&waiting).await?;
                let took = began.elapsed();
                floor.delete(vec![waiting]).await?;
                took
            }
        };
        Ok((took, floor.aws_calls()))
    }
}
