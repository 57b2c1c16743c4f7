//! What the stores share of claiming under limits: which lanes have to ask, and who of the waiting may start.
//!
//! A claim under limits reads who waits and what is in use, decides here, and writes. Between the two nobody
//! else decides: the store holds the gates meanwhile. The jobs themselves are claimed under their own guard all
//! the same, so what was taken is counted once more from what was really claimed.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use super::contract::LaneQuota;
use crate::job::limit::{Gate, Key, Ledger, Limits, Share, Stop, Toll};
use crate::job::name::{Kind, Owner};
use crate::job::resource::Room;
use crate::job::timestamp::Timestamp;

/// How many of a lane are looked at where each owner has a limit of its own: those of owners at theirs are
/// passed by.
pub(super) const LOOK_MAX: usize = 1_000;

/// A job that is due.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub id: Uuid,
    pub owner: Owner,
    pub kind: Kind,
    /// Of its source.
    pub bytes: u64,
    /// Where its lane stands among those asked for; 0 for pointers.
    pub place: usize,
}

/// The lanes without gates and those with, each in their order: whose first lane comes first is asked first,
/// so that neither keeps the other from its turn.
pub(super) fn in_turn(lanes: &[LaneQuota], limits: &Limits, room: &[Room]) -> [(bool, Vec<LaneQuota>); 2] {
    let decides = |quota: &&LaneQuota| limits.decides(&quota.lane.kind, room);
    let (limited, plain): (Vec<_>, Vec<_>) = lanes.iter().partition(decides);
    let (limited, plain) = (limited.into_iter().cloned().collect(), plain.into_iter().cloned().collect());
    if lanes.first().as_ref().is_some_and(decides) {
        [(true, limited), (false, plain)]
    } else {
        [(false, plain), (true, limited)]
    }
}

/// How many rows of a lane to look at for a quota.
pub(super) fn look(quota: &LaneQuota, limits: &Limits) -> usize {
    let by_owner = limits.of_kind(&quota.lane.kind).is_some_and(|limits| !limits.per_owner.is_none());
    if by_owner { LOOK_MAX.max(quota.max) } else { quota.max }
}

/// The tolls of some kinds, each looked up once.
pub(super) struct Tolls(HashMap<Kind, Vec<Toll>>);

impl Tolls {
    pub(super) fn of<'a>(kinds: impl IntoIterator<Item = &'a Kind>, limits: &Limits, room: &[Room]) -> Self {
        let kinds: HashSet<&Kind> = kinds.into_iter().collect();
        Self(kinds.into_iter().map(|kind| (kind.clone(), limits.tolls(kind, room))).collect())
    }

    fn get(&self, kind: &Kind) -> &[Toll] {
        self.0.get(kind).map_or(&[], Vec::as_slice)
    }

    /// All gates, and those of them that are held while somebody decides: those of single owners are their
    /// kind's matter.
    pub(super) fn gates(&self) -> (Vec<String>, Vec<String>) {
        let tolls = self.0.values().flatten().filter(|toll| !toll.here);
        let mut all: Vec<&Gate> = tolls.map(|toll| &toll.gate).collect();
        all.sort_unstable();
        all.dedup();
        let held = all.iter().filter(|gate| !matches!(gate, Gate::Owner(_)));
        (all.iter().map(ToString::to_string).collect(), held.map(ToString::to_string).collect())
    }
}

/// Who may start, in their order, and why others may not.
pub(super) fn choose<'a>(
    candidates: &'a [Candidate],
    tolls: &Tolls,
    quotas: &[usize],
    max: usize,
    ledger: &mut Ledger,
) -> (Vec<&'a Candidate>, Vec<(Uuid, Stop)>) {
    let mut quotas = quotas.to_vec();
    let (mut chosen, mut stopped) = (Vec::new(), Vec::new());
    for candidate in candidates {
        let Some(left) = quotas.get_mut(candidate.place).filter(|left| **left > 0) else { continue };
        if chosen.len() == max {
            break;
        }
        match ledger.admit(&candidate.kind, tolls.get(&candidate.kind), &candidate.owner, candidate.bytes) {
            Ok(_) => {
                *left -= 1;
                chosen.push(candidate);
            }
            Err(stop) => stopped.push((candidate.id, stop)),
        }
    }
    (chosen, stopped)
}

/// What was taken of gates.
pub(super) struct Taken {
    /// Of which job, under which token.
    pub(super) shares: Vec<(Uuid, Uuid, Share)>,
    pub(super) paces: Vec<(Key, Timestamp)>,
}

/// What was really claimed takes: each job's shares, and how the paces go on.
pub(super) fn book(claimed: &[(&Candidate, Uuid)], tolls: &Tolls, mut ledger: Ledger) -> Taken {
    let mut shares = Vec::new();
    for (candidate, token) in claimed {
        let taken =
            ledger.admit(&candidate.kind, tolls.get(&candidate.kind), &candidate.owner, candidate.bytes);
        // Fewer than were chosen, in the same order: what was let through together is let through again.
        shares.extend(taken.into_iter().flatten().map(|share| (candidate.id, *token, share)));
    }
    let paces = ledger.paces().map(|(key, next)| (key.clone(), next)).collect();
    Taken { shares, paces }
}

/// As a store writes whose gate it is.
pub(super) fn whose(owner: &Option<Owner>) -> String {
    owner.as_ref().map(ToString::to_string).unwrap_or_default()
}
