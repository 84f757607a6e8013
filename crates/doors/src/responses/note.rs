//! The note that this door stores with a run: the wire format of its stream, and the fields of the request that its object repeats.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::request::ClientName;

/// The version of the events' numbers and format. A stream keeps the version it began with, so that no upgrade renumbers its events.
const VERSION: u16 = 1;

/// The note, as it is stored with a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Note {
    pub version: u16,
    /// The model as the request named it.
    pub model: String,
    /// Whether the response can be retrieved and continued by any request.
    pub store: bool,
    /// Whether the client does not wait for the end of the response.
    pub background: bool,
    #[serde(default)]
    pub spelling: Spelling,
    /// The fields of the response object that repeat the request.
    pub echo: Map<String, Value>,
    /// Tools that the model and the client call by different names: the client's name and namespace, by the model's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<String, ClientName>,
    /// Types of hosted tools in the request, which this server does not run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored_tools: Vec<String>,
    /// Tells different requests under the same key apart.
    #[serde(default)]
    pub fingerprint: String,
}

/// The variants of the wire format that a client asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Spelling {
    /// The server's calls are shown as pairs of a function call and its output, instead of `mcp_call` items.
    #[serde(default)]
    pub pairs: bool,
    /// A response that waits for the client or is cancelled ends with `response.requires_action` or `response.cancelled`.
    #[serde(default)]
    pub lifecycle: bool,
    /// A response that waits for the client has the status `completed`.
    #[serde(default)]
    pub standard: bool,
    /// Reasoning items have the encrypted content that their provider sent.
    #[serde(default)]
    pub sealed: bool,
    /// Reasoning items have the full reasoning text, if the provider sent it.
    #[serde(default)]
    pub raw: bool,
}

impl Note {
    /// A note with the defaults of a stored foreground response.
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

    /// Reads a note. `None` if another door wrote it, or if its version is newer than this code.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice::<Note>(bytes).ok().filter(|note| note.version <= VERSION)
    }

    /// The stored form, which [`Note::read`] reads.
    pub fn encode(&self) -> bytes::Bytes {
        serde_json::to_vec(self).expect("a note has string keys and no failing serialiser").into()
    }
}
