//! What is counted: time and memory of a process, and the requests that the API server has answered.

use http::Method;

use crate::Failure;
use crate::kubernetes::Kubernetes;

/// What the operator writes.
const KINDS: [&str; 4] = ["objectbucketclaims", "objectbuckets", "secrets", "configmaps"];

/// Requests that changed something, up to now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Requests {
    /// To what the operator writes, events apart. What is created and deleted for it to do is not among them.
    pub(crate) writes: u64,
    pub(crate) events: u64,
}

impl Requests {
    pub(crate) async fn until_now(kubernetes: &Kubernetes) -> Result<Self, Failure> {
        Ok(Self::of(&kubernetes.send(Method::GET, "/metrics", None).await?))
    }

    fn of(metrics: &str) -> Self {
        let mut sums = Self { writes: 0, events: 0 };
        for line in metrics.lines().filter(|line| line.starts_with("apiserver_request_total{")) {
            let (resource, verb) = (label(line, "resource"), label(line, "verb"));
            let number = line.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0.0) as u64;
            let writes = matches!(verb, "POST" | "PUT" | "PATCH" | "APPLY" | "DELETE");
            let is_given = resource == "objectbucketclaims" && matches!(verb, "POST" | "DELETE");
            if writes && KINDS.contains(&resource) && !is_given {
                sums.writes += number;
            }
            if verb == "POST" && resource == "events" && label(line, "group") == "events.k8s.io" {
                sums.events += number;
            }
        }
        sums
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self { writes: self.writes - before.writes, events: self.events - before.events }
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
        assert_eq!(Requests::of(&metrics.concat()), Requests { writes: 115, events: 2 });
    }
}
