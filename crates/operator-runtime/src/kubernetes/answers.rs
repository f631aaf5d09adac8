//! What the API server answered to a call that failed.

/// HTTP status of the API server's answer, if it answered.
pub fn status_code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// Whether a patch was refused because another object has the name now: the patch names the previous one's uid. (A write of
/// a status is not refused for that.)
pub fn is_replaced(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 422 && causes.any(|cause| cause.field == "metadata.uid")
}

/// The API server's own sentence, if it answered. Transport errors contain addresses and ports that differ between
/// attempts, and a message must be the same for the same cause.
pub fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{} ({})", status.message, status.code),
        kube::Error::SerdeError(error) => format!("the answer cannot be read: {error}"),
        _ => "the API server does not answer".to_owned(),
    }
}
