//! The loop that reads: as much as can start, and no more.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::warn;

use super::readiness::Signal;
use super::slots::{self, Permit};
use super::{IDLE_WAIT, Worker, run};
use crate::broker::contract::{
    BrokerError, Delivery, Intake, IntakePlan, Pointer, Receipt, Settle, Settling, Source,
};
use crate::fault::{self, Mutant, Point};
use crate::job::State;
use crate::job::limit::Stop;
use crate::job::name::{JobId, Lane, Owner};
use crate::job::resource::Amounts;
use crate::job::rota::Rota;
use crate::store::contract::{Claim, Claimed, Holding, StoreError};
use crate::yielding::yield_to_others;

/// How many orphans one look takes.
const ORPHANS_MAX: usize = 100;

/// Pause after a read that failed.
const READ_PAUSE: Duration = Duration::from_millis(500);

/// Reads and starts jobs until the worker drains. An error means that the intake is of no use any more.
pub(super) async fn consume(worker: Arc<Worker>) -> Result<(), BrokerError> {
    // A broker that does not answer holds no drain up.
    let Some(intake) = worker.drain.run_until_cancelled(open(&worker)).await else { return Ok(()) };
    let intake = intake?;
    worker.intake.send_replace(Some(intake.clone()));
    worker.signal(Signal::Ensured);
    match worker.parts.broker.caps().source {
        Source::Rows => {
            worker.signal(Signal::Recovered);
            let mut rota = Rota::new(worker.lanes.clone());
            rows(&worker, &*intake, &mut rota).await
        }
        Source::Pointers => {
            let mut waiting = VecDeque::new();
            let ended = pointers(&worker, &intake, &mut waiting).await;
            // Whatever ended the reading: others need not wait for what has not started here.
            let unstarted: Vec<Receipt> = waiting.into_iter().map(|delivery| delivery.receipt).collect();
            if !unstarted.is_empty() {
                let _ = intake.hand_back(&unstarted).await;
            }
            ended
        }
    }
}

async fn open(worker: &Worker) -> Result<Arc<dyn Intake>, BrokerError> {
    let lanes: Vec<Lane> = worker.lanes.iter().map(|(lane, _)| lane.clone()).collect();
    worker.parts.broker.ensure(&lanes).await?;
    let take_over_idle = worker.plan.timing.take_over_idle();
    let plan = IntakePlan { lanes, consumer: worker.holder.clone(), take_over_idle };
    worker.parts.broker.open(&plan).await
}

/// Lets those that end at the same moment give their slots back: one claim for all of them, where each would have
/// asked for one job more. A job is a task, and its handler another.
async fn let_jobs_end() {
    yield_to_others().await;
    yield_to_others().await;
}

/// Claims rung rows from the store whenever the bell rings or a slot is free again.
async fn rows(
    worker: &Arc<Worker>,
    intake: &dyn Intake,
    rota: &mut Rota<Amounts>,
) -> Result<(), BrokerError> {
    // Asked in vain since the last wait.
    let mut asked_lanes: HashSet<Lane> = HashSet::new();
    while !worker.drain.is_cancelled() {
        let_jobs_end().await;
        let free = worker.slots.free();
        worker.tell();
        // With every slot busy nobody is asked, and no lane's turn is used up. To readiness that is a read.
        let (quotas, shut_out) = match free {
            0 => (Vec::new(), Vec::new()),
            free => slots::quotas(&rota.order(), free, &worker.slots.left()),
        };
        if quotas.is_empty() {
            worker.signal(Signal::ReadOk);
            let freed = async { tokio::time::timeout(IDLE_WAIT, worker.slots.freed()).await };
            let _ = worker.drain.run_until_cancelled(freed).await;
            continue;
        }
        if let Err(error) = worker.sure().await {
            failed(worker, &error).await;
            continue;
        }
        fault::at(Point::ClaimAsked);
        let asked = Instant::now();
        let (lease, room) = (worker.plan.timing.lease, worker.room());
        let claim = worker.parts.store.claim_lanes(&worker.holder, &quotas, free, lease, &room);
        match claim.await {
            Ok(Claimed { holdings, stops, unsure }) => {
                if unsure {
                    worker.unsure.failed();
                }
                worker.waits.told(quotas.iter().map(|quota| &quota.lane.kind), &stops);
                if !stops.is_empty() {
                    worker.tell();
                }
                worker.signal(Signal::ReadOk);
                let none = holdings.is_empty();
                if !none {
                    fault::at(Point::ClaimKept);
                }
                for holding in holdings {
                    worker.parts.metrics.count("mapae_deliveries_total", "run", 1);
                    start(worker, holding, asked, None, None);
                }
                if none {
                    asked_lanes.extend(quotas.into_iter().map(|quota| quota.lane));
                } else {
                    asked_lanes.clear();
                }
                // Each once: those that share a resource keep each other from being asked in turn.
                let others: Vec<Lane> =
                    shut_out.into_iter().filter(|lane| !asked_lanes.contains(lane)).collect();
                let all_asked = others.is_empty();
                rota.first(others);
                if none && all_asked {
                    asked_lanes.clear();
                    let wait = worker.waits.next(IDLE_WAIT);
                    let rung_or_freed = async {
                        tokio::select! {
                            _ = intake.next(free, &[], wait) => {}
                            () = worker.slots.freed() => {}
                            // A share goes back when its job is settled, after its slot.
                            () = worker.held.released(), if wait < IDLE_WAIT => worker.waits.freed(),
                        }
                    };
                    let _ = worker.drain.run_until_cancelled(rung_or_freed).await;
                }
            }
            Err(error) => {
                worker.unsure.failed();
                failed(worker, &error).await;
            }
        }
    }
    Ok(())
}

