//! The half that really hurts.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};

use super::{Mutant, Point};

/// The signal ends or stops the process, but perhaps not before this thread has run on for a moment.
const TAKES_EFFECT: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Kill,
    Freeze,
}

#[derive(Debug)]
struct Planned {
    point: Point,
    fault: Fault,
    /// Passings up to it.
    left: AtomicU32,
}

struct Plan {
    planned: Vec<Planned>,
    mutant: Option<Mutant>,
    log: Option<Mutex<File>>,
}

fn plan() -> &'static Plan {
    static PLAN: OnceLock<Plan> = OnceLock::new();
    PLAN.get_or_init(|| {
        let given = |name| std::env::var(name).ok().filter(|text: &String| !text.is_empty());
        // A plan that is misspelt would prove nothing: better no process at all.
        let planned = given("MAPAE_FAULT").map_or_else(Vec::new, |text| {
            text.split(',').map(|one| planned(one).expect("MAPAE_FAULT is POINT:kill|freeze:N")).collect()
        });
        let mutant = given("MAPAE_FAULT_MUTANT").map(|name| {
            let known = Mutant::ALL.iter().find(|mutant| mutant.name() == name);
            *known.expect("MAPAE_FAULT_MUTANT names a mutant")
        });
        let log = given("MAPAE_FAULT_LOG").map(|path| {
            let log = File::options().create(true).append(true).open(path);
            Mutex::new(log.expect("MAPAE_FAULT_LOG can be written"))
        });
        Plan { planned, mutant, log }
    })
}

fn planned(text: &str) -> Option<Planned> {
    let mut parts = text.split(':');
    let name = parts.next()?;
    let point = *Point::ALL.iter().find(|point| point.name() == name)?;
    let fault = match parts.next()? {
        "kill" => Fault::Kill,
        "freeze" => Fault::Freeze,
        _ => return None,
    };
    let left = parts.next()?.parse::<u32>().ok().filter(|left| *left > 0)?;
    parts.next().is_none().then_some(Planned { point, fault, left: AtomicU32::new(left) })
}

pub(super) fn at(point: Point) {
    let plan = plan();
    plan.note("passed", point);
    for planned in plan.planned.iter().filter(|planned| planned.point == point) {
        // Wraps round after the fault, and is then four thousand million passings away.
        if planned.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            plan.happens(planned.fault, point);
        }
    }
}

pub(super) fn broken(mutant: Mutant) -> bool {
    plan().mutant == Some(mutant)
}

impl Plan {
    fn happens(&self, fault: Fault, point: Point) {
        match fault {
            Fault::Kill => {
                self.note("kill", point);
                loop {
                    let _ = kill_process(getpid(), Signal::KILL);
                    std::thread::sleep(TAKES_EFFECT);
                }
            }
            Fault::Freeze => {
                self.note("freeze", point);
                let _ = kill_process(getpid(), Signal::STOP);
                std::thread::sleep(TAKES_EFFECT);
                self.note("thawed", point);
            }
        }
    }

    /// One write a line: what is written stays, whatever becomes of the process.
    fn note(&self, what: &str, point: Point) {
        if let Some(log) = &self.log {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = log.write_all(format!("{what} {}\n", point.name()).as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read_and_a_misspelt_one_is_not() {
        let read = planned("settle.asked:freeze:3").expect("a plan");
        assert_eq!((read.point, read.fault), (Point::SettleAsked, Fault::Freeze));
        assert_eq!(read.left.into_inner(), 3);
        for bad in ["settle:kill:1", "settle.asked:stop:1", "settle.asked:kill:0", "settle.asked:kill", ""] {
            assert!(planned(bad).is_none(), "{bad}");
        }
    }
}
