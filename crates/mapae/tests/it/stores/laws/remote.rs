//! Leases held outside: by a service that answers later, by a client that pulls.

use std::time::Duration;

use mapae::job::State;
use mapae::job::lease::{Holder, Lease, Token};
use mapae::job::name::{BusinessKey, ClientName};
use mapae::job::record::{NewJob, Progress};
use mapae::job::retry::{Backoff, RetryPolicy, Verdict};
use mapae::store::contract::{Beat, Claim, Puller, Scope};

use super::lost;
use crate::stores::{LEASE, beat, everywhere, job, kind, lane, owner};

fn key(text: &str) -> BusinessKey {
    BusinessKey::new(text).unwrap()
}

#[tokio::test]
async fn a_lent_lease_outlives_its_worker_and_ends_by_its_token() {
    everywhere(async |bench| {
        let id = bench.accept(job()).await;
        let mut worker = bench.join("w").await;
        let held = bench.claim(worker.holder(), id).await;
        bench.store.lend(&held.lease, 3 * LEASE).await.unwrap();
        bench.store.lend(&held.lease, 9 * LEASE).await.expect("an answer that was lost can be asked for");

        // The worker goes, another takes its name over: none of that is the service's.
        assert_eq!(beat(&mut *worker, &[], LEASE).await, []);
        drop(worker);
        let worker = bench.join("w").await;
        bench.harness.pass(2 * LEASE).await;
        assert_eq!(bench.store.reap(10).await.unwrap(), []);
        assert!(matches!(bench.try_claim(worker.holder(), id).await, Claim::Busy(_)));

        let progress = Progress { stage: "embed".into(), done: 1, of: 2 };
        bench.store.progress(&held.lease, &progress).await.unwrap();
        assert_eq!(bench.settle(&held.lease, Verdict::Succeed).await.unwrap(), State::Succeeded);
        assert_eq!(
            bench.settle(&held.lease, Verdict::Succeed).await.unwrap(),
            State::Succeeded,
            "told twice"
        );
        let told = bench.kinds_told(id).await;
        assert_eq!(told, ["accepted", "claimed", "handed-over", "succeeded"]);
        assert_eq!(bench.history(id).await[2].worker.as_deref(), Some("w"));
    })
    .await;
}

#[tokio::test]
async fn a_service_that_tells_no_end_in_time_has_failed_an_attempt() {
    everywhere(async |bench| {
        let backoff = Backoff { first: LEASE, max: LEASE };
        let id = bench.accept(NewJob { retry: RetryPolicy { attempts: 2, backoff }, ..job() }).await;
        let worker = bench.join("w").await;
        let first = bench.claim(worker.holder(), id).await;
        bench.store.lend(&first.lease, LEASE).await.unwrap();
        bench.harness.pass(LEASE).await;
        assert_eq!(bench.reaped().await, [(id, State::Pending)]);
        let found = bench.store.job(&Scope::All, id).await.unwrap().unwrap();
        let failure = found.failure.expect("why is told");
        assert_eq!((failure.code.as_str(), failure.attempt), ("completion-overdue", 1));
        assert_eq!((found.state, found.attempt), (State::Pending, 1));
        assert!(found.due_at.since(bench.store.now().await.unwrap()) <= LEASE, "it backs off");
        assert_eq!(lost(bench.settle(&first.lease, Verdict::Succeed).await), Some(State::Pending), "late");

        bench.harness.pass(LEASE).await;
        let second = bench.claim(worker.holder(), id).await;
        assert_eq!(lost(bench.settle(&first.lease, Verdict::Succeed).await), Some(State::Running), "later");
        bench.store.lend(&second.lease, LEASE).await.unwrap();
        bench.harness.pass(LEASE).await;
        bench.store.reap(10).await.unwrap();
        let found = bench.store.job(&Scope::All, id).await.unwrap().unwrap();
        assert_eq!(
            (found.state, found.failure.unwrap().code.as_str()),
            (State::Failed, "completion-overdue")
        );
        let told = bench.kinds_told(id).await;
        let all = ["accepted", "claimed", "handed-over", "retrying", "claimed", "handed-over", "failed"];
        assert_eq!(told, all);
    })
    .await;
}

#[tokio::test]
async fn only_whoever_holds_the_lease_lends_it() {
    everywhere(async |bench| {
        let id = bench.accept(job()).await;
        let worker = bench.join("w").await;
        let first = bench.claim(worker.holder(), id).await;
        bench.harness.pass(LEASE).await;
        let second = bench.claim(worker.holder(), id).await;
        let stolen = Lease { token: Token::random(), ..second.lease.clone() };
        for lease in [&first.lease, &stolen] {
            assert!(bench.store.lend(lease, 100 * LEASE).await.is_err());
            assert!(bench.store.correlate(lease, &key("7")).await.is_err());
        }
        assert_eq!(bench.store.awaited(&kind("analyze"), None, false, 10).await.unwrap(), []);
        bench.harness.pass(LEASE).await;
        assert_eq!(bench.store.reap(10).await.unwrap().len(), 1, "it ends when it would have");
        assert!(bench.store.lend(&second.lease, LEASE).await.is_err());
        assert_eq!(bench.state(id).await, State::Pending);
    })
    .await;
}

