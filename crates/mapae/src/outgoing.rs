//! Calls to the outside: where they may go, and a client that goes nowhere else.
//!
//! | who named the address | what is refused |
//! |---|---|
//! | somebody else ([`Destinations::strangers`]): a job's callback | all that is not public, and plain `http` |
//! | the operator ([`Destinations::operators`]): a handler, a probe, a receiver of events | what nobody means: link-local (metadata), multicast, reserved and translated addresses |
//!
//! In both what the operator allows by name is allowed. Every address that a host's name stands for is checked, at each
//! connection anew, and the connection goes to an address that was checked: a name that means another address a
//! moment later gains nothing. Redirects are never followed, and answers are read up to a bound.
//!
//! A refusal never says why: whoever names addresses to find out what there is learns nothing.

mod address;
mod allowed;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

pub use self::allowed::Allowed;

/// How long a connection may take to be made.
const CONNECTING: Duration = Duration::from_secs(10);

/// The longest address that is looked at, in bytes.
pub const URL_BYTES_MAX: usize = 2048;

/// Why a call is not made: the same for each reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the address is not one that may be called")]
pub struct Refused;

/// A client cannot be made in this process.
#[derive(Debug, thiserror::Error)]
#[error("TLS cannot be used for calls to the outside")]
pub struct NoClient(#[source] reqwest::Error);

/// Where calls may go. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Destinations {
    named_by_strangers: bool,
    allowed: Arc<[Allowed]>,
    names: Names,
}

impl Destinations {
    /// Addresses that somebody else named: public ones over `https`, and what the operator allows.
    pub fn strangers(allowed: impl Into<Arc<[Allowed]>>) -> Self {
        Self { named_by_strangers: true, allowed: allowed.into(), names: Names::System }
    }

    /// Addresses of the operator's own configuration, which may be private.
    pub fn operators(allowed: impl Into<Arc<[Allowed]>>) -> Self {
        Self { named_by_strangers: false, allowed: allowed.into(), names: Names::System }
    }

    /// As they are, with a table in the place of the system's names. For tests.
    #[doc(hidden)]
    pub fn with_names(self, names: fn(&str) -> Vec<IpAddr>) -> Self {
        Self { names: Names::Table(names), ..self }
    }

    /// What can be seen of an address without asking for its name. One that passes may still be refused when it is
    /// called.
    pub fn check(&self, url: &str) -> Result<Url, Refused> {
        if url.len() > URL_BYTES_MAX {
            return Err(Refused);
        }
        let url = Url::parse(url).map_err(|_| Refused)?;
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or(Refused)?;
        let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
        let named = self.names_host(host) || literal.is_some_and(|address| self.names_address(address));
        match url.scheme() {
            "https" => {}
            "http" if named || !self.named_by_strangers => {}
            _ => return Err(Refused),
        }
        // A stranger's password would stand in the database and travel with each call.
        if self.named_by_strangers && (!url.username().is_empty() || url.password().is_some()) {
            return Err(Refused);
        }
        match literal {
            Some(address) if !named && !self.may_reach(address) => Err(Refused),
            _ => Ok(url),
        }
    }

    fn names_host(&self, host: &str) -> bool {
        self.allowed.iter().any(|allowed| allowed.is_host(host))
    }

    fn names_address(&self, address: IpAddr) -> bool {
        self.allowed.iter().any(|allowed| allowed.holds(address))
    }

    fn may_reach(&self, address: IpAddr) -> bool {
        address::is_public(address)
            || (!self.named_by_strangers && address::is_private(address))
            || self.names_address(address)
    }

    /// The addresses of a host, all of which may be reached.
    async fn resolve(&self, host: &str) -> Result<Vec<SocketAddr>, Box<dyn std::error::Error + Send + Sync>> {
        let found: Vec<IpAddr> = match self.names {
            Names::System => match tokio::net::lookup_host((host, 0)).await {
                Ok(found) => found.map(|address| address.ip()).collect(),
                // To an operator a name that cannot be looked up is trouble, and no refusal.
                Err(error) if !self.named_by_strangers => return Err(error.into()),
                Err(_) => return Err(Refused.into()),
            },
            Names::Table(names) => names(host),
        };
        let good = |address: &IpAddr| self.may_reach(*address);
        if found.is_empty() || !(self.names_host(host) || found.iter().all(good)) {
            return Err(Refused.into());
        }
        Ok(found.into_iter().map(|address| SocketAddr::new(address, 0)).collect())
    }
}

/// Who says what a host's name stands for.
#[derive(Clone, Copy, Debug)]
enum Names {
    System,
    Table(fn(&str) -> Vec<IpAddr>),
}

/// What connections ask instead of the system: they go to what was checked.
struct Checked(Destinations);

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let destinations = self.0.clone();
        Box::pin(async move {
            let found = destinations.resolve(name.as_str()).await?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// A client for such destinations. Cheap to clone; clones share their connections.
#[derive(Clone, Debug)]
pub struct Outgoing {
    http: reqwest::Client,
    destinations: Destinations,
}

impl Outgoing {
    /// `timeout` is from the first byte sent to the last byte of the answer.
    pub fn new(destinations: Destinations, timeout: Duration) -> Result<Self, NoClient> {
        // The whole program uses ring. It fails only where it has been installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut http = reqwest::Client::builder()
            .connect_timeout(CONNECTING)
            .timeout(timeout)
            // What is sent must not follow a redirect to somewhere else.
            .redirect(reqwest::redirect::Policy::none())
            .dns_resolver(Arc::new(Checked(destinations.clone())));
        if destinations.named_by_strangers {
            // A proxy would ask for the name by itself.
            http = http.no_proxy();
        }
        Ok(Self { http: http.build().map_err(NoClient)?, destinations })
    }

    pub fn post(&self, url: &str) -> Result<reqwest::RequestBuilder, Refused> {
        Ok(self.http.post(self.destinations.check(url)?))
    }

    pub fn get(&self, url: &str) -> Result<reqwest::RequestBuilder, Refused> {
        Ok(self.http.get(self.destinations.check(url)?))
    }
}

/// Whether a call failed because its address was refused.
pub fn was_refused(error: &reqwest::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<Refused>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Why an answer was not read.
#[derive(Debug)]
pub enum Unread {
    TooLarge,
    Lost(reqwest::Error),
}

/// The body of an answer, of at most so many bytes.
pub async fn body_of(answer: reqwest::Response, bytes_max: usize) -> Result<Vec<u8>, Unread> {
    let mut bytes = Vec::new();
    let mut body = answer.bytes_stream();
    while let Some(chunk) = body.next().await {
        let chunk = chunk.map_err(Unread::Lost)?;
        if bytes.len() + chunk.len() > bytes_max {
            return Err(Unread::TooLarge);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}
