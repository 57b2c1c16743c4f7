//! Pausing a lane: nothing of it starts until it is resumed; what runs goes on.

use axum::extract::{FromRequestParts, Path};
use axum::http::StatusCode;
use axum::http::request::Parts;
use mapae::job::name::Lane;

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
