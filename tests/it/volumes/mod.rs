//! Volumes: the controller of [`bucket_provisioner::volume`] with the real volume binder of Kubernetes.

mod crash;
mod guide;
mod hostpath;
mod life;
mod refusals;
mod shelf;
mod stage;
