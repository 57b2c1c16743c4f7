//! Every pair of status and step, by table; and what no sequence of steps may break, by chance.

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::job::retry::Failure;

const NOW: Timestamp = Timestamp::from_micros(1_000_000_000);
const MINE: Token = Token(Uuid::from_u128(1));
const OTHER: Token = Token(Uuid::from_u128(2));
const NEW: Token = Token(Uuid::from_u128(3));

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn holder(incarnation: u128) -> Holder {
    Holder { name: "w".into(), incarnation: Uuid::from_u128(incarnation) }
}

fn failure() -> Failure {
    Failure::retryable("x", "")
}

/// The situations a job can be in that steps tell apart.
fn situations() -> Vec<(&'static str, Life)> {
    let ready = Life::accepted(NOW, 3, None);
    let running = |attempt, after, cancel_asked| Life {
        status: Status::Running { holder: holder(1), token: MINE, until: NOW + seconds(after), cancel_asked },
        attempt,
        epoch: 4,
        sequence: 8,
        settled_by: Some(OTHER),
        ..ready.clone()
    };
    let lent = |attempt, after, cancel_asked| Life {
        status: Status::Running {
            holder: Holder::service(),
            token: MINE,
            until: NOW + seconds(after),
            cancel_asked,
        },
        ..running(attempt, after, cancel_asked)
    };
    let ended = |end| Life {
        status: Status::Ended(end),
        attempt: 1,
        epoch: 4,
        sequence: 9,
        throttled: 2,
        snoozed: 3,
        settled_by: Some(MINE),
        ..ready.clone()
    };
    vec![
        ("ready", ready.clone()),
        ("rung", Life { status: Status::Pending { hint: 1, ring_at: NOW + seconds(9) }, ..ready.clone() }),
        ("rung long ago", Life { status: Status::Pending { hint: 1, ring_at: NOW }, ..ready.clone() }),
        (
            "put off",
            Life { attempt: 1, settled_by: Some(MINE), ..Life::accepted(NOW + seconds(60), 3, None) },
        ),
        ("waiting for its batch", Life::accepted(NOW + batch::AWAIT, 3, None)),
        ("overdue", Life::accepted(NOW, 3, Some(NOW))),
        ("running", running(1, 9, false)),
        ("running its last attempt", running(3, 9, false)),
        ("running, asked to stop", running(1, 9, true)),
        ("lent", lent(1, 9, false)),
        ("lent, asked to stop, too long", lent(1, 0, true)),
        ("lent too long", lent(1, 0, false)),
        ("lent too long in its last attempt", lent(3, 0, false)),
        ("lost", running(1, 0, false)),
        ("lost in its last attempt", running(3, 0, false)),
        ("lost, asked to stop", running(1, 0, true)),
        ("lost, overdue", Life { deadline: Some(NOW), ..running(1, 0, false) }),
        ("succeeded", ended(End::Succeeded)),
        ("failed", ended(End::Failed)),
        ("failed and deleted", Life { delete_asked: true, ..ended(End::Failed) }),
        ("cancelled", ended(End::Cancelled)),
        ("stale", ended(End::Stale)),
    ]
}

fn situation(name: &str) -> Life {
    situations().into_iter().find(|(known, _)| *known == name).expect("there is such a situation").1
}

fn steps() -> Vec<(&'static str, Step)> {
    let settle = |token, verdict| Step::Settle { token, verdict };
    let delay = seconds(7);
    vec![
        ("ring", Step::Ring { again: seconds(5) }),
        ("claim", Step::Claim { holder: holder(2), token: NEW, lease: seconds(30) }),
        ("renew", Step::Renew { token: MINE, lease: seconds(30) }),
        ("renew nothing", Step::Renew { token: MINE, lease: Duration::ZERO }),
        ("stage", Step::Stage { token: MINE }),
        ("lend", Step::Lend { token: MINE, until: seconds(60) }),
        ("succeed", settle(MINE, Verdict::Succeed)),
        ("retry", settle(MINE, Verdict::Retry { failure: failure(), delay })),
        ("throttle", settle(MINE, Verdict::Throttle { failure: failure(), delay })),
        ("snooze", settle(MINE, Verdict::Snooze { delay })),
        ("wait for its batch", settle(MINE, Verdict::Await)),
        ("fail", settle(MINE, Verdict::Fail { failure: failure() })),
        ("find gone", settle(MINE, Verdict::Stale { failure: failure() })),
        ("hand back", settle(MINE, Verdict::HandBack)),
        ("renew another's", Step::Renew { token: NEW, lease: seconds(30) }),
        ("stage another's", Step::Stage { token: NEW }),
        ("lend another's", Step::Lend { token: NEW, until: seconds(60) }),
        ("settle another's", settle(NEW, Verdict::Succeed)),
        ("settle again", settle(OTHER, Verdict::HandBack)),
        ("reap", Step::Reap { gone: false, delay }),
        ("reap the gone", Step::Reap { gone: true, delay }),
        ("vacate", Step::Vacate { name: "w".into(), incarnation: Uuid::from_u128(2) }),
        ("vacate itself", Step::Vacate { name: "w".into(), incarnation: Uuid::from_u128(1) }),
        ("vacate another", Step::Vacate { name: "v".into(), incarnation: Uuid::from_u128(2) }),
        ("expire", Step::Expire),
        ("wake", Step::Wake),
        ("cancel", Step::Cancel),
        ("delete", Step::Delete),
        ("redrive", Step::Redrive),
    ]
}

