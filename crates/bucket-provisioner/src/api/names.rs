//! Which files check the names that objects and flags give.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The files below `folder`.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

/// A field of an object that names another object is read in one of these places. Whoever adds such a field finds here
/// where the others are checked, and adds the place.
#[test]
fn the_callers_are_these() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let calls = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        let code = text.lines().take_while(|line| !line.starts_with("mod tests"));
        code.filter(|line| !line.trim_start().starts_with("//") && !line.contains("fn object_name"))
            .any(|line| line.contains("object_name("))
    };
    let relative = |path: PathBuf| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
    let found: BTreeSet<String> =
        sources(&root).into_iter().filter(|path| !path.ends_with("api/names.rs")).filter(calls).map(relative).collect();
    let expected = [
        // The tags of buckets and users name claims.
        "bucket-provisioner/src/cli/orphans/judge.rs",
        // Arguments of commands.
        "bucket-provisioner/src/cli/session.rs",
        // spec.additionalState and spec.claimRef of an ObjectBucket.
        "bucket-provisioner/src/decide/codec.rs",
        // spec.objectBucketName of a claim.
        "bucket-provisioner/src/decide/lookup.rs",
        // Keys of labels and annotations in spec.additionalConfig of a claim.
        "bucket-provisioner/src/decide/output_metadata.rs",
        // spec.claimRef of an ObjectBucket that cannot be read.
        "bucket-provisioner/src/decide/record.rs",
        // serviceAccountName in spec.additionalConfig of a claim.
        "bucket-provisioner/src/decide/service_account.rs",
        // The message that names it.
        "bucket-provisioner/src/error.rs",
        // A claim in Released ObjectBuckets and its class.
        "bucket-provisioner/src/reconcile/recall.rs",
        // spec.storageClassName of a claim.
        "bucket-provisioner/src/objects/classes.rs",
        // secretName and secretNamespace of a StorageClass.
        "bucket-provisioner/src/store/common.rs",
        // The prefix of a label in allowedNamespaceSelector.
        "bucket-provisioner/src/store/namespaces.rs",
        // Flags.
        "operator-runtime/src/values.rs",
    ];
    assert_eq!(found, expected.map(str::to_owned).into());
}
