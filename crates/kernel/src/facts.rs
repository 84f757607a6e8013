//! Facts about a run that change nothing in it and that cost reports and traces need later.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// What is known of the model call that gave a reply, beside its tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReplyFacts {
    /// The model that answered, by the name that the provider's reply has for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// Milliseconds from the start of the call to the first token of its reply. Absent if it came within the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_token_ms: Option<u64>,
}

impl ReplyFacts {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.upstream.is_none() && self.first_token_ms.is_none()
    }
}

/// The span of the request that began a run, as W3C trace context has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CallerSpan {
    /// The span's id.
    #[serde(rename = "span")]
    pub id: SpanId,
    /// Whether the caller records its trace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sampled: bool,
}

/// The id of a span: eight bytes, written as sixteen hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanId(pub u64);

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Serialize for SpanId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SpanId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        let id = Some(&text).filter(|text| text.len() == 16).and_then(|text| u64::from_str_radix(text, 16).ok());
        id.map(SpanId).ok_or_else(|| D::Error::custom("a span id has sixteen hexadecimal digits"))
    }
}
