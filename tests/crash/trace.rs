//! What a process did, as `strace -f -y` writes it down, and whether it flushed before it spoke.
//!
//! An announcement is a write to a socket that tells somebody outside of a commit: the answer to a POST, an event of a stream, a
//! request to the model, a call handed to a service. When it begins, everything written to the database's log must have been
//! flushed: by an fsync or fdatasync of the log which began after the last of these writes had ended, and which has ended.

use std::collections::BTreeMap;

/// Words that ask the server to commit something, as the last part of a path.
pub const ASKED: [&str; 8] = ["enqueue", "actions", "claim", "renew", "release", "report", "stop", "reconcile"];

/// One system call.
#[derive(Clone, Debug)]
pub struct Call {
    name: String,
    /// What follows the name: descriptor, arguments, result.
    text: String,
    /// The lines on which it began and ended.
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

    /// Whether an answer says that something was committed. A claim that finds nothing commits nothing.
    fn commits(&self) -> bool {
        self.text.contains("\"HTTP/1.1 2") && !self.text.contains("{\\\"calls\\\":[]}")
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

/// Reads a trace. Calls that others interrupt are put together again.
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

/// Something that was told to the outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// What: one of `ASKED`, `event` or `model`.
    pub what: String,
    /// The line on which it began.
    begin: usize,
    /// The line on which the request was read, if it answers one that commits.
    since: Option<usize>,
}

/// What was read from a socket since the last answer. A request may come in pieces.
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

    /// The last part of the path of a POST.
    fn what(&self) -> Option<String> {
        let (path, _) = self.text.strip_prefix("POST ")?.split_once(" HTTP")?;
        path.rsplit('/').next().map(str::to_owned)
    }
}

/// Everything that was told, in order.
pub fn announcements(calls: &[Call]) -> Vec<Announcement> {
    let mut told = Vec::new();
    let mut requests: BTreeMap<&str, Request> = BTreeMap::new();
    for call in calls.iter().filter(|call| call.is_socket() && call.has_succeeded()) {
        if call.reads() {
            requests.entry(call.file()).or_default().take(call);
        } else if call.writes() {
            let event = call.text.contains("event: evt.").then(|| ("event".to_owned(), None));
            let model = call.text.contains("\"POST /v1/chat/completions").then(|| ("model".to_owned(), None));
            let is_answer = call.text.contains("\"HTTP/1.1 ");
            let request = if is_answer { requests.remove(call.file()) } else { None };
            let answer = request.filter(|_| call.commits()).and_then(|request| Some((request.what()?, Some(request.since?))));
            told.extend(event.or(model).or(answer).map(|(what, since)| Announcement { what, begin: call.begin, since }));
        }
    }
    told
}

/// What was told before it was on disk.
pub fn violations(calls: &[Call], told: &[Announcement]) -> Vec<String> {
    let log: Vec<&Call> = calls.iter().filter(|call| call.is_log() && call.writes()).collect();
    let flushes: Vec<&Call> = calls.iter().filter(|call| call.is_flush()).collect();
    let mut wrong = Vec::new();
    for Announcement { what, begin, since } in told {
        let Some(last) = log.iter().rev().find(|write| write.begin < *begin) else {
            wrong.push(format!("line {begin}: {what} was told though nothing had been written"));
            continue;
        };
        if !flushes.iter().any(|flush| flush.begin > last.end && flush.end < *begin) {
            wrong.push(format!("line {begin}: {what} was told before the log written on line {} was flushed", last.end));
        }
        if since.is_some_and(|read| last.begin < read) {
            wrong.push(format!("line {begin}: {what} was answered and nothing had been written since it was asked"));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: &str = r#"
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

    /// How much was told, and how much of it too early.
    fn found(trace: &str) -> (usize, usize) {
        let calls = parse(trace);
        let told = announcements(&calls);
        (told.len(), violations(&calls, &told).len())
    }

    #[test]
    fn an_answer_after_the_flush_is_fine() {
        assert_eq!(found(TOLD), (1, 0));
    }

    #[test]
    fn an_answer_while_the_flush_is_under_way_is_not() {
        let lines: Vec<&str> = TOLD.lines().collect();
        let mut early = lines.clone();
        let answer = early.pop().unwrap_or_default();
        early.insert(lines.len() - 2, answer);
        assert_eq!(found(&early.join("\n")), (1, 1));
    }

    #[test]
    fn a_flush_that_failed_or_of_another_file_is_none() {
        assert_eq!(found(&TOLD.replace("<... fdatasync resumed>) = 0", "<... fdatasync resumed>) = -1 EIO (Input/output error)")), (1, 1));
        assert_eq!(found(&TOLD.replace("fdatasync(5</x/windlass.db-wal>", "fdatasync(6</x/windlass.db>")), (1, 1));
    }

    #[test]
    fn an_answer_without_a_write_is_noticed() {
        let before: String = TOLD.lines().filter(|line| line.starts_with('8')).map(|line| format!("{line}\n")).collect();
        let after: String = TOLD.lines().filter(|line| line.starts_with('7')).map(|line| format!("{line}\n")).collect();
        assert_eq!(found(&format!("{before}{after}")), (1, 1));
    }
}
