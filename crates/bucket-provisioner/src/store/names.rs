//! Names of buckets and users.
//!
//! Every generated name is a pure function of the claim and ends in the claim's uid. So a second attempt finds what the
//! first one created, and two claims never share a name.

use sha2::{Digest as _, Sha256};

use super::record::ClaimId;

/// Longest part of `spec.generateBucketName` that becomes part of a name, as in the Go library.
const PREFIX_MAX: usize = 26;

/// Shortest limit for names of users: a hyphen and the claim's uid.
pub(crate) const USER_MAX_MIN: usize = 37;

/// Which names buckets can have: lower-case letters and digits, with '-' (and '.', if periods are allowed) between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameRules {
    min: usize,
    max: usize,
    periods: bool,
}

/// A name that breaks a rule for buckets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} cannot be used: {rule}")]
pub struct NameError {
    /// The name, or the prefix of one.
    pub name: String,
    /// The rule that it breaks, and the remedy.
    pub rule: String,
}

impl NameRules {
    /// Those of S3 and most stores like it: 3 to 63 characters, with periods ("General purpose bucket naming rules",
    /// Amazon S3 user guide).
    pub const S3: Self = Self { min: 3, max: 63, periods: true };

    /// Names of `min` to `max` characters without periods, as in DNS labels. A generated name takes 38 to 63
    /// characters; where `max` is less than 63, less of the prefix is kept.
    pub const fn labels(min: usize, max: usize) -> Self {
        Self { min, max, periods: false }
    }

    /// Checks the name of a bucket.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn check(&self, name: &str) -> Result<(), NameError> {
        self.shape(name).map_err(|rule| NameError { name: name.to_owned(), rule })
    }

    /// Checks the prefix that names must have; it can be empty.
    ///
    /// # Errors
    /// The first rule that no name with this prefix can keep.
    pub fn check_prefix(&self, prefix: &str) -> Result<(), NameError> {
        let refused = |rule| NameError { name: prefix.to_owned(), rule };
        self.characters(prefix).map_err(refused)?;
        match prefix.chars().next().filter(|c| !is_alphanumeric(*c)) {
            Some(first) => Err(refused(edge(first))),
            None => Ok(()),
        }
    }

    /// The name for a claim that asks for a generated one: `prefix`, cut to 26 characters, then the uid.
    ///
    /// # Errors
    /// The first rule that the whole prefix breaks.
    pub fn generate(&self, prefix: &str, claim: &ClaimId) -> Result<String, NameError> {
        self.check_prefix(prefix)?;
        let refused = |rule| NameError { name: prefix.to_owned(), rule };
        if prefix.is_empty() {
            return Err(refused("it is empty; write at least one lower-case letter or digit".to_owned()));
        }
        // All characters are ASCII here, so any cut is on a character boundary.
        let room = PREFIX_MAX.min(self.max.saturating_sub(claim.uid.len() + 1));
        let cut = prefix.get(..room).unwrap_or(prefix).trim_end_matches(['-', '.']);
        let name = format!("{cut}-{}", claim.uid);
        self.shape(&name).map_err(refused)?;
        Ok(name)
    }

    /// The same with what the store appends to every name: `prefix`, cut so that it fits, then a [short form](short) of the uid,
    /// then the suffix.
    ///
    /// # Errors
    /// As [`generate`](Self::generate).
    pub(crate) fn generate_short(&self, prefix: &str, claim: &ClaimId, suffix: &str) -> Result<String, NameError> {
        self.check_prefix(prefix)?;
        let refused = |rule| NameError { name: prefix.to_owned(), rule };
        let end = format!("-{}{suffix}", short(&claim.uid));
        let room = PREFIX_MAX.min(self.max.saturating_sub(end.len()));
        let cut = prefix.get(..room).unwrap_or(prefix).trim_end_matches(['-', '.']);
        if cut.is_empty() {
            return Err(refused("it is empty; write at least one lower-case letter or digit".to_owned()));
        }
        let name = format!("{cut}{end}");
        self.shape(&name).map_err(refused)?;
        Ok(name)
    }

    fn characters(&self, name: &str) -> Result<(), String> {
        let allowed = |c: char| is_alphanumeric(c) || c == '-' || (c == '.' && self.periods);
        if let Some(c) = name.chars().find(|c| !allowed(*c)) {
            let marks = if self.periods { ", '.' and '-'" } else { " and '-'" };
            return Err(format!("{c:?} is not allowed; use lower-case letters, digits{marks}"));
        }
        if name.contains("..") {
            return Err("it must not contain two periods in a row".to_owned());
        }
        Ok(())
    }

    fn shape(&self, name: &str) -> Result<(), String> {
        self.characters(name)?;
        let Self { min, max, .. } = self;
        if !(*min..=*max).contains(&name.len()) {
            return Err(format!("a bucket name has {min} to {max} characters, this one has {}", name.len()));
        }
        for end in [name.chars().next(), name.chars().next_back()].into_iter().flatten() {
            if !is_alphanumeric(end) {
                return Err(edge(end));
            }
        }
        let labels: Vec<&str> = name.split('.').collect();
        if labels.len() == 4 && labels.iter().all(|label| label.bytes().all(|b| b.is_ascii_digit())) {
            return Err("it must not look like an IP address".to_owned());
        }
        Ok(())
    }
}

