//! What `hack/bench.sh` runs: `bench N OBJECTS BOUND PART...` measures the operator, which is in the same folder as
//! this program, and the floor, and prints both. The script's `--help` explains the parts.
//!
//! It needs an empty cluster with the custom resources, the namespace `bench` and the class `s3-buckets`
//! (`KUBECONFIG`), and an AWS (`AWS_ENDPOINT_URL`, keys, region).

mod bodies;
mod counters;
mod floor;
mod keyless;
mod kubernetes;
mod latency;
mod limits;
mod load;
mod many;
mod measure;
mod network;
mod objects;
mod operator;
mod parts;
mod purge;
mod queue;
mod settings;
mod store;
mod table;
mod volumes;

use limits::Limits;
use network::Network;
use parts::{Bench, Wanted};
use tokio::signal::unix::{SignalKind, signal};

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut terminate = signal(SignalKind::terminate())?;
    match *words.as_slice() {
        ["network", delay, new_keys, url] => {
            network::serve(Network { delay: delay.parse()?, new_keys: new_keys.parse()? }, url).await
        }
        // What was started is stopped when `run` is dropped.
        [n, objects, bound, ref parts @ ..] => tokio::select! {
            done = run(n.parse()?, objects.parse()?, bound.parse()?, parts) => done,
            _ = terminate.recv() => Err("stopped".into()),
        },
        _ => Err("usage: bench N OBJECTS BOUND PART...; see hack/bench.sh --help".into()),
    }
}

/// Tells what is done, beside the tables.
pub(crate) fn say(what: &str) {
    eprintln!("bench: {what}");
}

async fn run(n: usize, objects: usize, bound: usize, parts: &[&str]) -> Result<(), Failure> {
    let wanted = |part| parts.contains(&part);
    let mut bench = Bench::new().await?;
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    let processors = std::thread::available_parallelism()?;
    println!("\n{profile} build, {processors} processors, operator with a lease");
    println!("ratio: seconds of the operator to those of the floor\n");
    if ["claims", "settings", "keyless", "delay"].into_iter().any(wanted) {
        println!("{}", table::header("a claim"));
    }
    if wanted("claims") || wanted("restart") {
        bench.claims(n, "", Wanted { rows: wanted("claims"), restart: wanted("restart") }).await?;
    }
    if wanted("settings") {
        bench.settings(n).await?;
    }
    if wanted("keyless") {
        bench.keyless(n).await?;
    }
    if wanted("delay") {
        bench.delayed(50, n.min(500)).await?;
        bench.delayed(300, n.min(200)).await?;
    }
    if wanted("latency") {
        println!("\n{}", latency::header());
        for delay in [0, 50, 300] {
            bench.one_by_one(n.min(100), Network { delay, new_keys: 0 }).await?;
        }
        for (new_keys, n) in [(1, 20), (5, 10), (10, 6), (30, 4)] {
            bench.one_by_one(n, Network { delay: 50, new_keys: new_keys * 1000 }).await?;
        }
    }
    if wanted("limits") {
        println!("\n{}", limits::header());
        bench.other_account().await?;
        let (many, some) = (n.min(500), n.min(200));
        bench.limited(many, Limits(15.0, 15.0), true).await?;
        bench.limited(some, Limits(5.0, 5.0), false).await?;
        bench.limited(many, Limits(50.0, 50.0), false).await?;
        bench.limited(some, Limits(15.0, 5.0), false).await?;
        bench.limited(many, Limits(5.0, 50.0), false).await?;
    }
    if wanted("purge") {
        bench.purge(objects).await?;
    }
    if wanted("queue") {
        bench.queue(n.min(500)).await?;
    }
    if wanted("volumes") {
        bench.volumes(n).await?;
    }
    // The last one, because it leaves its claims.
    if wanted("many") {
        bench.many(bound).await?;
    }
    if !bench.in_all.is_empty() {
        println!("\n{}", table::header("in all"));
        bench.in_all.iter().for_each(table::Row::print);
    }
    println!(
        "\naims: ratio at most 1.3; 50 claims a second or more (100 times the 0.5 of the Go\n\
         provisioner); restarted: no calls, no writes; less than 64 MiB with 10000 bound"
    );
    if bench.peak > 0.0 {
        println!("resident memory of the operator at its most while claims were created: {:.1} MiB", bench.peak);
    }
    Ok(())
}
