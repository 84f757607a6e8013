//! What `windlass dev` prints: everything one person needs to talk to their server, in a few lines.

use std::{fmt::Write as _, io::Write as _};

use crate::{
    config::{Model, Provider},
    serve::Ready,
};

/// Prints where the server is and how to talk to it.
pub(crate) fn print(ready: &Ready<'_>) {
    // Nobody who reads along is no reason not to serve.
    let _ = std::io::stdout().write_all(text(ready).as_bytes());
}

fn text(ready: &Ready<'_>) -> String {
    let Ready { address, place, config, own_token } = ready;
    let model = &config.models[0];
    let token = own_token.unwrap_or("one of those configured in auth.tokens");
    let mut text = String::from("Windlass is running. Ctrl-C stops it; what it has begun goes on at the next start.\n\n");
    let _ = writeln!(text, "  API    http://{address}");
    let _ = writeln!(text, "  token  {token}");
    let _ = writeln!(text, "  store  {place}");
    let _ = writeln!(text, "  model  {}", model_line(model, config.models.len() - 1));
    let bearer = own_token.unwrap_or("$WINDLASS_TOKEN");
    // In double quotes, so that the shell fills in the variable where there is one.
    let _ =
        writeln!(text, "\nTry it:\n\n  curl -N http://{address}/v1/responses -H \"Authorization: Bearer {bearer}\" -d '{}'\n", body(model));
    text
}

fn model_line(model: &Model, others: usize) -> String {
    let Model { name, provider, .. } = model;
    let mut line = match provider {
        Provider::Scripted { script: None } => format!("{name} (built in, needs no network: answers by the words in the input)"),
        Provider::Scripted { script: Some(script) } => format!("{name} (built in, needs no network: follows {})", script.display()),
        Provider::Remote { base_url, .. } => format!("{name} ({base_url})"),
    };
    if others > 0 {
        let _ = write!(line, " and {others} more");
    }
    line
}

/// A request that the first model can answer.
fn body(model: &Model) -> &'static str {
    match &model.provider {
        // It takes every name and passes it on, so that there is none to be had from here.
        Provider::Remote { model: None, .. } if model.name == "*" => r#"{"model": "NAME-OF-A-MODEL", "input": "Hello", "stream": true}"#,
        Provider::Remote { .. } | Provider::Scripted { .. } => r#"{"input": "Hello", "stream": true}"#,
    }
}
