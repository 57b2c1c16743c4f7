//! Pausing a lane, or all lanes of a kind: nothing of it starts until it is resumed; what runs goes on.

use axum::extract::{FromRequestParts, Path};
use axum::http::StatusCode;
use axum::http::request::Parts;
use mapae::job::name::{Class, Kind, Lane};

use super::Api;
use super::auth::{Admin, Caller};
use super::problem::{self, Problem, ProblemBody};

/// Nothing of the lane starts from now on.
#[utoipa::path(
    post, path = "/v1/lanes/{lane}/pause", tag = "runtime", security(("key" = ["admin"])),
    params(("lane" = String, Path, description = "A kind, then `:high`, `:low` or nothing.")),
    responses((status = 204), (status = "default", body = ProblemBody)),
)]
pub(super) async fn pause(caller: Caller<Admin>, Named(lane): Named) -> Result<StatusCode, Problem> {
    caller.runtime.store.pause(&lane).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What waits in the lane may start again.
#[utoipa::path(
    post, path = "/v1/lanes/{lane}/resume", tag = "runtime", security(("key" = ["admin"])),
    params(("lane" = String, Path, description = "A kind, then `:high`, `:low` or nothing.")),
    responses((status = 204), (status = "default", body = ProblemBody)),
)]
pub(super) async fn resume(caller: Caller<Admin>, Named(lane): Named) -> Result<StatusCode, Problem> {
    caller.runtime.store.resume(&lane).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Nothing of the kind starts from now on, whatever its priority.
#[utoipa::path(
    post, path = "/v1/kinds/{kind}/pause", tag = "runtime", security(("key" = ["admin"])),
    params(("kind" = String, Path)),
    responses((status = 204), (status = "default", body = ProblemBody)),
)]
pub(super) async fn pause_kind(
    caller: Caller<Admin>,
    NamedKind(kind): NamedKind,
) -> Result<StatusCode, Problem> {
    for class in Class::ALL {
        caller.runtime.store.pause(&Lane { kind: kind.clone(), class }).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// What waits of the kind may start again, whatever its priority.
#[utoipa::path(
    post, path = "/v1/kinds/{kind}/resume", tag = "runtime", security(("key" = ["admin"])),
    params(("kind" = String, Path)),
    responses((status = 204), (status = "default", body = ProblemBody)),
)]
pub(super) async fn resume_kind(
    caller: Caller<Admin>,
    NamedKind(kind): NamedKind,
) -> Result<StatusCode, Problem> {
    for class in Class::ALL {
        caller.runtime.store.resume(&Lane { kind: kind.clone(), class }).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// The kind in the path. Any name of one is right.
pub(super) struct NamedKind(Kind);

impl FromRequestParts<Api> for NamedKind {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let bad = |detail: String| Problem::from(&problem::BAD_REQUEST).detail(detail);
        let kind = Path::<String>::from_request_parts(parts, api).await;
        let kind = kind.map_err(|_| bad("The kind cannot be read.".into()))?;
        Kind::new(kind.0).map(Self).map_err(|error| bad(format!("The kind: {error}.")))
    }
}

/// The lane in the path. Any kind may have one, so any name of a lane is right.
pub(super) struct Named(Lane);

impl FromRequestParts<Api> for Named {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let bad = |detail: String| Problem::from(&problem::BAD_REQUEST).detail(detail);
        let lane = Path::<String>::from_request_parts(parts, api).await;
        let lane = lane.map_err(|_| bad("The lane cannot be read.".into()))?;
        lane.0.parse().map(Self).map_err(|error| bad(format!("The lane: {error}.")))
    }
}
