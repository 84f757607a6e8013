//! The metrics that two builds are compared by, and the verdict on each.
//!
//! A metric is worse only if the median of the new build lies outside the spread (minimum to maximum) of the old build, on the
//! bad side. Two equal builds of seven samples each satisfy that by chance in 3.5 % of the cases, so `compare` measures the line
//! of such a metric a second time and counts the metric as worse only if both measurements agree.

use serde_json::Value;

/// Which direction of a metric is the good one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Throughput and shares of the ceiling.
    Higher,
    /// Time, memory, bytes, flushes.
    Lower,
}

/// One figure of a bench program.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Name of the bench line that prints it.
    pub line: &'static str,
    /// What the table of results calls it.
    pub label: &'static str,
    /// Which direction is the good one.
    pub better: Better,
    /// `peer` of the JSON object that contains it.
    peer: &'static str,
    /// `variant` of that object; the empty string matches every variant.
    variant: &'static str,
    /// Field of the object. A slash leads into a nested object.
    field: &'static str,
}

impl Metric {
    /// Reads the metric from the JSON objects that one execution of a bench program printed. `None` if the program does not
    /// print it, or printed no number.
    pub fn read(&self, printed: &[Value]) -> Option<f64> {
        let is_source = |object: &&Value| object["peer"] == self.peer && (self.variant.is_empty() || object["variant"] == self.variant);
        let object = printed.iter().find(is_source)?;
        let field = self.field.split('/').try_fold(object, |object, name| object.get(name))?;
        field.as_f64().or_else(|| field.get("value")?.as_f64())
    }
}

/// One JSON object of one bench line, as the source of several metrics.
struct Source {
    line: &'static str,
    peer: &'static str,
    variant: &'static str,
}

impl Source {
    const fn metric(&self, label: &'static str, better: Better, field: &'static str) -> Metric {
        Metric { line: self.line, label, better, peer: self.peer, variant: self.variant, field }
    }

    const fn higher(&self, label: &'static str, field: &'static str) -> Metric {
        self.metric(label, Better::Higher, field)
    }

    const fn lower(&self, label: &'static str, field: &'static str) -> Metric {
        self.metric(label, Better::Lower, field)
    }
}

const SQLITE: Source = Source { line: "durable", peer: "windlass", variant: "sqlite/in-process tool" };
const CLAIMED: Source = Source { line: "durable", peer: "windlass", variant: "sqlite/tool by claim" };
const SQLITE_RATIOS: Source = Source { line: "durable", peer: "ratios", variant: "" };
const POSTGRES: Source = Source { line: "postgres", peer: "windlass", variant: "postgres/in-process tool" };
const POSTGRES_RATIOS: Source = Source { line: "postgres", peer: "ratios", variant: "" };
const LONG_RUN: Source = Source { line: "laps", peer: "laps", variant: "" };
const SUSPENDED: Source = Source { line: "suspended", peer: "suspended", variant: "" };
const STREAMS: Source = Source { line: "streams", peer: "windlass", variant: "sqlite/streams" };
const FIRST_EVENT: Source = Source { line: "gateway", peer: "windlass", variant: "streamed alone" };
const ONE_TURN: Source = Source { line: "gateway", peer: "windlass", variant: "one turn" };
const THREE_TURNS: Source = Source { line: "gateway", peer: "windlass", variant: "three turns, two calls" };
const MEMORY: Source = Source { line: "gateway", peer: "windlass", variant: "memory" };

