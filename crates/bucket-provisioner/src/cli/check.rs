//! Checks the constants and types of a store against the requirements of the trait. An error here would affect every
//! class and claim, so the operator does not start.

use crate::store::{Capabilities, CommonParameters, Parameters as _, Provisioner, names};

/// # Errors
/// The requirement that is not met and the remedy, for the authors of the store.
pub(crate) fn store<P: Provisioner>() -> Result<(), String> {
    parameters::<P>().map_err(|problem| format!("type Parameters of the store: {problem}"))?;
    let (max, min) = (P::USER_NAME_MAX, names::USER_MAX_MIN);
    if max < min {
        return Err(format!("USER_NAME_MAX of the store is {max}; make it {min} or more, for the uid of the claim"));
    }
    reasons::<P>().map_err(|problem| format!("REASONS of the store: {problem}"))
}

fn parameters<P: Provisioner>() -> Result<(), String> {
    P::Parameters::check()?;
    let own = P::Parameters::names();
    // Also those of stores that rotate keys, because a later version of the store may rotate them.
    match CommonParameters::names(Capabilities::ALL).find(|common| own.contains(common)) {
        Some(name) => Err(format!("{name:?} is a parameter of the library; rename the field")),
        None => Ok(()),
    }
}

fn reasons<P: Provisioner>() -> Result<(), String> {
    for (at, reason) in P::REASONS.iter().enumerate() {
        let name = reason.name;
        let is_camel_case =
            name.starts_with(|c: char| c.is_ascii_uppercase()) && name.bytes().all(|b| b.is_ascii_alphanumeric());
        if !is_camel_case {
            return Err(format!("{name:?} is not in CamelCase; use letters and digits, and begin with a capital"));
        }
        if P::REASONS[..at].iter().any(|other| other.name == name) {
            return Err(format!("{name:?} occurs twice; rename or remove one"));
        }
        if crate::reasons::all().any(|other| other.name == name) {
            return Err(format!("{name:?} is a reason of the library; rename it"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(dead_code, reason = "only the names of fields matter")]
    use std::collections::BTreeMap;
    use std::marker::PhantomData;

    use schemars::JsonSchema;
    use serde::Deserialize;

    use super::*;
    use crate::cli::testing::{FULL, OtherShelf, Quirks, Shelf};
    use crate::store::{Reason, Topic};

    struct Plain;

    impl Quirks for Plain {
        type Parameters = ();
    }

    fn refused<Q: Quirks>() -> String {
        store::<OtherShelf<Q>>().err().unwrap_or_default()
    }

    /// The refusal of a store with these parameters.
    fn with_parameters<T: crate::store::Parameters>() -> String {
        struct With<T>(PhantomData<fn() -> T>);
        impl<T: crate::store::Parameters> Quirks for With<T> {
            type Parameters = T;
        }
        refused::<With<T>>()
    }

    #[derive(Deserialize, JsonSchema)]
    struct Size {
        size: u8,
    }

    #[test]
    fn a_valid_store_is_accepted() {
        assert_eq!(store::<Shelf>(), Ok(()));
        assert_eq!(refused::<Plain>(), "");
    }

    #[test]
    fn a_parameter_with_a_name_of_the_library_is_refused() {
        #[derive(Deserialize, JsonSchema)]
        #[serde(rename_all = "camelCase")]
        struct Taken {
            size: u8,
            secret_name: Option<String>,
        }
        #[derive(Deserialize, JsonSchema)]
        #[serde(rename_all = "camelCase")]
        struct TakenIfKeysRotate {
            rotate_keys_every: Option<String>,
        }
        assert_eq!(
            with_parameters::<Taken>(),
            "type Parameters of the store: \"secretName\" is a parameter of the library; rename the field"
        );
        assert!(with_parameters::<TakenIfKeysRotate>().contains("rotateKeysEvery"));
    }

    #[test]
    fn parameters_without_a_name_are_refused() {
        #[derive(Deserialize, JsonSchema)]
        struct Flat {
            #[serde(flatten)]
            size: Size,
        }
        #[derive(Deserialize, JsonSchema)]
        struct Anything {
            #[serde(flatten)]
            all: BTreeMap<String, String>,
        }
        #[derive(Deserialize, JsonSchema)]
        #[serde(untagged)]
        enum Choice {
            Size(Size),
            Nothing {},
        }
        assert_eq!(
            with_parameters::<Flat>(),
            "type Parameters of the store: parameter \"size\" cannot be found by its name; write one struct with a field for each parameter, without #[serde(flatten)]"
        );
        for refused in [with_parameters::<Anything>(), with_parameters::<Choice>()] {
            assert!(refused.contains("not all parameters have a name; write one struct"), "{refused}");
        }
    }

    #[test]
    fn parameters_of_every_usual_shape_are_accepted() {
        #[derive(Deserialize, JsonSchema)]
        #[serde(rename_all = "camelCase")]
        struct Usual {
            #[serde(rename = "tier", alias = "class")]
            level: Option<Tier>,
            #[serde(default)]
            is_dusty: bool,
            #[serde(skip)]
            cached: u8,
            shelf_size: u8,
        }
        #[derive(Deserialize, JsonSchema)]
        enum Tier {
            Fast,
            Slow,
        }
        #[derive(Deserialize, JsonSchema)]
        struct None {}
        assert_eq!(with_parameters::<Usual>(), "");
        assert_eq!(with_parameters::<None>(), "");
    }

    #[test]
    fn names_of_users_have_room_for_the_uid() {
        struct Short;
        impl Quirks for Short {
            type Parameters = ();
            const USER_NAME_MAX: usize = 36;
        }
        assert_eq!(
            refused::<Short>(),
            "USER_NAME_MAX of the store is 36; make it 37 or more, for the uid of the claim"
        );
    }

    #[test]
    fn a_reason_must_be_unique_and_in_camel_case() {
        const KEBAB_CASE: Reason = Reason::new("shelf-full", Topic::Store).meaning("").remedy("");
        const TAKEN: Reason = Reason::new("TimedOut", Topic::Store).meaning("").remedy("");
        struct KebabCase;
        impl Quirks for KebabCase {
            type Parameters = ();
            const REASONS: &'static [&'static Reason] = &[&FULL, &KEBAB_CASE];
        }
        struct Twice;
        impl Quirks for Twice {
            type Parameters = ();
            const REASONS: &'static [&'static Reason] = &[&FULL, &FULL];
        }
        struct Library;
        impl Quirks for Library {
            type Parameters = ();
            const REASONS: &'static [&'static Reason] = &[&TAKEN];
        }
        let starts = |refused: String, start: &str| assert!(refused.starts_with(start), "{refused}");
        starts(refused::<KebabCase>(), "REASONS of the store: \"shelf-full\" is not in CamelCase; use letters");
        starts(refused::<Twice>(), "REASONS of the store: \"ShelfFull\" occurs twice; rename");
        starts(refused::<Library>(), "REASONS of the store: \"TimedOut\" is a reason of the library; rename it");
    }

    #[test]
    fn the_library_has_each_reason_once() {
        let mut names: Vec<_> = crate::reasons::all().map(|reason| reason.name).collect();
        names.sort_unstable();
        let twice: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        // Of a claim, and of the ObjectBucket that it adopted.
        assert_eq!(twice, ["Adopted", "BucketConflict", "BucketInUse", "BucketNotEmpty", "CRDDeleting", "Purging"]);
    }
}
