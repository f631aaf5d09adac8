//! Questions to the admin. Answers come from standard input, so that a script can pipe them; its end means no.

use std::error::Error;
use std::io::{BufRead as _, Write as _};

/// Asks on standard error, and reads a line. It is empty at the end of the input.
///
/// # Errors
/// Standard input cannot be read.
pub(crate) fn read_line(question: &str) -> Result<String, Box<dyn Error>> {
    let mut out = std::io::stderr().lock();
    write!(out, "{question} ")?;
    out.flush()?;
    let mut line = String::new();
    if std::io::stdin().lock().read_line(&mut line)? == 0 {
        writeln!(out)?;
    }
    Ok(line.trim().to_owned())
}

/// Whether the admin types `yes`; `y` is not enough.
///
/// # Errors
/// Standard input cannot be read.
pub(crate) fn confirm(question: &str) -> Result<bool, Box<dyn Error>> {
    Ok(read_line(&format!("{question} Type yes to continue:"))? == "yes")
}
