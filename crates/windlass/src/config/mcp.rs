//! `tools.mcp`, `mcp` and `egress`: the MCP servers, their effect classes, and the addresses that a request may name.

use std::collections::BTreeMap;

use windlass_tools::{Allowed, ServerConfig, check_header};

use super::{
    DefaultApproval, McpPlace, McpServer, Secret,
    agents::read_retry,
    error::ConfigError,
    reader::{Field, Keys, Section},
    sections::{EFFECTS, elements},
    tenants::KnownTenants,
};

pub(super) const SERVER: Keys = Keys {
    known: &["label", "url", "headers", "authorization", "command", "env", "effects", "retry", "shared", "tenants"],
    later: &["require_approval"],
};
pub(super) const MCP: Keys = Keys { known: &["default_approval"], later: &[] };
pub(super) const EGRESS: Keys = Keys { known: &["allow"], later: &[] };
/// The label under which the API shows calls that no MCP server runs. No server may use it.
const OWN_LABEL: &str = "windlass";

pub(super) fn read_servers(field: Option<Field>, known: &KnownTenants) -> Result<Vec<McpServer>, ConfigError> {
    let mut servers: Vec<McpServer> = Vec::new();
    for field in elements(field)? {
        let mut section = field.section(&SERVER)?;
        let label_field = section.require("label")?;
        let label = label_field.name()?;
        if label == OWN_LABEL {
            return Err(label_field.fail(format!("the label {label} is taken by Windlass itself")));
        }
        if servers.iter().any(|known| known.label == label) {
            return Err(label_field.fail(format!("a server labelled {label} is given above")));
        }
        servers.push(read_server(label, section, known)?);
    }
    Ok(servers)
}

fn read_server(label: String, mut section: Section, known: &KnownTenants) -> Result<McpServer, ConfigError> {
    let mut effects = BTreeMap::new();
    for (tool, field) in entries(section.take("effects"))? {
        effects.insert(tool, field.choice("effect", &EFFECTS, &[])?);
    }
    let tenants = known.read_own(section.take("tenants"))?;
    let retry = section.take("retry").map(read_retry).transpose()?;
    let shared = section.read_or("shared", false, Field::flag)?;
    let place = match section.take("command") {
        Some(command) => read_command(command, section)?,
        None => read_http(section)?,
    };
    Ok(McpServer { label, place, effects, retry, shared, tenants })
}

fn read_command(command: Field, mut section: Section) -> Result<McpPlace, ConfigError> {
    for key in ["url", "headers", "authorization"] {
        if let Some(field) = section.take(key) {
            return Err(field.fail("a server with a command is a process of ours and has no use for this"));
        }
    }
    let none = command.fail("expected a program and its arguments, found none");
    let mut command_line = command.list()?.iter().map(Field::text).collect::<Result<Vec<_>, _>>()?.into_iter();
    let program = command_line.next().filter(|program| !program.trim().is_empty()).ok_or(none)?;
    let env = entries(section.take("env"))?.into_iter().map(|(name, field)| Ok((name, Secret::new(field.text()?))));
    Ok(McpPlace::Command { program, arguments: command_line.map(Secret::new).collect(), env: env.collect::<Result<_, ConfigError>>()? })
}

fn read_http(mut section: Section) -> Result<McpPlace, ConfigError> {
    if let Some(field) = section.take("env") {
        return Err(field.fail("only a server with a command has an environment"));
    }
    let url = section.take("url").ok_or_else(|| section.missing("url or command"))?;
    let url = read_url(&url)?;
    let authorization = section.take("authorization");
    let mut headers = BTreeMap::new();
    for (name, field) in entries(section.take("headers"))? {
        let name = name.to_ascii_lowercase();
        let value = field.some_text()?;
        check_header(&name, &value).map_err(|why| field.fail(why))?;
        if headers.contains_key(&name) || (authorization.is_some() && name == "authorization") {
            return Err(field.fail(format!("the header {name} is given twice")));
        }
        headers.insert(name, Secret::new(value));
    }
    let authorization = authorization.map(|field| {
        let value = field.some_text()?;
        check_header("authorization", &value).map_err(|why| field.fail(why))?;
        Ok(Secret::new(value))
    });
    Ok(McpPlace::Http { url, headers, authorization: authorization.transpose()? })
}

/// The entries of an optional mapping.
fn entries(field: Option<Field>) -> Result<Vec<(String, Field)>, ConfigError> {
    field.map_or_else(|| Ok(Vec::new()), Field::named)
}

fn read_url(field: &Field) -> Result<String, ConfigError> {
    let url = field.some_text()?;
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://")).unwrap_or_default();
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // The address is printed and logged, so it must not contain a password.
    if host.contains('@') {
        return Err(field.fail("expected an address without a user or password in it; a token goes into authorization"));
    }
    if host.is_empty() || rest.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(field.expected("an address such as https://tools.example.com/mcp"));
    }
    Ok(url)
}

/// Reads `mcp`, whose keys apply to all servers.
pub(super) fn read_mcp(mut section: Section) -> Result<DefaultApproval, ConfigError> {
    const WORDS: [(&str, DefaultApproval); 2] = [("always", DefaultApproval::Always), ("never", DefaultApproval::Never)];
    section.read_or("default_approval", DefaultApproval::default(), |field| field.choice("approval", &WORDS, &[]))
}

pub(super) fn read_egress(mut section: Section) -> Result<Vec<Allowed>, ConfigError> {
    const WANTED: &str = "a host, an IP address or a network such as 10.1.0.0/16";
    let read = |field: Field| field.text()?.parse().map_err(|_| field.expected(WANTED));
    elements(section.take("allow"))?.into_iter().map(read).collect()
}

impl From<&McpServer> for ServerConfig {
    fn from(server: &McpServer) -> Self {
        let exposed = |values: &BTreeMap<String, Secret>| -> BTreeMap<String, String> {
            values.iter().map(|(name, value)| (name.clone(), value.expose().to_owned())).collect()
        };
        let McpServer { label, effects, retry, shared, tenants, .. } = server;
        let mut config = ServerConfig {
            label: label.clone(),
            effects: effects.clone(),
            retry: *retry,
            shared: *shared,
            tenants: tenants.clone(),
            ..ServerConfig::default()
        };
        match &server.place {
            McpPlace::Http { url, headers, authorization } => {
                config.url = url.clone();
                config.headers = exposed(headers).into_iter().collect();
                config.authorization = authorization.as_ref().map(|value| value.expose().to_owned());
            }
            McpPlace::Command { program, arguments, env } => {
                config.command = [program.as_str()].into_iter().chain(arguments.iter().map(Secret::expose)).map(str::to_owned).collect();
                config.environment = exposed(env);
            }
        }
        config
    }
}
