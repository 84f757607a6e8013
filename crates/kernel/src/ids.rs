//! Names and numbers that identify things. A store keeps an id as sixteen bytes; on the wire it has a prefix for its kind.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use uuid::Uuid;

/// A text is no id of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadId {
    /// The prefix of ids of that kind, with its underscore.
    pub prefix: &'static str,
}

impl fmt::Display for BadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not an id of the form {}…", self.prefix)
    }
}

impl std::error::Error for BadId {}

macro_rules! sixteen_byte_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub Uuid);

        impl $name {
            /// The bytes that a store keeps.
            pub fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }

            /// Reads the bytes that a store kept; `None` if they are not sixteen.
            pub fn from_slice(bytes: &[u8]) -> Option<Self> {
                Uuid::from_slice(bytes).ok().map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0.simple())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = BadId;

            fn from_str(text: &str) -> Result<Self, BadId> {
                text.strip_prefix($prefix)
                    .filter(|hex| hex.len() == 32)
                    .and_then(|hex| Uuid::try_parse(hex).ok())
                    .map(Self)
                    .ok_or(BadId { prefix: $prefix })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(D::Error::custom)
            }
        }
    };
}

sixteen_byte_id!(
    /// A run: one request and one deliverable. The agents API calls it `agent_turn_id`.
    RunId,
    "run_"
);
sixteen_byte_id!(
    /// An item: one immutable piece of content.
    ItemId,
    "item_"
);
sixteen_byte_id!(
    /// A box: an ordered, append-only list of items.
    BoxId,
    "box_"
);
sixteen_byte_id!(
    /// A conversation, to which one run at a time adds items. Its runs have an agent of that name.
    ConversationId,
    "conv_"
);

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub Arc<str>);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// The owner of data. Part of every key and every query.
    Tenant
);
name!(
    /// A named worker with a durable inbox.
    AgentName
);
name!(
    /// The name by which the model calls a tool.
    ToolName
);

/// What the name of a head stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentIdentity<'a> {
    /// An agent with a name of its own.
    Named(&'a str),
    /// One run that has no named agent, or that takes only the settings of one. The head exists as long as the run.
    Run(RunId),
    /// A conversation.
    Conversation(ConversationId),
}

impl AgentName {
    /// What the name stands for. A name that reads as the id of a run or of a conversation is one.
    pub fn identity(&self) -> AgentIdentity<'_> {
        let name = self.as_str();
        let run = || name.parse().map(AgentIdentity::Run);
        let conversation = |_| name.parse().map(AgentIdentity::Conversation);
        run().or_else(conversation).unwrap_or(AgentIdentity::Named(name))
    }
}

/// An agent with its tenant: the key of a head.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentKey {
    /// The tenant that the agent belongs to.
    pub tenant: Tenant,
    /// The name of the agent.
    pub agent: AgentName,
}

/// The number of a call within its run. The kernel counts from 1, so that a model which repeats its own call ids causes no collision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallNumber(pub u32);

/// A call as tools and clients name it, unique for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallKey {
    /// The run that made the call.
    pub run: RunId,
    /// The number of the call in that run.
    pub call: CallNumber,
}

impl fmt::Display for CallKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call_{}_{}", self.run.0.simple(), self.call.0)
    }
}

impl CallKey {
    /// The idempotency key of the repetition with this number, where 0 is the first try. A start after a crash has the key of the try that
    /// was cut; a repetition after a reported failure has a key of its own.
    pub fn idempotency_key(self, retry: u32) -> String {
        match retry {
            0 => self.to_string(),
            retry => format!("{self}:attempt:{}", retry.saturating_add(1)),
        }
    }
}

impl FromStr for CallKey {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let parse = || {
            let (run, call) = text.strip_prefix("call_")?.split_once('_')?;
            let canonical = !call.starts_with(['0', '+']) && run.len() == 32;
            let run = Uuid::try_parse(run).ok().filter(|_| canonical)?;
            Some(CallKey { run: RunId(run), call: CallNumber(call.parse().ok()?) })
        };
        parse().ok_or(BadId { prefix: "call_" })
    }
}

/// Milliseconds since the Unix epoch. The kernel has no clock: every timestamp is an argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The highest timestamp, which no clock reaches.
    pub const NEVER: Timestamp = Timestamp(i64::MAX);

    /// The time `ms` milliseconds later. It stops at the highest timestamp.
    pub fn plus_ms(self, ms: u64) -> Self {
        Timestamp(self.0.saturating_add_unsigned(ms))
    }
}

/// A number that rises with every owner of a head's runs. A write with an old epoch changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

/// The number of a head's commits. A commit that is sent again because its answer was lost is recognised by it and not applied twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_back_as_they_are_spelled() {
        let run = RunId(Uuid::from_u128(7));
        assert_eq!(run.to_string().parse(), Ok(run));
        let key = CallKey { run, call: CallNumber(12) };
        assert_eq!(key.to_string().parse(), Ok(key));
    }

    #[test]
    fn only_repetitions_have_keys_of_their_own() {
        let key = CallKey { run: RunId(Uuid::from_u128(7)), call: CallNumber(12) };
        assert_eq!(key.idempotency_key(0), key.to_string());
        assert_eq!(key.idempotency_key(2), format!("{key}:attempt:3"));
    }

    #[test]
    fn a_name_that_reads_as_an_id_stands_for_a_run_or_a_conversation() {
        let identity = |text: &str| format!("{:?}", AgentName::from(text).identity());
        let id = Uuid::from_u128(7);
        assert_eq!(AgentName::from(RunId(id).to_string().as_str()).identity(), AgentIdentity::Run(RunId(id)));
        assert_eq!(AgentName::from(ConversationId(id).to_string().as_str()).identity(), AgentIdentity::Conversation(ConversationId(id)));
        for name in ["clerk", "run_7", "conv_", "item_00000000000000000000000000000007"] {
            assert_eq!(identity(name), format!("Named({name:?})"));
        }
    }

    #[test]
    fn a_spelling_of_another_kind_is_refused() {
        for text in ["", "run_", "item_00000000000000000000000000000007", "run_7", "run_0000000000000000000000000000000g"] {
            assert!(text.parse::<RunId>().is_err(), "{text}");
        }
        for text in ["call_1", "call_00000000000000000000000000000007_", "call_00000000000000000000000000000007_01"] {
            assert!(text.parse::<CallKey>().is_err(), "{text}");
        }
    }
}
