//! What was changed for a bound claim.

/// What was changed in the plan of a bound claim, and the store may still have as it was before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Changes {
    /// [`Plan::access`](super::Plan::access).
    pub access: bool,
    /// [`Plan::settings`](super::Plan::settings).
    pub settings: bool,
}

const ACCESS: &str = "access";
const SETTINGS: &str = "settings";

impl Changes {
    /// Of what the keys may do.
    pub const ACCESS: Self = Self { access: true, settings: false };

    /// Of what is set for the bucket.
    pub const SETTINGS: Self = Self { access: false, settings: true };

    /// Whether there are any.
    pub fn any(self) -> bool {
        self.access || self.settings
    }

    /// These, and others.
    #[must_use]
    pub fn and(self, others: Self) -> Self {
        Self { access: self.access || others.access, settings: self.settings || others.settings }
    }

    /// Reads what is recorded. What another version has written means everything: then all is applied again.
    pub(crate) fn of_recorded(text: &str) -> Self {
        text.split(',').fold(Self::default(), |changes, word| {
            changes.and(match word {
                ACCESS => Self::ACCESS,
                SETTINGS => Self::SETTINGS,
                _ => Self::ACCESS.and(Self::SETTINGS),
            })
        })
    }

    /// What is recorded; `None` if there are none.
    pub(crate) fn recorded(self) -> Option<String> {
        let words = [(self.access, ACCESS), (self.settings, SETTINGS)];
        let words: Vec<_> = words.into_iter().filter_map(|(is, word)| is.then_some(word)).collect();
        (!words.is_empty()).then(|| words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_recorded_is_read_again() {
        for changes in [Changes::ACCESS, Changes::SETTINGS, Changes::ACCESS.and(Changes::SETTINGS)] {
            assert_eq!(changes.recorded().map(|text| Changes::of_recorded(&text)), Some(changes));
        }
        assert_eq!(Changes::default().recorded(), None);
        assert_eq!(Changes::of_recorded("keys"), Changes::ACCESS.and(Changes::SETTINGS));
    }
}
