//! Which addresses are public. Of IPv6 only what is given out as global unicast is; of IPv4 what no registry entry
//! keeps from being forwarded (IANA special-purpose address registries, RFC 6890).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

type Net4 = (Ipv4Addr, u32);
type Net6 = (Ipv6Addr, u32);

const fn v4(a: u8, b: u8, c: u8, d: u8, length: u32) -> Net4 {
    (Ipv4Addr::new(a, b, c, d), length)
}

const fn v6(head: [u16; 3], length: u32) -> Net6 {
    (Ipv6Addr::new(head[0], head[1], head[2], 0, 0, 0, 0, 0), length)
}

/// An operator's own networks.
const PRIVATE_4: &[Net4] = &[
    v4(10, 0, 0, 0, 8),
    v4(100, 64, 0, 0, 10), // carrier-grade NAT
    v4(127, 0, 0, 0, 8),
    v4(172, 16, 0, 0, 12),
    v4(192, 168, 0, 0, 16),
];

/// Nobody's, or of a cloud's own services.
const SPECIAL_4: &[Net4] = &[
    v4(0, 0, 0, 0, 8),
    v4(100, 100, 100, 200, 32), // metadata (Alibaba)
    v4(168, 63, 129, 16, 32),   // the host's own services (Azure)
    v4(169, 254, 0, 0, 16),     // link-local, metadata
    v4(192, 0, 0, 0, 24),       // protocol assignments, metadata (Oracle)
    v4(192, 0, 2, 0, 24),       // documentation
    v4(192, 31, 196, 0, 24),
    v4(192, 52, 193, 0, 24),
    v4(192, 88, 99, 0, 24), // relays of 6to4
    v4(192, 175, 48, 0, 24),
    v4(198, 18, 0, 0, 15), // benchmarks
    v4(198, 51, 100, 0, 24),
    v4(203, 0, 113, 0, 24),
    v4(224, 0, 0, 0, 4), // multicast
    v4(240, 0, 0, 0, 4), // reserved, broadcast
];

const GLOBAL_6: Net6 = v6([0x2000, 0, 0], 3);

/// Within the global ones: what carries an IPv4 address, and what is nobody's.
const SPECIAL_6: &[Net6] = &[
    v6([0x2001, 0, 0], 23),     // protocol assignments, among them Teredo
    v6([0x2001, 0xdb8, 0], 32), // documentation
    v6([0x2002, 0, 0], 16),     // 6to4
    v6([0x2620, 0x4f, 0x8000], 48),
    v6([0x3ffe, 0, 0], 16),
    v6([0x3fff, 0, 0], 20), // documentation
];

const UNIQUE_LOCAL_6: Net6 = v6([0xfc00, 0, 0], 7);

/// Metadata (Amazon), within the unique local ones.
const METADATA_6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// Whether anybody may reach it over the internet.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !within_4(address, PRIVATE_4) && !within_4(address, SPECIAL_4),
        IpAddr::V6(address) => {
            holds_6(GLOBAL_6, address)
                && !SPECIAL_6.iter().any(|net| holds_6(*net, address))
                && !is_isatap(address)
        }
    }
}

/// Whether it is one of an operator's own networks.
pub(super) fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => within_4(address, PRIVATE_4) && !within_4(address, SPECIAL_4),
        IpAddr::V6(address) => {
            address.is_loopback() || (holds_6(UNIQUE_LOCAL_6, address) && address != METADATA_6)
        }
    }
}

/// Whether the first `length` bits are the same.
pub(super) fn holds(net: IpAddr, length: u32, address: IpAddr) -> bool {
    match (net, address) {
        (IpAddr::V4(net), IpAddr::V4(address)) => holds_4((net, length), address),
        (IpAddr::V6(net), IpAddr::V6(address)) => holds_6((net, length), address),
        _ => false,
    }
}

fn within_4(address: Ipv4Addr, nets: &[Net4]) -> bool {
    nets.iter().any(|net| holds_4(*net, address))
}

fn holds_4((net, length): Net4, address: Ipv4Addr) -> bool {
    let mask = u32::MAX.checked_shl(32 - length.min(32)).unwrap_or(0);
    net.to_bits() & mask == address.to_bits() & mask
}

fn holds_6((net, length): Net6, address: Ipv6Addr) -> bool {
    let mask = u128::MAX.checked_shl(128 - length.min(128)).unwrap_or(0);
    net.to_bits() & mask == address.to_bits() & mask
}

/// An IPv4 address in the last half, whatever network stands in the first (RFC 5214).
fn is_isatap(address: Ipv6Addr) -> bool {
    let [.., mark, kind, _, _] = address.segments();
    kind == 0x5efe && mark & !0x0200 == 0
}
