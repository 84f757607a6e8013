//! The output of a process, for messages about its failure: the first line of its standard output, and the end of its standard error.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream},
    process::{ChildStderr, ChildStdout},
    sync::watch,
};

/// Lines of the standard error that a message repeats.
const ERROR_LINES_MAX: usize = 5;
/// Bytes of one line that are kept.
const LINE_BYTES_MAX: usize = 400;
/// The size of the buffer between the standard output and the session.
pub(crate) const BUFFER_BYTES: usize = 16 << 10;
/// How long a message waits for the end of the output after the process has exited. A child of the process may keep the pipes open.
const END_WAIT: Duration = Duration::from_millis(500);

/// The output of one process so far.
pub(crate) struct Output {
    first: Mutex<FirstLine>,
    errors: Mutex<VecDeque<String>>,
    /// The number of streams that have ended, of two.
    ended: watch::Sender<u8>,
}

#[derive(Default)]
struct FirstLine {
    bytes: Vec<u8>,
    is_whole: bool,
}

impl Output {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Output { first: Mutex::default(), errors: Mutex::default(), ended: watch::Sender::new(0) })
    }

    /// Reads the standard error to its end: logs every line with the server's label, and keeps the last ones.
    pub(crate) async fn read_errors(self: Arc<Self>, label: String, errors: ChildStderr) {
        let mut errors = BufReader::new(errors);
        let mut line = Vec::new();
        while let Ok(piece) = errors.fill_buf().await {
            if piece.is_empty() {
                break;
            }
            let end = piece.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(piece.len(), |end| end + 1);
            let room = LINE_BYTES_MAX - line.len();
            line.extend_from_slice(&piece[..end.unwrap_or(piece.len()).min(room)]);
            errors.consume(taken);
            if end.is_some() {
                self.take_error(&label, &std::mem::take(&mut line));
            }
        }
        if !line.is_empty() {
            self.take_error(&label, &line);
        }
        self.ended.send_modify(|ended| *ended += 1);
    }

    fn take_error(&self, label: &str, line: &[u8]) {
        let line: String = String::from_utf8_lossy(line).trim_end().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        if !line.is_empty() {
            tracing::info!(target: "windlass_tools::stderr", server = label, "{line}");
        }
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        if !line.is_empty() {
            errors.push_back(line);
        }
        if errors.len() > ERROR_LINES_MAX {
            errors.pop_front();
        }
    }

    /// The output as the end of a sentence; empty if there is none that could explain a failure.
    pub(crate) fn quoted(&self) -> String {
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let errors: Vec<&str> = errors.iter().map(String::as_str).collect();
        let errors = if errors.is_empty() { String::new() } else { format!("; its stderr ends with {:?}", errors.join(" | ")) };
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&first.bytes).trim().to_owned();
        let is_json =
            first.bytes.len() >= LINE_BYTES_MAX && text.starts_with('{') || serde_json::from_str::<serde_json::Value>(&text).is_ok();
        let first =
            if text.is_empty() || is_json { String::new() } else { format!("; its stdout begins with {text:?}, which is not JSON") };
        format!("{errors}{first}")
    }

    /// Waits until all output of an exited process has been read.
    pub(crate) async fn ended(&self) {
        let mut ended = self.ended.subscribe();
        let _ = tokio::time::timeout(END_WAIT, ended.wait_for(|ended| *ended == 2)).await;
    }

    /// Forwards the standard output to the session. The first line is read even if the session is closed already: a program that exits at
    /// once may close its input before its output has been read.
    pub(crate) async fn read_output(self: Arc<Self>, mut output: ChildStdout, mut session: DuplexStream) {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut is_open = true;
        while let Ok(length @ 1..) = output.read(&mut buffer).await {
            let is_whole = self.take_first(&buffer[..length]);
            is_open = is_open && session.write_all(&buffer[..length]).await.is_ok();
            if is_whole && !is_open {
                break;
            }
        }
        self.ended.send_modify(|ended| *ended += 1);
    }

    /// Keeps the bytes that belong to the first line. Returns whether that line is complete.
    fn take_first(&self, bytes: &[u8]) -> bool {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        if first.is_whole {
            return true;
        }
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let room = LINE_BYTES_MAX - first.bytes.len();
        first.bytes.extend_from_slice(&bytes[..end.unwrap_or(bytes.len()).min(room)]);
        first.is_whole = end.is_some() || first.bytes.len() == LINE_BYTES_MAX;
        first.is_whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_explains_a_failure_is_quoted() {
        let output = Output::new();
        assert_eq!(output.quoted(), "");
        assert!(!output.take_first(b"{\"jsonrpc\":"));
        assert!(output.take_first(b"\"2.0\"}\nmore"));
        assert_eq!(output.quoted(), "");
        for number in 0..9 {
            output.take_error("l", format!("line {number}\n").as_bytes());
        }
        assert_eq!(output.quoted(), r#"; its stderr ends with "line 4 | line 5 | line 6 | line 7 | line 8""#);
        let banner = Output::new();
        assert!(banner.take_first(b"Welcome!\n{}"));
        assert_eq!(banner.quoted(), r#"; its stdout begins with "Welcome!", which is not JSON"#);
    }
}
