//! The setting `serviceAccountName` of a claim: as which ServiceAccount its apps have access, and that it cannot be edited once
//! the claim is Bound. Pure.

use crate::api::object_name;
use crate::api::wire::state::SERVICE_ACCOUNT_NAME;
use crate::decide::class::Class;
use crate::decide::settings::{self, Config};
use crate::refusal::Refusal;
use crate::store::{AUTHENTICATION, Authentication, Capabilities, Record, ServiceAccount};

/// Longest name of a ServiceAccount.
const LONGEST: usize = 253;

fn named(config: Option<&Config>, has: Capabilities) -> Option<&str> {
    let name = config?.get(SERVICE_ACCOUNT_NAME).map(String::as_str);
    name.filter(|name| has.service_accounts && !name.is_empty())
}

/// Whether a claim names one.
pub(crate) fn is_named(config: Option<&Config>) -> bool {
    config.and_then(|config| config.get(SERVICE_ACCOUNT_NAME)).is_some_and(|name| !name.is_empty())
}

/// What a claim of this class must set, if its apps have access as this ServiceAccount.
pub(crate) fn config(class: &Class, name: &str) -> Option<Config> {
    let written = class.parameters.get(AUTHENTICATION);
    let is_keyless = written.is_some_and(|written| written == Authentication::ServiceAccount.as_str());
    is_keyless.then(|| Config::from([(SERVICE_ACCOUNT_NAME.to_owned(), name.to_owned())]))
}

/// The ServiceAccount of a claim, by the rule of its class. It is always one of the claim's namespace, whoever else may have
/// the name.
///
/// # Errors
/// The class demands one and the claim names none, or the other way round; or the name cannot be one.
pub(crate) fn of_claim(
    config: Option<&Config>,
    authentication: Authentication,
    has: Capabilities,
    class: &str,
) -> Result<Option<ServiceAccount>, Refusal> {
    match (authentication, named(config, has)) {
        (Authentication::Key, None) => Ok(None),
        (Authentication::Key, Some(_)) => Err(Refusal::SettingNotAllowed {
            key: SERVICE_ACCOUNT_NAME.to_owned(),
            remedy: format!(
                "StorageClass {class:?} gives apps keys: remove the setting, or use a class with authentication ServiceAccount"
            ),
        }),
        (Authentication::ServiceAccount, None) => Err(Refusal::ServiceAccountMissing { class: class.to_owned() }),
        (Authentication::ServiceAccount, Some(name)) => match object_name(name).filter(|_| name.len() <= LONGEST) {
            Some(_) => Ok(Some(ServiceAccount::new(name))),
            None => Err(Refusal::InvalidSetting {
                key: SERVICE_ACCOUNT_NAME.to_owned(),
                value: settings::shown(name),
                problem: "cannot be the name of a ServiceAccount; name one of the claim's namespace".to_owned(),
            }),
        },
    }
}

/// A message about a bound claim that names another ServiceAccount than it did before.
pub(crate) fn ignored(config: Option<&Config>, record: &Record, has: Capabilities) -> Option<String> {
    if !has.service_accounts {
        return None;
    }
    let before = record.plan.service_account.as_ref().map(|account| account.name.as_str());
    let now = named(config, has);
    (!settings::is_same_name(now, before)).then(|| {
        let now = now.map_or_else(|| "missing".to_owned(), |name| format!("{:?}", settings::shown(name)));
        let before = before.map_or_else(
            || "has keys in its Secret".to_owned(),
            |name| format!("gives access to ServiceAccount {:?}", settings::shown(name)),
        );
        format!(
            "spec.additionalConfig.{SERVICE_ACCOUNT_NAME} is {now}, and the bound claim {before}: the edit has no effect; undo it, or ask an admin to move the claim with the annotation objectbucket.io/orphan=adopt on its ObjectBucket"
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::decide::testing::record;

    const HAS: Capabilities = Capabilities::NONE.with_service_accounts();

    fn config(name: &str) -> Config {
        [(SERVICE_ACCOUNT_NAME.to_owned(), name.to_owned())].into()
    }

    fn asked(name: &str, authentication: Authentication) -> Result<Option<ServiceAccount>, String> {
        of_claim(Some(&config(name)), authentication, HAS, "fast").map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn a_class_demands_a_service_account_or_refuses_it() {
        assert_eq!(asked("web", Authentication::ServiceAccount), Ok(Some(ServiceAccount::new("web"))));
        assert_eq!(asked("", Authentication::Key), Ok(None), "templates write empty values");
        for (name, authentication, expected) in [
            ("", Authentication::ServiceAccount, "names none"),
            ("Web", Authentication::ServiceAccount, "\"Web\" cannot be the name of a ServiceAccount"),
            ("other/web", Authentication::ServiceAccount, "cannot be the name"),
            ("web", Authentication::Key, "gives apps keys"),
        ] {
            let refused = asked(name, authentication).unwrap_err();
            assert!(refused.contains(SERVICE_ACCOUNT_NAME) && refused.contains(expected), "{refused}");
        }
        assert!(of_claim(Some(&config("web")), Authentication::Key, Capabilities::NONE, "fast").unwrap().is_none());
    }

    #[test]
    fn a_bound_claim_keeps_its_service_account() {
        let mut record = record();
        let edited = |record: &Record, name: &str| ignored(Some(&config(name)), record, HAS);
        assert_eq!(edited(&record, ""), None);
        assert!(edited(&record, "web").unwrap().contains("has keys in its Secret"));
        record.plan.service_account = Some(ServiceAccount::new("web"));
        assert_eq!(edited(&record, "web"), None);
        assert!(
            edited(&record, "api")
                .unwrap()
                .contains("is \"api\", and the bound claim gives access to ServiceAccount \"web\"")
        );
        assert!(edited(&record, "").unwrap().contains("is missing"));
        let long = "w".repeat(100);
        record.plan.service_account = Some(ServiceAccount::new(&long));
        assert_eq!(edited(&record, &settings::abridged(&long)), None, "as the cache has it");
    }
}
