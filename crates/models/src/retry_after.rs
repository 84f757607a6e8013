//! Reads the pause that a provider asks for before a retry.

use jiff::fmt::rfc2822;
use reqwest::header::{DATE, HeaderMap, HeaderName, RETRY_AFTER};

/// The pause in milliseconds, if a header asks for one. A date is compared with the answer's own `Date`, so that the two clocks need not
/// agree.
pub(crate) fn read(headers: &HeaderMap) -> Option<u64> {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok().map(str::trim);
    let exact = text(HeaderName::from_static("retry-after-ms")).and_then(|ms| whole_ms(ms, 1.0));
    exact.or_else(|| {
        let after = text(RETRY_AFTER)?;
        whole_ms(after, 1_000.0).or_else(|| Some(epoch_ms(after)?.saturating_sub(epoch_ms(text(DATE)?)?).max(0).unsigned_abs()))
    })
}

fn whole_ms(text: &str, ms_per_unit: f64) -> Option<u64> {
    let number: f64 = text.parse().ok()?;
    // The cast saturates, so an absurdly large number stays a long pause.
    (number.is_finite() && number >= 0.0).then(|| (number * ms_per_unit).ceil() as u64)
}

fn epoch_ms(date: &str) -> Option<i64> {
    rfc2822::parse(date).ok().map(|moment| moment.timestamp().as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pause(headers: &[(&'static str, &str)]) -> Option<u64> {
        let pairs = headers.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        read(&pairs.collect())
    }

    #[test]
    fn seconds_milliseconds_and_dates_are_understood() {
        assert_eq!(pause(&[("retry-after", "2")]), Some(2_000));
        assert_eq!(pause(&[("retry-after", "0.25")]), Some(250));
        assert_eq!(pause(&[("retry-after", "2"), ("retry-after-ms", "30")]), Some(30));
        let (now, later) = ("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:50:07 GMT");
        assert_eq!(pause(&[("date", now), ("retry-after", later)]), Some(30_000));
        assert_eq!(pause(&[("date", later), ("retry-after", now)]), Some(0));
    }

    #[test]
    fn what_makes_no_sense_is_no_pause() {
        assert_eq!(pause(&[]), None);
        for nonsense in ["", "-1", "soon", "NaN", "inf", "Sun, 06 Nov 1994 08:49:37 GMT"] {
            assert_eq!(pause(&[("retry-after", nonsense)]), None, "{nonsense}");
        }
    }
}
