//! What the operator allows by name, beyond what is allowed to everybody.

use std::net::IpAddr;

use super::address;

/// A host, the hosts below a domain, an address, or a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// `hooks.internal`
    Host(String),
    /// `*.svc.cluster.local`, kept as `.svc.cluster.local`
    Below(String),
    /// `10.1.0.0/16`, or one address
    Net(IpAddr, u32),
}

impl Allowed {
    /// `None` where it is none of these.
    pub fn parse(text: &str) -> Option<Self> {
        let bare = text.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Some(Self::Net(address, bits(address)));
        }
        if let Some((net, length)) = text.split_once('/') {
            let (net, length) = (net.parse::<IpAddr>().ok()?, length.parse::<u32>().ok()?);
            return (length <= bits(net)).then_some(Self::Net(net, length));
        }
        let text = text.to_ascii_lowercase();
        let named = |name: &str| {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c);
            !name.is_empty() && !name.starts_with('.') && !name.ends_with('.') && name.chars().all(plain)
        };
        match text.strip_prefix("*.") {
            Some(name) => named(name).then(|| Self::Below(format!(".{name}"))),
            None => named(&text).then_some(Self::Host(text)),
        }
    }

    pub(super) fn is_host(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        match self {
            Self::Host(name) => host == *name,
            Self::Below(end) => host.len() > end.len() && host.ends_with(end.as_str()),
            Self::Net(..) => false,
        }
    }

    pub(super) fn holds(&self, address: IpAddr) -> bool {
        matches!(self, Self::Net(net, length) if address::holds(*net, *length, address))
    }
}

fn bits(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allowed_is_a_host_a_domain_or_a_network() {
        let allowed = |text: &str| Allowed::parse(text).unwrap();
        assert!(allowed("hooks.internal").is_host("HOOKS.internal."));
        assert!(!allowed("hooks.internal").is_host("x.hooks.internal"));
        assert!(allowed("*.internal").is_host("x.internal") && !allowed("*.internal").is_host("internal"));
        assert!(!allowed("*.internal").is_host("xinternal"));
        assert!(allowed("10.1.0.0/16").holds("10.1.2.3".parse().unwrap()));
        assert!(!allowed("10.1.0.0/16").holds("10.2.2.3".parse().unwrap()));
        assert!(allowed("[::1]").holds("::1".parse().unwrap()));
        assert!(allowed("0.0.0.0/0").holds("127.0.0.1".parse().unwrap()));
        for text in ["", "*", "*.", "a b", "10.0.0.0/33", "https://x", "x:80", ".x"] {
            assert_eq!(Allowed::parse(text), None, "{text:?}");
        }
    }
}
