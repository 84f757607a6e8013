//! The tokens of a model call, as its provider reported them, or else as estimated from the bytes read and written.

use windlass_kernel::{Spent, Timestamp, Usage};
use windlass_ports::{Clock, ModelEvent};

use crate::count::{BYTES_PER_TOKEN, bytes};

/// The calls of one attempt. There are two if the model is called again with the streamed text as a prefill.
#[derive(Default)]
pub(crate) struct Tally {
    now: OneCall,
    earlier: Option<OneCall>,
}

#[derive(Default)]
struct OneCall {
    /// Whether the provider has accepted the request. If so, it has read the prompt.
    is_taken: bool,
    told: Option<Usage>,
    bytes: u64,
    started: Option<Timestamp>,
    first_token: Option<Timestamp>,
}

impl Tally {
    /// Records the start of a call.
    pub fn start(&mut self, now: Timestamp) {
        self.now.started = Some(now);
    }

    /// Records an event of the provider.
    pub fn hear(&mut self, event: &ModelEvent, clock: &dyn Clock) {
        self.now.is_taken = true;
        let bytes = bytes(event);
        self.now.bytes += bytes;
        if bytes > 0 && self.now.first_token.is_none() {
            self.now.first_token = Some(clock.now());
        }
        if let ModelEvent::Usage(usage) = event {
            self.now.told = Some(*usage);
        }
    }

    /// Records that the call failed and that another one of the same attempt follows.
    pub fn begin_again(&mut self) {
        self.earlier = Some(std::mem::take(&mut self.now));
    }

    /// When the last call was made, if one was.
    pub fn started(&self) -> Option<Timestamp> {
        self.now.started
    }

    /// Milliseconds from the start of the last call to its first token.
    pub fn first_token_ms(&self) -> Option<u64> {
        let (started, first) = (self.now.started?, self.now.first_token?);
        Some(first.0.saturating_sub(started.0).max(0).unsigned_abs())
    }

    /// The usage of an attempt without a reply. `prompt` estimates the tokens of its prompt.
    pub fn spent(&self, prompt: impl Fn() -> u64) -> Spent {
        let mut spent = self.spent_earlier(&prompt);
        spent.add(self.now.spent(prompt));
        spent
    }

    /// The usage of the calls before the one that gave the reply.
    pub fn spent_earlier(&self, prompt: impl Fn() -> u64) -> Spent {
        self.earlier.as_ref().map_or_else(Spent::default, |call| call.spent(prompt))
    }
}

impl OneCall {
    fn spent(&self, prompt: impl Fn() -> u64) -> Spent {
        let written = self.bytes.div_ceil(BYTES_PER_TOKEN);
        match self.told {
            // Some providers report the output tokens only at the end of the stream.
            Some(usage) => Spent { usage, lost: written.saturating_sub(usage.tokens_out) },
            None if self.is_taken => Spent { usage: Usage::default(), lost: prompt().saturating_add(written) },
            None => Spent::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: Usage = Usage { tokens_in: 50, tokens_out: 1, cached: 0, cache_written: 0, reasoning: 0 };

    fn heard(events: &[ModelEvent]) -> Tally {
        let mut tally = Tally::default();
        events.iter().for_each(|event| tally.hear(event, &Fixed(1_000)));
        tally
    }

    struct Fixed(i64);

    impl Clock for Fixed {
        fn now(&self) -> Timestamp {
            Timestamp(self.0)
        }
    }

    #[test]
    fn the_first_token_is_the_first_that_the_model_wrote() {
        let mut tally = heard(&[ModelEvent::Taken, ModelEvent::Model("m".into()), ModelEvent::Usage(TOLD)]);
        tally.start(Timestamp(900));
        assert_eq!(tally.first_token_ms(), None);
        tally.hear(&words(), &Fixed(1_200));
        tally.hear(&words(), &Fixed(1_300));
        assert_eq!(tally.first_token_ms(), Some(300));
        tally.begin_again();
        assert_eq!(tally.first_token_ms(), None);
    }

    fn words() -> ModelEvent {
        ModelEvent::Text("x".repeat(40))
    }

    #[test]
    fn a_request_that_nobody_took_costs_nothing() {
        assert_eq!(heard(&[]).spent(|| 100), Spent::default());
    }

    #[test]
    fn what_is_told_is_exact_and_the_rest_is_estimated() {
        assert_eq!(heard(&[ModelEvent::Taken]).spent(|| 100), Spent { usage: Usage::default(), lost: 100 });
        assert_eq!(heard(&[words()]).spent(|| 100), Spent { usage: Usage::default(), lost: 110 });
        assert_eq!(heard(&[ModelEvent::Usage(TOLD), words()]).spent(|| 100), Spent { usage: TOLD, lost: 9 });
        let whole = Usage { tokens_out: 12, ..TOLD };
        assert_eq!(heard(&[ModelEvent::Usage(TOLD), words(), ModelEvent::Usage(whole)]).spent(|| 100), Spent { usage: whole, lost: 0 });
    }

    #[test]
    fn both_calls_of_a_try_count() {
        let mut tally = heard(&[words()]);
        tally.begin_again();
        tally.hear(&ModelEvent::Usage(TOLD), &Fixed(1_000));
        assert_eq!(tally.spent_earlier(|| 100), Spent { usage: Usage::default(), lost: 110 });
        assert_eq!(tally.spent(|| 100), Spent { usage: TOLD, lost: 110 });
    }
}