/// Takes pointers, starts those whose resources are free in the order they came. What it leaves in
/// `waiting` has not been started.
async fn pointers(
    worker: &Arc<Worker>,
    intake: &Arc<dyn Intake>,
    waiting: &mut VecDeque<Delivery>,
) -> Result<(), BrokerError> {
    let look_every = worker.plan.timing.take_over_idle() / 4;
    // S0-13: nothing new is read before all that an earlier life left.
    let mut recovering = true;
    let mut looked = Instant::now();
    while !worker.drain.is_cancelled() {
        let_jobs_end().await;
        begin(worker, intake, waiting).await;
        spare(worker, intake, waiting).await;
        let room =
            (worker.plan.slots + worker.plan.prefetch).saturating_sub(worker.held.len() + waiting.len());
        if room == 0 {
            // As busy as it can be is ready, whatever else is left to take back.
            worker.signal(Signal::Recovered);
            worker.signal(Signal::ReadOk);
            let given_back = async {
                tokio::select! {
                    () = worker.slots.freed() => {}
                    () = worker.held.released() => worker.waits.freed(),
                    () = tokio::time::sleep(IDLE_WAIT) => {}
                }
            };
            let _ = worker.drain.run_until_cancelled(given_back).await;
            continue;
        }
        let look = recovering || looked.elapsed() > look_every;
        let read = if look {
            looked = Instant::now();
            fault::at(Point::TakeOverAsked);
            Some(match fault::broken(Mutant::NoTakeOver) {
                true => Ok(Vec::new()),
                false => intake.orphans(room.min(ORPHANS_MAX)).await,
            })
        } else {
            let shut = shut(worker, waiting);
            let wait = worker.waits.next(IDLE_WAIT);
            fault::at(Point::ReadAsked);
            // Reading is cancel-safe, so a slot given back meanwhile starts what waits at once.
            tokio::select! {
                read = intake.next(room, &shut, wait) => Some(read),
                () = worker.slots.freed(), if !waiting.is_empty() => None,
                () = worker.held.released(), if wait < IDLE_WAIT => {
                    worker.waits.freed();
                    None
                }
                () = worker.drain.cancelled() => None,
            }
        };
        match read {
            Some(Ok(deliveries)) => {
                if look && deliveries.is_empty() {
                    recovering = false;
                    worker.signal(Signal::Recovered);
                }
                worker.signal(Signal::ReadOk);
                if !deliveries.is_empty() {
                    fault::at(if look { Point::TakeOverKept } else { Point::ReadKept });
                }
                let taken = take_in(waiting, deliveries);
                worker.parts.metrics.count("mapae_taken_over_total", "", if look { taken } else { 0 });
            }
            Some(Err(BrokerError::Transient(_) | BrokerError::Capacity)) => {
                worker.signal(Signal::ReadFailed);
                worker.parts.metrics.count("mapae_read_failures_total", "", 1);
                let _ = worker.drain.run_until_cancelled(tokio::time::sleep(READ_PAUSE)).await;
            }
            Some(Err(error)) => return Err(error),
            None => {}
        }
    }
    Ok(())
}

