//! Connections: accepted, bounded in number and patience, closed gracefully.

mod refused;

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::refused::Refusing;

/// Most connections at a time; more wait to be accepted.
const CONNECTIONS_MAX: usize = 4096;

/// How long a client may take to send its request's headers, or keep an idle connection.
const HEADER_PATIENCE: Duration = Duration::from_secs(30);

/// How long a client may read nothing of its answer.
const READING_PATIENCE: Duration = Duration::from_secs(60);

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
    let service = TowerToHyperService::new(router);
    let service = service_fn(move |request| Box::pin(service.call(request)));
    let mut serving = builder.serve_connection(TokioIo::new(Refusing::new(Impatient::new(stream))), service);
    let served = tokio::select! {
        served = poll_fn(|cx| serving.poll_without_shutdown(cx)) => Some(served),
        () = close.cancelled() => None,
    };
    let served = match served {
        Some(served) => served,
        None => {
            Pin::new(&mut serving).graceful_shutdown();
            poll_fn(|cx| serving.poll_without_shutdown(cx)).await
        }
    };
    // What else goes wrong on a connection is its client's to see.
    let unread = served.is_err_and(|error| error.is_parse());
    let _ = serving.into_parts().io.into_inner().end(unread).await;
}

/// A connection that is given up when its client reads nothing for [`READING_PATIENCE`]: otherwise each
/// client that stops reading would hold a place, and a file, for ever.
struct Impatient {
    stream: TcpStream,
    /// Runs while a write waits.
    giving_up: Pin<Box<Sleep>>,
    waiting: bool,
}

impl Impatient {
    fn new(stream: TcpStream) -> Self {
        Self { stream, giving_up: Box::pin(tokio::time::sleep(READING_PATIENCE)), waiting: false }
    }

    /// What became of a write, or that it has waited for too long.
    fn bounded<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = false;
            return written;
        }
        if !std::mem::replace(&mut self.waiting, true) {
            self.giving_up.as_mut().reset(Instant::now() + READING_PATIENCE);
        }
        ready!(self.giving_up.as_mut().poll(cx));
        self.waiting = false;
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Impatient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Impatient {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.bounded(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.bounded(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.bounded(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.bounded(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_client_that_reads_nothing_is_given_up_and_one_that_reads_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let mut server = Impatient::new(stream);
        // More than the kernel holds for a client that does not read. From here on time is the test's.
        tokio::time::pause();
        let bytes = vec![0; 64 << 20];
        let stuck = server.write_all(&bytes).await;
        assert_eq!(stuck.unwrap_err().kind(), io::ErrorKind::TimedOut);
        tokio::time::resume();
        let reading = tokio::spawn(async move {
            let mut all = Vec::new();
            client.read_to_end(&mut all).await.unwrap();
        });
        server.write_all(&bytes).await.unwrap();
        drop(server);
        reading.await.unwrap();
    }
}
