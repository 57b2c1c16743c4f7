//! The HTTP API: what is where, and what every answer has in common.
//!
//! ```text
//! request ─► speak (problems for every refusal, panics caught) ─► Caller (key, right) ─► admission
//!         ─► the call's own module ─► runtime (store, files, accept)
//! ```
//!
//! `/openapi.json` is made from the routes as they stand, so neither can be without the other.

mod admission;
pub mod auth;
mod batches;
mod dead;
mod deliveries;
mod documents;
mod events;
mod extract;
mod feed;
mod figures;
mod health;
mod hooks;
mod jobs;
mod kinds;
mod labels;
mod lanes;
mod leases;
mod linger;
pub mod metrics;
mod model;
mod paging;
pub mod problem;
pub(crate) mod resources;
mod result;
mod schedules;
mod submit;

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use mapae::job::follow::{self, Follow};
use mapae::job::name::{Kind, Lane, Owner};
use mapae::store::contract::Store;
use tokio_util::sync::CancellationToken;
use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::admission::Admission;
use self::auth::Keys;
use self::feed::Feed;
use self::figures::Figures;
use self::health::Health;
pub use self::health::Watched;
use self::kinds::MadeUp;
use self::problem::Problem;
use crate::config::Config;
use crate::runtime::{BUILT_IN, Runtime};

/// What all calls share. Cheap to clone.
#[derive(Clone)]
pub struct Api(Arc<Shared>);

pub struct Shared {
    pub config: Arc<Config>,
    runtime: OnceLock<Arc<Runtime>>,
    keys: Keys,
    admission: Admission,
    made_up: MadeUp,
    feed: Feed,
    figures: Figures,
    pub health: Health,
    /// Cancelled when the process begins to stop: it is not ready any more, and streams end. Requests are
    /// answered until the last connection is closed.
    pub stop: CancellationToken,
}

impl std::ops::Deref for Api {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Api {
    /// Answers at once; calls that need the runtime are told to wait until [`Api::open`].
    pub fn new(config: Arc<Config>, stop: CancellationToken) -> Self {
        Self(Arc::new(Shared {
            admission: Admission::new(&config.limits),
            made_up: MadeUp::beside(known_kinds(&config).collect()),
            runtime: OnceLock::new(),
            keys: Keys::default(),
            feed: Feed::default(),
            figures: Figures::default(),
            health: Health::default(),
            config,
            stop,
        }))
    }

    /// The runtime can be used from now on. Spawns the task that watches for events.
    pub fn open(&self, runtime: Arc<Runtime>) {
        if self.runtime.set(runtime.clone()).is_ok() {
            self.feed.start(runtime.store.clone(), self.stop.clone());
        }
    }

    fn runtime(&self) -> Result<Arc<Runtime>, Problem> {
        self.runtime.get().cloned().ok_or_else(|| (&problem::STARTING).into())
    }

    fn known_kinds(&self) -> Vec<Kind> {
        known_kinds(&self.config).collect()
    }

    /// Lets `more` new jobs of the owner in, or says why not: as many of its jobs wait as may, or as many kinds that
    /// nobody here knows have jobs, of the owner or in all. The latter does not hold for `all`, keys of all owners.
    async fn admit(
        &self,
        store: &dyn Store,
        lane: &Lane,
        on: &[Follow],
        owner: &Owner,
        all: bool,
        more: usize,
    ) -> Result<(), Problem> {
        for kind in follow::kinds(on).chain([&lane.kind]).filter(|_| !all) {
            self.made_up.admit(kind, owner, store.stats()).await?;
        }
        self.admission.pending(store, lane.clone(), owner.clone(), more).await
    }

    fn knows(&self, kind: &Kind) -> bool {
        self.known_kinds().contains(kind)
    }
}

/// The kinds that this program and its configuration know. Clients may submit others: whoever runs them may be
/// another program.
fn known_kinds(config: &Config) -> impl Iterator<Item = Kind> {
    let configured = config.kinds.keys().chain(config.handlers.keys()).cloned();
    configured.chain(BUILT_IN.into_iter().flat_map(Kind::new))
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "mapae",
        description = "A durable runtime for long work. Every refusal is an RFC 9457 problem with a stable \
                       `code`; times are RFC 3339 in UTC; lists are paged by `cursor` and the `Link` header.",
        license(name = "Apache-2.0 OR MIT", identifier = "Apache-2.0 OR MIT"),
    ),
    tags(
        (name = "jobs", description = "Submit work and follow it."),
        (name = "batches", description = "Many jobs as one."),
        (name = "leases", description = "Do work over HTTP: lease it, keep it, tell its end."),
        (name = "dead", description = "Jobs that failed for good, waiting for a person."),
        (name = "labels", description = "Examples that teach the classifier what is whose."),
        (name = "events", description = "Whom events are told, and what became of it."),
        (name = "runtime", description = "How the whole is doing."),
    ),
)]
struct Document;

