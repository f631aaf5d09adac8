//! Buckets of deleted claims that are scheduled for deletion (`onDelete: after:7d`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use crate::api::{ObjectBucket, wire};
use crate::cli::output::until;
use crate::decide::{notice, record, release};

/// The deletion of one bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Scheduled {
    pub(crate) delete_at: Time,
    /// It waits for other claims that use the bucket, and not for that time.
    pub(crate) is_in_use: bool,
    pub(crate) object_bucket: String,
    pub(crate) bucket: Option<String>,
    /// Namespace and name of the deleted claim.
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
}

impl Scheduled {
    /// The deletion that an ObjectBucket schedules.
    pub(crate) fn read(object: &ObjectBucket) -> Option<Self> {
        let delete_at = Time(release::delete_at(object)?);
        let claim = record::claim_name(object);
        Some(Self {
            delete_at,
            is_in_use: notice::reports_bucket_in_use(object),
            object_bucket: record::name(object),
            bucket: record::bucket(object).map(str::to_owned),
            namespace: claim.map(|(namespace, _)| namespace.to_owned()),
            name: claim.map(|(_, name)| name.to_owned()),
        })
    }

    /// The message for a user who requests the status of the deleted claim.
    pub(crate) fn message(&self) -> String {
        let (bucket, object) = (self.bucket.as_deref().unwrap_or_default(), &self.object_bucket);
        let claim = format!(
            "ObjectBucketClaim {}/{} was deleted",
            self.namespace.as_deref().unwrap_or_default(),
            self.name.as_deref().unwrap_or_default()
        );
        match self.is_in_use {
            true => format!(
                "{claim}; its bucket {bucket:?} and ObjectBucket {object:?} stay as long as other claims use the bucket. To get the bucket back, annotate the ObjectBucket with {}={} (admin), then create the claim again",
                wire::annotation::ORPHAN,
                wire::annotation::ORPHAN_ADOPT,
            ),
            false => format!(
                "{claim}; its bucket {bucket:?} and ObjectBucket {object:?} stay until {}. To undo the deletion, create the claim again, with the same class and the annotation {}: \"yes\"",
                release::text(self.delete_at.0),
                wire::annotation::UNDO_DELETE,
            ),
        }
    }
}

/// How many buckets are scheduled for deletion, and when the first is deleted; `None` if there are none.
pub(crate) fn summary(scheduled: &[Scheduled], now: Timestamp) -> Option<String> {
    let first = scheduled.iter().min_by_key(|one| (one.is_in_use, &one.delete_at, &one.object_bucket))?;
    let subject = match scheduled.len() {
        1 => "1 bucket of a deleted claim is".to_owned(),
        many => format!("{many} buckets of deleted claims are"),
    };
    let left = match until(Some(&first.delete_at), now) {
        _ if first.is_in_use => "when no other claim uses it".to_owned(),
        now if now == "now" => now,
        left => format!("in {left}"),
    };
    Some(format!(
        "{subject} scheduled for deletion, the next one {left} (ObjectBucket {:?}); `orphans` lists all",
        first.object_bucket
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn scheduled(name: &str, delete_at: &str) -> Scheduled {
        let object = serde_json::from_value(serde_json::json!({
            "apiVersion": "objectbucket.io/v1alpha1",
            "kind": "ObjectBucket",
            "metadata": { "name": name },
            "spec": {
                "endpoint": { "bucketName": "photos-1" },
                "claimRef": { "namespace": "shop", "name": "photos" },
                "additionalState": { "deleteAt": delete_at, "releaseReason": "Scheduled" },
            },
        }));
        Scheduled::read(&object.unwrap()).unwrap()
    }

    #[test]
    fn the_next_deletion_is_named() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let (later, next) = (scheduled("obc-b", "2026-01-08T00:00:00Z"), scheduled("obc-a", "2026-01-03T06:00:00Z"));
        assert_eq!(summary(&[], now), None);
        assert_eq!(
            summary(&[later, next.clone()], now).unwrap(),
            "2 buckets of deleted claims are scheduled for deletion, the next one in 2d6h (ObjectBucket \"obc-a\"); `orphans` lists all"
        );
        let overdue = "2026-01-04T00:00:00Z".parse().unwrap();
        assert!(
            summary(std::slice::from_ref(&next), overdue)
                .unwrap()
                .contains("is scheduled for deletion, the next one now")
        );
        let shared = Scheduled { is_in_use: true, ..next };
        let text = summary(std::slice::from_ref(&shared), overdue).unwrap();
        assert!(text.contains("the next one when no other claim uses it (ObjectBucket \"obc-a\")"), "{text}");
        assert!(summary(&[shared, scheduled("obc-b", "2026-01-08T00:00:00Z")], overdue).unwrap().contains("in 4d"));
    }

    #[test]
    fn the_message_of_a_deleted_claim_explains_how_to_undo_it() {
        assert_eq!(
            scheduled("obc-a", "2026-01-03T06:00:00Z").message(),
            "ObjectBucketClaim shop/photos was deleted; its bucket \"photos-1\" and ObjectBucket \"obc-a\" stay until 2026-01-03T06:00:00Z. To undo the deletion, create the claim again, with the same class and the annotation objectbucket.io/undo-delete: \"yes\""
        );
    }
}