/// Gives back what waits for resources beyond half of the prefetch: whoever has the resource may start it,
/// and here it would take the places of what could start.
async fn spare(worker: &Worker, intake: &Arc<dyn Intake>, waiting: &mut VecDeque<Delivery>) {
    let shut = shut(worker, waiting);
    let waits = |delivery: &Delivery| match &delivery.pointer {
        Ok(pointer) => {
            shut.iter().any(|lane| lane.kind == pointer.kind)
                || worker.waits.holds(&pointer.kind, &pointer.owner)
        }
        Err(_) => false,
    };
    let (mut kept, mut too_many) = (0, Vec::new());
    waiting.retain(|delivery| {
        let keep = !waits(delivery) || kept < (worker.plan.prefetch / 2).max(1);
        kept += usize::from(waits(delivery));
        if !keep {
            too_many.push(delivery.receipt.clone());
        }
        keep
    });
    if !too_many.is_empty() {
        // Without an answer they are offered again once they have been idle for long.
        let _ = intake.hand_back(&too_many).await;
    }
}

/// The lanes of kinds that wait for a resource or at a gate: one more pointer of theirs would wait as well.
fn shut(worker: &Worker, waiting: &VecDeque<Delivery>) -> Vec<Lane> {
    let left = worker.slots.left();
    let waits = |lane: &Lane, needs: &Amounts| {
        let pointers = waiting.iter().filter_map(|delivery| delivery.pointer.as_ref().ok());
        (left.never_enough(needs).is_some() || worker.waits.holds_all(&lane.kind))
            && pointers.into_iter().any(|pointer| pointer.kind == lane.kind)
    };
    let lanes = worker.lanes.iter();
    lanes.filter(|(lane, needs)| waits(lane, needs)).map(|(lane, _)| lane.clone()).collect()
}

/// Answers how many are new. The broker may offer again what has waited here for long: nobody tells it
/// that it is held, so that a worker with a free slot may have it.
fn take_in(waiting: &mut VecDeque<Delivery>, deliveries: Vec<Delivery>) -> u64 {
    let before = waiting.len();
    for delivery in deliveries {
        if waiting.iter().all(|known| known.receipt != delivery.receipt) {
            waiting.push_back(delivery);
        }
    }
    (waiting.len() - before) as u64
}

/// Claims and starts what can start of the waiting deliveries.
async fn begin(worker: &Arc<Worker>, intake: &Arc<dyn Intake>, waiting: &mut VecDeque<Delivery>) {
    let mut ready: Vec<(Receipt, Pointer, Permit)> = Vec::new();
    let mut done: Vec<(Receipt, Settle)> = Vec::new();
    let mut kept = VecDeque::new();
    for delivery in waiting.drain(..) {
        match delivery.pointer {
            Err(_) => {
                answer(worker, "foreign");
                done.push((delivery.receipt, Settle::Park("not a pointer")));
            }
            Ok(pointer) => match worker.handlers.get(&pointer.kind) {
                // A lane this worker does not read: the row is rung again for one that does.
                None => done.push((delivery.receipt, Settle::Drop)),
                // What a gate keeps out is not asked for before its time.
                Some(_) if worker.waits.holds(&pointer.kind, &pointer.owner) => {
                    kept.push_back(Delivery { pointer: Ok(pointer), ..delivery });
                }
                Some(registered) => match worker.slots.take(&registered.plan.needs.fixed()) {
                    Some(permit) => ready.push((delivery.receipt, pointer, permit)),
                    None => kept.push_back(Delivery { pointer: Ok(pointer), ..delivery }),
                },
            },
        }
    }
    *waiting = kept;
    worker.tell();
    if !ready.is_empty() {
        claim(worker, intake, ready, waiting, &mut done).await;
    }
    if !done.is_empty() {
        fault::at(Point::AckAsked);
        intake.settle(&done).await;
        fault::at(Point::AckKept);
    }
}