#[tokio::test]
async fn a_client_renews_what_it_pulled_and_nothing_else() {
    everywhere(async |bench| {
        let (pulled, lent) = (bench.accept(job()).await, bench.accept(job()).await);
        let client = Holder::pulling(&ClientName::new("c").unwrap());
        let (pulled, lent) = (bench.claim(&client, pulled).await, bench.claim(&client, lent).await);
        bench.store.lend(&lent.lease, LEASE).await.unwrap();
        bench.store.cancel(&Scope::All, pulled.lease.job).await.unwrap();
        let asked = [
            (pulled.lease.job, pulled.lease.token),
            (pulled.lease.job, Token::random()),
            (lent.lease.job, lent.lease.token),
        ];
        let beats = bench.store.renew(&asked, 5 * LEASE).await.unwrap();
        let renewed = |cancel_asked| Beat::Renewed { cancel_asked };
        assert_eq!(beats, [renewed(true), Beat::Lost, renewed(false)]);
        bench.harness.pass(2 * LEASE).await;
        let reaped = bench.reaped().await;
        assert_eq!(reaped, [(lent.lease.job, State::Pending)], "a service's deadline stands");
        bench.harness.pass(4 * LEASE).await;
        assert_eq!(
            bench.store.reap(10).await.unwrap().len(),
            1,
            "a client that went is reaped like any worker"
        );
        assert_eq!(bench.state(pulled.lease.job).await, State::Cancelled);
    })
    .await;
}

#[tokio::test]
async fn an_offer_is_what_a_claim_may_give_within_the_scope() {
    everywhere(async |bench| {
        let mine = bench.accept(job()).await;
        let other = bench.accept(NewJob { owner: owner("globex"), ..job() }).await;
        let later = bench.store.now().await.unwrap() + LEASE;
        bench.accept(NewJob { run_at: Some(later), ..job() }).await;
        let offer = async |scope: Scope, max| {
            let offered = bench.store.offer(&scope, &[lane()], max).await.unwrap();
            offered.into_iter().map(|(id, _)| id).collect::<Vec<_>>()
        };
        let own = Scope::Owner(owner("acme"));
        assert_eq!(offer(Scope::All, 10).await, [], "nothing has been rung");
        assert_eq!(offer(own.clone(), 10).await, [mine], "an owner does not wait behind others");
        bench.ring().await;
        let mut all = offer(Scope::All, 10).await;
        all.sort();
        assert_eq!(all, [mine, other]);
        assert_eq!(offer(Scope::All, 1).await.len(), 1);
        assert_eq!(offer(own.clone(), 10).await, [mine]);
        bench.store.pause(&lane()).await.unwrap();
        assert_eq!(offer(own.clone(), 10).await, []);
        bench.store.resume(&lane()).await.unwrap();
        bench.claim(&Holder::pulling(&ClientName::new("c").unwrap()), mine).await;
        assert_eq!(offer(own, 10).await, []);
    })
    .await;
}

#[tokio::test]
async fn a_running_job_is_found_by_its_business_key_and_the_longest_running_first() {
    everywhere(async |bench| {
        let worker = bench.join("w").await;
        let mut held = Vec::new();
        for number in ["7", "8", "7"] {
            let id = bench.accept(job()).await;
            let holding = bench.claim(worker.holder(), id).await;
            bench.store.correlate(&holding.lease, &key(number)).await.unwrap();
            bench.harness.pass(Duration::from_secs(1)).await;
            held.push(holding.lease);
        }
        let awaited = async |key: Option<&BusinessKey>, lent, max| {
            let found = bench.store.awaited(&kind("analyze"), key, lent, max).await.unwrap();
            found.into_iter().map(|found| (found.job, found.token)).collect::<Vec<_>>()
        };
        let of = |lease: &Lease| (lease.job, lease.token);
        assert_eq!(awaited(Some(&key("7")), false, 10).await, [of(&held[0]), of(&held[2])]);
        assert_eq!(awaited(Some(&key("7")), false, 1).await, [of(&held[0])]);
        assert_eq!(awaited(Some(&key("9")), false, 10).await, []);
        assert_eq!(bench.store.awaited(&kind("notify"), Some(&key("7")), false, 10).await.unwrap(), []);
        bench.store.lend(&held[1], LEASE).await.unwrap();
        assert_eq!(awaited(None, true, 10).await, [of(&held[1])]);
        bench.settle(&held[0], Verdict::Succeed).await.unwrap();
        assert_eq!(
            awaited(Some(&key("7")), false, 10).await,
            [of(&held[2])],
            "one that ended is not awaited"
        );
    })
    .await;
}

#[tokio::test]
async fn a_client_is_seen_among_the_workers_while_it_asks() {
    everywhere(async |bench| {
        let client = |owner, max| Puller {
            name: ClientName::new("c").unwrap(),
            owner,
            kinds: vec![kind("analyze")],
            max,
        };
        bench.store.pulls(&client(None, 3)).await.unwrap();
        bench.store.pulls(&client(None, 4)).await.unwrap();
        bench.store.pulls(&client(Some(owner("acme")), 1)).await.unwrap();
        let seen = bench.store.workers().await.unwrap();
        let mut slots: Vec<u32> = seen.iter().map(|row| row.slots).collect();
        slots.sort_unstable();
        assert_eq!(slots, [1, 4], "owners may use the same names");
        assert!(seen.iter().all(|row| row.holder.name == "pull:c" && row.kinds == [kind("analyze")]));
        bench.harness.pass(Puller::SEEN).await;
        assert_eq!(bench.store.workers().await.unwrap(), []);
    })
    .await;
}
