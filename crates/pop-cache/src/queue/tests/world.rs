//! The machine and the model side by side: each operation is done to both.

use super::{
    model::{Is, Model, Stored},
    random::Op,
    *,
};

/// A plan in flight, and what the model says that it writes.
pub(super) struct Flight {
    pub(super) plan: SettlePlan,
    pub(super) keeps: Vec<Keep>,
    pub(super) settles: Vec<u64>,
    pub(super) stored: Stored,
    pub(super) acks: u64,
}

pub(super) struct World {
    pub(super) queue: LeaseQueue,
    pub(super) model: Model,
    pub(super) now: u64,
    pub(super) log_start: u64,
    pub(super) reserved: Vec<Reservation>,
    pub(super) staged: Vec<Checkpoint>,
    pub(super) handles: Vec<DeliveryIdentity>,
    pub(super) flight: Option<Flight>,
    // What is written, from the last synced state on, and what the model says of each.
    pub(super) disks: Vec<(Disk, Stored)>,
    pub(super) acks: u64,
    pub(super) acks_synced: u64,
    pub(super) acks_committed: u64,
}

impl World {
    pub(super) fn new(start: u64, ordered: bool) -> Self {
        let disk = Disk {
            committed: offset(start),
            ..Disk::default()
        };
        let stored = Stored::default();
        let queue = LeaseQueue::restore(disk.restored(ordered, start), run(1));
        Self {
            queue,
            model: Model {
                ordered,
                run: 1,
                epoch: 0,
                floor: start,
                base: start,
                log_end: start,
                found_end: start,
                settled: [].into(),
                slots: [].into(),
                rows: [].into(),
            },
            now: 1,
            log_start: start,
            reserved: Vec::new(),
            staged: Vec::new(),
            handles: Vec::new(),
            flight: None,
            disks: vec![(disk, stored)],
            acks: 0,
            acks_synced: 0,
            acks_committed: 0,
        }
    }

    pub(super) fn bounds(&self) -> LogBounds {
        LogBounds {
            start: offset(self.log_start),
            end: offset(self.model.log_end),
        }
    }

    pub(super) fn apply(&mut self, op: Op) {
        match op {
            Op::Append(count) => self.model.log_end += count,
            Op::Reserve(count) => self.reserve(count),
            Op::ReserveGroup(count) if self.model.ordered => self.reserve_group(count),
            Op::ReserveGroup(count) => self.reserve(count),
            Op::Release(which) => self.release(which),
            Op::Skip(which) => self.skip(which),
            Op::Lease(which, hide) => self.lease(which, hide),
            Op::Ack(which) => self.ack(which),
            Op::Change(which, hide) => self.change(which, hide),
            Op::GiveBack(which) => self.give_back(which),
            Op::Sleep(millis) => self.now += millis,
            Op::Sweep(count) => self.sweep(count),
            Op::StageEarly(count) => self.stage_early(count),
            Op::StageOne(which) => self.stage_one(which),
            Op::Unstage(which) => self.unstage(which),
            Op::Plan { reserved, staged } => self.plan(reserved, staged),
            Op::Settled { synced } => self.settled(synced),
            Op::Refused => self.refused(),
            Op::Reset(to) => self.reset(to),
            Op::Retain(count) => self.log_start = (self.log_start + count).min(self.model.log_end),
            Op::Crash(keep) => self.crash(keep),
        }
    }

    pub(super) fn reset(&mut self, to: u64) {
        // A reset has the turn: no write is running.
        if self.flight.is_some() {
            return;
        }
        let to = self.log_start + to % (self.model.log_end - self.log_start + 1);
        self.model.epoch += 1;
        let epoch = SubscriptionEpoch::new(self.model.epoch);
        self.queue.reset(epoch, offset(to));
        let disk = Disk {
            epoch,
            committed: offset(to),
            ..Disk::default()
        };
        let stored = Stored {
            settled: (self.model.floor..to).collect(),
            ..Stored::default()
        };
        self.disks = vec![(disk, stored)];
        self.begin(to);
        self.acks_synced = self.acks;
        self.acks_committed = self.acks;
    }

