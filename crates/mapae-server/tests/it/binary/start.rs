//! How the program starts, refuses to, and stops.

use super::*;

#[test]
fn an_unreachable_database_is_waited_for_alive_and_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let (_socket, database) = nobody();
    let url = format!("postgres://app:hunter2@{database}/jobs");
    let mut command = mapae(folder.path());
    command.env("MAPAE_DATABASE_URL", url).args(["serve", "--listen", "127.0.0.1:0"]);
    let mut server = Logged::start(&mut command);
    let listen = server.address();
    until("it answers", || http(&listen, "/livez").is_some_and(|(status, _)| status == 200));
    until("it says why it is not ready", || {
        let (status, text) = http(&listen, "/readyz?verbose").unwrap();
        assert_eq!(status, 503);
        text.contains("database-unavailable")
    });
    assert!(server.is_running(), "it goes on trying");
    signal(&server.child, "TERM");
    let (code, log) = server.ended();
    assert_eq!(code, 0);
    assert!(log.contains("database-unavailable") && !log.contains("hunter2"), "{log}");
}

/// Changes the database past the program.
fn in_database(folder: &Path, statement: &'static str) {
    use sqlx::{Connection, SqliteConnection};
    let url = format!("sqlite:{}", folder.join("mapae-data/mapae.db").display());
    let change = async {
        let mut connection = SqliteConnection::connect(&url).await.unwrap();
        sqlx::query(statement).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(change);
}

#[test]
fn a_database_of_a_newer_program_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    run(path, &["migrate"]).ok();
    let status: Value =
        serde_json::from_str(&run(path, &["migrate", "--status", "--output", "json"]).ok()).unwrap();
    assert_eq!(status["found"], status["known"]);
    // What a later program would leave behind.
    in_database(path, "insert into migrations (number, applied_at) values (999, 0)");
    for arguments in [&["serve", "--listen", "127.0.0.1:0"][..], &["work"], &["jobs"]] {
        let ran = run(path, arguments);
        assert_eq!((ran.code, ran.trouble().as_str()), (69, "database-newer"), "{arguments:?}");
        assert!(ran.err.contains("999"), "{}", ran.err);
    }
    let doctor = run(path, &["doctor"]);
    assert_eq!(doctor.code, 69);
    assert!(doctor.out.contains("FAILED") && doctor.out.contains("999"), "{}", doctor.out);
}

#[test]
fn the_schema_can_be_printed_before_it_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let sqlite = run(path, &["migrate", "--print"]).ok();
    assert!(sqlite.starts_with("-- migration 1\n") && sqlite.contains("create table jobs"), "{sqlite}");
    let postgres =
        output(mapae(path).env("MAPAE_DATABASE_URL", "postgres://x@nowhere/x").args(["migrate", "--print"]));
    assert!(postgres.ok().contains("create table mapae.jobs"));
    assert!(!path.join("mapae-data").exists(), "nothing was touched");
}

#[test]
fn doctor_finds_a_healthy_set_up_healthy() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), &["migrate"]).ok();
    let out = run(folder.path(), &["doctor", "--output", "json"]).ok();
    let findings: Vec<Value> = serde_json::from_str(&out).unwrap();
    for check in ["configuration", "timing", "database", "clock", "schema", "files", "broker"] {
        let finding = findings.iter().find(|finding| finding["check"] == check);
        assert_eq!(finding.unwrap()["status"], "ok", "{check}");
    }
    let more = "[kind.work]\nneeds = { gpu = 1 }\nper_owner = { concurrent = 3, rate = \"7/min\" }\n";
    std::fs::write(folder.path().join("mapae.toml"), more).unwrap();
    let out = run(folder.path(), &["doctor"]).ok();
    assert!(out.contains("gpu (needed by work)"), "{out}");
    let resources = run(folder.path(), &["resources"]).ok();
    let work = resources.lines().find(|line| line.starts_with("work"));
    assert!(work.is_some_and(|line| line.contains(" 3 ") && line.contains("7/min")), "{resources}");
}

/// The same on a kernel that lacks these system calls.
fn lacking(calls: &'static [i64], folder: &std::path::Path, arguments: &'static [&'static str]) -> Ran {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
    let folder = folder.to_owned();
    // The filter holds for the thread and what it starts.
    let thread = std::thread::spawn(move || {
        let calls = calls.iter().map(|call| (*call, Vec::new())).collect();
        let missing = SeccompAction::Errno(libc::ENOSYS as u32);
        let arch = TargetArch::try_from(std::env::consts::ARCH).unwrap();
        let filter = SeccompFilter::new(calls, SeccompAction::Allow, missing, arch).unwrap();
        let program: BpfProgram = filter.try_into().unwrap();
        seccompiler::apply_filter(&program).unwrap();
        run(&folder, arguments)
    });
    thread.join().unwrap()
}

#[test]
fn doctor_says_what_protection_a_kernel_lacks_and_documents_are_read_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), &["migrate"]).ok();
    let sandbox = |out: &str| {
        let findings: Vec<Value> = serde_json::from_str(out).unwrap();
        findings.into_iter().find(|finding| finding["check"] == "document sandbox").unwrap()
    };
    let doctor: &[&str] = &["doctor", "--output", "json"];
    let whole = sandbox(&run(folder.path(), doctor).ok());
    assert_eq!(
        (whole["status"].as_str(), whole["found"].as_str()),
        (Some("ok"), Some("landlock-files, landlock-network, seccomp"))
    );
    let calls: &[i64] = &[libc::SYS_landlock_create_ruleset, libc::SYS_seccomp];
    let bare = sandbox(&lacking(calls, folder.path(), doctor).ok());
    assert_eq!(bare["status"], "warning");
    assert!(bare["found"].as_str().unwrap().contains("without landlock-files"), "{bare}");
    workbook(folder.path(), "a.csv");
    lacking(calls, folder.path(), &["analyze", "a.csv", "--out", "out"]).ok();
}

