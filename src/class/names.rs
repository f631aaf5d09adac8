//! Names that AWS reserves, beyond the [rules](bucket_provisioner::store::NameRules::S3) that stores like S3 share.

use bucket_provisioner::store::Mode;

/// Longest name of an IAM user (IAM API reference, CreateUser).
pub(crate) const USER_MAX: usize = 64;

const RESERVED_PREFIXES: [&str; 3] = ["xn--", "sthree-", "amzn-s3-demo-"];
const RESERVED_SUFFIXES: [&str; 5] = ["-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"];

/// Suffixes of the names of other resources, which need other calls and policies.
const OTHER_RESOURCES: [(&str, &str); 5] = [
    ("--x-s3", "a directory bucket"),
    ("--table-s3", "a table bucket"),
    ("-s3alias", "an access point"),
    ("--ol-s3", "an Object Lambda access point"),
    (".mrap", "a multi-region access point"),
];

/// Whether a bucket can have this name: a new one, or an existing one, which can be of a kind that the operator cannot
/// create (account-regional).
///
/// # Errors
/// The rule of "General purpose bucket naming rules" (Amazon S3 user guide) that it breaks.
pub(crate) fn check(name: &str, mode: Mode) -> Result<(), String> {
    match mode {
        Mode::Created => unreserved(name),
        Mode::Granted => is_bucket(name),
    }
}

fn unreserved(name: &str) -> Result<(), String> {
    if let Some(prefix) = RESERVED_PREFIXES.into_iter().find(|prefix| name.starts_with(prefix)) {
        return Err(format!("AWS reserves names that start with {prefix:?}"));
    }
    if let Some(suffix) = RESERVED_SUFFIXES.into_iter().find(|suffix| name.ends_with(suffix)) {
        return Err(format!("AWS reserves names that end with {suffix:?}"));
    }
    // CreateBucket creates them only with a special header.
    if is_account_regional(name) {
        return Err(
            "AWS reserves names that end with an account, a region and \"-an\" for account-regional buckets".to_owned()
        );
    }
    Ok(())
}

fn is_bucket(name: &str) -> Result<(), String> {
    match OTHER_RESOURCES.into_iter().find(|(suffix, _)| name.ends_with(suffix)) {
        Some((_, resource)) => Err(format!(
            "it is the name of {resource}, which this operator does not support; use a general purpose bucket"
        )),
        None => Ok(()),
    }
}

/// `…-<12 digits>-<region>-an`, where a region is letters and dashes, then a number.
fn is_account_regional(name: &str) -> bool {
    let Some(rest) = name.strip_suffix("-an") else { return false };
    let parts: Vec<&str> = rest.split('-').collect();
    let Some(account) = parts.iter().rposition(|part| part.len() == 12 && part.bytes().all(|b| b.is_ascii_digit()))
    else {
        return false;
    };
    match &parts[account + 1..] {
        [words @ .., number] => words.len() >= 2 && !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()),
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_error_names_what_aws_reserves() {
        for (name, reserved) in [
            ("xn--photos", "xn--"),
            ("sthree-photos", "sthree-"),
            ("amzn-s3-demo-photos", "amzn-s3-demo-"),
            ("photos-s3alias", "-s3alias"),
            ("photos--ol-s3", "--ol-s3"),
            ("photos.mrap", ".mrap"),
            ("photos--use1-az4--x-s3", "--x-s3"),
            ("photos--table-s3", "--table-s3"),
            ("photos-123456789012-us-west-2-an", "-an"),
        ] {
            let error = check(name, Mode::Created).unwrap_err();
            assert!(error.contains(&format!("{reserved:?}")), "{error}");
        }
    }

    #[test]
    fn ordinary_names_are_fine() {
        for name in ["abc", "my.photos-2024", "1.2.3", "photos-an", "caravan", "a-123456789012-an"] {
            assert_eq!(check(name, Mode::Created), Ok(()), "{name}");
        }
    }

    #[test]
    fn the_error_names_the_kind_of_the_other_resource() {
        let refused = |name| check(name, Mode::Granted).unwrap_err();
        assert!(refused("logs--usw2-az1--x-s3").contains("a directory bucket"));
        assert!(refused("logs-abcdefgh-s3alias").contains("an access point"));
        assert!(refused("abcdefgh.mrap").contains("a multi-region access point"));
    }

    #[test]
    fn an_account_regional_bucket_may_exist_but_is_not_created() {
        assert_eq!(check("photos-123456789012-us-west-2-an", Mode::Granted), Ok(()));
    }
}
