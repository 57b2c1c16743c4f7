//! A long-running process: API, worker and keeper as its roles say, from the first connection to the
//! last lease given up.
//!
//! ```text
//! listen ─► open the runtime (again and again while waiting may help; not ready meanwhile)
//!        ─► keeper, worker ─► … ─► told to stop: not ready ─► drain ─► last answers ─► end
//! ```

use std::net::SocketAddr;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::api::{self, Api, Watched};
use crate::config::Config;
use crate::documents;
use crate::http::Server;
use crate::probe;
use crate::runtime::{self, Migrate, Runtime, WorkerError};
use crate::trouble::{Exit, Trouble};

/// What a process does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Roles {
    /// Serve the API; otherwise, where there is an address, only health and metrics.
    pub api: bool,
    pub worker: bool,
    pub migrate: Migrate,
}

/// Runs until `stop`, or until it is clear that it can never run. `listen` is where to answer, if
/// anywhere; `opened` hears the address once everything is up.
pub(crate) async fn run(
    mut config: Config,
    roles: Roles,
    listen: Option<SocketAddr>,
    stop: CancellationToken,
    opened: impl AsyncFnOnce(&Runtime, Option<SocketAddr>) -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    let close = CancellationToken::new();
    let server = match listen {
        Some(listen) => Some(Server::bind(listen).await.map_err(|error| cannot_listen(listen, &error))?),
        None => None,
    };
    let (address, mut serving) = (server.as_ref().map(|server| server.address), None);
    if let Some(address) = address.filter(|_| roles.api) {
        config.http.reached_at(address);
    }
    let config = Arc::new(config);
    let api = Api::new(config.clone(), stop.clone());
    if roles.worker {
        api.health.expect_worker();
    }
    if let Some(server) = server {
        info!(address = %server.address, "listening");
        let router = if roles.api { api::router(api.clone()) } else { api::watch_router(api.clone()) };
        serving = Some(tokio::spawn(server.serve(router, close.clone())));
    }
    let ran = work(&config, roles, &api, &stop, async |runtime| opened(runtime, address).await).await;
    // Not ready from here on, whatever the reason.
    stop.cancel();
    close.cancel();
    if let Some(serving) = serving {
        let _ = serving.await;
    }
    ran
}

/// Everything behind the API.
async fn work(
    config: &Arc<Config>,
    roles: Roles,
    api: &Api,
    stop: &CancellationToken,
    opened: impl AsyncFnOnce(&Runtime) -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    let opening = Runtime::open_patiently(config, roles.migrate, |error| {
        api.health.trouble(error.code());
        warn!(code = error.code(), %error, "the runtime cannot be opened yet; trying again");
    });
    let Some(runtime) = stop.run_until_cancelled(opening).await else { return Ok(()) };
    let runtime = runtime?;
    let describing = runtime.describe_patiently(config, |error| {
        api.health.trouble(error.code());
        warn!(code = error.code(), "the kinds cannot be made known yet; trying again");
    });
    let Some(described) = stop.run_until_cancelled(describing).await else { return Ok(()) };
    let described = described?;
    let keeping = tokio::spawn({
        let (runtime, config, stop) = (runtime.clone(), config.clone(), stop.clone());
        async move { stop.run_until_cancelled(runtime.keep_described(&config, described)).await }
    });
    api.open(runtime.clone());
    let keeper = runtime.start_keeper(config).map_err(WorkerError::from)?;
    let worked = match roles.worker {
        true => with_worker(config, &runtime, api, stop, opened).await,
        false => {
            let told = opened(&runtime).await;
            if told.is_ok() {
                stop.cancelled().await;
            }
            told
        }
    };
    keeper.stop().await;
    keeping.abort();
    runtime.store.close().await;
    worked
}

async fn with_worker(
    config: &Arc<Config>,
    runtime: &Arc<Runtime>,
    api: &Api,
    stop: &CancellationToken,
    opened: impl AsyncFnOnce(&Runtime) -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    let mut worker = match runtime.start_worker(config, stop.clone()).await {
        Ok(worker) => worker,
        // Told to stop while it waited for the database.
        Err(_) if stop.is_cancelled() => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if runtime::kinds(config).iter().any(|kind| kind.as_str() == documents::KIND) {
        look_at_sandbox(api).await;
    }
    api.health.watch(Watched { readiness: worker.readiness(), lease: config.worker.timing.lease });
    for (kind, handler) in &config.handlers {
        if let Some(probe) = handler.complete.probe.clone() {
            let (runtime, kind) = (runtime.clone(), kind.clone());
            tokio::spawn(probe::watch(runtime, kind, probe, config.operators(), stop.clone()));
        }
    }
    let told = opened(runtime).await;
    if told.is_ok() {
        until_told(stop, worker.ended()).await?;
        info!("told to stop; draining");
    }
    worker.drain().await;
    told
}

/// Documents are read with what protection there is; that it is less than it could be is told loudly and once.
async fn look_at_sandbox(api: &Api) {
    match documents::protection().await {
        Ok(protection) => {
            api.health.reads_documents_under(protection);
            let missing = protection.missing().join(", ");
            if !missing.is_empty() {
                warn!(missing, help = documents::PROTECTION_HELP, "documents are read without {missing}");
            }
        }
        Err(error) => warn!(code = error.code(), "no process can be started to read documents in"),
    }
}

/// Waits for the stop signal. Whoever watches this process starts it again where its worker `ended` before: a process
/// without its worker would only look alive.
async fn until_told(stop: &CancellationToken, ended: impl Future<Output = ()>) -> Result<(), Trouble> {
    tokio::select! {
        () = stop.cancelled() => Ok(()),
        () = ended => {
            let help = "start it again; the log says what happened before";
            let sentence = "The worker has ended although nobody told it to.".to_owned();
            Err(Trouble::new(Exit::Unavailable, "worker-ended", sentence, help))
        }
    }
}

fn cannot_listen(address: SocketAddr, error: &std::io::Error) -> Trouble {
    let sentence = format!("The address {address} cannot be listened on: {}.", error.kind());
    Trouble::new(Exit::Unavailable, "listen", sentence, "choose another with --listen, or stop what uses it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_ends_with_its_worker_and_says_so() {
        let stop = CancellationToken::new();
        let ended = until_told(&stop, std::future::ready(())).await.unwrap_err();
        assert_eq!((ended.code.as_str(), ended.exit), ("worker-ended", Exit::Unavailable));
        stop.cancel();
        assert!(until_told(&stop, std::future::pending()).await.is_ok());
    }
}
