//! Reads a typed struct from the strings that somebody wrote: class parameters, or the data of a Secret.

use std::collections::{BTreeMap, btree_map};
use std::fmt;

use serde::de::value::StringDeserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, MapAccess, Visitor};
use serde::forward_to_deserialize_any;

/// A problem with a text or with all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// There is no text of this name.
    Missing(String),
    /// The text of this name cannot be read, and why.
    Bad(String, String),
    /// Anything else.
    Other(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(name) => write!(f, "{name} is missing"),
            Self::Bad(name, problem) => write!(f, "{name}: {problem}"),
            Self::Other(problem) => f.write_str(problem),
        }
    }
}

impl std::error::Error for Problem {}

impl de::Error for Problem {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Other(message.to_string())
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Missing(field.to_owned())
    }
}

/// A `T` with a field for each text. Numbers and booleans are parsed; a `bool` is "true" or "false".
pub fn read<T: DeserializeOwned>(texts: &BTreeMap<String, String>) -> Result<T, Problem> {
    T::deserialize(Texts(texts))
}

/// The names of the fields of a struct, in their order; none of another type.
pub fn fields<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut fields: &[_] = &[];
    // It fails when the names are known.
    let _ = T::deserialize(Fields(&mut fields));
    fields
}

struct Fields<'a>(&'a mut &'static [&'static str]);

impl<'de> de::Deserializer<'de> for Fields<'_> {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Problem> {
        Err(Problem::Other(String::new()))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

struct Texts<'a>(&'a BTreeMap<String, String>);

impl<'de> de::Deserializer<'de> for Texts<'_> {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_map(Entries { left: self.0.iter(), text: None })
    }

    /// `()`: nothing is expected.
    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option seq tuple
        tuple_struct map struct enum identifier ignored_any
    }
}

struct Entries<'a> {
    left: btree_map::Iter<'a, String, String>,
    /// The one whose name was read last.
    text: Option<Text<'a>>,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Problem;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Problem> {
        let Some((name, text)) = self.left.next() else { return Ok(None) };
        self.text = Some(Text { name, text });
        seed.deserialize(name.as_str().into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Problem> {
        match self.text {
            // Also the error of a type that is made from the text, as by `#[serde(try_from)]`.
            Some(text) => text.named(seed.deserialize(text)),
            None => Err(Problem::Other("a value is read before its name".to_owned())),
        }
    }
}

#[derive(Clone, Copy)]
struct Text<'a> {
    name: &'a str,
    text: &'a str,
}

impl Text<'_> {
    fn bad(&self, problem: impl fmt::Display) -> Problem {
        Problem::Bad(self.name.to_owned(), problem.to_string())
    }

    /// The name of the parameter is added to the error of the type.
    fn named<T>(&self, read: Result<T, Problem>) -> Result<T, Problem> {
        read.map_err(|problem| match problem {
            Problem::Other(problem) => self.bad(problem),
            problem => problem,
        })
    }
}

macro_rules! parsed {
    ($($method:ident $visit:ident $type:ty, $expected:literal;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
            let value = self.text.parse::<$type>().map_err(|_| self.bad($expected))?;
            self.named(visitor.$visit(value))
        }
    )*};
}

impl<'de> de::Deserializer<'de> for Text<'_> {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        self.named(visitor.visit_str(self.text))
    }

    parsed! {
        deserialize_bool visit_bool bool, "is neither true nor false; write \"true\" or \"false\"";
        deserialize_i8 visit_i8 i8, "is not a whole number from -128 to 127";
        deserialize_i16 visit_i16 i16, "is not a whole number from -32768 to 32767";
        deserialize_i32 visit_i32 i32, "is not a whole number, or too large";
        deserialize_i64 visit_i64 i64, "is not a whole number, or too large";
        deserialize_u8 visit_u8 u8, "is not a whole number from 0 to 255";
        deserialize_u16 visit_u16 u16, "is not a whole number from 0 to 65535";
        deserialize_u32 visit_u32 u32, "is not a whole number of zero or more, or too large";
        deserialize_u64 visit_u64 u64, "is not a whole number of zero or more, or too large";
        deserialize_f32 visit_f32 f32, "is not a number";
        deserialize_f64 visit_f64 f64, "is not a number";
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Problem> {
        self.named(visitor.visit_newtype_struct(self))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        if !variants.contains(&self.text) {
            return Err(self.bad(format_args!("is not one of: {}", variants.join(", "))));
        }
        let text: StringDeserializer<Problem> = self.text.to_owned().into_deserializer();
        self.named(text.deserialize_enum(name, variants, visitor))
    }

    forward_to_deserialize_any! {
        i128 u128 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier
        ignored_any
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "camelCase")]
    enum Tier {
        Fast,
        Slow,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(try_from = "String")]
    struct Room(char);

    impl TryFrom<String> for Room {
        type Error = &'static str;

        fn try_from(text: String) -> Result<Self, &'static str> {
            let letter = text.chars().next().filter(|c| c.is_alphabetic());
            letter.map(Self).ok_or("is not a letter")
        }
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "camelCase")]
    struct Shelf {
        place: String,
        shelf_size: u16,
        #[serde(default)]
        dusty: bool,
        label: Option<String>,
        tier: Option<Tier>,
        room: Option<Room>,
    }

    fn shelf(texts: &[(&str, &str)]) -> Result<Shelf, Problem> {
        read(&texts.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect())
    }

    #[test]
    fn numbers_booleans_words_and_what_may_be_missing_are_read() {
        let full =
            [("place", "5"), ("shelfSize", "12"), ("dusty", "true"), ("label", "a"), ("tier", "slow"), ("room", "B")];
        let expected = Shelf {
            place: "5".into(),
            shelf_size: 12,
            dusty: true,
            label: Some("a".into()),
            tier: Some(Tier::Slow),
            room: Some(Room('B')),
        };
        assert_eq!(shelf(&full).unwrap(), expected);
        let least = Shelf { dusty: false, label: None, tier: None, room: None, ..expected };
        assert_eq!(shelf(&full[..2]).unwrap(), least);
    }

    #[test]
    fn what_is_wrong_names_the_text() {
        let good = [("place", "here"), ("shelfSize", "12")];
        let with = |name, text| shelf(&[good[0], good[1], (name, text)]).unwrap_err();
        assert_eq!(shelf(&good[..1]), Err(Problem::Missing("shelfSize".into())));
        let bad = |name: &str, problem: &str| Problem::Bad(name.into(), problem.into());
        assert_eq!(with("shelfSize", "many"), bad("shelfSize", "is not a whole number from 0 to 65535"));
        assert_eq!(with("dusty", "yes"), bad("dusty", "is neither true nor false; write \"true\" or \"false\""));
        assert_eq!(with("tier", "gold"), bad("tier", "is not one of: fast, slow"));
        assert_eq!(with("room", "12"), bad("room", "is not a letter"));
    }

    #[test]
    fn fields_are_known_by_their_names() {
        assert_eq!(fields::<Shelf>(), ["place", "shelfSize", "dusty", "label", "tier", "room"]);
        assert!(fields::<()>().is_empty());
    }

    #[test]
    fn nothing_can_be_expected() {
        assert_eq!(read::<()>(&BTreeMap::new()), Ok(()));
    }
}
