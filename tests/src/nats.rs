//! A NATS server of the test's own, and somebody who listens to everything.

use std::{
    net::TcpStream,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, OnceLock},
};

use futures_util::StreamExt;
use serde_json::Value;

use crate::{address::Address, until};

/// A server on a port of its own. Dropping it kills it.
pub struct NatsServer {
    child: Option<Child>,
    address: Address,
    arguments: Vec<String>,
}

impl NatsServer {
    /// A server that is up.
    pub async fn start() -> Self {
        Self::with(&[]).await
    }

    /// The address of a server that all tests of this process share, and that ends with it.
    pub fn shared() -> &'static str {
        static SHARED: OnceLock<(String, NatsServer, Child)> = OnceLock::new();
        let (url, ..) = SHARED.get_or_init(|| {
            let server = Self::down(&[]);
            // The shell waits for the end of its input, which is the end of this process, however that comes.
            let script = r#"trap '' INT TERM HUP; nats-server -a 127.0.0.1 -p "$0" >/dev/null 2>&1 & cat >/dev/null; kill -KILL $!"#;
            let mut shell = Command::new("sh");
            shell
                .args(["-c", script, &server.address.port().to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let shell = shell.spawn().expect("a shell");
            crate::database::in_thread(|runtime| runtime.block_on(server.answers()));
            (server.url(), server, shell)
        });
        url
    }

    /// A server with more arguments.
    pub async fn with(arguments: &[&str]) -> Self {
        let mut server = Self::down(arguments);
        server.up().await;
        server
    }

    /// A server that is not up yet; its address is known.
    pub fn down(arguments: &[&str]) -> Self {
        NatsServer { child: None, address: Address::new(), arguments: arguments.iter().map(|&argument| argument.to_owned()).collect() }
    }

    /// Starts it, on the same port as ever.
    pub async fn up(&mut self) {
        let child = Command::new("nats-server")
            .args(["-a", "127.0.0.1", "-p", &self.address.port().to_string()])
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.child = Some(child.expect("nats-server is installed: it is in the Debian package nats-server"));
        self.answers().await;
    }

    async fn answers(&self) {
        until("nats-server is up", || async { TcpStream::connect(self.address.to_string()).ok() }).await;
    }

    /// Has it read its configuration again.
    pub fn reload(&self) {
        let pid = self.child.as_ref().expect("the server is up").id().cast_signed();
        let pid = rustix::process::Pid::from_raw(pid).expect("a process id");
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).expect("the server is there");
    }

    /// Kills it without warning.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// The section of a configuration that names it.
    pub fn config(&self) -> String {
        format!("doorbell: {{ url: '{}' }}\n", self.url())
    }

    /// A client of it.
    pub async fn client(&self) -> async_nats::Client {
        async_nats::connect(self.url()).await.expect("a client connects")
    }

    /// Somebody who hears everything from here on.
    pub async fn listen(&self) -> Listener {
        Listener::start(self.client().await).await
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A message as it came.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Its subject.
    pub subject: String,
    /// Its id.
    pub id: String,
    /// The trace it belongs to.
    pub traceparent: String,
    /// The step that asked for its run.
    pub parent_step: String,
    /// Its body.
    pub body: Value,
}

/// Keeps the commands and events that were sent, in the order they came.
pub struct Listener {
    heard: Arc<Mutex<Vec<Message>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Listener {
    async fn start(client: async_nats::Client) -> Self {
        let mut everything = client.subscribe("windlass.>").await.expect("a subscription");
        // The subscription is there once the server has answered something sent behind it.
        client.flush().await.expect("the server is there");
        let mut sync = client.subscribe("sync").await.expect("a subscription");
        client.publish("sync", "".into()).await.expect("a message is sent");
        sync.next().await.expect("and comes back");
        let heard = Arc::new(Mutex::new(Vec::new()));
        let log = heard.clone();
        let task = tokio::spawn(async move {
            while let Some(message) = everything.next().await {
                let header = |name| message.headers.as_ref().and_then(|all| all.get(name)).map(|value| value.as_str().to_owned());
                if let Some(id) = header("Nats-Msg-Id") {
                    let message = Message {
                        subject: message.subject.to_string(),
                        id,
                        traceparent: header("traceparent").unwrap_or_default(),
                        parent_step: header("Windlass-Parent-Step-Id").unwrap_or_default(),
                        body: serde_json::from_slice(&message.payload).expect("a body is JSON"),
                    };
                    log.lock().expect("nobody panics with it").push(message);
                }
            }
        });
        Listener { heard, task }
    }

    /// Everything so far, repeats included.
    pub fn all(&self) -> Vec<Message> {
        self.heard.lock().expect("nobody panics with it").clone()
    }

    /// Everything so far, each message once; the same id must always be the same message.
    pub fn once(&self) -> Vec<Message> {
        let mut once: Vec<Message> = Vec::new();
        for message in self.all() {
            match once.iter().find(|known| known.id == message.id) {
                Some(known) => assert_eq!(*known, message, "an id has one message"),
                None => once.push(message),
            }
        }
        once
    }

    /// Everything on a subject, each message once.
    pub fn on(&self, subject: &str) -> Vec<Message> {
        self.once().into_iter().filter(|message| message.subject == subject).collect()
    }

    /// Waits until a subject has so many messages; returns them.
    pub async fn heard(&self, subject: &str, count: usize) -> Vec<Message> {
        until(&format!("{count} messages on {subject}"), || async { Some(self.on(subject)).filter(|on| on.len() >= count) }).await
    }

    /// Waits until a run's end was told twice over: by its task event and by the state behind it.
    pub async fn told_end(&self, run: &str) {
        until(&format!("the end of {run} is told"), || async {
            let is_last = |message: &Message| message.body["agent_turn_id"] == run && message.body["status"] == "idle";
            self.all().iter().any(is_last).then_some(())
        })
        .await;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}
