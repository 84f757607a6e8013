//! Limits how many requests or sockets one tenant and one token may have open at once.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::http::StatusCode;
use windlass_kernel::Tenant;

use crate::{auth::Caller, error::ApiError};

/// Seconds after which a client should retry.
const RETRY_S: u32 = 1;

/// Counts open requests or open sockets, by tenant and by token.
#[derive(Debug)]
pub(crate) struct Shares {
    /// What is counted, for error messages: `requests` or `sockets`.
    what: &'static str,
    per_tenant: usize,
    per_token: usize,
    open: Mutex<Open>,
}

/// The counts. Only tenants and tokens with something open have an entry.
#[derive(Debug, Default)]
struct Open {
    by_tenant: HashMap<Tenant, usize>,
    by_token: HashMap<[u8; 32], usize>,
}

/// One open request or socket. Dropping it decrements the counts.
#[derive(Debug)]
pub(crate) struct Share {
    shares: Arc<Shares>,
    tenant: Tenant,
    token: [u8; 32],
}

impl Shares {
    pub fn new(what: &'static str, per_tenant: usize, per_token: usize) -> Arc<Self> {
        Arc::new(Shares { what, per_tenant, per_token, open: Mutex::default() })
    }

    /// Counts one more for `caller`, or refuses if its tenant or its token has reached its limit.
    pub fn take(self: &Arc<Self>, caller: &Caller) -> Result<Share, ApiError> {
        let (tenant, token) = (caller.tenant(), caller.token_hash());
        let mut open = self.lock();
        let of_tenant = open.by_tenant.get(tenant).copied().unwrap_or(0);
        let of_token = open.by_token.get(token).copied().unwrap_or(0);
        if of_token >= self.per_token {
            return Err(self.full("token", self.per_token));
        }
        if of_tenant >= self.per_tenant {
            return Err(self.full("tenant", self.per_tenant));
        }
        open.by_tenant.insert(tenant.clone(), of_tenant + 1);
        open.by_token.insert(*token, of_token + 1);
        Ok(Share { shares: self.clone(), tenant: tenant.clone(), token: *token })
    }

    fn full(&self, whose: &str, max: usize) -> ApiError {
        let message = format!("this {whose} has {max} {} open, which is as many as it may have; try again later", self.what);
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_open", message).retry_after(RETRY_S)
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut open = self.shares.lock();
        release(&mut open.by_tenant, &self.tenant);
        release(&mut open.by_token, &self.token);
    }
}

fn release<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tm_11_a_tenant_and_a_token_have_a_limited_number_of_open_requests() {
        let shares = Shares::new("requests", 3, 2);
        let (one, two) = (Caller::for_tests_with(1, "t"), Caller::for_tests_with(2, "t"));
        let mut open = vec![shares.take(&one).expect("room"), shares.take(&one).expect("room")];
        assert!(shares.take(&one).expect_err("no more of this token").message().contains("this token has 2 requests"));
        open.push(shares.take(&two).expect("room"));
        assert!(shares.take(&two).expect_err("no more of this tenant").message().contains("this tenant has 3 requests"));
        assert!(shares.take(&Caller::for_tests_with(3, "u")).is_ok(), "another tenant has its own");
        open.clear();
        assert!(shares.take(&one).is_ok());
        assert!(shares.lock().by_tenant.is_empty() && shares.lock().by_token.is_empty());
    }
}
