//! The names of objects as other objects give them.

/// The pattern of [`object_name`] for the schema of a CRD.
pub const OBJECT_NAME: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// The name of a Kubernetes object as some other object gives it: a DNS subdomain ("Object names and IDs", Kubernetes
/// documentation). `None` for a text that no object can have as its name. Every such text passes here before it becomes a part
/// of a URL of the API server, because users of a namespace write it: `a?watch=true` would be another request.
pub fn object_name(text: &str) -> Option<&str> {
    let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_label = |label: &str| {
        label.starts_with(is_alphanumeric)
            && label.ends_with(is_alphanumeric)
            && label.chars().all(|c| is_alphanumeric(c) || c == '-')
    };
    (text.len() <= 253 && text.split('.').all(is_label)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_dns_subdomain() {
        for name in ["a", "s3-buckets", "s3.buckets.example.com", "0", "x--y", &"a".repeat(253)] {
            assert_eq!(object_name(name), Some(name));
        }
    }

    #[test]
    fn what_would_be_another_request_is_no_name() {
        let long = "a".repeat(254);
        for text in [
            "",
            "?",
            "?watch=true",
            "s3-buckets?x=1",
            "s3-buckets/",
            "s3-buckets#a",
            "s3%2Dbuckets",
            "%2e%2e",
            ".",
            "..",
            "a/../b",
            "../../../../api/v1/namespaces/default/secrets/s3-owner",
            "s3-buckets ",
            " s3-buckets",
            "a b",
            "a\n",
            "a\0",
            "é",
            "🎉",
            "S3-buckets",
            "a_b",
            "-a",
            "a-",
            "a.-b",
            "a..b",
            ".a",
            "a.",
            "a:b",
            "a&b",
            "a\\b",
            &long,
        ] {
            assert_eq!(object_name(text), None, "{text:?}");
        }
    }
}
