//! Records written by the transaction that ends their job.

use super::*;

const SCHEMA: &str = "
    create table contexts (id text primary key, state text not null default 'PENDING', keywords jsonb, why text,
                           seen integer check (seen <> 99));
    insert into contexts (id) select n::text from generate_series(1, 9) n";

async fn writing() -> Option<Bench> {
    let bench = Bench::new().await?;
    sqlx::raw_sql(SCHEMA).execute(&mut bench.connection().await).await.unwrap();
    let writes = [
        (
            End::Succeeded,
            "update contexts set state = 'DONE', keywords = $1->'keywords', seen = ($2->>'seen')::int where id = $2->>'id'",
        ),
        (End::Failed, "update contexts set state = 'FAILED', why = $3->>'code' where id = $2->>'id'"),
        (End::Cancelled, "delete from contexts where id = $2->>'id'"),
    ];
    let writes = writes.map(|(end, text)| (end, text.to_owned())).into_iter().collect();
    bench.store.describe(&[KindPlan { writes, ..plan("context") }]).await.unwrap();
    Some(bench)
}

impl Bench {
    async fn record(&self, id: &str) -> Option<(String, Option<Value>, Option<String>)> {
        let row = sqlx::query("select state, keywords, why from contexts where id = $1").bind(id);
        let row = row.fetch_optional(&mut self.connection().await).await.unwrap()?;
        Some((row.get("state"), row.get("keywords"), row.get("why")))
    }
}

#[tokio::test]
async fn the_record_ends_with_its_job_in_one_transaction() {
    let Some(bench) = writing().await else { return };
    let done = bench.held("1").await;
    assert_eq!(bench.settle(&done, Verdict::Succeed).await.unwrap(), State::Succeeded);
    assert_eq!(bench.record("1").await, Some(("DONE".into(), Some(json!(["a", "b"])), None)));
    assert!(bench.store.output(&Scope::All, done.job).await.unwrap().is_some());
    assert_eq!(
        bench.settle(&done, Verdict::Succeed).await.unwrap(),
        State::Succeeded,
        "asked again, once written"
    );

    let again = bench.held("2").await;
    let retry = Verdict::Retry { failure: Failure::retryable("vendor", "It did not answer."), delay: LEASE };
    assert_eq!(bench.settle(&again, retry).await.unwrap(), State::Pending);
    assert_eq!(bench.record("2").await.unwrap().0, "PENDING", "not the end");
    let failed = bench.held("3").await;
    let verdict = Verdict::Fail { failure: Failure::terminal("damaged", "It is damaged.") };
    assert_eq!(bench.settle(&failed, verdict).await.unwrap(), State::Failed);
    assert_eq!(bench.record("3").await, Some(("FAILED".into(), None, Some("damaged".into()))));
    // Whoever ends it: here nobody runs it.
    bench.store.cancel(&Scope::All, again.job).await.unwrap();
    assert_eq!(bench.record("2").await, None);
    // A lease that is lost writes nothing.
    let mut stolen = bench.held("4").await;
    stolen.token = mapae::job::lease::Token::random();
    assert!(matches!(bench.settle(&stolen, Verdict::Succeed).await, Err(SettleError::LeaseLost(_))));
    assert_eq!(bench.record("4").await.unwrap().0, "PENDING");
    // Nothing of a result stays in the job's own row.
    let kept = sqlx::query("select count(*) as kept from mapae.jobs where output is not null");
    assert_eq!(kept.fetch_one(&mut bench.connection().await).await.unwrap().get::<i64, _>("kept"), 0);
}

#[tokio::test]
async fn where_no_record_was_written_the_job_is_stale_and_its_result_is_not_kept() {
    let Some(bench) = writing().await else { return };
    let gone = bench.held("gone").await;
    assert_eq!(bench.settle(&gone, Verdict::Succeed).await.unwrap(), State::Stale);
    let job = bench.store.job(&Scope::All, gone.job).await.unwrap().unwrap();
    assert_eq!((job.state, job.failure.unwrap().code.as_str()), (State::Stale, "record-gone"));
    assert!(bench.store.output(&Scope::All, gone.job).await.unwrap().is_none());
    assert_eq!(bench.told(gone.job).await, ["accepted", "claimed", "stale"]);
    let job = NewJob { deadline: Some(Timestamp::default()), ..about("gone") };
    let overdue = bench.store.accept(job).await.unwrap().id;
    assert_eq!(bench.store.expire(10).await.unwrap(), 1);
    assert_eq!(bench.told(overdue).await, ["accepted", "stale"], "told as it is");
    // Kinds that write nothing are left alone.
    bench.store.describe(&[plan("context")]).await.unwrap();
    let gone = bench.held("gone").await;
    assert_eq!(bench.settle(&gone, Verdict::Succeed).await.unwrap(), State::Succeeded);
}