/// What a step wrote, in words: the state where it changed, every other field that did, the effects.
fn told(before: &Life, (after, effects): &(Life, Vec<Effect>)) -> String {
    let in_seconds = |at: Timestamp| format!("{:+}s", (at.micros() - NOW.micros()) / 1_000_000);
    let mut words = Vec::new();
    if before.status != after.status {
        words.push(match &after.status {
            Status::Pending { hint, ring_at } => {
                format!("pending, hint {hint}, ring {}", in_seconds(*ring_at))
            }
            Status::Running { holder, token, until, cancel_asked } => format!(
                "running{}{}{}, until {}",
                if *token == NEW { " anew" } else { "" },
                if holder.is_service() { " by the service" } else { "" },
                if *cancel_asked { ", asked to stop" } else { "" },
                in_seconds(*until)
            ),
            Status::Ended(_) => after.state().as_str().into(),
        });
    }
    let mut changed = |name: &str, was: u64, is: u64| {
        if was != is {
            words.push(format!("{name} {is}"));
        }
    };
    changed("attempt", before.attempt.into(), after.attempt.into());
    changed("epoch", before.epoch, after.epoch);
    changed("throttled", before.throttled.into(), after.throttled.into());
    changed("snoozed", before.snoozed.into(), after.snoozed.into());
    changed("redrives", before.redrives.into(), after.redrives.into());
    if before.due_at != after.due_at {
        words.push(format!("due {}", in_seconds(after.due_at)));
    }
    if before.deadline != after.deadline {
        words.push("no deadline".into());
    }
    if before.delete_asked != after.delete_asked {
        words.push("deleted".into());
    }
    let settled = before.settled_by != after.settled_by;
    assert_eq!(settled, after.settled_by == Some(MINE) && before.settled_by != Some(MINE));
    let effects = effects.iter().map(|effect| match effect {
        Effect::Event(event) => event.as_str().to_owned(),
        other => format!("{other:?}").to_lowercase(),
    });
    let effects: Vec<String> = effects.collect();
    format!(
        "{} [{}]",
        if words.is_empty() { "as it was".into() } else { words.join(", ") },
        effects.join(", ")
    )
}

fn refused(refused: &Refused) -> String {
    match refused {
        Refused::LeaseLost(state) => format!("lease lost, {}", state.as_str()),
        Refused::SettledAlready(state) => format!("settled already, {}", state.as_str()),
        Refused::Busy(_) => "busy".into(),
        Refused::NotDue(_) => "not due".into(),
        Refused::Illegal { from, .. } => format!("illegal, {}", from.as_str()),
    }
}

/// Each situation with its steps, those that come to the same in one line.
fn table() -> String {
    let mut text = String::new();
    for (situation, life) in situations() {
        life.check();
        text.push_str(&format!("\n{situation}\n"));
        let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
        for (name, step) in steps() {
            let outcome = match life.after(&step, NOW) {
                Ok(next) => told(&life, &next),
                Err(why) => format!("refused: {}", refused(&why)),
            };
            match lines.iter_mut().find(|(known, _)| *known == outcome) {
                Some((_, names)) => names.push(name),
                None => lines.push((outcome, vec![name])),
            }
        }
        for (outcome, names) in lines {
            text.push_str(&format!("    {} => {outcome}\n", names.join(", ")));
        }
    }
    text
}