#[test]
fn a_process_whose_files_are_not_the_databases_neither_works_nor_takes_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    workbook(path, "a.csv");
    let submit = &["submit", "document.analyze", "--file", "a.csv", "--output", "id"];
    let id = run(path, submit).ok();
    // Another machine, whose folder is another store.
    std::fs::create_dir(path.join("elsewhere")).unwrap();
    let elsewhere =
        |arguments: &[&str]| output(mapae(path).env("MAPAE_FILES_URL", "file:elsewhere").args(arguments));
    std::fs::write(path.join("elsewhere/identity"), format!("{}\n", uuid::Uuid::new_v4())).unwrap();
    for arguments in [&["work"][..], &["serve", "--listen", "127.0.0.1:0"], submit] {
        let ran = elsewhere(arguments);
        assert_eq!((ran.code, ran.trouble().as_str()), (69, "files-foreign"), "{arguments:?}");
    }
    let doctor = elsewhere(&["doctor"]);
    assert!(doctor.code == 69 && doctor.out.contains("`identity`"), "{}", doctor.out);
    // What needs no files works, and the job waits.
    let job = elsewhere(&["job", "show", id.trim(), "--output", "json"]).ok();
    assert_eq!(serde_json::from_str::<Value>(&job).unwrap()["state"], "pending", "{job}");
    // The files were moved, and with them the identity.
    for file in ["identity".to_owned(), format!("originals/{}", id.trim())] {
        std::fs::copy(path.join("mapae-data/files").join(&file), path.join("elsewhere").join(&file)).unwrap();
    }
    assert!(elsewhere(&["doctor"]).out.contains("keeps what it is given"));
    let worker = Logged::start(mapae(path).env("MAPAE_FILES_URL", "file:elsewhere").arg("work"));
    until("the moved files are worked on", || {
        run(path, &["job", "show", id.trim(), "--output", "json"]).ok().contains("succeeded")
    });
    signal(&worker.child, "TERM");
    assert_eq!(worker.ended().0, 0);
}

#[test]
fn a_wrong_configuration_tells_all_mistakes_and_starts_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    std::fs::write(path.join("mapae.toml"), "[worker]\nslots = 0\nlaese = \"1s\"\n[dashboard]\ntitle = 1\n")
        .unwrap();
    for arguments in [&["serve"][..], &["work"], &["dev"], &["config", "check"], &["jobs"]] {
        let ran = run(path, arguments);
        assert_eq!((ran.code, ran.trouble().as_str()), (2, "config-invalid"), "{arguments:?}");
        assert!(ran.err.contains("worker.lease") && ran.err.contains("not in this version"), "{}", ran.err);
    }
    assert!(!path.join("mapae-data").exists());
    std::fs::write(path.join("mapae.toml"), "[worker]\nslots = 0\ndrain = 7\n").unwrap();
    let both = run(path, &["config", "check"]);
    assert!(both.err.contains("worker.slots") && both.err.contains("worker.drain"), "{}", both.err);
    let explained =
        output(mapae(path).env("MAPAE_WORKER_SLOTS", "9").args(["config", "explain", "worker.slots"]));
    assert!(explained.ok().contains("MAPAE_WORKER_SLOTS"));
    assert_eq!(run(path, &["config", "explain", "worker.slot"]).code, 4);
}

#[test]
fn a_closed_pipe_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&["man"][..], &["completions", "bash"], &["config", "print"], &["--help"]] {
        let mut child = mapae(folder.path())
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Closed before anything was read.
        drop(child.stdout.take());
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert_eq!((ended(&mut child), err.as_str()), (0, ""), "{arguments:?}");
    }
}

#[test]
fn the_first_signal_drains_and_the_second_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    // A service that takes the call and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let file = format!("[worker]\ndrain = \"1h\"\n[handler.slow]\nurl = \"{url}\"\ntimeout = \"1h\"\n");
    std::fs::write(path.join("mapae.toml"), file).unwrap();
    let mut worker = Logged::start(mapae(path).args(["work", "--listen", "127.0.0.1:0"]));
    let listen = worker.address();
    until("the worker is ready", || http(&listen, "/readyz").is_some_and(|(status, _)| status == 200));
    let id = run(path, &["submit", "slow", "--output", "id"]).ok();
    let _called = listener.accept().unwrap();
    signal(&worker.child, "TERM");
    until("it is not ready any more", || http(&listen, "/readyz").is_some_and(|(status, _)| status == 503));
    let running = run(path, &["job", "show", id.trim(), "--output", "json"]).ok();
    assert!(running.contains("\"running\""), "the job goes on while the worker drains: {running}");
    assert!(worker.is_running());
    signal(&worker.child, "TERM");
    assert_eq!(worker.ended().0, 130);
}

#[test]
fn a_database_from_before_takes_no_folder_for_its_own_that_has_none_of_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    workbook(path, "a.csv");
    let submit = &["submit", "document.analyze", "--file", "a.csv", "--output", "id"];
    run(path, submit).ok();
    in_database(path, "delete from file_store");
    std::fs::remove_file(path.join("mapae-data/files/identity")).unwrap();
    // A disk that is not mounted yet.
    let elsewhere = || output(mapae(path).env("MAPAE_FILES_URL", "file:elsewhere").args(submit));
    let ran = elsewhere();
    assert_eq!(ran.trouble(), "files-unavailable", "{}", ran.err);
    assert!(!path.join("elsewhere/identity").exists());
    run(path, submit).ok();
    assert!(path.join("mapae-data/files/identity").exists());
    assert_eq!(elsewhere().trouble(), "files-foreign");
}
