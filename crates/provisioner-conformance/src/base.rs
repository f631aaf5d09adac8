//! What all files of the kit use.

use std::collections::BTreeSet;
use std::env::{self, VarError};
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

/// How long a check waits for what must happen. Generous: it bounds failures, not successes, and many checks at once keep
/// a small machine busy.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// The variable that replaces [`PATIENCE`], in seconds: for a store of which it is known that it fails.
const VARIABLE: &str = "CONFORMANCE_PATIENCE";

/// [`PATIENCE`], or what the environment sets.
pub(crate) fn patience() -> Duration {
    static SET: LazyLock<Duration> = LazyLock::new(|| match env::var(VARIABLE) {
        Err(VarError::NotPresent) => PATIENCE,
        value => {
            let seconds = value.ok().and_then(|seconds| seconds.parse().ok());
            Duration::from_secs(seconds.expect("CONFORMANCE_PATIENCE is a number of seconds, such as 60"))
        }
    });
    *SET
}

/// An address of this machine that nobody else has. Linux answers at all of 127.0.0.0/8; other systems have 127.0.0.1 alone.
pub(crate) fn unique_ip() -> Ipv4Addr {
    if cfg!(target_os = "linux") {
        let [a, b, c, _] = rand::random::<u32>().to_be_bytes();
        Ipv4Addr::new(127, a, b, c.clamp(1, 254))
    } else {
        Ipv4Addr::LOCALHOST
    }
}

/// Prints a line once per test, also if the test passes: `cargo test` captures what `eprintln!` prints.
pub(super) fn report(what: &str) {
    static REPORTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let thread = std::thread::current();
    let line = format!("{}: {what}\n", thread.name().unwrap_or("conformance"));
    if REPORTED.lock().unwrap().insert(line.clone()) {
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}
