//! Marks: for which claim a directory was created. What has no mark existed before.

use std::fs;
use std::io;
use std::path::PathBuf;

use bucket_provisioner::store::{ClaimId, Record};
use serde::{Deserialize, Serialize};

use super::keys::{create_if_missing, remove_if_there};

/// The claim for which a bucket was created.
#[derive(Serialize, Deserialize)]
pub(crate) struct Mark {
    namespace: String,
    name: String,
    uid: String,
    pub(crate) cluster: Option<String>,
}

impl Mark {
    fn of(record: &Record) -> Self {
        let ClaimId { namespace, name, uid, .. } = record.claim.clone();
        Self { namespace, name, uid, cluster: record.cluster.clone() }
    }

    pub(crate) fn claim(&self) -> ClaimId {
        ClaimId { namespace: self.namespace.clone(), name: self.name.clone(), uid: self.uid.clone() }
    }

    pub(crate) fn names(&self, record: &Record) -> bool {
        record.bucket_uids().contains(&self.uid.as_str())
    }

    /// Whether it equals a new mark. A record that was adopted has another claim and cluster.
    pub(crate) fn is_current(&self, record: &Record) -> bool {
        self.uid == record.claim.uid && self.cluster == record.cluster
    }
}

/// The marks of all buckets.
#[derive(Debug, Clone)]
pub(crate) struct Marks(PathBuf);

impl Marks {
    pub(crate) fn in_directory(directory: PathBuf) -> io::Result<Self> {
        create_if_missing(&directory)?;
        Ok(Self(directory))
    }

    pub(crate) fn find(&self, bucket: &str) -> io::Result<Option<Mark>> {
        match fs::read(self.0.join(bucket)) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Marks a bucket for a claim. Of several that try, one succeeds; the others fail with `AlreadyExists`.
    pub(crate) fn put(&self, record: &Record) -> io::Result<()> {
        // A link appears with its whole content.
        let draft = self.draft(record)?;
        let linked = fs::hard_link(&draft, self.0.join(&record.plan.bucket));
        remove_if_there(&draft)?;
        linked
    }

    /// Replaces a mark that names a previous claim of the record.
    pub(crate) fn renew(&self, record: &Record) -> io::Result<()> {
        fs::rename(self.draft(record)?, self.0.join(&record.plan.bucket))
    }

    fn draft(&self, record: &Record) -> io::Result<PathBuf> {
        // Names of buckets do not begin with a period.
        let draft = self.0.join(format!(".{}", record.claim.uid));
        fs::write(&draft, serde_json::to_vec(&Mark::of(record))?)?;
        Ok(draft)
    }

    pub(crate) fn remove(&self, bucket: &str) -> io::Result<bool> {
        remove_if_there(&self.0.join(bucket))
    }
}
