//! Who is told of events.

use mapae::job::event::EventKind;
use mapae::keeper::tell::TELLING_MAX;
use mapae::store::contract::Receiver;
use sha2::{Digest, Sha256};
use toml::Value;

use super::error::ConfigError;
use super::resolve::{Reader, counted, is_http};
use super::secret::Address;
use super::{Events, Pattern, ReceiverSettings, key, value};
use crate::credential::hex;

/// Events of different jobs told at the same time to one receiver of `events.to`.
const CONCURRENT: usize = 8;

/// Most receivers.
const RECEIVERS_MAX: usize = 100;

fn is_receiver(url: &str) -> bool {
    #[cfg(feature = "streams")]
    if mapae::keeper::stream::Stream::parse(url, "").is_some() {
        return true;
    }
    is_http(url)
}

/// The name of a receiver that has none: the same for the same place, and nobody's secret can be found from it.
fn named_by(place: &str) -> String {
    format!("to-{}", &hex(&Sha256::digest(place.as_bytes()))[..12])
}

/// An address without what may be changed while the receiver stays the same: user, password, query and fragment.
fn place(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

impl Reader<'_> {
    pub(super) fn events(&mut self) -> Events {
        let mut receivers = self.listed();
        for named in self.named() {
            if receivers.iter().any(|listed| listed.to.name == named.to.name) {
                self.errors.push(ConfigError::SameName { name: named.to.name.clone() });
            }
            receivers.push(named);
        }
        Events {
            receivers,
            callbacks: self.secrets(key::parse("callback.secret")),
            timeout: self.read("events.timeout", |value| {
                value::duration(value).filter(|time| !time.is_zero() && *time <= TELLING_MAX)
            }),
            backoff: self.read("events.backoff", value::backoff),
            give_up: self.duration("events.give_up"),
            backlog: self.read("events.backlog", |value| counted(value, 1_000, 100_000_000)),
        }
    }

    /// Those of `events.to`, which are known by their address: in a list they may change places.
    fn listed(&mut self) -> Vec<ReceiverSettings> {
        let path = key::parse("events.to");
        let secrets = self.secrets(key::parse("events.secret"));
        let in_file =
            self.settings.get(&path).is_some_and(|setting| matches!(setting.value, Value::Table(_)));
        let urls: Vec<String> = if in_file {
            let text = self.secret(path.clone()).unwrap_or_default();
            text.split_whitespace().map(str::to_owned).collect()
        } else {
            self.read("events.to", value::list)
        };
        if urls.len() > RECEIVERS_MAX || !urls.iter().all(|url| is_receiver(url)) {
            self.bad(&path, None);
            return Vec::new();
        }
        let mut receivers: Vec<ReceiverSettings> = Vec::with_capacity(urls.len());
        for url in urls {
            let name = named_by(&place(&url));
            if receivers.iter().any(|other| other.to.name == name) {
                self.errors.push(ConfigError::SamePlace);
                return Vec::new();
            }
            let before = named_by(&url);
            receivers.push(ReceiverSettings {
                former: (before != name).then_some(before),
                to: Receiver { name, events: Vec::new(), kinds: Vec::new() },
                url: Address::new(url),
                secrets: secrets.clone(),
                concurrent: CONCURRENT,
            });
        }
        receivers
    }

    fn named(&mut self) -> Vec<ReceiverSettings> {
        let mut receivers = Vec::new();
        let of_all = self.secrets(key::parse("events.secret"));
        for name in self.settings.names_below("receiver") {
            let at = |key: &str| ["receiver", name, key].map(str::to_owned).to_vec();
            if self.settings.get(&at("url")).is_none() {
                self.missing(&at("url"));
                continue;
            }
            let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            let url = self.secret(at("url"));
            let named = name.len() <= 64 && name.chars().all(plain) && receivers.len() < RECEIVERS_MAX;
            if !named || url.as_ref().is_some_and(|url| !is_receiver(url)) {
                self.bad(&at("url"), None);
                continue;
            }
            let secrets = self.secrets(at("secret")).or_else(|| of_all.clone());
            let events = self.at(at("events"), |value| {
                value::list(value)?.iter().map(|text| EventKind::parse(text)).collect()
            });
            let kinds = self.at(at("kinds"), |value| {
                let kinds = value::list(value)?;
                kinds.iter().all(|kind| Pattern::parse(kind).is_some()).then_some(kinds)
            });
            let concurrent = self.at(at("concurrent"), |value| counted(value, 1, 256));
            let Some(url) = url else { continue };
            let to = Receiver { name: name.to_owned(), events, kinds };
            receivers.push(ReceiverSettings {
                to,
                former: None,
                url: Address::new(url),
                secrets,
                concurrent,
            });
        }
        receivers
    }
}
