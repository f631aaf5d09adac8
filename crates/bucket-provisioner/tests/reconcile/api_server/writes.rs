//! What a write makes of an object, as the API server does it for every kind.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::objects::{Key, Objects};

/// The kinds with a subresource `status`.
const WITH_STATUS: [&str; 2] = ["objectbucketclaims", "objectbuckets"];

/// What a write does not change. (The version and the managed fields are computed.)
const KEPT: [&str; 5] = ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp"];

/// The HTTP status and the message of a refusal.
pub type Refusal = (u16, String);

/// A write of a caller.
pub struct Write<'a> {
    pub key: Key,
    pub body: &'a Value,
    pub manager: &'a str,
    pub dry_run: bool,
}

/// How a patch changes an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patch {
    Merge,
    MergeStatus,
    Apply,
}

fn has_status(key: &Key) -> bool {
    WITH_STATUS.contains(&key.plural.as_str())
}

fn not_found(key: &Key) -> Refusal {
    (404, format!("{} {:?} not found", key.plural, key.name))
}

fn is_empty_list(value: &Value) -> bool {
    value.as_array().is_none_or(Vec::is_empty)
}

/// A change is refused if it expects another object, or another version of it.
fn check_expected(current: &Value, expected: &Value, fields: &[&str]) -> Result<(), Refusal> {
    for field in fields {
        let (is, wanted) = (&current["metadata"][field], &expected[field]);
        if !wanted.is_null() && is != wanted {
            return Err((409, format!("the object has {field} {is}, not {wanted}")));
        }
    }
    Ok(())
}

pub fn create(objects: &mut Objects, write: Write<'_>) -> Result<Value, Refusal> {
    let Write { key, body, manager, dry_run } = write;
    if objects.get(&key).is_some() {
        return Err((409, format!("{} {:?} already exists", key.plural, key.name)));
    }
    let mut object = body.clone();
    object["metadata"]["uid"] = json!(objects.new_uid());
    object["metadata"]["creationTimestamp"] = json!(Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    object["metadata"]["generation"] = json!(1);
    if !key.namespace.is_empty() {
        object["metadata"]["namespace"] = json!(key.namespace);
    }
    if has_status(&key) {
        object.as_object_mut().expect("an object").remove("status");
    }
    if key.plural == "objectbucketclaims" && objects.has_default_condition {
        let pending = json!({ "type": "Ready", "status": "Unknown", "reason": "Pending", "message": "" });
        object["status"] = json!({ "conditions": [pending] });
    }
    note_manager(None, &mut object, manager, None);
    let object = without_empty(object);
    Ok(if dry_run { object } else { objects.write(key, object, true) })
}

pub fn patch(objects: &mut Objects, write: Write<'_>, how: Patch) -> Result<Value, Refusal> {
    let Write { key, body, manager, dry_run } = write;
    let Some(current) = objects.get(&key).cloned() else { return Err(not_found(&key)) };
    check_expected(&current, &body["metadata"], &["resourceVersion"])?;
    // A write of the status ignores it.
    if how != Patch::MergeStatus && check_expected(&current, &body["metadata"], &["uid"]).is_err() {
        return Err((422, "metadata.uid: field is immutable".to_owned()));
    }
    let mut next = current.clone();
    json_patch::merge(&mut next, body);
    if how == Patch::MergeStatus {
        let status = next["status"].take();
        next.clone_from(&current);
        next["status"] = status;
    } else if has_status(&key) {
        next["status"] = current["status"].clone();
    }
    for field in KEPT.into_iter().chain(["resourceVersion", "generation", "managedFields"]) {
        next["metadata"][field] = current["metadata"][field].clone();
    }
    let deleting = !current["metadata"]["deletionTimestamp"].is_null();
    let finalizers = |object: &Value| object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    if deleting && finalizers(&next).iter().any(|finalizer| !finalizers(&current).contains(finalizer)) {
        return Err((422, "no new finalizers can be added if the object is being deleted".to_owned()));
    }
    if next["spec"] != current["spec"] {
        next["metadata"]["generation"] = json!(current["metadata"]["generation"].as_u64().unwrap_or_default() + 1);
    }
    note_manager(Some(&current), &mut next, manager, (how == Patch::Apply).then_some(body));
    let next = without_empty(next);
    if dry_run || next == current {
        return Ok(next);
    }
    let remains = !(deleting && is_empty_list(&next["metadata"]["finalizers"]));
    Ok(objects.write(key, next, remains))
}

/// Deletes an object, or marks it as deleted if it has finalizers. `None`: it no longer exists.
pub fn delete(objects: &mut Objects, key: Key, preconditions: &Value) -> Result<Option<Value>, Refusal> {
    let Some(mut object) = objects.get(&key).cloned() else { return Err(not_found(&key)) };
    check_expected(&object, preconditions, &["resourceVersion", "uid"])?;
    if is_empty_list(&object["metadata"]["finalizers"]) {
        objects.write(key, object, false);
        return Ok(None);
    }
    if object["metadata"]["deletionTimestamp"].is_null() {
        object["metadata"]["deletionTimestamp"] = json!(Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        object = objects.write(key, object, true);
    }
    Ok(Some(object))
}

/// The API server stores no empty fields of the metadata, nor `null`.
fn without_empty(mut object: Value) -> Value {
    let is_empty = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    let clean = |fields: Option<&mut Value>| {
        fields.and_then(Value::as_object_mut).into_iter().for_each(|fields| fields.retain(|_, value| !is_empty(value)));
    };
    clean(object.get_mut("metadata"));
    clean(object.get_mut("spec"));
    clean(Some(&mut object));
    object
}

/// Notes who wrote which entries of `data`, which is all that the operator reads in `managedFields`. `applied`: all of
/// this is the manager's, even if it was the same before.
fn note_manager(before: Option<&Value>, after: &mut Value, manager: &str, applied: Option<&Value>) {
    let entries =
        |object: Option<&Value>| object.and_then(|object| object["data"].as_object()).cloned().unwrap_or_default();
    let (old, new, applied) = (entries(before), entries(Some(after)), entries(applied));
    let mut managers: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for noted in before.and_then(|object| object["metadata"]["managedFields"].as_array()).into_iter().flatten() {
        let fields = noted["fieldsV1"]["f:data"].as_object().into_iter().flatten().map(|(key, _)| key.clone());
        managers.insert(noted["manager"].as_str().unwrap_or_default().to_owned(), fields.collect());
    }
    for key in old.keys().chain(new.keys()).filter(|key| old.get(*key) != new.get(*key)) {
        for keys in managers.values_mut() {
            keys.remove(&format!("f:{key}"));
        }
        if new.contains_key(key) {
            managers.entry(manager.to_owned()).or_default().insert(format!("f:{key}"));
        }
    }
    if !applied.is_empty() {
        managers.entry(manager.to_owned()).or_default().extend(applied.keys().map(|key| format!("f:{key}")));
    }
    let noted = managers.into_iter().filter(|(_, keys)| !keys.is_empty()).map(|(manager, keys)| {
        let fields: serde_json::Map<_, _> = keys.into_iter().map(|key| (key, json!({}))).collect();
        json!({ "manager": manager, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": { "f:data": fields } })
    });
    let noted: Vec<_> = noted.collect();
    if !noted.is_empty() {
        after["metadata"]["managedFields"] = json!(noted);
    }
}
