//! What the keys of a claim may do: what its class allows at most, and what the claim itself asks for. Pure.

use crate::api::ObjectBucketClaimSpec;
use crate::decide::settings::{self, Config};
use crate::refusal::Refusal;
use crate::store::{AccessMode, Capabilities, Plan, Record};

/// The setting of a claim.
pub(crate) const ACCESS_MODE: &str = "accessMode";

/// The mode that a claim gets from a class that allows `most`.
///
/// # Errors
/// The claim asks for what is no mode, or for more than the class or the store has.
pub(crate) fn mode(
    config: Option<&Config>,
    most: AccessMode,
    has: Capabilities,
    class: &str,
) -> Result<AccessMode, Refusal> {
    let asked = config.and_then(|config| config.get(ACCESS_MODE)).filter(|asked| !asked.is_empty());
    let Some(asked) = asked else { return Ok(most) };
    let mode = asked.parse::<AccessMode>().map_err(|problem| Refusal::InvalidSetting {
        key: ACCESS_MODE.to_owned(),
        value: settings::shown(asked),
        problem: problem.to_string(),
    })?;
    let refused = |problem: String| {
        let class = class.to_owned();
        Err(Refusal::AccessModeNotAllowed { asked: mode, class, problem })
    };
    match mode {
        mode if !most.includes(mode) => refused(format!("allows only {most}: ask for that")),
        AccessMode::ReadWrite => Ok(mode),
        _ if !has.access_modes => refused("is of a store that cannot limit keys: remove the setting".to_owned()),
        mode => Ok(mode),
    }
}

/// Keys that are not the claim's own cannot be limited.
///
/// # Errors
/// [`Refusal::AccessNotLimited`].
pub(crate) fn check(plan: &Plan, class: &str) -> Result<(), Refusal> {
    match plan.user {
        None if !plan.access.is_full() => Err(Refusal::AccessNotLimited { class: class.to_owned() }),
        _ => Ok(()),
    }
}

fn wanted(spec: &ObjectBucketClaimSpec, record: &Record, has: Capabilities) -> Result<AccessMode, Refusal> {
    mode(spec.additional_config.as_ref(), record.plan.access.most, has, &record.class_name)
}

/// What the keys of a bound claim should be able to do, if it is not what is recorded. What its class does not allow changes
/// nothing.
pub(crate) fn change(spec: &ObjectBucketClaimSpec, record: &Record, has: Capabilities) -> Option<AccessMode> {
    let mode = wanted(spec, record, has).ok()?;
    (mode != record.plan.access.mode && record.plan.user.is_some()).then_some(mode)
}

/// A message about a setting of a bound claim that has no effect.
pub(crate) fn ignored(spec: &ObjectBucketClaimSpec, record: &Record, has: Capabilities) -> Option<String> {
    // Without the capability, the setting is reported as one that the store does not have.
    let wanted = has.access_modes.then(|| wanted(spec, record, has))?;
    let is_shared = |mode: &AccessMode| *mode != record.plan.access.mode && record.plan.user.is_none();
    let refusal = match wanted {
        Err(refusal) => refusal,
        Ok(mode) if is_shared(&mode) => Refusal::AccessNotLimited { class: record.class_name.clone() },
        Ok(_) => return None,
    };
    Some(format!("{refusal}; the claim keeps {}", record.plan.access.mode))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::decide::testing::record;
    use crate::store::Access;

    const HAS: Capabilities = Capabilities::NONE.with_access_modes();

    fn spec(mode: &str) -> ObjectBucketClaimSpec {
        let additional_config = Some([(ACCESS_MODE.to_owned(), mode.to_owned())].into());
        ObjectBucketClaimSpec { additional_config, ..ObjectBucketClaimSpec::default() }
    }

    fn asked(mode: &str, most: AccessMode, has: Capabilities) -> Result<AccessMode, String> {
        super::mode(spec(mode).additional_config.as_ref(), most, has, "fast").map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn a_claim_narrows_and_never_widens() {
        use AccessMode::{ReadOnly, ReadWrite, WriteOnly};

        for (mode, most, gets) in [
            ("", ReadOnly, Some(ReadOnly)),
            ("ReadWrite", ReadWrite, Some(ReadWrite)),
            ("ReadOnly", ReadWrite, Some(ReadOnly)),
            ("WriteOnly", WriteOnly, Some(WriteOnly)),
            ("ReadWrite", ReadOnly, None),
            ("WriteOnly", ReadOnly, None),
            ("readonly", ReadWrite, None),
        ] {
            assert_eq!(asked(mode, most, HAS).ok(), gets, "{mode} of {most}");
        }
        assert_eq!(super::mode(None, WriteOnly, HAS, "fast").unwrap(), WriteOnly);
        assert!(asked("ReadOnly", ReadWrite, Capabilities::NONE).unwrap_err().contains("cannot limit keys"));
        assert_eq!(asked("ReadWrite", ReadWrite, Capabilities::NONE), Ok(ReadWrite));
    }

    #[test]
    fn a_bound_claim_changes_within_what_its_class_allows() {
        let mut record = record();
        assert_eq!(change(&spec("ReadOnly"), &record, HAS), Some(AccessMode::ReadOnly));
        record.plan.access.mode = AccessMode::ReadOnly;
        assert_eq!(change(&spec("ReadOnly"), &record, HAS), None);
        assert_eq!(change(&spec(""), &record, HAS), Some(AccessMode::ReadWrite));
        record.plan.access = Access::of_mode(AccessMode::ReadOnly);
        assert_eq!(change(&spec("ReadWrite"), &record, HAS), None);
        let message = ignored(&spec("ReadWrite"), &record, HAS).unwrap();
        assert!(message.ends_with("the claim keeps ReadOnly"), "{message}");
        assert_eq!(ignored(&spec("ReadOnly"), &record, HAS), None);
        record.plan.user = None;
        assert_eq!(change(&spec("WriteOnly"), &record, HAS), None);
        let message = ignored(
            &spec("ReadOnly"),
            &Record { plan: Plan { access: Access::default(), ..record.plan.clone() }, ..record.clone() },
            HAS,
        );
        assert!(message.is_some_and(|message| message.contains("cannot limit")));
    }
}
