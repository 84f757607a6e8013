//! The output of `windlass dev`: how to talk to the server, its agents and tools, and a line when a run starts or ends.

use std::{
    fmt::Write as _,
    io::Write as _,
    sync::{Arc, Mutex, PoisonError},
};

use windlass_doors::Metrics;
use windlass_kernel::{AgentKey, RunId, ServerSource, Tenant, ToolServer};
use windlass_ports::{EndedRun, Fact, Meter, ToolServers};
use windlass_tools::Servers;

use crate::{
    config::{Config, Model, Provider},
    serve::Ready,
};

/// Prints the server's address and how to use it. MCP servers are listed in the background; each gets its line when it has answered.
pub(crate) fn print(ready: &Ready<'_>) {
    show(&text(ready));
    LINES.lock().unwrap_or_else(PoisonError::into_inner).open();
    for server in &ready.config.mcp {
        tokio::spawn(show_server(ready.servers.clone(), server.label.clone()));
    }
}

/// Lines about runs. The engine may start runs before the server has its address; their lines are still printed below the banner.
static LINES: Mutex<Lines> = Mutex::new(Lines { waiting: Some(String::new()) });

struct Lines {
    /// The lines that wait for the banner; `None` once it is printed.
    waiting: Option<String>,
}

impl Lines {
    fn open(&mut self) {
        show(&self.waiting.take().unwrap_or_default());
    }

    fn print(&mut self, line: &str) {
        match &mut self.waiting {
            Some(waiting) => waiting.push_str(line),
            None => show(line),
        }
    }
}

/// Prints the text and ignores errors: a closed terminal must not stop the server.
fn show(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

async fn show_server(servers: Arc<Servers>, label: String) {
    let server = ToolServer { label: label.clone(), source: ServerSource::Configured };
    match servers.list(&Tenant::from("default"), &server).await {
        Ok(tools) => show(&format!("  mcp    {label}: reachable, {} tools\n", tools.len())),
        Err(error) => show(&format!("  mcp    {label}: {error}\n")),
    }
}

/// A meter that prints a line when a run starts and when it ends, and reports everything to `metrics` as in `serve`.
pub(crate) fn observe(metrics: Arc<Metrics>) -> Arc<dyn Meter> {
    Arc::new(RunPrinter(metrics))
}

struct RunPrinter(Arc<Metrics>);

impl Meter for RunPrinter {
    fn record(&self, fact: Fact<'_>) {
        if let Some(line) = line(&fact) {
            LINES.lock().unwrap_or_else(PoisonError::into_inner).print(&line);
        }
        self.0.record(fact);
    }
}

fn line(fact: &Fact<'_>) -> Option<String> {
    match fact {
        Fact::RunsResumed(1) => Some("  runs   1 resumed\n".to_owned()),
        Fact::RunsResumed(runs) => Some(format!("  runs   {runs} resumed\n")),
        Fact::RunStarted { agent, run, .. } => Some(format!("{run} {} started\n", name_of(agent, *run))),
        Fact::RunEnded(EndedRun { agent, run, status, reason, iterations, calls, usage, ms }) => Some(format!(
            "{run} {} {} ({}): iterations {iterations}, calls {calls}, tokens {}+{}, {ms} ms\n",
            name_of(agent, *run),
            status.as_str(),
            reason.kind(),
            usage.tokens_in,
            usage.tokens_out,
        )),
        Fact::IterationStarted(_)
        | Fact::TakenOver(_)
        | Fact::Fenced
        | Fact::CallParked(_)
        | Fact::CallEnded { .. }
        | Fact::ModelQueued(_)
        | Fact::ModelDequeued(_)
        | Fact::ModelCalled(_)
        | Fact::GroupCommitted { .. }
        | Fact::StoreFailed(_)
        | Fact::Swept
        | Fact::OverQuota(_) => None,
    }
}

/// The agent's name. A run without a named agent has its own id there, which the line contains already.
fn name_of(agent: &AgentKey, run: RunId) -> &str {
    let name = agent.agent.as_str();
    if name == run.to_string() { "-" } else { name }
}

fn text(ready: &Ready<'_>) -> String {
    let Ready { address, place, config, own_token, .. } = ready;
    let model = &config.models[0];
    let token = own_token.unwrap_or("one of those configured in auth.tokens");
    let url = config.server.url(*address);
    let mut text = String::from("Windlass is running. Ctrl-C stops it; what it has begun goes on at the next start.\n\n");
    let _ = writeln!(text, "  API    {url}");
    let _ = writeln!(text, "  token  {token}");
    let _ = writeln!(text, "  store  {place}");
    let _ = writeln!(text, "  model  {}", model_line(model, config.models.len() - 1));
    text.push_str(&configured(config));
    let bearer = own_token.unwrap_or("$WINDLASS_TOKEN");
    // In double quotes, so that the shell expands a variable.
    let _ = writeln!(text, "\nTry it:\n\n  curl -N {url}/v1/responses -H \"Authorization: Bearer {bearer}\" -d '{}'\n", body(model));
    text
}

/// The agents and tools of the configuration, if there are any.
fn configured(config: &Config) -> String {
    let mut text = String::new();
    if !config.agents.is_empty() {
        let _ = writeln!(text, "  agents {}", config.agents.keys().map(String::as_str).collect::<Vec<_>>().join(", "));
    }
    if !config.tools.is_empty() {
        let _ = writeln!(text, "  tools  {}", config.tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>().join(", "));
    }
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

/// The body of a request that the first model can answer.
fn body(model: &Model) -> &'static str {
    match &model.provider {
        // It is a pass-through model, so no name is known here.
        Provider::Remote { model: None, .. } if model.name == "*" => r#"{"model": "NAME-OF-A-MODEL", "input": "Hello", "stream": true}"#,
        Provider::Remote { .. } | Provider::Scripted { .. } => r#"{"input": "Hello", "stream": true}"#,
    }
}
