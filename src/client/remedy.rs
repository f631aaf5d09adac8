//! What a message about a refusal adds: the remedy, and the store's own message.

use crate::client::call::{Call, Identity, Operation};

/// What to do about credentials that AWS does not accept. `code`: of its answer.
pub(crate) fn refused(identity: &Identity, operation: Operation, session: bool, code: &str) -> String {
    if matches!(code, "RequestTimeTooSkewed" | "RequestExpired") {
        return "synchronise the clock of the operator's node".to_owned();
    }
    // "Request temporary security credentials", IAM user guide.
    if session && operation.actions().starts_with("iam:") {
        return "IAM accepts a session token only from a role, or from a session with MFA; use keys without a session token, or the keys of an assumed role, and check that they have not expired".to_owned();
    }
    let remedy = match identity {
        Identity::Ambient => "check the AWS identity of the operator's pod",
        Identity::Secret(_) => "put a valid, active key there",
        Identity::Role => "the operator assumes the role again; if it stays, check whether the role was deleted",
        Identity::App => "check whether the key was deleted or deactivated",
    };
    // IAM and STS refuse an expired signature as a wrong one ("Troubleshoot Signature Version 4 signing for AWS API
    // requests", IAM user guide).
    let clock = if is_unknown_key(code) { "" } else { ", and check the node's clock" };
    format!("{remedy}{clock}")
}

fn is_unknown_key(code: &str) -> bool {
    matches!(code, "InvalidClientTokenId" | "InvalidAccessKeyId" | "UnrecognizedClientException")
}

/// What else it means that a key is not known: in a region that its account has not enabled, AWS knows no key of the account
/// ("Enable or disable AWS Regions in your account", AWS Account Management).
pub(crate) fn unknown_here(code: &str) -> &'static str {
    match is_unknown_key(code) {
        true => {
            "; AWS also refuses a valid key where its account has not enabled the region of the class, and in another partition"
        }
        false => "",
    }
}

/// What to do about a quota ("IAM and AWS STS quotas", IAM user guide: that of users cannot be raised).
pub(crate) fn more_room(operation: Operation) -> &'static str {
    match operation {
        Operation::CreateUser => {
            "an account can have 5,000 users, which AWS does not raise: delete users that nobody needs, or use a class for another account"
        }
        // "View and manage Amazon EKS service quotas", EKS user guide.
        Operation::CreatePodIdentityAssociation => {
            "an EKS cluster can have 5,000 Pod Identity associations, which AWS does not raise: use fewer ServiceAccounts, or a class with oidcProvider"
        }
        _ => "raise the quota, or delete what is not needed",
    }
}

/// What to do about a refusal with this code.
pub(crate) fn rejected(operation: Operation, code: &str) -> &'static str {
    match (operation, code) {
        (Operation::CreateUser | Operation::CreateRole, "NoSuchEntity") => {
            ": the permissions boundary does not exist in this account: create it, or correct permissionsBoundary in the StorageClass"
        }
        (
            Operation::ListPodIdentityAssociations | Operation::CreatePodIdentityAssociation,
            "ResourceNotFoundException",
        ) => ": there is no such EKS cluster: correct eksCluster in a new StorageClass",
        (
            Operation::CreatePodIdentityAssociation | Operation::UpdatePodIdentityAssociation,
            "InvalidParameterException",
        ) => {
            ": check that the role that podRole of the StorageClass names exists, and that its trust policy allows pods.eks.amazonaws.com sts:AssumeRole"
        }
        (Operation::CreateBucket, "IllegalLocationConstraintException") => {
            ": this endpoint of S3 creates no buckets in the region of the class: correct region or s3Endpoint in the StorageClass"
        }
        _ => abac(operation),
    }
}

/// What to do about a session that has expired. The operator's own identity renews itself.
pub(crate) fn expired(identity: &Identity) -> &'static str {
    match identity {
        Identity::Ambient | Identity::Role | Identity::App => "retrying",
        Identity::Secret(_) => "put new keys there, or keys without a session token",
    }
}

