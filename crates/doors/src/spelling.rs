//! How values are written on the wire, where the kernel does not define it.

use serde::Serialize;
use serde_json::value::RawValue;
use windlass_kernel::Timestamp;
use windlass_ports::StoreError;

use crate::{error::ApiError, limits::NUMBER_MAX};

/// A time as RFC 3339 in UTC with milliseconds.
pub(crate) fn moment(at: Timestamp) -> String {
    let bound = if at.0 < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
    format!("{:.3}", jiff::Timestamp::from_millisecond(at.0).unwrap_or(bound))
}

/// Parses a number that a store can hold. Only the canonical decimal form is accepted.
pub(crate) fn number(text: &str) -> Option<u64> {
    let is_canonical = text == "0" || (!text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit()));
    text.parse().ok().filter(|number| is_canonical && *number <= NUMBER_MAX)
}

/// A trace id in hexadecimal.
pub(crate) fn trace_id(trace: &[u8; 16]) -> String {
    trace.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The serialised name of a unit variant, as it is on the wire.
pub(crate) fn named(value: &impl Serialize) -> serde_json::Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// Stored content as raw JSON, which is sent byte for byte.
pub(crate) fn stored_json(content: &[u8]) -> Result<&RawValue, ApiError> {
    serde_json::from_slice(content).map_err(|error| StoreError::Corrupt(format!("content is not JSON: {error}").into()).into())
}

/// A client's text for an error message, cut to a length at which it is still recognisable.
pub(crate) fn shortened(text: &str) -> String {
    const CHARS_MAX: usize = 80;
    let mut short: String = text.chars().take(CHARS_MAX).collect();
    if text.chars().nth(CHARS_MAX).is_some() {
        short.push('…');
    }
    short
}

/// The known name that the client probably meant. The time of the comparison grows with the product of both lengths, so no name is
/// suggested for a long one.
pub(crate) fn nearest<'a>(given: &str, known: &[&'a str]) -> Option<&'a str> {
    const SIMILAR_MIN: f64 = 0.8;
    const CHARS_MAX: usize = 64;
    if given.chars().nth(CHARS_MAX).is_some() {
        return None;
    }
    let scored = known.iter().map(|name| (strsim::jaro_winkler(given, name), *name));
    scored.filter(|(score, _)| *score >= SIMILAR_MIN).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_have_milliseconds_and_never_fail() {
        assert_eq!(moment(Timestamp(1_700_000_000_120)), "2023-11-14T22:13:20.120Z");
        assert!(moment(Timestamp(i64::MAX)).starts_with("9999-"));
        assert!(moment(Timestamp(i64::MIN)).starts_with("-009999-"));
    }

    #[test]
    fn a_mistyped_name_finds_its_neighbour() {
        let known = ["input", "instructions", "context_box_id"];
        assert_eq!(nearest("inptu", &known), Some("input"));
        assert_eq!(nearest("instruction", &known), Some("instructions"));
        assert_eq!(nearest("zebra", &known), None);
    }

    #[test]
    fn tm_19_a_long_name_is_compared_with_nothing() {
        let (short, long) = ("n".repeat(64), "n".repeat(65));
        let known = [short.as_str(), long.as_str()];
        assert_eq!(nearest(&short, &known), Some(short.as_str()));
        assert_eq!(nearest(&long, &known), None);
        assert_eq!(nearest(&"ä".repeat(64), &["ä".repeat(63).as_str()]), Some("ä".repeat(63).as_str()), "characters count, not bytes");
    }
}
