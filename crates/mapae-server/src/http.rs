//! Connections: accepted, bounded in number and patience, closed gracefully.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Most connections at a time; more wait to be accepted.
const CONNECTIONS_MAX: usize = 4096;

/// How long a client may take to send its request's headers, or keep an idle connection.
const HEADER_PATIENCE: Duration = Duration::from_secs(30);

/// Largest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// How long requests under way may take to end once the server closes.
const CLOSING: Duration = Duration::from_secs(10);

/// A server that has its address.
pub(crate) struct Server {
    pub address: SocketAddr,
    listener: TcpListener,
}

impl Server {
    pub(crate) async fn bind(address: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        Ok(Self { address: listener.local_addr()?, listener })
    }

    /// Serves until `close`, then lets requests under way end, for a while.
    pub(crate) async fn serve(self, router: Router, close: CancellationToken) {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let connections = TaskTracker::new();
        loop {
            let place = places.clone().acquire_owned().await.expect("the semaphore is never closed");
            let accepted = tokio::select! {
                () = close.cancelled() => break,
                accepted = self.listener.accept() => accepted,
            };
            // Out of file descriptors, or a client that went away: neither is the end of the server.
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let serving = connection(stream, router.clone(), close.clone());
            connections.spawn(async move {
                serving.await;
                drop(place);
            });
        }
        drop(self.listener);
        connections.close();
        let _ = tokio::time::timeout(CLOSING, connections.wait()).await;
    }
}

async fn connection(stream: TcpStream, router: Router, close: CancellationToken) {
    let _ = stream.set_nodelay(true);
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_PATIENCE).max_buf_size(HEAD_BYTES_MAX);
    let serving = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut serving = std::pin::pin!(serving);
    // What goes wrong on a connection is its client's to see.
    tokio::select! {
        _ = serving.as_mut() => return,
        () = close.cancelled() => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}
