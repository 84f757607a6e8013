//! The demo's configuration and the script of its model.

use std::{fs, path::Path};

use anyhow::Context;
use serde_json::json;

/// The name of the model.
pub(super) const MODEL: &str = "offline";
/// The tool that may be started twice.
pub(super) const READ: &str = "look_up";
/// The tool that must not run twice.
pub(super) const WRITE: &str = "send_note";
/// What the client asks.
pub(super) const QUESTION: &str = "Where is parcel 4711? Let Ada know, and tell me what you did.";

/// The number of text deltas after which the server is killed: past the beginning and far from the end.
pub(super) const DELTAS_BEFORE_KILL: usize = 24;

/// Bytes per chunk. The answer is slow enough to be killed in the middle on any machine.
const CHUNK_BYTES: usize = 6;
const CHUNK_MS: u64 = 40;

const ANSWER: [&str; 4] = [
    "Parcel 4711 left Lisbon on Monday and lies in Porto, in the hall of the harbour office, waiting for its signature. ",
    "I have sent Ada a note that says so, once, and she will collect it tomorrow. ",
    "While I was telling you this, the machine under me was killed; another one read what had been written down, ",
    "heard me out, and gave you the rest from the very letter at which you had lost me.",
];

/// The whole text of the answer.
pub(super) fn answer() -> String {
    ANSWER.concat()
}

/// Writes the configuration and the script into the folder.
pub(super) fn write_files(folder: &Path) -> anyhow::Result<()> {
    let tool = |name: &str, description: &str, effect: &str| json!({ "name": name, "description": description, "effect": effect });
    // JSON is YAML too.
    let config = json!({
        "models": [{ "name": MODEL, "provider": "scripted", "script": "script.yaml" }],
        "tools": { "external": [
            tool(READ, "looks up where a parcel is", "read"),
            tool(WRITE, "sends somebody a note", "write"),
        ] },
    });
    let script = json!({ "laps": [
        { "calls": [{ "tool": READ, "arguments": { "parcel": "4711" } }] },
        { "calls": [{ "tool": WRITE, "arguments": { "to": "Ada", "text": "Parcel 4711 is in Porto." } }] },
        { "text": answer(), "chunk": CHUNK_BYTES, "chunk_delay_ms": CHUNK_MS },
    ] });
    for (name, content) in [("windlass.yaml", config), ("script.yaml", script)] {
        fs::write(folder.join(name), content.to_string()).with_context(|| format!("{name} cannot be written to a temporary folder"))?;
    }
    Ok(())
}

/// The result of a tool.
pub(super) fn result_of(tool: &str) -> &'static str {
    match tool {
        READ => "in Porto, at the harbour office",
        WRITE => "the note is sent",
        _ => "there is no such tool",
    }
}
