//! The limits of the doors.

/// The limits that an operator sets in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one request body.
    pub body_bytes_max: usize,
    /// Milliseconds in which a body must arrive.
    pub body_ms_max: u64,
    /// Bytes of request bodies and WebSocket messages in flight, over all tenants.
    pub in_flight_bytes_max: usize,
    /// Bytes of request bodies and WebSocket messages in flight, per tenant.
    pub tenant_in_flight_bytes_max: usize,
    /// Requests that one tenant may have open at once, streams included.
    pub requests_per_tenant: usize,
    /// Requests that one token may have open at once, streams included.
    pub requests_per_token: usize,
    /// WebSockets that one tenant may have open at once.
    pub sockets_per_tenant: usize,
    /// WebSockets that one token may have open at once.
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

/// Bytes of a refused body that the server reads and discards, so that a client which writes its whole request before it reads gets the
/// refusal.
pub(crate) const DISCARD_BYTES_MAX: usize = 64 << 20;
/// Milliseconds that the server waits for more of a body that it discards.
pub(crate) const DISCARD_IDLE_MS: u64 = 2_000;
/// Characters of an agent's name.
pub(crate) const AGENT_CHARS_MAX: usize = 128;
/// Characters of other names: workers, actions, steps, tools, models.
pub(crate) const NAME_CHARS_MAX: usize = 128;
/// Characters of an idempotency key.
pub(crate) const KEY_CHARS_MAX: usize = 256;
/// Characters of a reason, such as that of a stop.
pub(crate) const REASON_CHARS_MAX: usize = 4096;
/// Tools of one request.
pub(crate) const TOOLS_MAX: usize = 256;
/// Fields that a request may ask a deliverable to have.
pub(crate) const RESULT_FIELDS_MAX: usize = 100;
/// Boxes that one box may be packed from.
pub(crate) const BOXES_MAX: usize = 100;
/// Calls that one claim may take.
pub(crate) const CLAIM_MAX: u64 = 100;
/// Calls that one renewal or release may name.
pub(crate) const LEASED_CALLS_MAX: usize = 1000;
/// The longest lease on a call, in seconds.
pub(crate) const LEASE_S_MAX: u64 = 3600;
/// The lease of a claim that asks for none in particular, in seconds.
pub(crate) const LEASE_S: u64 = 60;
/// Seconds that a claim may wait for calls.
pub(crate) const CLAIM_WAIT_S_MAX: u64 = 30;
/// Rows of a page if the request gives no `limit`.
pub(crate) const PAGE_ROWS: usize = 100;
/// The largest `limit` of a page.
pub(crate) const PAGE_ROWS_MAX: usize = 1000;
/// Rows of a list if the request gives no `limit`.
pub(crate) const LIST_ROWS: usize = 50;
/// The largest `limit` of a list.
pub(crate) const LIST_ROWS_MAX: usize = 200;
/// Characters of a search text.
pub(crate) const TEXT_CHARS_MAX: usize = 200;
/// Open runs whose calls are counted for the list of tools.
pub(crate) const OPEN_RUNS_COUNTED_MAX: usize = 1000;
/// Items read at a time for a page of content.
pub(crate) const CONTENT_ROWS: usize = 16;
/// Bytes of content after which a page is full.
pub(crate) const PAGE_BYTES_MAX: usize = 8 << 20;
/// Journal entries an event stream reads at a time.
pub(crate) const EVENTS_PAGE: usize = 64;
/// How much of earlier responses one request may bring back, as a multiple of the largest body.
pub(crate) const RECALLED_BODIES_MAX: usize = 4;
/// Milliseconds after which a waiting reader checks the store without a notification: notifications do not cross processes reliably.
pub(crate) const POLL_MS: u64 = 1000;
/// Milliseconds of silence after which an event stream sends a heartbeat.
pub(crate) const HEARTBEAT_MS: u64 = 15_000;
/// Sockets that may be open at once, over all tenants.
pub(crate) const SOCKETS_MAX: usize = 10_000;
/// The largest number that every store can hold.
pub(crate) const NUMBER_MAX: u64 = i64::MAX.unsigned_abs();
