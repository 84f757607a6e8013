//! The boundaries of streamed text: the lengths of its chunks in bytes.
//!
//! A reader that reconnects in the middle of a message gets the rest in the same chunks. The text itself is stored once, so that only the
//! lengths are kept here, in a compact encoding: most chunks are a word or less.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// Bits of a length in one character; the highest bit of the six says that more follow.
const BITS: u32 = 5;
const MORE: u32 = 1 << BITS;

/// The lengths of chunks in bytes. A length of zero is a heartbeat: an event that tells a reader that the run is still in progress.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ChunkLengths(pub Vec<u32>);

impl ChunkLengths {
    /// Whether nothing was streamed, not even a heartbeat.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The length of the text in bytes.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|length| *length as usize).sum()
    }

    /// Splits a text into its chunks. Text beyond the last boundary is a chunk of its own; a boundary inside a character is ignored.
    pub fn split<'a>(&self, mut text: &'a str) -> Vec<&'a str> {
        let mut chunks = Vec::with_capacity(self.0.len() + 1);
        for length in &self.0 {
            let Some((chunk, rest)) = text.split_at_checked(*length as usize) else { break };
            chunks.push(chunk);
            text = rest;
        }
        if !text.is_empty() {
            chunks.push(text);
        }
        chunks
    }

    /// Takes out the heartbeats before the first text.
    pub fn take_heartbeats(&mut self) -> ChunkLengths {
        let heartbeats = self.0.iter().take_while(|length| **length == 0).count();
        let rest = self.0.split_off(heartbeats);
        ChunkLengths(std::mem::replace(&mut self.0, rest))
    }

    /// The text form in which stores keep the lengths.
    pub fn encode(&self) -> String {
        let mut text = String::with_capacity(self.0.len());
        for length in &self.0 {
            let mut rest = *length;
            while rest >= MORE {
                text.push(char::from(DIGITS[(rest % MORE + MORE) as usize]));
                rest >>= BITS;
            }
            text.push(char::from(DIGITS[rest as usize]));
        }
        text
    }

    /// Decodes what [`encode`](Self::encode) gave.
    pub fn decode(text: &str) -> Option<Self> {
        let mut lengths = Vec::with_capacity(text.len());
        let (mut length, mut shift) = (0_u32, 0);
        for byte in text.bytes() {
            let digit = DIGITS.iter().position(|known| *known == byte)? as u32;
            length |= (digit % MORE).checked_shl(shift)?;
            if digit >= MORE {
                shift += BITS;
            } else {
                lengths.push(length);
                (length, shift) = (0, 0);
            }
        }
        (shift == 0).then_some(ChunkLengths(lengths))
    }
}

impl Serialize for ChunkLengths {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.encode())
    }
}

impl<'de> Deserialize<'de> for ChunkLengths {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        ChunkLengths::decode(&text).ok_or_else(|| D::Error::custom("not a list of lengths"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_lengths_are_decoded() {
        for lengths in [vec![], vec![0], vec![1, 31, 32, 33, 1023, 1024, 70_000, u32::MAX]] {
            let lengths = ChunkLengths(lengths);
            assert_eq!(ChunkLengths::decode(&lengths.encode()), Some(lengths));
        }
        assert_eq!(ChunkLengths(vec![4, 5, 3]).encode().len(), 3);
        for text in ["!", "g", "____________A"] {
            assert_eq!(ChunkLengths::decode(text), None, "{text}");
        }
    }

    #[test]
    fn text_is_split_at_its_boundaries() {
        let lengths = ChunkLengths(vec![2, 0, 3]);
        assert_eq!(lengths.split("ab\u{e9}cd"), ["ab", "", "\u{e9}c", "d"]);
        assert_eq!(lengths.split("ab"), ["ab", ""]);
        assert_eq!(ChunkLengths(vec![1]).split("\u{e9}"), ["\u{e9}"]);
        assert_eq!((lengths.bytes(), ChunkLengths::default().split("")), (5, vec![]));
    }

    #[test]
    fn heartbeats_before_the_text_are_taken_out() {
        let mut lengths = ChunkLengths(vec![0, 0, 2, 0, 3]);
        assert_eq!(lengths.take_heartbeats(), ChunkLengths(vec![0, 0]));
        assert_eq!((lengths.take_heartbeats(), lengths), (ChunkLengths::default(), ChunkLengths(vec![2, 0, 3])));
    }
}
