//! An EKS cluster of the emulated AWS, and a role for its pods. The agent that gives pods their sessions runs on no emulator; a
//! session of the role with the policy of their association is the same.

use std::collections::BTreeMap;

use aws_sdk_eks::error::ProvideErrorMetadata as _;
use aws_sdk_eks::types::{PodIdentityAssociation, VpcConfigRequest};
use base64_simd::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::REGION;
use super::account::Account;

pub(crate) const ACCOUNT: &str = "000000000000";
/// Of the tokens with which pods ask the agent.
pub(crate) const AUDIENCE: &str = "pods.eks.amazonaws.com";

pub(crate) struct Pods {
    pub(crate) cluster: String,
    /// ARN.
    pub(crate) role: String,
}

impl Pods {
    /// Makes the cluster and the role, unless they exist.
    pub(crate) async fn create(account: &Account, name: &str) -> Self {
        let pods = Self::named(name);
        let trust = trust(&[
            json!({ "Service": "pods.eks.amazonaws.com" }),
            json!({ "AWS": format!("arn:aws:iam::{ACCOUNT}:root") }),
        ]);
        let create = account.iam.create_role().role_name(name).assume_role_policy_document(trust);
        exists(create.send().await.err().and_then(|error| error.code().map(str::to_owned)));
        // The association alone limits it.
        let all =
            json!({ "Version": "2012-10-17", "Statement": [{ "Effect": "Allow", "Action": "s3:*", "Resource": "*" }] });
        let put = account.iam.put_role_policy().role_name(name).policy_name("all").policy_document(all.to_string());
        put.send().await.unwrap();
        let vpc = VpcConfigRequest::builder().subnet_ids("subnet-1").build();
        let create = account.eks.create_cluster().name(name).resources_vpc_config(vpc).role_arn(&pods.role);
        exists(create.send().await.err().and_then(|error| error.code().map(str::to_owned)));
        pods
    }

    /// Those that exist.
    pub(crate) fn named(name: &str) -> Self {
        Self { cluster: name.to_owned(), role: format!("arn:aws:iam::{ACCOUNT}:role/{name}") }
    }

    /// Of a class.
    pub(crate) fn parameters(&self) -> [(&'static str, String); 3] {
        let cluster = format!("arn:aws:eks:{REGION}:{ACCOUNT}:cluster/{}", self.cluster);
        let authentication = "ServiceAccount".to_owned();
        [("authentication", authentication), ("eksCluster", cluster), ("podRole", self.role.clone())]
    }

    /// The association of a ServiceAccount (its namespace and its name).
    pub(crate) async fn association(&self, account: &Account, of: [&str; 2]) -> Option<PodIdentityAssociation> {
        let list = account.eks.list_pod_identity_associations().cluster_name(&self.cluster);
        let listed = list.namespace(of[0]).service_account(of[1]).send().await.unwrap().associations;
        let listed = listed.unwrap_or_default();
        assert!(listed.len() <= 1, "{listed:?}");
        let id = listed.into_iter().next()?.association_id?;
        let describe = account.eks.describe_pod_identity_association().cluster_name(&self.cluster).association_id(id);
        describe.send().await.ok()?.association
    }

    /// The ids of its statements.
    pub(crate) async fn ids(&self, account: &Account, of: [&str; 2]) -> Vec<String> {
        let Some(found) = self.association(account, of).await else { return Vec::new() };
        let policy: Value = serde_json::from_str(&found.policy.unwrap_or_default()).unwrap();
        let ids = policy["Statement"].as_array().unwrap().iter();
        let mut ids: Vec<_> = ids.map(|statement| statement["Sid"].as_str().unwrap().to_owned()).collect();
        ids.sort_unstable();
        ids
    }

    /// What a pod of the ServiceAccount is; `None` if it gets no session.
    pub(crate) async fn pod(&self, account: &Account, of: [&str; 2]) -> Option<Account> {
        let found = self.association(account, of).await?;
        Some(account.limited(&self.role, &found.policy?).await)
    }

    /// The same for whoever has this token.
    pub(crate) async fn pod_with(&self, account: &Account, token: &str) -> Option<Account> {
        let claims = token.split('.').nth(1).unwrap();
        let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode_to_vec(claims).unwrap()).unwrap();
        let names: Vec<_> = claims["sub"].as_str().unwrap().split(':').collect();
        self.pod(account, [names[2], names[3]]).await
    }

    /// The associations of namespaces with `id` in their names: what they are, by a name for each.
    pub(crate) async fn associations_with(&self, account: &Account, id: &str) -> BTreeMap<String, String> {
        let list = account.eks.list_pod_identity_associations().cluster_name(&self.cluster);
        let Ok(listed) = list.send().await else { return BTreeMap::new() };
        let mut found = BTreeMap::new();
        for one in listed.associations.unwrap_or_default() {
            let (namespace, name) = (one.namespace.unwrap(), one.service_account.unwrap());
            if namespace.contains(id)
                && let Some(whole) = self.association(account, [&namespace, &name]).await
            {
                let settings = format!("policy {:?}, tags {:?}", whole.policy, whole.tags);
                found.insert(format!("association of {namespace} {}", whole.association_id.unwrap()), settings);
            }
        }
        found
    }

    /// Deletes the association of such a name; returns whether it is one.
    pub(crate) async fn delete(&self, account: &Account, name: &str) -> bool {
        let Some((_, id)) = name.strip_prefix("association of ").and_then(|rest| rest.split_once(' ')) else {
            return false;
        };
        let delete = account.eks.delete_pod_identity_association().cluster_name(&self.cluster).association_id(id);
        delete.send().await.unwrap();
        true
    }
}

/// A policy with which these can assume a role.
pub(crate) fn trust(principals: &[Value]) -> String {
    let actions = ["sts:AssumeRole", "sts:TagSession"];
    let statements =
        principals.iter().map(|principal| json!({ "Effect": "Allow", "Principal": principal, "Action": actions }));
    json!({ "Version": "2012-10-17", "Statement": statements.collect::<Vec<_>>() }).to_string()
}

fn exists(refused: Option<String>) {
    let codes = [None, Some("EntityAlreadyExists"), Some("ResourceInUseException")];
    assert!(codes.contains(&refused.as_deref()), "{refused:?}");
}
