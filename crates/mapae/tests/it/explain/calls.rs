//! Every call of a store, once.

use super::*;

async fn accepted(store: &dyn Store) -> JobId {
    store.accept(job()).await.unwrap().id
}

async fn claimed(store: &dyn Store, holder: &Holder, id: JobId) -> Holding {
    match store.claim(holder, &[(id, owner())], LONG).await.unwrap().pop() {
        Some(Claim::Run(holding)) => *holding,
        other => panic!("not claimed: {other:?}"),
    }
}

/// Calls everything once, so that every statement has been run.
pub(crate) async fn everything(store: &dyn Store) {
    let id = accepted(store).await;
    let mut keyed = job();
    keyed.idempotency = Some((IdempotencyKey::new("k").unwrap(), [0; 32]));
    store.accept(keyed.clone()).await.unwrap();
    assert!(store.submission(&owner(), &IdempotencyKey::new("k").unwrap()).await.unwrap().is_some());
    store.accept(NewJob { id: JobId::new(), ..keyed }).await.unwrap();
    let join = Join { name: "w".into(), strict: true, kinds: vec![job().kind], slots: 4 };
    let mut member = store.join(&join).await.unwrap();
    let holder = member.holder().clone();
    let plan = RingPlan { window: 1_010, least: 0, again: LONG, rescan: Some(Vec::new()), max: 10 };
    let rung = store.ring(&plan).await.unwrap();
    let pointers: Vec<_> = rung.iter().map(|rung| (rung.job, rung.hint)).collect();
    store.rung(&pointers, LONG).await.unwrap();
    store.windows(1_000).await.unwrap();
    store.withdraw(200, 10).await.unwrap();
    store.turns(1_000).await.unwrap();
    store.rung_ago(&[(lane(), 10)], LONG).await.unwrap();
    store.next_due(LONG).await.unwrap();
    let holding = claimed(store, &holder, id).await;
    store.claim(&holder, &[(JobId::new(), owner())], LONG).await.unwrap();
    store.taken(&holder, LONG).await.unwrap();
    store.claim_rung(&holder, &[LaneQuota { lane: lane(), max: 4 }], 4, LONG).await.unwrap();
    member.beat(&[(id, holding.lease.token)], LONG, &WorkerReport::default()).await.unwrap();
    store.progress(&holding.lease, &Progress { stage: "s".into(), done: 1, of: 2 }).await.unwrap();
    let output = Output::Inline(json!(1));
    let checkpoint = Checkpoint { stage: "s".into(), output: output.clone(), took: LONG };
    store.checkpoint(&holding.lease, &checkpoint).await.unwrap();
    store.checkpoints(id).await.unwrap();
    let key = BusinessKey::new("7").unwrap();
    store.correlate(&holding.lease, &key).await.unwrap();
    store.awaited(&job().kind, Some(&key), false, 10).await.unwrap();
    store.awaited(&job().kind, None, true, 10).await.unwrap();
    store.renew(&[(id, holding.lease.token)], LONG).await.unwrap();
    store.offer(&Scope::All, &[lane()], 10).await.unwrap();
    store.offer(&Scope::Owner(owner()), &[lane()], 10).await.unwrap();
    let name = ClientName::new("c").unwrap();
    store.pulls(&Puller { name, owner: None, kinds: vec![job().kind], max: 1 }).await.unwrap();
    store.lend(&holding.lease, LONG).await.unwrap();
    let settlement = Settlement { lease: holding.lease, verdict: Verdict::Succeed, output: Some(output) };
    store.settle(settlement.clone()).await.unwrap();
    store.settle(settlement.clone()).await.unwrap();
    let stolen = Lease { token: Token::random(), ..settlement.lease.clone() };
    store.progress(&stolen, &Progress { stage: "s".into(), done: 1, of: 2 }).await.unwrap_err();
    store.settle(Settlement { lease: stolen, ..settlement }).await.unwrap_err();
    let failed = accepted(store).await;
    let lease = claimed(store, &holder, failed).await.lease;
    let verdict = Verdict::Fail { failure: Failure::terminal("damaged", "The file is damaged.") };
    store.settle(Settlement { lease, verdict, output: None }).await.unwrap();
    store.assign(&Scope::All, failed, Some(&Assignee::new("ops").unwrap())).await.unwrap();
    store.redrive(&Scope::All, failed).await.unwrap();
    let cancelled = accepted(store).await;
    store.cancel(&Scope::All, cancelled).await.unwrap();
    store.cancel(&Scope::All, cancelled).await.unwrap_err();
    store.delete(&Scope::All, cancelled).await.unwrap();
    store.redrive(&Scope::All, cancelled).await.unwrap_err();
    store.reap(10).await.unwrap();
    store.expire(10).await.unwrap();
    store.prune(&Retention::default(), 10).await.unwrap();
    store.garbage(10).await.unwrap();
    store.swept(&[Garbage { file: "f".into(), since: Default::default() }]).await.unwrap();
    store.referenced(&[format!("results/{id}/1/a.json")]).await.unwrap();
    store.pause(&lane()).await.unwrap();
    store.resume(&lane()).await.unwrap();
    store.paused().await.unwrap();
    store.workers().await.unwrap();
    store.files().await.unwrap();
    store.adopt_files(Uuid::nil()).await.unwrap();
    store.stats().await.unwrap();
    let after = store.last_position().await.unwrap();
    store.events(&Scope::All, &EventFilter { job: None, after }, 9).await.unwrap();
    let found = store.job(&Scope::All, id).await.unwrap().unwrap();
    store.ahead(&found, 10).await.unwrap();
    store.output(&Scope::All, id).await.unwrap();
    for scope in [Scope::All, Scope::Owner(owner())] {
        for job in [None, Some(id)] {
            store.events(&scope, &EventFilter { job, ..EventFilter::default() }, 9).await.unwrap();
        }
        for after in [None, Some(id)] {
            let page = Page { after, limit: 9 };
            store.jobs(&scope, &JobFilter::default(), &page).await.unwrap();
            for state in State::ALL {
                let filter = JobFilter { state: Some(state), ..JobFilter::default() };
                store.jobs(&scope, &filter, &page).await.unwrap();
            }
            let kind = Some(Kind::new("test.rare").unwrap());
            for state in [None, Some(State::Pending), Some(State::Succeeded), Some(State::Failed)] {
                for text in [None, Some("nowhere".into())] {
                    let filter = JobFilter { state, kind: kind.clone(), text };
                    store.jobs(&scope, &filter, &page).await.unwrap();
                }
            }
        }
    }
    plans(store).await;
    batches(store, &holder).await;
    tells(store).await;
    labels(store).await;
    let known = KindPlan {
        kind: job().kind,
        retry: job().retry,
        singular: false,
        on: Vec::new(),
        writes: Default::default(),
    };
    store.describe(&[known]).await.unwrap();
    store.configurations().await.unwrap();
    let key = NewKey { id: "k".into(), hash: [0; 32], owner: None, scopes: vec![], lifetime: None };
    store.add_key(key).await.unwrap();
    store.key(&[0; 32]).await.unwrap().unwrap();
    store.keys().await.unwrap();
    assert!(store.revoke_key("k").await.unwrap());
    limited(store, &holder).await;
    member.leave().await.unwrap();
}

