//! The name of a Lease, and the identity of its holder.

/// Longest name of a Kubernetes object, in characters.
const LONGEST: usize = 253;

/// The name of the Lease for operators that serve `provisioner`, in one namespace or in all. Always a valid name of a
/// Kubernetes object.
///
/// `example.com/disk` becomes `example.com.disk`. All other names end with a hash, so that operators for different
/// provisioners or namespaces have different leases.
pub fn name(provisioner: &str, namespace: Option<&str>) -> String {
    // Unambiguous: the slash becomes the last dot.
    if let (Some((domain, part)), None) = (provisioner.split_once('/'), namespace)
        && domain.split('.').all(is_label)
        && is_label(part)
        && provisioner.len() <= LONGEST
    {
        return format!("{domain}.{part}");
    }
    let all = [provisioner, namespace.unwrap_or_default()].join("\n");
    let labels = all.split(['/', '.', '\n']).map(label).filter(|label| !label.is_empty());
    let readable: String = labels.collect::<Vec<_>>().join(".").chars().take(LONGEST - 9).collect();
    let readable = readable.trim_end_matches(['-', '.']);
    format!("{}-{:08x}", if readable.is_empty() { "lease" } else { readable }, fnv1a(all.as_bytes()))
}

/// A unique identity: the name of the host (in a pod, the name of the pod) and a random number.
pub fn identity() -> String {
    let host = hostname::get().map(|name| name.to_string_lossy().into_owned()).unwrap_or_else(|_| "unknown".into());
    format!("{host}_{:016x}", rand::random::<u64>())
}

/// RFC 1123: lower-case letters, digits, and `-` in between. Does not check the length.
fn is_label(text: &str) -> bool {
    !text.is_empty() && label(text) == text
}

fn label(text: &str) -> String {
    let text = text.to_ascii_lowercase();
    text.replace(|c: char| !c.is_ascii_alphanumeric(), "-").trim_matches('-').to_owned()
}

/// FNV-1a, 32 bits. It must never change, because then operators of two versions would have different leases.
fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_name_of_an_ordinary_provisioner_is_readable() {
        assert_eq!(name("aws-s3.io/bucket", None), "aws-s3.io.bucket");
        assert_eq!(name("aws-s3.io/bucket", Some("team-a")), "aws-s3.io.bucket.team-a-175c0b47");
    }

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(fnv1a(b""), 0x811c_9dc5);
        assert_eq!(fnv1a(b"foobar"), 0xbf9c_f968);
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
