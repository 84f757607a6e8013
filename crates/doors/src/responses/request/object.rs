//! Reads the fields of an object one by one, so that an error can name its parameter.
//!
//! Values stay raw until they are read, so a value that is only passed on is never decoded. [`super::sound`] has checked the body before,
//! so types and values can be wrong here, but not the syntax.

use std::{borrow::Cow, fmt, ops::RangeInclusive};

use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{
    limits::{DATA_BYTES_MAX, NAME_CHARS_MAX, TEXT_BYTES_MAX},
    sound::Key,
};
use crate::{responses::error::WireError, spelling::shortened};

/// The path of a value in the body. It is formatted only for errors.
#[derive(Clone, Copy)]
pub(super) enum At<'p> {
    /// The body itself.
    Body,
    /// A field of an object.
    Field(&'p At<'p>, &'p str),
    /// An element of a list.
    Element(&'p At<'p>, usize),
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            At::Body => Ok(()),
            At::Field(At::Body, name) => f.write_str(&shortened(name)),
            At::Field(parent, name) => write!(f, "{parent}.{}", shortened(name)),
            At::Element(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

impl At<'_> {
    /// The error for a value of the wrong type.
    pub fn wrong_type(&self, wanted: &str, value: &RawValue) -> WireError {
        let got = Shape::of(value);
        match self {
            At::Body => WireError::bad("invalid_type", format!("The body of the request must be {wanted}, not {got}.")),
            At::Field(..) | At::Element(..) => {
                let message = format!("Invalid type for '{self}': expected {wanted}, but got {got} instead.");
                WireError::bad("invalid_type", message).at(self.to_string())
            }
        }
    }

    /// The error for a wrong value of the right type.
    pub fn invalid(&self, wanted: impl fmt::Display) -> WireError {
        WireError::invalid(self.to_string(), format!("Invalid value for '{self}': it must be {wanted}."))
    }

    /// The error for a value that is too long or has too many elements.
    pub fn above_max(&self, code: &'static str, wanted: impl fmt::Display) -> WireError {
        WireError::bad(code, format!("Invalid value for '{self}': it must have {wanted}.")).at(self.to_string())
    }
}

/// The types of JSON.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Null,
    Flag,
    Number,
    Text,
    List,
    Object,
}

impl Shape {
    pub fn of(value: &RawValue) -> Self {
        match value.get().as_bytes().first() {
            Some(b'{') => Shape::Object,
            Some(b'[') => Shape::List,
            Some(b'"') => Shape::Text,
            Some(b't' | b'f') => Shape::Flag,
            Some(b'n') | None => Shape::Null,
            Some(_) => Shape::Number,
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Shape::Null => "null",
            Shape::Flag => "a boolean",
            Shape::Number => "a number",
            Shape::Text => "a string",
            Shape::List => "an array",
            Shape::Object => "an object",
        })
    }
}

/// An object of a request, with its path.
pub(super) struct Object<'a, 'p> {
    at: &'p At<'p>,
    members: Vec<(Cow<'a, str>, &'a RawValue)>,
}

