//! Claims whose pods have access as ServiceAccounts, beside claims with keys.

use http::Method;
use serde_json::{Value, json};

use crate::Failure;
use crate::kubernetes::{CLASS as PLAIN, KEYLESS, SERVICE_ACCOUNTS, service_account};
use crate::load;
use crate::measure::by_operator;
use crate::operator::Operator;
use crate::parts::Bench;
use crate::say;
use crate::table::Row;

const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const ACCOUNTS: &str = "/api/v1/namespaces/bench/serviceaccounts";

impl Bench {
    /// `n` claims with keys, and as many of some ServiceAccounts, from their creation to all Bound and from their deletion to all
    /// gone. The ratio is that of both.
    pub(crate) async fn keyless(&mut self, n: usize) -> Result<(), Failure> {
        let configuration: Value = self.kubernetes.get("/.well-known/openid-configuration").await?;
        let issuer = configuration["issuer"].as_str().ok_or("the issuer of the cluster is not known")?;
        let issuer = issuer.trim_start_matches("https://");
        let mut class = self.kubernetes.get(&format!("{CLASSES}/{PLAIN}")).await?;
        class["metadata"] = json!({ "name": KEYLESS });
        class["parameters"]["authentication"] = json!("ServiceAccount");
        class["parameters"]["oidcProvider"] = json!(format!("arn:aws:iam::000000000000:oidc-provider/{issuer}"));
        self.kubernetes.send(Method::POST, CLASSES, Some(&class)).await?;
        for number in 0..SERVICE_ACCOUNTS {
            let account = json!({ "metadata": { "name": service_account(number) } });
            self.kubernetes.send(Method::POST, ACCOUNTS, Some(&account)).await?;
        }
        let with_keys = self.lives(n, PLAIN, "with keys").await?;
        let without = self.lives(n, KEYLESS, "without keys").await?;
        for (with_keys, without) in with_keys.into_iter().zip(without) {
            let ratio = Some(without.seconds / with_keys.seconds);
            with_keys.print();
            Row { ratio, ..without }.print();
        }
        Ok(())
    }

    async fn lives(&mut self, n: usize, class: &'static str, how: &str) -> Result<[Row; 2], Failure> {
        say(&format!("{n} claims {how}"));
        let operator = Operator::start(&self.url).await?;
        let names = (1..=n).map(|number| format!("c{number}")).collect();
        let work = load::create_named(&self.kubernetes, class, names, |_| Ok(()));
        let work = async { Ok(work.await?.took) };
        let create = by_operator(&self.kubernetes, &operator, &format!("created, {how}"), n, n, work).await?;
        let work = load::delete(&self.kubernetes);
        let delete = by_operator(&self.kubernetes, &operator, &format!("deleted, {how}"), n, n, work).await?;
        operator.stop().await?;
        self.check_nothing_left().await?;
        Ok([create, delete])
    }
}
