//! Shortcuts of a test to the state of a server: lists without their pages, and rows of the database.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{Row, Server, SseEvent, until};

impl Server {
    /// An agent's inbox rows, oldest first.
    pub async fn inbox(&self, agent: &str) -> Vec<Value> {
        rows(&self.get(&format!("/v1/agents/{agent}/inbox?limit=1000")).await.ok(), "inbox")
    }

    /// An agent's inbox rows of one type.
    pub async fn inbox_of(&self, agent: &str, message_type: &str) -> Vec<Value> {
        self.inbox(agent).await.into_iter().filter(|row| row["message_type"] == message_type).collect()
    }

    /// An agent's edges, oldest first.
    pub async fn edges(&self, agent: &str) -> Vec<Value> {
        rows(&self.get(&format!("/v1/agents/{agent}/edges?limit=1000")).await.ok(), "edges")
    }

    /// The run as the API shows it.
    pub async fn run(&self, run: &str) -> Value {
        self.get(&format!("/v1/windlass/runs/{run}")).await.ok()
    }

    /// The calls of a run.
    pub async fn calls(&self, run: &str) -> Vec<Value> {
        rows(&self.get(&format!("/v1/windlass/runs/{run}/calls?limit=1000")).await.ok(), "calls")
    }

    /// The events of a run's journal.
    pub async fn history(&self, run: &str) -> Vec<Value> {
        self.journal(run).await.iter().map(|entry| entry["event"].clone()).collect()
    }

    /// The kinds of a run's events.
    pub async fn kinds(&self, run: &str) -> Vec<String> {
        self.history(run).await.iter().map(|event| event["kind"].as_str().expect("an event has a kind").to_owned()).collect()
    }

    /// A box's own items.
    pub async fn cards(&self, id: &Value) -> Vec<Value> {
        let id = id.as_str().expect("a box id");
        rows(&self.get(&format!("/v1/windlass/boxes/{id}?limit=1000")).await.ok(), "items")
    }

    /// Reads an agent's event stream from its beginning, up to the end of the given run.
    pub async fn events_until_end(&self, agent: &str, run: &str) -> Vec<SseEvent> {
        self.ended(run).await;
        let mut stream = self.events(agent, None).await;
        let idle = format!("evt.agent.{agent}.state");
        stream.read_until(|event| event.event == idle && event.data["agent_turn_id"] == run && event.data["status"] == "idle").await
    }

    /// Waits until an agent is suspended with this run. Returns the run.
    pub async fn suspended(&self, agent: &str, run: &str) -> Value {
        until(&format!("{run} waits"), || async {
            let head = self.get(&format!("/v1/agents/{agent}")).await.ok();
            (head["status"] == "suspended" && head["active_agent_turn_id"] == run).then_some(())
        })
        .await;
        self.run(run).await
    }

    /// The number of rows in every table, after the outbox is empty.
    pub fn row_counts(&self) -> BTreeMap<String, i64> {
        let database = self.database();
        database.all_published();
        database.row_counts()
    }

    /// Every row of every table, after the outbox is empty: equal before and after means that nothing changed.
    pub fn snapshot(&self) -> BTreeMap<String, Vec<Row>> {
        let database = self.database();
        database.all_published();
        database.snapshot()
    }

    /// Reads one number from the database.
    pub fn number(&self, sql: &str) -> i64 {
        self.database().number(sql)
    }
}

fn rows(page: &Value, name: &str) -> Vec<Value> {
    page[name].as_array().unwrap_or_else(|| panic!("{name} is a list: {page}")).clone()
}
