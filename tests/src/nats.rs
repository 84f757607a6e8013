//! A NATS server for one test, and a subscriber to all of its subjects.

use std::{
    net::TcpStream,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, OnceLock},
};

use futures_util::StreamExt;
use serde_json::Value;

use crate::{address::Address, until};

/// A server on a port of its own. Dropping this kills the server.
pub struct NatsServer {
    child: Option<Child>,
    address: Address,
    arguments: Vec<String>,
}

impl NatsServer {
    /// Starts a server.
    pub async fn start() -> Self {
        Self::with(&[]).await
    }

    /// The address of a server that all tests of this process share. It ends with the process.
    pub fn shared() -> &'static str {
        static SHARED: OnceLock<(String, NatsServer, Child)> = OnceLock::new();
        let (url, ..) = SHARED.get_or_init(|| {
            let server = Self::down(&[]);
            // The shell waits for the end of its input, which comes with the end of this process, however it ends.
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

    /// Starts a server with more arguments.
    pub async fn with(arguments: &[&str]) -> Self {
        let mut server = Self::down(arguments);
        server.up().await;
        server
    }

    /// Reserves the address of a server that is started later.
    pub fn down(arguments: &[&str]) -> Self {
        NatsServer { child: None, address: Address::new(), arguments: arguments.iter().map(|&argument| argument.to_owned()).collect() }
    }

    /// Starts the server on its port.
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

    /// Makes the server reload its configuration.
    pub fn reload(&self) {
        let pid = self.child.as_ref().expect("the server is up").id().cast_signed();
        let pid = rustix::process::Pid::from_raw(pid).expect("a process id");
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).expect("the server is there");
    }

    /// Kills the server without warning.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// The address of the server.
    pub fn url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// The section of a configuration that names the server.
    pub fn config(&self) -> String {
        format!("doorbell: {{ url: '{}' }}\n", self.url())
    }

    /// Opens a client connection.
    pub async fn client(&self) -> async_nats::Client {
        async_nats::connect(self.url()).await.expect("a client connects")
    }

    /// Subscribes to everything that is published from now on.
    pub async fn listen(&self) -> Listener {
        Listener::start(self.client().await).await
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A received message.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The subject.
    pub subject: String,
    /// The id.
    pub id: String,
    /// The trace it belongs to.
    pub traceparent: String,
    /// The step that requested its run.
    pub parent_step: String,
    /// The body.
    pub body: Value,
}

/// Collects the published commands and events, in the order of their arrival.
pub struct Listener {
    wait_for: Arc<Mutex<Vec<Message>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Listener {
    async fn start(client: async_nats::Client) -> Self {
        let mut everything = client.subscribe("windlass.>").await.expect("a subscription");
        // The subscription is active when the server has answered something that was sent after it.
        client.flush().await.expect("the server is there");
        let mut sync = client.subscribe("sync").await.expect("a subscription");
        client.publish("sync", "".into()).await.expect("a message is sent");
        sync.next().await.expect("and comes back");
        let wait_for = Arc::new(Mutex::new(Vec::new()));
        let log = wait_for.clone();
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
                    log.lock().expect("the lock is not poisoned").push(message);
                }
            }
        });
        Listener { wait_for, task }
    }

    /// All messages so far, including repeated ones.
    pub fn all(&self) -> Vec<Message> {
        self.wait_for.lock().expect("the lock is not poisoned").clone()
    }

    /// All messages so far, each id once. Fails if two messages with the same id differ.
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

    /// The messages on a subject, each id once.
    pub fn on(&self, subject: &str) -> Vec<Message> {
        self.once().into_iter().filter(|message| message.subject == subject).collect()
    }

    /// Waits until a subject has this number of messages, and returns them.
    pub async fn wait_for(&self, subject: &str, count: usize) -> Vec<Message> {
        until(&format!("{count} messages on {subject}"), || async { Some(self.on(subject)).filter(|on| on.len() >= count) }).await
    }

    /// Waits until both messages about a run's end have arrived: its task event and the state event after it.
    pub async fn wait_for_end(&self, run: &str) {
        until(&format!("the end of {run} is published"), || async {
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
