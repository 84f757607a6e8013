//! The contracts that every response and every event in a test is checked against: always this server's own OpenAPI document, and the
//! contract that Open Responses published if its file is there.

use serde_json::Value;

use super::{document, published};

pub use document::document;
pub use published::{EXCEPTIONS, Exception};

/// The violations of the published contract in a response; `None` if its file is not there.
pub fn faults_of_published_response(response: &Value) -> Option<Vec<String>> {
    published::is_present().then(|| published::faults_of_response(response))
}

/// The types of events that the server's own document has.
pub fn event_types() -> Vec<&'static str> {
    document::event_types()
}

/// The violations in a response.
pub fn faults_of_response(response: &Value) -> Vec<String> {
    [document::faults_of_response(response), published::faults_of_response(response)].concat()
}

/// The violations in a compaction.
pub fn faults_of_compaction(compaction: &Value) -> Vec<String> {
    [document::faults_of_compaction(compaction), published::faults_of_compaction(compaction)].concat()
}

/// The violations in an event.
pub fn faults_of_event(event: &Value) -> Vec<String> {
    [document::faults_of_event(event), published::faults_of_event(event)].concat()
}

/// The violations in an error frame of a socket.
pub fn faults_of_socket_error(frame: &Value) -> Vec<String> {
    [document::faults_of_socket_error(frame), published::faults_of_socket_error(frame)].concat()
}

/// Reads the response from an answer, and checks it against the contracts.
pub(super) async fn read_object(answer: reqwest::Response) -> Value {
    let status = answer.status().as_u16();
    let kind = answer.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default().to_owned();
    let text = answer.text().await.expect("the answer is read");
    assert_eq!((status, kind.as_str()), (200, "application/json"), "{text}");
    let response: Value = serde_json::from_str(&text).expect("an answer is JSON");
    super::check_response(&response);
    response
}
