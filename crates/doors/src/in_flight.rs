//! Bytes in flight: what clients have sent and the server holds in memory, before it is stored or refused. Request bodies and
//! WebSocket messages count from their first byte until they have been handled, over all tenants and per tenant.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::http::StatusCode;
use windlass_kernel::Tenant;

use crate::error::ApiError;

/// Seconds after which another try may find room.
const RETRY_S: u32 = 1;

/// The bytes that may be in flight.
#[derive(Debug)]
pub(crate) struct ByteBudget {
    bytes_max: usize,
    tenant_bytes_max: usize,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    bytes: usize,
    /// Only tenants with bytes in flight are in it.
    by_tenant: HashMap<Tenant, usize>,
}

/// There is no room for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// All tenants together have as much in flight as may be.
    Server(usize),
    /// This tenant has.
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

    /// A lease on nothing yet.
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
    /// Adds bytes, unless there is no room for them.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Full> {
        self.budget.take(&self.tenant, bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Gives bytes back until no more than these are left.
    pub fn shrink_to(&mut self, bytes: usize) {
        let spare = self.bytes.saturating_sub(bytes);
        if spare > 0 {
            self.bytes -= spare;
            self.budget.give_back(&self.tenant, spare);
        }
    }

    /// All of its bytes as a lease of their own; this one is left with none.
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

/// The bytes of one request's body. It stands in the request's extensions; dropping the request gives the bytes back.
#[derive(Clone)]
pub(crate) struct RequestBytes(Arc<Mutex<ByteLease>>);

impl RequestBytes {
    pub fn new(lease: ByteLease) -> Self {
        RequestBytes(Arc::new(Mutex::new(lease)))
    }

    pub fn grow(&self, bytes: usize) -> Result<(), Full> {
        self.lock().grow(bytes)
    }

    /// The body has been handled, and is no longer in memory.
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
