//! Tests of the port against an MCP server over HTTP.

mod bounds;
mod calls;
mod declared;
mod processes;
mod sessions;
mod tenants;

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::Value;
use uuid::Uuid;
use windlass_kernel::{CallKey, CallNumber, RunId, ServerSource, TaskStatus, Tenant, Timestamp, ToolName, ToolServer};
use windlass_ports::{Clock, DeclaredServer, ToolCall, ToolReport, ToolServers};
use windlass_tests::McpServer;
use windlass_tools::{Egress, Limits, Seal, ServerConfig, Servers};

/// A deadline for calls that should finish at once.
const PATIENT: Duration = Duration::from_secs(30);

struct Wall;

impl Clock for Wall {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970");
        Timestamp(i64::try_from(since.as_millis()).expect("it is early enough"))
    }
}

/// A client with these configured servers and egress exceptions.
fn servers(configured: Vec<ServerConfig>, allow: &[&str], limits: Limits) -> Arc<Servers> {
    // Another test may have installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let egress = Egress::new(allow.iter().map(|text| text.parse().expect("an entry")));
    Arc::new(
        Servers::new(configured, egress, Seal::from_hex(&"07".repeat(32)).expect("a key"), Arc::new(Wall), limits)
            .expect("they can be set up"),
    )
}

/// A client whose configuration has the server under the label `tools`.
fn configured(server: &McpServer) -> Arc<Servers> {
    within(server, Limits::default())
}

fn within(server: &McpServer, limits: Limits) -> Arc<Servers> {
    servers(vec![config(server)], &[], limits)
}

fn config(server: &McpServer) -> ServerConfig {
    ServerConfig { label: "tools".into(), url: server.url.clone(), ..ServerConfig::default() }
}

/// The entry of a manifest for the configured server.
fn tools() -> ToolServer {
    ToolServer { label: "tools".into(), source: ServerSource::Configured }
}

fn acme() -> Tenant {
    Tenant::from("acme")
}

fn declare(servers: &Servers, tenant: &Tenant, url: &str, headers: &[(&str, &str)]) -> ToolServer {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    servers.declare(tenant, DeclaredServer { label: "mine".into(), url: url.to_owned(), headers }).expect("it can be declared")
}

fn a_call(arguments: &Value, patience: Duration) -> ToolCall {
    call_of(&acme(), arguments, patience)
}

fn call_of(tenant: &Tenant, arguments: &Value, patience: Duration) -> ToolCall {
    ToolCall {
        tenant: tenant.clone(),
        key: CallKey { run: RunId(Uuid::from_u128(7)), call: CallNumber(3) },
        retry: 0,
        tool: ToolName::from("anything"),
        arguments: arguments.to_string(),
        deadline: Wall.now().plus_ms(u64::try_from(patience.as_millis()).expect("it is short enough")),
    }
}

/// Runs a call and parses its result.
async fn run(servers: &Servers, server: &ToolServer, tool: &str, arguments: Value) -> (TaskStatus, Value) {
    read(&servers.run(server, tool, a_call(&arguments, PATIENT)).await)
}

fn read(report: &ToolReport) -> (TaskStatus, Value) {
    (report.status, serde_json::from_slice(&report.result).expect("a result is JSON"))
}
