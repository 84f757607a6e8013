//! Any bytes as a body of `POST /v1/responses`.

use serde_json::Value;
use windlass_doors::fuzzing;

use super::BYTES_MAX;

/// Bytes that a response has independently of its request.
const INDEPENDENT_BYTES: usize = 8 << 10;
/// How much longer something gets by being repeated: an item of three bytes can be spelled out in full.
const GROWTH: usize = 48;
/// The most bytes of a refusal.
const REFUSAL_BYTES_MAX: usize = 4 << 10;

/// Reads the bytes as a body and as a frame.
pub fn responses_request(bytes: &[u8]) -> bool {
    if bytes.len() > BYTES_MAX {
        return false;
    }
    let mut is_taken = false;
    for outcome in [fuzzing::body(bytes), fuzzing::frame(bytes)] {
        match outcome {
            Ok(kept) => {
                is_taken = true;
                assert!(kept <= INDEPENDENT_BYTES + GROWTH * bytes.len(), "{kept} bytes are kept of {}", bytes.len());
            }
            Err(refusal) => {
                let shown: Value = serde_json::from_str(&refusal).expect("a refusal is JSON");
                assert_eq!(shown["status"], 400, "{refusal}");
                assert!(refusal.len() <= REFUSAL_BYTES_MAX, "a refusal of {} bytes", refusal.len());
            }
        }
    }
    is_taken
}