    pub(super) fn begin(&mut self, base: u64) {
        self.model.base = base;
        self.model.settled.clear();
        self.model.slots.clear();
        self.model.rows.clear();
        self.staged.clear();
    }

    pub(super) fn crash(&mut self, keep: usize) {
        let (disk, stored) = self.disks.swap_remove(keep % self.disks.len());
        self.model.run += 1;
        self.flight = None;
        self.reserved.clear();
        self.model.found_end = self.model.log_end;
        let restored = disk.restored(self.model.ordered, self.model.log_end);
        self.queue = LeaseQueue::restore(restored, run(self.model.run));
        let base = disk.committed.get();
        self.begin(base);
        self.model.settled = stored.settled.range(base..).copied().collect();
        self.model.rows = stored.rows.clone();
        self.disks = vec![(disk, stored)];
        (self.acks, self.acks_committed, self.acks_synced) = (0, 0, 0);
    }

    /// What must hold after each step.
    pub(super) fn check(&self) {
        let (queue, model) = (&self.queue, &self.model);
        assert_eq!(queue.gate().get(), model.first_open());
        assert!(queue.committed() <= queue.gate() && queue.gate() <= queue.next());
        let mut counts = Counts::default();
        for place in queue.gate().get()..queue.next().get() {
            let state = queue.state(offset(place));
            let Some(slot) = model.slots.get(&place) else {
                assert!(model.is_settled(place), "{place} is in no state");
                assert!(
                    queue.pages.is_settled(offset(place)),
                    "{place} is {state:?}"
                );
                continue;
            };
            let is_same = matches!(
                (&slot.is, state),
                (Is::Ready, Some(SlotState::Ready))
                    | (Is::Held, Some(SlotState::Held))
                    | (Is::Reserved, Some(SlotState::Reserved))
                    | (Is::Out(_), Some(SlotState::Buffered(_)))
                    | (Is::Staged(_), Some(SlotState::Staged(_)))
            );
            assert!(is_same, "{place} is {state:?} and should be {:?}", slot.is);
            match &slot.is {
                Is::Reserved => counts.reserved += 1,
                Is::Out(_) => counts.buffered += 1,
                Is::Staged(_) => counts.staged += 1,
                Is::Ready | Is::Held => {}
            }
        }
        assert!(model.slots.keys().all(|place| *place < queue.next().get()));
        assert_eq!(queue.counts(), counts);
        assert_eq!(queue.acks(), self.acks);
        assert_eq!(queue.acks_durable(), self.acks_synced);
        // What is out has a look, so that it is not forgotten.
        let is_out = model
            .slots
            .values()
            .any(|slot| matches!(slot.is, Is::Out(_)));
        assert!(!is_out || queue.next_look().is_some());
        let (disk, stored) = self.disks.last().expect("there is one");
        assert!(disk.committed.get() <= model.lowest_open(stored));
    }

    /// Without faults, everything that is open comes to an end.
    pub(super) fn finish(mut self) {
        self.refused();
        while !self.staged.is_empty() {
            self.unstage(0);
        }
        while !self.reserved.is_empty() {
            self.release(0);
        }
        for _ in 0..1_000 {
            self.reserve(100);
            self.reserve_if_ordered();
            while !self.reserved.is_empty() {
                self.lease(0, 1);
            }
            self.now += 40_000;
            for lease in self.queue.sweep(at(self.now), 1_000) {
                let place = lease.checkpoint.identity.offset;
                self.queue.unstage(place, at(self.now));
                // Nobody else ends it.
                let acked = self.queue.ack(&lease.checkpoint.identity);
                assert!(matches!(acked, Ack::Done(_)), "{place} is {acked:?}");
                self.model.settle(place.get());
            }
            self.acks = self.queue.acks();
            self.plan(false, 0);
            self.settled(true);
            self.check();
            if self.model.first_open() == self.model.log_end {
                assert!(self.queue.is_idle());
                return;
            }
        }
        panic!("{:?} are never settled", self.model.slots);
    }

    pub(super) fn reserve_if_ordered(&mut self) {
        while self.model.ordered && !self.model.next_batch(100).is_empty() {
            self.reserve_group(100);
        }
    }
}
