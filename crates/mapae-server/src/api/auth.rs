//! Who is calling, and what they may do.
//!
//! A handler says in its signature which right it needs: `caller: Caller<JobsRead>`. The right is
//! checked before any of the body is read, and there is no other way to the runtime than through a
//! caller.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::FromRequestParts;
use axum::http::header;
use axum::http::request::Parts;
use mapae::job::name::Owner;
use mapae::store::contract::{KeyRecord, Scope, Store, StoreError};
use sha2::{Digest, Sha256};

use super::Api;
use super::problem::{self, Problem};
use crate::runtime::Runtime;

/// How long a look-up is believed: a revoked key stops working within this.
const BELIEVED: Duration = Duration::from_secs(4);

/// A key that was revoked lets nobody in five seconds later.
const _: () = assert!(BELIEVED.as_secs() < 5);

/// Look-ups remembered, wrong keys included; beyond that all are forgotten.
const REMEMBERED_MAX: usize = 10_000;

/// Longest key that is looked at.
const KEY_BYTES_MAX: usize = 512;

/// A right, as keys carry it.
pub trait Right: Send + Sync + 'static {
    const NAME: &'static str;
    /// A scope that includes this right as well.
    const OR: Option<&'static str> = None;
}

macro_rules! rights {
    ($($type:ident $name:literal)*) => {
        $(pub struct $type;
        impl Right for $type { const NAME: &'static str = $name; })*
        /// Every scope that a key can have.
        pub const SCOPES: &[&str] = &[$($name),*];
    };
}

rights! {
    JobsWrite "jobs:write"
    JobsRead "jobs:read"
    JobsWork "jobs:work"
    FilesRead "files:read"
    DeadWrite "dead:write"
    Admin "admin"
}

/// Reading what a job made: whoever may follow the job, or only read files.
pub struct ResultRead;

impl Right for ResultRead {
    const NAME: &'static str = FilesRead::NAME;
    const OR: Option<&'static str> = Some(JobsRead::NAME);
}

/// Sending a failed job back to work: its owner, or whoever looks after dead letters.
pub struct Retry;

impl Right for Retry {
    const NAME: &'static str = DeadWrite::NAME;
    const OR: Option<&'static str> = Some(JobsWrite::NAME);
}

/// Somebody who may do what `R` says.
pub struct Caller<R> {
    pub runtime: Arc<Runtime>,
    pub identity: Identity,
    right: PhantomData<R>,
}

/// Who a key stands for. `None` as owner means all owners.
#[derive(Clone, Debug)]
pub struct Identity {
    pub owner: Option<Owner>,
    pub scopes: Vec<String>,
    /// The hash that identifies the caller's key, absent for the machine's own command line.
    key: Option<[u8; 32]>,
}

impl Identity {
    /// The command line on the machine that holds the database: whoever can read that needs no key.
    pub fn local() -> Self {
        Self { owner: None, scopes: vec![Admin::NAME.to_owned()], key: None }
    }

    pub fn scope(&self) -> Scope {
        self.owner.clone().map_or(Scope::All, Scope::Owner)
    }

    /// `admin` includes every right.
    pub fn may(&self, right: &str) -> bool {
        self.scopes.iter().any(|scope| scope == right || scope == Admin::NAME)
    }

    /// Whose a new job is. A key of all owners may say; without a word it is `default`'s.
    pub fn owner_of_new(&self, asked: Option<&str>) -> Result<Owner, Problem> {
        let bad = |detail: String| Problem::from(&problem::BODY_INVALID).detail(detail);
        let asked = asked.map(Owner::new).transpose().map_err(|error| bad(format!("`owner`: {error}.")))?;
        match (&self.owner, asked) {
            (None, asked) => Ok(asked.unwrap_or_else(|| Owner::new("default").expect("a valid owner"))),
            (Some(own), None) => Ok(own.clone()),
            (Some(own), Some(asked)) if *own == asked => Ok(asked),
            (Some(_), Some(_)) => {
                Err(Problem::from(&problem::FORBIDDEN).detail("The key is bound to another owner."))
            }
        }
    }

    /// Whether the key still stands, for answers that go on for long.
    pub async fn still_valid(&self, api: &Api, store: &Arc<dyn Store>) -> bool {
        match self.key {
            None => true,
            Some(hash) => matches!(api.keys.look_up(store, hash).await, Ok(Some(_))),
        }
    }
}

impl<R> Caller<R> {
    pub fn scope(&self) -> Scope {
        self.identity.scope()
    }
}

impl<R: Right> FromRequestParts<Api> for Caller<R> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let runtime = api.runtime()?;
        let identity = match parts.extensions.get::<Identity>() {
            Some(identity) => identity.clone(),
            None => authenticate(parts, api, &runtime.store).await?,
        };
        if !identity.may(R::NAME) && !R::OR.is_some_and(|scope| identity.may(scope)) {
            let or = R::OR.map(|scope| format!(" or {scope}")).unwrap_or_default();
            let detail = format!("The call needs the scope {}{or}.", R::NAME);
            return Err(Problem::from(&problem::FORBIDDEN).detail(detail));
        }
        Ok(Self { runtime, identity, right: PhantomData })
    }
}

async fn authenticate(parts: &Parts, api: &Api, store: &Arc<dyn Store>) -> Result<Identity, Problem> {
    let unknown = || Problem::from(&problem::UNAUTHENTICATED);
    let header = parts.headers.get(header::AUTHORIZATION).ok_or_else(unknown)?;
    let (scheme, key) = header.to_str().ok().and_then(|text| text.split_once(' ')).ok_or_else(unknown)?;
    let key = key.trim();
    if !scheme.eq_ignore_ascii_case("bearer") || key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(unknown());
    }
    let hash = hash(key);
    let record = api.keys.look_up(store, hash).await?.ok_or_else(unknown)?;
    Ok(Identity { owner: record.owner, scopes: record.scopes, key: Some(hash) })
}

/// The SHA-256 of the whole key. Looking a key up by its hash gives no time to measure: nobody can
/// choose a key whose hash begins like another's.
pub fn hash(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

/// Look-ups of the last seconds, so that not every call asks the database.
#[derive(Default)]
pub struct Keys(Mutex<Remembered>);

/// By hash: when it was asked for, and what was found.
type Remembered = HashMap<[u8; 32], (Instant, Option<KeyRecord>)>;

impl Keys {
    async fn look_up(&self, store: &Arc<dyn Store>, hash: [u8; 32]) -> Result<Option<KeyRecord>, StoreError> {
        if let Some((at, record)) = self.remembered().get(&hash)
            && at.elapsed() < BELIEVED
        {
            return Ok(record.clone());
        }
        // Taken before asking: the answer may be as old as the question.
        let asked = Instant::now();
        let record = store.key(&hash).await?;
        let mut remembered = self.remembered();
        if remembered.len() >= REMEMBERED_MAX {
            remembered.clear();
        }
        remembered.insert(hash, (asked, record.clone()));
        Ok(record)
    }

    fn remembered(&self) -> std::sync::MutexGuard<'_, Remembered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
