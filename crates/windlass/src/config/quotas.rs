//! `quotas`: what each tenant may use. A quota that is not set is unlimited. `usage`: whether and for how long the totals are kept that
//! some quotas need.

use windlass_engine::{Quota, Quotas, Rate};

use super::{
    error::ConfigError,
    reader::{Field, Keys, Section},
    tenants::KnownTenants,
};

pub(super) const QUOTA: Keys =
    Keys { known: &["requests_per_second", "burst", "runs_queued", "tokens_per_day", "bytes_stored"], later: &[] };
pub(super) const USAGE: Keys = Keys { known: &["count", "keep"], later: &[] };

/// Days for which totals are kept by default.
const USAGE_DAYS: u32 = 400;

/// Reads the quotas by tenant; `*` applies to tenants without their own.
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
    Ok(Quota {
        requests: read_rate(&mut section)?,
        runs_queued: section.read("runs_queued", |field| field.whole(1))?,
        tokens_per_day: section.read("tokens_per_day", |field| field.whole(1))?,
        bytes_stored: section.read("bytes_stored", |field| field.whole(1))?,
    })
}

/// Reads for how many days totals of usage are kept; `None` if usage is not counted. It is counted if a quota needs it.
pub(super) fn read_usage(field: Option<Field>, quotas: &Quotas) -> Result<Option<u32>, ConfigError> {
    let Some(field) = field else { return Ok(quotas.need_usage().then_some(USAGE_DAYS)) };
    let mut section = field.section(&USAGE)?;
    let count = section.take("count");
    let is_counted = count.as_ref().map(Field::flag).transpose()?.unwrap_or(quotas.need_usage());
    if let Some(count) = count.filter(|_| !is_counted && quotas.need_usage()) {
        return Err(count.fail("quotas with tokens_per_day need usage to be counted"));
    }
    let days = section.read("keep", |field| {
        let days = field.duration()?.as_secs() / (24 * 60 * 60);
        u32::try_from(days).ok().filter(|days| *days > 0).ok_or_else(|| field.expected("a time of at least 1d"))
    })?;
    Ok(is_counted.then_some(days.unwrap_or(USAGE_DAYS)))
}

/// Without a burst, the requests of one second may arrive at once.
fn read_rate(section: &mut Section) -> Result<Option<Rate>, ConfigError> {
    let burst = section.take("burst");
    let Some(per_1000_s) = section.read("requests_per_second", Field::thousandths)? else {
        return burst.map_or(Ok(None), |field| Err(field.fail("only together with requests_per_second")));
    };
    let of_a_second = u32::try_from(per_1000_s.div_ceil(1_000)).unwrap_or(u32::MAX);
    let burst = burst.map_or(Ok(of_a_second), |field| field.whole(1))?;
    Ok(Some(Rate { per_1000_s, burst }))
}
