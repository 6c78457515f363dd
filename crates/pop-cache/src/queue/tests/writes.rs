//! What the sweep and the writes do, to the machine and to the model.

use super::{
    model::{Is, Row},
    world::{Flight, World},
    *,
};

impl World {
    pub(super) fn sweep(&mut self, count: usize) {
        let looked: BTreeSet<u64> = self
            .model
            .offsets_that(|is| matches!(is, Is::Out(lease) if lease.look() <= self.now))
            .into_iter()
            .collect();
        let staged = self.queue.sweep(at(self.now), count);
        let is_all = staged.len() < count;
        self.take_staged(staged);
        if !is_all {
            return;
        }
        // None that is due is left, and none that has stayed, unless it is put off after a
        // refusal or its row is written.
        for offset in looked {
            let Some(Is::Out(lease)) = self.model.slots.get(&offset).map(|slot| &slot.is) else {
                continue;
            };
            let is_put_off = self.queue.looks.count() > 0;
            assert!(is_put_off, "{lease:?} is forgotten");
        }
    }

    pub(super) fn stage_early(&mut self, count: usize) {
        let staged = self.queue.stage_early(at(self.now), count);
        let is_all = staged.len() < count;
        self.take_staged(staged);
        if is_all && !self.model.ordered {
            let out = self.model.offsets_that(|is| matches!(is, Is::Out(_)));
            assert_eq!(out, [0; 0], "left out");
        }
    }

    pub(super) fn stage_one(&mut self, which: usize) {
        let Some(handle) = self.handle(which) else {
            return;
        };
        let slot = self.model.slots.get(&handle.offset.get());
        let is_out =
            slot.is_some_and(|slot| matches!(&slot.is, Is::Out(lease) if lease.identity == handle));
        let staged = self.queue.stage_one(&handle);
        assert_eq!(staged.is_some(), is_out);
        if let Some(checkpoint) = staged {
            self.stage(checkpoint);
        }
    }

    pub(super) fn take_staged(&mut self, staged: Vec<StagedLease>) {
        for lease in staged {
            let is_due = lease.checkpoint.visible_at <= at(self.now);
            assert_eq!(lease.why == Why::Due, is_due);
            self.stage(*lease.checkpoint);
        }
    }

    pub(super) fn stage(&mut self, checkpoint: Checkpoint) {
        let place = checkpoint.identity.offset.get();
        let slot = self.model.slots.get_mut(&place).expect("it is open");
        let Is::Out(lease) = slot.is.clone() else {
            panic!("{place} is {:?} and was staged", slot.is);
        };
        assert_eq!(checkpoint.identity, lease.identity);
        assert_eq!(checkpoint.visible_at, at(lease.due));
        assert_eq!(checkpoint.delivery_attempt, lease.attempt);
        slot.is = Is::Staged(lease);
        self.staged.push(checkpoint);
    }

    pub(super) fn unstage(&mut self, which: usize) {
        let Some(index) = which.checked_rem(self.staged.len()) else {
            return;
        };
        let checkpoint = self.staged.remove(index);
        self.queue
            .unstage(checkpoint.identity.offset, at(self.now + 100));
        self.back_out(checkpoint.identity.offset.get());
    }

    pub(super) fn back_out(&mut self, place: u64) {
        let slot = self.model.slots.get_mut(&place).expect("it is staged");
        match slot.is.clone() {
            Is::Staged(lease) => slot.is = Is::Out(lease),
            other => panic!("{other:?} is not staged"),
        }
    }

    pub(super) fn plan(&mut self, reserved: bool, staged: usize) {
        let mut settles = Vec::new();
        let mut keeps = Vec::new();
        if self.flight.is_none() {
            let count = staged.min(self.staged.len());
            for checkpoint in self.staged.drain(..count) {
                let attempt = checkpoint.delivery_attempt + 1;
                let place = checkpoint.identity.offset.get();
                match place % 3 {
                    0 if self.model.ordered => keeps.push(Keep::ready(checkpoint, attempt)),
                    1 if self.model.ordered => keeps.push(Keep::out(checkpoint)),
                    _ => settles.push(place),
                }
            }
            if reserved && let Some(reserved) = self.take_reserved(staged) {
                settles.extend(self.still_reserved(&reserved));
            }
        }
        let plan = self.queue.plan(offsets(settles.clone()), keeps.clone());
        assert_eq!(plan.is_none(), self.flight.is_some());
        let Some(plan) = plan else { return };
        let mut stored = self.model.stored(&settles);
        for keep in &keeps {
            stored
                .rows
                .insert(keep.row.identity.offset.get(), row_of(keep));
        }
        // The committed offset passes nothing that is open.
        if let Some(committed) = plan.committed() {
            assert!(committed.get() <= self.model.lowest_open(&stored));
        }
        self.flight = Some(Flight {
            plan,
            keeps,
            settles,
            stored,
            acks: self.acks,
        });
    }

    pub(super) fn settled(&mut self, synced: bool) {
        let Some(flight) = self.flight.take() else {
            return;
        };
        let mut disk = self.disks.last().expect("there is one").0.clone();
        disk.apply(&flight.plan);
        for place in flight
            .stored
            .settled
            .range(self.log_start.min(self.model.base)..)
        {
            assert!(disk.is_settled(offset(*place)), "{place} has no mark");
        }
        let durability = match synced {
            true => Durability::Synced,
            false => Durability::Buffered,
        };
        self.queue.settled(durable(flight.plan), durability);
        self.acks_committed = flight.acks;
        if synced {
            self.disks.clear();
            self.acks_synced = self.acks_committed;
        }
        self.disks.push((disk, flight.stored));
        for place in flight.settles {
            self.model.settle(place);
        }
        for keep in flight.keeps {
            self.keep(keep);
        }
    }

    pub(super) fn keep(&mut self, keep: Keep) {
        let place = keep.row.identity.offset.get();
        self.model.rows.insert(place, row_of(&keep));
        if keep.is_ready {
            let slot = self.model.slots.get_mut(&place).expect("it is staged");
            slot.attempt = keep.row.delivery_attempt;
            self.make_ready(place);
        } else {
            self.back_out(place);
        }
    }

    pub(super) fn refused(&mut self) {
        let Some(flight) = self.flight.take() else {
            return;
        };
        self.queue.refused(flight.plan, at(self.now + 100));
        let kept = flight
            .keeps
            .iter()
            .map(|keep| keep.row.identity.offset.get());
        for place in flight.settles.into_iter().chain(kept) {
            let slot = self.model.slots.get(&place);
            match slot.map(|slot| slot.is.clone()) {
                Some(Is::Reserved) => self.make_ready(place),
                Some(Is::Staged(_)) => self.back_out(place),
                _ => {}
            }
        }
    }
}

fn row_of(keep: &Keep) -> Row {
    Row {
        identity: keep.row.identity,
        due: (!keep.is_ready).then(|| keep.row.visible_at.as_millis()),
        attempt: keep.row.delivery_attempt,
    }
}
