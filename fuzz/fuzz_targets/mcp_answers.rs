//! Fuzzes the answers of MCP servers within a session.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    windlass_sim::hostile::mcp_answers(bytes);
});
