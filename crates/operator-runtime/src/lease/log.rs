//! The log lines about the lease. Each problem is logged once, until it changes.

use std::time::Duration;

pub(super) struct LeaseLog {
    /// `namespace/name`.
    pub(super) lease: String,
    /// It is that of all installations, whose holders are namespaces.
    of_cluster: bool,
    holder: Option<String>,
    pub(super) problem: Option<String>,
}

impl LeaseLog {
    pub(super) fn new(lease: String, of_cluster: bool) -> Self {
        Self { lease, of_cluster, holder: None, problem: None }
    }

    pub(super) fn held_by(&mut self, holder: &str) {
        if self.holder.as_deref() == Some(holder) {
            return;
        }
        self.holder = Some(holder.to_owned());
        let lease = &self.lease;
        if self.of_cluster {
            tracing::error!(
                lease,
                "an operator in namespace {holder} serves the same claims, so this one does not: uninstall one of them, or give \
                 one another --provisioner-name and StorageClasses of its own"
            );
        } else {
            tracing::info!(lease, holder, "on standby: another process leads");
        }
    }

    pub(super) fn failed(&mut self, problem: String) {
        if self.problem.as_deref() != Some(&problem) {
            tracing::warn!(lease = self.lease, problem, "cannot take or renew the lease; retrying");
            self.problem = Some(problem);
        }
    }

    pub(super) fn succeeded(&mut self) {
        if self.problem.take().is_some() {
            tracing::info!(lease = self.lease, "the lease can be taken and renewed again");
        }
    }
}

pub(super) fn is_namespace(status: &kube::core::Status) -> bool {
    status.details.as_ref().is_some_and(|details| details.kind == "namespaces")
}

pub(super) fn no_answer(limit: Duration) -> String {
    format!("the API server did not answer within {} s", limit.as_secs_f64())
}

/// What is wrong, and the remedy. The same text for the same cause.
pub(super) fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            format!("{}: grant this account what the command `rbac` prints for this Lease", status.message)
        }
        kube::Error::Api(status) if is_namespace(status) => {
            format!("{}: create it, or choose another namespace for the lease", status.message)
        }
        kube::Error::Api(status) => format!("{} ({})", status.message, status.code),
        // Only the innermost cause is informative.
        error => {
            let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
            let cause = causes.last().map(ToString::to_string).unwrap_or_default();
            format!("the API server cannot be reached: {cause}")
        }
    }
}
