//! What a policy demands of the users that it allows to be created, where the emulator does not check it:
//! a path, and a permissions boundary (`iam:PermissionsBoundary`, "IAM and AWS STS condition context keys").

use provisioner_conformance::proxy::Answer;

use super::AwsCall;
use super::strict::refuse;
use crate::support::account::Account;

/// What AWS demands beyond what the emulator does.
#[derive(Debug, Clone)]
pub(crate) struct Demands {
    /// The operations that are allowed only for users with the boundary.
    pub(crate) operations: Vec<String>,
    /// ARN of the boundary.
    pub(crate) boundary: String,
    /// Path that these users have to be below.
    pub(crate) path: String,
}

impl Demands {
    /// How AWS refuses the call; `None` if it does not.
    pub(super) async fn refuse(&self, call: &AwsCall) -> Option<Answer> {
        let name = call.user.as_ref().filter(|_| self.operations.contains(&call.operation))?;
        let (boundary, path) = match call.operation.as_str() {
            // It is about the user as it will be.
            "CreateUser" => (call.boundary.clone(), call.path.clone()),
            _ => {
                let found = Account::owner().iam.get_user().user_name(name).send().await.ok()?.user?;
                let boundary = found.permissions_boundary.and_then(|boundary| boundary.permissions_boundary_arn);
                (boundary, Some(found.path))
            }
        };
        let fits = boundary.as_ref() == Some(&self.boundary) && path.is_some_and(|path| path.starts_with(&self.path));
        (!fits).then(|| refuse(call, 403, "AccessDenied"))
    }
}
