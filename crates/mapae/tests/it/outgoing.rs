//! Where calls to the outside go: never to the canary, however its address is written or hidden.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mapae::outgoing::{Allowed, Destinations, Outgoing, Refused, was_refused};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Listens where nobody is to come, and counts who does.
struct Canary {
    port: u16,
    seen: Arc<AtomicUsize>,
}

impl Canary {
    /// On every address of this host that IPv4 and, where there is one, IPv6 has.
    async fn start() -> Self {
        let seen = Arc::new(AtomicUsize::new(0));
        let first = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.unwrap();
        let port = first.local_addr().unwrap().port();
        let second = TcpListener::bind((Ipv6Addr::LOCALHOST, port)).await;
        for listener in [Some(first), second.ok()].into_iter().flatten() {
            let seen = seen.clone();
            tokio::spawn(async move {
                while let Ok((mut stream, _)) = listener.accept().await {
                    seen.fetch_add(1, Ordering::SeqCst);
                    let _ = stream.read(&mut [0; 4096]).await;
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
                }
            });
        }
        Self { port, seen }
    }

    fn seen(&self) -> usize {
        self.seen.load(Ordering::SeqCst)
    }
}

/// Names that somebody with a name server of his own can make up.
fn names(host: &str) -> Vec<IpAddr> {
    let addresses: &[&str] = match host.trim_end_matches('.') {
        "loopback.example" | "localtest.me" | "localhost" | "a.localhost" => &["127.0.0.1"],
        "six.example" => &["::1"],
        "second.example" => &["93.184.215.14", "127.0.0.1"],
        "last.example" => &["2606:4700::1111", "93.184.215.14", "::1"],
        "private.example" => &["10.0.0.1"],
        "metadata.example" | "metadata.google.internal" => &["169.254.169.254"],
        "mapped.example" => &["::ffff:127.0.0.1"],
        "translated.example" => &["64:ff9b::7f00:1"],
        "sixtofour.example" => &["2002:7f00:1::1"],
        "teredo.example" => &["2001:0:4136:e378:8000:63bf:80ff:fffe"],
        "unspecified.example" => &["0.0.0.0"],
        "nat.example" => &["100.64.0.1"],
        _ => &[],
    };
    addresses.iter().map(|address| address.parse().unwrap()).collect()
}

