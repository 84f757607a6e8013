//! Limits a stream of bytes before the event parser reads it: the parser would buffer an endless line without an error.

use std::error::Error;

use bytes::Bytes;
use futures_core::Stream;
use futures_util::{StreamExt, stream};
use memchr::memchr2_iter;

/// The limits of a stream of events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cap {
    pub(crate) event_bytes: usize,
    pub(crate) answer_bytes: usize,
}

/// Why the stream of bytes ends early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken<E: Error + 'static> {
    /// An event is larger than this limit.
    #[error("one event has more than {0} bytes")]
    EventTooLarge(usize),
    /// The whole answer is larger than this limit.
    #[error("the answer has more than {0} bytes")]
    AnswerTooLarge(usize),
    /// The connection failed.
    #[error(transparent)]
    Transport(#[from] E),
}

/// Passes `bytes` on, and ends with an error where a limit is exceeded.
pub(crate) fn capped<S, E>(bytes: S, cap: Cap) -> impl Stream<Item = Result<Bytes, Broken<E>>> + Send
where
    S: Stream<Item = Result<Bytes, E>> + Send + Unpin,
    E: Error + Send + 'static,
{
    let gauge = Gauge { cap, answer: 0, event: 0, last: b'\n', line_is_empty: true };
    stream::unfold(Some((bytes, gauge)), |state| async {
        let (mut bytes, mut gauge) = state?;
        let checked = bytes.next().await?.map_err(Broken::from).and_then(|piece| gauge.check(piece));
        // The stream ends after its first error.
        let next = checked.is_ok().then_some((bytes, gauge));
        Some((checked, next))
    })
}

/// Counts all bytes, and the bytes since the last empty line, which ends an event.
struct Gauge {
    cap: Cap,
    answer: usize,
    event: usize,
    last: u8,
    line_is_empty: bool,
}

impl Gauge {
    fn check<E: Error>(&mut self, piece: Bytes) -> Result<Bytes, Broken<E>> {
        self.answer = self.answer.saturating_add(piece.len());
        if self.answer > self.cap.answer_bytes {
            return Err(Broken::AnswerTooLarge(self.cap.answer_bytes));
        }
        // Most bytes are text, which `memchr2` skips many at a time.
        let mut counted = 0;
        for end in memchr2_iter(b'\n', b'\r', &piece) {
            self.count_text(&piece[counted..end])?;
            self.count_line_end(piece[end])?;
            counted = end + 1;
        }
        self.count_text(&piece[counted..])?;
        Ok(piece)
    }

    fn count_text<E: Error>(&mut self, text: &[u8]) -> Result<(), Broken<E>> {
        let Some(last) = text.last() else { return Ok(()) };
        self.event += text.len();
        (self.last, self.line_is_empty) = (*last, false);
        self.check_event()
    }

    fn count_line_end<E: Error>(&mut self, byte: u8) -> Result<(), Broken<E>> {
        self.event += 1;
        match byte {
            // The line feed of a CRLF: the carriage return has ended the line already.
            b'\n' if self.last == b'\r' => {}
            _ if self.line_is_empty => self.event = 0,
            _ => self.line_is_empty = true,
        }
        self.last = byte;
        self.check_event()
    }

    fn check_event<E: Error>(&self) -> Result<(), Broken<E>> {
        if self.event > self.cap.event_bytes {
            return Err(Broken::EventTooLarge(self.cap.event_bytes));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::{FutureExt, TryStreamExt};

    use super::*;

    fn outcome(pieces: &[&'static str], event_bytes: usize, answer_bytes: usize) -> Result<String, String> {
        let bytes = stream::iter(pieces.iter().map(|piece| Ok::<_, Infallible>(Bytes::from_static(piece.as_bytes()))));
        let all = capped(bytes, Cap { event_bytes, answer_bytes }).try_collect::<Vec<_>>();
        let all = all.now_or_never().expect("every piece is there already");
        all.map(|all| String::from_utf8(all.concat()).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn an_empty_line_of_any_kind_ends_an_event() {
        for end in ["\n\n", "\r\n\r\n", "\r\r"] {
            let text = format!("data: 1{end}").repeat(9).leak();
            let (head, tail) = text.split_at(9);
            assert_eq!(outcome(&[head, tail], 11, 200).as_deref(), Ok(&*text), "{end:?}");
        }
    }

    #[test]
    fn one_large_event_is_stopped() {
        let expected = Err("one event has more than 11 bytes".to_owned());
        assert_eq!(outcome(&["data: 1\n\n", "data: 12345", "6"], 11, 200), expected);
        assert_eq!(outcome(&["data: 1\n", "data: 2\n"], 11, 200), expected);
        assert_eq!(outcome(&[": a\r\n", ": a\r\n", ": a\r\n"], 11, 200), expected);
    }

    #[test]
    fn an_endless_answer_is_stopped() {
        let endless = ["data: 1\n\n"; 100];
        assert_eq!(outcome(&endless, 11, 200), Err("the answer has more than 200 bytes".to_owned()));
    }
}