/// Every metric that `compare` judges, in the order of the table.
pub const METRICS: &[Metric] = &[
    SQLITE.higher("runs/s", "runs_per_s"),
    SQLITE_RATIOS.higher("runs/s of the ceiling's", "runs_per_s_of_ceiling"),
    SQLITE.lower("processor ms per run", "cpu_ms_per_run"),
    SQLITE.lower("flushes per run", "flushes_per_run_c1"),
    SQLITE.lower("bytes per run on disk", "disk_bytes_per_run"),
    SQLITE.lower("one run alone, p50 ms", "run_c1_p50_ms"),
    SQLITE.lower("one run alone, p99 ms", "run_c1_p99_ms"),
    SQLITE_RATIOS.lower("p50 alone of the ceiling's", "alone_p50_of_ceiling"),
    SQLITE.lower("resume at 64, p50 ms", "resume_cN_p50_ms"),
    SQLITE.lower("resume at 64, p99 ms", "resume_cN_p99_ms"),
    SQLITE_RATIOS.lower("resume p99 of the ceiling's", "resume_busy_p99_of_ceiling"),
    CLAIMED.higher("by claim: runs/s", "runs_per_s"),
    CLAIMED.lower("by claim: processor ms per run", "cpu_ms_per_run"),
    CLAIMED.lower("by claim: flushes per run", "flushes_per_run_c1"),
    CLAIMED.lower("by claim: bytes per run on disk", "disk_bytes_per_run"),
    CLAIMED.lower("by claim: alone, p50 ms", "run_c1_p50_ms"),
    CLAIMED.lower("by claim: resume at 64, p99 ms", "resume_cN_p99_ms"),
    POSTGRES.higher("runs/s", "runs_per_s"),
    POSTGRES_RATIOS.higher("runs/s of the ceiling's", "runs_per_s_of_ceiling"),
    POSTGRES.lower("processor ms per run", "cpu_ms_per_run"),
    POSTGRES.lower("one run alone, p50 ms", "run_c1_p50_ms"),
    POSTGRES_RATIOS.lower("p50 alone of the ceiling's", "alone_p50_of_ceiling"),
    POSTGRES.lower("resume at 64, p99 ms", "resume_cN_p99_ms"),
    LONG_RUN.lower("stored bytes of row bytes", "stored_of_unique"),
    LONG_RUN.lower("stored bytes of content", "stored_of_content"),
    LONG_RUN.lower("read ns per item at 500", "read_ns_per_item/at_500"),
    LONG_RUN.lower("read cost, 500 of 50", "read_growth"),
    SUSPENDED.lower("idle MiB", "idle_mib"),
    SUSPENDED.lower("growth MiB", "growth_mib"),
    SUSPENDED.lower("serving after kill, ms", "serving_after_kill_ms"),
    SUSPENDED.lower("first resumed after kill, ms", "first_resumed_after_kill_ms"),
    STREAMS.lower("model to reader, p50 ms", "announce_p50_ms"),
    STREAMS.lower("model to reader, p99 ms", "announce_p99_ms"),
    STREAMS.lower("writer, share of a core", "writer_cores"),
    STREAMS.lower("process, cores", "cores"),
    STREAMS.lower("device MB/s", "device_mb_per_s"),
    FIRST_EVENT.lower("first event after backend's, ms", "later_ms"),
    FIRST_EVENT.lower("first word, p50 ms", "first_word_p50_ms"),
    ONE_TURN.lower("one turn: processor ms", "cpu_ms_per_request"),
    ONE_TURN.higher("one turn: requests/s", "requests_per_s"),
    ONE_TURN.lower("one turn: p50 ms", "p50_ms"),
    ONE_TURN.lower("one turn: p99 ms", "p99_ms"),
    THREE_TURNS.lower("three turns: processor ms", "cpu_ms_per_request"),
    THREE_TURNS.higher("three turns: requests/s", "requests_per_s"),
    THREE_TURNS.lower("three turns: p50 ms", "p50_ms"),
    THREE_TURNS.lower("three turns: p99 ms", "p99_ms"),
    MEMORY.lower("MiB after the stored responses", "mib"),
];

/// Median and spread of one metric of one build.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The middle sample; the mean of the two in the middle of an even number of samples.
    pub median: f64,
    /// The smallest sample.
    pub min: f64,
    /// The largest sample.
    pub max: f64,
}

impl Summary {
    /// `None` if there are no samples.
    pub fn of(samples: &[f64]) -> Option<Summary> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let median = f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Some(Summary { median, min, max })
    }
}

/// The result of a comparison of one metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The new median is outside the old spread on the bad side.
    Worse,
    /// The first measurement was worse and its repetition was not.
    WorseOnce,
    /// The new median is inside the old spread.
    Same,
    /// The new median is outside the old spread on the good side.
    Better,
    /// The old build prints the metric and the new one does not.
    Missing,
    /// The old build does not print the metric.
    NotInOld,
}

impl Verdict {
    /// Judges the samples of one metric.
    pub fn of(better: Better, old: &[f64], new: &[f64]) -> Verdict {
        let Some(old) = Summary::of(old) else { return Verdict::NotInOld };
        let Some(new) = Summary::of(new) else { return Verdict::Missing };
        let (above, below) = (new.median > old.max, new.median < old.min);
        match (better, above, below) {
            (Better::Higher, true, _) | (Better::Lower, _, true) => Verdict::Better,
            (Better::Higher, _, true) | (Better::Lower, true, _) => Verdict::Worse,
            _ => Verdict::Same,
        }
    }

    /// The verdict after a repetition of the measurement: worse only if both measurements are.
    pub fn repeated(self, second: Verdict) -> Verdict {
        if self == Verdict::Worse && second != Verdict::Worse { Verdict::WorseOnce } else { self }
    }

    /// Whether the comparison fails because of this metric.
    pub fn is_failure(self) -> bool {
        matches!(self, Verdict::Worse | Verdict::Missing)
    }

    /// The word in the table of results.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Worse => "worse",
            Verdict::WorseOnce => "worse once",
            Verdict::Same => "same",
            Verdict::Better => "better",
            Verdict::Missing => "missing",
            Verdict::NotInOld => "not in old",
        }
    }
}

/// The samples of one metric, of both builds.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// Of the old build.
    pub old: Vec<f64>,
    /// Of the new build.
    pub new: Vec<f64>,
}

/// The heading of the table of results.
pub fn heading() -> String {
    let columns = ["line", "metric (+ higher is better, - lower)", "old median", "old min..max", "new median", "change", "verdict"];
    row(columns.map(str::to_owned))
}

