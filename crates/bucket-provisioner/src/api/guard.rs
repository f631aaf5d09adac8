//! Objects of which some cannot be read: they must not keep the others from being listed and watched.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::{DeserializeOwned, DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// What is not read: half of an object of ours.
const LEFT_OUT: &[&str] = &["metadata", "managedFields"];

/// An object without its `managedFields`, or what is known of one that cannot be read. Thousands are read when the
/// operator starts; kube's `DeserializeGuard` takes twice as long for each, and does not leave out what nobody needs.
#[derive(Debug, Clone)]
pub(crate) struct Guard<K>(pub(crate) Result<K, Unreadable>);

/// An object that cannot be read, and why.
#[derive(Debug, Clone)]
pub(crate) struct Unreadable {
    pub(crate) error: String,
    pub(crate) metadata: ObjectMeta,
    /// The bucket of an ObjectBucket.
    pub(crate) bucket: Option<String>,
    /// The StorageClass of a claim, which names its provisioner.
    pub(crate) class: Option<String>,
}

impl Unreadable {
    /// Name of the object.
    pub(crate) fn name(&self) -> String {
        self.metadata.name.clone().unwrap_or_default()
    }
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Guard<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = Without(LEFT_OUT).deserialize(deserializer)?;
        let read = K::deserialize(&object).map_err(|error| error.to_string());
        let unreadable = |error| {
            let metadata = object.get("metadata").ok_or_else(|| Error::missing_field("metadata"))?;
            let metadata = ObjectMeta::deserialize(metadata).map_err(Error::custom)?;
            let text = |path: &str| object.pointer(path).and_then(Value::as_str).map(str::to_owned);
            let (bucket, class) = (text("/spec/endpoint/bucketName"), text("/spec/storageClassName"));
            Ok(Err(Unreadable { error, metadata, bucket, class }))
        };
        Ok(Self(read.map(Ok).or_else(unreadable)?))
    }
}

/// Reads an object as JSON without the field of this path.
struct Without(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for Without {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Without {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut read = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let value = match self.0 {
                [only] if name == *only => {
                    fields.next_value::<IgnoredAny>()?;
                    continue;
                }
                [first, rest @ ..] if name == *first => fields.next_value_seed(Self(rest))?,
                _ => fields.next_value()?,
            };
            read.insert(name, value);
        }
        Ok(Value::Object(read))
    }
}

impl<K: Resource> Resource for Guard<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(of: &K::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }

    fn group(of: &K::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }

    fn version(of: &K::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }

    fn plural(of: &K::DynamicType) -> Cow<'_, str> {
        K::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|unreadable| &unreadable.metadata, K::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.as_mut().map_or_else(|unreadable| &mut unreadable.metadata, K::meta_mut)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::ResourceExt as _;
    use serde_json::json;

    use super::*;

    fn read(object: Value) -> Result<Guard<ConfigMap>, serde_json::Error> {
        // As text, as the API server sends it.
        serde_json::from_str(&object.to_string())
    }

    #[test]
    fn what_can_be_read_is_read() {
        let map = read(json!({ "metadata": { "name": "a" }, "data": { "key": "value" } })).unwrap();
        assert_eq!(map.name_any(), "a");
        assert_eq!(map.0.unwrap().data.unwrap()["key"], "value");
    }

    #[test]
    fn managed_fields_are_not_kept() {
        let written = json!([{ "manager": "kubectl", "fieldsV1": { "f:data": {} } }]);
        let map = json!({ "metadata": { "name": "a", "managedFields": written }, "data": { "managedFields": "data" } });
        let map = read(map).unwrap();
        assert_eq!((map.name_any().as_str(), &map.meta().managed_fields), ("a", &None));
        assert_eq!(map.0.unwrap().data.unwrap()["managedFields"], "data");
    }

    #[test]
    fn unreadable_objects_keep_metadata_and_reason() {
        let map = read(json!({ "metadata": { "name": "a", "uid": "1" }, "data": ["no map"] })).unwrap();
        assert_eq!((map.name_any().as_str(), map.uid().as_deref()), ("a", Some("1")));
        assert!(map.0.unwrap_err().error.contains("invalid type"));
    }

    #[test]
    fn without_metadata_it_is_no_object() {
        assert!(read(json!({ "data": ["no map"] })).is_err());
        assert!(read(json!({ "metadata": 1, "data": ["no map"] })).is_err());
    }
}
