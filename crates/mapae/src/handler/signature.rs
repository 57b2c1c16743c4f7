//! Signatures of calls, as Standard Webhooks 1.0.0 has them: over `id.timestamp.body`, in the headers `webhook-id`,
//! `webhook-timestamp` (seconds) and `webhook-signature` (one for each secret, separated by spaces).
//!
//! | secret | signature |
//! |---|---|
//! | `whsec_` and base64 of 24 to 64 bytes, shared with the receiver | `v1,` and HMAC-SHA256 |
//! | `whsk_` and base64 of an ed25519 key; the receiver has `whpk_` | `v1a,` and ed25519 |

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use sha2::Sha256;

use crate::job::name::Owner;

/// How far a signature's time may be from now, in seconds: older ones may be replayed.
const TOLERANCE_S: i64 = 300;

/// The sizes of secret that the standard allows, in bytes.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// The secrets of one receiver. While they are rotated there are several: each signs, and any one
/// proves. Not printable.
#[derive(Clone, PartialEq, Eq)]
pub struct Secrets(Vec<Secret>);

#[derive(Clone)]
enum Secret {
    Shared(Vec<u8>),
    Pair(Arc<Ed25519KeyPair>),
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Shared(one), Self::Shared(other)) => one == other,
            (Self::Pair(one), Self::Pair(other)) => one.public_key().as_ref() == other.public_key().as_ref(),
            _ => false,
        }
    }
}

impl Eq for Secret {}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} secrets", self.0.len())
    }
}

impl Secrets {
    /// Each is `whsk_` and base64 of an ed25519 key (its seed of 32 bytes, or that and the public key), or base64 of 24
    /// to 64 bytes, with `whsec_` before it or without. `None` where one is not, or there is none.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let secrets = texts.into_iter().map(Secret::parse);
        secrets.collect::<Option<Vec<_>>>().filter(|secrets| !secrets.is_empty()).map(Self)
    }

    /// What signs for one owner: of each shared secret one that is this owner's alone, so that no owner can sign for
    /// another. Who knows it learns nothing of the secret it was made from. Pairs stay what they are.
    pub fn of_owner(&self, owner: &Owner) -> Self {
        let of_owner = |secret: &Secret| match secret {
            Secret::Shared(secret) => {
                let mut mac = keyed(secret);
                mac.update(b"mapae callback ");
                mac.update(owner.as_str().as_bytes());
                Secret::Shared(mac.finalize().into_bytes().to_vec())
            }
            Secret::Pair(pair) => Secret::Pair(pair.clone()),
        };
        Self(self.0.iter().map(of_owner).collect())
    }

    /// What a receiver needs to know: `whsec_…`, to be kept secret, or `whpk_…`, which anybody may know.
    pub fn for_receiver(&self) -> Vec<String> {
        let told = |secret: &Secret| match secret {
            Secret::Shared(secret) => format!("whsec_{}", STANDARD.encode(secret)),
            Secret::Pair(pair) => format!("whpk_{}", STANDARD.encode(pair.public_key().as_ref())),
        };
        self.0.iter().map(told).collect()
    }

    /// The value of `webhook-signature`.
    pub fn sign(&self, id: &str, timestamp_s: i64, body: &[u8]) -> String {
        let signatures = self.0.iter().map(|secret| match secret {
            Secret::Shared(secret) => {
                let signature = signed(secret, id, timestamp_s, body).finalize().into_bytes();
                format!("v1,{}", STANDARD.encode(signature))
            }
            Secret::Pair(pair) => {
                let signature = pair.sign(&content(id, timestamp_s, body));
                format!("v1a,{}", STANDARD.encode(signature.as_ref()))
            }
        });
        signatures.collect::<Vec<_>>().join(" ")
    }

    /// Whether one of the signatures was made with one of the secrets, not long ago.
    pub fn prove(&self, id: &str, timestamp_s: i64, signatures: &str, body: &[u8], now_s: i64) -> bool {
        if timestamp_s.abs_diff(now_s) > TOLERANCE_S.unsigned_abs() {
            return false;
        }
        let given = |version: &str| -> Vec<Vec<u8>> {
            let given = signatures.split(' ').filter_map(|signature| signature.strip_prefix(version));
            given.filter_map(|signature| STANDARD.decode(signature).ok()).collect()
        };
        self.0.iter().any(|secret| match secret {
            Secret::Shared(secret) => {
                let made = signed(secret, id, timestamp_s, body);
                given("v1,").iter().any(|signature| made.clone().verify_slice(signature).is_ok())
            }
            Secret::Pair(pair) => {
                let key = UnparsedPublicKey::new(&ED25519, pair.public_key().as_ref());
                let content = content(id, timestamp_s, body);
                given("v1a,").iter().any(|signature| key.verify(&content, signature).is_ok())
            }
        })
    }
}

