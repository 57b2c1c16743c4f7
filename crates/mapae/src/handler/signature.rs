//! Signatures of calls, as Standard Webhooks 1.0.0 has them: HMAC-SHA256 over `id.timestamp.body`, in the
//! headers `webhook-id`, `webhook-timestamp` (seconds) and `webhook-signature` (`v1,` and base64, one for
//! each secret, separated by spaces).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// How far a signature's time may be from now, in seconds: older ones may be replayed.
const TOLERANCE_S: i64 = 300;

/// The sizes of secret that the standard allows, in bytes.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// The secrets of one receiver. While they are rotated there are several: each signs, and any one
/// proves. Not printable.
#[derive(Clone, PartialEq, Eq)]
pub struct Secrets(Vec<Vec<u8>>);

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} secrets", self.0.len())
    }
}

impl Secrets {
    /// Each is base64 of 24 to 64 bytes, with `whsec_` before it or without. `None` where one is not, or
    /// there is none.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let secrets = texts.into_iter().map(|text| {
            let secret = STANDARD.decode(text.strip_prefix("whsec_").unwrap_or(text)).ok()?;
            SECRET_BYTES.contains(&secret.len()).then_some(secret)
        });
        secrets.collect::<Option<Vec<_>>>().filter(|secrets| !secrets.is_empty()).map(Self)
    }

    /// The value of `webhook-signature`.
    pub fn sign(&self, id: &str, timestamp_s: i64, body: &[u8]) -> String {
        let signatures = self.0.iter().map(|secret| {
            let signature = signed(secret, id, timestamp_s, body).finalize().into_bytes();
            format!("v1,{}", STANDARD.encode(signature))
        });
        signatures.collect::<Vec<_>>().join(" ")
    }

    /// Whether one of the signatures was made with one of the secrets, not long ago.
    pub fn prove(&self, id: &str, timestamp_s: i64, signatures: &str, body: &[u8], now_s: i64) -> bool {
        if timestamp_s.abs_diff(now_s) > TOLERANCE_S.unsigned_abs() {
            return false;
        }
        let given = signatures.split(' ').filter_map(|signature| signature.strip_prefix("v1,"));
        let given: Vec<Vec<u8>> = given.filter_map(|signature| STANDARD.decode(signature).ok()).collect();
        self.0.iter().any(|secret| {
            let made = signed(secret, id, timestamp_s, body);
            given.iter().any(|signature| made.clone().verify_slice(signature).is_ok())
        })
    }
}

fn signed(secret: &[u8], id: &str, timestamp_s: i64, body: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes a key of any length");
    mac.update(format!("{id}.{timestamp_s}.").as_bytes());
    mac.update(body);
    mac
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
