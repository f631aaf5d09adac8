//! The conformance kit for a program in any language: variables of `hack/conformance.sh` have the store's abilities and the
//! commands that inspect it.

#![allow(clippy::expect_used, reason = "a check fails by a panic, as a test does")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::{Output, Stdio};
use std::sync::Arc;

use provisioner_conformance::proxy::{HttpStore, Upstream};
use provisioner_conformance::{Ability, Backend, Inventory, Outputs, PATIENCE, Program, TempDir, free_address};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// A store that is inspected with commands of bash.
struct Commands {
    /// For a store that serves one check only.
    dir: TempDir,
    address: SocketAddr,
}

/// A variable that `hack/conformance.sh` sets.
fn given(name: &str) -> Option<String> {
    std::env::var(format!("CONFORMANCE_{name}")).ok().filter(|value| !value.is_empty())
}

impl Commands {
    fn new() -> Self {
        Self { dir: TempDir::new(), address: free_address() }
    }

    /// The lines `NAME=VALUE` of a variable, with the placeholders for this check's folder and address replaced.
    fn pairs(&self, name: &str) -> BTreeMap<String, String> {
        let lines = given(name).unwrap_or_default();
        let pair = |line: &str| {
            let (key, value) = line.split_once('=').unwrap_or_else(|| panic!("--{name}: an entry is not NAME=VALUE"));
            let value = match value.strip_prefix('@') {
                Some(file) => {
                    std::fs::read_to_string(file).unwrap_or_else(|error| panic!("--{name} {key}=@{file}: {error}"))
                }
                None => value.to_owned(),
            };
            let value = value.replace("{dir}", &self.dir.path().display().to_string());
            (key.to_owned(), value.replace("{address}", &self.address.to_string()))
        };
        lines.lines().map(pair).collect()
    }

    async fn run(&self, command: &str, variables: &BTreeMap<String, String>, input: &str) -> Output {
        let text = given(command).unwrap_or_else(|| panic!("there is no command for {}", command.to_lowercase()));
        let mut child = Command::new("bash")
            .args(["-euo", "pipefail", "-c", &text])
            .env("CHECK_DIR", self.dir.path())
            .env("CHECK_ADDRESS", self.address.to_string())
            .envs(variables)
            .env_remove("CONFORMANCE_OWNER")
            .kill_on_drop(true)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("bash starts");
        // One that does not read is none the worse.
        let _ = child.stdin.take().expect("its input").write_all(input.as_bytes()).await;
        let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await;
        output.unwrap_or_else(|_| panic!("the command for {} does not end", command.to_lowercase())).expect("bash ends")
    }

    /// Runs a command that must succeed; returns what it printed.
    async fn must(&self, command: &str, variables: &[(&str, &str)], input: &str) -> String {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let output = self.run(command, &variables, input).await;
        assert!(output.status.success(), "{command} fails: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs a command as an app; returns what it printed, or what it complained about.
    async fn app(&self, command: &str, app: &Outputs, object: &str) -> Result<String, String> {
        let mut variables = app.clone();
        variables.insert("OBJECT".to_owned(), object.to_owned());
        let output = self.run(command, &variables, "").await;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }
}

fn lines_of(inventory: &Inventory) -> String {
    let buckets = inventory.buckets.keys().map(|bucket| format!("bucket {bucket}\n"));
    let users = inventory.users.iter().flat_map(|(user, found)| {
        found.keys.iter().map(move |key| format!("key {user} {key}\n")).chain([format!("user {user}\n")])
    });
    buckets.chain(users).collect()
}

impl Backend for Commands {
    fn abilities(&self) -> Vec<Ability> {
        let listed = given("CAN").unwrap_or_default();
        let mut abilities: Vec<_> = listed
            .split(',')
            .filter(|word| !word.is_empty())
            .map(|word| match word {
                "greenfield" => Ability::Greenfield,
                "brownfield" => Ability::Brownfield,
                "shared-buckets" => Ability::SharedBuckets,
                "tags" => Ability::Tags,
                "rotation" => Ability::Rotation,
                "persistence" => Ability::Persistence,
                other => panic!(
                    "--can {other}: not one of greenfield, brownfield, shared-buckets, tags, rotation, persistence"
                ),
            })
            .collect();
        abilities.extend(given("INVENTORY").map(|_| Ability::Inventory));
        abilities.extend(given("PUT").map(|_| Ability::Apps));
        abilities.extend(given("STORE").map(|_| Ability::Http));
        abilities.extend(given("OWNER").map(|_| Ability::Owner));
        abilities
    }

    fn program(&self) -> Program {
        let program = Program::new(given("PROGRAM").expect("hack/conformance.sh sets it"));
        let program = program.args(given("ARGS").unwrap_or_default().lines());
        self.pairs("ENV").into_iter().fold(program, |program, (name, value)| program.env(name, value))
    }

    fn upstream(&self) -> Option<Arc<dyn Upstream>> {
        Some(Arc::new(HttpStore::at(&given("STORE")?)))
    }

    fn parameters(&self, url: Option<&str>) -> BTreeMap<String, String> {
        let filled = |value: String| value.replace("{url}", url.unwrap_or("{url}"));
        self.pairs("PARAMETERS").into_iter().map(|(name, value)| (name, filled(value))).collect()
    }

    fn owner(&self) -> BTreeMap<String, String> {
        self.pairs("OWNER")
    }

    async fn inventory(&self, id: &str) -> Inventory {
        let mut found = Inventory::default();
        for line in self.must("INVENTORY", &[("ID", id)], "").await.lines() {
            match *line.split(' ').collect::<Vec<_>>() {
                ["bucket", name] => drop(found.buckets.entry(name.to_owned()).or_default()),
                ["object", bucket, ref name @ ..] => {
                    found.buckets.entry(bucket.to_owned()).or_default().objects.push(name.join(" "));
                }
                ["user", name] => drop(found.users.entry(name.to_owned()).or_default()),
                ["key", user, id] => found.users.entry(user.to_owned()).or_default().keys.push(id.to_owned()),
                _ => panic!(
                    "--inventory printed {line:?}: not bucket BUCKET, object BUCKET OBJECT, user USER or key USER ID"
                ),
            }
        }
        found.buckets.values_mut().for_each(|bucket| bucket.objects.sort());
        found.users.values_mut().for_each(|user| user.keys.sort());
        found
    }

    async fn remove(&self, what: &Inventory) {
        self.must("REMOVE", &[], &lines_of(what)).await;
    }

    async fn create_bucket(&self, name: &str) {
        self.must("CREATE_BUCKET", &[("BUCKET", name)], "").await;
    }

    async fn put(&self, app: &Outputs, object: &str) -> Result<(), String> {
        self.app("PUT", app, object).await.map(drop)
    }

    async fn list(&self, app: &Outputs) -> Result<Vec<String>, String> {
        let printed = self.app("LIST", app, "").await?;
        Ok(printed.lines().map(str::to_owned).collect())
    }
}

provisioner_conformance::conformance_tests!(Commands::new());
