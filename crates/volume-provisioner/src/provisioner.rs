//! The trait that a provisioner of volumes implements: [`VolumeProvisioner`].

use std::future::Future;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::error::VolumeError;
use super::request::VolumeRequest;
use super::volume::{ProvisionedVolume, VolumeToDelete};

/// Creates and deletes volumes. The [controller](super) does everything about Kubernetes: claims, PersistentVolumes,
/// events, retries.
///
/// # Guarantees to an implementation
/// - The verbs for one volume never run at the same time in one process; those for different volumes do. Of several
///   processes with the same [identity](Self::identity) only the one that holds the lease works.
/// - Before [`provision`](Self::provision) is called, the claim is held: it cannot vanish, and no other instance
///   provisions for it. The call is repeated with the same name until it succeeds, fails finally, or nobody wants the
///   volume any longer. In the last case the volume is provisioned to its end, and then deleted.
/// - [`delete`](Self::delete) is called for a PersistentVolume that its claim released, whose reclaim policy is Delete, that
///   is no copy from a backup, and that no new claim of that name names. From then on, no claim can be bound to it. It is
///   also called for a volume that was begun and is not wanted any more, with the PersistentVolume that it would have got.
/// - A verb that takes longer than two minutes is dropped, and called again later. One that panics is called again, too.
///
/// # Duties of an implementation
/// - **Both verbs are idempotent, and can be dropped at any await.** By the name of the volume they find what an
///   earlier call began. A call may follow one that succeeded, because the process can end before the answer is stored.
/// - **All that `delete` needs is in the [`ProvisionedVolume`]**: in its source, and in its annotations. The class may
///   be deleted or different by then.
/// - **No verb blocks its thread**, which everything else shares: the lease, the probes, the verbs for other volumes.
///   Work with files or the processor belongs into [`tokio::task::spawn_blocking`].
/// - **Work on other threads may continue** after a call was dropped, and during the next call, which must tolerate it.
/// - **An error leaves nothing behind**, unless it is [retryable](VolumeError::retryable) or [in the
///   background](VolumeError::in_progress): after any other error of `provision` the claim is released.
/// - **No secret** is in an error, in an annotation, or in the log.
pub trait VolumeProvisioner: Send + Sync + 'static {
    /// The parameters of its StorageClasses: a struct with a field for each, or `()`. Others are refused by name.
    type Parameters: DeserializeOwned + JsonSchema + Send + Sync + 'static;

    /// The access modes that its volumes can have. Claims that ask for another one are refused.
    const ACCESS_MODES: &'static [&'static str] = &["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"];

    /// Whose volumes this instance keeps. Instances with the same identity share all volumes, so one of them works and the
    /// others stand by. Instances with different identities work side by side, each for its own volumes. Must never change.
    ///
    /// With an identity, the lease is renewed every 20 s unless its times are set, because there may be an instance on each
    /// node: an instance that stands by for a killed one waits up to a minute. Replicas that must not wait that long set
    /// `--lease-duration`, or have no identity.
    fn identity(&self) -> &str {
        ""
    }

    /// Whether it can provision volumes of mode Block.
    fn supports_block(&self) -> bool {
        false
    }

    /// Whether this instance is the one that provisions this volume. Pure, and asked before anything else: another
    /// instance has the claim if this one leaves it.
    ///
    /// # Errors
    /// No instance can provision it, whatever the kind of the error. Its text is shown on the claim, once, although each
    /// instance finds it.
    fn should_provision(&self, _request: &VolumeRequest<Self::Parameters>) -> Result<bool, VolumeError> {
        Ok(true)
    }

    /// Creates the volume, or finds it if an earlier call has created it.
    ///
    /// # Errors
    /// See [`VolumeError`]. The text is shown on the claim.
    fn provision(
        &self,
        request: &VolumeRequest<Self::Parameters>,
    ) -> impl Future<Output = Result<ProvisionedVolume, VolumeError>> + Send;

    /// Whether this instance is the one that deletes this volume. Changes nothing, and is asked before
    /// [`delete`](Self::delete), about volumes without an identity and about its own. An annotation above 4 KiB may be missing
    /// here.
    ///
    /// # Errors
    /// [`VolumeError::ignored`] if the volume is another instance's; any other error if that is unknown. Its text is
    /// shown on the PersistentVolume when it would be deleted. Until then it stays as it is.
    fn check_owner(&self, _volume: &VolumeToDelete) -> Result<(), VolumeError> {
        Ok(())
    }

    /// Deletes the volume. A volume that does not exist is deleted.
    ///
    /// # Errors
    /// See [`VolumeError`]. The text is shown on the PersistentVolume.
    fn delete(&self, volume: &VolumeToDelete) -> impl Future<Output = Result<(), VolumeError>> + Send;
}
