//! Every limit of the engine, named. Anything that can grow has one.

use windlass_ports::{Admission, ContextSize};

use crate::{quota::Quotas, retention::Retention};

/// The engine's limits and times.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Agents worked on at the same time; what comes beyond waits in the store. The last places are for tenants that have none.
    pub workers_max: usize,
    /// How often the sweep looks for due deadlines and stranded work.
    pub sweep_ms: u64,
    /// How long other processes wait for a sign of life before they take over this one's runs.
    pub lease_ms: u64,
    /// How many agents one pass of the sweep looks at.
    pub sweep_page: usize,
    /// Iterations of a run whose request and agent say nothing.
    pub iterations_max: u32,
    /// Iterations that a request without an agent can ask for. More are cut to it.
    pub iterations_ceiling: u32,
    /// How long a call's result may take.
    pub call_deadline_ms: u64,
    /// How long one try of a model call may take.
    pub model_deadline_ms: u64,
    /// Tries of one lap's model call.
    pub attempts_max: u32,
    /// The first pause between tries; it doubles.
    pub backoff_ms: u64,
    /// The longest pause between tries, whatever a provider asks for.
    pub backoff_ms_max: u64,
    /// Bytes of one answer of a model.
    pub reply_bytes_max: usize,
    /// Calls in one lap.
    pub calls_per_lap_max: usize,
    /// Bytes of one item.
    pub item_bytes_max: usize,
    /// Items of one request.
    pub input_items_max: usize,
    /// What a packed box may hold.
    pub context_max: ContextSize,
    /// Bytes that one prompt may read, counted as `windlass_ports::ContextSize::prompt_bytes` does.
    pub prompt_bytes_max: u64,
    /// How deep runs may ask for one another.
    pub depth_max: u32,
    /// How long a repeated request can join the run of the first one after its client left, or after this server learned that the
    /// first one's server was lost. A run that is not stored waits this long for its reader.
    pub join_ms: u64,
    /// How long running calls may take to finish once the server is told to stop.
    pub drain_ms: u64,
    /// How much may wait.
    pub admission: Admission,
    /// What each tenant may use.
    pub quotas: Quotas,
    /// Whether the sweep adds up what ended runs used, and for how many days the sums are kept.
    pub usage_days: Option<u32>,
    /// After what time ended runs are erased.
    pub retention: Retention,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            workers_max: 1024,
            sweep_ms: 500,
            lease_ms: 10_000,
            sweep_page: 256,
            iterations_max: 10,
            iterations_ceiling: 100,
            call_deadline_ms: 600_000,
            model_deadline_ms: 600_000,
            attempts_max: 5,
            backoff_ms: 500,
            backoff_ms_max: 60_000,
            reply_bytes_max: 4 << 20,
            calls_per_lap_max: 64,
            item_bytes_max: 4 << 20,
            input_items_max: 1000,
            context_max: ContextSize { items: 20_000, bytes: 32 << 20 },
            prompt_bytes_max: 64 << 20,
            depth_max: 20,
            join_ms: 60_000,
            drain_ms: 10_000,
            admission: Admission { queued_per_agent_max: 1000, open_per_tenant_max: 1_000_000 },
            quotas: Quotas::default(),
            usage_days: None,
            retention: Retention::default(),
        }
    }
}
