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
    /// The call, which is also its idempotency key: the same on every attempt.
    pub key: CallKey,
    /// The name of the tool.
    pub tool: ToolName,
    /// The arguments: valid JSON.
    pub arguments: String,
    /// The deadline of the call.
    pub deadline: Timestamp,
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