#[test]
fn every_step_in_every_situation_does_what_the_table_says() {
    let table = table();
    if std::env::var_os("MAPAE_WRITE_TABLE").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/src/job/table.txt"), &table).unwrap();
    }
    for (is, should) in table.lines().zip(TABLE.lines()) {
        assert_eq!(is, should);
    }
    assert_eq!(table, TABLE);
}

#[test]
fn a_refusal_names_both_sides() {
    for (_, life) in situations() {
        for (_, step) in steps() {
            let Err(why) = life.after(&step, NOW) else { continue };
            match why {
                Refused::Illegal { from, step: named } => {
                    assert_eq!((from, named), (life.state(), step.name()));
                    let text = why.to_string();
                    assert!(text.contains(from.as_str()) && text.contains(named), "{text}");
                }
                Refused::LeaseLost(state) | Refused::SettledAlready(state) => {
                    assert_eq!(state, life.state());
                    assert!(why.to_string().contains(state.as_str()));
                }
                Refused::Busy(at) | Refused::NotDue(at) => assert!(at > NOW || step.name() == "vacate"),
            }
        }
    }
}

#[test]
fn a_settle_whose_answer_was_lost_is_answered_while_another_already_runs_the_job() {
    let claim = |token| Step::Claim { holder: holder(1), token, lease: seconds(30) };
    let retry =
        Step::Settle { token: MINE, verdict: Verdict::Retry { failure: failure(), delay: Duration::ZERO } };
    let mut life = Life::accepted(NOW, 3, None);
    for step in [claim(MINE), retry.clone(), claim(OTHER)] {
        life = life.after(&step, NOW).unwrap().0;
    }
    assert_eq!(life.after(&retry, NOW), Err(Refused::SettledAlready(State::Running)));
}

#[test]
fn a_downstream_that_is_always_busy_fails_the_job_in_the_end() {
    let mut life = Life::accepted(NOW, 1, None);
    let throttle = Step::Settle {
        token: MINE,
        verdict: Verdict::Throttle { failure: failure(), delay: Duration::ZERO },
    };
    for _ in 0..=THROTTLES_MAX {
        life =
            life.after(&Step::Claim { holder: holder(1), token: MINE, lease: seconds(30) }, NOW).unwrap().0;
        life = life.after(&throttle, NOW).unwrap().0;
    }
    assert_eq!((life.state(), life.throttled), (State::Failed, THROTTLES_MAX));
}

#[test]
fn a_handler_that_always_snoozes_fails_its_job_in_the_end() {
    let mut life = Life::accepted(NOW, 1, None);
    let snooze = Step::Settle { token: MINE, verdict: Verdict::Snooze { delay: Duration::ZERO } };
    for _ in 0..=SNOOZES_MAX {
        life =
            life.after(&Step::Claim { holder: holder(1), token: MINE, lease: seconds(30) }, NOW).unwrap().0;
        life = life.after(&snooze, NOW).unwrap().0;
    }
    assert_eq!((life.state(), life.snoozed), (State::Failed, SNOOZES_MAX));
}

#[test]
fn what_would_begin_after_the_deadline_fails_at_once() {
    let overdue_soon = Life { deadline: Some(NOW + seconds(5)), ..situation("running") };
    let delay = seconds(7);
    for verdict in [
        Verdict::Retry { failure: failure(), delay },
        Verdict::Throttle { failure: failure(), delay },
        Verdict::Snooze { delay },
    ] {
        let (next, _) = overdue_soon.after(&Step::Settle { token: MINE, verdict }, NOW).unwrap();
        assert_eq!(next.state(), State::Failed);
    }
    let (next, _) = overdue_soon.after(&Step::Reap { gone: true, delay }, NOW).unwrap();
    assert_eq!(next.state(), State::Failed);
}

#[test]
fn a_redriven_job_forgets_a_deadline_that_has_passed_and_keeps_one_that_has_not() {
    let failed = situation("failed");
    for (deadline, kept) in [(NOW, None), (NOW + seconds(1), Some(NOW + seconds(1)))] {
        let life = Life { deadline: Some(deadline), ..failed.clone() };
        assert_eq!(life.after(&Step::Redrive, NOW).unwrap().0.deadline, kept);
    }
}

