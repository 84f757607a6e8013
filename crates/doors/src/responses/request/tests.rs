//! Tests of parsing: accepted bodies, and the errors of refused ones.

mod bad;
mod good;
mod mutated;

use super::Create;

/// Parses a body that must be accepted.
fn read(body: &str) -> Create {
    Create::read(body.as_bytes()).unwrap_or_else(|error| panic!("{}: {:?} {}\n{body}", error.code(), error.param(), error.message()))
}

/// The parameter and the code of a body's error, with an empty parameter if the error names none. `None` if the body is accepted.
fn refusal(body: &[u8]) -> Option<(String, &'static str)> {
    let error = Create::read(body).err()?;
    assert_eq!(error.status(), 400, "{}", error.message());
    let param = error.param().unwrap_or_default();
    assert!(error.message().contains(param), "{} does not name {param}", error.message());
    Some((param.to_owned(), error.code()))
}
