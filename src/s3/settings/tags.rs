//! `tags` and `tags.KEY`: what admin and user write on bucket and IAM user.

use std::collections::BTreeMap;

use bucket_provisioner::store::{SettingError, Settings};

/// The parameter.
pub(super) const TAGS: &str = "tags";
/// Begins the settings of claims.
pub(super) const FAMILY: &str = "tags.";

/// How many there can be: 50, and five are the operator's ("Using cost allocation S3 bucket tags", Amazon S3 user guide).
const MOST: usize = 45;

/// What class and claim set. The claim cannot have a tag of its class.
///
/// # Errors
/// The first setting that cannot be used.
pub(super) fn parse(settings: &Settings) -> Result<BTreeMap<String, String>, SettingError> {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    let written = settings.of_class.get(TAGS).map(String::as_str).unwrap_or_default();
    for entry in written.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let Some((key, value)) = entry.split_once('=') else {
            return Err(SettingError::new(
                TAGS,
                format!("has {entry:?}, without '='"),
                "write tags such as team=shop,env=prod",
            ));
        };
        let (key, value) = (key.trim(), value.trim());
        add(&mut all, TAGS, key, value)?;
    }
    for (key, value) in settings.family(FAMILY) {
        add(&mut all, &format!("{FAMILY}{key}"), key, value)?;
    }
    if all.len() > MOST {
        let key = settings.of_claim.keys().find(|key| key.starts_with(FAMILY)).map_or(TAGS, String::as_str);
        let problem = format!("is one of {} tags, and class and claim can have {MOST}", all.len());
        return Err(SettingError::new(key, problem, "remove some"));
    }
    Ok(all)
}

fn add(all: &mut BTreeMap<String, String>, setting: &str, key: &str, value: &str) -> Result<(), SettingError> {
    check(setting, key, value)?;
    // IAM does not tell upper from lower case ("Tags for AWS Identity and Access Management resources", IAM user guide).
    if all.keys().any(|other| other.eq_ignore_ascii_case(key)) {
        let problem = format!("has a second tag {key:?}, by the class or with other upper and lower case");
        return Err(SettingError::new(setting, problem, "remove one of them"));
    }
    all.insert(key.to_owned(), value.to_owned());
    Ok(())
}

fn check(setting: &str, key: &str, value: &str) -> Result<(), SettingError> {
    // "Tag naming limits and requirements", AWS tagging user guide; the same for users.
    let fits = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || " +-=._:/@".contains(c));
    let lower = key.to_ascii_lowercase();
    let problem = match key {
        "" => "has a tag without a key",
        _ if key.chars().count() > 128 => "has a key of more than 128 characters",
        _ if value.chars().count() > 256 => "has a value of more than 256 characters",
        _ if lower.starts_with("aws:") => "has a key that begins with \"aws:\", which only AWS can set",
        _ if lower.starts_with("objectbucket.io/") => "has a key of the operator's own tags",
        _ if !fits(key) || !fits(value) => "has a character other than a-z, A-Z, 0-9, spaces and +-=._:/@",
        _ => return Ok(()),
    };
    Err(SettingError::new(setting, problem, "write tags such as team=shop,env=prod"))
}

/// The tags of class and claim; none if they cannot be used, which was checked when the claim was planned.
pub(crate) fn of(settings: &Settings) -> Vec<(String, String)> {
    parse(settings).unwrap_or_default().into_iter().collect()
}

/// The keys of tags that the claim no longer sets.
pub(crate) fn released(settings: &Settings) -> Vec<&str> {
    let released = settings.released.iter().filter_map(|key| key.strip_prefix(FAMILY));
    released.filter(|key| !key.to_ascii_lowercase().starts_with("objectbucket.io/")).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn settings(of_class: &str, of_claim: &[(&str, &str)]) -> Settings {
        let mut settings = Settings::default();
        settings.of_class.insert(TAGS.into(), of_class.into());
        settings.of_claim.extend(of_claim.iter().map(|(key, value)| (format!("tags.{key}"), (*value).to_owned())));
        settings
    }

    #[test]
    fn a_claim_adds_tags_and_changes_none_of_its_class() {
        let tags = of(&settings("team=shop, env=prod", &[("owner", "me")]));
        let shown: Vec<_> = tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(shown, ["env=prod", "owner=me", "team=shop"]);
        for key in ["team", "Team"] {
            let error = parse(&settings("team=shop", &[(key, "other")])).unwrap_err();
            assert!(error.key == format!("tags.{key}") && error.problem.contains("by the class"), "{error:?}");
        }
    }

    #[test]
    fn a_bad_tag_names_its_setting() {
        for (of_class, of_claim, key, problem) in [
            ("team", None, "tags", "without '='"),
            ("aws:x=1", None, "tags", "only AWS"),
            ("ObjectBucket.io/claim-uid=1", None, "tags", "operator's own"),
            ("a=b;c", None, "tags", "a character other than"),
            ("", Some(("aws:x", "1")), "tags.aws:x", "only AWS"),
        ] {
            let error = parse(&settings(of_class, of_claim.as_slice())).unwrap_err();
            assert!(error.key == key && error.problem.contains(problem), "{error:?}");
        }
        let twice = parse(&settings("", &[("a", "1"), ("A", "2")])).unwrap_err();
        assert!(twice.problem.contains("upper and lower case"), "{twice:?}");
        let many: Vec<_> = (0..=MOST).map(|number| format!("k{number}=v")).collect();
        assert!(parse(&settings(&many.join(","), &[])).unwrap_err().problem.contains("46 tags"));
    }
}
