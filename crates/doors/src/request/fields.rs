//! Reads the fields of a JSON object one by one, so that an error can name the field.
//!
//! Values stay raw until they are needed: a value that is only passed on is never decoded.

use std::{fmt, ops::RangeInclusive};

use bytes::Bytes;
use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use windlass_kernel::Epoch;

use crate::{
    error::ApiError,
    limits::NUMBER_MAX,
    spelling::{nearest, number, shortened},
};

/// A JSON object of a request.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    /// The object's path in the body, as a prefix of the names of its fields in errors.
    at: String,
    values: Vec<(String, &'a RawValue)>,
}

impl<'a> Fields<'a> {
    /// Reads a body that must be one object with no other fields than `known`.
    pub fn of_body(body: &'a [u8], known: &[&str]) -> Result<Self, ApiError> {
        if body.is_empty() {
            return Err(ApiError::bad("bad_json", "the body is empty, a JSON object is expected"));
        }
        let text = std::str::from_utf8(body)
            .map_err(|error| ApiError::bad("bad_utf8", format!("the body is not UTF-8 from byte {} on", error.valid_up_to())))?;
        Fields { at: String::new(), values: object(text)? }.checked(known)
    }

    /// Reads a value inside a body that must be one object with no other fields than `known`. `at` is the value's path, for errors.
    pub fn of_value(value: &'a RawValue, at: &str, known: &[&str]) -> Result<Self, ApiError> {
        if !value.get().starts_with('{') {
            return Err(ApiError::bad_field(at, "an object"));
        }
        Fields { at: format!("{at}."), values: object(value.get())? }.checked(known)
    }

    fn checked(self, known: &[&str]) -> Result<Self, ApiError> {
        for (index, (name, _)) in self.values.iter().enumerate() {
            let full = self.full(name);
            if !known.contains(&name.as_str()) {
                let hint = nearest(name, known).map(|near| format!("did you mean `{near}`?"));
                let hint = hint.or_else(|| Some(format!("known fields: {}", known.join(", "))));
                return Err(ApiError::bad("unknown_field", format!("there is no field `{}`", shortened(&full))).hint(hint));
            }
            if self.values[..index].iter().any(|(earlier, _)| earlier == name) {
                return Err(ApiError::bad("bad_json", format!("the field `{full}` is given twice")));
            }
        }
        Ok(self)
    }

    /// The path of a field in the body.
    pub fn full(&self, name: &str) -> String {
        format!("{}{name}", self.at)
    }

