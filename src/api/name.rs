//! The names of objects as other objects give them.

/// The pattern of [`object_name`] for the schema of a CRD.
pub(crate) const OBJECT_NAME: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// The name of a Kubernetes object as some other object gives it: a DNS subdomain ("Object names and IDs", Kubernetes
/// documentation). `None` for a text that no object can have as its name. Every such text passes here before it becomes a part
/// of a URL of the API server, because users of a namespace write it: `a?watch=true` would be another request.
pub(crate) fn object_name(text: &str) -> Option<&str> {
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
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

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

    /// The files below `folder`.
    fn sources(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
    }

    /// A field of an object that names another object is read in one of these places. Whoever adds such a field finds here
    /// where the others are checked, and adds the place.
    #[test]
    fn the_callers_are_these() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let calls = |path: &PathBuf| {
            let text = fs::read_to_string(path).unwrap();
            let code = text.lines().take_while(|line| !line.starts_with("mod tests"));
            code.filter(|line| !line.trim_start().starts_with("//") && !line.contains("fn object_name"))
                .any(|line| line.contains("object_name("))
        };
        let relative = |path: PathBuf| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        let found: BTreeSet<String> = sources(&root).into_iter().filter(calls).map(relative).collect();
        let expected = [
            // The tags of buckets and users name claims.
            "commands/orphans/judge.rs",
            // Arguments of commands.
            "commands/status/mod.rs",
            // spec.additionalState and spec.claimRef of an ObjectBucket.
            "controller/decide/codec.rs",
            // spec.objectBucketName of a claim.
            "controller/decide/lookup.rs",
            // spec.claimRef of an ObjectBucket that cannot be read.
            "controller/decide/record.rs",
            // The message that says so.
            "controller/error.rs",
            // A claim in Released ObjectBuckets and its class.
            "controller/flow/recall.rs",
            // spec.storageClassName of a claim.
            "controller/objects/classes.rs",
            // secretName and secretNamespace of a StorageClass.
            "provisioner/common.rs",
            // Flags.
            "runtime/values.rs",
        ];
        assert_eq!(found, expected.map(str::to_owned).into());
    }
}
