//! A refusal is of use only if the client gets to read it. One that is still sending its body would find
//! the connection closed under it and never look for the answer; so what it sends on is read and thrown
//! away, for a while, beside the answer.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt;
use hyper::body::{Frame, SizeHint};

/// How much is thrown away, and for how long: a client on a slow line gets to read its answer, too.
const BYTES_MAX: usize = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) async fn linger(request: Request, next: Next) -> Response {
    let rest = Rest::default();
    let request = request.map(|body| Body::new(Lent { body: Some(body), rest: rest.clone() }));
    let response = next.run(request).await;
    if (response.status().is_client_error() || response.status().is_server_error())
        && let Some(body) = rest.take()
    {
        tokio::spawn(tokio::time::timeout(PATIENCE, throw_away(body)));
    }
    response
}

async fn throw_away(body: Body) {
    let mut body = body.into_data_stream();
    let mut thrown = 0;
    while let Some(Ok(bytes)) = body.next().await {
        thrown += bytes.len();
        if thrown > BYTES_MAX {
            return;
        }
    }
}

/// Where a body comes back to that was not read to its end.
#[derive(Clone, Default)]
struct Rest(Arc<Mutex<Option<Body>>>);

impl Rest {
    fn take(&self) -> Option<Body> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

struct Lent {
    body: Option<Body>,
    rest: Rest,
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) {
            *self.rest.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
        }
    }
}

impl HttpBody for Lent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        };
        // Ended or broken: there is nothing left to throw away.
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.body = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), HttpBody::size_hint)
    }
}
