//! Rings as text: `[<node>,[["agent","<tenant>","<agent>"],["quiet","<tenant>","<run> <events> <agent>"]]]`.

use std::borrow::Cow;

use windlass_kernel::{AgentKey, AgentName, Tenant, ToolName};
use windlass_ports::{NodeId, Ring};

use super::BATCH_BYTES_MAX;

/// The longest name, in bytes. Windlass rings no longer one.
const NAME_BYTES_MAX: usize = 1024;

/// Encodes one ring, as a part of a message.
pub(super) fn encode(ring: &Ring) -> String {
    let (kind, tenant, name) = match ring {
        Ring::Agent(key) => ("agent", &key.tenant, Cow::Borrowed(key.agent.as_str())),
        Ring::Work(key) => ("work", &key.tenant, key.agent.as_str().into()),
        Ring::Tool(tenant, tool) => ("tool", tenant, tool.as_str().into()),
        Ring::Quiet(key, run, events) => ("quiet", &key.tenant, format!("{run} {events} {}", key.agent).into()),
    };
    serde_json::json!([kind, tenant.as_str(), name]).to_string()
}

/// A message from this node, to which encoded rings can be added as long as they fit.
pub(super) struct Batch {
    text: String,
    is_empty: bool,
}

impl Batch {
    pub fn new(from: NodeId) -> Self {
        Batch { text: format!("[{},[", from.0), is_empty: true }
    }

    /// Adds a ring. Returns whether there was room for it.
    pub fn add(&mut self, ring: &str) -> bool {
        const COMMA_AND_END: usize = 3;
        if self.text.len() + ring.len() + COMMA_AND_END > BATCH_BYTES_MAX {
            return false;
        }
        if !std::mem::take(&mut self.is_empty) {
            self.text.push(',');
        }
        self.text.push_str(ring);
        true
    }

    /// The message; `None` if it has no rings.
    pub fn finish(mut self) -> Option<String> {
        self.text.push_str("]]");
        (!self.is_empty).then_some(self.text)
    }
}

/// Decodes a message: its sender and its rings. Unknown kinds of rings are left out, because a newer version may have more of them.
pub(super) fn decode(message: &[u8]) -> Option<(NodeId, Vec<Ring>)> {
    if message.len() > BATCH_BYTES_MAX {
        return None;
    }
    let (from, rings): (u64, Vec<(String, String, String)>) = serde_json::from_slice(message).ok()?;
    Some((NodeId(from), rings.iter().filter_map(|(kind, tenant, name)| ring(kind, tenant, name)).collect()))
}

fn ring(kind: &str, tenant: &str, name: &str) -> Option<Ring> {
    if tenant.is_empty() || name.is_empty() || tenant.len().max(name.len()) > NAME_BYTES_MAX {
        return None;
    }
    let agent = |name: &str| AgentKey { tenant: tenant.into(), agent: AgentName::from(name) };
    match kind {
        "agent" => Some(Ring::Agent(agent(name))),
        "work" => Some(Ring::Work(agent(name))),
        "quiet" => {
            let (run, rest) = name.split_once(' ')?;
            let (events, name) = rest.split_once(' ').filter(|(_, name)| !name.is_empty())?;
            Some(Ring::Quiet(agent(name), run.parse().ok()?, events.parse().ok()?))
        }
        "tool" => Some(Ring::Tool(Tenant::from(tenant), ToolName::from(name))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use windlass_kernel::RunId;

    use super::*;

    fn rings() -> Vec<Ring> {
        let key = |agent: &str| AgentKey { tenant: "acme".into(), agent: agent.into() };
        let run = RunId::from_slice(&[7; 16]).unwrap();
        let quiet = Ring::Quiet(key("a b  c"), run, u64::MAX);
        vec![Ring::Agent(key("a\"b\\c\u{0}é.d")), Ring::Work(key("w")), Ring::Tool("acme".into(), "t".into()), quiet]
    }

    #[test]
    fn rings_are_read_back_as_they_were_written() {
        let mut batch = Batch::new(NodeId(u64::MAX));
        assert!(rings().iter().all(|ring| batch.add(&encode(ring))));
        let text = batch.finish().unwrap();
        assert_eq!(decode(text.as_bytes()), Some((NodeId(u64::MAX), rings())));
        assert_eq!(Batch::new(NodeId(1)).finish(), None);
    }

    #[test]
    fn a_message_takes_no_more_than_fits() {
        let ring = encode(&Ring::Tool("acme".into(), "x".repeat(1000).as_str().into()));
        let mut batch = Batch::new(NodeId(1));
        let taken = (0..100).take_while(|_| batch.add(&ring)).count();
        let text = batch.finish().unwrap();
        assert!(taken == 7 && text.len() <= BATCH_BYTES_MAX, "{taken} in {} bytes", text.len());
        assert_eq!(decode(text.as_bytes()).unwrap().1.len(), taken);
    }

    #[test]
    fn an_invalid_message_is_ignored() {
        let long = format!("[1,[[\"agent\",\"t\",\"{}\"]]]", "x".repeat(2000));
        let huge = format!("[1,[{}]]", vec!["[\"agent\",\"t\",\"a\"]"; 1000].join(","));
        for text in ["", "x", "[]", "{}", "null", "[1]", "[-1,[]]", "[1,[[\"agent\",\"t\"]]]", "[1,[[1,2,3]]]", "[1,[]]x", &huge] {
            assert_eq!(decode(text.as_bytes()), None, "{text:.40}");
        }
        assert_eq!(decode(&[0xff, 0xfe]), None);
        assert_eq!(decode("[".repeat(5000).as_bytes()), None);
        let hasty = ["", "run_1", "x 1 a", "run_00000000000000000000000000000000 x a", "run_00000000000000000000000000000000 1 "];
        let hasty = hasty.map(|name| format!("[1,[[\"quiet\",\"t\",\"{name}\"]]]"));
        for text in hasty.iter().map(String::as_str).chain([
            "[1,[]]",
            "[1,[[\"later\",\"t\",\"a\"]]]",
            "[1,[[\"agent\",\"\",\"a\"],[\"work\",\"t\",\"\"]]]",
            &long,
        ]) {
            assert_eq!(decode(text.as_bytes()), Some((NodeId(1), Vec::new())), "{text:.40}");
        }
    }
}
