//! Fuzzes the response streams of model providers.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    windlass_sim::hostile::provider_streams(bytes);
});
