//! The boundaries of words that were announced piece by piece: their lengths in bytes, one after the other.
//!
//! A reader that comes back in the middle of a message is owed the rest in the pieces it was announced in. The words themselves
//! are stored once, so only the lengths are kept here, in as few characters as will do: most pieces are a word or less.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// Bits of a length in one character; the highest bit of the six says that more follow.
const BITS: u32 = 5;
const MORE: u32 = 1 << BITS;

/// Lengths in bytes. A length of zero is a sign of life: a moment at which a reader was told that the run still goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Pieces(pub Vec<u32>);

impl Pieces {
    /// Whether nothing was announced.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many bytes they are together.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|length| *length as usize).sum()
    }

    /// Cuts words at these boundaries. What is left at the end is a piece of its own; a boundary inside of a character is none.
    pub fn cut<'a>(&self, mut words: &'a str) -> Vec<&'a str> {
        let mut pieces = Vec::with_capacity(self.0.len() + 1);
        for length in &self.0 {
            let Some((piece, rest)) = words.split_at_checked(*length as usize) else { break };
            pieces.push(piece);
            words = rest;
        }
        if !words.is_empty() {
            pieces.push(words);
        }
        pieces
    }

    /// Takes the signs of life away that stand before the first words.
    pub fn take_quiet(&mut self) -> Pieces {
        let quiet = self.0.iter().take_while(|length| **length == 0).count();
        let words = self.0.split_off(quiet);
        Pieces(std::mem::replace(&mut self.0, words))
    }

    /// As a store keeps them.
    pub fn spell(&self) -> String {
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

    /// Reads what `spell` wrote.
    pub fn read(text: &str) -> Option<Self> {
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
        (shift == 0).then_some(Pieces(lengths))
    }
}

impl Serialize for Pieces {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.spell())
    }
}

impl<'de> Deserialize<'de> for Pieces {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Pieces::read(&text).ok_or_else(|| D::Error::custom("not a list of lengths"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_back_as_they_are_spelled() {
        for lengths in [vec![], vec![0], vec![1, 31, 32, 33, 1023, 1024, 70_000, u32::MAX]] {
            let pieces = Pieces(lengths);
            assert_eq!(Pieces::read(&pieces.spell()), Some(pieces));
        }
        assert_eq!(Pieces(vec![4, 5, 3]).spell().len(), 3);
        for text in ["!", "g", "____________A"] {
            assert_eq!(Pieces::read(text), None, "{text}");
        }
    }

    #[test]
    fn words_are_cut_where_they_were_announced() {
        let pieces = Pieces(vec![2, 0, 3]);
        assert_eq!(pieces.cut("ab\u{e9}cd"), ["ab", "", "\u{e9}c", "d"]);
        assert_eq!(pieces.cut("ab"), ["ab", ""]);
        assert_eq!(Pieces(vec![1]).cut("\u{e9}"), ["\u{e9}"]);
        assert_eq!((pieces.bytes(), Pieces::default().cut("")), (5, vec![]));
    }

    #[test]
    fn signs_of_life_before_the_words_can_be_told_apart() {
        let mut pieces = Pieces(vec![0, 0, 2, 0, 3]);
        assert_eq!(pieces.take_quiet(), Pieces(vec![0, 0]));
        assert_eq!((pieces.take_quiet(), pieces), (Pieces::default(), Pieces(vec![2, 0, 3])));
    }
}
