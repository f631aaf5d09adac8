//! What is counted: time and memory of a process, and the requests that the API server has answered.

use std::collections::BTreeMap;

use http::Method;

use crate::Failure;
use crate::kubernetes::{Claimed, Kubernetes};

/// Requests that the API server has answered, up to now.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Requests {
    /// All about what the operator writes, events among them, but no watches.
    pub(crate) all: u64,
    /// How many of these were answered within so many microseconds.
    within: BTreeMap<u64, u64>,
    /// To what the operator writes, events apart. What is created and deleted for it to do is not among them.
    pub(crate) writes: u64,
    pub(crate) events: u64,
}

impl Requests {
    pub(crate) async fn until_now(kubernetes: &Kubernetes) -> Result<Self, Failure> {
        Ok(Self::of(&kubernetes.send(Method::GET, "/metrics", None).await?, kubernetes.claimed))
    }

    fn of(metrics: &str, claimed: Claimed) -> Self {
        let (kinds, mut sums) = (claimed.written(), Self::default());
        for line in metrics.lines() {
            let (resource, verb) = (label(line, "resource"), label(line, "verb"));
            let number = line.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0.0) as u64;
            // The other group is that of what other controllers say; libraries in Go still use it.
            let is_event =
                resource == "events" && (claimed == Claimed::Volumes || label(line, "group") == "events.k8s.io");
            if verb == "WATCH" || !is_event && !kinds.contains(&resource) {
                continue;
            }
            if line.starts_with("apiserver_request_duration_seconds_bucket{") {
                let seconds: f64 = label(line, "le").parse().unwrap_or(f64::INFINITY);
                *sums.within.entry((seconds * 1e6) as u64).or_default() += number;
            }
            if !line.starts_with("apiserver_request_total{") {
                continue;
            }
            sums.all += number;
            let writes = matches!(verb, "POST" | "PUT" | "PATCH" | "APPLY" | "DELETE");
            let is_given = kinds.first() == Some(&resource) && matches!(verb, "POST" | "DELETE");
            if writes && !is_event && !is_given {
                sums.writes += number;
            }
            if writes && is_event {
                sums.events += number;
            }
        }
        sums
    }

    pub(crate) fn since(self, before: Self) -> Self {
        let earlier = |limit: &u64| before.within.get(limit).copied().unwrap_or_default();
        Self {
            all: self.all - before.all,
            within: self.within.iter().map(|(limit, count)| (*limit, count - earlier(limit))).collect(),
            writes: self.writes - before.writes,
            events: self.events - before.events,
        }
    }

    /// The time within which the API server has answered 99 of 100, in ms: the next limit of its histogram.
    pub(crate) fn p99(&self) -> f64 {
        let all = self.within.values().max().copied().unwrap_or_default();
        let limit = self.within.iter().find(|(_, count)| **count * 100 >= all * 99).map(|(limit, _)| *limit);
        limit.map_or(f64::NAN, |limit| limit as f64 / 1000.0)
    }
}

/// The value of a label in a line of metrics.
fn label<'a>(line: &'a str, name: &str) -> &'a str {
    let labels = line.split(['{', '}']).nth(1).unwrap_or_default();
    let value = labels.split(',').find_map(|label| label.strip_prefix(name)?.strip_prefix("=\""));
    value.map_or("", |value| value.trim_end_matches('"'))
}

/// A process, by its id or as `self`.
pub(crate) struct Process(pub(crate) String);

impl Process {
    pub(crate) fn this() -> Self {
        Self("self".to_owned())
    }

    /// User and system time: fields 14 and 15 of proc(5), in ticks of 10 ms.
    pub(crate) fn processor_seconds(&self) -> Result<f64, Failure> {
        let ticks = self.stat()?.iter().skip(11).take(2).map(|ticks| ticks.parse::<u32>()).sum::<Result<u32, _>>()?;
        Ok(f64::from(ticks) / 100.0)
    }

    /// Nobody has waited for the end of one that has ended: it is a zombie.
    pub(crate) fn runs(&self) -> bool {
        self.stat().is_ok_and(|fields| fields.first().is_some_and(|state| state != "Z"))
    }

    /// The fields after the program's name, which may hold blanks and ends with a ")".
    fn stat(&self) -> Result<Vec<String>, Failure> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0))?;
        Ok(stat.rsplit(')').next().unwrap_or_default().split_whitespace().map(str::to_owned).collect())
    }

    /// A line of `/proc/PID/status` in MiB: `VmRSS` is resident memory, `VmHWM` the most that it was.
    pub(crate) fn memory(&self, line: &str) -> Result<f64, Failure> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0))?;
        let value = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'));
        let kib: f64 = value.and_then(|value| value.split_whitespace().next()).ok_or("no such line")?.parse()?;
        Ok(kib / 1024.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_to_the_operator_is_not_among_its_writes() {
        let line = |group: &str, resource: &str, verb: &str, number: &str| {
            format!(
                "apiserver_request_total{{code=\"200\",group=\"{group}\",resource=\"{resource}\",\
                 subresource=\"\",verb=\"{verb}\",version=\"v1\"}} {number}\n"
            )
        };
        let metrics = [
            line("objectbucket.io", "objectbucketclaims", "POST", "3"),
            line("objectbucket.io", "objectbucketclaims", "PATCH", "5"),
            line("objectbucket.io", "objectbuckets", "GET", "7"),
            line("", "secrets", "POST", "1.1e+02"),
            line("events.k8s.io", "events", "POST", "2"),
            line("", "events", "POST", "4"),
        ];
        let sums = Requests::of(&metrics.concat(), Claimed::Buckets);
        assert_eq!((sums.all, sums.writes, sums.events), (127, 115, 2));
    }

    #[test]
    fn the_99th_percentile_is_the_bound_of_99_of_100() {
        let line = |verb: &str, limit: &str, number: u64| {
            let labels = format!("resource=\"secrets\",verb=\"{verb}\",le=\"{limit}\"");
            format!("apiserver_request_duration_seconds_bucket{{{labels}}} {number}\n")
        };
        let of = |lines: &[String]| Requests::of(&lines.concat(), Claimed::Buckets);
        let before = of(&[line("GET", "0.005", 5), line("GET", "0.05", 5), line("GET", "+Inf", 500)]);
        let after = [line("GET", "0.005", 15), line("GET", "0.05", 104), line("GET", "+Inf", 600)];
        assert_eq!(of(&after).since(before).p99(), 50.0);
        assert_eq!(of(&[line("WATCH", "0.005", 1), line("GET", "0.1", 1)]).p99(), 100.0);
    }
}
