//! All that a world has in the cluster and in AWS, to be compared with what it had.

pub(crate) use provisioner_conformance::Footprint;

use super::World;

impl World {
    /// Everything with the world's id in its name, and everything in its namespace.
    pub(crate) async fn footprint(&self) -> Footprint {
        Footprint { objects: self.objects().await, store: self.account.inventory(&self.id).await }
    }

    /// Things of others that look like what the operator makes.
    pub(crate) async fn create_unrelated_objects(&self) {
        let foreign = self.unique("bystander");
        self.account.create_bucket(&foreign).await;
        self.account.put(&foreign, "theirs").await.unwrap();
        self.account.plant(&foreign).await;
        provisioner_conformance::World::create_unrelated_objects(self).await;
    }

    /// Removes what other worlds see of this one: all operators list the classes and ObjectBuckets of the cluster, and
    /// all footprints the users and buckets of the account.
    pub(crate) async fn clear_away(&self) {
        self.clear().await;
        self.account.remove(&self.account.inventory(&self.id).await).await;
    }
}
