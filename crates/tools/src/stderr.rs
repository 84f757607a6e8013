//! What a process of a tool server prints on stderr, in the log under the label of its server.

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::ChildStderr,
};

/// Bytes of a line that are logged. The rest of a longer one comes as further lines.
const LINE_BYTES_MAX: u64 = 4 << 10;

/// Logs every line until the process closes its stderr.
pub(crate) async fn log_lines(stderr: ChildStderr, label: String) {
    let mut lines = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut lines).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        if !text.is_empty() {
            tracing::info!(server = label, "{text}");
        }
    }
}
