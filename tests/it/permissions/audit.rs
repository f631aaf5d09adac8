//! The API server's audit log: what a service account did, and whether it was allowed to.

use std::collections::BTreeSet;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::grants::{Permission, differences, resource};

/// Names the file; `hack/stack.sh env` sets it for a cluster of its own.
const VARIABLE: &str = "KUBERNETES_AUDIT_LOG";

/// What comes after a certain time in the audit log.
pub(super) struct Audit {
    file: PathBuf,
    from: u64,
}

/// What one service account did.
#[derive(Debug, Default)]
pub(super) struct Witness {
    /// What it needed permissions for, and had them.
    pub(super) used: BTreeSet<Permission>,
    /// What it was refused.
    pub(super) refused: Vec<String>,
}

impl Audit {
    /// All that is logged from now on. `None` for a cluster that is not ours, with a message.
    pub(super) fn from_now_on() -> Option<Self> {
        let Some(file) = std::env::var_os(VARIABLE).map(PathBuf::from) else {
            eprintln!("{VARIABLE} is not set: permissions that nothing needs are not looked for in this cluster");
            return None;
        };
        let from = std::fs::metadata(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display())).len();
        Some(Self { file, from })
    }

    /// Waits until a user has used all that is granted, for a moment: the API server answers a call before it is
    /// logged. Returns what differs then.
    pub(super) async fn differences(&self, user: &str, granted: &BTreeSet<Permission>) -> Vec<String> {
        let mut found = Vec::new();
        for _ in 0..40 {
            let witness = self.witness(user);
            found = differences(granted, &witness.used);
            found.extend(witness.refused.into_iter().map(|message| format!("refused: {message}")));
            if found.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        found
    }

    /// What a user did until now.
    pub(super) fn witness(&self, user: &str) -> Witness {
        let mut file = std::fs::File::open(&self.file).unwrap();
        file.seek(SeekFrom::Start(self.from)).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        let mut witness = Witness::default();
        // What follows the last line break is being written.
        for line in text.rsplit_once('\n').map_or("", |(whole, _)| whole).lines() {
            if line.contains(user) {
                witness.add(&serde_json::from_str(line).unwrap(), user);
            }
        }
        witness
    }
}

impl Witness {
    fn add(&mut self, entry: &Value, user: &str) {
        if entry["user"]["username"] != user {
            return;
        }
        // A refusal by an admission plugin is one, too.
        if entry["responseStatus"]["code"] == 403 {
            let message = &entry["responseStatus"]["message"];
            return self.refused.push(format!("{} {}: {message}", entry["verb"], entry["requestURI"]));
        }
        // What is no object, such as the version of the cluster, is open to everybody.
        let Some(object) = entry["objectRef"].as_object() else { return };
        let field = |key: &str| object.get(key).and_then(Value::as_str);
        let kind = [field("resource"), field("subresource")].into_iter().flatten().collect::<Vec<_>>().join("/");
        self.used.insert(Permission {
            verb: entry["verb"].as_str().unwrap().to_owned(),
            resource: resource(field("apiGroup").unwrap_or_default(), &kind),
            namespace: field("namespace").map(str::to_owned),
            name: field("name").map(str::to_owned),
        });
    }
}
