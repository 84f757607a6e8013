//! The ids of inbox rows and edges on the wire.
//!
//! One counter numbers the rows of all tenants. A client that saw the numbers could tell how active the other tenants are, so an id is the
//! number after a permutation that depends on a secret of the store and on the tenant. The permutation is a Feistel network: it can be
//! inverted, so that an id also works as a cursor and no table of ids is needed.

use sha2::{Digest, Sha256};
use windlass_kernel::Tenant;
use windlass_ports::MessageId;

use crate::limits::NUMBER_MAX;

/// Four rounds make a Feistel network hard to tell from a random permutation; the others are a margin.
const ROUNDS: u8 = 8;

/// Digits of an id, which is 64 bits in hexadecimal.
const DIGITS: usize = 16;

/// Converts the numbers of inbox rows to ids and back.
#[derive(Clone)]
pub struct InboxIds {
    key: [u8; 32],
}

impl InboxIds {
    /// Converts with `key`, the secret of the store.
    pub fn new(key: [u8; 32]) -> Self {
        InboxIds { key }
    }

    /// The id of an inbox row.
    pub(crate) fn inbox(&self, tenant: &Tenant, message: MessageId) -> String {
        format!("inbox_{:016x}", self.of(tenant).apply(message.0))
    }

    /// The id of an edge. An edge is derived from one inbox row and has the same digits.
    pub(crate) fn edge(&self, tenant: &Tenant, message: MessageId) -> String {
        format!("edge_{:016x}", self.of(tenant).apply(message.0))
    }

    /// The row number behind an id of this tenant, whether that row exists or not. `None` if the id is malformed.
    pub(crate) fn number(&self, tenant: &Tenant, id: &str) -> Option<u64> {
        let digits = id.strip_prefix("inbox_").or_else(|| id.strip_prefix("edge_"))?;
        let is_canonical = digits.len() == DIGITS && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let shown = u64::from_str_radix(digits, 16).ok().filter(|_| is_canonical)?;
        Some(self.of(tenant).invert(shown)).filter(|number| *number <= NUMBER_MAX)
    }

    fn of(&self, tenant: &Tenant) -> Permutation {
        Permutation { key: Sha256::new().chain_update(self.key).chain_update(tenant.as_str()).finalize().into() }
    }
}

/// The permutation of one tenant's numbers.
struct Permutation {
    key: [u8; 32],
}

impl Permutation {
    fn apply(&self, number: u64) -> u64 {
        let (left, right) = (0..ROUNDS).fold(halves(number), |(left, right), round| (right, left ^ self.mix(round, right)));
        joined(left, right)
    }

    fn invert(&self, shown: u64) -> u64 {
        let (left, right) = (0..ROUNDS).rev().fold(halves(shown), |(left, right), round| (right ^ self.mix(round, left), left));
        joined(left, right)
    }

    fn mix(&self, round: u8, half: u32) -> u32 {
        let hash = Sha256::new().chain_update(self.key).chain_update([round]).chain_update(half.to_be_bytes()).finalize();
        u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]])
    }
}

fn halves(number: u64) -> (u32, u32) {
    ((number >> 32) as u32, number as u32)
}

fn joined(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn tm_21_an_id_says_nothing_about_the_number_and_gives_it_back() {
        let (ids, tenant) = (InboxIds::new([7; 32]), Tenant::from("acme"));
        let shown: BTreeSet<String> = (1..=1_000).map(|number| ids.inbox(&tenant, MessageId(number))).collect();
        assert_eq!(shown.len(), 1_000, "each number has an id of its own");
        for number in [0, 1, 2, 1_000, u64::from(u32::MAX), NUMBER_MAX] {
            let (inbox, edge) = (ids.inbox(&tenant, MessageId(number)), ids.edge(&tenant, MessageId(number)));
            assert_eq!((ids.number(&tenant, &inbox), ids.number(&tenant, &edge)), (Some(number), Some(number)));
        }
        // Consecutive numbers give ids that differ in about half of their bits.
        let shown = |number: u64| ids.of(&tenant).apply(number);
        let flipped: u32 = (1..=1_000).map(|number| (shown(number) ^ shown(number + 1)).count_ones()).sum();
        assert!((30_000..34_000).contains(&flipped), "{flipped} of 64,000 bits");
    }

    #[test]
    fn tm_21_an_id_depends_on_the_store_and_on_the_tenant() {
        let id = |key: u8, tenant: &str| InboxIds::new([key; 32]).inbox(&tenant.into(), MessageId(12));
        let all = [id(1, "acme"), id(2, "acme"), id(1, "other")];
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    }

    #[test]
    fn an_id_has_one_spelling() {
        let (ids, tenant) = (InboxIds::new([7; 32]), Tenant::from("acme"));
        let id = ids.inbox(&tenant, MessageId(12));
        let digits = id.strip_prefix("inbox_").expect("the prefix of inbox rows");
        let upper = format!("inbox_{}", digits.to_uppercase());
        let wrong = ["", digits, "inbox_", "inbox_12", &format!("{id}0"), &format!("inbox_+{}", &digits[1..]), &format!("call_{digits}")];
        for text in wrong.into_iter().chain((upper != id).then_some(upper.as_str())) {
            assert_eq!(ids.number(&tenant, text), None, "{text}");
        }
    }
}
