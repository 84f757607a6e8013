//! Fuzzes the parser of create requests of the Responses API.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    windlass_sim::hostile::responses_request(bytes);
});
