//! A way in for those who throw bytes at the reader of requests.

use super::{create::echo, request::Create};

/// How much is kept of a body, in bytes; or its refusal, as a frame on a socket would say it.
pub fn body(bytes: &[u8]) -> Result<usize, String> {
    Create::read(bytes).map(|create| kept(&create)).map_err(|error| error.frame())
}

/// The same of a frame on a socket.
pub fn frame(bytes: &[u8]) -> Result<usize, String> {
    Create::read_frame(bytes).map(|frame| kept(&frame.create)).map_err(|error| error.frame())
}

fn kept(create: &Create) -> usize {
    let input: usize = create.input.iter().map(|item| item.get().len()).sum();
    let spelled = serde_json::to_vec(&(echo(create), &create.sampling, &create.echo.tools, &create.include)).unwrap_or_default();
    input + spelled.len()
}
