//! The conformance kit with this provisioner and its store. Each check has a server of its own.

#![allow(clippy::unwrap_used, reason = "a check fails by a panic, as a test does")]

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;

use provisioner_conformance::{Ability, Backend, Bucket, HttpStore, Inventory, Outputs, Program, Upstream, User};
use reqwest::{Client, RequestBuilder};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

const TOKEN: &str = "the-owners-token";

struct Store {
    url: String,
    client: Client,
    /// Is killed when this is dropped.
    _server: Child,
}

impl Store {
    async fn start() -> Self {
        let mut server = Command::new(env!("CARGO_BIN_EXE_http-store"))
            .arg("127.0.0.1:0")
            .env("STORE_TOKEN", TOKEN)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        // Its first line, as soon as it listens.
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let url = lines.next_line().await.unwrap().unwrap();
        Self { url, client: Client::new(), _server: server }
    }

    fn at(&self, path: &str) -> String {
        format!("{}/{path}", self.url)
    }

    /// Sends a request of the owner.
    async fn send(&self, request: RequestBuilder) -> Value {
        request.bearer_auth(TOKEN).send().await.unwrap().json().await.unwrap()
    }

    /// Sends a request of an app.
    async fn send_as(app: &Outputs, request: RequestBuilder) -> Result<Value, String> {
        let token = format!("{}:{}", app["AWS_ACCESS_KEY_ID"], app["AWS_SECRET_ACCESS_KEY"]);
        let response = request.bearer_auth(token).send().await.unwrap();
        let status = response.status();
        if status.is_success() { Ok(response.json().await.unwrap()) } else { Err(status.to_string()) }
    }

    /// All buckets or users whose names contain this.
    async fn list_all(&self, kind: &str, id: &str) -> Vec<(String, Value)> {
        let all = self.send(self.client.get(self.at(kind))).await;
        let all: BTreeMap<String, Value> = serde_json::from_value(all).unwrap();
        all.into_iter().filter(|(name, _)| name.contains(id)).collect()
    }
}

impl Backend for Store {
    fn abilities(&self) -> Vec<Ability> {
        use Ability::{Apps, Brownfield, Greenfield, Http, Inventory, Owner, Persistence, Tags};
        vec![Greenfield, Brownfield, Tags, Persistence, Inventory, Apps, Http, Owner]
    }

    fn program(&self) -> Program {
        Program::new(env!("CARGO_BIN_EXE_http-provisioner"))
    }

    fn upstream(&self) -> Option<Arc<dyn Upstream>> {
        Some(Arc::new(HttpStore::at(&self.url)))
    }

    fn parameters(&self, proxy: Option<&str>) -> BTreeMap<String, String> {
        BTreeMap::from([("server".to_owned(), proxy.unwrap_or(&self.url).to_owned())])
    }

    fn owner(&self) -> BTreeMap<String, String> {
        BTreeMap::from([("TOKEN".to_owned(), TOKEN.to_owned())])
    }

    fn wrong_owner(&self) -> BTreeMap<String, String> {
        BTreeMap::from([("TOKEN".to_owned(), "not-the-owners-token".to_owned())])
    }

    async fn inventory(&self, id: &str) -> Inventory {
        let mut found = Inventory::default();
        for (name, bucket) in self.list_all("buckets", id).await {
            let objects = serde_json::from_value(bucket["objects"].clone()).unwrap();
            found.buckets.insert(name, Bucket { objects, settings: bucket["claim"].to_string() });
        }
        for (name, user) in self.list_all("users", id).await {
            let keys = if user["password"] == true { vec![name.clone()] } else { Vec::new() };
            let settings = format!("{} {}", user["claim"], user["bucket"]);
            found.users.insert(name, User { keys, settings });
        }
        found
    }

    async fn remove(&self, what: &Inventory) {
        for bucket in what.buckets.keys() {
            self.send(self.client.delete(self.at(&format!("buckets/{bucket}?content=delete")))).await;
        }
        for user in what.users.keys() {
            self.send(self.client.delete(self.at(&format!("users/{user}")))).await;
        }
    }

    async fn create_bucket(&self, name: &str) {
        self.send(self.client.put(self.at(&format!("buckets/{name}"))).json(&json!({}))).await;
        self.send(self.client.put(self.at(&format!("objects/{name}/theirs")))).await;
    }

    /// A user of somebody else.
    async fn plant(&self, name: &str) {
        self.send(self.client.put(self.at(&format!("users/{name}"))).json(&json!({ "bucket": name }))).await;
    }

    async fn create_user(&self, name: &str) -> bool {
        self.plant(name).await;
        true
    }

    // Apps use `BUCKET_NAME`, which the kit replaces by that of another claim, and the store itself: what operators do at
    // the proxy can fail.
    async fn put(&self, app: &Outputs, object: &str) -> Result<(), String> {
        let path = format!("objects/{}/{object}", app["BUCKET_NAME"]);
        Self::send_as(app, self.client.put(self.at(&path))).await.map(drop)
    }

    async fn list(&self, app: &Outputs) -> Result<Vec<String>, String> {
        let listed = Self::send_as(app, self.client.get(self.at(&format!("objects/{}", app["BUCKET_NAME"])))).await?;
        Ok(serde_json::from_value(listed).unwrap())
    }
}

provisioner_conformance::conformance_tests!(Store::start().await);