fn edge(c: char) -> String {
    format!("it must start and end with a lower-case letter or a digit, not with {c:?}")
}

fn is_alphanumeric(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

/// Characters of a [short] uid.
const SHORT: usize = 13;

/// A uid where a name has no room for it: 65 bits of its SHA-256, as letters and digits.
fn short(uid: &str) -> String {
    const ALPHABET: [u8; 32] = *b"abcdefghijklmnopqrstuvwxyz234567";
    let digest = Sha256::digest(uid);
    digest.iter().take(SHORT).map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect()
}

/// Whether the name of a bucket was generated for the claim with this uid, with what the store appends to every name; see
/// [`is_generated_for`].
pub fn is_bucket_for(bucket: &str, suffix: &str, uid: &str) -> bool {
    match suffix {
        "" => is_generated_for(bucket, uid),
        suffix => {
            bucket.strip_suffix(suffix).is_some_and(|name| is_generated_for(name, &short(uid)) && !uid.is_empty())
        }
    }
}

/// Whether a bucket can have been generated from this prefix. `bucket`: without what the store appends to every name.
pub(crate) fn is_from_prefix(bucket: &str, prefix: &str, is_short: bool) -> bool {
    if is_short {
        let cut = bucket.len().checked_sub(SHORT + 1).and_then(|end| bucket.get(..end));
        return cut.is_some_and(|cut| prefix.starts_with(cut));
    }
    let cut: String = prefix.chars().take(PREFIX_MAX).collect();
    bucket.starts_with(cut.trim_end_matches(['-', '.']))
}

/// Whether the name of a bucket or user was generated for the claim with this uid. This alone proves no ownership:
/// nobody else has created a bucket of this name before, because the uid is random; but once the bucket is deleted, its
/// name is known and free for everybody.
pub fn is_generated_for(name: &str, uid: &str) -> bool {
    !uid.is_empty() && name.strip_suffix(uid).is_some_and(|rest| rest.len() > 1 && rest.ends_with('-'))
}

/// The uid that a name ends in: a UUID after a hyphen.
pub fn uid_in(name: &str) -> Option<&str> {
    let (rest, uid) = name.split_at_checked(name.len().checked_sub(36)?)?;
    let is_uuid = uid.bytes().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    });
    (is_uuid && rest.ends_with('-')).then_some(uid)
}

/// The user of a claim: `<namespace>-<name>`, cut, then the uid, `max` characters at most. Only the uid makes the name
/// unique, so the case of letters does not matter.
pub fn user(claim: &ClaimId, max: usize) -> String {
    let uid: String = claim.uid.chars().map(allowed_in_users).take(max).collect();
    format!("{}{uid}", user_beginning(claim, max))
}

/// The start of the [user names](user) of all claims with this namespace and name.
pub fn user_beginning(claim: &ClaimId, max: usize) -> String {
    let room = max.saturating_sub(claim.uid.chars().count() + 1);
    let readable: String =
        format!("{}-{}", claim.namespace, claim.name).chars().map(allowed_in_users).take(room).collect();
    match readable.trim_end_matches('-') {
        "" => String::new(),
        readable => format!("{readable}-"),
    }
}

