//! The HTTP client of the demo.

use std::sync::{Mutex, PoisonError};

use anyhow::{Context, bail};
use reqwest::{Client, RequestBuilder, Response};
use serde_json::Value;

use super::server::DemoServer;

/// Sends requests to the server that runs at the moment.
pub(super) struct Api {
    client: Client,
    token: String,
    base: Mutex<String>,
}

impl Api {
    /// A client for this server, with the token that the server created.
    pub fn new(server: &DemoServer) -> anyhow::Result<Self> {
        // The server is on this machine, so a proxy from the environment must not be used.
        let client = Client::builder().no_proxy().build()?;
        Ok(Api { client, token: server.token()?, base: Mutex::new(server.base().to_owned()) })
    }

    /// Sends further requests to another server on the same data.
    pub fn move_to(&self, server: &DemoServer) {
        server.base().clone_into(&mut self.base.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Sends a POST. The body of the answer is still to be read.
    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Response> {
        self.send(self.client.post(self.url(path)).json(body), path).await
    }

    /// Sends a GET. The body of the answer is still to be read.
    pub async fn get_response(&self, path: &str) -> anyhow::Result<Response> {
        self.send(self.client.get(self.url(path)), path).await
    }

    /// Sends a GET and parses the JSON of the answer.
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
