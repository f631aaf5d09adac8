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
/// Commands that the help of a plugin of kubectl does not show: they are about the operator itself.
const OF_THE_OPERATOR: [&str; 7] = ["run", "crds", "rbac", "parameters", "reasons", "metrics", "man"];
/// How cobra, which kubectl is built with, is informed that files are no candidates.
const NO_FILES: &str = ":4";

/// The name of the plugin if the program was started as a plugin of kubectl, as with `kubectl-obc`: `kubectl obc`.
pub(super) fn plugin(started_as: Option<&OsString>) -> Option<String> {
    let name = Path::new(started_as?).file_stem()?.to_str()?;
    // kubectl reads `-` as the next word, and `_` as a dash.
    let words = name.strip_prefix("kubectl-")?.replace('-', " ").replace('_', "-");
    Some(format!("kubectl {words}"))
}

/// The plugin that is completed, if the program was started as kubectl starts `kubectl_complete-obc`: `kubectl-obc`.
pub(super) fn completed_plugin(started_as: Option<&OsString>) -> Option<OsString> {
    let name = Path::new(started_as?).file_stem()?.to_str()?;
    Some(format!("kubectl-{}", name.strip_prefix("kubectl_complete-")?).into())
}

/// What can follow these words of a command line, of which the last one is not complete, in the format of cobra.
pub(super) fn candidates(mut command: Command, words: impl Iterator<Item = OsString>) -> String {
    command.build();
    let words: Vec<_> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let (last, before) = words.split_last().map_or(("", &[][..]), |(last, before)| (last.as_str(), before));
    let chosen = before.iter().find_map(|word| command.find_subcommand(word));
    let at = chosen.unwrap_or(&command);
    let previous = before.last().map(String::as_str).unwrap_or_default();
    let of_flag = at.get_arguments().find(|arg| {
        let short = arg.get_short().is_some_and(|short| previous == format!("-{short}"));
        short || arg.get_long().is_some_and(|long| previous == format!("--{long}"))
    });
    let values: Vec<_> = of_flag.map(clap::Arg::get_possible_values).unwrap_or_default();
    let all: Vec<(String, String)> = if !values.is_empty() {
        values.iter().map(|value| (value.get_name().to_owned(), described(value.get_help()))).collect()
    } else if last.starts_with('-') {
        let shown = at.get_arguments().filter(|arg| !arg.is_hide_set());
        shown.filter_map(|arg| Some((format!("--{}", arg.get_long()?), described(arg.get_help())))).collect()
    } else if chosen.is_none() {
        let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set());
        shown.map(|sub| (sub.get_name().to_owned(), described(sub.get_about()))).collect()
    } else {
        Vec::new()
    };
    let fits = all.into_iter().filter(|(name, _)| name.starts_with(last));
    fits.map(|(name, help)| format!("{name}\t{help}\n")).chain([format!("{NO_FILES}\n")]).collect()
}

fn described(help: Option<&clap::builder::StyledStr>) -> String {
    help.map(ToString::to_string).unwrap_or_default()
}

/// Whether a user has typed the command, rather than a Deployment or a script.
pub(super) fn is_typed() -> bool {
    std::io::stdin().is_terminal() && std::env::var_os("KUBERNETES_SERVICE_HOST").is_none()
}

/// The name with which an admin runs this program.
pub(super) fn invoked_as(program: &str) -> String {
    plugin(std::env::args_os().next().as_ref()).unwrap_or_else(|| program.to_owned())
}

/// Hides the commands that a plugin of kubectl has no use for.
pub(super) fn as_plugin(command: Command, plugin: String) -> Command {
    let names: Vec<_> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    let hidden = names.into_iter().filter(|name| OF_THE_OPERATOR.contains(&name.as_str()));
    hidden.fold(command.bin_name(plugin), |command, name| command.mut_subcommand(name, |sub| sub.hide(true)))
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
        return clap_mangen::generate_to(command, dir).map_err(|error| super::cannot_write(dir, &error).into());
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
        let completed = |path: &str| completed_plugin(Some(&OsString::from(path)));
        assert_eq!(completed("/bin/kubectl_complete-obc"), Some("kubectl-obc".into()));
        assert_eq!(completed("/bin/kubectl-obc"), None);
    }

    #[test]
    fn words_of_a_plugin_are_completed_as_kubectl_reads_them() {
        let format = clap::Arg::new("output").short('o').long("output").value_parser(["table", "json"]);
        let status = Command::new("status").about("List claims").arg(format);
        let command =
            as_plugin(Command::new("p").subcommand(status).subcommand(Command::new("run")), "kubectl p".into());
        let after = |words: &[&str]| candidates(command.clone(), words.iter().map(OsString::from));
        assert_eq!(after(&["s"]), "status\tList claims\n:4\n");
        assert_eq!(after(&["status", "-o", "j"]), "json\t\n:4\n");
        assert!(after(&["status", "--"]).starts_with("--output\t"));
        assert!(after(&[]).contains("status") && !after(&[]).contains("run"));
    }
}
