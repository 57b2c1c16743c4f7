//! Limits over all processes, of which there is one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{Memory, Row, Tables};
use crate::job::limit::{Account, Gate, Key, Ledger, Limits, Stop};
use crate::job::name::{JobId, Owner};
use crate::job::resource::Room;
use crate::job::{Status, lease::Token};
use crate::store::contract::{GateRow, Gates, StoreError};

#[async_trait]
impl Gates for Memory {
    fn limit(&self, limits: Limits) {
        self.tables().limits = limits.into();
    }

    fn limits(&self) -> Arc<Limits> {
        self.tables().limits.clone()
    }

    async fn shut(&self, gate: &Gate, wait: Duration) -> Result<(), StoreError> {
        let mut tables = self.tables();
        let until = tables.now() + wait;
        let account = tables.gates.entry((gate.clone(), None)).or_default();
        account.shut_until = account.shut_until.max(Some(until));
        Ok(())
    }

    async fn gates(&self, owner: Option<&Owner>) -> Result<Vec<GateRow>, StoreError> {
        let mut accounts: Vec<(Key, Account)> = self.tables().accounts().into_iter().collect();
        accounts.retain(|((_, whose), _)| whose.is_none() || whose.as_ref() == owner);
        accounts.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(accounts.into_iter().map(|((gate, owner), account)| GateRow { gate, owner, account }).collect())
    }
}

impl Tables {
    /// What is known of every gate: what is written down, and what the shares of live leases come to.
    pub(super) fn accounts(&self) -> HashMap<Key, Account> {
        let now = self.now();
        let mut accounts: HashMap<Key, Account> = self.gates.clone().into_iter().collect();
        for row in self.jobs.values() {
            let Status::Running { token, until, .. } = &row.life.status else { continue };
            let shares = self.shares.get(token).filter(|_| now < *until);
            for share in shares.into_iter().flatten() {
                accounts.entry((share.gate.clone(), share.owner.clone())).or_default().in_use += share.amount;
            }
        }
        accounts
    }

    pub(super) fn ledger(&self, room: &[Room]) -> Ledger {
        Ledger::new(self.now(), self.accounts(), room)
    }

    /// The job, which could start, may pass its gates: its shares hang on `token` from now on.
    pub(super) fn pass(
        &mut self,
        ledger: &mut Ledger,
        job: JobId,
        token: Token,
        room: &[Room],
    ) -> Result<(), Stop> {
        let Row { new, .. } = &self.jobs[&job];
        let tolls = self.limits.tolls(&new.kind, room);
        let bytes = new.source.as_ref().map_or(0, |source| source.bytes);
        let shares = ledger.admit(&new.kind, &tolls, &new.owner, bytes)?;
        if !shares.is_empty() {
            self.shares.insert(token, shares);
        }
        for (key, next) in ledger.paces() {
            self.gates.entry(key.clone()).or_default().next = Some(next);
        }
        Ok(())
    }

    /// Shares of leases that are over are forgotten.
    pub(super) fn forget_shares(&mut self) {
        let held: Vec<Token> = self
            .jobs
            .values()
            .filter_map(|row| match &row.life.status {
                Status::Running { token, .. } => Some(*token),
                _ => None,
            })
            .collect();
        self.shares.retain(|token, _| held.contains(token));
    }
}
