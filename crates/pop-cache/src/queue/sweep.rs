//! From buffered to staged: what is due, what has stayed too long; and back, if its write
//! was refused.

use pop_model::{Checkpoint, DeliveryIdentity, LeaseTime, Mutant, Offset};

use super::{
    LeaseQueue,
    pages::SlotState,
    receives::{Receive, ReceiveId},
};

/// Why a lease leaves memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its deadline has passed.
    Due,
    /// It has been in memory long enough: it is stored as it is.
    Stayed,
}

/// A lease that is on its way out of memory. It stays nobody else's until its plan is
/// settled, or was refused and it is [unstaged](LeaseQueue::unstage).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedLease {
    /// The delivery.
    pub checkpoint: Box<Checkpoint>,
    /// Why it leaves.
    pub why: Why,
}

impl LeaseQueue {
    /// Stages up to about `count` leases that are due or have stayed too long.
    pub fn sweep(&mut self, now: LeaseTime, count: usize) -> Vec<StagedLease> {
        self.stage(now, now, count)
    }

    /// Stages up to about `count` leases whatever their time, oldest looks first: the cache
    /// is full, or is closing. One of an ordered queue whose row is in the store as it is in
    /// memory is left where it is.
    pub fn stage_early(&mut self, now: LeaseTime, count: usize) -> Vec<StagedLease> {
        self.stage(now, LeaseTime::from_millis(u64::MAX), count)
    }

    /// Stages what is to be looked at by `until`.
    fn stage(&mut self, now: LeaseTime, until: LeaseTime, count: usize) -> Vec<StagedLease> {
        let is_early = until > now;
        let mut staged = Vec::new();
        let mut later = Vec::new();
        while staged.len() < count {
            let Some(mut taken) = self.looks.take(until) else {
                break;
            };
            while staged.len() < count {
                let Some(id) = taken.next() else {
                    break;
                };
                let Some(look) = self.receives.get(id).map(|receive| self.look_at(receive)) else {
                    continue;
                };
                if taken.is_before(look) {
                    continue;
                }
                if look > until {
                    // It lies in a bucket that has begun, and is not due yet.
                    later.push((look, id));
                } else if self.stage_receive(id, now, is_early, &mut staged) {
                    // Some of it stays, as its rows say.
                    later.push((self.due_at(id), id));
                }
            }
            self.looks.put_back(taken);
        }
        for (look, id) in later {
            self.looks.insert(look, id);
        }
        staged
    }

    /// Returns whether one of its leases stays: its time has not come, or is not what counts,
    /// and it is stored.
    fn stage_receive(
        &mut self,
        id: ReceiveId,
        now: LeaseTime,
        is_early: bool,
        staged: &mut Vec<StagedLease>,
    ) -> bool {
        let Some(receive) = self.receives.get(id).cloned() else {
            return false;
        };
        let visible_at = if Mutant::RenewalForgotten.is_on() {
            receive.delivered_at.saturating_add(self.run.stay)
        } else {
            receive.visible_at()
        };
        let is_due = if Mutant::DueOnlyAfter.is_on() {
            visible_at < now
        } else {
            visible_at <= now
        };
        let why = if is_due { Why::Due } else { Why::Stayed };
        let mut stays = false;
        for distance in 0..u64::from(receive.span) {
            let offset = Offset::new(receive.first.get().saturating_add(distance));
            if self.state(offset) != Some(SlotState::Buffered(id)) {
                continue;
            }
            let checkpoint = self.checkpoint(offset, &receive);
            let is_wanted_stored = is_early || why == Why::Stayed;
            if is_wanted_stored && self.rows.get(&offset) == Some(&checkpoint) {
                stays = true;
                continue;
            }
            self.pages.set_state(offset, SlotState::Staged(id));
            self.counts.buffered -= 1;
            self.counts.staged += 1;
            let checkpoint = Box::new(checkpoint);
            staged.push(StagedLease { checkpoint, why });
        }
        stays
    }

    pub(super) fn due_at(&self, id: ReceiveId) -> LeaseTime {
        let receive = self.receives.get(id);
        receive.map_or(LeaseTime::ZERO, Receive::visible_at)
    }

    /// Stages one delivery that is in memory and due, for another end than it was staged for
    /// before.
    pub fn stage_one(&mut self, identity: &DeliveryIdentity) -> Option<Checkpoint> {
        let offset = identity.offset;
        let Some(SlotState::Buffered(id)) = self.state(offset) else {
            return None;
        };
        let checkpoint = self.checkpoint(offset, self.receives.get(id)?);
        if checkpoint.identity != *identity {
            return None;
        }
        self.pages.set_state(offset, SlotState::Staged(id));
        self.counts.buffered -= 1;
        self.counts.staged += 1;
        Some(checkpoint)
    }

    /// Takes a staged lease back into memory: its write is known to have had no effect. It
    /// is looked at again at `again`, or when it would have been, if that is later.
    pub fn unstage(&mut self, offset: Offset, again: LeaseTime) {
        if let Some(SlotState::Staged(id)) = self.state(offset) {
            self.pages.set_state(offset, SlotState::Buffered(id));
            self.counts.staged -= 1;
            self.counts.buffered += 1;
            let look = self.receives.get(id).map(|receive| self.look_at(receive));
            self.looks.insert(look.unwrap_or(again).max(again), id);
        }
    }
}
