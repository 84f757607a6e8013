//! The tools that tool servers offer, pinned for a run.

use std::collections::BTreeSet;

use windlass_kernel::{AfterExecution, Remote, Route, ServerSource, Tenant, ToolName, ToolServer, ToolSpec};
use windlass_ports::{OfferedTool, ServerError};

use crate::{api::EngineError, engine::Engine};

impl Engine {
    /// The tools of a server that `is_wanted` selects, with the names by which a run calls them. A tool whose name is taken gets the
    /// server's label as a prefix, so that the model can distinguish the two.
    pub async fn offered(
        &self,
        tenant: &Tenant,
        server: &ToolServer,
        taken: &mut BTreeSet<String>,
        is_wanted: impl Fn(&OfferedTool) -> bool,
    ) -> Result<Vec<ToolSpec>, ServerError> {
        let Some(servers) = self.servers() else { return Err(ServerError::Unknown(server.label.clone())) };
        let offered = servers.list(tenant, server).await?.into_iter().filter(|tool| is_wanted(tool));
        let deadline_ms = self.settings().call_deadline_ms;
        let spec = |tool: OfferedTool| {
            let mut name = tool.name.clone();
            while taken.contains(&name) {
                name = format!("{}__{name}", server.label);
            }
            taken.insert(name.clone());
            ToolSpec {
                name: name.as_str().into(),
                description: tool.description,
                parameters: tool.parameters,
                route: Route::InProcess,
                effect: tool.effect,
                after_execution: AfterExecution::Suspend,
                deadline_ms,
                retry: tool.retry,
                strict: None,
                untrusted: matches!(server.source, ServerSource::Declared { .. }),
                remote: Some(Remote { server: server.label.clone(), name: tool.name }),
                agent: None,
            }
        };
        Ok(offered.map(spec).collect())
    }

    /// The tenant's configured server of that label. `None` if a tool has that name.
    pub fn configured_server(&self, tenant: &Tenant, label: &ToolName) -> Option<ToolServer> {
        let is_configured = self.servers().is_some_and(|servers| servers.is_configured(tenant, label.as_str()));
        let is_server = is_configured && self.tool(tenant, label).is_none();
        is_server.then(|| ToolServer { label: label.to_string(), source: ServerSource::Configured })
    }

    /// Asks the servers among these names for the tools that they offer.
    pub(crate) async fn offers(&self, tenant: &Tenant, names: &[ToolName]) -> Result<Vec<(ToolServer, Vec<ToolSpec>)>, EngineError> {
        let mut taken: BTreeSet<String> = names.iter().map(ToString::to_string).collect();
        let mut offers = Vec::new();
        for server in names.iter().filter_map(|name| self.configured_server(tenant, name)) {
            let tools = self.offered(tenant, &server, &mut taken, |_| true).await.map_err(EngineError::ToolServer)?;
            offers.push((server, tools));
        }
        Ok(offers)
    }
}
