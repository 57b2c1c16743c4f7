//! Making keys: `mapae_<id>_<secret>`, shown once and kept only as a hash.

use std::time::Duration;

use mapae::job::name::Owner;
use mapae::store::contract::{NewKey, Store, StoreError};

use crate::api::auth::hash;

/// A key as it is handed out, and what is kept of it.
pub struct Made {
    /// The whole key. It cannot be shown again.
    pub key: String,
    pub kept: NewKey,
}

/// A new key of 256 random bits. `None` where the system has no randomness to give.
pub fn make(owner: Option<Owner>, scopes: Vec<String>, lifetime: Option<Duration>) -> Option<Made> {
    let mut bytes = [0; 40];
    getrandom::fill(&mut bytes).ok()?;
    let (id, secret) = bytes.split_at(8);
    let (id, secret) = (hex(id), hex(secret));
    let key = format!("mapae_{id}_{secret}");
    let kept = NewKey { hash: hash(&key), id, owner, scopes, lifetime };
    Some(Made { key, kept })
}

/// Lets `key`, which the operator chose, in with every right. Does nothing where it is in already.
pub async fn admit(store: &dyn Store, key: &str) -> Result<(), StoreError> {
    let hash = hash(key);
    if store.key(&hash).await?.is_some() {
        return Ok(());
    }
    let id = format!("given-{}", hex(&hash[..6]));
    let scopes = vec!["admin".to_owned()];
    store.add_key(NewKey { id, hash, owner: None, scopes, lifetime: None }).await.map(drop)
}

pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