/// Ways to name what a stranger is not to reach. `PORT` is the canary's.
const FORGED: &[&str] = &[
    // Written plainly, and in every other way that some reader understands.
    "https://127.0.0.1:PORT/",
    "https://127.0.0.1.:PORT/",
    "https://127.1:PORT/",
    "https://127.0.1:PORT/",
    "https://2130706433:PORT/",
    "https://0x7f000001:PORT/",
    "https://0x7f.0.0.1:PORT/",
    "https://0x7f.1:PORT/",
    "https://0177.0.0.1:PORT/",
    "https://017700000001:PORT/",
    "https://127.000.000.001:PORT/",
    "https://%31%32%37.0.0.1:PORT/",
    "https://127。0。0。1:PORT/",
    "https://127．0．0．1:PORT/",
    "https://①②⑦.⓪.⓪.①:PORT/",
    "https://127.255.255.254:PORT/",
    "https://0.0.0.0:PORT/",
    "https://0:PORT/",
    "https://[::1]:PORT/",
    "https://[::]:PORT/",
    "https://[0:0:0:0:0:0:0:1]:PORT/",
    "https://[::ffff:127.0.0.1]:PORT/",
    "https://[::ffff:7f00:1]:PORT/",
    "https://[::127.0.0.1]:PORT/",
    "https://[64:ff9b::127.0.0.1]:PORT/",
    "https://[64:ff9b:1::7f00:1]:PORT/",
    "https://[2002:7f00:1::]:PORT/",
    "https://[2001:0:4136:e378:8000:63bf:80ff:fffe]:PORT/",
    "https://[2606:4700::5efe:7f00:1]:PORT/",
    "https://[2606:4700::200:5efe:7f00:1]:PORT/",
    "https://[fe80::1]:PORT/",
    "https://[fe80::1%25lo]:PORT/",
    "https://[fec0::1]:PORT/",
    "https://[fd00:ec2::254]:PORT/",
    "https://[fc00::1]:PORT/",
    "https://[ff02::1]:PORT/",
    "https://[100::1]:PORT/",
    "https://[2001:db8::1]:PORT/",
    "https://[3fff::1]:PORT/",
    "https://[5f00::1]:PORT/",
    // Others' networks.
    "https://10.0.0.1:PORT/",
    "https://172.16.0.1:PORT/",
    "https://172.31.255.255:PORT/",
    "https://192.168.1.1:PORT/",
    "https://100.64.0.1:PORT/",
    "https://100.127.255.255:PORT/",
    "https://169.254.169.254:PORT/latest/meta-data/",
    "https://0xa9fea9fe:PORT/",
    "https://100.100.100.200:PORT/",
    "https://168.63.129.16:PORT/",
    "https://192.0.0.192:PORT/",
    "https://198.18.0.1:PORT/",
    "https://224.0.0.1:PORT/",
    "https://240.0.0.1:PORT/",
    "https://255.255.255.255:PORT/",
    // Names.
    "https://localhost:PORT/",
    "https://LOCALHOST:PORT/",
    "https://localhost.:PORT/",
    "https://a.localhost:PORT/",
    "https://localtest.me:PORT/",
    "https://loopback.example:PORT/",
    "https://six.example:PORT/",
    "https://second.example:PORT/",
    "https://last.example:PORT/",
    "https://private.example:PORT/",
    "https://metadata.example:PORT/",
    "https://metadata.google.internal:PORT/",
    "https://mapped.example:PORT/",
    "https://translated.example:PORT/",
    "https://sixtofour.example:PORT/",
    "https://teredo.example:PORT/",
    "https://unspecified.example:PORT/",
    "https://nat.example:PORT/",
    "https://nowhere.example:PORT/",
    // Parts that mislead.
    "https://good.example@127.0.0.1:PORT/",
    "https://good.example:pass@127.0.0.1:PORT/",
    "https://127.0.0.1:PORT\\@good.example/",
    "https:\\\\127.0.0.1:PORT/",
    "https:127.0.0.1:PORT/",
    "https:///127.0.0.1:PORT/",
    "https://127.0.0.1\t:PORT/",
    "https://user:pass@93.184.215.14:PORT/",
    // Other schemes.
    "http://93.184.215.14:PORT/",
    "http://127.0.0.1:PORT/",
    "ftp://127.0.0.1:PORT/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:PORT/_",
    "unix:/var/run/docker.sock",
    "data:text/plain,x",
    "//127.0.0.1:PORT/",
    "",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_strangers_address_leads_nowhere_but_to_the_public_and_no_refusal_says_why() {
    let canary = Canary::start().await;
    let destinations = Destinations::strangers([]).with_names(names);
    let client = Outgoing::new(destinations, Duration::from_secs(20)).unwrap();
    assert!(FORGED.len() >= 60);
    for forged in FORGED {
        let url = forged.replace("PORT", &canary.port.to_string());
        match client.post(&url) {
            Err(refused) => assert_eq!(refused.to_string(), Refused.to_string()),
            Ok(request) => {
                let error = request.body("secret").send().await.expect_err(forged);
                assert!(was_refused(&error), "{forged}: {error:?}");
            }
        }
        assert_eq!(canary.seen(), 0, "{forged}");
    }
    let long = format!("https://good.example/{}", "a".repeat(4096));
    assert_eq!(client.post(&long).err(), Some(Refused));
    // The canary is not deaf.
    reqwest::get(format!("http://127.0.0.1:{}/", canary.port)).await.unwrap();
    assert_eq!(canary.seen(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_allowed_by_name_is_reached_and_nothing_beside_it() {
    let canary = Canary::start().await;
    let url = |host: &str| format!("http://{host}:{}/", canary.port);
    let reached = async |allowed: &str, host: &str| {
        let allowed = vec![Allowed::parse(allowed).unwrap()];
        let destinations = Destinations::strangers(allowed).with_names(names);
        let client = Outgoing::new(destinations, Duration::from_secs(20)).unwrap();
        match client.post(&url(host)) {
            Ok(request) => request.send().await.is_ok(),
            Err(Refused) => false,
        }
    };
    assert!(reached("127.0.0.1", "127.0.0.1").await);
    assert!(reached("loopback.example", "loopback.example").await);
    assert!(reached("*.localhost", "a.localhost").await);
    let so_far = canary.seen();
    assert_eq!(so_far, 3);
    assert!(!reached("loopback.example", "127.0.0.1").await);
    assert!(!reached("127.0.0.1", "private.example").await);
    assert!(!reached("*.localhost", "localhost").await);
    assert_eq!(canary.seen(), so_far);
}

/// A name is asked again for each connection, and means something else by then.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_means_another_address_a_moment_later_is_checked_again() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    fn turns(_: &str) -> Vec<IpAddr> {
        let first = ASKED.fetch_add(1, Ordering::SeqCst) == 0;
        // Documentation addresses are nobody's; the first look is a check before the call.
        vec![if first { "93.184.215.14" } else { "127.0.0.1" }.parse().unwrap()]
    }
    let canary = Canary::start().await;
    let destinations = Destinations::strangers([]).with_names(turns);
    let client = Outgoing::new(destinations, Duration::from_millis(500)).unwrap();
    let url = format!("https://turns.example:{}/", canary.port);
    for _ in 0..2 {
        client.post(&url).unwrap().send().await.unwrap_err();
    }
    assert_eq!((ASKED.load(Ordering::SeqCst), canary.seen()), (2, 0));
}

#[test]
fn an_operators_address_may_be_private_and_is_no_metadata() {
    let operators = Destinations::operators([]);
    for url in [
        "http://127.0.0.1:8000/",
        "http://10.0.0.1/",
        "https://192.168.1.1/",
        "http://100.64.0.1/",
        "http://[::1]/",
        "http://[fd00::1]/",
        "http://user:pass@10.0.0.1/",
        "http://ai:8000/work",
    ] {
        assert!(operators.check(url).is_ok(), "{url}");
    }
    for url in [
        "http://169.254.169.254/",
        "http://[fd00:ec2::254]/",
        "http://100.100.100.200/",
        "http://168.63.129.16/",
        "http://[fe80::1]/",
        "http://0.0.0.0/",
        "http://[::ffff:169.254.169.254]/",
        "ftp://10.0.0.1/",
    ] {
        assert_eq!(operators.check(url), Err(Refused), "{url}");
    }
    let allowed = vec![Allowed::parse("169.254.1.0/24").unwrap()];
    assert!(Destinations::operators(allowed).check("http://169.254.1.7/").is_ok());
}
