//! Telling the outside: each receiver has its own rows, in the order of each job, until they are told or given up.

use std::time::Duration;

use mapae::job::event::EventKind;
use mapae::job::name::JobId;
use mapae::job::record::{Callback, NewJob};
use mapae::store::contract::{Answer, Crowd, Delivery, Pruned, Receiver, Scope, Told};
use uuid::Uuid;

use crate::stores::{Bench, LEASE, everywhere, job, kind, owner};

const HOLD: Duration = Duration::from_secs(60);

fn receiver(name: &str) -> Receiver {
    Receiver { name: name.into(), events: Vec::new(), kinds: Vec::new() }
}

fn later(wait: Duration) -> Answer {
    Answer::Later { wait, code: "receiver-silent".into() }
}

fn dead() -> Answer {
    Answer::Dead { code: "receiver-answered-410".into() }
}

/// What was handed out, as `job's number/sequence`.
fn shown(deliveries: &[Delivery], jobs: &[JobId]) -> Vec<(usize, u64)> {
    let place = |id| jobs.iter().position(|job| *job == id).unwrap();
    deliveries.iter().map(|delivery| (place(delivery.event.job), delivery.event.sequence)).collect()
}

impl Bench {
    /// A job whose two events are `accepted` and `cancelled`.
    async fn cancelled(&self) -> JobId {
        let id = self.accept(job()).await;
        self.store.cancel(&Scope::All, id).await.unwrap();
        id
    }

    /// Exactly so many events stand before these from now on.
    async fn spread(&self, to: &[Receiver], events: usize) {
        assert_eq!(self.store.spread(to, 1_000).await.unwrap(), events);
        assert_eq!(self.store.spread(to, 1_000).await.unwrap(), 0, "each once");
    }

    async fn take(&self, receiver: &str) -> Vec<Delivery> {
        self.store.take(receiver, 100, HOLD).await.unwrap()
    }

    async fn say(&self, delivery: &Delivery, answer: Answer) {
        let told = Told { id: delivery.id, token: delivery.token, answer };
        self.store.told(&[told]).await.unwrap();
    }
}

#[tokio::test]
async fn every_receiver_is_told_of_every_event_in_the_order_of_its_job() {
    everywhere(async |bench| {
        let jobs = [bench.cancelled().await, bench.cancelled().await];
        bench.spread(&[receiver("a"), receiver("b")], 4).await;

        let first = bench.take("a").await;
        assert_eq!(shown(&first, &jobs), [(0, 1), (1, 1)]);
        assert_eq!(first[0].event.event, EventKind::Accepted);
        assert!(bench.take("a").await.is_empty(), "the second waits for the first, which is being told");
        assert_eq!(shown(&bench.take("b").await, &jobs), [(0, 1), (1, 1)], "nobody waits for another");
        bench.say(&first[1], Answer::Taken).await;
        let second = bench.take("a").await;
        assert_eq!(shown(&second, &jobs), [(1, 2)]);
        assert_eq!(second[0].event.event, EventKind::Cancelled);
        bench.say(&second[0], Answer::Taken).await;
        bench.say(&first[0], Answer::Taken).await;
        let last = bench.take("a").await;
        assert_eq!(shown(&last, &jobs), [(0, 2)]);
        bench.say(&last[0], Answer::Taken).await;
        assert!(bench.take("a").await.is_empty());
        let queues = bench.store.queues(None, 100).await.unwrap();
        assert_eq!(
            queues.iter().map(|queue| (&*queue.receiver, queue.waiting)).collect::<Vec<_>>(),
            [("b", 4)]
        );
    })
    .await;
}

#[tokio::test]
async fn what_nobody_has_been_told_of_is_counted_until_it_stands_before_somebody() {
    everywhere(async |bench| {
        bench.cancelled().await;
        assert_eq!(bench.store.stats().await.unwrap().outbox, 2);
        bench.spread(&[receiver("a")], 2).await;
        assert_eq!(bench.store.stats().await.unwrap().outbox, 0);
    })
    .await;
}

#[tokio::test]
async fn an_event_is_told_even_when_its_job_is_gone_before() {
    everywhere(async |bench| {
        let id = bench.accept(job()).await;
        bench.store.delete(&Scope::All, id).await.unwrap();
        assert_eq!(bench.prune(1000 * LEASE).await, Pruned { buried: 1, expired: 0 });
        bench.spread(&[receiver("a")], 2).await;
        let mut told = Vec::new();
        while let Some(delivery) = bench.take("a").await.pop() {
            told.push(delivery.event.event);
            bench.say(&delivery, Answer::Taken).await;
        }
        assert_eq!(told, [EventKind::Accepted, EventKind::Cancelled]);
    })
    .await;
}

