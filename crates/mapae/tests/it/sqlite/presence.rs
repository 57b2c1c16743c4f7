//! Processes beside each other on one file: who is there, and who is gone.

use super::*;

/// A process of its own: this test binary, told by its environment what to do in `as_another_process`.
struct Process {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Process {
    fn start(what: &str, url: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sqlite::presence::as_another_process", "--nocapture"])
            .env("MAPAE_TEST_PROCESS", format!("{what} {url}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// What it says next.
    fn hear(&mut self) -> String {
        loop {
            let line = self.lines.next().unwrap().unwrap();
            if let Some((_, said)) = line.split_once("says: ") {
                return said.into();
            }
        }
    }

    /// SIGKILL.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn as_another_process() {
    let Ok(told) = std::env::var("MAPAE_TEST_PROCESS") else { return };
    let (what, url) = told.split_once(' ').unwrap();
    let say = |what: &dyn std::fmt::Display| {
        writeln!(std::io::stdout(), "says: {what}").unwrap();
    };
    let store = Sqlite::open(url, true).await.unwrap();
    match what {
        "work" => {
            let member = store.join(&join_as("w")).await.unwrap();
            let holdings = store.claim_rung(member.holder(), &quota(1), 1, LONG).await.unwrap();
            say(&holdings[0].job.id);
            std::future::pending::<()>().await;
        }
        "accept" => loop {
            say(&store.accept(new_job("a")).await.unwrap().id);
        },
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn the_job_of_a_killed_worker_is_free_at_once_whatever_its_lease() {
    let folder = tempfile::tempdir().unwrap();
    let store = in_file(&folder).await;
    let (id, _) = accepted(&store, new_job("a")).await;
    store.ring(&plan()).await.unwrap();
    let mut worker = Process::start("work", &url(&folder));
    assert_eq!(worker.hear(), id.to_string());
    assert_eq!(store.reap(10).await.unwrap(), [], "it lives");
    assert!(
        matches!(store.join(&join_as("w")).await, Err(JoinError::NameTaken(name)) if name == "w"),
        "and has its name"
    );
    worker.kill();
    assert_eq!(store.reap(10).await.unwrap().len(), 1);
    assert_eq!(state(&store, id).await, State::Pending);
    let successor = store.join(&join_as("w")).await.unwrap();
    assert_eq!(successor.holder().name, "w");
}

#[tokio::test]
async fn whoever_takes_a_name_over_ends_the_leases_of_its_earlier_life() {
    let folder = tempfile::tempdir().unwrap();
    let store = in_file(&folder).await;
    let pointer = accepted(&store, new_job("a")).await;
    store.ring(&plan()).await.unwrap();
    let mut worker = Process::start("work", &url(&folder));
    worker.hear();
    worker.kill();
    let successor = store.join(&join_as("w")).await.unwrap();
    let again = claimed(&store, successor.holder(), &pointer, LONG).await;
    assert_eq!((again.job.attempt, again.lease.epoch), (2, 2));
}

#[tokio::test]
async fn whoever_takes_a_name_takes_no_lease_of_a_life_that_is_still_there() {
    let folder = tempfile::tempdir().unwrap();
    let store = in_file(&folder).await;
    let pointer = accepted(&store, new_job("a")).await;
    let former = store.join(&join_as("w")).await.unwrap();
    let held = claimed(&store, former.holder(), &pointer, LONG).await;
    for file in std::fs::read_dir(folder.path().join("new/jobs.db.presence")).unwrap() {
        let path = file.unwrap().path();
        if path.file_name().unwrap().to_str().unwrap().starts_with("name-") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let latter = store.join(&join_as("w")).await.unwrap();
    let answers = store.claim(latter.holder(), &[pointer], LONG).await.unwrap();
    assert_eq!(answers, [Claim::Busy(held.lease.until)]);
}

#[tokio::test]
async fn what_a_killed_process_was_answered_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let store = in_file(&folder).await;
    let mut process = Process::start("accept", &url(&folder));
    let answered: Vec<JobId> = (0..20).map(|_| process.hear().parse().unwrap()).collect();
    process.kill();
    for id in answered {
        assert_eq!(state(&store, id).await, State::Pending);
    }
}

#[tokio::test]
async fn a_dropped_member_is_gone_and_one_that_lives_is_not() {
    let folder = tempfile::tempdir().unwrap();
    for store in [in_memory().await, in_file(&folder).await] {
        let (one, other) = (accepted(&store, new_job("a")).await, accepted(&store, new_job("a")).await);
        let gone = store.join(&join_as("gone")).await.unwrap();
        let mut lives = store.join(&Join { strict: false, ..join_as("gone") }).await.unwrap();
        assert_eq!(lives.holder().name, "gone-2");
        claimed(&store, gone.holder(), &one, LONG).await;
        let kept = claimed(&store, lives.holder(), &other, LONG).await;
        drop(gone);
        let reaped: Vec<JobId> = store.reap(10).await.unwrap().into_iter().map(|reaped| reaped.job).collect();
        assert_eq!(reaped, [one.0]);
        let beats = lives.beat(&[(other.0, kept.lease.token)], LONG, &WorkerReport::default()).await.unwrap();
        assert_eq!(beats, [Beat::Renewed { cancel_asked: false }]);
        assert_eq!(store.workers().await.unwrap().len(), 2);
        lives.leave().await.unwrap();
        assert_eq!(store.workers().await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_heartbeat_gets_through_beside_a_writer_that_never_rests() {
    let folder = tempfile::tempdir().unwrap();
    let store = in_file(&folder).await;
    let mut member = store.join(&join_as("w")).await.unwrap();
    let beats = async {
        for _ in 0..20 {
            member.beat(&[], LONG, &WorkerReport::default()).await.unwrap();
        }
    };
    let never = join_all((0..20).map(|_| async {
        loop {
            store.accept(new_job("a")).await.unwrap();
        }
    }));
    tokio::select! {
        () = beats => {}
        _ = never => unreachable!(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_another_process_holds_for_a_moment_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    in_file(&folder).await.close().await;
    // As whoever closes a file last does, to move its log into it.
    let mut other = sqlx::SqliteConnection::connect(&url(&folder)).await.unwrap();
    sqlx::raw_sql("pragma locking_mode = exclusive; begin exclusive; commit")
        .execute(&mut other)
        .await
        .unwrap();

    let store = Sqlite::open(&url(&folder), true).await.unwrap();
    let accepting = tokio::spawn(async move { store.accept(new_job("a")).await });
    // Time enough to meet it.
    tokio::time::sleep(Duration::from_millis(300)).await;
    other.close().await.unwrap();
    assert!(accepting.await.unwrap().is_ok());
}

#[tokio::test]
async fn a_presence_that_was_taken_away_is_taken_up_again_by_the_next_beat() {
    let folder = tempfile::tempdir().unwrap();
    let store = in_file(&folder).await;
    let pointer = accepted(&store, new_job("a")).await;
    let mut member = store.join(&join_as("w")).await.unwrap();
    let holding = claimed(&store, member.holder(), &pointer, LONG).await;
    std::fs::remove_dir_all(folder.path().join("new/jobs.db.presence")).unwrap();
    member.beat(&[(pointer.0, holding.lease.token)], LONG, &WorkerReport::default()).await.unwrap();
    assert_eq!(store.reap(10).await.unwrap(), []);
    assert!(matches!(store.join(&join_as("w")).await, Err(JoinError::NameTaken(_))));
}
