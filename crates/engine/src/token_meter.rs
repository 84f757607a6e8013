//! The tokens of a model call, as its provider reported them, or else as estimated from the bytes read and written.

use windlass_kernel::{Spent, Timestamp, Usage};
use windlass_ports::{Clock, ModelEvent};

use crate::count::{BYTES_PER_TOKEN, bytes};

/// The calls of one attempt. There are two if the model is called again with the streamed text as a prefill.
#[derive(Default)]
pub(crate) struct TokenMeter {
    current: OneCall,
    earlier: Option<OneCall>,
}

#[derive(Default)]
struct OneCall {
    /// Whether the provider has accepted the request. If so, it has read the prompt.
    is_accepted: bool,
    reported: Option<Usage>,
    bytes: u64,
    started: Option<Timestamp>,
    first_token: Option<Timestamp>,
}

impl TokenMeter {
    /// Records the start of a call.
    pub fn start(&mut self, now: Timestamp) {
        self.current.started = Some(now);
    }

    /// Records an event of the provider.
    pub fn observe(&mut self, event: &ModelEvent, clock: &dyn Clock) {
        self.current.is_accepted = true;
        let bytes = bytes(event);
        self.current.bytes += bytes;
        if bytes > 0 && self.current.first_token.is_none() {
            self.current.first_token = Some(clock.now());
        }
        if let ModelEvent::Usage(usage) = event {
            self.current.reported = Some(*usage);
        }
    }

    /// Records that the call failed and that another one of the same attempt follows.
    pub fn next_call(&mut self) {
        self.earlier = Some(std::mem::take(&mut self.current));
    }

    /// When the last call was made, if one was.
    pub fn started(&self) -> Option<Timestamp> {
        self.current.started
    }

    /// Milliseconds from the start of the last call to its first token.
    pub fn first_token_ms(&self) -> Option<u64> {
        let (started, first) = (self.current.started?, self.current.first_token?);
        Some(first.0.saturating_sub(started.0).max(0).unsigned_abs())
    }

    /// The usage of an attempt without a reply. `prompt` estimates the tokens of its prompt.
    pub fn spent(&self, prompt: impl Fn() -> u64) -> Spent {
        let mut spent = self.spent_earlier(&prompt);
        spent.add(self.current.spent(prompt));
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
        match self.reported {
            // Some providers report the output tokens only at the end of the stream.
            Some(usage) => Spent { usage, lost: written.saturating_sub(usage.tokens_out) },
            None if self.is_accepted => Spent { usage: Usage::default(), lost: prompt().saturating_add(written) },
            None => Spent::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORTED: Usage = Usage { tokens_in: 50, tokens_out: 1, cached: 0, cache_written: 0, reasoning: 0 };

    fn meter_of(events: &[ModelEvent]) -> TokenMeter {
        let mut meter = TokenMeter::default();
        events.iter().for_each(|event| meter.observe(event, &Fixed(1_000)));
        meter
    }

    struct Fixed(i64);

    impl Clock for Fixed {
        fn now(&self) -> Timestamp {
            Timestamp(self.0)
        }
    }

    #[test]
    fn the_first_token_is_the_first_one_of_the_models_output() {
        let mut meter = meter_of(&[ModelEvent::Taken, ModelEvent::Model("m".into()), ModelEvent::Usage(REPORTED)]);
        meter.start(Timestamp(900));
        assert_eq!(meter.first_token_ms(), None);
        meter.observe(&text_event(), &Fixed(1_200));
        meter.observe(&text_event(), &Fixed(1_300));
        assert_eq!(meter.first_token_ms(), Some(300));
        meter.next_call();
        assert_eq!(meter.first_token_ms(), None);
    }

    fn text_event() -> ModelEvent {
        ModelEvent::Text("x".repeat(40))
    }

    #[test]
    fn a_request_that_was_not_accepted_costs_nothing() {
        assert_eq!(meter_of(&[]).spent(|| 100), Spent::default());
    }

    #[test]
    fn reported_usage_is_exact_and_the_rest_is_estimated() {
        assert_eq!(meter_of(&[ModelEvent::Taken]).spent(|| 100), Spent { usage: Usage::default(), lost: 100 });
        assert_eq!(meter_of(&[text_event()]).spent(|| 100), Spent { usage: Usage::default(), lost: 110 });
        assert_eq!(meter_of(&[ModelEvent::Usage(REPORTED), text_event()]).spent(|| 100), Spent { usage: REPORTED, lost: 9 });
        let whole = Usage { tokens_out: 12, ..REPORTED };
        assert_eq!(
            meter_of(&[ModelEvent::Usage(REPORTED), text_event(), ModelEvent::Usage(whole)]).spent(|| 100),
            Spent { usage: whole, lost: 0 }
        );
    }

    #[test]
    fn both_calls_of_an_attempt_count() {
        let mut meter = meter_of(&[text_event()]);
        meter.next_call();
        meter.observe(&ModelEvent::Usage(REPORTED), &Fixed(1_000));
        assert_eq!(meter.spent_earlier(|| 100), Spent { usage: Usage::default(), lost: 110 });
        assert_eq!(meter.spent(|| 100), Spent { usage: REPORTED, lost: 110 });
    }
}
