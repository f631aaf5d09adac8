//! The two verbs, for directories.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use volume_provisioner::{ProvisionedVolume, VolumeError, VolumeProvisioner, VolumeRequest, VolumeToDelete};

use super::directories::{Directories, Problem, Removed};

/// On a PersistentVolume: the node that has its directory.
const IDENTITY: &str = "hostPathProvisionerIdentity";
/// On a PersistentVolume: the kubelet gives this group to the pods that use it.
const GROUP: &str = "pv.beta.kubernetes.io/gid";
/// The label of the node that a pod can run on.
const HOSTNAME: &str = "kubernetes.io/hostname";

#[derive(Debug, clap::Args)]
pub struct Flags {
    /// The directory in which each volume is a directory. It must exist, and have the same path on the node.
    #[arg(long, value_name = "DIR", env = "PV_DIR", default_value = "/tmp/hostpath-provisioner")]
    pv_dir: PathBuf,
    /// The name of the node, by which its volumes differ from those of other nodes.
    #[arg(long, value_name = "NAME", env = "NODE_NAME", default_value = "")]
    node_name: String,
    /// Serve only the claims for which the scheduler has selected this node, as one of several provisioners, one on each
    /// node. Their StorageClass needs volumeBindingMode WaitForFirstConsumer.
    #[arg(long, env = "PER_NODE")]
    per_node: bool,
}

/// The parameters of a StorageClass.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Parameters {
    /// The permissions of the directory, as an octal number.
    #[serde(default = "default_mode")]
    #[schemars(extend("default" = "`2770`"))]
    mode: String,
    /// The group of the directory. The kubelet gives it to the pods that use the volume.
    #[serde(default = "default_gid")]
    #[schemars(extend("default" = "`2000`"))]
    gid: u32,
}

fn default_mode() -> String {
    "2770".to_owned()
}

fn default_gid() -> u32 {
    2000
}

/// Volumes that are directories of this node.
pub struct HostPath {
    directories: Directories,
    node: String,
    per_node: bool,
}

impl HostPath {
    pub async fn new(flags: Flags) -> Result<Self, String> {
        if flags.node_name.is_empty() {
            return Err("NODE_NAME is not set: without the name of its node this provisioner cannot tell its volumes from those of other nodes; set it, in a pod from spec.nodeName".to_owned());
        }
        let directories = Directories::open(&flags.pv_dir)
            .map_err(|problem| format!("--pv-dir {:?} cannot be used: {problem}", flags.pv_dir))?;
        Ok(Self { directories, node: flags.node_name, per_node: flags.per_node })
    }

    /// The mode of the directory, if it can be on this node.
    fn check(&self, request: &VolumeRequest<Parameters>) -> Result<u32, VolumeError> {
        if let Some(node) = request.selected_node.as_ref().filter(|node| node.name != self.node) {
            let why = format!("node {:?} was selected, and only {:?} has volumes", node.name, self.node);
            return Err(VolumeError::wrong_node(why));
        }
        let mode = &request.parameters.mode;
        u32::from_str_radix(mode, 8).ok().filter(|bits| *bits <= 0o7777).ok_or_else(|| {
            VolumeError::terminal(format!(
                "parameter mode: {mode:?} is not an octal number up to 7777; write one such as 2770"
            ))
        })
    }
}

impl VolumeProvisioner for HostPath {
    type Parameters = Parameters;

    fn identity(&self) -> &str {
        &self.node
    }

    fn should_provision(&self, request: &VolumeRequest<Parameters>) -> Result<bool, VolumeError> {
        match &request.selected_node {
            _ if !self.per_node => Ok(true),
            Some(node) => Ok(node.name == self.node),
            None => Err(VolumeError::terminal(
                "each node has volumes of its own, so the StorageClass needs volumeBindingMode WaitForFirstConsumer",
            )),
        }
    }

    async fn provision(&self, request: &VolumeRequest<Parameters>) -> Result<ProvisionedVolume, VolumeError> {
        let (directories, name, gid) = (self.directories.clone(), request.pv_name.clone(), request.parameters.gid);
        let bits = match self.check(request) {
            Ok(bits) => bits,
            Err(refusal) => {
                // An earlier call may have been for another node, or another mode.
                blocking(move || directories.remove_empty(&name)).await?;
                return Err(refusal);
            }
        };
        let path = blocking(move || directories.create(&name, bits, gid)).await?;
        let volume = ProvisionedVolume::host_path(path)
            .with_annotation(IDENTITY, &self.node)
            .with_annotation(GROUP, gid.to_string())
            .with_note("a directory has no size limit, so the capacity is not enforced");
        // Otherwise a pod on another node would find an empty directory there, or none.
        let node = request.selected_node.as_ref().and_then(|node| node.labels.get(HOSTNAME)).unwrap_or(&self.node);
        Ok(volume.on_nodes_with(HOSTNAME, node))
    }

    fn check_owner(&self, volume: &VolumeToDelete) -> Result<(), VolumeError> {
        match volume.annotation(IDENTITY) {
            Some(node) if node == self.node => Ok(()),
            Some(node) => Err(VolumeError::ignored(format!("the directory is on node {node:?}"))),
            None => Err(VolumeError::terminal(format!(
                "the annotation {IDENTITY} is missing, so it is not known which node has the directory; an admin must set it to the name of that node"
            ))),
        }
    }

    async fn delete(&self, volume: &VolumeToDelete) -> Result<(), VolumeError> {
        self.check_owner(volume)?;
        let (directories, name) = (self.directories.clone(), volume.pv_name().to_owned());
        let recorded = volume.spec().host_path.as_ref().map(|source| PathBuf::from(&source.path));
        let expected = directories.path_of(&name);
        if recorded.as_deref() != Some(expected.as_path()) {
            return Err(VolumeError::terminal(format!(
                "spec.hostPath.path is {recorded:?}, and this provisioner deletes only {expected:?}; an admin must delete the directory, and then remove the finalizer",
            )));
        }
        match blocking(move || directories.remove(&name)).await? {
            Removed::All => Ok(()),
            Removed::Partly(entries) => Err(VolumeError::in_progress(format!(
                "{entries} files were deleted by the first call, and there are more"
            ))),
        }
    }
}

/// Files are not waited for on the threads that serve everything else.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, VolumeError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|problem| match problem {
            Problem::Refused(why) => VolumeError::terminal(why),
            Problem::Failed(what, error) => VolumeError::retryable(format!("cannot {what}: {error}")),
        }),
        Err(_) => Err(VolumeError::retryable("the work on files panicked; see the provisioner's log")),
    }
}
