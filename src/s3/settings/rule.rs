//! A lifecycle rule in the form of the AWS CLI, and as the SDK has it. Two rules that mean the same are equal when they are
//! [normal](Rule::normal).

use aws_sdk_s3::primitives::{DateTime, DateTimeFormat};
use aws_sdk_s3::types as sdk;
use serde::Deserialize;

/// Begins the ids of rules whose writer gave none: S3 would invent some, and the rules would always look changed.
pub(super) const OURS: &str = "objectbucket.io/";

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct Rule {
    #[serde(rename = "ID")]
    pub(super) id: Option<String>,
    pub(super) status: Status,
    /// The older form of a filter.
    pub(super) prefix: Option<String>,
    pub(super) filter: Option<Filter>,
    pub(super) expiration: Option<Expiration>,
    #[serde(default)]
    pub(super) transitions: Vec<Transition>,
    #[serde(default)]
    pub(super) noncurrent_version_transitions: Vec<NoncurrentTransition>,
    pub(super) noncurrent_version_expiration: Option<NoncurrentExpiration>,
    pub(super) abort_incomplete_multipart_upload: Option<Abort>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum Status {
    Enabled,
    Disabled,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct Filter {
    pub(super) prefix: Option<String>,
    pub(super) tag: Option<Tag>,
    pub(super) object_size_greater_than: Option<i64>,
    pub(super) object_size_less_than: Option<i64>,
    pub(super) and: Option<And>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct And {
    pub(super) prefix: Option<String>,
    #[serde(default)]
    pub(super) tags: Vec<Tag>,
    pub(super) object_size_greater_than: Option<i64>,
    pub(super) object_size_less_than: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct Tag {
    pub(super) key: String,
    pub(super) value: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct Expiration {
    pub(super) days: Option<i32>,
    pub(super) date: Option<Date>,
    pub(super) expired_object_delete_marker: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct Transition {
    pub(super) days: Option<i32>,
    pub(super) date: Option<Date>,
    pub(super) storage_class: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct NoncurrentTransition {
    pub(super) noncurrent_days: Option<i32>,
    pub(super) newer_noncurrent_versions: Option<i32>,
    pub(super) storage_class: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct NoncurrentExpiration {
    pub(super) noncurrent_days: Option<i32>,
    pub(super) newer_noncurrent_versions: Option<i32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct Abort {
    pub(super) days_after_initiation: Option<i32>,
}

/// A day, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Date(i64);

impl TryFrom<String> for Date {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let whole = if text.contains('T') { text.clone() } else { format!("{text}T00:00:00Z") };
        let date = DateTime::from_str(&whole, DateTimeFormat::DateTimeWithOffset);
        date.map(|date| Self(date.secs())).map_err(|_| format!("{text:?} is not a date such as 2030-01-31"))
    }
}

impl Date {
    pub(super) fn to_sdk(self) -> DateTime {
        DateTime::from_secs(self.0)
    }
}

impl Rule {
    pub(super) fn new(id: &str) -> Self {
        Self {
            id: Some(format!("{OURS}{id}")),
            status: Status::Enabled,
            prefix: None,
            filter: Some(Filter::of_prefix("")),
            expiration: None,
            transitions: Vec::new(),
            noncurrent_version_transitions: Vec::new(),
            noncurrent_version_expiration: None,
            abort_incomplete_multipart_upload: None,
        }
    }

    /// The one form of what can be written in several.
    pub(super) fn normal(self) -> Self {
        let prefix = Filter::of_prefix(self.prefix.as_deref().unwrap_or_default());
        let filter = self.filter.map_or(prefix, Filter::normal);
        let expiration =
            self.expiration.map(Expiration::normal).filter(|expiration| *expiration != Expiration::default());
        let (mut transitions, mut noncurrent_version_transitions) =
            (self.transitions, self.noncurrent_version_transitions);
        transitions.sort();
        noncurrent_version_transitions.sort();
        Self { prefix: None, filter: Some(filter), expiration, transitions, noncurrent_version_transitions, ..self }
    }

    pub(super) fn has_prefix_and_filter(&self) -> bool {
        self.prefix.is_some() && self.filter.is_some()
    }

    /// Whether something is to happen after less than a day. (Transitions can be due at once.)
    pub(super) fn has_no_day(&self) -> bool {
        let days = [
            self.expiration.as_ref().and_then(|expiration| expiration.days),
            self.noncurrent_version_expiration.as_ref().and_then(|expiration| expiration.noncurrent_days),
            self.abort_incomplete_multipart_upload.as_ref().and_then(|abort| abort.days_after_initiation),
        ];
        days.into_iter().flatten().any(|days| days < 1)
    }

    pub(super) fn has_action(&self) -> bool {
        self.expiration.is_some()
            || !self.transitions.is_empty()
            || !self.noncurrent_version_transitions.is_empty()
            || self.noncurrent_version_expiration.is_some()
            || self.abort_incomplete_multipart_upload.is_some()
    }
}

impl Filter {
    pub(super) fn of_prefix(prefix: &str) -> Self {
        Self { prefix: Some(prefix.to_owned()), ..Self::default() }
    }

    pub(super) fn normal(mut self) -> Self {
        if let Some(and) = &mut self.and {
            and.tags.sort();
        }
        if self == Self::default() { Self::of_prefix("") } else { self }
    }
}

impl Expiration {
    pub(super) fn normal(self) -> Self {
        Self { expired_object_delete_marker: self.expired_object_delete_marker.filter(|is| *is), ..self }
    }
}

pub(super) fn to_sdk(rule: Rule) -> Option<sdk::LifecycleRule> {
    let sdk_tag = |tag: Tag| sdk::Tag::builder().key(tag.key).value(tag.value).build().ok();
    let and = |and: And| {
        let And { prefix, tags, object_size_greater_than, object_size_less_than } = and;
        let tags: Vec<_> = tags.into_iter().filter_map(sdk_tag).collect();
        sdk::LifecycleRuleAndOperator::builder()
            .set_prefix(prefix)
            .set_tags((!tags.is_empty()).then_some(tags))
            .set_object_size_greater_than(object_size_greater_than)
            .set_object_size_less_than(object_size_less_than)
            .build()
    };
    let filter = rule.filter.map(|filter| {
        sdk::LifecycleRuleFilter::builder()
            .set_prefix(filter.prefix)
            .set_tag(filter.tag.and_then(sdk_tag))
            .set_object_size_greater_than(filter.object_size_greater_than)
            .set_object_size_less_than(filter.object_size_less_than)
            .set_and(filter.and.map(and))
            .build()
    });
    let expiration = rule.expiration.map(|expiration| {
        sdk::LifecycleExpiration::builder()
            .set_days(expiration.days)
            .set_date(expiration.date.map(Date::to_sdk))
            .set_expired_object_delete_marker(expiration.expired_object_delete_marker)
            .build()
    });
    let transition = |transition: Transition| {
        sdk::Transition::builder()
            .set_days(transition.days)
            .set_date(transition.date.map(Date::to_sdk))
            .storage_class(sdk::TransitionStorageClass::from(transition.storage_class.as_str()))
            .build()
    };
    let noncurrent = |transition: NoncurrentTransition| {
        sdk::NoncurrentVersionTransition::builder()
            .set_noncurrent_days(transition.noncurrent_days)
            .set_newer_noncurrent_versions(transition.newer_noncurrent_versions)
            .storage_class(sdk::TransitionStorageClass::from(transition.storage_class.as_str()))
            .build()
    };
    let noncurrent_expiration = rule.noncurrent_version_expiration.map(|expiration| {
        sdk::NoncurrentVersionExpiration::builder()
            .set_noncurrent_days(expiration.noncurrent_days)
            .set_newer_noncurrent_versions(expiration.newer_noncurrent_versions)
            .build()
    });
    let abort = rule.abort_incomplete_multipart_upload.map(|abort| {
        sdk::AbortIncompleteMultipartUpload::builder().set_days_after_initiation(abort.days_after_initiation).build()
    });
    let transitions: Vec<_> = rule.transitions.into_iter().map(transition).collect();
    let noncurrent_transitions: Vec<_> = rule.noncurrent_version_transitions.into_iter().map(noncurrent).collect();
    sdk::LifecycleRule::builder()
        .set_id(rule.id)
        .status(match rule.status {
            Status::Enabled => sdk::ExpirationStatus::Enabled,
            Status::Disabled => sdk::ExpirationStatus::Disabled,
        })
        .set_filter(filter)
        .set_expiration(expiration)
        .set_transitions((!transitions.is_empty()).then_some(transitions))
        .set_noncurrent_version_transitions((!noncurrent_transitions.is_empty()).then_some(noncurrent_transitions))
        .set_noncurrent_version_expiration(noncurrent_expiration)
        .set_abort_incomplete_multipart_upload(abort)
        .build()
        .ok()
}

pub(super) fn from_sdk(rule: sdk::LifecycleRule) -> Rule {
    let date = |date: DateTime| Date(date.secs());
    let tag = |tag: sdk::Tag| Tag { key: tag.key, value: tag.value };
    let class =
        |class: Option<sdk::TransitionStorageClass>| class.map(|class| class.as_str().to_owned()).unwrap_or_default();
    let filter = rule.filter.map(|filter| Filter {
        prefix: filter.prefix,
        tag: filter.tag.map(tag),
        object_size_greater_than: filter.object_size_greater_than,
        object_size_less_than: filter.object_size_less_than,
        and: filter.and.map(|and| And {
            prefix: and.prefix,
            tags: and.tags.unwrap_or_default().into_iter().map(tag).collect(),
            object_size_greater_than: and.object_size_greater_than,
            object_size_less_than: and.object_size_less_than,
        }),
    });
    #[allow(deprecated, reason = "rules that others wrote may still have it")]
    let prefix = rule.prefix;
    Rule {
        id: rule.id,
        status: if rule.status == sdk::ExpirationStatus::Enabled { Status::Enabled } else { Status::Disabled },
        prefix,
        filter,
        expiration: rule.expiration.map(|expiration| Expiration {
            days: expiration.days,
            date: expiration.date.map(date),
            expired_object_delete_marker: expiration.expired_object_delete_marker,
        }),
        transitions: rule
            .transitions
            .unwrap_or_default()
            .into_iter()
            .map(|one| Transition { days: one.days, date: one.date.map(date), storage_class: class(one.storage_class) })
            .collect(),
        noncurrent_version_transitions: rule
            .noncurrent_version_transitions
            .unwrap_or_default()
            .into_iter()
            .map(|one| NoncurrentTransition {
                noncurrent_days: one.noncurrent_days,
                newer_noncurrent_versions: one.newer_noncurrent_versions,
                storage_class: class(one.storage_class),
            })
            .collect(),
        noncurrent_version_expiration: rule.noncurrent_version_expiration.map(|expiration| NoncurrentExpiration {
            noncurrent_days: expiration.noncurrent_days,
            newer_noncurrent_versions: expiration.newer_noncurrent_versions,
        }),
        abort_incomplete_multipart_upload: rule
            .abort_incomplete_multipart_upload
            .map(|abort| Abort { days_after_initiation: abort.days_after_initiation }),
    }
}
