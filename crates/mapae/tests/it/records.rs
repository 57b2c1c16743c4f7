//! Jobs and the user's own records in one transaction: submitted by SQL from any language, and written back by the
//! transaction that ends them. On PostgreSQL.

mod adopt;
mod submit;
mod write_back;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mapae::handler::{Context, Handlers};
use mapae::job::follow::{Follow, Next};
use mapae::job::lease::Holder;
use mapae::job::name::{JobId, Kind, Owner, Priority};
use mapae::job::record::{NewJob, Output};
use mapae::job::retry::{Backoff, Failure, RetryPolicy, Verdict};
use mapae::job::timestamp::Timestamp;
use mapae::job::{End, State};
use mapae::store::Postgres;
use mapae::store::contract::{
    Claim, Control, Described, EventFilter, JobFilter, Keep, KindPlan, Page, Receiver, Records, Run, Scope,
    SettleError, Settlement, Store, Tell, View,
};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection, Row};
use uuid::Uuid;

use crate::site::{self, Site};

const LEASE: Duration = Duration::from_secs(3600);

struct Bench {
    store: Arc<Postgres>,
    url: String,
}

impl Bench {
    /// `None` where this run has no PostgreSQL.
    async fn new() -> Option<Self> {
        let url = site::fresh(&site::postgres()?).await;
        let store = Arc::new(Postgres::open(&url, true).await.unwrap());
        store.migrate().await.unwrap();
        Some(Self { store, url })
    }

    async fn connection(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.unwrap()
    }

    async fn jobs(&self) -> Vec<mapae::job::record::Job> {
        let page = Page { after: None, limit: 100 };
        self.store.jobs(&Scope::All, &JobFilter::default(), &page).await.unwrap().jobs
    }

    async fn told(&self, job: JobId) -> Vec<String> {
        let filter = EventFilter { job: Some(job), ..EventFilter::default() };
        let events = self.store.events(&Scope::All, &filter, 100).await.unwrap();
        events.iter().map(|event| event.event.as_str().to_owned()).collect()
    }

    /// A job about the record `id`, held.
    async fn held(&self, id: &str) -> mapae::job::lease::Lease {
        let owner = Owner::new("acme").unwrap();
        let retry = RetryPolicy { attempts: 2, backoff: Backoff { first: LEASE, max: LEASE } };
        let job = NewJob { retry, ..NewJob::new(owner.clone(), kind("context"), json!({ "id": id })) };
        let job = self.store.accept(job).await.unwrap().id;
        match self.store.claim(&Holder::new("w"), &[(job, owner)], LEASE).await.unwrap().pop() {
            Some(Claim::Run(holding)) => holding.lease,
            other => panic!("{other:?}"),
        }
    }

    async fn settle(&self, lease: &mapae::job::lease::Lease, verdict: Verdict) -> Result<State, SettleError> {
        let output =
            matches!(verdict, Verdict::Succeed).then(|| Output::Inline(json!({ "keywords": ["a", "b"] })));
        self.store.settle(Settlement { lease: lease.clone(), verdict, output }).await
    }
}

/// A job about the record `id`.
fn about(id: &str) -> NewJob {
    NewJob::new(Owner::new("acme").unwrap(), kind("context"), json!({ "id": id }))
}

fn kind(name: &str) -> Kind {
    Kind::new(name).unwrap()
}

fn plan(name: &str) -> KindPlan {
    let retry = RetryPolicy { attempts: 7, backoff: Backoff { first: LEASE, max: 2 * LEASE } };
    KindPlan { kind: kind(name), retry, singular: false, on: Vec::new(), writes: BTreeMap::new() }
}

fn code(error: &sqlx::Error) -> String {
    error.as_database_error().and_then(|error| error.code()).unwrap_or_default().into_owned()
}

async fn submitted(
    on: &mut PgConnection,
    kind: &str,
    key: Option<&str>,
    params: Value,
) -> Result<JobId, sqlx::Error> {
    let row = sqlx::query("select mapae.submit($1, $2, key => $3, owner => 'acme') as id")
        .bind(kind)
        .bind(params)
        .bind(key)
        .fetch_one(on)
        .await?;
    Ok(JobId(row.try_get("id")?))
}