/// A batch of a client's, and one of a handler's.
async fn batches(store: &dyn Store, holder: &Holder) {
    let whole = || NewJob { run_at: Some(WAITING), ..job() };
    let parent = store.accept_batch(whole(), vec![job(), job()], false).await.unwrap().id;
    store.add_parts(&Scope::All, parent, vec![job()]).await.unwrap();
    store.seal(&Scope::Owner(owner()), parent).await.unwrap();
    store.add_parts(&Scope::All, parent, vec![job()]).await.unwrap_err();
    for scope in [Scope::All, Scope::Owner(owner())] {
        store.batch(&scope, parent).await.unwrap().unwrap();
        let members = store.members(&scope, parent, Some(0), 10).await.unwrap();
        store.batch_of(&scope, members[0].job).await.unwrap().unwrap();
    }
    store.cancel(&Scope::All, parent).await.unwrap();
    store.strays(10).await.unwrap();
    store.accept_batch(whole(), vec![], true).await.unwrap();
    assert!(store.wake(10).await.unwrap() > 0);
    let fans = accepted(store).await;
    let lease = claimed(store, holder, fans).await.lease;
    store.fan_out(&lease, vec![job()]).await.unwrap();
    store.settle(Settlement { lease: lease.clone(), verdict: Verdict::Await, output: None }).await.unwrap();
    store.fan_out(&lease, vec![job()]).await.unwrap_err();
}

/// What is asked only where something is limited.
async fn limited(store: &dyn Store, holder: &Holder) {
    let mut limits = Limits::default();
    let rate = Some(Rate::new(1_000_000, Duration::from_secs(1)));
    let limit = Limit { concurrent: Some(1_000_000), rate };
    limits.resource("ai", limit);
    limits.need(job().kind, [("ai", 1)].into_iter().collect());
    store.limit(limits.clone());
    store.shut(&Gate::Resource("other".into()), LONG).await.unwrap();
    let lanes = [LaneQuota { lane: lane(), max: 4 }];
    let plan = RingPlan { window: 2_000, least: 0, again: LONG, rescan: None, max: 10 };
    for _ in 0..8 {
        accepted(store).await;
    }
    store.ring(&plan).await.unwrap();
    let claimed = store.claim_lanes(holder, &lanes, 4, LONG, &[]).await.unwrap();
    assert!(!claimed.holdings.is_empty());
    let pointed = accepted(store).await;
    claimed_again(store, holder, pointed).await;
    limits.kind(job().kind, limit, limit);
    store.limit(limits);
    let claimed = store.claim_lanes(holder, &lanes, 4, LONG, &[]).await.unwrap();
    assert!(!claimed.holdings.is_empty());
    accepted(store).await;
    store.ring(&plan).await.unwrap();
    store.gates(Some(&owner())).await.unwrap();
}

