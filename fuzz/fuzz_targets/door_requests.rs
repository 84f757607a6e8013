//! Fuzzes the requests of all doors, with a real engine behind them.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    windlass_sim::hostile::door_requests(bytes);
});