/// Asks the store about pointers that could start, and does what each answer says (contract section 4).
async fn claim(
    worker: &Arc<Worker>,
    intake: &Arc<dyn Intake>,
    ready: Vec<(Receipt, Pointer, Permit)>,
    waiting: &mut VecDeque<Delivery>,
    done: &mut Vec<(Receipt, Settle)>,
) {
    let at_claim = worker.parts.broker.caps().settling == Settling::AtClaim;
    let asks: Vec<(JobId, Owner)> =
        ready.iter().map(|(_, pointer, _)| (pointer.job, pointer.owner.clone())).collect();
    if fault::broken(Mutant::EarlyAck) {
        let early = ready.iter().map(|(receipt, ..)| (receipt.clone(), Settle::Drop));
        intake.settle(&early.collect::<Vec<_>>()).await;
    }
    fault::at(Point::ClaimAsked);
    let asked = Instant::now();
    let room = worker.room();
    let lease = worker.plan.timing.lease;
    let claims = match worker.sure().await {
        Ok(()) => {
            let claims = worker.parts.store.claim_pointers(&worker.holder, &asks, lease, &room).await;
            claims.inspect_err(|_| worker.unsure.failed())
        }
        Err(error) => Err(error),
    };
    let claims = match claims {
        Ok(claims) => claims,
        Err(error) => {
            for (receipt, pointer, _) in ready.into_iter().rev() {
                waiting.push_front(Delivery { receipt, pointer: Ok(pointer), deliveries: None });
            }
            return failed(worker, &error).await;
        }
    };
    fault::at(Point::ClaimKept);
    let stop = |((_, pointer, _), claim): (&(Receipt, Pointer, Permit), &Claim)| match claim {
        Claim::Waits(stop) => Some(stop.clone()),
        Claim::Later(wait) => Some(Stop::asked(pointer.kind.clone(), *wait)),
        _ => None,
    };
    let stops: Vec<Stop> = ready.iter().zip(&claims).filter_map(stop).collect();
    if claims.iter().any(|claim| matches!(claim, Claim::Later(_))) {
        worker.unsure.failed();
    }
    worker.waits.told(ready.iter().map(|(_, pointer, _)| &pointer.kind), &stops);
    worker.tell();
    let mut back = Vec::new();
    for ((receipt, pointer, permit), claim) in ready.into_iter().zip(claims) {
        match claim {
            Claim::Run(holding) => {
                answer(worker, "run");
                let receipt = if at_claim {
                    done.push((receipt, Settle::Done));
                    None
                } else {
                    Some((intake.clone(), receipt))
                };
                start(worker, *holding, asked, Some(permit), receipt);
            }
            // It keeps its place in line: the pointer waits here, the row uses no attempt.
            Claim::Waits(_) | Claim::Later(_) => {
                answer(worker, "waits");
                back.push(Delivery { receipt, pointer: Ok(pointer), deliveries: None });
            }
            // At finish it stays unacknowledged: its idle time offers it again once the lease can be
            // taken. At claim the keeper rings again if that lease is lost.
            Claim::Busy(_) => {
                answer(worker, "busy");
                if at_claim {
                    done.push((receipt, Settle::Drop));
                }
            }
            Claim::Finished(_) => drop_pointer(worker, "finished", receipt, done),
            Claim::Failed => {
                finished(worker, State::Failed);
                drop_pointer(worker, "failed", receipt, done);
            }
            Claim::NotDue(_) => drop_pointer(worker, "not-due", receipt, done),
            Claim::Paused => drop_pointer(worker, "paused", receipt, done),
            Claim::Cancelled => {
                finished(worker, State::Cancelled);
                drop_pointer(worker, "cancelled", receipt, done);
            }
            Claim::Stale => drop_pointer(worker, "stale", receipt, done),
            Claim::Foreign => {
                answer(worker, "foreign");
                warn!("a pointer names another owner than its job has; it is kept apart");
                done.push((receipt, Settle::Park("owner differs")));
            }
        }
    }
    back.into_iter().rev().for_each(|delivery| waiting.push_front(delivery));
}

fn finished(worker: &Worker, state: State) {
    worker.parts.metrics.count("mapae_jobs_finished_total", state.as_str(), 1);
}

fn answer(worker: &Worker, answer: &str) {
    worker.parts.metrics.count("mapae_deliveries_total", answer, 1);
}

fn drop_pointer(worker: &Worker, why: &str, receipt: Receipt, done: &mut Vec<(Receipt, Settle)>) {
    answer(worker, why);
    done.push((receipt, Settle::Drop));
}

/// From here on the lease is renewed and the job runs in a task of its own.
fn start(
    worker: &Arc<Worker>,
    holding: Holding,
    asked: Instant,
    permit: Option<Permit>,
    receipt: Option<(Arc<dyn Intake>, Receipt)>,
) {
    let held_receipt = receipt.as_ref().map(|(_, receipt)| receipt.clone());
    worker.held.take(&holding.lease, asked, worker.plan.timing.lease, held_receipt);
    let bytes = holding.job.source.as_ref().map_or(0, |source| source.bytes);
    let needs = worker.handlers.get(&holding.job.kind).map(|registered| registered.plan.needs.of(bytes));
    if let Some(needs) = &needs {
        worker.slots.started(needs);
    }
    // The size was not known before: of what it decides, the claim has left room.
    let permit = needs.and_then(|needs| match permit {
        Some(permit) => Some(permit.grown(&needs)),
        None => worker.slots.take(&needs),
    });
    tokio::spawn(run::run(worker.clone(), holding, permit, receipt));
}

async fn failed(worker: &Worker, error: &StoreError) {
    warn!(worker = %worker.holder, code = error.code(), said = error.said(), "a claim failed");
    worker.signal(Signal::ReadFailed);
    worker.parts.metrics.count("mapae_read_failures_total", "", 1);
    let _ = worker.drain.run_until_cancelled(tokio::time::sleep(READ_PAUSE)).await;
}
