//! A body for the refusals that hyper makes by itself.
//!
//! A request that hyper cannot read it answers with a status and an empty body, and it has no hook for that.
//! What is known of that answer: it is the last that hyper writes on the connection, nothing is read after
//! it, and serving then ends with an error of parsing. So bytes that look like it are held back. Once
//! anything is written or read after them they were part of an answer of ours, and go out as they are; when
//! serving ends with that error they were hyper's, and a problem as RFC 9457 has it goes out in their place.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::to_bytes;
use axum::response::IntoResponse;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::api::problem::{self, Problem};

/// Longest answer that may be one of hyper's own, in bytes.
const OWN_BYTES_MAX: usize = 256;

/// How much of what a refused client still sends is read and thrown away, and for how long: it would find
/// the connection closed under it and never look for the answer.
const REST_BYTES_MAX: u64 = 1 << 20;
const REST_PATIENCE: Duration = Duration::from_secs(5);

/// A connection on which hyper's own refusals are held back.
pub(super) struct Refusing<T> {
    inner: T,
    held: Vec<u8>,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Refusing<T> {
    pub(super) fn new(inner: T) -> Self {
        Self { inner, held: Vec::new() }
    }

    /// The connection is over. `unread`: because a request could not be read.
    pub(super) async fn end(mut self, unread: bool) -> io::Result<()> {
        let held = std::mem::take(&mut self.held);
        if unread && let Some(status) = own_refusal(&held) {
            self.inner.write_all(&answer(status).await).await?;
            self.inner.shutdown().await?;
            let mut rest = self.inner.take(REST_BYTES_MAX);
            let mut nowhere = tokio::io::sink();
            let thrown_away = tokio::io::copy(&mut rest, &mut nowhere);
            let _ = tokio::time::timeout(REST_PATIENCE, thrown_away).await;
            return Ok(());
        }
        self.inner.write_all(&held).await?;
        self.inner.shutdown().await
    }

    /// What was held is on its way: it was not hyper's own.
    fn let_go(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.held.is_empty() {
            let written = ready!(Pin::new(&mut self.inner).poll_write(cx, &self.held))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.held.drain(..written);
        }
        Poll::Ready(Ok(()))
    }
}

/// The status of an answer that may be one of hyper's own.
fn own_refusal(bytes: &[u8]) -> Option<u16> {
    if bytes.len() > OWN_BYTES_MAX || !bytes.starts_with(b"HTTP/1.") {
        return None;
    }
    let text = std::str::from_utf8(bytes).ok()?.strip_suffix("\r\n\r\n")?;
    if text.contains("\r\n\r\n") || !text.contains("\r\ncontent-length: 0") {
        return None;
    }
    text.split(' ').nth(1)?.parse().ok().filter(|status| (400..500).contains(status))
}

/// The whole answer in place of hyper's own, by its status.
async fn answer(status: u16) -> Vec<u8> {
    let refusal = match status {
        414 => &problem::URI_TOO_LONG,
        431 => &problem::HEADERS_TOO_LARGE,
        _ => &problem::REQUEST_UNREADABLE,
    };
    let response = Problem::from(refusal).into_response();
    let mut head = format!("HTTP/1.1 {}\r\nconnection: close\r\n", response.status());
    for (name, value) in response.headers() {
        if name != "content-length" {
            head.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap_or_default()));
        }
    }
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap_or_default();
    head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(&body);
    bytes
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Refusing<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.let_go(cx))?;
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Refusing<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.let_go(cx))?;
        if own_refusal(bytes).is_some() {
            self.held = bytes.to_vec();
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.let_go(cx))?;
        if slices.iter().map(|slice| slice.len()).sum::<usize>() <= OWN_BYTES_MAX {
            let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            if own_refusal(&bytes).is_some() {
                let whole = bytes.len();
                self.held = bytes;
                return Poll::Ready(Ok(whole));
            }
        }
        Pin::new(&mut self.inner).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // What is held has nowhere to go yet.
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.let_go(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::get;
    use tokio::net::TcpStream;
    use tokio_util::sync::CancellationToken;

    use super::super::Server;

    use super::*;

    const LOOKALIKE: &str = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

    /// All that a server answers to these bytes.
    async fn told(request: &[u8]) -> String {
        let server = Server::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let (address, close) = (server.address, CancellationToken::new());
        let router =
            Router::new().route("/hi", get(|| async { "hi" })).route("/like", get(|| async { LOOKALIKE }));
        let serving = tokio::spawn(server.serve(router, close.clone()));
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(request).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        drop(client);
        close.cancel();
        serving.await.unwrap();
        answer
    }

    fn assert_problem(answer: &str, status: &str, code: &str) {
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with(status), "{head}");
        assert!(head.contains("content-type: application/problem+json"), "{head}");
        assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["code"], code);
    }

    #[tokio::test]
    async fn a_request_that_cannot_be_read_is_answered_with_a_problem() {
        assert_problem(&told(b"what is this\r\n\r\n").await, "HTTP/1.1 400 ", "request-unreadable");
        let long = format!("GET /hi HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(400_000));
        assert_problem(&told(long.as_bytes()).await, "HTTP/1.1 431 ", "headers-too-large");
        let many = format!("GET /hi HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(1000));
        assert_problem(&told(many.as_bytes()).await, "HTTP/1.1 431 ", "headers-too-large");
    }

    #[tokio::test]
    async fn an_answer_before_it_stays_whole() {
        let answer = told(b"GET /hi HTTP/1.1\r\nhost: a\r\n\r\nnonsense\r\n\r\n").await;
        let (first, second) = answer.split_once("\r\n\r\nhi").unwrap();
        assert!(first.starts_with("HTTP/1.1 200 "), "{first}");
        // Where both left in one piece hyper's own answer stands: that is still a refusal.
        assert!(second.starts_with("HTTP/1.1 400 "), "{second}");
    }

    #[tokio::test]
    async fn an_answer_of_ours_that_looks_like_hypers_goes_out_as_it_is() {
        let close = "GET /like HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        let twice = format!("GET /like HTTP/1.1\r\nhost: a\r\n\r\n{close}");
        for (request, times) in [(close, 1), (twice.as_str(), 2)] {
            assert_eq!(told(request.as_bytes()).await.matches(LOOKALIKE).count(), times);
        }
    }

    #[tokio::test]
    async fn what_looks_like_hypers_answer_is_held_until_more_is_written_or_read() {
        let (mut client, server) = tokio::io::duplex(4096);
        let mut refusing = Refusing::new(server);
        refusing.write_all(LOOKALIKE.as_bytes()).await.unwrap();
        refusing.write_all(b"more").await.unwrap();
        refusing.write_all(LOOKALIKE.as_bytes()).await.unwrap();
        refusing.end(false).await.unwrap();
        let mut all = String::new();
        client.read_to_string(&mut all).await.unwrap();
        assert_eq!(all, format!("{LOOKALIKE}more{LOOKALIKE}"));
    }
}
