//! The names of buckets and users: [`BucketName`] and [`UserName`] cannot exist in a wrong state.
//!
//! Every generated name is a pure function of the claim and ends in the claim's uid. So a second attempt finds what the
//! first one created, and two claims never share a name.

use std::fmt;

use crate::provisioner::ClaimId;

/// Longest part of `spec.generateBucketName` that becomes part of a name, as in the Go library.
const PREFIX_MAX: usize = 26;
/// Longest name of an IAM user (IAM API reference, CreateUser).
const USER_MAX: usize = 64;

/// The name of an S3 bucket.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BucketName(String);

/// A name that breaks a rule for buckets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} cannot be used: {rule}")]
pub struct NameError {
    /// The name, or the prefix of one.
    pub name: String,
    /// The rule that it breaks.
    pub rule: BrokenRule,
}

/// The rules of "General purpose bucket naming rules" (Amazon S3 user guide).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BrokenRule {
    /// Length.
    #[error("a bucket name has 3 to 63 characters, this one has {0}")]
    Length(usize),
    /// An empty prefix.
    #[error("it is empty; write at least one lower-case letter or digit")]
    Empty,
    /// Characters.
    #[error("{0:?} is not allowed; use lower-case letters, digits, '.' and '-'")]
    Character(char),
    /// First and last character.
    #[error("it must start and end with a lower-case letter or a digit, not with {0:?}")]
    Edge(char),
    /// Periods.
    #[error("it must not contain two periods in a row")]
    AdjacentPeriods,
    /// Addresses.
    #[error("it must not look like an IP address")]
    IpAddress,
    /// Prefixes that AWS reserves.
    #[error("AWS reserves names that start with {0:?}")]
    ReservedPrefix(&'static str),
    /// Suffixes that AWS reserves.
    #[error("AWS reserves names that end with {0:?}")]
    ReservedSuffix(&'static str),
    /// Names of other resources, which need other calls and policies.
    #[error("it is the name of {0}, which this operator does not support; use a general purpose bucket")]
    NotABucket(&'static str),
    /// Names of account-regional buckets, which CreateBucket creates only with a special header.
    #[error("AWS reserves names that end with an account, a region and \"-an\" for account-regional buckets")]
    AccountRegional,
}

const RESERVED_PREFIXES: [&str; 3] = ["xn--", "sthree-", "amzn-s3-demo-"];
const RESERVED_SUFFIXES: [&str; 5] = ["-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"];

impl BucketName {
    /// A name for a bucket that is to be created.
    ///
    /// # Errors
    /// The first rule that the name breaks.
    pub fn creatable(name: &str) -> Result<Self, NameError> {
        shape(name).and_then(|()| unreserved(name)).map_err(|rule| NameError { name: name.to_owned(), rule })?;
        Ok(Self(name.to_owned()))
    }

    /// The name of an existing bucket, which can be of a kind that the operator cannot create (account-regional).
    ///
    /// # Errors
    /// The first rule that no bucket breaks; and names of other resources than general purpose buckets.
    pub fn existing(name: &str) -> Result<Self, NameError> {
        shape(name).and_then(|()| is_bucket(name)).map_err(|rule| NameError { name: name.to_owned(), rule })?;
        Ok(Self(name.to_owned()))
    }

    /// The name for a claim that asks for a generated one: `prefix`, cut to 26 characters, then the uid.
    ///
    /// # Errors
    /// The first rule that the whole prefix breaks.
    pub fn generated(prefix: &str, claim: &ClaimId) -> Result<Self, NameError> {
        let refused = |rule| NameError { name: prefix.to_owned(), rule };
        characters(prefix).map_err(refused)?;
        // All characters are ASCII here, so any cut is on a character boundary.
        let cut = prefix.get(..PREFIX_MAX).unwrap_or(prefix).trim_end_matches(['-', '.']);
        if prefix.is_empty() {
            return Err(refused(BrokenRule::Empty));
        }
        if let Some(first) = prefix.chars().next().filter(|c| !is_alphanumeric(*c)) {
            return Err(refused(BrokenRule::Edge(first)));
        }
        let name = format!("{cut}-{}", claim.uid);
        shape(&name).and_then(|()| unreserved(&name)).map_err(refused)?;
        Ok(Self(name))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BucketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Checks the prefix that a class requires; it can be empty.
pub(crate) fn beginning(prefix: &str) -> Result<(), BrokenRule> {
    characters(prefix)?;
    match prefix.chars().next().filter(|c| !is_alphanumeric(*c)) {
        Some(first) => Err(BrokenRule::Edge(first)),
        None => Ok(()),
    }
}

/// Whether the name of a bucket or user was generated for the claim with this uid. This alone proves no ownership:
/// nobody else has created a bucket of this name before, because the uid is random; but once the bucket is deleted, its
/// name is known and free for everybody.
pub fn is_generated_for(name: &str, uid: &str) -> bool {
    !uid.is_empty() && name.strip_suffix(uid).is_some_and(|rest| rest.len() > 1 && rest.ends_with('-'))
}

/// The uid that a name ends in: a UUID after a hyphen.
pub(crate) fn uid_in(name: &str) -> Option<&str> {
    let (rest, uid) = name.split_at_checked(name.len().checked_sub(36)?)?;
    let is_uuid = uid.bytes().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    });
    (is_uuid && rest.ends_with('-')).then_some(uid)
}

fn is_alphanumeric(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

fn characters(name: &str) -> Result<(), BrokenRule> {
    if let Some(c) = name.chars().find(|c| !(is_alphanumeric(*c) || matches!(c, '.' | '-'))) {
        return Err(BrokenRule::Character(c));
    }
    if name.contains("..") {
        return Err(BrokenRule::AdjacentPeriods);
    }
    Ok(())
}

fn shape(name: &str) -> Result<(), BrokenRule> {
    characters(name)?;
    if !(3..=63).contains(&name.len()) {
        return Err(BrokenRule::Length(name.len()));
    }
    for edge in [name.chars().next(), name.chars().next_back()].into_iter().flatten() {
        if !is_alphanumeric(edge) {
            return Err(BrokenRule::Edge(edge));
        }
    }
    let labels: Vec<&str> = name.split('.').collect();
    if labels.len() == 4 && labels.iter().all(|label| label.bytes().all(|b| b.is_ascii_digit())) {
        return Err(BrokenRule::IpAddress);
    }
    Ok(())
}

fn unreserved(name: &str) -> Result<(), BrokenRule> {
    if let Some(prefix) = RESERVED_PREFIXES.into_iter().find(|prefix| name.starts_with(prefix)) {
        return Err(BrokenRule::ReservedPrefix(prefix));
    }
    if let Some(suffix) = RESERVED_SUFFIXES.into_iter().find(|suffix| name.ends_with(suffix)) {
        return Err(BrokenRule::ReservedSuffix(suffix));
    }
    if is_account_regional(name) {
        return Err(BrokenRule::AccountRegional);
    }
    Ok(())
}

/// Suffixes of the names of other resources.
const OTHER_RESOURCES: [(&str, &str); 5] = [
    ("--x-s3", "a directory bucket"),
    ("--table-s3", "a table bucket"),
    ("-s3alias", "an access point"),
    ("--ol-s3", "an Object Lambda access point"),
    (".mrap", "a multi-region access point"),
];

fn is_bucket(name: &str) -> Result<(), BrokenRule> {
    match OTHER_RESOURCES.into_iter().find(|(suffix, _)| name.ends_with(suffix)) {
        Some((_, resource)) => Err(BrokenRule::NotABucket(resource)),
        None => Ok(()),
    }
}

/// `…-<12 digits>-<region>-an`, where a region is letters and dashes, then a number.
fn is_account_regional(name: &str) -> bool {
    let Some(rest) = name.strip_suffix("-an") else { return false };
    let parts: Vec<&str> = rest.split('-').collect();
    let Some(account) = parts.iter().rposition(|part| part.len() == 12 && part.bytes().all(|b| b.is_ascii_digit()))
    else {
        return false;
    };
    match &parts[account + 1..] {
        [words @ .., number] => words.len() >= 2 && !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()),
        [] => false,
    }
}

/// The name of an IAM user.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UserName(String);

impl UserName {
    /// The user of a claim: `<namespace>-<name>`, cut, then the uid. IAM ignores case when it compares names; the uid
    /// is lower case and makes the name unique.
    pub fn for_claim(claim: &ClaimId) -> Self {
        let uid: String = claim.uid.chars().map(allowed).take(USER_MAX).collect();
        Self(format!("{}{uid}", Self::beginning(claim)))
    }

    /// The start of the user names of all claims with this namespace and name.
    pub(crate) fn beginning(claim: &ClaimId) -> String {
        let room = USER_MAX.saturating_sub(claim.uid.chars().count() + 1);
        let readable: String = format!("{}-{}", claim.namespace, claim.name).chars().map(allowed).take(room).collect();
        match readable.trim_end_matches('-') {
            "" => String::new(),
            readable => format!("{readable}-"),
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// IAM accepts `[\w+=,.@-]`; anything else becomes an underscore.
fn allowed(c: char) -> char {
    if c.is_ascii_alphanumeric() || "_+=,.@-".contains(c) { c } else { '_' }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    const UID: &str = "f30e0389-0689-48a2-bfaa-74d1bf1fd950";

    fn claim(namespace: &str, name: &str, uid: &str) -> ClaimId {
        ClaimId { namespace: namespace.into(), name: name.into(), uid: uid.into() }
    }

    #[test]
    fn the_error_names_the_rule_that_a_name_breaks() {
        for (name, rule) in [
            ("ab", BrokenRule::Length(2)),
            (&"a".repeat(64), BrokenRule::Length(64)),
            ("Photos", BrokenRule::Character('P')),
            ("my_photos", BrokenRule::Character('_')),
            ("-photos", BrokenRule::Edge('-')),
            ("photos.", BrokenRule::Edge('.')),
            ("my..photos", BrokenRule::AdjacentPeriods),
            ("192.168.5.4", BrokenRule::IpAddress),
            ("xn--photos", BrokenRule::ReservedPrefix("xn--")),
            ("sthree-photos", BrokenRule::ReservedPrefix("sthree-")),
            ("amzn-s3-demo-photos", BrokenRule::ReservedPrefix("amzn-s3-demo-")),
            ("photos-s3alias", BrokenRule::ReservedSuffix("-s3alias")),
            ("photos--ol-s3", BrokenRule::ReservedSuffix("--ol-s3")),
            ("photos.mrap", BrokenRule::ReservedSuffix(".mrap")),
            ("photos--use1-az4--x-s3", BrokenRule::ReservedSuffix("--x-s3")),
            ("photos--table-s3", BrokenRule::ReservedSuffix("--table-s3")),
            ("photos-123456789012-us-west-2-an", BrokenRule::AccountRegional),
        ] {
            assert_eq!(BucketName::creatable(name).unwrap_err().rule, rule, "{name}");
        }
    }

    #[test]
    fn ordinary_names_are_fine() {
        for name in ["abc", "my.photos-2024", "1.2.3", "photos-an", "caravan", "a-123456789012-an"] {
            assert_eq!(BucketName::creatable(name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn the_error_about_another_resource_says_what_it_is() {
        let refused = |name| BucketName::existing(name).unwrap_err().to_string();
        assert!(refused("logs--usw2-az1--x-s3").contains("a directory bucket"));
        assert!(refused("logs-abcdefgh-s3alias").contains("an access point"));
        assert!(refused("abcdefgh.mrap").contains("a multi-region access point"));
    }

    #[test]
    fn an_account_regional_bucket_may_exist_but_is_not_created() {
        assert!(BucketName::existing("photos-123456789012-us-west-2-an").is_ok());
    }

    #[test]
    fn a_generated_name_is_the_prefix_and_the_uid() {
        let generated = |prefix| BucketName::generated(prefix, &claim("n", "c", UID)).unwrap();
        assert_eq!(generated("photos").as_str(), format!("photos-{UID}"));
        assert_eq!(generated("photos-").as_str(), format!("photos-{UID}"));
        assert_eq!(generated("abcdefghijklmnopqrstuvwxyz0123").as_str(), format!("abcdefghijklmnopqrstuvwxyz-{UID}"));
        assert_eq!(generated("abcdefghijklmnopqrstuvwxy-z").as_str(), format!("abcdefghijklmnopqrstuvwxy-{UID}"));
    }

    #[test]
    fn a_prefix_that_cannot_start_a_name_is_refused() {
        let rule = |prefix| BucketName::generated(prefix, &claim("n", "c", UID)).unwrap_err().rule;
        assert_eq!(rule("Photos"), BrokenRule::Character('P'));
        assert_eq!(rule("abcdefghijklmnopqrstuvwxyz-ÄÖ"), BrokenRule::Character('Ä'));
        assert_eq!(rule(""), BrokenRule::Empty);
        assert_eq!(rule("-"), BrokenRule::Edge('-'));
        assert_eq!(rule(".a"), BrokenRule::Edge('.'));
        assert_eq!(rule("xn--a"), BrokenRule::ReservedPrefix("xn--"));
        assert_eq!(rule("sthree"), BrokenRule::ReservedPrefix("sthree-"));
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
        assert_eq!(uid_in(BucketName::generated("p", &claim("n", "c", UID)).unwrap().as_str()), Some(UID));
        assert_eq!(uid_in(UserName::for_claim(&claim("n", "c", UID)).as_str()), Some(UID));
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
            let user = UserName::for_claim(&claim);
            prop_assert!(user.as_str().len() <= 64 && user.as_str().chars().all(|c| allowed(c) == c));
            prop_assert!(user.as_str().ends_with(&uid));
            prop_assert_eq!(user, UserName::for_claim(&claim));
        }

        #[test]
        fn two_claims_never_share_a_name(namespace in "[a-z-]{1,63}", name in "[a-z.-]{1,253}", a in uid(), b in uid()) {
            prop_assume!(a != b);
            let (a, b) = (claim(&namespace, &name, &a), claim(&namespace, &name, &b));
            prop_assert_ne!(UserName::for_claim(&a), UserName::for_claim(&b));
            prop_assert_ne!(BucketName::generated("p", &a), BucketName::generated("p", &b));
        }

        #[test]
        fn a_generated_name_is_always_creatable(prefix in "[a-zA-Z0-9.-]{0,40}", uid in uid()) {
            if let Ok(name) = BucketName::generated(&prefix, &claim("n", "c", &uid)) {
                prop_assert!(name.as_str().len() <= 63);
                prop_assert_eq!(BucketName::creatable(name.as_str()), Ok(name.clone()));
                prop_assert!(is_generated_for(name.as_str(), &uid));
            }
        }

        #[test]
        fn a_usable_prefix_is_never_refused(prefix in "[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", uid in uid()) {
            let reserved = RESERVED_PREFIXES.iter().any(|r| format!("{prefix}-").starts_with(r));
            prop_assert!(reserved || BucketName::generated(&prefix, &claim("n", "c", &uid)).is_ok());
        }
    }
}
