//! Which tenants may use which parts of the configuration.

use super::{error, good};
use crate::config::Tenants;

const TWO: &str = "auth: { tokens: [{ token: a-token-of-the-default-tenant, scopes: ['*'] }, \
    { token: a-token-of-the-tenant-acme, tenant: acme, scopes: ['*'] }] }\n";

fn only(names: &[&str]) -> Tenants {
    Tenants::Only(names.iter().map(|name| (*name).into()).collect())
}

#[test]
fn tm_03_tenants_of_the_configuration() {
    let entries = "tools: { external: [{ name: own }, { name: given, tenants: [acme] }, { name: shared, tenants: ['*'] }], \
        mcp: [{ label: files, url: 'https://example.com/mcp' }] }\n\
        models: [{ name: m, provider: scripted }, { name: paid, provider: scripted, tenants: [acme] }]\n\
        agents: { clerk: { tools: [own, shared] }, helper: { model: paid, tools: [given], tenants: [acme] } }\n";
    let config = good(&format!("{TWO}{entries}"), &[]);
    let tools: Vec<&Tenants> = config.tools.iter().map(|tool| &tool.tenants).collect();
    assert_eq!(tools, [&only(&["default"]), &only(&["acme"]), &Tenants::All]);
    assert_eq!(config.mcp[0].tenants, only(&["default"]));
    assert_eq!((&config.models[0].tenants, &config.models[1].tenants), (&Tenants::All, &only(&["acme"])));
    assert_eq!((&config.agents["clerk"].tenants, &config.agents["helper"].tenants), (&only(&["default"]), &only(&["acme"])));

    let single =
        "auth: { tokens: [{ token: a-token-of-the-tenant-acme, tenant: acme, scopes: ['*'] }] }\ntools: { external: [{ name: own }] }";
    assert_eq!(good(single, &[]).tools[0].tenants, only(&["acme"]), "everything is the only tenant's");
    assert_eq!(good("tools: { external: [{ name: own }] }", &[]).tools[0].tenants, only(&["default"]));
}

#[test]
fn tm_03_an_agent_has_nothing_that_its_tenants_may_not_use() {
    let text = format!("{TWO}tools: {{ external: [{{ name: own }}] }}\nagents:\n  clerk: {{ tools: [own], tenants: ['*'] }}\n");
    assert_eq!(
        error(&text, &[]),
        "windlass.yaml:4: agents.clerk.tools[0]: a tenant of this agent may not use the tool own; see `tenants` of both"
    );
    let text = format!("{TWO}agents:\n  clerk: {{ tools: [agent/own], tenants: ['*'] }}\n  own: {{}}\n");
    assert_eq!(
        error(&text, &[]),
        "windlass.yaml:3: agents.clerk.tools[0]: a tenant of this agent may not use the agent own; see `tenants` of both"
    );
    let text = format!("{TWO}models: [{{ name: paid, provider: scripted, tenants: [acme] }}]\nagents:\n  clerk: {{ model: paid }}\n");
    assert_eq!(
        error(&text, &[]),
        "windlass.yaml:4: agents.clerk.model: a tenant of this agent may not use the model paid; see `tenants` of both"
    );
}

#[test]
fn tenants_that_cannot_be_meant_are_refused() {
    let tool = |tenants: &str| error(&format!("{TWO}tools: {{ external: [{{ name: own, tenants: {tenants} }}] }}"), &[]);
    let at = "windlass.yaml:2: tools.external[0].tenants";
    assert_eq!(tool("[]"), format!("{at}: expected at least one tenant, or \"*\" for all, found none"));
    assert_eq!(tool("['*', acme]"), format!("{at}[0]: \"*\" means all tenants and stands alone"));
    assert_eq!(tool("[acne]"), format!("{at}[0]: no token of auth.tokens has the tenant \"acne\"; there are: acme, default"));
}
