//! How soon a job runs again whose worker is gone.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::RUNS;
use crate::http::Caller;
use crate::program::Program;
use crate::site::Database;
use crate::table::{Row, median};

/// The shortest that heartbeats allow for; what a lost host costs above it is what is measured.
const LEASE: f64 = 4.0;

pub(crate) async fn measure(database: &Database) -> Vec<Row> {
    let (url, mut calls) = service().await;
    let more = format!(
        "worker.lease = \"{LEASE}s\"\nworker.heartbeat = \"1s\"\nworker.kinds = [\"bench.*\"]\n\
         [kind.\"bench.call\"]\nattempts = 9\nbackoff = \"1ms..2ms\"\n\
         [handler.\"bench.call\"]\nurl = \"{url}\"\ntimeout = \"60s\"\n"
    );
    let (mut killed, mut restarted, mut lost) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let program = Program::serve(database, &more).await;
        let mut caller = Caller::to(&program.address, &program.key).await.unwrap();
        let mut job = async || caller.post("/v1/jobs", r#"{"kind":"bench.call"}"#).await.unwrap();

        let mut one = program.joined("one").await;
        job().await;
        calls.recv().await.unwrap();
        let mut two = program.joined("two").await;
        let began = Instant::now();
        one.kill();
        calls.recv().await.unwrap();
        killed.push(began.elapsed().as_secs_f64());

        // The one that has it comes back under its name.
        two.kill();
        let began = Instant::now();
        let two = program.worker("two");
        calls.recv().await.unwrap();
        restarted.push(began.elapsed().as_secs_f64());

        let one = program.joined("one").await;
        let began = Instant::now();
        two.freeze();
        calls.recv().await.unwrap();
        lost.push(began.elapsed().as_secs_f64());
        drop((one, two));
        program.close().await;
    }
    let row = |what: &str, found: f64, goal: &'static str, most: f64| Row {
        what: format!("{}: {what}", database.name()),
        found: format!("{found:.2} s"),
        goal,
        held: found <= most,
    };
    let lost: Vec<f64> = lost.into_iter().map(|seconds| seconds - LEASE).collect();
    vec![
        row("SIGKILL of a worker to its job running elsewhere", median(killed), "≤ 1 s", 1.0),
        row("the same, restarted under its name", median(restarted), "≤ 1 s", 1.0),
        row("a host that is gone without a word, beyond the lease", median(lost), "≤ lease + 2 s", 2.0),
    ]
}

/// A service that tells of each call and answers none.
async fn service() -> (String, mpsc::UnboundedReceiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (tell, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let tell = tell.clone();
            tokio::spawn(async move {
                let mut bytes = [0; 4096];
                // The first bytes are a call: a connection without any is one that was opened ahead.
                if stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {
                    let _ = tell.send(());
                    tokio::time::sleep(Duration::from_secs(600)).await;
                }
                let _ = stream.shutdown().await;
            });
        }
    });
    (url, told)
}
