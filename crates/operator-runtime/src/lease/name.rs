//! The name of a Lease, and the identity of its holder.

use sha2::{Digest as _, Sha256};

/// Longest name of a Kubernetes object, in characters.
const LONGEST: usize = 253;

/// The name of the Lease for operators that serve `provisioner`, in one namespace or in all. Always a valid name of a
/// Kubernetes object. The chart derives the same names.
///
/// `example.com/disk` becomes `example.com.disk`, and `example.com.disk--shop` for the namespace `shop`. All other names end
/// with a hash, so that operators for different provisioners or namespaces have different leases.
pub fn name(provisioner: &str, namespace: Option<&str>) -> String {
    let one = namespace.map(|namespace| format!("--{namespace}")).unwrap_or_default();
    // Unambiguous: the slash becomes the last dot, and only the namespace follows two hyphens.
    if let Some((domain, part)) = provisioner.split_once('/')
        && domain.split('.').chain([part]).chain(namespace).all(is_label)
        && !provisioner.contains("--")
        && provisioner.len() + one.len() <= LONGEST
    {
        return format!("{domain}.{part}{one}");
    }
    let all = [provisioner, namespace.unwrap_or_default()].join("\n");
    let lower = all.to_ascii_lowercase();
    let labels = lower.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).map(|label| label.trim_matches('-'));
    let readable = labels.filter(|label| !label.is_empty()).collect::<Vec<_>>().join(".");
    let readable: String = readable.chars().take(LONGEST - 9).collect();
    let readable = readable.trim_end_matches(['-', '.']);
    let [a, b, c, d, ..] = <[u8; 32]>::from(Sha256::digest(all));
    format!("{}-{:08x}", if readable.is_empty() { "lease" } else { readable }, u32::from_be_bytes([a, b, c, d]))
}

/// The name of the Lease that all installations share of operators whose own Lease has this name.
pub fn cluster_name(name: &str) -> String {
    format!("cluster.{name}").chars().take(LONGEST).collect()
}

/// A unique identity: the name of the host (in a pod, the name of the pod) and a random number.
pub fn identity() -> String {
    let host = hostname::get().map(|name| name.to_string_lossy().into_owned()).unwrap_or_else(|_| "unknown".into());
    format!("{host}_{:016x}", rand::random::<u64>())
}

/// RFC 1123: lower-case letters, digits, and `-` in between. Does not check the length.
fn is_label(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && text.chars().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_name_of_an_ordinary_provisioner_is_readable() {
        assert_eq!(name("aws-s3.io/bucket", None), "aws-s3.io.bucket");
        assert_eq!(name("aws-s3.io/bucket", Some("team-a")), "aws-s3.io.bucket--team-a");
    }

    /// Operators of all versions, and the chart, must have the same lease: it never changes.
    #[test]
    fn the_hash_is_that_of_the_chart() {
        // printf 'ourstore\n' | sha256sum
        assert_eq!(name("ourstore", None), "ourstore-c8b31c01");
        // printf 'example.com/Our_Buckets\nteam-a' | sha256sum
        assert_eq!(name("example.com/Our_Buckets", Some("team-a")), "example.com.our.buckets.team-a-defa7de9");
    }

    #[test]
    fn different_provisioners_and_namespaces_have_different_leases() {
        let long = format!("a.example/{}", "x".repeat(243));
        let served = [
            ("a.b/c", None),
            ("a.b/C", None),
            ("a.b.c", None),
            ("a/b.c", None),
            ("a/b/c", None),
            ("a.b/c-", None),
            ("a.b_c", None),
            ("a.b/c", Some("d")),
            ("a.b.c/d", None),
            ("a.b/c.d", None),
            ("a.b/c/d", None),
            (".", None),
            ("/", None),
            ("a.b/c--d", None),
            ("a.b--c/d", Some("e")),
            (&long, None),
            (&long, Some("a")),
            (&long, Some("b")),
        ];
        let names: HashSet<_> = served.iter().map(|(provisioner, namespace)| name(provisioner, *namespace)).collect();
        assert_eq!(names.len(), served.len(), "{names:#?}");
    }

    #[test]
    fn each_process_has_its_own_identity() {
        assert_ne!(identity(), identity());
    }

    proptest! {
        #[test]
        fn every_name_is_a_dns_subdomain(
            provisioner in "[A-Za-z0-9_./-]{1,253}",
            namespace in proptest::option::of("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"),
        ) {
            let name = name(&provisioner, namespace.as_deref());
            prop_assert!(name.len() <= LONGEST && name.split('.').all(is_label), "{}", name);
        }
    }
}