#[tokio::test]
async fn a_statement_that_fails_loses_no_job_and_one_that_waits_keeps_no_other_from_settling() {
    let Some(bench) = writing().await else { return };
    sqlx::query("update mapae.kinds set writes = jsonb_set(writes, '{succeeded}', '\"update contexts set seen = 99 where id = $2->>''id''\"')")
        .execute(&mut bench.connection().await)
        .await
        .unwrap();
    let refused = bench.held("1").await;
    assert_eq!(bench.settle(&refused, Verdict::Succeed).await.unwrap(), State::Failed);
    let job = bench.store.job(&Scope::All, refused.job).await.unwrap().unwrap();
    let failure = job.failure.unwrap();
    assert_eq!((failure.code.as_str(), failure.attempt), ("write-back-failed", 1));
    assert!(failure.message.contains("23514"), "{}", failure.message);
    assert_eq!(bench.record("1").await, Some(("FAILED".into(), None, Some("write-back-failed".into()))));
    assert_eq!(bench.told(refused.job).await, ["accepted", "claimed", "failed"]);
    bench.store.redrive(&Scope::All, refused.job).await.unwrap();

    let mut other = bench.connection().await;
    let mut holding = other.begin().await.unwrap();
    sqlx::query("update contexts set state = 'MINE' where id = '3'").execute(&mut *holding).await.unwrap();
    let waits = bench.held("3").await;
    let store = bench.store.clone();
    let settlement = Settlement {
        lease: waits.clone(),
        verdict: Verdict::Fail { failure: Failure::terminal("damaged", "It is damaged.") },
        output: None,
    };
    let waiting = tokio::spawn({
        let settlement = settlement.clone();
        async move { store.settle(settlement).await }
    });
    let free = bench.held("2").await;
    let verdict = Verdict::Fail { failure: Failure::terminal("damaged", "It is damaged.") };
    assert_eq!(bench.settle(&free, verdict).await.unwrap(), State::Failed);
    let answer = waiting.await.unwrap();
    assert!(matches!(answer, Err(SettleError::Store(ref error)) if error.is_transient()), "{answer:?}");
    let job = bench.store.job(&Scope::All, waits.job).await.unwrap().unwrap();
    assert_eq!(job.state, State::Running, "nothing of it happened");
    holding.rollback().await.unwrap();
    assert_eq!(bench.store.settle(settlement).await.unwrap(), State::Failed, "asked again");
    assert_eq!(bench.record("3").await.unwrap().0, "FAILED");
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_others_have_locked_keep_no_other_job_from_settling() {
    let Some(bench) = writing().await else { return };
    let mut other = bench.connection().await;
    sqlx::raw_sql("insert into contexts (id) select n::text from generate_series(10, 60) n")
        .execute(&mut other)
        .await
        .unwrap();
    let mut holding = other.begin().await.unwrap();
    sqlx::query("update contexts set why = 'mine' where id <> '9'").execute(&mut *holding).await.unwrap();
    let settlement =
        |lease| Settlement { lease, verdict: Verdict::Succeed, output: Some(Output::Inline(json!({}))) };
    // More than all places are good for as long as anybody waits for an answer.
    let mut locked = Vec::new();
    for id in 10..60 {
        let settlement = settlement(bench.held(&id.to_string()).await);
        let store = bench.store.clone();
        locked.push(tokio::spawn(async move {
            loop {
                match store.settle(settlement.clone()).await {
                    Ok(state) => return state,
                    Err(SettleError::Store(error)) => assert!(error.is_transient(), "{error}"),
                    Err(error) => panic!("{error}"),
                }
            }
        }));
    }
    let free = settlement(bench.held("9").await);
    assert_eq!(bench.store.settle(free).await.unwrap(), State::Succeeded, "asked once");
    assert!(locked.iter().all(|one| !one.is_finished()), "while they are locked");
    holding.rollback().await.unwrap();
    for one in locked {
        assert_eq!(one.await.unwrap(), State::Succeeded, "asked again until it went well");
    }
}

#[tokio::test]
async fn an_older_configuration_takes_no_place_of_a_newer_one_that_some_process_has() {
    let Some(bench) = Bench::new().await else { return };
    let mut admin = bench.connection().await;
    let store = bench.store.clone();
    let of = |text: &str| [KindPlan { writes: [(End::Failed, text.to_owned())].into(), ..plan("context") }];
    let (old, new) = (of("select 1"), of("select 2"));
    let written = async || {
        let mut connection = bench.connection().await;
        let row = sqlx::query("select writes->>'failed' as text from mapae.kinds").fetch_one(&mut connection);
        row.await.unwrap().get::<String, _>("text")
    };
    let described = |in_force, others| Described { in_force, others };
    assert_eq!(store.describe(&old).await.unwrap(), described(true, 0));
    assert_eq!(store.describe(&new).await.unwrap(), described(true, 1));
    // A process of before that is restarted in the middle of a deploy.
    assert_eq!(store.describe(&old).await.unwrap(), described(false, 1));
    assert_eq!(written().await, "select 2");
    let known = store.configurations().await.unwrap();
    assert_eq!(known.iter().map(|one| one.in_force).collect::<Vec<_>>(), [true, false]);

    // The deploy is taken back: the last process that had the new one is gone for a while.
    let gone = "update mapae.configurations set seen_at = seen_at - $1::interval
                 where mark in (select mark from mapae.settings)";
    sqlx::query(gone).bind(Duration::from_secs(100)).execute(&mut admin).await.unwrap();
    assert_eq!(store.describe(&old).await.unwrap(), described(true, 0));
    assert_eq!(written().await, "select 1");
    assert_eq!(store.describe(&new).await.unwrap(), described(true, 1), "it is still the newer one");
    // One that nobody has had for long is new when it comes again.
    let all = "update mapae.configurations set seen_at = seen_at - $1::interval
                where mark not in (select mark from mapae.settings)";
    sqlx::query(all).bind(Duration::from_secs(700)).execute(&mut admin).await.unwrap();
    assert_eq!(store.describe(&old).await.unwrap(), described(true, 1));
    assert_eq!(written().await, "select 1");
}

#[tokio::test]
async fn a_record_that_cannot_be_written_keeps_no_other_job_from_ending() {
    let Some(bench) = writing().await else { return };
    // Asked again for ever: to the database it is a lock that somebody may let go of.
    let never = "create function never() returns trigger language plpgsql as $$
                 begin raise exception 'not now' using errcode = '55P03'; end $$;
                 create trigger never before update on contexts for each row when (old.id = '1') execute function never();";
    sqlx::raw_sql(never).execute(&mut bench.connection().await).await.unwrap();
    let other =
        |kind_name: &str| NewJob::new(Owner::new("acme").unwrap(), kind(kind_name), json!({ "id": "9" }));
    let overdue = |job| NewJob { deadline: Some(Timestamp::default()), ..job };
    let mut ids = Vec::new();
    for job in [about("1"), about("2"), other("plain")] {
        ids.push(bench.store.accept(overdue(job)).await.unwrap().id);
    }
    assert_eq!(bench.store.expire(10).await.unwrap(), 2);
    assert_eq!(bench.record("2").await.unwrap().0, "FAILED");
    let states = async |ids: &[JobId]| {
        let mut states = Vec::new();
        for id in ids {
            states.push(bench.store.job(&Scope::All, *id).await.unwrap().unwrap().state);
        }
        states
    };
    assert_eq!(states(&ids).await, [State::Pending, State::Failed, State::Failed]);

    let mut lost = Vec::new();
    for job in [about("1"), about("3"), other("plain")] {
        let job = NewJob { retry: RetryPolicy { attempts: 1, ..job.retry }, ..job };
        let id = bench.store.accept(job).await.unwrap().id;
        let claims =
            bench.store.claim(&Holder::new("w"), &[(id, Owner::new("acme").unwrap())], Duration::ZERO).await;
        assert!(matches!(claims.unwrap()[..], [Claim::Run(_)]));
        lost.push(id);
    }
    assert_eq!(bench.store.reap(10).await.unwrap().len(), 2);
    assert_eq!(states(&lost).await, [State::Running, State::Failed, State::Failed]);
}