async fn claimed_again(store: &dyn Store, holder: &Holder, id: JobId) {
    let unknown = (JobId::new(), owner());
    let answers = store.claim(holder, &[(id, owner()), unknown], LONG).await.unwrap();
    assert!(matches!(answers[0], Claim::Run(_)), "{answers:?}");
}

/// Uniqueness, what comes after a job, and schedules.
async fn plans(store: &dyn Store) {
    let unique = UniqueRule::by_params().of(&job(), None);
    let next = Next {
        kind: job().kind,
        params: json!({}),
        priority: job().priority,
        retry: job().retry,
        delay: LONG,
        on: Vec::new(),
    };
    let then = Next { on: vec![Follow { after: End::Failed, next: next.clone() }], ..next };
    let on = vec![Follow { after: End::Cancelled, next: then }];
    let sole = || NewJob { unique: unique.clone(), on: on.clone(), ..job() };
    let first = store.accept(sole()).await.unwrap().id;
    let idempotency = Some((IdempotencyKey::new("sole").unwrap(), [0; 32]));
    assert!(store.accept(NewJob { idempotency, ..sole() }).await.unwrap().duplicate);
    store.cancel(&Scope::All, first).await.unwrap();
    assert!(store.followed(&Scope::All, first).await.unwrap()[0].made.is_some());
    assert!(!store.accept(sole()).await.unwrap().duplicate);

    let name = ScheduleName::new("hourly").unwrap();
    let (at, row) = (store.now().await.unwrap(), job());
    let schedule = Schedule {
        name: name.clone(),
        owner: row.owner,
        kind: row.kind,
        cron: "0 * * * *".into(),
        zone: "UTC".into(),
        missed: Missed::One,
        next_at: Some(at),
        last: None,
        paused: false,
    };
    store.define(&[schedule]).await.unwrap();
    assert!(store.tick(&name, at, Some(at + LONG), &[(at, job())]).await.unwrap());
    store.schedules().await.unwrap();
    store.pause_schedule(&name).await.unwrap();
    store.resume_schedule(&name, None).await.unwrap();
}

/// What an owner teaches with.
async fn labels(store: &dyn Store) {
    let (set, label) = (SetName::new("post").unwrap(), LabelName::new("invoice").unwrap());
    let example = Example::new(label, "", "A bill.", false).unwrap();
    store.teach(&owner(), &set, std::slice::from_ref(&example)).await.unwrap();
    assert!(store.label_set(&owner(), &set).await.unwrap().is_some());
    assert_eq!(store.label_sets(&owner()).await.unwrap().len(), 1);
    for after in [None, Some(example.id())] {
        store.examples(&owner(), &set, after, 10).await.unwrap();
    }
    assert!(store.unteach(&owner(), &set, example.id()).await.unwrap());
    assert!(store.forget(&owner(), &set).await.unwrap());
}

/// Telling the outside, with more before one receiver than is handed out.
async fn tells(store: &dyn Store) {
    let receiver = |name: &str, kinds: &[&str]| Receiver {
        name: name.into(),
        events: vec![EventKind::Accepted],
        kinds: kinds.iter().map(|kind| (*kind).to_owned()).collect(),
    };
    let to = [receiver("a", &[]), receiver("b", &["test.*"])];
    let callback = Callback { url: "https://a.example/x".into(), events: vec![EventKind::Cancelled] };
    let called = store.accept(NewJob { callback: Some(callback), ..job() }).await.unwrap().id;
    store.cancel(&Scope::All, called).await.unwrap();
    for _ in 0..3 {
        store.spread(&to, 10).await.unwrap();
    }
    assert_eq!(store.due(&["a".into(), "b".into()]).await.unwrap().len(), 2);
    store.callers("", 10).await.unwrap();
    store.calls(&[(owner().into(), String::new())], 10).await.unwrap();
    let taken = store.take("a", 5, LONG).await.unwrap();
    let (code, mut answers) = ("receiver-silent".to_owned(), Vec::new());
    for (delivery, answer) in taken.iter().zip([
        Answer::Taken,
        Answer::Later { wait: LONG, code: code.clone() },
        Answer::Dead { code: code.clone() },
        Answer::Dead { code },
    ]) {
        answers.push(Told { id: delivery.id, token: delivery.token, answer });
    }
    assert_eq!(answers.len(), 4);
    store.told(&answers).await.unwrap();
    for scope in [Scope::All, Scope::Owner(owner())] {
        for before in [None, Some(1_000_000)] {
            store.undelivered(&scope, None, before, 10).await.unwrap();
            store.undelivered(&scope, Some("a"), before, 10).await.unwrap();
        }
    }
    assert_eq!(store.resend(&Scope::All, &[answers[2].id]).await.unwrap().len(), 1);
    assert_eq!(store.forgo(&Scope::All, &[answers[3].id]).await.unwrap().len(), 1);
    store.replay("c", &[(called, 1)]).await.unwrap();
    assert_eq!(store.give_up(Duration::ZERO, 1).await.unwrap(), 1);
    store.crowd("b", 1, 1).await.unwrap();
    store.queues(None, 1_000).await.unwrap();
    store.queues(Some(&["a".into()]), 1_000).await.unwrap();
    store.rename("a", "d", 10).await.unwrap();
}
