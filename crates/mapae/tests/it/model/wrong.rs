//! The same protocol with one thing done wrongly, each as somebody has done it before, and what comes
//! of it: a law that breaks, a job that is stuck for ever, or, shown over all states, nothing.

use super::law::{Flaw, Law, fault};
use super::system::Plan;
use super::{WITHOUT_KEEPER, WORLD};

pub(super) struct Variant {
    pub(super) name: &'static str,
    pub(super) plan: Plan,
    comes: Comes,
}

#[derive(Clone, Copy)]
enum Comes {
    Breaks(Law),
    Stuck,
    NoHarm,
}

use Comes::{Breaks, NoHarm, Stuck};

impl Variant {
    pub(super) fn outcome(&self) -> String {
        match self.comes {
            Breaks(law) => format!("breaks {law:?}"),
            Stuck => "stuck".into(),
            NoHarm => "no harm".into(),
        }
    }
}

const NO_KEEPER: Plan = Plan { keeper: false, rescan: false, faults: WITHOUT_KEEPER, ..WORLD };
const NO_RESCAN: Plan = Plan { rescan: false, ..WORLD };

pub(super) fn variants() -> Vec<Variant> {
    let mut all = Vec::new();
    let mut add = |name, flaws, plan: Plan, comes| {
        let watched = if let Breaks(law) = comes { Some(law) } else { None };
        all.push(Variant { name, plan: Plan { flaws, watched, ..plan }, comes });
    };

    // Acknowledging too much, with the pending list as the only net.
    add("own busy pointer acknowledged at boot", &[Flaw::BusyAcked, Flaw::NoVacate], NO_KEEPER, Stuck);
    add("busy pointer acknowledged", &[Flaw::BusyAcked], Plan { budget: 3, ..NO_KEEPER }, Stuck);
    add("acknowledged though fenced out", &[Flaw::AckWhenFenced], Plan { budget: 3, ..NO_KEEPER }, Stuck);
    add("acknowledged first", &[Flaw::AckFirst], NO_KEEPER, Stuck);
    add("acknowledged at the claim, no keeper", &[], Plan { at_claim: true, ..NO_KEEPER }, Stuck);
    add("no answer taken for done", &[Flaw::UnknownIsDone], NO_KEEPER, Stuck);
    // The same with a keeper: recovered from the rows.
    add("busy pointer acknowledged, with a keeper", &[Flaw::BusyAcked, Flaw::NoVacate], WORLD, NoHarm);
    add("acknowledged though fenced out, with a keeper", &[Flaw::AckWhenFenced], WORLD, NoHarm);
    add("acknowledged first, with a keeper", &[Flaw::AckFirst], WORLD, NoHarm);
    add("no answer taken for done, with a keeper", &[Flaw::UnknownIsDone], WORLD, NoHarm);
    add("repeated settle acknowledged while the job runs again", &[Flaw::AckWhileRunning], WORLD, NoHarm);

    // Nobody to wake, nobody to ring again.
    let retried = Plan { faults: fault::RETRY, ..NO_KEEPER };
    add("a retry that nobody wakes", &[], retried, Stuck);
    add("a broker's loss without rescan", &[], Plan { faults: fault::WIPE_BROKER, ..NO_RESCAN }, Stuck);
    add("a lost pointer without rescan", &[], Plan { faults: fault::LOSE_POINTER, ..NO_RESCAN }, Stuck);
    add("published before the commit, no rescan", &[Flaw::PublishBeforeCommit], NO_RESCAN_QUIET, Stuck);
    add("published before the commit, with rescan", &[Flaw::PublishBeforeCommit], WORLD, NoHarm);
    let dying = Plan { faults: fault::KEEPER_CRASH, ..NO_RESCAN };
    add("no outbox, no rescan", &[Flaw::NoOutbox], dying, Stuck);
    add("no outbox, with rescan", &[Flaw::NoOutbox], WORLD, NoHarm);

    // Whose job it is.
    add("taken from live consumers, lease and fence kept", &[Flaw::StealFromLive], WORLD, NoHarm);
    add("no lease check", &[Flaw::NoLeaseCheck], WORLD, Breaks(Law::LiveLease));
    let steal = &[Flaw::StealFromLive, Flaw::NoLeaseCheck];
    add("taken from live consumers, no lease check", steal, WORLD, Breaks(Law::LiveLease));
    let steal = &[Flaw::StealFromLive, Flaw::NoLeaseCheck, Flaw::NoFence];
    add("the same without a fence", steal, WORLD, Breaks(Law::Fence));
    let steal = &[Flaw::StealFromLive, Flaw::NoLeaseCheck, Flaw::UnconditionalWrite];
    add("the same with unconditional writes", steal, WORLD, Breaks(Law::OneEnd));
    add("no fence (or a fence by worker name)", &[Flaw::NoFence], WORLD, Breaks(Law::Fence));
    add("the attempt for a token", &[Flaw::TokenIsAttempt], Plan { budget: 3, ..WORLD }, Breaks(Law::Fence));
    add("unconditional write: two ends", &[Flaw::UnconditionalWrite], WORLD, Breaks(Law::OneEnd));
    add("unconditional write: two results", &[Flaw::UnconditionalWrite], WORLD, Breaks(Law::OneResult));
    add("blind reap", &[Flaw::BlindReap], WORLD, Breaks(Law::LiveLease));
    add("reap by what was read before", &[Flaw::StaleReap], WORLD, Breaks(Law::OneEnd));
    add("deaf to the loss of its lease", &[Flaw::DeafToLoss], WORLD, NoHarm);
    add("no boot release, with a keeper", &[Flaw::NoVacate], WORLD, NoHarm);

    // Counting.
    add("a redelivery counts an attempt", &[Flaw::RedeliveryCounts], WORLD, Breaks(Law::Attempts));
    add("a crash counts none", &[Flaw::CrashUncounted], WORLD, Breaks(Law::Attempts));
    add("handing back counts one", &[Flaw::HandBackCounts], WORLD, Breaks(Law::Attempts));

    // Telling.
    let relay = Plan { relay: true, ..WORLD };
    add("the event after the transaction", &[Flaw::EventAfter], relay.clone(), Breaks(Law::Events));
    add("events marked before they are sent", &[Flaw::MarkBeforeSend], relay.clone(), Breaks(Law::Events));
    add("events in any order", &[Flaw::EventsAnyOrder], relay, Breaks(Law::Events));
    add("the outside called by attempt", &[Flaw::CallByAttempt], WORLD, Breaks(Law::OneCall));

    // What people asked for.
    // Without deletes: there the row's own check stops it before anything is written.
    let undeleted = Plan { faults: fault::ALL & !fault::DELETE, ..WORLD };
    add("cancel not read again at the commit", &[Flaw::CancelNotReread], undeleted, Breaks(Law::Cancel));
    let twice = Plan { budget: 3, ..WORLD };
    add("cancel forgotten by the reaper", &[Flaw::ReaperForgetsCancel], twice.clone(), Breaks(Law::Cancel));
    add("delete forgotten by the reaper", &[Flaw::ReaperForgetsCancel], twice, Breaks(Law::Deleted));
    add("a deleted job shown until it ends", &[Flaw::DeletedShown], WORLD, Breaks(Law::Deleted));
    add("a deleted job's pointer retried", &[Flaw::DeletedRetried], WORLD, Stuck);
    all
}

const NO_RESCAN_QUIET: Plan = Plan { budget: 0, ..NO_RESCAN };
