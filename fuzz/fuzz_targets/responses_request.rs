//! The reader of requests for responses.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    windlass_sim::hostile::responses_request(bytes);
});
