//! Erasing everything of a tenant, in bounded batches.

/// Where the erasure of a tenant continues. The first batch begins with the default. Each store has its own meaning of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantCursor {
    /// The stage: a group of tables.
    pub stage: u8,
    /// The key in these tables that the last batch ended with.
    pub after: Vec<u8>,
}

/// The outcome of one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TenantErasure {
    /// The tenant has this many runs that have not ended. Nothing was changed.
    OpenRuns(u32),
    /// Rows were erased, with everything that belongs to them.
    Erased {
        /// The number of rows.
        rows: u64,
        /// Where the next batch continues. `None` if nothing is left.
        next: Option<TenantCursor>,
    },
}

impl TenantCursor {
    /// The longest encoded cursor that is read.
    const SPELLING_MAX: usize = 128;

    /// The cursor of the next stage.
    pub fn next_stage(&self) -> Self {
        TenantCursor { stage: self.stage + 1, after: Vec::new() }
    }

    /// The cursor as clients send it back: the stage, a dot, and the key in hex.
    pub fn spell(&self) -> String {
        let key: String = self.after.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}.{key}", self.stage)
    }

    /// Reads a cursor that `spell` wrote.
    pub fn read(text: &str) -> Option<Self> {
        let (stage, key) = text.split_once('.').filter(|_| text.len() <= Self::SPELLING_MAX && text.is_ascii())?;
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let after = key.as_bytes().chunks(2).map(|pair| byte(pair).filter(|_| pair.len() == 2)).collect::<Option<_>>()?;
        Some(TenantCursor { stage: stage.parse().ok()?, after })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_is_spelled() {
        for cursor in [TenantCursor::default(), TenantCursor { stage: 3, after: vec![0, 255, 16] }] {
            assert_eq!(TenantCursor::read(&cursor.spell()), Some(cursor));
        }
        for text in ["", "1", ".", "x.", "1.0", "1.0g", "300.", "1.\u{e9}"] {
            assert_eq!(TenantCursor::read(text), None, "{text:?}");
        }
    }
}
