//! Leases of the same name in other namespaces: operators for the same objects that somebody installed twice. A lease keeps
//! apart only those that share its namespace.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use tokio::time::timeout;

use super::election::{duration, holder};
use super::log::{describe, no_answer};

/// How far the clocks of nodes may be apart.
const CLOCKS: Duration = Duration::from_secs(60);

pub(super) struct Others {
    api: Api<Lease>,
    name: String,
    namespace: String,
    /// How long an answer may take.
    limit: Duration,
}

impl Others {
    pub(super) fn new(client: Client, name: &str, namespace: &str, limit: Duration) -> Self {
        Self { api: Api::all(client), name: name.to_owned(), namespace: namespace.to_owned(), limit }
    }

    /// Who leads in another namespace, as `namespace/holder`. `None` if nobody does, or if that cannot be seen.
    pub(super) async fn leader(&self) -> Option<String> {
        let params = ListParams::default().fields(&format!("metadata.name={}", self.name));
        let problem = match timeout(self.limit, self.api.list(&params)).await {
            Ok(Ok(leases)) => {
                let now = Timestamp::now();
                return leases.items.iter().find_map(|lease| self.leads(lease, now));
            }
            Ok(Err(error)) => describe(&error),
            Err(_elapsed) => no_answer(self.limit),
        };
        tracing::warn!(
            lease = self.name,
            problem,
            "cannot see whether an operator in another namespace serves the same; serving nevertheless"
        );
        None
    }

    fn leads(&self, lease: &Lease, now: Timestamp) -> Option<String> {
        let namespace = lease.namespace().filter(|namespace| *namespace != self.namespace)?;
        let record = lease.spec.as_ref()?;
        let holder = holder(record)?;
        let silent = now.duration_since(record.renew_time.as_ref()?.0);
        let valid = duration(record).unwrap_or_default() + CLOCKS;
        (silent <= valid.try_into().unwrap_or_default()).then(|| format!("{namespace}/{holder}"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use k8s_openapi::api::coordination::v1::LeaseSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    use kube::core::ObjectMeta;

    use super::*;

    #[tokio::test]
    async fn only_a_live_holder_in_another_namespace_leads() {
        let client = Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let others = Others::new(client, "l", "ours", CLOCKS);
        let now = Timestamp::now();
        let leads = |namespace: &str, holder: &str, seconds_ago: i64| {
            let renewed = Timestamp::from_second(now.as_second() - seconds_ago).unwrap();
            let spec = LeaseSpec {
                holder_identity: Some(holder.to_owned()),
                lease_duration_seconds: Some(15),
                renew_time: Some(MicroTime(renewed)),
                ..LeaseSpec::default()
            };
            let metadata = ObjectMeta { namespace: Some(namespace.to_owned()), ..ObjectMeta::default() };
            others.leads(&Lease { metadata, spec: Some(spec) }, now)
        };
        assert_eq!(leads("theirs", "pod_1", 2).as_deref(), Some("theirs/pod_1"));
        assert_eq!(leads("theirs", "pod_1", -50).as_deref(), Some("theirs/pod_1"), "its clock is ahead");
        assert_eq!(leads("theirs", "pod_1", 70).as_deref(), Some("theirs/pod_1"), "its clock is behind");
        assert_eq!(leads("theirs", "pod_1", 80), None, "it has crashed");
        assert_eq!(leads("theirs", "", 0), None, "it was released");
        assert_eq!(leads("ours", "pod_2", 0), None);
    }
}
