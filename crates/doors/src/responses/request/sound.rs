//! Checks that a body is JSON which every later parser accepts.
//!
//! Most of a body is passed on as raw JSON, of which serde checks only the syntax. Half a surrogate pair, a number out of range, a
//! duplicate key or very deep nesting would make a later parser fail, which would look like an internal error. They are refused here, with
//! a 400.

use std::{borrow::Cow, collections::BTreeSet, fmt};

use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::limits::NESTING_MAX;
use crate::{responses::error::WireError, spelling::shortened};

/// A key, borrowed unless it has escapes.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// Checks a whole body, and returns it as raw JSON.
pub(super) fn sound(body: &[u8]) -> Result<&RawValue, WireError> {
    let bad = |why: &dyn fmt::Display| WireError::bad("invalid_json", format!("The body of the request is not valid JSON: {why}."));
    let text = std::str::from_utf8(body).map_err(|error| bad(&error))?;
    let mut reader = serde_json::Deserializer::from_str(text);
    Level(0).deserialize(&mut reader).and_then(|()| reader.end()).map_err(|error| bad(&error))?;
    serde_json::from_str(text).map_err(|error| bad(&error))
}

/// A value at this depth of nesting.
#[derive(Clone, Copy)]
struct Level(usize);

impl Level {
    fn inner<E: Error>(self) -> Result<Level, E> {
        match self.0 < NESTING_MAX {
            true => Ok(Level(self.0 + 1)),
            false => Err(E::custom(format_args!("it is nested more than {NESTING_MAX} levels deep"))),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Level {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Level {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        let inner = self.inner()?;
        while elements.next_element_seed(inner)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let inner = self.inner()?;
        let mut keys = BTreeSet::new();
        while let Some(key) = members.next_key::<Key<'de>>()? {
            if let Some(twice) = keys.replace(key) {
                return Err(A::Error::custom(format_args!("the field '{}' is given twice", shortened(&twice.0))));
            }
            members.next_value_seed(inner)?;
        }
        Ok(())
    }
}
