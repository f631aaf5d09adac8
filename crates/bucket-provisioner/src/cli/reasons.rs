//! What the command `reasons` prints: a page with all reason codes of claims and ObjectBuckets.

use std::fmt::Write as _;

use crate::store::{Provisioner, Reason, Topic};

const HEAD: &str = "\
<!-- Printed by the operator's command `reasons`. Do not edit. -->
# Reason codes

`kubectl get obc` shows phase and reason. `kubectl describe obc NAME` shows the message and the events, one for each
change. The message names the field or the object, its value, and the remedy.

| phase | meaning |
|---|---|
| none | no operator has processed the claim: none runs, or the class belongs to another provisioner. The reason is `Pending`, or none with a CRD of others |
| Pending | the operator is working on the claim; or it waits for something that is not the claim's, such as the class, its Secret or a permission, which the reason names. It retries when the class, its Secret or the claim changes; after 10 s, 20 s and so on up to five minutes, because it cannot see that permissions change at the store; and at once when the annotation `objectbucket.io/retry` of the claim gets another value |
| Bound | the bucket can be used: the operator has tested the claim's keys |
| Failed | the claim itself must be changed, or another one created. The operator retries when the claim changes, and as if it were Pending |
| Released | the claim was deleted, and its bucket and access are being deleted |

A bound claim stays Bound when something fails later, because its bucket and its keys still work. The reason names the
problem.
";

const TABLES: [(&[Topic], &str); 7] = [
    (&[Topic::Progress], "## Reasons of the condition `Ready`"),
    (&[Topic::Claim], "### The claim"),
    (&[Topic::Class], "### The class and its Secret"),
    (&[Topic::Store], "### The store"),
    (&[Topic::Operator], "### The operator"),
    (&[Topic::Event, Topic::Warning], "## Events without a condition"),
    (
        &[Topic::Orphaned],
        "## Reasons of an ObjectBucket

The condition `Orphaned` (column ORPHANED) shows whether the claim of an ObjectBucket still exists. An orphan is only
reported: bucket and user do not change until an admin annotates the ObjectBucket with `objectbucket.io/orphan`: `adopt`
gives it to the claim that now has its namespace and name, `remove` does what the deletion of its claim would have done,
`revoke` deletes the access and keeps the bucket, and `forget` deletes only the ObjectBucket. The condition
`DeletionScheduled` shows that the claim was deleted, and when the bucket will be deleted; the annotation can change that.
Each change is an event of the same reason.",
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
    for (topics, heading) in TABLES {
        // Writing to a String does not fail.
        let _ = write!(text, "\n{heading}\n\n| reason | what it means | what to do |\n|---|---|---|\n");
        for Reason { name, topic, meaning, remedy } in all::<P>().filter(|reason| topics.contains(&reason.topic)) {
            let note = if *topic == Topic::Warning { " (Warning)" } else { "" };
            let _ = writeln!(text, "| `{name}`{note} | {meaning} | {remedy} |");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::testing::Shelf;

    #[test]
    fn the_page_has_every_reason_once() {
        let page = page::<Shelf>();
        for Reason { name, meaning, .. } in all::<Shelf>() {
            let rows = page.lines().filter(|line| line.starts_with(&format!("| `{name}`")) && line.contains(meaning));
            assert_eq!(rows.count(), 1, "{name}");
        }
    }
}
