//! What a process did, as `strace -f -y` records it, and whether it flushed before it reported anything.
//!
//! An announcement is a write to a socket that reports a commit to the outside: the answer to a POST, an event of a stream, a request to
//! the model, a call given to a service, the start of a tool. A write to the database's log counts as flushed when an fsync or fdatasync of
//! the log has ended that began after the write had ended.
//!
//! When an announcement begins, everything written to the log must have been flushed. With concurrent requests that condition is too
//! strong, because the log is also written for other requests. There, each announcement contains marks, each of which is used once, and
//! only the writes that contain one of these marks for the first time must have been flushed.

use std::collections::{BTreeMap, BTreeSet};

/// Announcements that answer a request which commits: mostly named by the last part of the path.
pub const ASKED: [&str; 11] =
    ["enqueue", "actions", "claim", "renew", "release", "report", "report under a key", "stop", "reconcile", "boxes", "responses"];

/// Announcements without a request.
pub const UNASKED: [&str; 4] = ["event", "response event", "model", "tool"];

/// The beginning of a mark. This number of digits follows.
const MARK: &str = "mark-";
const DIGITS: usize = 4;

/// A word that can be found in a trace. Nothing else contains it.
pub fn mark(number: usize) -> String {
    format!("{MARK}{number:0DIGITS$}")
}

/// The marks in a text.
fn marks(text: &str) -> BTreeSet<String> {
    let number = |rest: &str| rest.get(..DIGITS).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit())).map(str::to_owned);
    text.split(MARK).skip(1).filter_map(number).map(|digits| format!("{MARK}{digits}")).collect()
}

/// One system call.
#[derive(Clone, Debug)]
pub struct Call {
    name: String,
    /// Everything after the name: descriptor, arguments, result.
    text: String,
    /// The lines of the trace on which the call began and ended.
    begin: usize,
    end: usize,
}

impl Call {
    /// The first argument: a descriptor with its file or socket.
    fn descriptor(&self) -> &str {
        self.text.split([',', ')']).next().unwrap_or_default()
    }

    /// The inside of `fd<…>`.
    fn file(&self) -> &str {
        let inside = self.descriptor().split_once('<').map_or("", |(_, inside)| inside);
        inside.strip_suffix('>').unwrap_or(inside)
    }

    fn has_succeeded(&self) -> bool {
        self.text.rsplit_once(" = ").is_some_and(|(_, result)| !result.trim_start().starts_with(['-', '?']))
    }

    fn is_log(&self) -> bool {
        self.file().ends_with(".db-wal")
    }

    fn is_socket(&self) -> bool {
        self.file().starts_with("socket:")
    }

    /// Whether an answer reports a commit. A claim that finds nothing commits nothing.
    fn commits(&self) -> bool {
        self.text.contains("\"HTTP/1.1 2") && !self.text.contains("{\\\"calls\\\":[]}")
    }

    /// The kind of announcement without a request that this call makes, if it makes one.
    fn announcement_kind(&self) -> Option<&'static str> {
        let patterns = ["event: evt.", "event: response.", "\"POST /v1/chat/completions", "tools/call"];
        patterns.into_iter().zip(UNASKED).find_map(|(pattern, what)| self.text.contains(pattern).then_some(what))
    }

    fn writes(&self) -> bool {
        ["write", "writev", "pwrite64", "pwritev", "sendto", "sendmsg"].contains(&self.name.as_str())
    }

    fn reads(&self) -> bool {
        ["read", "recvfrom", "recvmsg"].contains(&self.name.as_str())
    }

    /// Whether it flushes the database's log.
    pub fn is_flush(&self) -> bool {
        ["fsync", "fdatasync"].contains(&self.name.as_str()) && self.is_log() && self.has_succeeded()
    }
}

/// Parses a trace, and joins the two parts of calls that others interrupted.
pub fn parse(trace: &str) -> Vec<Call> {
    let mut calls = Vec::new();
    let mut open: BTreeMap<&str, Call> = BTreeMap::new();
    for (number, line) in trace.lines().enumerate() {
        let Some((thread, rest)) = line.split_once(char::is_whitespace) else { continue };
        let Some((_, what)) = rest.trim_start().split_once(' ') else { continue };
        if let Some(resumed) = what.strip_prefix("<... ") {
            let Some((_, text)) = resumed.split_once(" resumed>") else { continue };
            if let Some(mut call) = open.remove(thread) {
                call.text.push_str(text);
                call.end = number;
                calls.push(call);
            }
        } else if let Some((name, text)) = what.split_once('(') {
            let call = Call { name: name.to_owned(), text: text.to_owned(), begin: number, end: number };
            match text.strip_suffix(" <unfinished ...>") {
                Some(begun) => {
                    open.insert(thread, Call { text: begun.to_owned(), ..call });
                }
                None => calls.push(call),
            }
        }
    }
    calls.sort_by_key(|call| call.begin);
    calls
}

