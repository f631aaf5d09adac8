//! `docs/reasons.md`, generated from the tables of reasons in the code. The test fails if the file is outdated; to update
//! it: `UPDATE_DOCS=1 cargo test --lib reasons_document`.

use std::fmt::Write as _;
use std::path::Path;

use crate::provisioner::{Reason, Topic};
use crate::{aws, controller};

const HEAD: &str = "\
<!-- Generated from the tables of reasons in the code (src/reasons_document.rs). Do not edit. -->
# What a claim says

`kubectl get obc` shows phase and reason. `kubectl describe obc NAME` shows the message and the events, one for each
change. The message names the field or the object, its value, and the remedy.

| phase | meaning |
|---|---|
| none | no operator has processed the claim: the operator does not run, or the class belongs to another provisioner |
| Pending | the operator is working on it, or retries with a growing wait of up to five minutes |
| Bound | the bucket can be used: the claim's keys were seen to work |
| Failed | somebody must change something. The operator retries when class, owner's Secret or claim change; after 10 s, 20 s and so on up to five minutes, because it cannot see that permissions change in AWS; and at once when somebody annotates the claim with another value of `objectbucket.io/retry` |
| Released | the claim is deleted, and its bucket and access are being removed |

A bound claim stays Bound when something goes wrong later, because its bucket and its keys still work. The reason says
what is wrong.
";

const TABLES: [(&[Topic], &str); 7] = [
    (&[Topic::Progress], "## Reasons of the condition `Ready`"),
    (&[Topic::Claim], "### The claim"),
    (&[Topic::Class], "### The class and its Secret"),
    (&[Topic::Store], "### AWS"),
    (&[Topic::Operator], "### The operator"),
    (&[Topic::Event, Topic::Warning], "## Events without a condition"),
    (
        &[Topic::Orphaned],
        "## What an ObjectBucket says

Its condition `Orphaned` (column ORPHANED) says whether its claim still exists. An orphan is only reported: bucket and
user do not change until an admin annotates the ObjectBucket with `objectbucket.io/orphan`
([what the values do](disaster-recovery.md#what-a-restored-claim-does)). Each change is an event of the same reason.",
    ),
];

fn document() -> String {
    let all: Vec<&Reason> = controller::reasons().chain(aws::reasons()).collect();
    let mut text = HEAD.to_owned();
    for (topics, heading) in TABLES {
        write!(text, "\n{heading}\n\n| reason | what it means | what to do |\n|---|---|---|\n").ok();
        for reason in all.iter().filter(|reason| topics.contains(&reason.topic)) {
            let Reason { name, topic, meaning, remedy } = reason;
            let note = if *topic == Topic::Warning { " (Warning)" } else { "" };
            writeln!(text, "| `{name}`{note} | {meaning} | {remedy} |").ok();
        }
    }
    text
}

#[test]
fn the_document_of_reasons_is_what_the_code_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reasons.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, document()).ok();
    }
    let is = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(is == document(), "to update docs/reasons.md: UPDATE_DOCS=1 cargo test --lib reasons_document");
}

#[test]
fn a_reason_is_in_one_table_once() {
    let mut names: Vec<_> = controller::reasons().chain(aws::reasons()).map(|reason| reason.name).collect();
    names.sort_unstable();
    let twice: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
    // Of a claim, and of the ObjectBucket that it adopted.
    assert_eq!(twice, ["Adopted"]);
}