#[tokio::test]
async fn what_was_taken_comes_back_after_its_hold_and_then_only_its_new_taker_may_say_what_came_of_it() {
    everywhere(async |bench| {
        bench.cancelled().await;
        bench.spread(&[receiver("a")], 2).await;
        let lost = bench.take("a").await;
        bench.harness.pass(HOLD).await;
        let again = bench.take("a").await;
        assert_eq!((again.len(), again[0].tries, again[0].id), (1, 2, lost[0].id));
        for answer in [Answer::Taken, dead(), later(LEASE)] {
            bench.say(&lost[0], answer).await;
        }
        assert!(bench.take("a").await.is_empty(), "nothing was let go of");
        let stranger = Told { id: again[0].id, token: Uuid::new_v4(), answer: Answer::Taken };
        bench.store.told(&[stranger]).await.unwrap();
        bench.say(&again[0], later(Duration::ZERO)).await;
        assert_eq!(bench.take("a").await[0].event.sequence, 1, "put off, and not lost");
    })
    .await;
}

#[tokio::test]
async fn what_is_put_off_keeps_back_the_rest_of_its_job_and_of_no_other() {
    everywhere(async |bench| {
        let jobs = [bench.cancelled().await, bench.cancelled().await];
        bench.spread(&[receiver("a")], 4).await;
        let first = bench.take("a").await;
        bench.say(&first[0], later(LEASE)).await;
        bench.say(&first[1], Answer::Taken).await;
        assert_eq!(shown(&bench.take("a").await, &jobs), [(1, 2)]);
        bench.harness.pass(LEASE + HOLD).await;
        let due = bench.take("a").await;
        assert_eq!(shown(&due, &jobs), [(0, 1), (1, 2)]);
        assert_eq!(due[0].tries, 2);
        assert!(due[0].age >= LEASE);
    })
    .await;
}

