//! Tools that run in this process.

use async_trait::async_trait;
use bytes::Bytes;
use windlass_kernel::{AfterExecution, CallKey, EffectClass, TaskStatus, Tenant, Timestamp, ToolName};

/// Runs tools in this process. An executor cannot fail a run: a tool's failure is data for the model.
#[async_trait]
pub trait Executor: Send + Sync {
    /// Whether this executor runs the tool. Asked once per run, when its tools are pinned.
    fn accepts(&self, tool: &ToolName) -> bool;

    /// What a repeated start would do; decides what a crash in the middle means.
    fn effect(&self, tool: &ToolName) -> EffectClass;

    /// Runs one call. Dropping the future calls it off.
    async fn run(&self, call: ToolCall) -> ToolReport;
}

/// One call to be run.
#[derive(Clone, Debug)]
pub struct ToolCall {
    /// Whose call.
    pub tenant: Tenant,
    /// The call, which is also its idempotency key: the same on every attempt.
    pub key: CallKey,
    /// What is called.
    pub tool: ToolName,
    /// The arguments: valid JSON.
    pub arguments: String,
    /// When the result is given up.
    pub deadline: Timestamp,
}

/// What came of a call.
#[derive(Clone, Debug)]
pub struct ToolReport {
    /// How it ended.
    pub status: TaskStatus,
    /// The result: valid JSON, kept byte for byte.
    pub result: Bytes,
    /// What should follow, if the tool says.
    pub after: Option<AfterExecution>,
    /// The class of the failure, for the log; `None` if the tool itself answered. Words of the code alone: the result may be content.
    pub failure: Option<&'static str>,
}
