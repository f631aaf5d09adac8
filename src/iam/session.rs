//! The session of a role with which the access of a claim is tried.

use aws_sdk_sts::types::Credentials;

use bucket_provisioner::store::AppCredentials;

/// How long it is valid, in seconds: the shortest that STS grants.
pub(super) const LENGTH: i32 = 900;
/// CloudTrail shows it.
pub(super) const NAME: &str = "aws-s3-provisioner-probe";

/// The credentials that STS returns, as an app has them.
pub(super) fn credentials(keys: Credentials) -> AppCredentials {
    let session = AppCredentials::new(keys.access_key_id, keys.secret_access_key.into());
    session.with_session_token(keys.session_token.into())
}
