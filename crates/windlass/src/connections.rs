//! Connections: taken as they come, served, and let go when somebody cannot say what they want.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{Extension, Router};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tower::Layer;
use windlass_doors::Peer;

/// Connections that are open at the most. More wait until one is closed.
const CONNECTIONS_MAX: usize = 10_000;

/// How long nothing is accepted after the system could not give a connection: it is out of files, mostly.
const BREATH: Duration = Duration::from_millis(100);

/// Serves until it is told to stop, and then until every connection has got its answer.
pub(crate) async fn serve(listener: TcpListener, router: Router, head: Duration, stopped: impl Future<Output = ()>) {
    allow_many_files();
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let open = GracefulShutdown::new();
    let mut protocol = auto::Builder::new(TokioExecutor::new()).http1_only();
    // A client that sends half a head holds nothing for ever.
    protocol.http1().timer(TokioTimer::new()).header_read_timeout(head);
    let accept = async {
        loop {
            let place = places.clone().acquire_owned().await.expect("the places are never closed");
            let (stream, peer) = accept(&listener).await;
            let service = TowerToHyperService::new(Extension(Peer(peer)).layer(router.clone()));
            let served = open.watch(protocol.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned());
            tokio::spawn(async move {
                // A connection that breaks is the client's affair; what it asked for goes on as it would have.
                let _ = served.await;
                drop(place);
            });
        }
    };
    tokio::select! {
        () = accept => {}
        () = stopped => {}
    }
    drop(listener);
    open.shutdown().await;
}

async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // A small answer must not wait for the other side's acknowledgement of an earlier one.
                let _ = stream.set_nodelay(true);
                return (stream, peer);
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                tokio::time::sleep(BREATH).await;
            }
        }
    }
}

/// A thousand streams need more files than a process gets that does not ask for them.
fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit }) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}