/// Why tagging a bucket may be refused: with ABAC a bucket accepts tags only through TagResource ("Enabling ABAC in
/// general purpose buckets", S3 user guide).
pub(crate) fn abac(operation: Operation) -> &'static str {
    match operation {
        Operation::PutBucketTagging => {
            "; if ABAC is enabled for the bucket, S3 accepts tags only through TagResource: allow s3:TagResource, and let the operator reach the endpoint s3-control of the region"
        }
        _ => "",
    }
}

/// The permissions to allow, and what else a denial may mean.
pub(crate) fn allow(call: &Call) -> String {
    let more = match call.operation {
        Operation::GetBucketTagging | Operation::ListObjectsV2 | Operation::GetObject => {
            " (or the bucket belongs to another AWS account)"
        }
        Operation::CreateUser | Operation::CreateRole => {
            "; if the provisioning policy requires a permissions boundary, set permissionsBoundary in the StorageClass, and in spec.additionalState of the ObjectBucket if the claim was bound before"
        }
        Operation::PutUserPolicy => {
            "; if the provisioning policy requires a permissions boundary, this user has none, and an admin must set it"
        }
        Operation::RemoveUserFromGroup => {
            ", or remove the user from its groups by hand; its access keys are already deleted"
        }
        operation => abac(operation),
    };
    if let Some(settings) = call.operation.settings() {
        return format!("{} for the setting {settings}", call.operation.actions());
    }
    format!("{}{more}", call.operation.actions())
}

/// Where a bucket is, as far as the store returns it, before the region where it was expected.
pub(crate) fn in_region(region: Option<&str>) -> String {
    region.map_or_else(|| "another region than".to_owned(), |region| format!("region {region}, and not in"))
}

/// Why objects cannot be deleted.
pub(crate) fn object_lock(code: &str) -> &'static str {
    match code {
        "AccessDenied" => {
            ": object lock or a bucket policy protects them, or the provisioning credentials lack s3:DeleteObjectVersion"
        }
        _ => "",
    }
}

/// The store's own message, if it is more than "Access Denied".
pub(crate) fn aws_message(message: &Option<String>) -> String {
    match message.as_deref() {
        None | Some("" | "Access Denied") => String::new(),
        Some(message) => format!("; AWS reported: {}", without_accounts(message)),
    }
}

/// Longest part of a store's message that is repeated.
const MESSAGE_MAX: usize = 500;

/// A store's message without ARNs and account ids, which the user of a claim must not see; the log has them.
pub(crate) fn without_accounts(message: &str) -> String {
    const ACCOUNT: usize = 12;
    let ends_arn = |c: char| c.is_whitespace() || "\"'(),;<>[]{}".contains(c);
    let mut shown = String::new();
    let mut rest = message;
    while let Some(first) = rest.chars().next().filter(|_| shown.len() < MESSAGE_MAX) {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let taken = if rest.starts_with("arn:") {
            shown.push_str("(an ARN)");
            rest.find(ends_arn).unwrap_or(rest.len())
        } else if digits == ACCOUNT {
            shown.push_str("(an account)");
            ACCOUNT
        } else {
            let taken = digits.max(first.len_utf8());
            shown.push_str(rest.get(..taken).unwrap_or_default());
            taken
        };
        rest = rest.get(taken..).unwrap_or_default();
    }
    if !rest.is_empty() {
        shown.push_str(" ...");
    }
    shown
}

/// The access points of a bucket, as far as they are known.
pub(crate) fn access_points(names: &[String]) -> String {
    match names {
        [] => "access points".to_owned(),
        names => format!("the access points {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_removed_wherever_they_appear() {
        assert_eq!(
            without_accounts(
                "User: arn:aws:iam::123456789012:user/x, account=123456789012\narn:aws:s3:::b (id 1234567890123)"
            ),
            "User: (an ARN), account=(an account)\n(an ARN) (id 1234567890123)"
        );
        let long = without_accounts(&"ä".repeat(2 * MESSAGE_MAX));
        assert!(long.len() <= MESSAGE_MAX + 8 && long.ends_with(" ..."), "{}", long.len());
    }
}
