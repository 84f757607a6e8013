//! What this door wants to know again of a response: how its stream is spelled, and what its object repeats of the request.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::request::Namespaced;

/// The way events are numbered and spelled. A stream keeps the version it began with, so that no upgrade renumbers it.
const VERSION: u16 = 1;

/// The record that is stored with a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Note {
    pub version: u16,
    /// The model as the request named it.
    pub model: String,
    /// Whether the response can be read again.
    pub store: bool,
    /// Whether nobody waits for it.
    pub background: bool,
    /// How it is spelled.
    #[serde(default)]
    pub spelling: Spelling,
    /// Fields of the object that repeat the request.
    pub echo: Map<String, Value>,
    /// Tools whose name for the model is not the client's: by the former, name and namespace of the latter.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<String, Namespaced>,
    /// Types of tools that the request has and nothing here runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored_tools: Vec<String>,
    /// What tells the request from others under the same key.
    #[serde(default)]
    pub fingerprint: String,
}

/// What a client asked for besides the usual.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Spelling {
    /// Calls that the server runs are shown as a call and its output.
    #[serde(default)]
    pub pairs: bool,
    /// A response that waits for the client, or is cancelled, ends with an event of that name.
    #[serde(default)]
    pub lifecycle: bool,
    /// A response that waits for the client is called `completed`.
    #[serde(default)]
    pub standard: bool,
    /// Thoughts are shown with what their provider sealed.
    #[serde(default)]
    pub sealed: bool,
    /// Thoughts are shown word for word, where the provider shows them so.
    #[serde(default)]
    pub raw: bool,
}

impl Note {
    /// A note of a request for this model.
    pub fn new(model: String, echo: Map<String, Value>) -> Self {
        Note {
            version: VERSION,
            model,
            store: true,
            background: false,
            spelling: Spelling::default(),
            echo,
            names: BTreeMap::new(),
            ignored_tools: Vec::new(),
            fingerprint: String::new(),
        }
    }

    /// Reads a note. `None` if it is not this door's, or of a version that this code does not know.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice::<Note>(bytes).ok().filter(|note| note.version <= VERSION)
    }

    /// The bytes that are stored.
    pub fn encode(&self) -> bytes::Bytes {
        serde_json::to_vec(self).expect("a note has string keys and no failing serialiser").into()
    }
}
