//! Calls to the outside: one TLS provider, no redirects.

use std::time::Duration;

/// How long a connection may take to be made.
const CONNECTING: Duration = Duration::from_secs(10);

/// A client that goes where it is sent and nowhere else: a key or a document must not follow a redirect.
pub(crate) fn client() -> reqwest::ClientBuilder {
    // The whole program uses ring. It fails only where it has been installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().connect_timeout(CONNECTING).redirect(reqwest::redirect::Policy::none())
}