fn described() -> OpenApiRouter<Api> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(documents::upload))
        .routes(routes!(submit::submit, jobs::list))
        .routes(routes!(submit::ring))
        .routes(routes!(batches::submit))
        .routes(routes!(batches::show))
        .routes(routes!(batches::list, batches::add))
        .routes(routes!(batches::seal))
        .routes(routes!(jobs::show, jobs::delete))
        .routes(routes!(jobs::cancel))
        .routes(routes!(jobs::retry))
        .routes(routes!(events::of_job))
        .routes(routes!(events::of_all))
        .routes(routes!(result::whole))
        .routes(routes!(result::text))
        .routes(routes!(result::table))
        .routes(routes!(result::intents))
        .routes(routes!(dead::list))
        .routes(routes!(dead::redrive))
        .routes(routes!(dead::resolve))
        .routes(routes!(dead::assign))
        .routes(routes!(deliveries::dead))
        .routes(routes!(deliveries::resend))
        .routes(routes!(deliveries::resolve))
        .routes(routes!(deliveries::replay))
        .routes(routes!(deliveries::receivers))
        .routes(routes!(deliveries::secrets))
        .routes(routes!(leases::lease))
        .routes(routes!(leases::batch::batch))
        .routes(routes!(leases::report::heartbeat))
        .routes(routes!(leases::report::progress))
        .routes(routes!(leases::report::checkpoint))
        .routes(routes!(leases::report::complete))
        .routes(routes!(leases::report::fail))
        .routes(routes!(leases::report::release))
        .routes(routes!(lanes::pause))
        .routes(routes!(lanes::resume))
        .routes(routes!(lanes::pause_kind))
        .routes(routes!(lanes::resume_kind))
        .routes(routes!(labels::sets))
        .routes(routes!(labels::show, labels::teach, labels::forget))
        .routes(routes!(labels::report))
        .routes(routes!(labels::unteach))
        .routes(routes!(schedules::list))
        .routes(routes!(schedules::pause))
        .routes(routes!(schedules::resume))
        .routes(routes!(schedules::run))
        .routes(routes!(figures::stats))
        .routes(routes!(figures::workers))
        .routes(routes!(resources::resources))
        .routes(routes!(health::livez))
        .routes(routes!(health::readyz))
        .routes(routes!(health::startupz))
        .routes(routes!(metrics::metrics))
}

/// The document at `/openapi.json`.
pub fn openapi() -> utoipa::openapi::OpenApi {
    let mut document = described().into_openapi();
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    let components = document.components.get_or_insert_default();
    components.add_security_scheme("key", SecurityScheme::Http(bearer));
    document
}

/// Only health and metrics: for a process that works and does not serve.
pub fn watch_router(api: Api) -> Router {
    let watched = Router::new()
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/startupz", get(health::startupz))
        .route("/metrics", get(metrics::metrics));
    finished(watched, api)
}

/// Everything that is served.
pub fn router(api: Api) -> Router {
    let (router, _) = described().split_for_parts();
    let document: Arc<str> = openapi().to_json().expect("the document is JSON").into();
    let json = [("content-type", "application/json")];
    let router = router
        .route("/openapi.json", get(move || async move { (json, document.to_string()) }))
        .route("/hooks/{*name}", axum::routing::post(hooks::hear))
        .route("/", get(|| async { Html(WELCOME) }));
    finished(router, api)
}

fn finished(router: Router<Api>, api: Api) -> Router {
    router
        .fallback(|| async { Problem::from(&problem::ROUTE_NOT_FOUND) })
        // The answer says which methods there are; its body is made by `speak`.
        .method_not_allowed_fallback(|| async { StatusCode::METHOD_NOT_ALLOWED.into_response() })
        // Every call that reads a body has its own limit.
        .layer(axum::extract::DefaultBodyLimit::disable())
        .layer(axum::middleware::from_fn(problem::speak))
        .layer(axum::middleware::from_fn(linger::linger))
        .with_state(api)
}

const WELCOME: &str = r#"<!doctype html>
<html lang="en"><meta charset="utf-8"><title>mapae</title>
<p>mapae is running. The API is described at <a href="/openapi.json">/openapi.json</a>;
its calls are below <code>/v1</code> and take <code>Authorization: Bearer KEY</code>.
<p>mapae가 실행 중입니다. API 설명은 <a href="/openapi.json">/openapi.json</a>에 있습니다.
</html>
"#;
