//! Tests that need a process to themselves: its rights, its memory, its one listener.

use std::process::Command;

/// Runs `work` in a process of its own, started by way of `wrapper`; `test` is the whole name of the test that
/// calls this, which the child runs again to get here.
pub(crate) fn in_a_child(wrapper: &str, test: &str, work: impl AsyncFnOnce()) {
    const MARK: &str = "MAPAE_TEST_CHILD";
    if std::env::var(MARK).is_ok_and(|mark| mark == test) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.unwrap().block_on(work());
        return;
    }
    let mut words = wrapper.split(' ');
    let mut child = Command::new(words.next().unwrap());
    child.args(words).arg(std::env::current_exe().unwrap());
    child.args(["--exact", "--test-threads=1", "--nocapture", test]).env(MARK, test);
    let output = child.output().unwrap_or_else(|error| panic!("`{wrapper}` cannot be started: {error}"));
    let printed = String::from_utf8_lossy(&output.stdout);
    // The harness says "ok" to a name that fits no test as well.
    let ran = printed.contains("1 passed");
    assert!(output.status.success() && ran, "{printed}{}", String::from_utf8_lossy(&output.stderr));
}
