//! A connection that can be cut: a TCP proxy in front of any server.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf},
    sync::watch,
};

/// The state of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wire {
    /// The number of cuts. Connections made before the last cut are closed.
    cuts: u64,
    /// Whether the last cut waits for the next reply, and closes the connection in the middle of it.
    in_reply: bool,
    /// Whether new connections are closed at once.
    refuses: bool,
    /// Whether new connections wait until the server accepts connections.
    holds: bool,
}

/// The interval between attempts to reach a server that is down.
const RETRY: Duration = Duration::from_millis(20);

/// PostgreSQL's message that a transaction is committed.
const COMMITTED: &[u8] = b"C\0\0\0\x0bCOMMIT\0";

/// Answers to commits that the proxy drops: how many are still to be dropped, and how many were dropped.
#[derive(Default)]
struct Kept {
    left: AtomicU32,
    done: AtomicU32,
}

impl Kept {
    /// Whether one more answer is to be dropped.
    fn take(&self) -> bool {
        let is_kept = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        self.done.fetch_add(u32::from(is_kept), Ordering::Relaxed);
        is_kept
    }
}

/// A proxy on a port of its own, in front of one address.
pub struct Proxy {
    address: SocketAddr,
    wire: Arc<watch::Sender<Wire>>,
    kept: Arc<Kept>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    /// A proxy in front of an address such as `127.0.0.1:5432`.
    pub async fn start(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it has an address");
        let wire = Arc::new(watch::Sender::new(Wire { cuts: 0, in_reply: false, refuses: false, holds: false }));
        let kept = Arc::new(Kept::default());
        let task = tokio::spawn(accept(listener, target.to_owned(), wire.clone(), kept.clone()));
        Proxy { address, wire, kept, task }
    }

    /// A proxy that accepts connections while the server is down, and forwards them as soon as it is up.
    pub async fn holding(target: &str) -> Self {
        let proxy = Self::start(target).await;
        proxy.wire.send_modify(|wire| wire.holds = true);
        proxy
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes every connection.
    pub fn cut(&self) {
        self.wire.send_modify(|wire| *wire = Wire { cuts: wire.cuts + 1, in_reply: false, ..*wire });
    }

    /// Closes every connection in the middle of the server's next reply.
    pub fn cut_in_reply(&self) {
        self.wire.send_modify(|wire| *wire = Wire { cuts: wire.cuts + 1, in_reply: true, ..*wire });
    }

    /// Drops this number of PostgreSQL's next answers to commits, and closes their connections.
    pub fn keep_back_commits(&self, count: u32) {
        self.kept.left.store(count, Ordering::Relaxed);
    }

    /// The number of answers dropped so far.
    pub fn kept_back(&self) -> u32 {
        self.kept.done.load(Ordering::Relaxed)
    }

    /// Sets whether new connections are closed at once.
    pub fn refuse(&self, refuses: bool) {
        self.wire.send_modify(|wire| wire.refuses = refuses);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.cut();
    }
}

async fn accept(listener: TcpListener, target: String, wire: Arc<watch::Sender<Wire>>, kept: Arc<Kept>) {
    while let Ok((client, _)) = listener.accept().await {
        let wire = wire.subscribe();
        if wire.borrow().refuses {
            continue;
        }
        let (target, kept) = (target.clone(), kept.clone());
        tokio::spawn(async move {
            let server = loop {
                match TcpStream::connect(&target).await {
                    Ok(server) => break server,
                    Err(_) if wire.borrow().holds && wire.has_changed().is_ok() => tokio::time::sleep(RETRY).await,
                    Err(_) => return,
                }
            };
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            carry(client, server, wire, &kept).await;
        });
    }
}

/// Forwards bytes until one side closes the connection or the proxy cuts it. Dropping the streams closes them.
async fn carry(client: TcpStream, server: TcpStream, mut wire: watch::Receiver<Wire>, kept: &Kept) {
    let before = wire.borrow_and_update().cuts;
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) = (client.into_split(), server.into_split());
    let is_cut = {
        let mut wire = wire.clone();
        async move { wire.wait_for(|wire| wire.cuts > before).await.map(|wire| wire.in_reply).unwrap_or(false) }
    };
    let in_reply = tokio::select! {
        in_reply = is_cut => in_reply,
        () = copy(&mut from_client, &mut to_server) => return,
        () = answer(&mut from_server, &mut to_client, kept) => return,
    };
    if in_reply {
        tokio::select! {
            () = half_of_a_reply(&mut from_server, &mut to_client) => {}
            () = copy(&mut from_client, &mut to_server) => {}
        }
    }
}

async fn copy(from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf) {
    let mut piece = vec![0; 64 << 10];
    loop {
        match from.read(&mut piece).await {
            Ok(0) | Err(_) => return,
            Ok(length) if to.write_all(&piece[..length]).await.is_err() => return,
            Ok(_) => {}
        }
    }
}

/// Forwards the server's replies, until an answer to a commit that is to be dropped.
async fn answer(from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf, kept: &Kept) {
    let mut piece = vec![0; 64 << 10];
    // The end of the previous bytes, because an answer may arrive in two reads.
    let mut received = Vec::new();
    loop {
        let Ok(length @ 1..) = from.read(&mut piece).await else { return };
        received.extend_from_slice(&piece[..length]);
        if received.windows(COMMITTED.len()).any(|window| window == COMMITTED) && kept.take() {
            return;
        }
        received.drain(..received.len().saturating_sub(COMMITTED.len() - 1));
        if to.write_all(&piece[..length]).await.is_err() {
            return;
        }
    }
}

async fn half_of_a_reply(from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf) {
    let mut piece = vec![0; 64 << 10];
    if let Ok(length) = from.read(&mut piece).await {
        let _ = to.write_all(&piece[..length / 2]).await;
    }
}
