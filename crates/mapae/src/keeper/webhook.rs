//! Events told over HTTP: CloudEvents 1.0 in the structured mode, signed as Standard Webhooks.
//!
//! | answer | the event |
//! |---|---|
//! | 2xx | is taken |
//! | 410 | is given up |
//! | 429, 503 with `Retry-After` | is offered again then |
//! | anything else, a redirect too, or none | is offered again later |

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use reqwest::header::CONTENT_TYPE;

use super::tell::{Courier, NotTaken, Then};
use crate::handler::http::put_off;
use crate::handler::signature::Secrets;
use crate::outgoing::{self, Destinations, NoClient, Outgoing};
use crate::store::contract::Delivery;

/// How much of an answer is read, in bytes: it is thrown away, so that the connection can be used again.
const ANSWER_BYTES_MAX: usize = 16 * 1024;

/// A receiver that is called. Not printable: the address may hold a password.
pub struct Webhook {
    http: Outgoing,
    to: To,
    secrets: Option<Secrets>,
    base: String,
}

/// Where events are told.
#[derive(Clone)]
pub enum To {
    /// One receiver of the operator's.
    Receiver(String),
    /// Where each job says, signed for the job's owner ([`Secrets::of_owner`]).
    Callbacks,
}

impl Webhook {
    /// `base` is where the API is reached, for the links of events; empty where they are to be relative.
    pub fn new(
        to: To,
        destinations: Destinations,
        timeout: Duration,
        secrets: Option<Secrets>,
        base: &str,
    ) -> Result<Self, NoClient> {
        let http = Outgoing::new(destinations, timeout)?;
        Ok(Self { http, to, secrets, base: base.trim_end_matches('/').to_owned() })
    }
}

#[async_trait]
impl Courier for Webhook {
    async fn take(&self, delivery: &Delivery) -> Result<(), NotTaken> {
        let event = &delivery.event;
        let (url, secrets) = match (&self.to, &delivery.url) {
            (To::Receiver(url), _) => (url, self.secrets.clone()),
            (To::Callbacks, Some(url)) => (url, self.secrets.as_ref().map(|all| all.of_owner(&event.owner))),
            (To::Callbacks, None) => return Err(not("receiver-without-address", Then::Never)),
        };
        let (id, body) = (event.id(), event.cloud_event(&self.base).to_string());
        let now = SystemTime::now();
        let mut request = self
            .http
            .post(url)
            .map_err(|_| not("receiver-address-refused", Then::Again))?
            .header(CONTENT_TYPE, "application/cloudevents+json; charset=utf-8");
        if let Some(secrets) = secrets {
            let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let at = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
            request = request
                .header("webhook-signature", secrets.sign(&id, at, body.as_bytes()))
                .header("webhook-timestamp", at)
                .header("webhook-id", id);
        }
        let answer = request.body(body).send().await.map_err(|error| {
            // The error may name the address.
            let code = match () {
                () if outgoing::was_refused(&error) => "receiver-address-refused",
                () if error.is_timeout() => "receiver-silent",
                () => "receiver-unreachable",
            };
            not(code, Then::Again)
        })?;
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let _ = outgoing::body_of(answer, ANSWER_BYTES_MAX).await;
        let code = format!("receiver-answered-{status}");
        match status {
            200..300 => Ok(()),
            410 => Err(not(code, Then::Never)),
            429 | 503 if let Some(wait) = put_off(&headers, now) => Err(not(code, Then::After(wait))),
            _ => Err(not(code, Then::Again)),
        }
    }
}

fn not(code: impl Into<String>, then: Then) -> NotTaken {
    NotTaken { code: code.into(), then }
}