    /// A field's value as the client wrote it, also if it is `null`.
    pub fn raw(&self, name: &str) -> Option<&'a RawValue> {
        self.values.iter().find(|(given, _)| given == name).map(|(_, value)| *value)
    }

    /// A value of any type, byte for byte as it is in `body`; `null` if the field is absent.
    pub fn kept(&self, name: &str, body: &Bytes) -> Bytes {
        self.raw(name).map_or(Bytes::from_static(b"null"), |value| body.slice_ref(value.get().as_bytes()))
    }

    /// A field's value. `null` counts as absent.
    pub fn given(&self, name: &str) -> Option<&'a RawValue> {
        self.raw(name).filter(|value| value.get() != "null")
    }

    /// A field that must be present.
    pub fn required(&self, name: &str) -> Result<&'a RawValue, ApiError> {
        self.given(name).ok_or_else(|| ApiError::bad("missing_field", format!("`{}` is missing", self.full(name))))
    }

    /// A string of any length.
    pub fn text(&self, name: &str) -> Result<Option<String>, ApiError> {
        self.given(name).map(|value| text_of(value, &self.full(name))).transpose()
    }

    /// A string that must be present.
    pub fn required_text(&self, name: &str) -> Result<String, ApiError> {
        text_of(self.required(name)?, &self.full(name))
    }

    /// A string of limited length that must be present. It may not contain NUL, which not every database can store.
    pub fn sentence(&self, name: &str, chars_max: usize) -> Result<String, ApiError> {
        let text = self.required_text(name)?;
        match text.chars().nth(chars_max).is_none() && !text.contains('\0') {
            true => Ok(text),
            false => Err(ApiError::bad_field(&self.full(name), format!("at most {chars_max} characters, none of them NUL"))),
        }
    }

    /// A short name of printable characters.
    pub fn name(&self, name: &str, chars_max: usize) -> Result<Option<String>, ApiError> {
        self.given(name).map(|value| name_of(value, &self.full(name), chars_max)).transpose()
    }

    /// A name that must be present.
    pub fn required_name(&self, name: &str, chars_max: usize) -> Result<String, ApiError> {
        name_of(self.required(name)?, &self.full(name), chars_max)
    }

    /// A list of names.
    pub fn names(&self, name: &str, length_max: usize, chars_max: usize) -> Result<Option<Vec<String>>, ApiError> {
        let Some(values) = self.list(name, length_max)? else { return Ok(None) };
        let named = values.into_iter().enumerate();
        named.map(|(index, value)| name_of(value, &format!("{}[{index}]", self.full(name)), chars_max)).collect::<Result<_, _>>().map(Some)
    }

    /// A list with at most `length_max` elements.
    pub fn list(&self, name: &str, length_max: usize) -> Result<Option<Vec<&'a RawValue>>, ApiError> {
        self.given(name).map(|value| list_of(value, &self.full(name), length_max)).transpose()
    }

    /// A whole number within bounds.
    pub fn whole(&self, name: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, ApiError> {
        let Some(value) = self.given(name) else { return Ok(None) };
        let wanted = || ApiError::bad_field(&self.full(name), format!("a whole number from {} to {}", range.start(), range.end()));
        number(value.get()).filter(|number| range.contains(number)).map(Some).ok_or_else(wanted)
    }

    /// A boolean.
    pub fn flag(&self, name: &str) -> Result<Option<bool>, ApiError> {
        let Some(value) = self.given(name) else { return Ok(None) };
        serde_json::from_str(value.get()).map(Some).map_err(|_| ApiError::bad_field(&self.full(name), "true or false"))
    }

    /// One of the keywords that `parse` knows; `words` lists them for the error.
    pub fn word<T>(&self, name: &str, parse: impl FnOnce(&str) -> Option<T>, words: &str) -> Result<Option<T>, ApiError> {
        let Some(value) = self.given(name) else { return Ok(None) };
        let parsed = text_of(value, "").ok().and_then(|text| parse(&text));
        parsed.map(Some).ok_or_else(|| ApiError::bad_field(&self.full(name), format!("one of {words}")))
    }

    /// The field `turn_epoch`: the epoch that the client last saw.
    pub fn epoch(&self) -> Result<Option<Epoch>, ApiError> {
        let Some(value) = self.given("turn_epoch") else { return Ok(None) };
        let wanted = || ApiError::bad("bad_epoch", format!("`turn_epoch` must be a whole number from 0 to {NUMBER_MAX}"));
        number(value.get()).map(|number| Some(Epoch(number))).ok_or_else(wanted)
    }
}

/// Reads a string. `at` is its path, for errors.
pub(crate) fn text_of(value: &RawValue, at: &str) -> Result<String, ApiError> {
    if !value.get().starts_with('"') {
        return Err(ApiError::bad_field(at, "a string"));
    }
    // The JSON syntax has been checked already. What can still fail is half of a surrogate pair.
    serde_json::from_str(value.get()).map_err(|_| ApiError::bad_field(at, "a string of whole Unicode characters"))
}

fn name_of(value: &RawValue, at: &str, chars_max: usize) -> Result<String, ApiError> {
    let text = text_of(value, at)?;
    let is_name = !text.is_empty() && text.chars().nth(chars_max).is_none() && !text.contains(char::is_control);
    is_name.then_some(text).ok_or_else(|| ApiError::bad_field(at, format!("1 to {chars_max} characters, none of them a control character")))
}

fn list_of<'a>(value: &'a RawValue, at: &str, length_max: usize) -> Result<Vec<&'a RawValue>, ApiError> {
    let values: Vec<&RawValue> = serde_json::from_str(value.get()).map_err(|_| ApiError::bad_field(at, "an array"))?;
    match values.len() <= length_max {
        true => Ok(values),
        false => Err(ApiError::bad_field(at, format!("an array of at most {length_max} elements, not {}", values.len()))),
    }
}

/// The members of an object in their order, duplicates included.
fn object(text: &str) -> Result<Vec<(String, &RawValue)>, ApiError> {
    struct Members;
    impl<'de> Visitor<'de> for Members {
        type Value = Vec<(String, &'de RawValue)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a JSON object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                members.push((name, value));
            }
            Ok(members)
        }
    }
    let bad = |error: serde_json::Error| {
        let what = if error.is_data() { "is not what it should be" } else { "is not valid JSON" };
        ApiError::bad("bad_json", format!("the body {what}: {error}"))
    };
    let mut reader = serde_json::Deserializer::from_str(text);
    let members = reader.deserialize_map(Members).map_err(bad)?;
    reader.end().map_err(bad)?;
    Ok(members)
}
