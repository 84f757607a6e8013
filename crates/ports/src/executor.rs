//! Tools that run in the server process.

use async_trait::async_trait;
use bytes::Bytes;
use windlass_kernel::{AfterExecution, CallKey, TaskStatus, Tenant, Timestamp, ToolName};

use crate::servers::OfferedTool;

/// Runs tools in the server process. An executor can't fail a run: a tool's failure is data for the model.
#[async_trait]
pub trait Executor: Send + Sync {
    /// The tools that this executor runs. The engine asks once, when it starts.
    fn offers(&self) -> Vec<OfferedTool>;

    /// Runs one call. Dropping the future cancels the call.
    async fn run(&self, call: ToolCall) -> ToolReport;
}

/// One call to be run.
#[derive(Clone, Debug)]
pub struct ToolCall {
    /// The tenant that owns the run.
    pub tenant: Tenant,
    /// The call.
    pub key: CallKey,
    /// How often the call was repeated after a reported failure. Each repetition has an idempotency key of its own; a start after a crash
    /// has the key of the try that was cut.
    pub retry: u32,
    /// The name of the tool.
    pub tool: ToolName,
    /// The arguments: valid JSON.
    pub arguments: String,
    /// The deadline of the call.
    pub deadline: Timestamp,
}

impl ToolCall {
    /// The idempotency key of this try.
    pub fn idempotency_key(&self) -> String {
        self.key.idempotency_key(self.retry)
    }
}

/// The result of a call.
#[derive(Clone, Debug)]
pub struct ToolReport {
    /// How the call ended.
    pub status: TaskStatus,
    /// The result: valid JSON, kept byte for byte.
    pub result: Bytes,
    /// What follows, if the tool says.
    pub after: Option<AfterExecution>,
    /// The class of the failure, for the log; `None` if the tool itself answered. It is a fixed text of the code, because the result may be
    /// content.
    pub failure: Option<&'static str>,
}
