//! Which cases of a matrix are run.

use std::env::{self, VarError};

/// The variable with the size of the sample: one case in so many. Without it all cases are run.
const VARIABLE: &str = "TEST_SAMPLE";

/// The cases of a matrix that are run: all of them, or, with `TEST_SAMPLE=8` in the environment, every eighth and at least
/// one. The name decides where the sample begins: matrices of the same calls have different samples, and two runs the same.
#[must_use]
pub fn sampled<T>(matrix: &str, cases: Vec<T>) -> Vec<T> {
    let size = match env::var(VARIABLE) {
        Err(VarError::NotPresent) => 1,
        value => value.ok().and_then(|size| size.parse().ok()).expect("TEST_SAMPLE is a number from 1, such as 8"),
    };
    every(size, matrix, cases)
}

fn every<T>(size: usize, matrix: &str, cases: Vec<T>) -> Vec<T> {
    assert!(size > 0, "{VARIABLE} is a number from 1, such as 8");
    let first = matrix.bytes().map(usize::from).sum::<usize>() % size.min(cases.len()).max(1);
    cases.into_iter().skip(first).step_by(size).collect()
}

#[cfg(test)]
mod tests {
    use super::every;

    #[test]
    fn a_sample_is_spread_over_all_cases_and_never_empty() {
        assert_eq!(every(1, "a", vec![1, 2, 3]), [1, 2, 3]);
        assert_eq!(every(4, "d", (0..10).collect()), [0, 4, 8]);
        assert_eq!(every(4, "e", (0..10).collect()), [1, 5, 9]);
        for matrix in ["a", "b", "c"] {
            assert_eq!(every(8, matrix, vec!["alone"]), ["alone"]);
            assert_eq!(every(8, matrix, vec![1, 2]).len(), 1);
        }
        assert!(every(8, "a", Vec::<u8>::new()).is_empty());
    }
}
