//! Lists that go on: where the next part is.

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

/// The list, with a `Link` to its next part where there is one. `next` is an address without its server.
pub(super) fn linked(list: impl IntoResponse, next: Option<String>) -> Response {
    let mut response = list.into_response();
    let link = next.and_then(|next| HeaderValue::from_str(&format!("<{next}>; rel=\"next\"")).ok());
    if let Some(link) = link {
        response.headers_mut().insert(header::LINK, link);
    }
    response
}
