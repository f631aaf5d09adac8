//! Claims and the program in a shell: waited for by kubectl, as its plugin, completed, and with a manual page.

use std::process::Output;

use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::process::Command;

use crate::support::operator::{Kind, Operator};
use crate::support::terminal::Terminal;
use crate::support::tool::Folder;
use crate::support::{World, assert_contains, needed};

const PROGRAM: &str = env!("CARGO_BIN_EXE_aws-s3-provisioner");

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The program as `kubectl obc`, in the context of an admin.
struct Plugin<'a> {
    world: &'a World,
    folder: Folder,
}

impl<'a> Plugin<'a> {
    fn new(world: &'a World) -> Self {
        let folder = Folder::new(&world.unique("plugin"));
        for name in ["kubectl-obc", "kubectl_complete-obc"] {
            std::os::unix::fs::symlink(PROGRAM, folder.0.join(name)).unwrap();
        }
        Self { world, folder }
    }

    async fn run(&self, args: &[&str]) -> Output {
        let path = format!("{}:{}:/usr/bin:/bin", self.folder.0.display(), needed("KUBEBUILDER_ASSETS"));
        let mut command = Command::new(format!("{}/kubectl", needed("KUBEBUILDER_ASSETS")));
        command.env("PATH", path).env("KUBECONFIG", self.folder.kubeconfig(self.world));
        command.env("PROVISIONER_NAME", &self.world.provisioner).arg("obc").args(args).output().await.unwrap()
    }
}

#[tokio::test]
async fn kubectl_finds_the_plugin_and_it_shows_claims() {
    let world = World::with_own_path().await;
    let class = world.class("greenfield").await;
    world.claim("photos", &class).await;
    let plugin = Plugin::new(&world);
    let kubectl = async |args: &[&str]| plugin.run(args).await;
    let namespace = world.namespace.clone();
    for args in [
        &["-n", &namespace][..],
        &["-n", &namespace, "-o", "wide"],
        &["status", "--namespace", &namespace],
        &["--context", "c", "-n", &namespace],
    ] {
        let shown = kubectl(args).await;
        let out = text(&shown.stdout);
        assert!(shown.status.success() && out.contains("photos") && out.contains("1 claim"), "{args:?}: {shown:?}");
    }
    let none = kubectl(&["orphans", "-n", &namespace]).await;
    assert!(none.status.success() && text(&none.stdout).contains("no orphans"), "{none:?}");
    let help = text(&kubectl(&["--help"]).await.stdout);
    assert!(help.contains("Usage: kubectl obc") && !help.contains("  run ") && help.contains("orphans"), "{help}");
    let missing = kubectl(&["--context", "missing"]).await;
    assert!(!missing.status.success() && text(&missing.stderr).contains("missing"), "{missing:?}");
}

#[tokio::test]
async fn users_work_with_a_claim_by_the_plugin() {
    let world = World::with_own_path().await;
    let class = world.class("greenfield").await;
    let plugin = Plugin::new(&world);
    let claim = format!("{}/photos", world.namespace);
    world.claim("photos", &class).await;
    let early = plugin.run(&["env", &claim]).await;
    assert_eq!((early.status.code(), text(&early.stdout).ends_with("; false\n")), (Some(1), true), "{early:?}");
    let early = plugin.run(&["rotate", &claim]).await;
    assert!(!early.status.success() && text(&early.stderr).contains("not Bound"), "{early:?}");

    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_bound("photos").await;
    let added = json!({ "data": { "PROMPT_COMMAND": "touch pwned" } });
    world.config_maps().patch("photos", &PatchParams::default(), &Patch::Merge(added)).await.unwrap();
    let variables = plugin.run(&["env", &claim]).await;
    let environment = world.environment("photos").await;
    let expected = format!("export AWS_ACCESS_KEY_ID='{}';", environment["AWS_ACCESS_KEY_ID"]);
    let out = text(&variables.stdout);
    assert!(out.contains(&expected) && !out.contains("PROMPT_COMMAND"), "{variables:?}");
    assert!(out.contains("export AWS_S3_ADDRESSING_STYLE='"), "what the operator wrote is there: {variables:?}");
    let left_out = "PROMPT_COMMAND is left out, because others may have written it; `-o json` shows it\n";
    assert_eq!(text(&variables.stderr), left_out);

    let rotated = plugin.run(&["rotate", "photos", "-n", &world.namespace]).await;
    assert!(rotated.status.success(), "{rotated:?}");
    world.wait_secret("photos", |keys| keys["AWS_ACCESS_KEY_ID"] != environment["AWS_ACCESS_KEY_ID"]).await;

    // The context's namespace is another one.
    let listed = async |args: &[&str]| text(&plugin.run(args).await.stdout);
    assert!(listed(&["-A"]).await.contains("photos") && !listed(&[]).await.contains("photos"));
    let name = listed(&["-n", &world.namespace, "-o", "name"]).await;
    assert_eq!(name, "objectbucketclaim.objectbucket.io/photos\n");
    assert_eq!(plugin.run(&["-A", "-o", "name"]).await.status.code(), Some(1), "names of which namespace?");
    assert_eq!(plugin.run(&["run"]).await.status.code(), Some(2));
    let completed = Command::new(plugin.folder.0.join("kubectl_complete-obc")).arg("ro").output().await.unwrap();
    assert_eq!(text(&completed.stdout), "rotate\tRequest new keys for a claim\n:4\n");
}

