//! The guide to volume provisioners: its code is the example's, and its commands do what they say.

use std::path::Path;

use kube::ResourceExt as _;
use tokio::process::Command;

use super::hostpath::path_of;
use super::stage::Stage;
use crate::conformance::example_path;
use crate::guides::{blocks, printed, shell};
use crate::support::needed;
use provisioner_conformance::TempDir;

const GUIDE: &str = include_str!("../../../docs/writing-a-volume-provisioner.md");

#[tokio::test]
async fn the_commands_of_the_guide_make_a_volume_and_delete_it() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped, for only root can give a directory to the group of the guide's class");
    }
    let (stage, root) = (Stage::new().await, TempDir::new());
    let blocks = blocks(GUIDE);
    // The demo and the image are steps of their own in `.ci/run`.
    assert_eq!(blocks.keys().copied().collect::<Vec<_>>(), ["delete", "demo", "image", "install", "use"]);
    let kubeconfig = root.path().join("kubeconfig");
    std::fs::copy(needed("KUBECONFIG"), &kubeconfig).unwrap();
    let run = async |commands: &str| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        printed(shell(commands, folder, kubeconfig.to_str().unwrap()), commands).await
    };
    run(&format!("kubectl config set-context --current --namespace {}", stage.namespace)).await;
    let follow = |block: &str| run(blocks[block]);

    let output = follow("install").await;
    assert!(output.contains("pod/hostpath-provisioner"), "{output}");
    // The pod has no kubelet, so its program runs here, under the name that the class of the guide has.
    let volumes = TempDir::new();
    let _provisioner = Command::new(example_path("hostpath-provisioner"))
        .envs([("KUBECONFIG", kubeconfig.as_os_str()), ("PV_DIR", volumes.path().as_os_str())])
        .env("NODE_NAME", "node-1")
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let output = follow("use").await;
    let volume = stage.wait_volume("hostpath").await;
    assert!(output.contains(&volume.name_any()) && output.contains("example-hostpath"), "{output}");
    assert!(path_of(&volume).starts_with(volumes.path()) && path_of(&volume).exists());
    follow("delete").await;
    stage.wait_volume_gone(&volume.name_any()).await;
    assert!(!path_of(&volume).exists());
}

#[test]
fn the_code_of_the_guide_is_that_of_the_example() {
    let documentation = include_str!("../../../crates/volume-provisioner/src/volume.rs");
    let example = [
        include_str!("../../../examples/hostpath-provisioner/main.rs"),
        include_str!("../../../examples/hostpath-provisioner/provisioner.rs"),
        &documentation.replace("    /// ", "").replace("    ///\n", "\n"),
    ]
    .concat();
    let blocks: Vec<_> = GUIDE.split("```rust\n").skip(1).filter_map(|rest| rest.split_once("```\n")).collect();
    assert!(blocks.len() >= 4, "{} blocks of code", blocks.len());
    for (block, _) in blocks {
        assert!(
            example.contains(block),
            "neither in examples/hostpath-provisioner nor in the documentation of volumes:\n{block}"
        );
    }
}
