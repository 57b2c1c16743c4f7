//! How SQLite answers every statement of the store.
//!
//! It plans by the schema alone where nobody has run ANALYZE (sqlite.org/optoverview.html), and nothing of ours does: the
//! plans of a new database are those of one with a million jobs.

use super::*;

/// Tables that grow, and what statements call them.
const TABLES: [&str; 15] = [
    "deliveries",
    "jobs",
    "j",
    "r",
    "w",
    "d",
    "o",
    "x",
    "events",
    "e",
    "b",
    "results",
    "checkpoints",
    "idempotency",
    "tombstones",
];

/// Indexes that may be gone through: those whose length does not grow with the backlog or the history,
/// and the one that gives a list its order and stops at its limit.
const BOUNDED: [&str; 5] =
    ["deliveries_dead", "jobs_running", "jobs_deleted", "events_unsent", "sqlite_autoindex_jobs_1"];

#[test]
fn no_statement_reads_through_a_whole_table_that_grows() {
    let test = "sqlite::explain::no_statement_reads_through_a_whole_table_that_grows";
    in_a_child("env", test, explain_every_statement);
}

async fn explain_every_statement() {
    heard::listen();
    let folder = tempfile::tempdir().unwrap();
    let store = in_file(&folder).await;
    everything(&store).await;
    let mut connection = sqlx::SqliteConnection::connect(&url(&folder)).await.unwrap();
    let statistics = sqlx::query("select count(*) from sqlite_master where name like 'sqlite_stat%'");
    assert_eq!(statistics.fetch_one(&mut connection).await.unwrap().get::<i64, _>(0), 0);
    let mut transaction = connection.begin().await.unwrap();
    store.accept_in(&mut transaction, new_job("a")).await.unwrap();
    transaction.commit().await.unwrap();
    let mut explained = 0;
    let statements = heard::statements();
    // What stands within a trigger is no statement by itself, and what moves rows from one schema to the next runs once.
    let alone =
        statements.iter().filter(|all| !all.contains("create trigger") && !all.contains("drop index"));
    for statement in alone.flat_map(|all| all.split(';')).map(str::trim) {
        let reads =
            ["with", "select", "insert", "update", "delete"].iter().any(|verb| statement.starts_with(verb));
        if !reads {
            continue;
        }
        // Counts go through an index as far as their bound, and the statistics consist of nothing else.
        let counts = statement.contains("count(*)") && statement.matches(" limit $").count() >= 2;
        // Only where a broker holds what was rung, which its window bounds.
        let window = statement.contains("set hint = hint + 1");
        explained += 1;
        let plan = sqlx::query(sqlx::AssertSqlSafe(format!("explain query plan {statement}")))
            .fetch_all(&mut connection)
            .await
            .unwrap();
        for step in plan {
            let step: String = step.get("detail");
            let Some((table, how)) =
                step.strip_prefix("SCAN ").map(|rest| rest.split_once(' ').unwrap_or((rest, "")))
            else {
                continue;
            };
            let counted =
                counts && how.contains("INDEX jobs_") || window && how.contains("INDEX jobs_window");
            let scans =
                TABLES.contains(&table) && !counted && !BOUNDED.iter().any(|bounded| how.contains(bounded));
            assert!(!scans, "{step}\n{statement}");
        }
    }
    assert!(explained > 50, "{explained} statements: were they all seen?");
}
