//! Volumes: the controller of [`volume_provisioner`] with the real volume binder of Kubernetes.

mod crash;
mod guide;
mod hostpath;
mod life;
mod refusals;
mod shelf;
mod stage;
