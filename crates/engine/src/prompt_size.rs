//! The limit on the content that one prompt reads, also along `previous_response_id`, conversations and context boxes.
//!
//! The store adds up the sizes of a range of boxes without reading their content, so a prompt over the limit is found before any of it is
//! in memory. A range never grows or changes, so its size is still the same when it is read afterwards.

use std::fmt;

use windlass_kernel::{BoxRange, ItemKind, NewItem, Tenant};
use windlass_ports::{ContextSize, Item, StoreError};

use crate::{
    api::EngineError,
    engine::{Engine, Inner},
};

/// The code of a request that was refused because its prompt is over the limit: the spelling of `FailureCode::PromptTooLarge`, which a model
/// call gets for the same reason.
pub const PROMPT_TOO_LARGE: &str = "prompt_too_large";

/// A prompt that is over `limits.prompt_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptTooLarge {
    /// The bytes of the prompt, as `ContextSize::prompt_bytes` counts them.
    pub bytes: u64,
    /// The bytes that are allowed.
    pub limit: u64,
}

impl fmt::Display for PromptTooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PromptTooLarge { bytes, limit } = self;
        write!(
            f,
            "the prompt would read {bytes} bytes with the history before it; limits.prompt_bytes allows {limit}. Send fewer or smaller items, \
             or start a new chain from a summary (compaction)"
        )
    }
}

impl Engine {
    /// Refuses a request whose stored history alone is over the limit. Whatever reads the whole history of a request calls this first.
    pub async fn check_history(&self, tenant: &Tenant, history: BoxRange) -> Result<(), EngineError> {
        self.check_prompt(tenant, Some(history), &[]).await
    }

    /// Refuses a request whose stored history and new items together are over the limit.
    pub(crate) async fn check_prompt(&self, tenant: &Tenant, history: Option<BoxRange>, input: &[NewItem]) -> Result<(), EngineError> {
        let stored = match history {
            Some(range) => self.views().range_size(tenant, range).await?,
            None => ContextSize::default(),
        };
        let bytes = input.iter().map(|item| item.content.len() as u64).sum();
        let size = stored.plus(ContextSize { items: input.len() as u64, bytes });
        check(size, self.settings().prompt_bytes_max).map_err(EngineError::PromptTooLarge)
    }
}

impl Inner {
    /// The items of a prompt, with their headers. The API reads an item again that was stored without a header.
    pub(crate) async fn prompt_items(&self, tenant: &Tenant, prompt: BoxRange) -> Result<Vec<Item>, StoreError> {
        let mut items = self.views.range_items(tenant, prompt).await?;
        for item in items.iter_mut().filter(|item| item.kind == ItemKind::Instruction && item.header.is_none()) {
            item.header = self.reader.header(&item.content);
        }
        Ok(items)
    }

    /// The excess of a stored prompt over the limit, if there is one.
    pub(crate) async fn stored_prompt_excess(&self, tenant: &Tenant, prompt: BoxRange) -> Result<Option<PromptTooLarge>, StoreError> {
        let size = self.views.range_size(tenant, prompt).await?;
        Ok(check(size, self.settings.prompt_bytes_max).err())
    }

    /// The excess of a prompt in memory over the limit, if there is one.
    pub(crate) fn prompt_excess(&self, prompt: &[Item]) -> Option<PromptTooLarge> {
        let bytes = prompt.iter().map(|item| item.content.len() as u64).sum();
        check(ContextSize { items: prompt.len() as u64, bytes }, self.settings.prompt_bytes_max).err()
    }
}

fn check(size: ContextSize, limit: u64) -> Result<(), PromptTooLarge> {
    let bytes = size.prompt_bytes();
    if bytes > limit { Err(PromptTooLarge { bytes, limit }) } else { Ok(()) }
}
