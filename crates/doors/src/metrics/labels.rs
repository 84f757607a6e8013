//! Label values, all of them from a bounded set.

use std::{
    collections::BTreeMap,
    fmt::{Error, Write},
    hash::{Hash, Hasher},
    sync::Arc,
};

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelSetEncoder, LabelValueEncoder};
use windlass_kernel::{EffectClass, FailureCode, TaskStatus};

/// The names in a configuration, which become label values. All other names are counted as `other`.
#[derive(Clone, Debug, Default)]
pub struct Configured {
    /// The names of the agents.
    pub agents: Vec<String>,
    /// The names of the models. `*` is the label of all names that a pass-through model takes.
    pub models: Vec<String>,
    /// The names of the tools.
    pub tools: Vec<String>,
}

/// Status codes of HTTP answers with a series of their own.
const HTTP_CODES: &[(u16, &str)] = &[
    (101, "101"),
    (200, "200"),
    (201, "201"),
    (202, "202"),
    (204, "204"),
    (400, "400"),
    (401, "401"),
    (403, "403"),
    (404, "404"),
    (405, "405"),
    (408, "408"),
    (409, "409"),
    (413, "413"),
    (415, "415"),
    (422, "422"),
    (424, "424"),
    (426, "426"),
    (429, "429"),
    (499, "499"),
    (500, "500"),
    (501, "501"),
    (502, "502"),
    (503, "503"),
    (504, "504"),
];

/// One label value. Cloning it allocates nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Label {
    /// A value of an enum.
    Fixed(&'static str),
    /// A configured name, or a path of the router.
    Name(Arc<str>),
}

impl Label {
    pub const OTHER: Label = Label::Fixed("other");

    pub fn as_str(&self) -> &str {
        match self {
            Label::Fixed(text) => text,
            Label::Name(text) => text,
        }
    }
}

impl From<&'static str> for Label {
    fn from(text: &'static str) -> Self {
        Label::Fixed(text)
    }
}

impl EncodeLabelValue for Label {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), Error> {
        encoder.write_str(self.as_str())
    }
}

/// Labels of a series, in a fixed order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Labels<const N: usize>(pub [(&'static str, Label); N]);

/// Hashes lengths and last bytes only: a family has few series, a run looks up about ten, and hashing all the text took longer than counting.
impl<const N: usize> Hash for Labels<N> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mark = |label: &Label| {
            let text = label.as_str().as_bytes();
            (text.len() as u64) << 8 | u64::from(text.last().copied().unwrap_or_default())
        };
        state.write_u64(self.0.iter().fold(0, |hash: u64, (_, label)| hash.rotate_left(21) ^ mark(label)));
    }
}

impl<const N: usize> EncodeLabelSet for Labels<N> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), Error> {
        self.0.encode(encoder)
    }
}

/// The label values of the configured names, created once.
pub(super) struct Names(BTreeMap<Arc<str>, Label>);

impl Names {
    pub fn new(names: Vec<String>) -> Self {
        let label = |name: String| {
            let name: Arc<str> = name.into();
            (name.clone(), Label::Name(name))
        };
        Names(names.into_iter().map(label).collect())
    }

    /// All labels.
    pub fn all(&self) -> impl Iterator<Item = Label> {
        self.0.values().cloned().chain([Label::OTHER])
    }

    /// The label of `name`, which is `other` if the name is not configured.
    pub fn label(&self, name: &str) -> Label {
        self.0.get(name).cloned().unwrap_or(Label::OTHER)
    }
}

/// The label of a failed model call. Every known code has a series of its own.
pub(super) fn model_code(code: &FailureCode) -> Label {
    code.known_str().map_or(Label::OTHER, Label::Fixed)
}

pub(super) fn code(code: u16) -> Label {
    HTTP_CODES.iter().find(|(known, _)| *known == code).map_or(Label::OTHER, |(_, text)| Label::Fixed(text))
}

pub(super) fn status(status: TaskStatus) -> &'static str {
    status.as_str()
}

pub(super) fn effect(effect: EffectClass) -> &'static str {
    match effect {
        EffectClass::Read => "read",
        EffectClass::Idempotent => "idempotent",
        EffectClass::Write => "write",
    }
}
