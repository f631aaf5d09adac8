//! How long one claim takes, with nothing else to do, beside the floor: the calls in a row that cannot be avoided.

use std::time::{Duration, Instant};

use crate::floor::Floor;
use crate::kubernetes::CLASS;
use crate::load::{self, Life};
use crate::network::{Network, Proxy};
use crate::operator::Operator;
use crate::parts::Bench;
use crate::{Failure, say};

/// The head of the table.
pub(crate) fn header() -> String {
    line(["", "claims", "p50", "p99", "floor p50", "floor p99", "p50 ratio", "p99 ratio", "late"])
        + "\n"
        + &line(["", "", "ms", "ms", "ms", "ms", "", "", "ms"])
}

impl Bench {
    /// `n` claims, one after another: from their creation to Bound, and from their deletion to gone.
    pub(crate) async fn one_by_one(&mut self, n: usize, network: Network) -> Result<(), Failure> {
        let Network { delay, new_keys } = network;
        say(&format!("{n} claims one after another, {delay} ms a call, keys work after {new_keys} ms"));
        let proxy = Proxy::start(network, &self.url)?;
        let operator = Operator::start(&proxy.url).await?;
        // Connections stand, and what is learnt about the account and its keys is learnt.
        operator.during(load::one(&self.kubernetes, "first", CLASS)).await?;
        let lives = operator.during(async {
            let mut lives = Vec::new();
            for number in 1..n {
                lives.push(load::one(&self.kubernetes, &format!("one-{number}"), CLASS).await?);
            }
            operator.settle().await?;
            load::create(&self.kubernetes, 1).await?;
            Ok(lives)
        });
        let lives = lives.await?;
        let policy = self.policy().await?;
        operator.during(load::delete(&self.kubernetes)).await?;
        operator.stop().await?;

        // The floor does not wait for keys, so how long that takes is added.
        let direct = Proxy::start(Network { new_keys: 0, ..network }, &self.url)?;
        let floor = Floor::new(&direct.url, &policy).await?;
        floor.life().await?;
        let mut floors = Vec::new();
        for _ in 1..n {
            let Life { bound, gone } = floor.life().await?;
            floors.push(Life { bound: bound + Duration::from_millis(new_keys), gone });
        }
        let name = match new_keys {
            0 => format!("{delay} ms"),
            new_keys => format!("keys after {} s", new_keys / 1000),
        };
        print(&format!("to Bound, {name}"), &lives, &floors, |life| life.bound);
        if new_keys == 0 {
            print(&format!("to gone, {name}"), &lives, &floors, |life| life.gone);
        }
        self.check_nothing_left().await
    }
}

impl Floor {
    /// One claim, from its creation to Bound, and from its deletion to gone.
    async fn life(&self) -> Result<Life, Failure> {
        let began = Instant::now();
        self.create(1).await?;
        let bound = began.elapsed();
        let claims = self.claims().await?;
        let began = Instant::now();
        self.delete(claims).await?;
        Ok(Life { bound, gone: began.elapsed() })
    }
}

pub(crate) fn print(name: &str, lives: &[Life], floors: &[Life], time: impl Fn(&Life) -> Duration) {
    let sorted = |lives: &[Life]| {
        let mut all: Vec<_> = lives.iter().map(|life| time(life).as_secs_f64() * 1000.0).collect();
        all.sort_by(f64::total_cmp);
        all
    };
    let (ours, floor) = (sorted(lives), sorted(floors));
    let (p50, p99, floor50, floor99) = (at(&ours, 50), at(&ours, 99), at(&floor, 50), at(&floor, 99));
    let ms = |ms: f64| format!("{ms:.0}");
    println!(
        "{}",
        line([
            name,
            &ours.len().to_string(),
            &ms(p50),
            &ms(p99),
            &ms(floor50),
            &ms(floor99),
            &format!("{:.2}", p50 / floor50),
            &format!("{:.2}", p99 / floor99),
            &ms(p99 - floor50),
        ])
    );
}

/// A percentile of what is sorted.
fn at(sorted: &[f64], percent: usize) -> f64 {
    sorted.get((sorted.len() * percent).div_ceil(100).max(1) - 1).copied().unwrap_or(f64::NAN)
}

fn line([name, claims, p50, p99, floor50, floor99, ratio50, ratio99, late]: [&str; 9]) -> String {
    format!("{name:<26} {claims:>7} {p50:>7} {p99:>7} {floor50:>9} {floor99:>9} {ratio50:>9} {ratio99:>9} {late:>7}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!((at(&values, 50), at(&values, 99)), (50.0, 99.0));
        assert_eq!(at(&[7.0], 99), 7.0);
    }
}
