//! The tables that are printed.

/// How many of what, and what that took.
#[derive(Clone)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) number: usize,
    pub(crate) seconds: f64,
    pub(crate) a_second: Option<f64>,
    /// Seconds of the operator to those of the floor.
    pub(crate) ratio: Option<f64>,
    pub(crate) processor_seconds: f64,
    pub(crate) aws_calls: f64,
    pub(crate) writes: f64,
    pub(crate) events: Option<f64>,
    /// Requests to the API server of whoever, and the time within which it answered 99 of 100.
    pub(crate) requests: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    pub(crate) mib: Option<f64>,
}

/// The head of a table whose calls, writes and events are those of `each`.
pub(crate) fn header(each: &str) -> String {
    let titles = [
        "",
        "number",
        "seconds",
        "a second",
        "ratio",
        "CPU s",
        "AWS calls",
        "writes",
        "events",
        "requests",
        "p99 ms",
        "MiB",
    ];
    let of_each = ["", "", "", "", "", "", each, each, each, each, "", ""];
    format!("{}\n{}", line(titles), line(of_each))
}

impl Row {
    /// Of what is not measured yet.
    pub(crate) fn new(name: &str, number: usize, seconds: f64) -> Self {
        Self {
            name: name.to_owned(),
            number,
            seconds,
            a_second: None,
            ratio: None,
            processor_seconds: 0.0,
            aws_calls: 0.0,
            writes: 0.0,
            events: None,
            requests: None,
            p99_ms: None,
            mib: None,
        }
    }

    pub(crate) fn print(&self) {
        println!("{}", self.line());
    }

    fn line(&self) -> String {
        let two = |number: Option<f64>| number.map_or_else(String::new, |number| format!("{number:.2}"));
        line([
            &self.name,
            &self.number.to_string(),
            &format!("{:.3}", self.seconds),
            &two(self.a_second),
            &two(self.ratio),
            &two(Some(self.processor_seconds)),
            &two(Some(self.aws_calls)),
            &two(Some(self.writes)),
            &two(self.events),
            &two(self.requests),
            &self.p99_ms.map_or_else(String::new, |ms| format!("{ms:.0}")),
            &self.mib.map_or_else(String::new, |mib| format!("{mib:.1}")),
        ])
    }
}

fn line(cells: [&str; 12]) -> String {
    let [name, number, seconds, a_second, ratio, cpu, calls, writes, events, requests, p99, mib] = cells;
    format!(
        "{name:<26} {number:>7} {seconds:>8} {a_second:>9} {ratio:>6} {cpu:>7} {calls:>10} {writes:>7} {events:>7} \
         {requests:>8} {p99:>6} {mib:>7}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_aligned_and_skip_what_was_not_measured() {
        let row = Row {
            a_second: Some(80.0),
            processor_seconds: 3.21,
            aws_calls: 6.0,
            writes: 8.0,
            events: Some(1.0),
            ..Row::new("created, floor", 1000, 12.5)
        };
        let titles = header("a claim");
        let wanted = "created, floor                1000   12.500     80.00           3.21       6.00    8.00    1.00                        ";
        assert_eq!(row.line(), wanted);
        assert!(titles.lines().all(|line| line.len() == wanted.len()), "{titles}");
    }
}
