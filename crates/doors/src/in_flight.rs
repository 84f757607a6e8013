//! Bytes in flight: data that clients have sent and that the server holds in memory, before it is stored or refused. Request bodies and
//! WebSocket messages count from their first byte until they have been handled, over all tenants and per tenant.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::http::StatusCode;
use windlass_kernel::Tenant;

use crate::error::ApiError;

/// Seconds after which a client should retry.
const RETRY_S: u32 = 1;

/// The limits on bytes in flight, and the bytes that count against them.
#[derive(Debug)]
pub(crate) struct ByteBudget {
    bytes_max: usize,
    tenant_bytes_max: usize,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    bytes: usize,
    /// Only tenants with bytes in flight have an entry, so the map stays small.
    by_tenant: HashMap<Tenant, usize>,
}

/// A limit on bytes in flight is reached. The number is the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// The limit over all tenants.
    Server(usize),
    /// The limit of this tenant.
    Tenant(usize),
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Full::Server(max) => write!(f, "all clients together are sending more than {max} bytes at once; try again later"),
            Full::Tenant(max) => {
                write!(f, "this tenant is sending more than {max} bytes at once; send less in parallel, or try again later")
            }
        }
    }
}

impl From<Full> for ApiError {
    fn from(full: Full) -> Self {
        let (status, code) = match full {
            Full::Server(_) => (StatusCode::SERVICE_UNAVAILABLE, "bytes_in_flight_full"),
            Full::Tenant(_) => (StatusCode::TOO_MANY_REQUESTS, "tenant_bytes_in_flight_full"),
        };
        ApiError::new(status, code, full.to_string()).retry_after(RETRY_S)
    }
}

impl ByteBudget {
    pub fn new(bytes_max: usize, tenant_bytes_max: usize) -> Arc<Self> {
        Arc::new(ByteBudget { bytes_max, tenant_bytes_max, used: Mutex::default() })
    }

    /// An empty lease for `tenant`.
    pub fn lease(self: &Arc<Self>, tenant: &Tenant) -> ByteLease {
        ByteLease { budget: self.clone(), tenant: tenant.clone(), bytes: 0 }
    }

    fn take(&self, tenant: &Tenant, bytes: usize) -> Result<(), Full> {
        let mut used = self.lock();
        let of_tenant = used.by_tenant.get(tenant).copied().unwrap_or(0).saturating_add(bytes);
        if of_tenant > self.tenant_bytes_max {
            return Err(Full::Tenant(self.tenant_bytes_max));
        }
        let of_all = used.bytes.saturating_add(bytes);
        if of_all > self.bytes_max {
            return Err(Full::Server(self.bytes_max));
        }
        used.bytes = of_all;
        used.by_tenant.insert(tenant.clone(), of_tenant);
        Ok(())
    }

    fn give_back(&self, tenant: &Tenant, bytes: usize) {
        let mut used = self.lock();
        used.bytes -= bytes;
        if let Some(of_tenant) = used.by_tenant.get_mut(tenant) {
            *of_tenant -= bytes;
            if *of_tenant == 0 {
                used.by_tenant.remove(tenant);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of one tenant that count as in flight until the lease is dropped.
#[derive(Debug)]
pub(crate) struct ByteLease {
    budget: Arc<ByteBudget>,
    tenant: Tenant,
    bytes: usize,
}

impl ByteLease {
    /// Counts `bytes` more. On an error nothing is counted.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Full> {
        self.budget.take(&self.tenant, bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Gives bytes back until the lease has at most `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        let spare = self.bytes.saturating_sub(bytes);
        if spare > 0 {
            self.bytes -= spare;
            self.budget.give_back(&self.tenant, spare);
        }
    }

    /// Moves all bytes into a new lease and leaves this one empty.
    pub fn take(&mut self) -> ByteLease {
        let bytes = std::mem::take(&mut self.bytes);
        ByteLease { budget: self.budget.clone(), tenant: self.tenant.clone(), bytes }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for ByteLease {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

/// The counted bytes of one request's body. It is stored in the request's extensions; dropping its last clone gives the bytes back.
#[derive(Clone)]
pub(crate) struct RequestBytes(Arc<Mutex<ByteLease>>);

impl RequestBytes {
    pub fn new(lease: ByteLease) -> Self {
        RequestBytes(Arc::new(Mutex::new(lease)))
    }

    pub fn grow(&self, bytes: usize) -> Result<(), Full> {
        self.lock().grow(bytes)
    }

    /// Gives the bytes back once the body has been handled and freed.
    pub fn release(&self) {
        self.lock().shrink_to(0);
    }

    fn lock(&self) -> MutexGuard<'_, ByteLease> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tm_11_bytes_in_flight_are_bounded_over_all_and_per_tenant() {
        let budget = ByteBudget::new(100, 60);
        let (a, b) = (Tenant::from("a"), Tenant::from("b"));
        let mut first = budget.lease(&a);
        assert_eq!((first.grow(40), first.grow(21)), (Ok(()), Err(Full::Tenant(60))));
        let mut second = budget.lease(&a);
        assert_eq!((second.grow(20), second.grow(1)), (Ok(()), Err(Full::Tenant(60))), "one tenant's leases count together");
        let mut other = budget.lease(&b);
        assert_eq!((other.grow(40), other.grow(1)), (Ok(()), Err(Full::Server(100))), "another tenant has its own part");
        drop(second);
        assert_eq!(other.grow(20), Ok(()), "what is given back can be used again");
        first.shrink_to(10);
        let moved = first.take();
        assert_eq!((first.bytes(), moved.bytes(), budget.lock().bytes), (0, 10, 70));
        drop((first, moved, other));
        assert!(budget.lock().bytes == 0 && budget.lock().by_tenant.is_empty(), "nothing is left behind");
    }
}