/// IAM accepts `[\w+=,.@-]`; anything else becomes an underscore. Kubernetes allows fewer characters in names.
fn allowed_in_users(c: char) -> char {
    if c.is_ascii_alphanumeric() || "_+=,.@-".contains(c) { c } else { '_' }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    const UID: &str = "f30e0389-0689-48a2-bfaa-74d1bf1fd950";
    const USER_MAX: usize = 64;
    const S3: NameRules = NameRules::S3;

    fn claim(namespace: &str, name: &str, uid: &str) -> ClaimId {
        ClaimId { namespace: namespace.into(), name: name.into(), uid: uid.into() }
    }

    #[test]
    fn the_error_names_the_rule_that_a_name_breaks() {
        for (name, rule) in [
            ("ab", "3 to 63 characters, this one has 2"),
            (&"a".repeat(64), "3 to 63 characters, this one has 64"),
            ("Photos", "'P' is not allowed; use lower-case letters, digits, '.' and '-'"),
            ("my_photos", "'_' is not allowed"),
            ("-photos", "must start and end with a lower-case letter or a digit, not with '-'"),
            ("photos.", "not with '.'"),
            ("my..photos", "two periods in a row"),
            ("192.168.5.4", "an IP address"),
        ] {
            let error = S3.check(name).unwrap_err();
            assert!(error.name == name && error.rule.contains(rule), "{error}");
        }
        let error = NameRules::labels(3, 63).check("my.photos").unwrap_err();
        assert!(error.rule.contains("'.' is not allowed; use lower-case letters, digits and '-'"), "{error}");
    }

    #[test]
    fn ordinary_names_are_fine() {
        for name in ["abc", "my.photos-2024", "1.2.3", "photos-an", "caravan", "a-123456789012-an"] {
            assert_eq!(S3.check(name), Ok(()));
        }
    }

    #[test]
    fn a_generated_name_is_the_prefix_and_the_uid() {
        let generated = |prefix| S3.generate(prefix, &claim("n", "c", UID)).unwrap();
        assert_eq!(generated("photos"), format!("photos-{UID}"));
        assert_eq!(generated("photos-"), format!("photos-{UID}"));
        assert_eq!(generated("abcdefghijklmnopqrstuvwxyz0123"), format!("abcdefghijklmnopqrstuvwxyz-{UID}"));
        let short = NameRules::labels(3, 40).generate("photos", &claim("n", "c", UID)).unwrap();
        assert_eq!(short, format!("pho-{UID}"));
        assert_eq!(generated("abcdefghijklmnopqrstuvwxy-z"), format!("abcdefghijklmnopqrstuvwxy-{UID}"));
    }

    #[test]
    fn a_prefix_that_cannot_start_a_name_is_refused() {
        for (prefix, rule) in [
            ("Photos", "'P' is not allowed"),
            ("abcdefghijklmnopqrstuvwxyz-ÄÖ", "'Ä' is not allowed"),
            ("", "it is empty"),
            ("-", "not with '-'"),
            (".a", "not with '.'"),
        ] {
            let error = S3.generate(prefix, &claim("n", "c", UID)).unwrap_err();
            assert!(error.name == prefix && error.rule.contains(rule), "{error}");
        }
    }

    #[test]
    fn a_generated_name_is_recognized_by_its_uid() {
        assert!(is_generated_for(&format!("photos-{UID}"), UID));
        assert!(!is_generated_for("photos", UID));
        assert!(!is_generated_for(&format!("photos-{UID}-2"), UID));
        assert!(!is_generated_for("photos-", ""));
    }

    #[test]
    fn the_uid_in_a_name_is_found() {
        assert_eq!(uid_in(&format!("photos-{UID}")), Some(UID));
        assert_eq!(uid_in(&S3.generate("p", &claim("n", "c", UID)).unwrap()), Some(UID));
        assert_eq!(uid_in(&user(&claim("n", "c", UID), USER_MAX)), Some(UID));
        for name in ["photos", UID, "photos-f30e0389-0689-48a2-bfaa-74d1bf1fd95x", "ä"] {
            assert_eq!(uid_in(name), None, "{name}");
        }
    }

    fn uid() -> impl Strategy<Value = String> {
        "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    }

    proptest! {
        #[test]
        fn user_names_are_valid_stable_and_end_in_the_uid(namespace in ".{0,80}", name in ".{0,260}", uid in uid()) {
            let claim = claim(&namespace, &name, &uid);
            let name = user(&claim, USER_MAX);
            prop_assert!(name.len() <= USER_MAX && name.chars().all(|c| allowed_in_users(c) == c));
            prop_assert!(name.ends_with(&uid) && name.starts_with(&user_beginning(&claim, USER_MAX)));
            prop_assert_eq!(name, user(&claim, USER_MAX));
        }

        #[test]
        fn two_claims_never_share_a_name(namespace in "[a-z-]{1,63}", name in "[a-z.-]{1,253}", a in uid(), b in uid()) {
            prop_assume!(a != b);
            let (a, b) = (claim(&namespace, &name, &a), claim(&namespace, &name, &b));
            prop_assert_ne!(user(&a, USER_MAX), user(&b, USER_MAX));
            prop_assert_ne!(S3.generate("p", &a), S3.generate("p", &b));
        }

        #[test]
        fn a_generated_name_keeps_the_rules(prefix in "[a-zA-Z0-9.-]{0,40}", uid in uid()) {
            if let Ok(name) = S3.generate(&prefix, &claim("n", "c", &uid)) {
                prop_assert_eq!(S3.check(&name), Ok(()));
                prop_assert!(is_generated_for(&name, &uid));
            }
        }

        #[test]
        fn a_name_with_a_suffix_is_known_by_claim_and_prefix(
            prefix in "[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", a in uid(), b in uid()
        ) {
            prop_assume!(a != b);
            let suffix = "-123456789012-eu-central-1-an";
            let name = S3.generate_short(&prefix, &claim("n", "c", &a), suffix).unwrap();
            prop_assert_eq!(S3.check(&name), Ok(()));
            prop_assert!(name.ends_with(suffix));
            prop_assert_eq!(S3.generate_short(&prefix, &claim("m", "d", &a), suffix), Ok(name.clone()));
            prop_assert!(is_bucket_for(&name, suffix, &a) && !is_bucket_for(&name, suffix, &b));
            prop_assert!(!is_bucket_for(&name, "", &a) && !is_bucket_for(&name, "-210987654321-eu-central-1-an", &a));
            let asked = name.strip_suffix(suffix).unwrap();
            let other = format!("-{prefix}");
            prop_assert!(is_from_prefix(asked, &prefix, true) && !is_from_prefix(asked, &other, true));
        }

        #[test]
        fn a_usable_prefix_is_never_refused(prefix in "[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", uid in uid()) {
            prop_assert!(S3.generate(&prefix, &claim("n", "c", &uid)).is_ok());
        }
    }
}
