//! The settings of the engine. Everything that can grow has a limit here.

use windlass_ports::{Admission, ContextSize};

use crate::{quota::Quotas, retention::Retention};

/// The engine's limits and times.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The largest number of workers; further agents wait in the store. The last workers are for tenants that have none.
    pub workers_max: usize,
    /// The pause between two passes of the sweep, which finds passed deadlines and stranded work.
    pub sweep_ms: u64,
    /// How long other processes wait for a heartbeat before they take over this one's runs.
    pub lease_ms: u64,
    /// How many agents the sweep reads at once.
    pub sweep_page: usize,
    /// The iterations of a run whose request and agent set no limit.
    pub iterations_max: u32,
    /// The largest number of iterations that a request without an agent can ask for. Higher requests are reduced to it.
    pub iterations_ceiling: u32,
    /// How long a call may take until its result arrives.
    pub call_deadline_ms: u64,
    /// How long one attempt of a model call may take.
    pub model_deadline_ms: u64,
    /// The number of attempts of one iteration's model call.
    pub attempts_max: u32,
    /// The first pause between attempts. It doubles with every attempt.
    pub backoff_ms: u64,
    /// The longest pause between attempts, whatever a provider asks for.
    pub backoff_ms_max: u64,
    /// The largest answer of a model, in bytes.
    pub reply_bytes_max: usize,
    /// The largest number of calls in one iteration.
    pub calls_per_iteration_max: usize,
    /// The largest item, in bytes.
    pub item_bytes_max: usize,
    /// The largest number of items in one request.
    pub input_items_max: usize,
    /// The largest box that can be packed.
    pub context_max: ContextSize,
    /// The largest content that one prompt may read, counted as `windlass_ports::ContextSize::prompt_bytes` does.
    pub prompt_bytes_max: u64,
    /// How deep runs that request one another may be nested.
    pub depth_max: u32,
    /// How long a repeated request can join the run of the first one after its client left, or after this server learned that the
    /// first one's server was lost. A run that is not stored waits this long for its reader.
    pub join_ms: u64,
    /// How long calls in flight may take to finish once the server is stopping.
    pub drain_ms: u64,
    /// How many runs may wait or be open.
    pub admission: Admission,
    /// The quota of each tenant.
    pub quotas: Quotas,
    /// For how many days the usage of ended runs is kept. `None` counts no usage.
    pub usage_days: Option<u32>,
    /// How long ended runs keep their content.
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
            calls_per_iteration_max: 64,
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