#[tokio::test]
async fn what_is_given_up_waits_for_a_person_and_the_rest_of_its_job_goes_on() {
    everywhere(async |bench| {
        let jobs = [bench.cancelled().await];
        bench.spread(&[receiver("a"), receiver("b")], 2).await;
        let first = bench.take("a").await;
        bench.say(&first[0], dead()).await;
        let second = bench.take("a").await;
        assert_eq!(shown(&second, &jobs), [(0, 2)]);
        bench.say(&second[0], dead()).await;

        let all = Scope::All;
        let listed = bench.store.undelivered(&all, Some("a"), None, 9).await.unwrap();
        assert_eq!(listed.iter().map(|one| one.sequence).collect::<Vec<_>>(), [2, 1]);
        let one = &listed[1];
        assert_eq!((one.receiver.as_str(), one.code.as_str(), one.tries), ("a", "receiver-answered-410", 1));
        assert_eq!(bench.store.undelivered(&all, None, Some(listed[0].id), 9).await.unwrap(), listed[1..]);
        assert!(bench.store.undelivered(&all, Some("b"), None, 9).await.unwrap().is_empty());

        let ids: Vec<u64> = listed.iter().map(|one| one.id).collect();
        assert_eq!(bench.store.resend(&all, &[ids[1]]).await.unwrap(), [ids[1]]);
        assert!(bench.store.resend(&all, &[ids[1]]).await.unwrap().is_empty(), "it is not dead any more");
        assert!(bench.store.forgo(&all, &[ids[1]]).await.unwrap().is_empty());
        let again = bench.take("a").await;
        assert_eq!((shown(&again, &jobs), again[0].tries), (vec![(0, 1)], 1), "as new");
        assert_eq!(bench.store.forgo(&all, &[ids[0], 999_999]).await.unwrap(), [ids[0]]);
        assert!(bench.store.undelivered(&all, None, None, 9).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn an_owner_sees_and_moves_what_was_given_up_of_its_own_callbacks_only() {
    everywhere(async |bench| {
        let callback = Callback { url: "https://a.example/".into(), events: vec![EventKind::Cancelled] };
        let called = bench.accept(NewJob { callback: Some(callback), ..job() }).await;
        bench.store.cancel(&Scope::All, called).await.unwrap();
        bench.spread(&[receiver("audit")], 2).await;
        for line in ["audit", "acme https://a.example"] {
            bench.say(&bench.take(line).await[0], dead()).await;
        }
        let all = bench.store.undelivered(&Scope::All, None, None, 9).await.unwrap();
        let ids: Vec<u64> = all.iter().map(|one| one.id).collect();
        assert_eq!(ids.len(), 2);
        let (acme, other) = (Scope::Owner(owner("acme")), Scope::Owner(owner("other")));
        for scope in [&acme, &other] {
            let seen = bench.store.undelivered(scope, None, None, 9).await.unwrap();
            let own: Vec<u64> = seen.iter().map(|one| one.id).collect();
            assert!(seen.iter().all(|one| one.receiver == "acme https://a.example"));
            assert_eq!(own.len(), usize::from(scope == &acme));
            assert_eq!(bench.store.resend(scope, &ids).await.unwrap(), own);
        }
        bench.say(&bench.take("acme https://a.example").await[0], dead()).await;
        assert!(bench.store.forgo(&other, &ids).await.unwrap().is_empty());
        assert_eq!(bench.store.forgo(&acme, &ids).await.unwrap().len(), 1);
        assert_eq!(bench.store.undelivered(&Scope::All, None, None, 9).await.unwrap()[0].receiver, "audit");
    })
    .await;
}

#[tokio::test]
async fn a_receiver_is_told_of_what_it_wants_and_a_callback_of_its_own_job() {
    everywhere(async |bench| {
        let to = [
            Receiver { events: vec![EventKind::Cancelled], ..receiver("ends") },
            Receiver { kinds: vec!["mail.*".into(), "analyze".into()], ..receiver("kinds") },
            Receiver { kinds: vec!["analyz".into(), "other*".into()], ..receiver("none") },
        ];
        let callback = Callback {
            url: "https://Hooks.example:8443/jobs?k=1".into(),
            events: vec![EventKind::Cancelled],
        };
        let called = bench.accept(NewJob { callback: Some(callback.clone()), ..job() }).await;
        bench.store.cancel(&Scope::All, called).await.unwrap();
        let mail = NewJob { kind: kind("mail.send"), ..job() };
        let jobs = [called, bench.accept(mail).await];
        bench.spread(&to, 3).await;
        let lines: Vec<String> =
            bench.store.queues(None, 9).await.unwrap().into_iter().map(|queue| queue.receiver).collect();
        assert_eq!(lines, ["acme https://hooks.example:8443", "ends", "kinds"]);
        let told = bench.take("acme https://hooks.example:8443").await;
        assert_eq!((shown(&told, &jobs), &told[0].url), (vec![(0, 2)], &Some(callback.url)));
        assert_eq!(shown(&bench.take("ends").await, &jobs), [(0, 2)]);
        assert_eq!(shown(&bench.take("kinds").await, &jobs), [(0, 1), (1, 1)]);
    })
    .await;
}

#[tokio::test]
async fn what_is_told_outlives_its_job_and_no_job_goes_before_its_callback_is_told_of_its_end() {
    everywhere(async |bench| {
        let plain = bench.accept(job()).await;
        let callback = Callback { url: "https://a.example/".into(), events: vec![EventKind::Cancelled] };
        let called = bench.accept(NewJob { callback: Some(callback), ..job() }).await;
        for id in [plain, called] {
            bench.store.delete(&Scope::All, id).await.unwrap();
        }
        assert_eq!(bench.prune(1000 * LEASE).await, Pruned { buried: 1, expired: 0 });
        bench.spread(&[receiver("a")], 4).await;
        assert_eq!(bench.prune(1000 * LEASE).await, Pruned { buried: 1, expired: 0 });
        assert_eq!(bench.take("acme https://a.example").await[0].event.event, EventKind::Cancelled);
        assert_eq!(shown(&bench.take("a").await, &[plain, called]), [(0, 1), (1, 1)]);
        bench.spread(&[receiver("a")], 0).await;
    })
    .await;
}

#[tokio::test]
async fn events_are_replayed_to_one_receiver_however_often_they_were_told() {
    everywhere(async |bench| {
        let jobs = [bench.cancelled().await];
        let (both, to) = ([(jobs[0], 1), (jobs[0], 2)], [receiver("a"), receiver("b")]);
        bench.spread(&to, 2).await;
        let told = bench.take("a").await;
        bench.say(&told[0], Answer::Taken).await;
        assert_eq!(bench.store.replay("a", &both).await.unwrap(), 1, "the other still stands there");
        assert_eq!(shown(&bench.take("a").await, &jobs), [(0, 1)]);
        let told = bench.take("b").await;
        bench.say(&told[0], dead()).await;
        assert_eq!(bench.store.replay("b", &both).await.unwrap(), 1, "given up, it is not dead any more");
        assert!(bench.store.undelivered(&Scope::All, None, None, 9).await.unwrap().is_empty());
        assert_eq!(bench.store.replay("b", &[(JobId::new(), 1), (jobs[0], 9)]).await.unwrap(), 0);
    })
    .await;
}

#[tokio::test]
async fn what_stands_there_is_given_up_when_its_time_is_over_and_only_then_forgotten() {
    everywhere(async |bench| {
        let jobs = [bench.cancelled().await];
        let standing = async || {
            let queues = bench.store.queues(None, 9).await.unwrap();
            queues.first().map(|queue| (queue.waiting, queue.dead)).unwrap_or_default()
        };
        bench.spread(&[receiver("gone")], 2).await;
        bench.harness.pass(10 * LEASE).await;
        bench.prune(5 * LEASE).await;
        assert_eq!(standing().await, (2, 0), "what may yet be told is not forgotten");
        assert_eq!(bench.store.give_up(20 * LEASE, 9).await.unwrap(), 0);
        let being_told = bench.take("gone").await;
        assert_eq!(shown(&being_told, &jobs), [(0, 1)]);
        assert_eq!(bench.store.give_up(10 * LEASE, 9).await.unwrap(), 1, "not what is being told");
        bench.harness.pass(HOLD).await;
        assert_eq!(bench.store.give_up(10 * LEASE, 9).await.unwrap(), 1, "its taker is gone");
        bench.say(&being_told[0], Answer::Taken).await;
        assert_eq!(standing().await, (0, 2), "and says nothing any more");
        let listed = bench.store.undelivered(&Scope::All, None, None, 9).await.unwrap();
        assert!(listed.iter().all(|one| one.code == "receiver-behind"), "{listed:?}");
        bench.prune(5 * LEASE).await;
        assert_eq!(standing().await, (0, 2), "it waits for a person as long as a dead letter");
        bench.harness.pass(10 * LEASE).await;
        bench.prune(5 * LEASE).await;
        assert_eq!(standing().await, (0, 0));
    })
    .await;
}

#[tokio::test]
async fn what_is_too_much_for_a_receiver_is_given_up_and_then_forgotten_from_the_oldest_on() {
    everywhere(async |bench| {
        let mut jobs = Vec::new();
        for _ in 0..5 {
            jobs.push(bench.cancelled().await);
        }
        bench.spread(&[receiver("a"), receiver("b")], 10).await;
        let crowd = |given_up, forgotten| Crowd { given_up, forgotten };
        assert_eq!(bench.store.crowd("a", 10, 100).await.unwrap(), crowd(0, 0));
        assert_eq!(bench.store.crowd("a", 4, 2).await.unwrap(), crowd(2, 0), "some at a time");
        assert_eq!(bench.store.crowd("a", 4, 100).await.unwrap(), crowd(4, 2));
        assert_eq!(bench.store.crowd("a", 4, 100).await.unwrap(), crowd(0, 0));
        let left = bench.take("a").await;
        assert_eq!(shown(&left, &jobs), [(3, 1), (4, 1)], "the last are left");
        let dead = bench.store.undelivered(&Scope::All, Some("a"), None, 9).await.unwrap();
        assert_eq!(dead.iter().map(|one| one.job).collect::<Vec<_>>(), [jobs[2], jobs[2], jobs[1], jobs[1]]);
        assert_eq!(bench.store.queues(None, 100).await.unwrap()[1].waiting, 10, "another's is another's");
    })
    .await;
}

#[tokio::test]
async fn a_receiver_under_a_new_name_is_told_what_stood_before_the_old_one_and_nothing_twice() {
    everywhere(async |bench| {
        let jobs = [bench.cancelled().await, bench.cancelled().await];
        bench.spread(&[receiver("old")], 4).await;
        let told = bench.take("old").await;
        assert_eq!(bench.store.replay("new", &[(jobs[1], 2)]).await.unwrap(), 1);
        let mut moved = 0;
        loop {
            match bench.store.rename("old", "new", 3).await.unwrap() {
                0 => break,
                some => moved += some,
            }
        }
        assert_eq!(moved, 4);
        let names = ["old".to_owned(), "new".to_owned()];
        let waiting = async || {
            let mut queues = bench.store.queues(Some(&names), 9).await.unwrap();
            queues.sort_by(|one, other| other.receiver.cmp(&one.receiver));
            queues.into_iter().map(|queue| queue.waiting).collect::<Vec<_>>()
        };
        assert_eq!(waiting().await, [0, 4]);
        bench.say(&told[0], Answer::Taken).await;
        assert_eq!(waiting().await, [0, 3], "who was telling it may say what came of it");
        assert_eq!(shown(&bench.take("new").await, &jobs), [(0, 2)]);
    })
    .await;
}

#[tokio::test]
async fn callbacks_stand_in_lines_of_their_owners() {
    everywhere(async |bench| {
        let called = |name: &str, url: &str| {
            let callback = Callback { url: url.into(), events: vec![EventKind::Accepted] };
            NewJob { owner: owner(name), callback: Some(callback), ..job() }
        };
        for (name, url) in [
            ("acme", "https://a.example/1"),
            ("acme", "https://b.example/"),
            ("acme", "https://c.example/"),
            ("zoo", "https://a.example/2"),
        ] {
            bench.accept(called(name, url)).await;
        }
        bench.spread(&[receiver("a")], 4).await;
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(bench.store.due(&names(&["a", "b"])).await.unwrap(), ["a"]);
        assert_eq!(bench.store.callers("", 9).await.unwrap(), ["acme", "zoo"]);
        assert_eq!(bench.store.callers("", 1).await.unwrap(), ["acme"]);
        assert_eq!(bench.store.callers("acme", 9).await.unwrap(), ["zoo"]);

        let taken = bench.take("acme https://a.example").await;
        assert_eq!(taken.len(), 1, "another owner's at the same host is not in it");
        let calls = async |after: &str, each| {
            let asked = [("zoo".to_owned(), String::new()), ("acme".to_owned(), after.to_owned())];
            let calls = bench.store.calls(&asked, each).await.unwrap();
            calls.into_iter().map(|call| (call.line, call.due)).collect::<Vec<_>>()
        };
        let zoo = ("zoo https://a.example".to_owned(), true);
        let line = |host: &str, due| (format!("acme https://{host}.example"), due);
        assert_eq!(calls("", 2).await, [zoo.clone(), line("a", false), line("b", true)]);
        assert_eq!(calls(&line("b", true).0, 2).await, [zoo.clone(), line("c", true)]);
        bench.say(&taken[0], Answer::Taken).await;
        assert_eq!(calls("", 9).await, [zoo, line("b", true), line("c", true)]);
    })
    .await;
}

#[tokio::test]
async fn many_keepers_at_once_hand_each_event_to_one_and_keep_the_order() {
    everywhere(async |bench| {
        for _ in 0..20 {
            bench.cancelled().await;
        }
        let keepers: Vec<_> = (0..6)
            .map(|_| {
                let store = bench.store.clone();
                tokio::spawn(async move {
                    let mut told = Vec::new();
                    for _ in 0..10_000 {
                        store.spread(&[receiver("a")], 7).await.unwrap();
                        let taken = store.take("a", 3, HOLD).await.unwrap();
                        let answers: Vec<Told> = taken
                            .iter()
                            .map(|one| Told { id: one.id, token: one.token, answer: Answer::Taken })
                            .collect();
                        told.extend(taken.into_iter().map(|one| (one.event.job, one.event.sequence)));
                        store.told(&answers).await.unwrap();
                        let waits = store.queues(None, 1).await.unwrap();
                        if waits.is_empty() && store.spread(&[receiver("a")], 7).await.unwrap() == 0 {
                            break;
                        }
                    }
                    told
                })
            })
            .collect();
        let mut told = Vec::new();
        for keeper in keepers {
            let one = keeper.await.unwrap();
            let mut last = std::collections::HashMap::new();
            for (job, sequence) in &one {
                assert!(last.insert(*job, *sequence).is_none_or(|before| before < *sequence));
            }
            told.extend(one);
        }
        let count = told.len();
        told.sort_unstable();
        told.dedup();
        assert_eq!((told.len(), count), (40, 40), "each once");
    })
    .await;
}
