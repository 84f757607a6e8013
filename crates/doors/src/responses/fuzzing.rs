//! Entry points for fuzzing the parser of requests.

use super::{create::echo, request::Create};

/// Parses a body. Returns the size of what is kept of it, or the error as a socket's frame.
pub fn body(bytes: &[u8]) -> Result<usize, String> {
    Create::read(bytes).map(|create| kept(&create)).map_err(|error| error.frame())
}

/// Parses a frame of a socket, with the same results as [`body`].
pub fn frame(bytes: &[u8]) -> Result<usize, String> {
    Create::read_frame(bytes).map(|frame| kept(&frame.create)).map_err(|error| error.frame())
}

fn kept(create: &Create) -> usize {
    let input: usize = create.input.iter().map(|item| item.get().len()).sum();
    let spelled = serde_json::to_vec(&(echo(create), &create.sampling, &create.echo.tools, &create.include)).unwrap_or_default();
    input + spelled.len()
}
