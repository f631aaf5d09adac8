//! What `hack/bench.sh` needs beside the operator: claims to serve, the floor to compare with, slow answers
//! and full buckets.
//!
//! | command | what it does |
//! |---|---|
//! | `create N` | creates N claims and waits until all are Bound |
//! | `delete` | deletes all claims and waits until they are gone |
//! | `bound` | waits until all claims are Bound; prints when that was, in seconds since the epoch |
//! | `floor create N` | as `create`, and does itself what the operator would do, with nothing but the calls |
//! | `floor delete` | as `delete`, the same way |
//! | `floor restart` | lists once what the operator watches, and binds one claim that waits |
//! | `fill BUCKET OBJECTS VERSIONS` | puts OBJECTS objects, and further versions of VERSIONS of them |
//! | `delay MS URL` | a proxy that adds MS to each answer of URL; prints its own URL |
//!
//! Claims are those of the namespace `bench`. What is measured ends with a line of seconds, of this
//! program's processor seconds, and of its AWS calls.

mod delay;
mod floor;
mod load;
mod store;

use std::fmt::Display;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match *words.as_slice() {
        ["create", n] => measured(load::Load::new().await?.create(n.parse()?).await?, 0),
        ["delete"] => measured(load::Load::new().await?.delete().await?, 0),
        ["bound"] => {
            load::Load::new().await?.wait_all_bound().await?;
            println!("{:.3}", SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64());
            Ok(())
        }
        ["floor", "create", n] => {
            let floor = floor::Floor::new().await?;
            // Connects before time counts, as the operator has.
            floor.claims().await?;
            let began = Instant::now();
            floor.create(n.parse()?).await?;
            measured(began.elapsed(), floor.aws_calls())
        }
        ["floor", "delete"] => {
            let floor = floor::Floor::new().await?;
            let claims = floor.claims().await?;
            let began = Instant::now();
            floor.delete(claims).await?;
            measured(began.elapsed(), floor.aws_calls())
        }
        ["floor", "restart"] => {
            let waiting = floor::Floor::new().await?.claim().await?;
            // As for the operator, reading the kubeconfig and connecting included.
            let began = Instant::now();
            let floor = floor::Floor::new().await?;
            floor.restart(&waiting).await?;
            let took = began.elapsed();
            floor.delete(vec![waiting]).await?;
            measured(took, 0)
        }
        ["fill", bucket, objects, versions] => {
            store::Store::new()?.fill(bucket, objects.parse()?, versions.parse()?).await
        }
        ["delay", ms, url] => delay::serve(Duration::from_millis(ms.parse()?), url).await,
        _ => Err("unknown command; see hack/bench/main.rs".into()),
    }
}

fn measured(took: Duration, aws_calls: impl Display) -> Result<(), Failure> {
    println!("{:.3} {:.2} {aws_calls}", took.as_secs_f64(), processor_seconds()?);
    Ok(())
}

/// User and system time of this process: fields 14 and 15 of proc(5), in ticks of 10 ms.
fn processor_seconds() -> Result<f64, Failure> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    let ticks = fields.map(str::parse::<u32>).sum::<Result<u32, _>>()?;
    Ok(f64::from(ticks) / 100.0)
}
