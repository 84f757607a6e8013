//! `quotas`: what each tenant may use. What is not written has no limit.

use windlass_engine::{Quota, Quotas, Rate};

use super::{
    error::ConfigError,
    reader::{Field, Keys, Section},
    tenants::KnownTenants,
};

pub(super) const QUOTA: Keys = Keys { known: &["requests_per_second", "burst", "runs_queued"], later: &["bytes_stored", "tokens_per_day"] };

/// Quotas by tenant; `*` is for tenants without their own.
pub(super) fn read_quotas(field: Option<Field>, known: &KnownTenants) -> Result<Quotas, ConfigError> {
    let mut quotas = Quotas::default();
    let Some(field) = field else { return Ok(quotas) };
    for (name, field) in field.named_or_all()? {
        if name == "*" {
            quotas.default = read_quota(field.section(&QUOTA)?)?;
        } else {
            let tenant = known.check(&name, &field)?;
            quotas.tenants.insert(tenant, read_quota(field.section(&QUOTA)?)?);
        }
    }
    Ok(quotas)
}

fn read_quota(mut section: Section) -> Result<Quota, ConfigError> {
    Ok(Quota { requests: read_rate(&mut section)?, runs_queued: section.read("runs_queued", |field| field.whole(1))? })
}

/// Without a burst, the requests of one second may come at once.
fn read_rate(section: &mut Section) -> Result<Option<Rate>, ConfigError> {
    let burst = section.take("burst");
    let Some(per_1000_s) = section.read("requests_per_second", Field::thousandths)? else {
        return burst.map_or(Ok(None), |field| Err(field.fail("only together with requests_per_second")));
    };
    let of_a_second = u32::try_from(per_1000_s.div_ceil(1_000)).unwrap_or(u32::MAX);
    let burst = burst.map_or(Ok(of_a_second), |field| field.whole(1))?;
    Ok(Some(Rate { per_1000_s, burst }))
}
