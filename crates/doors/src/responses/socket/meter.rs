//! Counts the bytes of messages that are still arriving on a socket.
//!
//! The WebSocket implementation buffers a message and reports nothing until its last byte has arrived. So the bytes are counted where they
//! are read from the connection.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::Notify,
    time::{Instant, sleep_until},
};

use crate::in_flight::{ByteLease, Full};

/// The bytes of a control frame besides its payload: two for the header, four for the mask.
const CONTROL_HEAD_BYTES: usize = 6;

/// How many reads in a row are discarded before the task yields.
const DISCARDED_READS_MAX: usize = 16;

/// Why the server stops reading a socket's input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FrameOverrun {
    /// The byte budget has no room for the message.
    Full(Full),
    /// The message did not arrive in time.
    Late,
}

/// Counts the bytes of the message that is arriving, and watches its deadline.
pub(super) struct FrameMeter {
    progress: Mutex<Progress>,
    /// Notified when a message begins, and when there is no room for it.
    news: Notify,
}

struct Progress {
    /// Holds the bytes that have arrived since the last complete message.
    lease: ByteLease,
    /// When the first of them arrived.
    began: Option<Instant>,
    full: Option<Full>,
    /// Whether arriving bytes are discarded.
    is_discarding: bool,
}

impl FrameMeter {
    /// A meter that counts with this lease, which must be empty.
    pub fn new(lease: ByteLease) -> Arc<Self> {
        let progress = Progress { lease, began: None, full: None, is_discarding: false };
        Arc::new(FrameMeter { progress: Mutex::new(progress), news: Notify::new() })
    }

    fn add(&self, bytes: usize) {
        let mut progress = self.lock();
        if let Err(full) = progress.lease.grow(bytes) {
            progress.full = Some(full);
            self.news.notify_one();
        }
        if progress.began.is_none() {
            progress.began = Some(Instant::now());
            self.news.notify_one();
        }
    }

    /// Records that a complete message of this length was read. Its bytes stay counted by the returned lease. Bytes of the next message
    /// that were read already are few, and are not counted.
    pub fn end_message(&self, bytes: usize) -> ByteLease {
        let mut progress = self.lock();
        progress.began = None;
        let mut lease = progress.lease.take();
        lease.shrink_to(bytes);
        lease
    }

    /// Records that a control frame was read. It may come between the frames of a message, so the rest of the bytes stays counted.
    pub fn end_control(&self, bytes: usize) {
        let mut progress = self.lock();
        let left = progress.lease.bytes().saturating_sub(bytes + CONTROL_HEAD_BYTES);
        progress.lease.shrink_to(left);
        if left == 0 {
            progress.began = None;
        }
    }

    /// Resolves when a message has no room, or has been arriving for longer than `deadline`.
    pub async fn overrun(&self, deadline: Duration) -> FrameOverrun {
        loop {
            let (began, full) = {
                let progress = self.lock();
                (progress.began, progress.full)
            };
            match (full, began) {
                (Some(full), _) => return FrameOverrun::Full(full),
                (None, Some(began)) if began.elapsed() >= deadline => return FrameOverrun::Late,
                (None, Some(began)) => tokio::select! {
                    () = sleep_until(began + deadline) => {}
                    () = self.news.notified() => {}
                },
                (None, None) => self.news.notified().await,
            }
        }
    }

    /// Releases the counted bytes, and discards everything that arrives from now on.
    pub fn discard(&self) {
        let mut progress = self.lock();
        progress.is_discarding = true;
        progress.lease.shrink_to(0);
    }

    fn is_discarding(&self) -> bool {
        self.lock().is_discarding
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection whose input is counted.
pub(super) struct Metered<I> {
    inner: I,
    meter: Arc<FrameMeter>,
}

impl<I> Metered<I> {
    pub fn new(inner: I, meter: Arc<FrameMeter>) -> Self {
        Metered { inner, meter }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Metered<I> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.meter.is_discarding() {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut self.inner).poll_read(cx, buffer))?;
            let bytes = buffer.filled().len() - before;
            if bytes > 0 {
                self.meter.add(bytes);
            }
            return Poll::Ready(Ok(()));
        }
        let mut scratch = [0; 4096];
        for _ in 0..DISCARDED_READS_MAX {
            let mut discarded = ReadBuf::new(&mut scratch);
            ready!(Pin::new(&mut self.inner).poll_read(cx, &mut discarded))?;
            if discarded.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Metered<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;
    use crate::in_flight::ByteBudget;

    const LONG: Duration = Duration::from_secs(3600);
    const SHORT: Duration = Duration::from_millis(20);

    fn meter(bytes_max: usize) -> Arc<FrameMeter> {
        FrameMeter::new(ByteBudget::new(bytes_max, bytes_max).lease(&"t".into()))
    }

    fn counted(meter: &FrameMeter) -> usize {
        meter.lock().lease.bytes()
    }

    #[tokio::test]
    async fn tm_11_bytes_of_a_message_count_while_it_arrives() {
        let meter = meter(1_000);
        let (mut client, server) = duplex(100);
        let mut server = Metered::new(server, meter.clone());
        client.write_all(&[0; 60]).await.expect("there is room");
        server.read_exact(&mut [0; 60]).await.expect("they are there");
        assert_eq!(counted(&meter), 60);
        meter.end_control(4);
        assert_eq!(counted(&meter), 50, "a ping between two frames of a message");
        let message = meter.end_message(45);
        assert_eq!((counted(&meter), message.bytes()), (0, 45));
        meter.add(500);
        assert!(tokio::time::timeout(SHORT, meter.overrun(LONG)).await.is_err(), "there is room and time");
        meter.add(500);
        assert_eq!(meter.overrun(LONG).await, FrameOverrun::Full(Full::Tenant(1_000)));
        meter.discard();
        assert_eq!((counted(&meter), message.bytes()), (0, 45));
        client.write_all(&[0; 70]).await.expect("it is read");
        drop(client);
        assert_eq!(server.read(&mut [0; 10]).await.expect("it ends"), 0, "what arrives is thrown away");
    }

    #[tokio::test]
    async fn tm_11_a_message_that_arrives_too_slowly_is_late() {
        let meter = meter(1_000);
        let silent = tokio::time::timeout(Duration::from_millis(50), meter.overrun(SHORT)).await;
        assert!(silent.is_err(), "a socket may be silent");
        meter.add(10);
        tokio::time::sleep(SHORT).await;
        meter.add(10);
        assert_eq!(meter.overrun(SHORT).await, FrameOverrun::Late);
        drop(meter.end_message(20));
        meter.add(8);
        meter.end_control(2);
        let pinged = tokio::time::timeout(Duration::from_millis(50), meter.overrun(SHORT)).await;
        assert!(pinged.is_err(), "a whole ping is not the beginning of a message");
    }
}