/// One announcement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The kind: one of `ASKED` or `UNASKED`.
    pub what: String,
    /// The marks in the announcement and in the request that it answers.
    pub marks: BTreeSet<String>,
    /// The line of the trace on which it began.
    begin: usize,
    /// The line on which the request was read, if the announcement answers one that commits.
    since: Option<usize>,
}

/// The bytes read from a socket since the last answer. A request may arrive in several reads.
#[derive(Default)]
struct Request {
    text: String,
    since: Option<usize>,
}

impl Request {
    fn take(&mut self, call: &Call) {
        let read = call.text.split_once('"').and_then(|(_, rest)| rest.rsplit_once('"')).map_or("", |(read, _)| read);
        self.text.push_str(read);
        self.since.get_or_insert(call.end);
    }

    /// The last part of the path of a POST. For a report, also whether it has a key.
    fn what(&self) -> Option<String> {
        let (path, rest) = self.text.strip_prefix("POST ")?.split_once(" HTTP")?;
        let what = path.rsplit('/').next()?;
        let has_key = what == "report" && rest.contains("\\r\\nidempotency-key: ");
        Some(if has_key { format!("{what} under a key") } else { what.to_owned() })
    }
}

/// All announcements, in order.
pub fn announcements(calls: &[Call]) -> Vec<Announcement> {
    let mut announcements = Vec::new();
    let mut requests: BTreeMap<&str, Request> = BTreeMap::new();
    for call in calls.iter().filter(|call| call.is_socket() && call.has_succeeded()) {
        if call.reads() {
            requests.entry(call.file()).or_default().take(call);
        } else if call.writes() {
            let is_answer = call.text.contains("\"HTTP/1.1 ");
            let request = if is_answer { requests.remove(call.file()) } else { None };
            let request = request.filter(|_| call.commits());
            let asked = request.as_ref().map(|request| marks(&request.text)).unwrap_or_default();
            let answer = request.and_then(|request| Some((request.what()?, Some(request.since?))));
            let event = call.announcement_kind().map(|what| (what.to_owned(), None));
            let marks = &marks(&call.text) | &asked;
            announcements.extend(event.or(answer).map(|(what, since)| Announcement { what, marks, begin: call.begin, since }));
        }
    }
    announcements
}

/// The writes and flushes of the log.
struct Log<'a> {
    writes: Vec<&'a Call>,
    flushes: Vec<&'a Call>,
}

impl<'a> Log<'a> {
    fn of(calls: &'a [Call]) -> Self {
        let writes = calls.iter().filter(|call| call.is_log() && call.writes()).collect();
        Log { writes, flushes: calls.iter().filter(|call| call.is_flush()).collect() }
    }

    /// Whether a write was flushed before a line of the trace.
    fn is_flushed(&self, write: &Call, line: usize) -> bool {
        self.flushes.iter().any(|flush| flush.begin > write.end && flush.end < line)
    }

    /// For each mark, the first write that contains it.
    fn marked(&self) -> BTreeMap<String, &'a Call> {
        let mut first = BTreeMap::new();
        for write in &self.writes {
            for mark in marks(&write.text) {
                first.entry(mark).or_insert(*write);
            }
        }
        first
    }
}

/// The announcements that were made before the log was flushed, in a trace of one request after another.
pub fn violations(calls: &[Call], announcements: &[Announcement]) -> Vec<String> {
    let log = Log::of(calls);
    let mut wrong = Vec::new();
    for Announcement { what, begin, since, .. } in announcements {
        let Some(last) = log.writes.iter().rev().find(|write| write.begin < *begin) else {
            wrong.push(format!("line {begin}: {what} was announced although nothing had been written"));
            continue;
        };
        if !log.is_flushed(last, *begin) {
            wrong.push(format!("line {begin}: {what} was announced before the log written on line {} was flushed", last.end));
        }
        if since.is_some_and(|read| last.begin < read) {
            wrong.push(format!("line {begin}: {what} was answered and nothing had been written since it was asked"));
        }
    }
    wrong
}

/// The announcements that were made before their marks were flushed, in any trace: one line per announcement, however many marks are
/// missing.
pub fn early_marks(calls: &[Call], announcements: &[Announcement]) -> Vec<String> {
    let log = Log::of(calls);
    let written = log.marked();
    let fault = |Announcement { what, marks, begin, .. }: &Announcement| {
        marks.iter().find_map(|mark| match written.get(mark) {
            None => Some(format!("line {begin}: {what} contains {mark}, which was never written")),
            Some(write) if log.is_flushed(write, *begin) => None,
            Some(write) => Some(format!("line {begin}: {what} contains {mark} before the log written on line {} was flushed", write.end)),
        })
    };
    announcements.iter().filter_map(fault).collect()
}

