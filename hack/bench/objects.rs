//! Buckets that hold much: filled before the bench measures, and emptied as the operator empties them.

use std::sync::Arc;

use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{BucketVersioningStatus, Delete, ObjectIdentifier, VersioningConfiguration};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::Failure;
use crate::load::all;
use crate::store::Store;

/// DeleteObjects calls that run at once.
const DELETES_IN_FLIGHT: usize = 4;
/// PutObject calls that run at once.
const PUTS_IN_FLIGHT: usize = 32;

impl Store {
    /// Deletes all versions, 1,000 at a time, while the next are listed.
    pub(crate) async fn purge(&self, bucket: &str) -> Result<(), Failure> {
        let turns = Arc::new(Semaphore::new(DELETES_IN_FLIGHT));
        let mut tasks = JoinSet::new();
        let (mut key, mut version) = (None, None);
        loop {
            let listed = self.count().s3.list_object_versions().bucket(bucket).max_keys(1000);
            let page = listed.set_key_marker(key).set_version_id_marker(version).send().await?;
            let versions = page.versions.unwrap_or_default().into_iter().map(|v| (v.key, v.version_id));
            let markers = page.delete_markers.unwrap_or_default().into_iter().map(|m| (m.key, m.version_id));
            let objects = versions.chain(markers).map(|(key, version)| {
                ObjectIdentifier::builder().key(key.unwrap_or_default()).set_version_id(version).build()
            });
            let delete = Delete::builder().set_objects(Some(objects.collect::<Result<_, _>>()?)).quiet(true).build()?;
            let turn = Arc::clone(&turns).acquire_owned().await?;
            let deleted = self.count().s3.delete_objects().bucket(bucket).delete(delete).send();
            tasks.spawn(async move {
                let _turn = turn;
                deleted.await?;
                Ok(())
            });
            (key, version) = (page.next_key_marker, page.next_version_id_marker);
            if page.is_truncated != Some(true) {
                return all(tasks).await;
            }
        }
    }

    /// Puts objects, then further versions of some. With folders, each has as many of them.
    pub(crate) async fn fill(
        &self,
        bucket: &str,
        objects: usize,
        versions: usize,
        folders: usize,
    ) -> Result<(), Failure> {
        let enabled = VersioningConfiguration::builder().status(BucketVersioningStatus::Enabled).build();
        self.s3.put_bucket_versioning().bucket(bucket).versioning_configuration(enabled).send().await?;
        for count in [objects, versions] {
            let turns = Arc::new(Semaphore::new(PUTS_IN_FLIGHT));
            let mut tasks = JoinSet::new();
            for number in 0..count {
                let (s3, bucket, turns) = (self.s3.clone(), bucket.to_owned(), Arc::clone(&turns));
                tasks.spawn(async move {
                    let _turn = turns.acquire().await?;
                    let body = ByteStream::from_static(b"content");
                    let folder =
                        number.checked_rem(folders).map_or_else(String::new, |folder| format!("folder-{folder}/"));
                    s3.put_object().bucket(bucket).key(format!("{folder}object-{number}")).body(body).send().await?;
                    Ok(())
                });
            }
            all(tasks).await?;
        }
        Ok(())
    }
}