/// One metric as a row of the table of results.
pub fn table_row(metric: &Metric, samples: &Samples, verdict: Verdict) -> String {
    let (old, new) = (Summary::of(&samples.old), Summary::of(&samples.new));
    let sign = if metric.better == Better::Higher { '+' } else { '-' };
    let median = |summary: Option<Summary>| summary.map_or("-".to_owned(), |summary| figure(summary.median));
    let spread = old.map_or("-".to_owned(), |old| format!("{}..{}", figure(old.min), figure(old.max)));
    let change = match (old, new) {
        (Some(old), Some(new)) if old.median != 0.0 => format!("{:+.1} %", (new.median / old.median - 1.0) * 100.0),
        _ => "-".to_owned(),
    };
    let label = format!("{sign} {}", metric.label);
    row([metric.line.to_owned(), label, median(old), spread, median(new), change, verdict.name().to_owned()])
}

fn row([line, label, old, spread, new, change, verdict]: [String; 7]) -> String {
    format!("{line:<10} {label:<36} {old:>10} {spread:>16} {new:>10} {change:>9}  {verdict}")
}

/// A number with about four significant digits.
fn figure(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const OLD: [f64; 7] = [5.0, 3.0, 4.0, 9.0, 6.0, 7.0, 8.0];

    #[test]
    fn a_summary_has_the_middle_sample_and_the_extremes() {
        assert_eq!(Summary::of(&OLD), Some(Summary { median: 6.0, min: 3.0, max: 9.0 }));
        assert_eq!(Summary::of(&[4.0, 1.0, 3.0, 2.0]), Some(Summary { median: 2.5, min: 1.0, max: 4.0 }));
        assert_eq!(Summary::of(&[2.0]), Some(Summary { median: 2.0, min: 2.0, max: 2.0 }));
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn only_a_median_outside_the_old_spread_changes_the_verdict() {
        let verdicts = |new: f64| [Better::Higher, Better::Lower].map(|better| Verdict::of(better, &OLD, &[new - 100.0, new, new + 100.0]));
        assert_eq!(verdicts(2.9), [Verdict::Worse, Verdict::Better]);
        assert_eq!(verdicts(9.1), [Verdict::Better, Verdict::Worse]);
        for inside in [3.0, 6.0, 9.0] {
            assert_eq!(verdicts(inside), [Verdict::Same; 2], "{inside} is not outside");
        }
    }

    #[test]
    fn a_metric_that_the_new_build_lost_fails_the_comparison_and_a_new_metric_does_not() {
        let lost = Verdict::of(Better::Lower, &OLD, &[]);
        let added = Verdict::of(Better::Lower, &[], &OLD);
        assert_eq!((lost, lost.is_failure()), (Verdict::Missing, true));
        assert_eq!((added, added.is_failure()), (Verdict::NotInOld, false));
    }

    #[test]
    fn worse_must_be_measured_twice_and_a_repetition_makes_nothing_worse() {
        assert_eq!(Verdict::Worse.repeated(Verdict::Worse), Verdict::Worse);
        assert_eq!(Verdict::Worse.repeated(Verdict::Same), Verdict::WorseOnce);
        assert!(!Verdict::WorseOnce.is_failure());
        assert_eq!(Verdict::Same.repeated(Verdict::Worse), Verdict::Same);
    }

    #[test]
    fn a_metric_is_read_from_the_object_of_its_peer_and_variant() {
        let printed = [
            json!({ "peer": "windlass", "variant": "one turn", "p50_ms": 1.5, "cpu_ms_per_request": { "value": 0.3, "holds": true } }),
            json!({ "peer": "windlass", "variant": "memory", "mib": null }),
            json!({ "peer": "laps", "read_ns_per_item": { "at_50": 1, "at_500": 2 } }),
        ];
        assert_eq!(ONE_TURN.lower("", "p50_ms").read(&printed), Some(1.5));
        assert_eq!(ONE_TURN.lower("", "cpu_ms_per_request").read(&printed), Some(0.3));
        assert_eq!(LONG_RUN.lower("", "read_ns_per_item/at_500").read(&printed), Some(2.0));
        assert_eq!(MEMORY.lower("", "mib").read(&printed), None, "a number that is not finite is printed as null");
        assert_eq!(THREE_TURNS.lower("", "p50_ms").read(&printed), None);
    }

    #[test]
    fn a_row_has_the_medians_the_spread_and_the_change() {
        let samples = Samples { old: vec![100.0, 110.0, 90.0], new: vec![120.0; 3] };
        let row = table_row(&SQLITE.higher("runs/s", "runs_per_s"), &samples, Verdict::Better);
        let columns: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(columns, ["durable", "+", "runs/s", "100.0", "90.00..110.0", "120.0", "+20.0", "%", "better"]);
        let unknown = table_row(&MEMORY.lower("MiB", "mib"), &Samples::default(), Verdict::NotInOld);
        assert!(unknown.ends_with("not in old"), "{unknown}");
    }
}