/// The largest number of marks that one flush put on disk.
pub fn marks_at_once(calls: &[Call]) -> usize {
    let log = Log::of(calls);
    let mut groups: BTreeMap<usize, usize> = BTreeMap::new();
    for write in log.marked().values() {
        if let Some(flush) = log.flushes.iter().find(|flush| flush.begin > write.end) {
            *groups.entry(flush.begin).or_default() += 1;
        }
    }
    groups.into_values().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = r#"
7  1.0 recvfrom(9<socket:[1]>, "POST /v1/agents/a/en", 20, 0, NULL, NULL) = 20
7  1.0 recvfrom(9<socket:[1]>, "queue HTTP/1.1\r\n"..., 8192, 0, NULL, NULL) = 300
8  1.1 pwrite64(5</x/windlass.db-wal>, "..."..., 4120, 32 <unfinished ...>
7  1.2 recvfrom(9<socket:[1]>, 0x1, 8192, 0, NULL, NULL) = -1 EAGAIN (Resource temporarily unavailable)
8  1.3 <... pwrite64 resumed>) = 4120
8  1.4 fdatasync(5</x/windlass.db-wal> <unfinished ...>
7  1.5 write(3<anon_inode:[eventfd]>, "", 8) = 8
8  1.6 <... fdatasync resumed>) = 0
7  1.7 sendto(9<socket:[1]>, "HTTP/1.1 202 Accepted\r\n"..., 200, MSG_NOSIGNAL, NULL, 0) = 200
"#;

    /// The number of announcements, and the number of those that were made too early.
    fn found(trace: &str) -> (usize, usize) {
        let calls = parse(trace);
        let announcements = announcements(&calls);
        (announcements.len(), violations(&calls, &announcements).len())
    }

    #[test]
    fn an_answer_after_the_flush_is_fine() {
        assert_eq!(found(TRACE), (1, 0));
    }

    #[test]
    fn an_answer_while_the_flush_is_under_way_is_not() {
        let lines: Vec<&str> = TRACE.lines().collect();
        let mut early = lines.clone();
        let answer = early.pop().unwrap_or_default();
        early.insert(lines.len() - 2, answer);
        assert_eq!(found(&early.join("\n")), (1, 1));
    }

    #[test]
    fn a_flush_that_failed_or_of_another_file_is_none() {
        assert_eq!(found(&TRACE.replace("<... fdatasync resumed>) = 0", "<... fdatasync resumed>) = -1 EIO (Input/output error)")), (1, 1));
        assert_eq!(found(&TRACE.replace("fdatasync(5</x/windlass.db-wal>", "fdatasync(6</x/windlass.db>")), (1, 1));
    }

    #[test]
    fn a_mark_is_announced_after_the_flush_of_its_write_whatever_is_written_meanwhile() {
        let meanwhile = r#"8  1.65 pwrite64(5</x/windlass.db-wal>, "mark-0002", 9, 41) = 9"#;
        let marked =
            TRACE.replace("\"...\"..., 4120", "\"\\0mark-0001\"..., 4120").replace("queue HTTP/1.1\\r\\n", "queue HTTP/1.1\\r\\nmark-0001");
        let busy = marked.replace("7  1.7", &format!("{meanwhile}\n7  1.7"));
        let early = |trace: &str| {
            let calls = parse(trace);
            early_marks(&calls, &announcements(&calls)).len()
        };
        assert_eq!((found(&busy), early(&busy)), ((1, 1), 0));
        assert_eq!(early(&busy.replace("mark-0001", "mark-0002")), 0, "the first write of a mark counts");
        assert_eq!(early(&busy.replace("nmark-0001", "nmark-0003")), 1, "a mark that was never written");
        assert_eq!(early(&busy.replace("nmark-0001", "nmark-0002")), 1, "a mark that is not flushed");
        assert_eq!(early(&busy.replace("fdatasync(5</x/windlass.db-wal>", "fdatasync(6</x/windlass.db>")), 1);
    }

    #[test]
    fn an_answer_without_a_write_is_noticed() {
        let before: String = TRACE.lines().filter(|line| line.starts_with('8')).map(|line| format!("{line}\n")).collect();
        let after: String = TRACE.lines().filter(|line| line.starts_with('7')).map(|line| format!("{line}\n")).collect();
        assert_eq!(found(&format!("{before}{after}")), (1, 1));
    }
}