impl<'a, 'p> Object<'a, 'p> {
    pub fn of(value: &'a RawValue, at: &'p At<'p>) -> Result<Self, WireError> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((Key(name), value)) = map.next_entry()? {
                    members.push((name, value));
                }
                Ok(members)
            }
        }
        let members = serde_json::Deserializer::from_str(value.get()).deserialize_map(Members);
        Ok(Object { at, members: members.map_err(|_| at.wrong_type("an object", value))? })
    }

    /// The path of a field.
    pub fn at<'s>(&'s self, name: &'s str) -> At<'s> {
        At::Field(self.at, name)
    }

    /// All fields, in order.
    pub fn members(&self) -> impl ExactSizeIterator<Item = (&str, &'a RawValue)> {
        self.members.iter().map(|(name, value)| (name.as_ref(), *value))
    }

    /// A field's value; `None` if it is missing or `null`.
    pub fn given(&self, name: &str) -> Option<&'a RawValue> {
        self.members.iter().find(|(given, _)| given == name).map(|(_, value)| *value).filter(|value| Shape::of(value) != Shape::Null)
    }

    pub fn required(&self, name: &str) -> Result<&'a RawValue, WireError> {
        self.given(name).ok_or_else(|| WireError::missing(self.at(name).to_string()))
    }

    /// A text field.
    pub fn text(&self, name: &str) -> Result<Option<String>, WireError> {
        self.given(name).map(|value| text_of(value, &self.at(name))).transpose()
    }

    /// Checks that a field is a text if it is given, without decoding it: it may be a whole file.
    pub fn check_text(&self, name: &str) -> Result<(), WireError> {
        self.given(name).map_or(Ok(()), |value| check_text_of(value, &self.at(name), DATA_BYTES_MAX))
    }

    /// Checks that a field is given and is a text, without decoding it.
    pub fn check_required_text(&self, name: &str) -> Result<(), WireError> {
        check_text_of(self.required(name)?, &self.at(name), TEXT_BYTES_MAX)
    }

    /// A field with a name or id of limited length.
    pub fn name(&self, name: &str, chars_max: usize) -> Result<Option<String>, WireError> {
        self.given(name).map(|value| name_of(value, &self.at(name), chars_max)).transpose()
    }

    pub fn required_name(&self, name: &str, chars_max: usize) -> Result<String, WireError> {
        name_of(self.required(name)?, &self.at(name), chars_max)
    }

    /// A boolean field.
    pub fn flag(&self, name: &str) -> Result<Option<bool>, WireError> {
        let Some(value) = self.given(name) else { return Ok(None) };
        serde_json::from_str(value.get()).map(Some).map_err(|_| self.at(name).wrong_type("a boolean", value))
    }

    /// A field that must have one of these values.
    pub fn word(&self, name: &str, words: &[&'static str]) -> Result<Option<&'static str>, WireError> {
        let Some(given) = self.text(name)? else { return Ok(None) };
        let unknown = || self.at(name).invalid(format_args!("one of '{}', not '{}'", words.join("', '"), shortened(&given)));
        words.iter().find(|word| **word == given).map(|word| Some(*word)).ok_or_else(unknown)
    }

    /// A list of limited length.
    pub fn list(&self, name: &str, length_max: usize) -> Result<Option<Vec<&'a RawValue>>, WireError> {
        self.given(name).map(|value| list_of(value, &self.at(name), length_max)).transpose()
    }

    /// A list of names.
    pub fn names(&self, name: &str, length_max: usize) -> Result<Option<Vec<String>>, WireError> {
        self.given(name).map(|value| names_of(value, &self.at(name), length_max)).transpose()
    }

    /// An integer within bounds. `16.0` is accepted, because some languages can't write it otherwise.
    pub fn whole(&self, name: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, WireError> {
        let Some(value) = self.given(name) else { return Ok(None) };
        let at = self.at(name);
        let number: f64 = serde_json::from_str(value.get()).map_err(|_| at.wrong_type("an integer", value))?;
        if number.fract() != 0.0 {
            let message = format!("Invalid type for '{at}': expected an integer, but got a decimal number instead.");
            return Err(WireError::bad("invalid_type", message).at(at.to_string()));
        }
        // A float is exact enough for the check for a fraction, but not for large integers.
        let exact = serde_json::from_str(value.get()).unwrap_or(number as u64);
        if number < 0.0 || exact < *range.start() {
            let message = format!("Invalid value for '{at}': expected an integer of at least {}.", range.start());
            return Err(WireError::bad("integer_below_min_value", message).at(at.to_string()));
        }
        if exact > *range.end() {
            let message = format!("Invalid value for '{at}': expected an integer of at most {}.", range.end());
            return Err(WireError::bad("integer_above_max_value", message).at(at.to_string()));
        }
        Ok(Some(exact))
    }

    /// A number within bounds.
    pub fn decimal(&self, name: &str, range: RangeInclusive<f64>) -> Result<Option<f64>, WireError> {
        let Some(value) = self.given(name) else { return Ok(None) };
        let at = self.at(name);
        let number: f64 = serde_json::from_str(value.get()).map_err(|_| at.wrong_type("a number", value))?;
        let code = match (number < *range.start(), number > *range.end()) {
            (false, false) => return Ok(Some(number)),
            (true, _) => "decimal_below_min_value",
            (false, true) => "decimal_above_max_value",
        };
        let message = format!("Invalid value for '{at}': expected a number from {} to {}.", range.start(), range.end());
        Err(WireError::bad(code, message).at(at.to_string()))
    }
}

pub(super) fn text_of(value: &RawValue, at: &At<'_>) -> Result<String, WireError> {
    check_text_of(value, at, TEXT_BYTES_MAX)?;
    serde_json::from_str(value.get()).map_err(|_| at.wrong_type("a string", value))
}

pub(super) fn check_text_of(value: &RawValue, at: &At<'_>, bytes_max: usize) -> Result<(), WireError> {
    if Shape::of(value) != Shape::Text {
        return Err(at.wrong_type("a string", value));
    }
    match value.get().len() <= bytes_max {
        true => Ok(()),
        false => Err(at.above_max("string_above_max_length", format_args!("at most {bytes_max} bytes"))),
    }
}

/// Reads a name. It must not be empty or have control characters, because names go into headers, columns and logs.
pub(super) fn name_of(value: &RawValue, at: &At<'_>, chars_max: usize) -> Result<String, WireError> {
    let name = text_of(value, at)?;
    check_length(&name, at, chars_max)?;
    match name.is_empty() || name.contains(char::is_control) {
        true => Err(at.invalid("a string that is not empty and has no control characters")),
        false => Ok(name),
    }
}

pub(super) fn names_of(value: &RawValue, at: &At<'_>, length_max: usize) -> Result<Vec<String>, WireError> {
    let names = list_of(value, at, length_max)?.into_iter().enumerate();
    names.map(|(index, value)| name_of(value, &At::Element(at, index), NAME_CHARS_MAX)).collect()
}

pub(super) fn list_of<'a>(value: &'a RawValue, at: &At<'_>, length_max: usize) -> Result<Vec<&'a RawValue>, WireError> {
    let values: Vec<&RawValue> = serde_json::from_str(value.get()).map_err(|_| at.wrong_type("an array", value))?;
    match values.len() <= length_max {
        true => Ok(values),
        false => Err(at.above_max("array_above_max_length", format_args!("at most {length_max} elements, not {}", values.len()))),
    }
}

pub(super) fn check_length(text: &str, at: &At<'_>, chars_max: usize) -> Result<(), WireError> {
    match text.chars().nth(chars_max) {
        None => Ok(()),
        Some(_) => Err(at.above_max("string_above_max_length", format_args!("at most {chars_max} characters"))),
    }
}
