//! The server as a client sees it.

use std::sync::{Mutex, PoisonError};

use anyhow::{Context, bail};
use reqwest::{Client, RequestBuilder, Response};
use serde_json::Value;

use super::server::Server;

/// Requests to the server that runs at the moment.
pub(super) struct Api {
    client: Client,
    token: String,
    base: Mutex<String>,
}

impl Api {
    /// Speaks to this server, with the token it has made.
    pub fn new(server: &Server) -> anyhow::Result<Self> {
        // The server is on this machine, whatever proxy the environment names.
        let client = Client::builder().no_proxy().build()?;
        Ok(Api { client, token: server.token()?, base: Mutex::new(server.base().to_owned()) })
    }

    /// Speaks to another server on the same data from here on.
    pub fn move_to(&self, server: &Server) {
        server.base().clone_into(&mut self.base.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The answer to a POST, its body still to come.
    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Response> {
        self.send(self.client.post(self.url(path)).json(body), path).await
    }

    /// The answer to a GET, its body still to come.
    pub async fn get_response(&self, path: &str) -> anyhow::Result<Response> {
        self.send(self.client.get(self.url(path)), path).await
    }

    /// The JSON that a GET answers with.
    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        Ok(self.get_response(path).await?.json().await?)
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn send(&self, request: RequestBuilder, path: &str) -> anyhow::Result<Response> {
        let response = request.bearer_auth(&self.token).send().await.with_context(|| format!("{path} was not answered"))?;
        if !response.status().is_success() {
            bail!("{path} was answered with {}: {}", response.status(), response.text().await.unwrap_or_default());
        }
        Ok(response)
    }
}