#[tokio::test]
async fn kubectl_waits_for_a_claim_that_was_replaced() {
    let world = World::new().await;
    let spec = json!({ "storageClassName": world.class("greenfield").await, "generateBucketName": "photos" });
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim_with("photos", spec.clone()).await;
    let folder = Folder::new(&world.unique("manifest"));
    let manifest = folder.0.join("photos.json");
    let (version, kind) = ("objectbucket.io/v1alpha1", "ObjectBucketClaim");
    let claim = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": "photos" }, "spec": spec });
    std::fs::write(&manifest, claim.to_string()).unwrap();
    let wait = ["wait", "obc/photos", "--for=condition=Ready", "--timeout=30s"];
    let null = r#"{"spec":{"bucketName":null}}"#;
    for args in [
        &wait[..],
        &["replace", "-f", manifest.to_str().unwrap()],
        &wait,
        &["patch", "obc", "photos", "--type=merge", "-p", null],
        &wait,
    ] {
        let mut kubectl = Command::new(format!("{}/kubectl", needed("KUBEBUILDER_ASSETS")));
        kubectl.env("KUBECONFIG", needed("KUBECONFIG")).args(["--namespace", &world.namespace]);
        let done = kubectl.args(args).output().await.unwrap();
        assert!(done.status.success(), "{args:?}: {done:?}");
    }
}

#[tokio::test]
async fn a_shell_completes_commands() {
    let script = r#"
        set -euo pipefail
        source <("$1" completions bash)
        COMP_WORDS=(aws-s3-provisioner st) COMP_CWORD=1
        function=$(complete -p aws-s3-provisioner | sed 's/.*-F \([^ ]*\).*/\1/')
        "$function" aws-s3-provisioner st aws-s3-provisioner
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let done = Command::new("bash").args(["-c", script, "-", PROGRAM]).output().await.unwrap();
    assert_eq!(text(&done.stdout).trim(), "status", "{done:?}");
    for shell in ["zsh", "fish", "powershell", "elvish"] {
        let script = Command::new(PROGRAM).args(["completions", shell]).output().await.unwrap();
        assert!(script.status.success() && text(&script.stdout).contains("orphans"), "{shell}");
    }
}

#[tokio::test]
async fn the_manual_has_a_page_for_each_command() {
    let page = text(&Command::new(PROGRAM).arg("man").output().await.unwrap().stdout);
    for section in [".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS", ".SH SUBCOMMANDS"] {
        let rest = page.split_once(section).unwrap_or_else(|| panic!("no {section}: {page}")).1;
        let content = rest.split(".SH ").next().unwrap_or_default();
        assert!(content.trim().len() > 20, "{section} is empty: {page}");
    }
    let folder = Folder::new("manual");
    let done = Command::new(PROGRAM).args(["man", "--output-dir"]).arg(&folder.0).output().await.unwrap();
    assert!(done.status.success(), "{done:?}");
    let status = std::fs::read_to_string(folder.0.join("aws-s3-provisioner-status.1")).unwrap();
    assert!(status.contains("watch") && !status.contains("lease"), "{status}");
}

#[tokio::test]
async fn a_missing_output_directory_is_an_error_with_a_remedy() {
    let missing = Folder::new("missing").0.join("below");
    for command in ["crds", "man"] {
        let done = Command::new(PROGRAM).args([command, "--output-dir"]).arg(&missing).output().await.unwrap();
        let problem = text(&done.stderr);
        assert_eq!(done.status.code(), Some(1), "{problem}");
        assert!(problem.starts_with("error: cannot write "), "{problem}");
        assert_contains(&problem, &[&missing.display().to_string(), "create the directory"]);
    }
}

#[tokio::test]
async fn no_second_operator_is_started_without_a_command() {
    let world = World::new().await;
    let mut typed = Terminal::start(&world, &[]);
    typed.shows(&["error: without a command", "`aws-s3-provisioner run`"]).await;
    assert_eq!(typed.end().await, Some(2));
    assert_eq!(world.kubernetes.names(), [""; 0]);
}
