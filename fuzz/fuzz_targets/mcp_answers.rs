//! Sessions with tool servers.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    windlass_sim::hostile::mcp_answers(bytes);
});
