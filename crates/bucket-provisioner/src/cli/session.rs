//! What all commands for admins use to read the cluster and the store.

use std::collections::HashMap;
use std::error::Error;
use std::fmt::Debug;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::ListParams;
use kube::{Api, Client};
use serde::de::DeserializeOwned;

use crate::api::{Guard, ObjectBucket, wire};
use crate::controller::Options;
use crate::decide::claim::Guarded;
use crate::decide::class::{Class, ClassLookup};
use crate::decide::metadata::FieldManager;
use crate::store::Provisioner;
use operator_runtime::kubernetes::{answers, pages};
use operator_runtime::program::chain;

/// Objects in a page of a list.
const PAGE: u32 = 200;

/// The cluster, the store, and whose claims a command reads.
pub(crate) struct Session<P> {
    pub(crate) client: Client,
    pub(crate) store: P,
    pub(crate) field_manager: FieldManager,
    /// `StorageClass.provisioner` of the classes.
    pub(crate) provisioner: String,
    /// The only namespace whose claims are read; all if `None`.
    pub(crate) namespace: Option<String>,
    /// Names of leases. A serving operator holds one of them.
    pub(crate) leases: Vec<String>,
    /// Name of the program, for remedies.
    pub(crate) program: String,
}

impl<P: Provisioner> Session<P> {
    pub(crate) fn new(client: Client, store: P, options: &Options, leases: Vec<String>, program: &str) -> Self {
        Self {
            client: pages::bounded(client),
            store,
            field_manager: FieldManager::new(&options.field_manager),
            provisioner: options.provisioner_name.clone(),
            namespace: options.namespace.clone(),
            leases,
            program: program.to_owned(),
        }
    }

    /// The label of this provisioner's objects.
    pub(crate) fn label(&self) -> String {
        wire::provisioner_label(&self.provisioner)
    }

    /// The claims of the chosen namespace, or of all.
    pub(crate) fn claims(&self) -> Api<Guarded> {
        self.chosen()
    }

    /// The claims of one namespace.
    pub(crate) fn claims_in(&self, namespace: &str) -> Api<Guarded> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// All ObjectBuckets.
    pub(crate) fn records(&self) -> Api<Guard<ObjectBucket>> {
        Api::all(self.client.clone())
    }

    /// Objects of the chosen namespace, or of all.
    pub(crate) fn chosen<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    /// All StorageClasses.
    ///
    /// # Errors
    /// Kubernetes refused.
    pub(crate) async fn classes(&self) -> Result<Classes, Box<dyn Error>> {
        let api: Api<StorageClass> = Api::all(self.client.clone());
        let mut all = HashMap::new();
        each(&api, None, "list StorageClasses", |class: StorageClass| {
            let class = Class::read(&class);
            all.insert(class.name.clone(), class);
        })
        .await?;
        Ok(Classes(all))
    }

    /// The uid of the cluster, which ObjectBuckets and tags record.
    ///
    /// # Errors
    /// Kubernetes refused.
    pub(crate) async fn cluster(&self) -> Result<String, Box<dyn Error>> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let namespace = api.get_metadata(wire::CLUSTER_NAMESPACE).await;
        let namespace = namespace
            .map_err(|error| refused("read namespace kube-system, whose uid is that of the cluster", &error))?;
        namespace.metadata.uid.ok_or_else(|| "namespace kube-system has no uid".into())
    }

    /// # Errors
    /// Kubernetes refused, or there is no such claim.
    pub(crate) async fn claim(&self, namespace: &str, name: &str) -> Result<Guarded, Box<dyn Error>> {
        let found = self.claims_in(namespace).get_opt(name).await.map_err(|error| refused("read the claim", &error))?;
        found.ok_or_else(|| {
            format!("ObjectBucketClaim {namespace}/{name} does not exist; `kubectl get obc -A` lists all").into()
        })
    }
}

/// The StorageClasses of the cluster, by name.
pub(crate) struct Classes(HashMap<String, Class>);

impl Classes {
    /// The class with this name.
    pub(crate) fn named(&self, name: Option<&str>) -> ClassLookup {
        match name.filter(|name| !name.is_empty()) {
            None => ClassLookup::Unnamed,
            Some(name) => match self.0.get(name) {
                Some(class) => ClassLookup::Found(class.clone()),
                None => ClassLookup::Missing { name: name.to_owned() },
            },
        }
    }

    /// Those of a provisioner, by name.
    pub(crate) fn of(&self, provisioner: &str) -> Vec<&Class> {
        let mut ours: Vec<_> = self.0.values().filter(|class| class.provisioner == provisioner).collect();
        ours.sort_by(|a, b| a.name.cmp(&b.name));
        ours
    }
}

/// Lists objects page by page, so that only the objects that `take` keeps are in memory.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn each<K: Clone + Debug + DeserializeOwned>(
    api: &Api<K>,
    labels: Option<&str>,
    what: &str,
    take: impl FnMut(K),
) -> Result<(), Box<dyn Error>> {
    Ok(each_of(api, labels, take).await.map_err(|error| refused(what, &error))?)
}

/// Like [`each`], but returns the error of kube itself.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn each_of<K: Clone + Debug + DeserializeOwned>(
    api: &Api<K>,
    labels: Option<&str>,
    mut take: impl FnMut(K),
) -> Result<(), kube::Error> {
    let mut params = params(labels);
    loop {
        let page = api.list(&params).await?;
        page.items.into_iter().for_each(&mut take);
        match page.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => params = params.continue_token(&next),
            None => return Ok(()),
        }
    }
}

/// Like [`each_of`], but reads only the metadata.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn each_metadata<K: Clone + Debug + DeserializeOwned>(
    api: &Api<K>,
    labels: Option<&str>,
    mut take: impl FnMut(kube::core::ObjectMeta),
) -> Result<(), kube::Error> {
    let mut params = params(labels);
    loop {
        let page = api.list_metadata(&params).await?;
        page.items.into_iter().for_each(|object| take(object.metadata));
        match page.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => params = params.continue_token(&next),
            None => return Ok(()),
        }
    }
}

fn params(labels: Option<&str>) -> ListParams {
    ListParams { label_selector: labels.map(str::to_owned), ..ListParams::default() }.limit(PAGE)
}

/// What failed, why, and the remedy.
pub(crate) fn refused(what: &str, error: &kube::Error) -> String {
    let remedy = match answers::status_code(error) {
        Some(403) => "; request the permission",
        Some(404) => "; install the CustomResourceDefinitions first",
        Some(410) => "; the list took too long: run the command again",
        _ => "",
    };
    let reason = match error {
        kube::Error::Api(_) => answers::describe(error),
        error => chain(error),
    };
    format!("cannot {what}: {reason}{remedy}")
}
