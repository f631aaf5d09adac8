//! The command line in a shell: as a plugin of kubectl, with help that shows only the flags that a command uses, as
//! completions, and as a manual page.

use std::error::Error;
use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::Path;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

use operator_runtime::program::print;

/// Flags for serving claims. All commands accept them, before and after the command's name, and those of [`SHOW_ALL`]
/// show them.
const SERVING: [&str; 11] = [
    "concurrency",
    "resync",
    "admin_address",
    "leader_elect",
    "lease_duration",
    "lease_renew_deadline",
    "lease_retry_period",
    "lease_namespace",
    "lease_name",
    "metrics_namespace_label",
    "otlp_endpoint",
];

/// Commands whose help shows all flags.
const SHOW_ALL: [&str; 2] = ["run", "rbac"];

/// The name of the plugin if the program was started as a plugin of kubectl, as with `kubectl-obc`: `kubectl obc`.
pub(super) fn plugin(started_as: Option<&OsString>) -> Option<String> {
    let name = Path::new(started_as?).file_stem()?.to_str()?;
    // kubectl reads `-` as the next word, and `_` as a dash.
    let words = name.strip_prefix("kubectl-")?.replace('-', " ").replace('_', "-");
    Some(format!("kubectl {words}"))
}

/// Whether a user has typed the command, rather than a Deployment or a script.
pub(super) fn is_typed() -> bool {
    std::io::stdin().is_terminal() && std::env::var_os("KUBERNETES_SERVICE_HOST").is_none()
}

/// The name with which an admin runs this program.
pub(super) fn invoked_as(program: &str) -> String {
    plugin(std::env::args_os().next().as_ref()).unwrap_or_else(|| program.to_owned())
}

/// Hides the flags for serving claims from the help of the commands that do not serve.
pub(super) fn tidy(command: Command) -> Command {
    let serving: Vec<_> = command
        .get_arguments()
        .filter(|arg| SERVING.contains(&arg.get_id().as_str()))
        .map(|arg| arg.clone().hide(true))
        .collect();
    let names: Vec<_> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    names.into_iter().filter(|name| !SHOW_ALL.contains(&name.as_str())).fold(command, |command, name| {
        // A global flag does not replace one that the command has itself.
        command.mut_subcommand(name, |sub| sub.args(serving.clone()))
    })
}

pub(super) fn completions(shell: Shell, mut command: Command) -> String {
    let name = command.get_bin_name().unwrap_or(command.get_name()).replace(' ', "-");
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Prints the manual page, or writes one for the program and one for each command into a directory.
pub(super) fn manual(command: Command, output_dir: Option<&Path>) -> Result<(), Box<dyn Error>> {
    if let Some(dir) = output_dir {
        return clap_mangen::generate_to(command, dir)
            .map_err(|error| format!("cannot write to {}: {error}", dir.display()).into());
    }
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    print(&String::from_utf8_lossy(&page))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_has_the_name_that_kubectl_uses() {
        let name = |path: &str| plugin(Some(&OsString::from(path)));
        assert_eq!(name("/usr/local/bin/kubectl-obc").as_deref(), Some("kubectl obc"));
        assert_eq!(name("kubectl-s3-my_buckets").as_deref(), Some("kubectl s3 my-buckets"));
        assert_eq!(name("/bin/aws-s3-provisioner"), None);
    }
}
