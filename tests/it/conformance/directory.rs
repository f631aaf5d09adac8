//! `examples/directory-provisioner`, whose buckets are directories, behind an S3 server in its process.

use std::fs;
use std::path::{Path, PathBuf};

use provisioner_conformance::{Ability, Backend, Bucket, Inventory, Outputs, Program, TempDir, free_address};
use serde_json::Value;

use crate::support::account::Account;

pub(crate) struct Directories {
    root: TempDir,
    address: String,
}

impl Directories {
    pub(crate) fn new() -> Self {
        Self { root: TempDir::new(), address: free_address().to_string() }
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// What lies beside the buckets, and the buckets.
    fn buckets(&self) -> (Vec<String>, Vec<String>) {
        names(&self.folder("buckets")).into_iter().partition(|name| name.starts_with('.'))
    }

    fn app(outputs: &Outputs) -> Account {
        let get = |key: &str| outputs[key].as_str();
        let keys = (get("AWS_ACCESS_KEY_ID"), get("AWS_SECRET_ACCESS_KEY"));
        Account::at(get("AWS_ENDPOINT_URL_S3"), get("BUCKET_REGION"), keys.0, keys.1)
    }
}

/// The names of what is in a folder, in their order, without drafts.
fn names(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).into_iter().flatten();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| !name.contains(".draft")).collect();
    names.sort();
    names
}

/// How the names of the files begin that the S3 server keeps beside a bucket.
fn beginning_beside(bucket: &str) -> String {
    format!(".bucket-{}.", base64_simd::URL_SAFE_NO_PAD.encode_to_string(bucket))
}

impl Backend for Directories {
    fn abilities(&self) -> Vec<Ability> {
        use Ability::{Apps, Brownfield, Greenfield, Inventory, Persistence, Rotation, SharedBuckets, Tags};
        vec![Greenfield, Brownfield, SharedBuckets, Tags, Rotation, Persistence, Inventory, Apps]
    }

    fn program(&self) -> Program {
        super::example("directory-provisioner")
            .env("DIRECTORY_ROOT", self.root.path().to_str().unwrap())
            .env("DIRECTORY_ADDRESS", &self.address)
    }

    async fn inventory(&self, _: &str) -> Inventory {
        let mut found = Inventory::default();
        let (beside, buckets) = self.buckets();
        for bucket in buckets {
            let settings = fs::read_to_string(self.folder("marks").join(&bucket)).unwrap_or_default();
            let objects = names(&self.folder("buckets").join(&bucket));
            found.buckets.insert(bucket, Bucket { objects, settings });
        }
        // Nothing of a deleted bucket may stay: what does counts as a bucket.
        let of_bucket = |file: &String| found.buckets.keys().any(|bucket| file.starts_with(&beginning_beside(bucket)));
        let left: Vec<_> = beside.into_iter().filter(|file| !of_bucket(file)).collect();
        for file in left {
            let bucket = file.trim_start_matches(".bucket-").split('.').next().unwrap();
            let bucket = base64_simd::URL_SAFE_NO_PAD.decode_to_vec(bucket).unwrap();
            let name = format!("what {} left", String::from_utf8(bucket).unwrap());
            found.buckets.insert(name, Bucket::default());
        }
        for key in names(&self.folder("keys")) {
            // One that was deleted meanwhile is none.
            let Ok(text) = fs::read(self.folder("keys").join(&key)) else { continue };
            let user = serde_json::from_slice::<Value>(&text).unwrap()["user"].as_str().unwrap().to_owned();
            found.users.entry(user).or_default().keys.push(key);
        }
        found
    }

    async fn remove(&self, what: &Inventory) {
        for bucket in what.buckets.keys() {
            let _ = fs::remove_dir_all(self.folder("buckets").join(bucket));
            let _ = fs::remove_file(self.folder("marks").join(bucket));
            for file in self.buckets().0.iter().filter(|file| file.starts_with(&beginning_beside(bucket))) {
                fs::remove_file(self.folder("buckets").join(file)).unwrap();
            }
        }
        for key in what.users.values().flat_map(|user| &user.keys) {
            let _ = fs::remove_file(self.folder("keys").join(key));
        }
    }

    async fn create_bucket(&self, name: &str) {
        let bucket = self.folder("buckets").join(name);
        fs::create_dir_all(&bucket).unwrap();
        fs::write(bucket.join("theirs"), "content").unwrap();
    }

    async fn put(&self, app: &Outputs, object: &str) -> Result<(), String> {
        Self::app(app).put(&app["BUCKET_NAME"], object).await
    }

    async fn list(&self, app: &Outputs) -> Result<Vec<String>, String> {
        Self::app(app).list(&app["BUCKET_NAME"]).await
    }
}

provisioner_conformance::conformance_tests!(Directories::new());
