//! The kernel's metrics of this process, by the names that all Prometheus clients use.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::metrics::{Definitions, Gauge, Seconds, set};

/// Linux counts processor time in hundredths of a second, whatever its own clock ticks.
const TICK: f64 = 0.01;

#[derive(Debug)]
pub(super) struct Process {
    processor: Seconds,
    resident: Gauge,
    descriptors: Gauge,
    limit: Gauge,
}

impl Process {
    pub(super) fn define(all: &mut Definitions) -> Self {
        let started = all.gauge("process_start_time_seconds", "Start time of the process as a Unix timestamp");
        started.set(since_1970());
        Self {
            processor: all.seconds("process_cpu_seconds", "User and system CPU time of the process in seconds"),
            resident: all.gauge("process_resident_memory_bytes", "Resident memory size of the process in bytes"),
            descriptors: all.gauge("process_open_fds", "Number of open file descriptors"),
            limit: all.gauge("process_max_fds", "Maximum number of open file descriptors"),
        }
    }

    /// What cannot be read stays as it was.
    pub(super) fn update(&self) {
        let read = |name: &str| fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
        // The name of the program comes before, and can have blanks.
        let stat = read("stat");
        let ticks = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
        if let [Ok(user), Ok(system)] = ticks.map(str::parse::<f64>).collect::<Vec<_>>()[..] {
            set(&self.processor, (user + system) * TICK);
        }
        if let Some(kib) = number_after(&read("status"), "VmRSS:") {
            self.resident.set(kib * 1024.0);
        }
        if let Some(limit) = number_after(&read("limits"), "Max open files") {
            self.limit.set(limit);
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            self.descriptors.set(open.count() as f64);
        }
    }
}

/// Now, in seconds.
pub fn since_1970() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64()
}

/// The number after a label in a file of /proc.
fn number_after(text: &str, word: &str) -> Option<f64> {
    text.split_once(word)?.1.split_whitespace().next()?.parse().ok()
}
