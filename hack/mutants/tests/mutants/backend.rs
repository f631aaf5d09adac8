//! The store as a backend of the conformance kit.

use std::collections::BTreeMap;
use std::sync::Arc;

use provisioner_conformance::{Ability, Backend, Bucket, HttpStore, Inventory, Outputs, Program, Upstream, User};

use super::mutant::VARIABLE;
use super::server::{self, Server};

/// A store of its own for each check.
pub(crate) struct Lockers(Server);

impl Lockers {
    pub(crate) async fn start() -> Self {
        Self(Server::start().await)
    }
}

impl Backend for Lockers {
    fn abilities(&self) -> Vec<Ability> {
        use Ability::{Apps, Brownfield, Greenfield, Http, Inventory, Owner, Persistence, Rotation, Tags};
        vec![Greenfield, Brownfield, Tags, Rotation, Persistence, Inventory, Apps, Http, Owner]
    }

    fn program(&self) -> Program {
        let program = Program::new(env!("CARGO_BIN_EXE_mutants"));
        match std::env::var(VARIABLE) {
            Ok(mutant) => program.env(VARIABLE, mutant),
            Err(_) => program,
        }
    }

    fn upstream(&self) -> Option<Arc<dyn Upstream>> {
        Some(Arc::new(HttpStore::at(&format!("http://{}", self.0.address))))
    }

    fn parameters(&self, url: Option<&str>) -> BTreeMap<String, String> {
        url.map(|url| ("server".to_owned(), url.to_owned())).into_iter().collect()
    }

    fn owner(&self) -> BTreeMap<String, String> {
        [("TOKEN".to_owned(), self.0.token.clone())].into()
    }

    fn wrong_owner(&self) -> BTreeMap<String, String> {
        [("TOKEN".to_owned(), self.0.token.chars().rev().collect())].into()
    }

    async fn inventory(&self, _: &str) -> Inventory {
        let shelves = self.0.shelves();
        let bucket = |bucket: &server::Bucket| Bucket {
            objects: bucket.objects.iter().cloned().collect(),
            settings: format!("uid {:?}, limited: {}", bucket.uid, bucket.is_limited),
        };
        let user = |user: &server::User| User {
            keys: user.keys.keys().cloned().collect(),
            settings: format!("uid {:?}, bucket {:?}", user.uid, user.bucket),
        };
        Inventory {
            buckets: shelves.buckets.iter().map(|(name, it)| (name.clone(), bucket(it))).collect(),
            users: shelves.users.iter().map(|(name, it)| (name.clone(), user(it))).collect(),
        }
    }

    async fn remove(&self, what: &Inventory) {
        let mut shelves = self.0.shelves();
        shelves.buckets.retain(|name, _| !what.buckets.contains_key(name));
        shelves.users.retain(|name, _| !what.users.contains_key(name));
    }

    async fn create_bucket(&self, name: &str) {
        let bucket = server::Bucket { objects: ["theirs".to_owned()].into(), ..server::Bucket::default() };
        self.0.shelves().buckets.insert(name.to_owned(), bucket);
    }

    async fn plant(&self, name: &str) {
        let keys = [("their-key".to_owned(), "their-secret".to_owned())].into();
        let user = server::User { uid: None, bucket: "*".to_owned(), keys };
        self.0.shelves().users.insert(name.to_owned(), user);
    }

    async fn create_user(&self, name: &str) -> bool {
        self.plant(name).await;
        true
    }

    async fn remove_marks(&self, user: &str) -> bool {
        self.0.shelves().users.get_mut(user).is_some_and(|user| user.uid.take().is_some())
    }

    async fn rename_user(&self, user: &str, to: &str) -> bool {
        let mut shelves = self.0.shelves();
        let renamed = shelves.users.remove(user);
        renamed.map(|renamed| shelves.users.insert(to.to_owned(), renamed)).is_some()
    }

    async fn put(&self, app: &Outputs, object: &str) -> Result<(), String> {
        let mut shelves = self.0.shelves();
        let objects = objects(&mut shelves, app)?;
        objects.insert(object.to_owned());
        Ok(())
    }

    async fn list(&self, app: &Outputs) -> Result<Vec<String>, String> {
        Ok(objects(&mut self.0.shelves(), app)?.iter().cloned().collect())
    }
}

/// The objects of the app's bucket, if its keys open it.
fn objects<'a>(
    shelves: &'a mut server::Shelves,
    app: &Outputs,
) -> Result<&'a mut std::collections::BTreeSet<String>, String> {
    let (id, secret, bucket) = (&app["AWS_ACCESS_KEY_ID"], &app["AWS_SECRET_ACCESS_KEY"], &app["BUCKET_NAME"]);
    let (_, user) = shelves.user_of(id, secret).ok_or("there are no such keys")?;
    if user.bucket != "*" && user.bucket != *bucket {
        return Err("these keys are for another bucket".to_owned());
    }
    shelves
        .buckets
        .get_mut(bucket)
        .map(|bucket| &mut bucket.objects)
        .ok_or_else(|| "there is no such bucket".to_owned())
}
