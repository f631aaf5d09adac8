//! Claims of a class with five settings.

use http::Method;
use serde_json::json;

use crate::Failure;
use crate::kubernetes::CLASS as PLAIN;
use crate::load;
use crate::measure::{Work, by_floor, by_operator};
use crate::network::{Network, Proxy};
use crate::operator::Operator;
use crate::parts::Bench;
use crate::say;

const CLASS: &str = "s3-managed";
/// Milliseconds that an answer of AWS takes longer.
const DELAY: u64 = 50;
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";

impl Bench {
    /// `n` claims of such a class, from their creation to all Bound and from their deletion to all gone; and the same with
    /// some time added to each answer of AWS.
    pub(crate) async fn settings(&mut self, n: usize) -> Result<(), Failure> {
        let mut class = self.kubernetes.get(&format!("{CLASSES}/{PLAIN}")).await?;
        class["metadata"] = json!({ "name": CLASS });
        for (name, value) in [
            ("tags", "team=${namespace}"),
            ("bucketVersioning", "Enabled"),
            ("expireAfter", "30d"),
            ("publicAccess", "blocked"),
            ("objectOwnership", "BucketOwnerPreferred"),
        ] {
            class["parameters"][name] = json!(value);
        }
        self.kubernetes.send(Method::POST, CLASSES, Some(&class)).await?;
        self.managed(n, "").await?;
        let proxy = Proxy::start(Network { delay: DELAY, ..Network::default() }, &self.url)?;
        let url = std::mem::replace(&mut self.url, proxy.url.clone());
        self.managed(n, &format!(", {DELAY} ms")).await?;
        self.url = url;
        Ok(())
    }

    async fn managed(&mut self, n: usize, setting: &str) -> Result<(), Failure> {
        say(&format!("{n} claims with settings{setting}"));
        let operator = Operator::start(&self.url).await?;
        let names = (1..=n).map(|number| format!("c{number}")).collect();
        let work = load::create_named(&self.kubernetes, CLASS, names, |_| Ok(()));
        let work = async { Ok(work.await?.took) };
        let create =
            by_operator(&self.kubernetes, &operator, &format!("created, with settings{setting}"), n, n, work).await?;
        let policy = self.policy().await?;
        let work = load::delete(&self.kubernetes);
        let delete =
            by_operator(&self.kubernetes, &operator, &format!("deleted, with settings{setting}"), n, n, work).await?;
        operator.stop().await?;
        self.check_nothing_left().await?;
        let work = Work::CreateManaged(n, CLASS);
        let floor_create = by_floor(&self.kubernetes, &self.url, &create, n, &policy, work).await?;
        let floor_delete = by_floor(&self.kubernetes, &self.url, &delete, n, &policy, Work::Delete).await?;
        self.check_nothing_left().await?;
        for row in [create, floor_create, delete, floor_delete] {
            row.print();
        }
        Ok(())
    }
}
