//! Encrypts the summaries that clients carry: only this server, for the same tenant, can read or make one.

use std::sync::Arc;

use serde_json::Value;
use windlass_kernel::Tenant;
use windlass_ports::Sealing;

use super::error::WireError;
use crate::DoorState;

/// Encrypts and decrypts summaries of one tenant.
pub(super) struct Sealer {
    sealing: Arc<dyn Sealing>,
    tenant: Tenant,
}

impl Sealer {
    pub fn new(state: &DoorState, tenant: &Tenant) -> Self {
        Sealer { sealing: state.sealing.clone(), tenant: tenant.clone() }
    }

    /// Encrypts the summary of an item. The result is deterministic, so an item that is read again is the same.
    pub fn seal(&self, id: &str, summary: &str) -> String {
        self.sealing.seal(&self.tenant, id, summary)
    }

    /// Decrypts the summary in an item that a client sent. The error does not say why it failed, so that it helps no forger.
    pub fn open(&self, item: &Value) -> Result<String, WireError> {
        let sealed = item.get("encrypted_content").and_then(Value::as_str).unwrap_or_default();
        self.sealing.open(&self.tenant, sealed).ok_or_else(|| {
            let message = "this compaction item cannot be opened: it was made by another server or for somebody else, or it was changed; \
                send it as it came, or leave it out and compact the conversation again";
            WireError::invalid("encrypted_content", message).with_code("invalid_encrypted_content")
        })
    }
}
