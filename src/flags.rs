//! The operator's own flags.

/// The most calls of a command to IAM in a second: an operator that serves needs the rest.
const OF_COMMANDS: u32 = 10;

/// The flags of the operator for AWS.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
#[command(next_help_heading = "AWS")]
pub struct Flags {
    /// Make at most N calls a second to IAM of an account
    ///
    /// The rate that IAM accepts is that of the whole account, and others need the rest. Reads and changes count separately.
    /// The class parameter iamCallsPerSecond limits the calls for its classes beside this. Commands make at most 10.
    #[arg(long, value_name = "N", env = "PROVISIONER_IAM_CALLS_PER_SECOND", value_parser = clap::value_parser!(u32).range(1..))]
    pub iam_calls_per_second: Option<u32>,
}

impl Flags {
    /// Those of a command that only reads, beside an operator that serves.
    pub(crate) fn of_command(self) -> Self {
        let calls = self.iam_calls_per_second.map_or(OF_COMMANDS, |calls| calls.min(OF_COMMANDS));
        Self { iam_calls_per_second: Some(calls) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_leave_an_operator_its_rate() {
        for (flag, of_command) in [(None, 10), (Some(3), 3), (Some(50), 10)] {
            assert_eq!(Flags { iam_calls_per_second: flag }.of_command().iam_calls_per_second, Some(of_command));
        }
    }
}