/// A step by small numbers: which, whose token, and some time.
fn step_of(which: u8, token: u8, time: u64) -> Step {
    let (token, delay) = (Token(Uuid::from_u128(token.into())), seconds(time));
    let settle = |verdict| Step::Settle { token, verdict };
    match which {
        0 => Step::Ring { again: delay },
        1..=4 => Step::Claim { holder: holder(time.into()), token, lease: seconds(3) },
        5 => Step::Renew { token, lease: delay },
        6 => Step::Stage { token },
        7 => settle(Verdict::Succeed),
        8 => settle(Verdict::Retry { failure: failure(), delay }),
        9 => settle(Verdict::Throttle { failure: failure(), delay }),
        10 => settle(Verdict::Fail { failure: failure() }),
        11 => settle(Verdict::Stale { failure: failure() }),
        12 => settle(Verdict::HandBack),
        20 => settle(Verdict::Snooze { delay }),
        13 => Step::Reap { gone: time == 0, delay },
        14 => Step::Vacate { name: "w".into(), incarnation: Uuid::from_u128(time.into()) },
        15 | 16 => Step::Expire,
        17 => Step::Cancel,
        18 => Step::Delete,
        19 => Step::Lend { token, until: delay },
        21 => settle(Verdict::Await),
        22 => Step::Wake,
        _ => Step::Redrive,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_steps_breaks_the_laws(
        attempts_max in 1..4_u32,
        deadline in prop::option::of(0..20_u64),
        walk in prop::collection::vec((0..24_u8, 0..4_u8, 0..4_u64), 0..60),
    ) {
        let mut now = NOW;
        let mut life = Life::accepted(NOW, attempts_max, deadline.map(|after| NOW + seconds(after)));
        let (mut events, mut claims, mut given_back, mut ends, mut results) = (1, 0, 0, 0, 0);
        for (which, token, time) in walk {
            now = now + seconds(time);
            let step = step_of(which, token, time);
            let before = life.clone();
            let Ok((next, effects)) = before.after(&step, now) else { continue };
            life = next;

            // Events are numbered as they are told.
            events += effects.iter().filter(|effect| matches!(effect, Effect::Event(_))).count() as u64;
            prop_assert_eq!(life.sequence, events);

            // Only a claim counts an attempt; only putting off and handing back returns one.
            let started = effects.contains(&Effect::Event(EventKind::Claimed));
            claims += u32::from(started);
            let returned =
                [EventKind::Throttled, EventKind::Snoozed, EventKind::Awaiting, EventKind::Released];
            given_back += u32::from(returned.iter().any(|kind| effects.contains(&Effect::Event(*kind))));
            if step == Step::Redrive {
                (claims, given_back, ends, results) = (0, 0, 0, 0);
            }
            prop_assert_eq!(life.attempt, claims - given_back);
            prop_assert!(life.attempt <= attempts_max);

            // The epoch rises with claims and only with them.
            prop_assert_eq!(life.epoch, before.epoch + u64::from(started));

            // The running side writes only under the token that stands in the row.
            if let Step::Renew { token, .. }
            | Step::Stage { token }
            | Step::Lend { token, .. }
            | Step::Settle { token, .. } = &step
            {
                let held = matches!(&before.status, Status::Running { token: mine, .. } if mine == token);
                prop_assert!(held, "{:?} was taken in {:?}", step, before);
            }

            // A lease is taken from its holder only once it is over, or its holder is.
            if let (Status::Running { until, .. }, Step::Claim { .. }) = (&before.status, &step) {
                prop_assert!(*until <= now);
            }

            // A job ends once, with at most one result, and with its history told.
            ends += u32::from(life.state().is_terminal() && !before.state().is_terminal());
            results += u32::from(effects.contains(&Effect::Result));
            prop_assert!(ends <= 1 && results <= ends);
            prop_assert_eq!(results == 1, life.state() == State::Succeeded);
            let told_end = effects.iter().any(|e| matches!(e, Effect::Event(kind) if kind.is_terminal()));
            prop_assert_eq!(told_end, life.state().is_terminal() && !before.state().is_terminal());

            // Once deleted, deleted; once asked to stop, never succeeded.
            prop_assert!(!before.delete_asked || life.delete_asked);
            if matches!(before.status, Status::Running { cancel_asked: true, .. }) {
                prop_assert!(matches!(life.state(), State::Running | State::Cancelled));
            }
        }
    }
}

/// Read against the contract by people; a change of it is a change of the contract.
const TABLE: &str = include_str!("table.txt");
