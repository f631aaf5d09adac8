//! The last reported status of a claim, so that the same status is not reported twice.

use operator_runtime::engine::hash;

/// What was reported on a claim. The message is kept as a hash to save memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LastStatus {
    pub(super) reason: &'static str,
    message: u64,
}

impl LastStatus {
    pub(crate) fn new(reason: &'static str, message: &str) -> Self {
        Self { reason, message: hash(message) }
    }

    /// How it differs from the last one.
    pub(crate) fn change_from(&self, last: Option<&Self>) -> StatusChange {
        match last {
            Some(last) if last == self => StatusChange::None,
            Some(last) if last.reason == self.reason => StatusChange::Message,
            _ => StatusChange::Reason,
        }
    }
}

/// How a status differs from the last one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum StatusChange {
    /// Not at all.
    None,
    /// The same reason, another message.
    Message,
    /// Another reason.
    #[default]
    Reason,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_thing_is_reported_once() {
        let status = |message| LastStatus::new("AccessDenied", message);
        assert_eq!(status("a").change_from(None), StatusChange::Reason);
        assert_eq!(status("a").change_from(Some(&status("a"))), StatusChange::None);
        assert_eq!(status("b").change_from(Some(&status("a"))), StatusChange::Message);
        assert_eq!(status("a").change_from(Some(&LastStatus::new("Bound", "a"))), StatusChange::Reason);
    }
}
