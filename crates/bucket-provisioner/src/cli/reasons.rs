//! What the command `reasons` prints: a page with all reason codes of claims and ObjectBuckets.

use std::fmt::Write as _;

use crate::store::{Provisioner, Reason, Topic};

const HEAD: &str = "\
<!-- Printed by the operator's command `reasons`. Do not edit. -->
# Reason codes

The cause of each reason of an ObjectBucketClaim or an ObjectBucket, how to check it, and the fix. `kubectl describe obc
NAME` shows phase, reason, and a message with the remedy. Where to begin: [troubleshooting](troubleshooting.md).

The store is AWS, or what the class names instead; with the provisioning credentials, the operator creates buckets and
users there. An ObjectBucket is its record of a claim's bucket. Most fixes in the sections about class, store and
operator need an admin, as do those marked `(admin)`.

| phase of the claim | meaning |
|---|---|
| none | no operator has processed the claim |
| Pending | the operator works on the claim, or it waits for its class, a Secret or a permission |
| Bound | the claim has got its bucket. It stays Bound even if bucket or keys are lost: see the condition `Ready` |
| Failed | the claim must be changed, or another one created |
| Released | the claim was deleted; the operator deletes its access, and the bucket as [`onDelete`](parameters.md#ondelete) has it |

The operator retries at once when claim, class or Secret change, or the annotation `objectbucket.io/retry` gets another
value; otherwise after pauses from 1 s or 10 s to six minutes (`KeysInactive`: hourly; `ObjectsLocked`: daily;
`CheckFailed`: with the next check, `--resync`). After `RotationFailed`, annotate the claim also if you corrected class
or Secret.
";

const TOPICS: [(&[Topic], &str); 7] = [
    (&[Topic::Progress], "## Progress"),
    (&[Topic::Claim], "## The claim"),
    (&[Topic::Class], "## The class and its Secret"),
    (&[Topic::Store], "## The store"),
    (&[Topic::Operator], "## The operator"),
    (
        &[Topic::Event, Topic::Warning],
        "## Events

Some are also reasons of the conditions `KeysCurrent` and `UpToDate`.",
    ),
    (
        &[Topic::Orphaned],
        "## ObjectBuckets

An ObjectBucket records the bucket of a claim, as a PersistentVolume records a volume. The condition `Orphaned` (column
ORPHANED of `kubectl get objectbuckets`) shows that the claim no longer exists; `DeletionScheduled` (`--output wide`,
column DELETE-AT), that its bucket will be deleted. An orphan is only reported, until an admin [annotates
it](deleted-claims.md) with `objectbucket.io/orphan`: `remove` deletes access and bucket **with all content**, `revoke`
access and ObjectBucket, `forget` only the ObjectBucket; `adopt` gives all to the claim that has the namespace and name
now.",
    ),
];

/// The reasons of the library and of the store.
fn all<P: Provisioner>() -> impl Iterator<Item = &'static Reason> {
    crate::reasons::all().chain(P::REASONS.iter().copied())
}

/// The reason of this name.
pub(crate) fn named<P: Provisioner>(name: &str) -> Option<&'static Reason> {
    all::<P>().find(|known| known.name == name)
}

/// The page of a store.
pub(crate) fn page<P: Provisioner>() -> String {
    let mut text = HEAD.to_owned();
    for (topics, heading) in TOPICS {
        // Writing to a String does not fail.
        let _ = writeln!(text, "\n{heading}");
        for Reason { name, topic, meaning, remedy, check } in all::<P>().filter(|reason| topics.contains(&reason.topic))
        {
            let kind = if *topic == Topic::Warning { "Warning: " } else { "" };
            let _ = write!(text, "\n### {name}\n\n{}.", sentence(&format!("{kind}{meaning}")));
            for (label, part) in [("Check", check), ("Fix", remedy)].into_iter().filter(|(_, part)| !part.is_empty()) {
                let end = if part.ends_with('?') { "" } else { "." };
                let _ = write!(text, " **{label}:** {part}{end}");
            }
            text.push('\n');
        }
    }
    text
}

/// With a capital letter at its beginning.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::testing::Shelf;

    #[test]
    fn the_page_has_every_reason_once() {
        let page = page::<Shelf>();
        for Reason { name, remedy, .. } in all::<Shelf>() {
            let sections = page.split("\n### ").filter(|section| {
                section.strip_prefix(name).is_some_and(|text| text.starts_with('\n') && text.contains(remedy))
            });
            assert!(sections.count() >= 1, "{name}");
        }
        assert_eq!(page.matches("\n### ").count(), all::<Shelf>().count());
    }
}
