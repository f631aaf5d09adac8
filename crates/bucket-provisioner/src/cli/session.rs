//! What all commands for admins use to read the cluster and the store.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::core::{ClusterResourceScope, NamespaceResourceScope, ObjectList};
use kube::{Api, Client, Config};
use serde::de::DeserializeOwned;

use crate::api::{ObjectBucket, object_name, wire};
use crate::decide::claim::Guarded;
use crate::decide::metadata::FieldManager;
use crate::decide::record;
use operator_runtime::kubernetes::answers;
use operator_runtime::lease;
use operator_runtime::program::chain;

/// What [`Session::cluster`] does.
pub(crate) const CLUSTER: &str = "read namespace kube-system, whose uid is that of the cluster";
/// Objects in a page of a list.
const PAGE: u32 = 200;

/// The cluster, the store, and whose claims a command reads.
pub(crate) struct Session<P> {
    pub(crate) client: Client,
    pub(crate) config: Config,
    pub(crate) store: P,
    pub(crate) field_manager: FieldManager,
    /// `StorageClass.provisioner` of the classes.
    pub(crate) provisioner: String,
    /// The only namespace whose claims are read; all if `None`. A claim that is named alone is in it, or in that of the
    /// context.
    pub(crate) namespace: Option<String>,
    /// The lease of the operator, in any namespace if its namespace is empty. `None`: without leader election.
    pub(crate) lease: Option<lease::Options>,
    /// Names of leases. A serving operator holds one of them.
    pub(crate) leases: Vec<String>,
    /// Name of the program, for remedies.
    pub(crate) program: String,
    /// Version of the program; empty if it has none.
    pub(crate) version: String,
}

impl<P> Session<P> {
    /// The label of this provisioner's objects.
    pub(crate) fn label(&self) -> String {
        wire::provisioner_label(&self.provisioner)
    }

    /// Whether claims of this namespace are read.
    pub(crate) fn includes(&self, namespace: &str) -> bool {
        self.namespace.as_deref().is_none_or(|chosen| chosen == namespace)
    }

    /// Whether this provisioner wrote the ObjectBucket, for a claim that is read.
    pub(crate) fn owns(&self, object: &ObjectBucket) -> bool {
        record::is_ours(object, &self.provisioner)
            && record::claim_name(object).is_none_or(|(namespace, _)| self.includes(namespace))
    }

    /// Cluster-scoped objects.
    pub(crate) fn all<K: kube::Resource<Scope = ClusterResourceScope, DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    /// Objects of one namespace.
    pub(crate) fn of<K>(&self, namespace: &str) -> Api<K>
    where
        K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Objects of the chosen namespace, or of all.
    pub(crate) fn chosen<K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>>(&self) -> Api<K> {
        self.namespace.as_deref().map_or_else(|| Api::all(self.client.clone()), |namespace| self.of(namespace))
    }

    /// The uid of the cluster, which ObjectBuckets and tags record.
    pub(crate) async fn cluster(&self) -> kube::Result<String> {
        let namespace = self.all::<Namespace>().get_metadata(wire::CLUSTER_NAMESPACE).await?;
        Ok(namespace.metadata.uid.unwrap_or_default())
    }

    /// # Errors
    /// Kubernetes refused.
    pub(crate) async fn find_claim(&self, namespace: &str, name: &str) -> Result<Option<Guarded>, String> {
        self.of(namespace).get_opt(name).await.map_err(refused("read the claim"))
    }

    /// # Errors
    /// Kubernetes refused, or there is no such claim.
    pub(crate) async fn claim(&self, namespace: &str, name: &str) -> Result<Guarded, String> {
        self.find_claim(namespace, name).await?.ok_or_else(|| no_claim(namespace, name))
    }

    /// Namespace and name of a claim; the namespace may be that of `--namespace`, or of the context.
    ///
    /// # Errors
    /// These are no names.
    pub(crate) fn named(&self, text: &str) -> Result<(String, String), String> {
        let own = self.namespace.as_ref().unwrap_or(&self.config.default_namespace);
        let (namespace, name) = text.split_once('/').unwrap_or((own, text));
        if object_name(namespace).is_none() || object_name(name).is_none() {
            return Err(format!("{text:?} is not a claim's namespace and name, such as shop/photos"));
        }
        Ok((namespace.to_owned(), name.to_owned()))
    }
}

pub(crate) fn no_claim(namespace: &str, name: &str) -> String {
    format!("ObjectBucketClaim {namespace}/{name} does not exist; `kubectl get obc -A` lists all")
}

/// Lists objects page by page.
pub(crate) async fn list<K: Clone + Debug + DeserializeOwned, U>(
    api: &Api<K>,
    keep: impl Fn(K) -> Option<U>,
) -> kube::Result<Vec<U>> {
    pages(ListParams::default(), async |params| api.list(&params).await, keep).await
}

/// Reads all pages of a list. Only what `keep` returns stays in memory: tenants can write large objects.
pub(crate) async fn pages<T: Clone, U>(
    params: ListParams,
    list: impl AsyncFn(ListParams) -> kube::Result<ObjectList<T>>,
    keep: impl Fn(T) -> Option<U>,
) -> kube::Result<Vec<U>> {
    let mut params = params.limit(PAGE);
    let mut all = Vec::new();
    loop {
        let page = list(params.clone()).await?;
        all.extend(page.items.into_iter().filter_map(&keep));
        match page.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => params = params.continue_token(&next),
            None => return Ok(all),
        }
    }
}

/// What failed, why, and the remedy.
pub(crate) fn refused(what: &str) -> impl Fn(kube::Error) -> String {
    move |error| {
        let remedy = match answers::status_code(&error) {
            Some(403) => "; request the permission",
            Some(404) => "; install the CustomResourceDefinitions first",
            Some(410) => "; the list took too long: run the command again",
            _ => "",
        };
        let reason = match &error {
            kube::Error::Api(_) => answers::describe(&error),
            error => chain(error),
        };
        format!("cannot {what}: {reason}{remedy}")
    }
}
