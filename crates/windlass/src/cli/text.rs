//! Formats values for people: tables, ages, counts, reasons to wait, and colours on a terminal.

use std::io::IsTerminal;

use jiff::Timestamp;
use serde_json::Value;

/// The text without control characters, which a terminal would obey.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// A member of type string, cleaned; `-` if it is absent.
pub(crate) fn member(value: &Value, name: &str) -> String {
    value[name].as_str().map_or_else(|| "-".to_owned(), clean)
}

/// Colours, if standard output is a terminal and NO_COLOR is not set.
#[derive(Clone, Copy)]
pub(crate) struct TextStyle {
    is_on: bool,
}

impl TextStyle {
    pub fn of_stdout() -> Self {
        let is_refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        TextStyle { is_on: std::io::stdout().is_terminal() && !is_refused }
    }

    /// Colours a state or status. The text itself is complete without the colour.
    pub fn state(self, text: &str, padded: &str) -> String {
        let code = match text {
            "parked" | "queued" => "33",
            "failed" | "timeout" | "expired" => "31",
            "thinking" | "waiting" | "started" | "claimed" => "36",
            _ => return padded.to_owned(),
        };
        if self.is_on { format!("\u{1b}[{code}m{padded}\u{1b}[0m") } else { padded.to_owned() }
    }
}

/// Parses a time in an answer.
pub(crate) fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// The time of day, in UTC.
pub(crate) fn clock(value: &Value) -> String {
    let text = time(value).map(|at| at.to_string()).unwrap_or_default();
    text.get(11..19).unwrap_or("-").to_owned()
}

/// The duration between two times as `0s`, `42s`, `3m`, `5h` or `2d`.
pub(crate) fn span(from: Timestamp, to: Timestamp) -> String {
    let seconds = (to.as_second() - from.as_second()).max(0);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// The duration between two times, in a unit that suits it.
pub(crate) fn took(from: Timestamp, to: Timestamp) -> String {
    let ms = (to.as_millisecond() - from.as_millisecond()).max(0);
    if ms < 1_000 { format!("{ms}ms") } else { format!("{}.{}s", ms / 1_000, ms % 1_000 / 100) }
}

/// A number as `812`, `4.1k`, `18k` or `1.2M`.
pub(crate) fn count(number: u64) -> String {
    let scaled = |unit: u64, name: &str| match number / unit {
        whole @ 0..10 => format!("{whole}.{}{name}", number % unit * 10 / unit),
        whole => format!("{whole}{name}"),
    };
    match number {
        0..1_000 => number.to_string(),
        1_000..1_000_000 => scaled(1_000, "k"),
        _ => scaled(1_000_000, "M"),
    }
}

/// In short, why a run waits or how it ended.
pub(crate) fn why(row: &Value, now: Timestamp) -> String {
    let wait = &row["wait"];
    let what = member(wait, "what");
    let left = time(&wait["until"]).map(|until| span(now, until));
    match wait["kind"].as_str() {
        Some("queued") => format!("behind {what}"),
        Some("model_retry") => format!("model {what}: next try in {}", left.unwrap_or_default()),
        Some("tool_call") => format!("{what}: runs{}", left.map(|left| format!(", {left} left")).unwrap_or_default()),
        Some("child") => format!("{what}: works on its own"),
        Some("external_call") => format!("{what}: waits for a worker{}", left.map(|left| format!(", {left} left")).unwrap_or_default()),
        Some("approval") => format!("{what}: needs approval{}", left.map(|left| format!(", {left} left")).unwrap_or_default()),
        Some("budget") => format!("its budget of {what} is used up"),
        Some("unknown_outcome") => format!("{what}: outcome unknown"),
        Some("owners_lost") => "its server was lost time after time".to_owned(),
        Some("panicked") => "a step of it panicked".to_owned(),
        Some("unreadable") => "what is stored of it cannot be read".to_owned(),
        Some(other) => clean(other),
        None => ending(row),
    }
}

fn ending(row: &Value) -> String {
    let reason = match &row["end_reason"] {
        Value::String(reason) => clean(reason),
        Value::Object(reason) => {
            reason.iter().map(|(name, more)| format!("{name}: {}", clean(&plain(more)))).collect::<Vec<_>>().join(", ")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => return String::new(),
    };
    match row["task_status"].as_str() {
        Some("success") | None => reason,
        Some(status) => format!("{status}: {reason}"),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A table with headings. Each column is as wide as its content; the last one is not padded.
pub(crate) fn table(headings: &[&str], rows: &[Vec<String>], mark: impl Fn(usize, &str, &str) -> String) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([headings[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let line = |cells: &[String], mark: &dyn Fn(usize, &str, &str) -> String| {
        let padded = cells.iter().enumerate().map(|(column, cell)| {
            let width = if column + 1 == cells.len() { 0 } else { widths[column] };
            mark(column, cell, &format!("{cell:width$}"))
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    let headings: Vec<String> = headings.iter().map(|heading| (*heading).to_owned()).collect();
    let mut text = line(&headings, &|_, _, padded| padded.to_owned());
    rows.iter().for_each(|row| text += &line(row, &mark));
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a moment")
    }

    #[test]
    fn ages_and_counts_are_short() {
        let spans = [0, 59, 60, 3_599, 3_600, 172_799, 172_800].map(|seconds| span(at(0), at(seconds)));
        assert_eq!(spans, ["0s", "59s", "1m", "59m", "1h", "47h", "2d"]);
        assert_eq!(span(at(5), at(0)), "0s", "clocks may differ");
        assert_eq!([0, 999, 1_000, 4_150, 18_000, 1_250_000].map(count), ["0", "999", "1.0k", "4.1k", "18k", "1.2M"]);
    }

    #[test]
    fn a_row_says_why_it_waits() {
        let wait = |kind: &str| json!({ "wait": { "kind": kind, "what": "write_file", "until": "1970-01-01T00:02:00Z" } });
        for (row, expected) in [
            (wait("unknown_outcome"), "write_file: outcome unknown"),
            (wait("child"), "write_file: works on its own"),
            (wait("external_call"), "write_file: waits for a worker, 2m left"),
            (wait("tool_call"), "write_file: runs, 2m left"),
            (wait("queued"), "behind write_file"),
            (wait("model_retry"), "model write_file: next try in 2m"),
            (json!({ "wait": null, "task_status": "success", "end_reason": "answered" }), "answered"),
            (
                json!({ "wait": null, "task_status": "failed", "end_reason": { "model_failed": "refused" } }),
                "failed: model_failed: refused",
            ),
            (json!({ "wait": null, "task_status": null, "end_reason": null }), ""),
        ] {
            assert_eq!(why(&row, at(0)), expected);
        }
    }

    #[test]
    fn nothing_of_others_is_obeyed_by_a_terminal() {
        assert_eq!(clean("a\u{1b}[2Jb\nc"), "a [2Jb c");
        assert_eq!(member(&json!({ "a": "x\u{7}" }), "a"), "x ");
    }

    #[test]
    fn columns_are_as_wide_as_they_need() {
        let rows = vec![vec!["1".to_owned(), "long name".to_owned(), "x".to_owned()]];
        assert_eq!(table(&["RUN", "AGENT", "WHY"], &rows, |_, _, padded| padded.to_owned()), "RUN  AGENT      WHY\n1    long name  x\n");
    }
}
