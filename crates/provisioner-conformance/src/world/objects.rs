//! All that a world has in its cluster.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, DynamicObject, ListParams, ObjectMeta, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Resource, ResourceExt as _};
use serde_json::json;

use super::World;
use super::backup::unfinalized;

impl World {
    /// Kind and name of everything with the world's id in its name, and of everything in its namespace that an operator
    /// could change, with the version of each.
    pub async fn objects(&self) -> BTreeMap<String, String> {
        let of_world = |name: &str| name.contains(&self.id);
        let mut objects = versions(&self.claims(), |_| true).await;
        objects.extend(versions(&self.secrets(), |_| true).await);
        objects.extend(versions(&self.config_maps(), |_| true).await);
        objects.extend(versions(&self.records(), of_world).await);
        objects.extend(versions(&self.classes(), of_world).await);
        objects
    }

    /// The versions of a claim, its record, its Secret and its ConfigMap.
    pub async fn versions(&self, claim: &str) -> [Option<String>; 4] {
        [
            self.claims().get(claim).await.unwrap().resource_version(),
            self.records().get(&self.record_name(claim)).await.unwrap().resource_version(),
            self.secrets().get(claim).await.unwrap().resource_version(),
            self.config_maps().get(claim).await.unwrap().resource_version(),
        ]
    }

    /// Everything in the cluster that people see who may not read Secrets, as JSON with the kind of each: claims, records,
    /// events and ConfigMaps.
    pub async fn in_plain_sight(&self) -> Vec<(String, String)> {
        let mut seen = vec![];
        for (group, version, kind, plural) in [
            ("objectbucket.io", "v1alpha1", "ObjectBucketClaim", "objectbucketclaims"),
            ("objectbucket.io", "v1alpha1", "ObjectBucket", "objectbuckets"),
            ("events.k8s.io", "v1", "Event", "events"),
            ("", "v1", "ConfigMap", "configmaps"),
        ] {
            let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
            let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
            let objects = api.list(&ListParams::default()).await.unwrap();
            seen.push((kind.to_owned(), serde_json::to_string(&objects).unwrap()));
        }
        seen
    }

    /// Creates foreign objects that look like an operator's: outputs, and a claim of another provisioner with its record.
    pub async fn create_unrelated_objects(&self) {
        let foreign = self.unique("bystander");
        let metadata = || ObjectMeta { name: Some("bystander".to_owned()), ..ObjectMeta::default() };
        let secret = Secret { metadata: metadata(), ..Secret::default() };
        self.secrets().create(&PostParams::default(), &secret).await.unwrap();
        let config_map = ConfigMap { metadata: metadata(), ..ConfigMap::default() };
        self.config_maps().create(&PostParams::default(), &config_map).await.unwrap();
        self.create_class(json!({
            "metadata": { "name": foreign }, "provisioner": "another.example.com/bucket", "parameters": {},
        }))
        .await;
        self.claim("bystander", &foreign).await;
        let record = json!({
            "metadata": { "name": self.record_name("bystander") },
            "spec": { "storageClassName": foreign },
        });
        self.records().create(&PostParams::default(), &serde_json::from_value(record).unwrap()).await.unwrap();
    }

    /// Removes all that the world has made in its cluster, also its namespace, as far as it can. The store is not asked; no
    /// operator may run.
    pub async fn clear(&self) {
        let (all, delete) = (ListParams::default(), DeleteParams::default());
        if self.owns_namespace {
            for claim in self.claims().list_metadata(&all).await.into_iter().flatten() {
                self.force_out(&self.claims(), &claim.name_any()).await;
            }
        }
        for record in self.records().list_metadata(&all).await.into_iter().flatten() {
            if record.name_any().contains(&self.id) {
                self.force_out(&self.records(), &record.name_any()).await;
            }
        }
        for class in self.classes().list_metadata(&all).await.into_iter().flatten() {
            if class.name_any().contains(&self.id) {
                let _ = self.classes().delete(&class.name_any(), &delete).await;
            }
        }
        if self.owns_namespace {
            let namespaces: Api<Namespace> = Api::all(self.client.clone());
            let _ = namespaces.delete(&self.namespace, &delete).await;
        }
    }

    /// Deletes an object and its finalizers, if it is there.
    async fn force_out<K>(&self, api: &Api<K>, name: &str)
    where
        K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let _ = api.delete(name, &DeleteParams::default()).await;
        let _ = api.patch_metadata(name, &PatchParams::default(), &unfinalized()).await;
    }

    fn classes(&self) -> Api<StorageClass> {
        Api::all(self.client.clone())
    }
}

async fn versions<K>(api: &Api<K>, wanted: impl Fn(&str) -> bool) -> BTreeMap<String, String>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let all = api.list(&ListParams::default()).await.unwrap();
    let mine = all.iter().filter(|object| wanted(&object.name_any()));
    let state = |object: &K| (format!("{} {}", K::kind(&()), object.name_any()), object.resource_version().unwrap());
    mine.map(state).collect()
}

/// Requires that a secret is in none of these texts: as it is, as `data` of a Secret has it, as in JSON or in a URL, or in a
/// dump in hexadecimal digits. A long piece counts as well, because dumps have short lines.
#[track_caller]
pub fn assert_hidden(secret: &str, places: &[(String, String)]) {
    let json = serde_json::to_value(k8s_openapi::ByteString(secret.as_bytes().to_vec())).unwrap();
    let in_json = serde_json::to_string(secret).unwrap();
    let in_url: String = form_urlencoded::byte_serialize(secret.as_bytes()).collect();
    let in_hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    let forms = [
        ("as it is", secret),
        ("in base64", json.as_str().unwrap()),
        ("in JSON", in_json.trim_matches('"')),
        ("in a URL", &in_url),
    ];
    for (place, text) in places {
        for piece in forms.iter().flat_map(|(form, hidden)| pieces(hidden, 12).map(move |piece| (form, piece))) {
            if text.contains(piece.1) {
                let line = text.lines().find(|line| line.contains(piece.1)).unwrap_or_default();
                let line: String = line.replace(piece.1, "***").chars().take(300).collect();
                panic!("{place} holds a secret {}, where this line has ***: {line}", piece.0);
            }
        }
        let solid: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let dumped = pieces(&in_hex, 16).any(|piece| solid.contains(piece));
        assert!(!dumped, "{place} holds a secret in hexadecimal digits");
    }
}

/// All pieces of this length, in bytes; the whole if it is shorter.
fn pieces(text: &str, length: usize) -> impl Iterator<Item = &str> {
    let last = text.len().saturating_sub(length);
    (0..=last).filter_map(move |start| text.get(start..(start + length).min(text.len())))
}

#[cfg(test)]
mod tests {
    use super::assert_hidden;

    const SECRET: &str = "let-me-in-0123456789";

    #[test]
    #[should_panic(expected = "holds a secret as it is, where this line has ***: rer.***")]
    fn a_piece_of_a_secret_is_found_in_the_line_of_a_dump() {
        assert_hidden(SECRET, &[("the log".to_owned(), "a line\nrer.let-me-in-01".to_owned())]);
    }

    #[test]
    #[should_panic(expected = "in hexadecimal digits")]
    fn a_secret_is_found_in_hexadecimal_digits() {
        assert_hidden(SECRET, &[("the log".to_owned(), "7265 7220 6c65 742d 6d65 2d69 6e2d 3031".to_owned())]);
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        assert_hidden(SECRET, &[("the log".to_owned(), "let me in".to_owned())]);
    }
}
