//! Every limit of the doors, named.

/// The limits an operator sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one request body.
    pub body_bytes_max: usize,
    /// How long a body may take to arrive.
    pub body_ms_max: u64,
    /// Bytes of bodies and WebSocket messages in flight, of all tenants.
    pub in_flight_bytes_max: usize,
    /// The same of one tenant.
    pub tenant_in_flight_bytes_max: usize,
    /// Requests of one tenant that are open at once, streams among them.
    pub requests_per_tenant: usize,
    /// The same of one token.
    pub requests_per_token: usize,
    /// Sockets of one tenant that are open at once.
    pub sockets_per_tenant: usize,
    /// The same of one token.
    pub sockets_per_token: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            body_bytes_max: 8 << 20,
            body_ms_max: 60_000,
            in_flight_bytes_max: 256 << 20,
            tenant_in_flight_bytes_max: 128 << 20,
            requests_per_tenant: 8_000,
            requests_per_token: 8_000,
            sockets_per_tenant: 8_000,
            sockets_per_token: 8_000,
        }
    }
}

/// Bytes of a refused body that are read and thrown away, so that a client which writes before it reads sees the refusal.
pub(crate) const DISCARD_BYTES_MAX: usize = 64 << 20;
/// How long the next of those bytes are waited for.
pub(crate) const DISCARD_IDLE_MS: u64 = 2_000;
/// Characters of an agent's name.
pub(crate) const AGENT_CHARS_MAX: usize = 128;
/// Characters of other names: workers, actions, steps, tools, models.
pub(crate) const NAME_CHARS_MAX: usize = 128;
/// Characters of an idempotency key.
pub(crate) const KEY_CHARS_MAX: usize = 256;
/// Characters of a word about why.
pub(crate) const REASON_CHARS_MAX: usize = 4096;
/// Tools of one request.
pub(crate) const TOOLS_MAX: usize = 256;
/// Fields one deliverable may be asked for.
pub(crate) const RESULT_FIELDS_MAX: usize = 100;
/// Boxes packed into one.
pub(crate) const BOXES_MAX: usize = 100;
/// Calls one claim may take.
pub(crate) const CLAIM_MAX: u64 = 100;
/// Calls one renewal or release may name.
pub(crate) const HELD_CALLS_MAX: usize = 1000;
/// The longest hold on a call.
pub(crate) const LEASE_S_MAX: u64 = 3600;
/// The hold of a claim that names none.
pub(crate) const LEASE_S: u64 = 60;
/// How long a claim may wait for calls.
pub(crate) const CLAIM_WAIT_S_MAX: u64 = 30;
/// Rows of a page that names no number.
pub(crate) const PAGE_ROWS: usize = 100;
/// Rows of a page.
pub(crate) const PAGE_ROWS_MAX: usize = 1000;
/// Rows of a list that names no number.
pub(crate) const LIST_ROWS: usize = 50;
/// Rows of a list.
pub(crate) const LIST_ROWS_MAX: usize = 200;
/// Characters of a text that is searched for.
pub(crate) const TEXT_CHARS_MAX: usize = 200;
/// Open runs whose calls are counted by tool.
pub(crate) const OPEN_RUNS_COUNTED_MAX: usize = 1000;
/// Items read at a time for a page of content.
pub(crate) const CONTENT_ROWS: usize = 16;
/// Bytes of content after which a page is full.
pub(crate) const PAGE_BYTES_MAX: usize = 8 << 20;
/// Journal entries an event stream reads at a time.
pub(crate) const EVENTS_PAGE: usize = 64;
/// What one request may bring back of earlier responses, in bodies.
pub(crate) const RECALLED_BODIES_MAX: usize = 4;
/// How often a waiting reader looks by itself.
pub(crate) const LOOK_MS: u64 = 1000;
/// How often a silent event stream says that it is there.
pub(crate) const HEARTBEAT_MS: u64 = 15_000;
/// Sockets that are open at the most.
pub(crate) const SOCKETS_MAX: usize = 10_000;
/// The largest number a store can count to.
pub(crate) const NUMBER_MAX: u64 = i64::MAX.unsigned_abs();