impl Secret {
    fn parse(text: &str) -> Option<Self> {
        if let Some(key) = text.strip_prefix("whsk_") {
            let key = STANDARD.decode(key).ok()?;
            let pair = match key.len() {
                32 => Ed25519KeyPair::from_seed_unchecked(&key),
                64 => Ed25519KeyPair::from_seed_and_public_key(&key[..32], &key[32..]),
                _ => return None,
            };
            return pair.ok().map(|pair| Self::Pair(Arc::new(pair)));
        }
        let secret = STANDARD.decode(text.strip_prefix("whsec_").unwrap_or(text)).ok()?;
        SECRET_BYTES.contains(&secret.len()).then_some(Self::Shared(secret))
    }
}

fn content(id: &str, timestamp_s: i64, body: &[u8]) -> Vec<u8> {
    [format!("{id}.{timestamp_s}.").as_bytes(), body].concat()
}

fn signed(secret: &[u8], id: &str, timestamp_s: i64, body: &[u8]) -> Hmac<Sha256> {
    let mut mac = keyed(secret);
    mac.update(format!("{id}.{timestamp_s}.").as_bytes());
    mac.update(body);
    mac
}

fn keyed(secret: &[u8]) -> Hmac<Sha256> {
    Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes a key of any length")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const NEW: &str = "C2FVsBQIhrscChlQIMV+b5sSYspob7oDC2FVsBQIhrs=";

    fn secrets(texts: &[&str]) -> Secrets {
        Secrets::parse(texts.iter().copied()).unwrap()
    }

    /// The example of the standard's own libraries.
    #[test]
    fn a_signature_is_the_standards() {
        let signature =
            secrets(&[OLD]).sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    /// RFC 8032, section 7.1, test 1: the key, and the public key that belongs to it.
    const SEED: &str = "whsk_nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=";
    const PUBLIC: &str = "whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";

    #[test]
    fn a_pair_signs_what_its_public_key_proves_and_nothing_else() {
        let (pair, body, at) = (secrets(&[SEED]), b"{}", 1_796_000_000);
        assert_eq!(pair.for_receiver(), [PUBLIC]);
        let signature = pair.sign("a", at, body);
        assert!(signature.starts_with("v1a,"));
        assert!(pair.prove("a", at, &signature, body, at));
        assert!(!pair.prove("a", at, &signature, b"{ }", at));
        assert!(!pair.prove("a", at, &signature.replace("v1a,", "v1,"), body, at), "another scheme");
        let seed = STANDARD.decode(&SEED[5..]).unwrap();
        let whole = [seed, STANDARD.decode(&PUBLIC[5..]).unwrap()].concat();
        assert_eq!(secrets(&[&format!("whsk_{}", STANDARD.encode(&whole))]), pair);
        let torn = format!("whsk_{}", STANDARD.encode([&whole[..32], &[7; 32]].concat()));
        assert_eq!(Secrets::parse([torn.as_str()]), None, "a public key of another");
    }

    #[test]
    fn each_owner_has_a_secret_of_its_own_that_says_nothing_of_the_others() {
        let owner = |name: &str| Owner::new(name).unwrap();
        let all = secrets(&[OLD, SEED]);
        let [acme, other] = ["acme", "other"].map(|name| all.of_owner(&owner(name)));
        assert_eq!(acme, all.of_owner(&owner("acme")));
        assert!(acme != other && acme != all);
        let told = acme.for_receiver();
        assert!(told[0].starts_with("whsec_") && told[1] == PUBLIC, "{told:?}");
        let body = b"{}";
        assert!(secrets(&[&told[0]]).prove("a", 1, &acme.sign("a", 1, body), body, 1));
    }

    #[test]
    fn while_secrets_are_rotated_either_side_may_be_first() {
        let (body, at) = (b"{}", 1_796_000_000);
        let both = secrets(&[NEW, OLD]);
        for one in [secrets(&[OLD]), secrets(&[NEW])] {
            assert!(one.prove("a", at, &both.sign("a", at, body), body, at + 299));
            assert!(both.prove("a", at, &one.sign("a", at, body), body, at - 299));
        }
        let signed = secrets(&[OLD]).sign("a", at, body);
        assert!(!secrets(&[NEW]).prove("a", at, &signed, body, at), "another secret");
        for (id, time, body, now) in [
            ("b", at, &b"{}"[..], at),
            ("a", at + 1, b"{}", at),
            ("a", at, b"{ }", at),
            ("a", at, b"{}", at + 301),
            ("a", at, b"{}", at - 301),
        ] {
            assert!(!both.prove(id, time, &signed, body, now), "{id} {time} {now}");
        }
        assert!(!both.prove("a", at, "v1a,AAAA v1, x", body, at));
    }

    #[test]
    fn a_secret_that_is_too_short_or_no_base64_is_refused() {
        for text in ["whsec_", "whsec_c2hvcnQ=", "hunter2", ""] {
            assert_eq!(Secrets::parse([text]), None, "{text:?}");
        }
        assert_eq!(Secrets::parse([]), None);
        assert!(!format!("{:?}", secrets(&[OLD])).contains("MfKQ"));
    }
}
