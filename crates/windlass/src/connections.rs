//! Accepts connections and serves HTTP/1.1 on them, within limits that hold before a request has been read.
//!
//! A connection holds a permit from accept to close. When all permits are taken, or all of one peer, further connections are *reserve
//! connections*: each may request `/healthz` or `/readyz` once, and gets 503 for everything else. There are few of them, and the newest one
//! displaces the oldest, so that connections which send nothing cannot keep a health check out.

mod permits;

use std::{collections::VecDeque, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::AbortHandle,
};
use tokio_rustls::TlsAcceptor;
use tower::Layer;
use windlass_doors::{Peer, PeerRules, health_only};

use permits::ConnectionPermits;

/// Reserve connections that may be open at once.
const RESERVE_MAX: usize = 64;

/// The time limit for a reserve connection to send the head of its request.
const RESERVE_HEAD: Duration = Duration::from_secs(5);

/// The pause after a failed accept, which mostly means that the process has no free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The limits on connections.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionLimits {
    /// Connections that may be open at once, without the reserve connections.
    pub connections: usize,
    /// Connections per peer; `None` is the default, which exempts peers on this machine.
    pub per_peer: Option<usize>,
    /// The time limit for the head of a request, counted from accept or from the end of the previous answer.
    pub head: Duration,
    /// The rules that decide which addresses count as peers.
    pub peers: PeerRules,
}

/// Serves until `stopped` resolves, and then until every connection has finished its current answer. With `tls`, all connections are HTTPS.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: ConnectionLimits,
    tls: Option<TlsAcceptor>,
    stopped: impl Future<Output = ()>,
) {
    let limits = ConnectionLimits { connections: limits.connections.min(affordable_connections()), ..limits };
    let (head, reserve_head) = (limits.head, limits.head.min(RESERVE_HEAD));
    let regular = ConnectionProtocol { http: protocol(head), tls: tls.clone(), handshake: head };
    let mut reserve_http = protocol(reserve_head);
    reserve_http.keep_alive(false);
    let reserved = ConnectionProtocol { http: reserve_http, tls, handshake: reserve_head };
    let reserve_router = health_only(router.clone());
    let permits = Arc::new(ConnectionPermits::new(&limits));
    let mut reserve = VecDeque::with_capacity(RESERVE_MAX);
    let (stop, stopping) = watch::channel(());
    let accept = async {
        loop {
            let (stream, peer) = accept(&listener).await;
            match permits.take(peer.ip()) {
                Some(permit) => {
                    let connection = serve_accepted(regular.clone(), stream, peer, router.clone(), stopping.clone());
                    tokio::spawn(async move {
                        connection.await;
                        drop(permit);
                    });
                }
                None => {
                    let connection = serve_accepted(reserved.clone(), stream, peer, reserve_router.clone(), stopping.clone());
                    displace(&mut reserve, tokio::spawn(connection).abort_handle());
                }
            }
        }
    };
    tokio::select! {
        () = accept => {}
        () = stopped => {}
    }
    drop((listener, stopping));
    stop.send_replace(());
    stop.closed().await;
}

/// HTTP/1.1 with a timer for the head of a request that starts at the first poll, even if the client has not sent a byte.
fn protocol(head: Duration) -> http1::Builder {
    let mut protocol = http1::Builder::new();
    protocol.timer(TokioTimer::new()).header_read_timeout(head);
    protocol
}

/// The protocol stack of a connection.
#[derive(Clone)]
struct ConnectionProtocol {
    http: http1::Builder,
    tls: Option<TlsAcceptor>,
    /// The time limit for the TLS handshake, from accept. The timer for the first head starts after it.
    handshake: Duration,
}

/// Serves an accepted connection, after the TLS handshake if there is one. A handshake that fails, exceeds its time limit or is interrupted
/// by a stop ends the connection.
async fn serve_accepted(
    protocol: ConnectionProtocol,
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    mut stopping: watch::Receiver<()>,
) {
    let Some(tls) = protocol.tls else {
        return serve_connection(protocol.http, stream, peer, router, stopping).await;
    };
    let handshake = tokio::select! {
        handshake = tokio::time::timeout(protocol.handshake, tls.accept(stream)) => handshake,
        _ = stopping.changed() => return,
    };
    match handshake {
        Ok(Ok(stream)) => serve_connection(protocol.http, stream, peer, router, stopping).await,
        Ok(Err(error)) => tracing::debug!(%peer, %error, "a TLS handshake failed"),
        Err(_) => tracing::debug!(%peer, "a TLS handshake took too long"),
    }
}

/// Serves one connection until it is closed or becomes a WebSocket. After `stopping` changes, only the current request is answered.
async fn serve_connection<S>(protocol: http1::Builder, stream: S, peer: SocketAddr, router: Router, mut stopping: watch::Receiver<()>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = TowerToHyperService::new(Extension(Peer(peer)).layer(router));
    let mut connection = pin!(protocol.serve_connection(TokioIo::new(stream), service).with_upgrades());
    // An error ends the connection and nothing else: the runs that its requests started continue.
    tokio::select! {
        _ = connection.as_mut() => {}
        _ = stopping.changed() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

/// Adds a reserve connection. Above the limit it closes the oldest one, whose health check has long been answered.
fn displace(reserve: &mut VecDeque<AbortHandle>, newest: AbortHandle) {
    reserve.retain(|connection| !connection.is_finished());
    if reserve.len() >= RESERVE_MAX
        && let Some(oldest) = reserve.pop_front()
    {
        oldest.abort();
    }
    reserve.push_back(newest);
}

async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // A small answer must not wait until the client has acknowledged an earlier one.
                let _ = stream.set_nodelay(true);
                return (stream, peer);
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Raises the limit of open files as far as the system allows, and returns the number of connections that leaves half of it for the
/// database, WebSockets, tool servers and models.
fn affordable_connections() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let limit = match setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::debug!(%error, "the limit of open files stays as it is");
            limit.current
        }
    };
    limit.map_or(usize::MAX, |files| usize::try_from(files / 2).unwrap_or(usize::MAX).max(1))
}

#[cfg(test)]
mod tests;
