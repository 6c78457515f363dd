//! What receives and consumers do, to the machine and to the model.

use super::{
    model::{Answer, GROUPS, Is, Lease, Slot},
    world::World,
    *,
};

impl World {
    /// Retention passes what nobody has a lease of, and what waits to be read.
    pub(super) fn pass_removed(&mut self) {
        if self.model.first_open() >= self.log_start {
            return;
        }
        let slots = &self.model.slots;
        let is_passed = |offset: &u64| match slots.get(offset) {
            None => !self.model.is_settled(*offset),
            Some(slot) => slot.is == Is::Ready,
        };
        let passed: Vec<u64> = (self.model.base..self.log_start)
            .filter(is_passed)
            .collect();
        for offset in passed {
            self.model.settle(offset);
        }
    }

    pub(super) fn reserve(&mut self, count: usize) {
        self.pass_removed();
        let expected = self.model.next_ready(count);
        let reserved = self.queue.reserve(count, self.bounds());
        assert_eq!(reserved.offsets, offsets(expected.clone()));
        for offset in &expected {
            let attempt = self.model.rows.get(offset).map_or(1, |row| row.attempt);
            let slot = self.model.slots.entry(*offset).or_insert(Slot {
                is: Is::Ready,
                generation: 0,
                attempt,
                read: false,
            });
            slot.is = Is::Reserved;
        }
        if self.model.ordered {
            self.admit(reserved);
        } else {
            self.reserved.push(reserved);
        }
    }

    pub(super) fn admit(&mut self, reserved: Reservation) {
        for offset in reserved.offsets {
            let group = offset.get() % GROUPS;
            self.queue
                .admit(reserved.epoch, offset, group, at(self.now));
            let row = self.model.rows.get(&offset.get());
            let slot = self.model.slots.get_mut(&offset.get()).expect("reserved");
            slot.read = true;
            slot.is = match row.and_then(|row| row.due.map(|due| (row, due))) {
                Some((row, due)) => Is::Out(Lease {
                    identity: row.identity,
                    due: due.max(self.now),
                    delivered: self.now,
                    attempt: row.attempt,
                }),
                None => Is::Held,
            };
        }
    }

    pub(super) fn reserve_group(&mut self, count: usize) {
        let expected = self.model.next_batch(count);
        let reserved = self.queue.reserve_group(count, None);
        assert_eq!(reserved.offsets, offsets(expected.clone()));
        for offset in expected {
            self.model.slots.get_mut(&offset).expect("held").is = Is::Reserved;
        }
        self.reserved.push(reserved);
    }

    pub(super) fn take_reserved(&mut self, which: usize) -> Option<Reservation> {
        let index = which.checked_rem(self.reserved.len())?;
        Some(self.reserved.remove(index))
    }

    pub(super) fn still_reserved(&self, reserved: &Reservation) -> Vec<u64> {
        let is_current = reserved.epoch.get() == self.model.epoch;
        let offsets = reserved.offsets.iter().map(|offset| offset.get());
        let still = offsets.filter(|offset| {
            let slot = self.model.slots.get(offset);
            is_current && slot.is_some_and(|slot| slot.is == Is::Reserved)
        });
        still.collect()
    }

    pub(super) fn release(&mut self, which: usize) {
        let Some(reserved) = self.take_reserved(which) else {
            return;
        };
        for offset in self.still_reserved(&reserved) {
            self.make_ready(offset);
        }
        self.queue.release(reserved.epoch, reserved.offsets);
    }

    pub(super) fn make_ready(&mut self, offset: u64) {
        let slot = self.model.slots.get_mut(&offset).expect("it is open");
        slot.is = if slot.read { Is::Held } else { Is::Ready };
    }

    pub(super) fn skip(&mut self, which: usize) {
        let Some(reserved) = self.take_reserved(which) else {
            return;
        };
        for offset in self.still_reserved(&reserved) {
            self.model.settle(offset);
        }
        self.queue.skip(reserved.epoch, reserved.offsets);
    }

    pub(super) fn lease(&mut self, which: usize, hide: u64) {
        let Some(reserved) = self.take_reserved(which) else {
            return;
        };
        let expected = self.still_reserved(&reserved);
        let terms = Terms {
            now: at(self.now),
            invisible_for: Duration::from_millis(hide),
            ..terms(0)
        };
        let granted = self.queue.lease(reserved.epoch, &reserved.offsets, &terms);
        let places = granted.iter().map(|lease| lease.identity.offset.get());
        assert_eq!(places.collect::<Vec<_>>(), expected);
        for lease in granted {
            let offset = lease.identity.offset.get();
            let slot = self.model.slots.get_mut(&offset).expect("reserved");
            slot.generation += 1;
            assert_eq!(lease.identity.generation, Generation::new(slot.generation));
            assert_eq!(lease.attempt, slot.attempt);
            slot.is = Is::Out(Lease {
                identity: lease.identity,
                due: self.now + hide,
                delivered: self.now,
                attempt: slot.attempt,
            });
            self.handles.push(lease.identity);
        }
    }

    pub(super) fn handle(&self, which: usize) -> Option<DeliveryIdentity> {
        let index = which.checked_rem(self.handles.len())?;
        Some(self.handles[index])
    }

    pub(super) fn ack(&mut self, which: usize) {
        let Some(handle) = self.handle(which) else {
            return;
        };
        let expected = self.model.ask(&handle);
        let answer = match self.queue.ack(&handle) {
            Ack::Done(_) => Answer::Done,
            Ack::Wait => Answer::Wait,
            Ack::Stored => Answer::Stored,
            Ack::Over => Answer::Over,
        };
        assert_eq!(answer, expected, "{handle:?}");
        if expected == Answer::Done {
            self.model.settle(handle.offset.get());
            self.acks += 1;
        }
    }

    pub(super) fn change(&mut self, which: usize, hide: u64) {
        let Some(handle) = self.handle(which) else {
            return;
        };
        let place = handle.offset.get();
        let expected = self.model.ask_change(&handle);
        let hidden = Duration::from_millis(hide);
        let answer = match self.queue.change(&handle, at(self.now), hidden, false) {
            Change::Changed(_) => Answer::Done,
            Change::Wait => Answer::Wait,
            Change::Stored => Answer::Stored,
            Change::Over => Answer::Over,
        };
        assert_eq!(answer, expected, "{handle:?}");
        if expected != Answer::Done {
            return;
        }
        let due = self.now + hide;
        let row = self.model.rows.get_mut(&place);
        match self.model.slots.get_mut(&place) {
            Some(slot) if slot.read || !self.model.ordered => {
                let (delivered, attempt) = match &slot.is {
                    Is::Out(lease) => (lease.delivered, lease.attempt),
                    _ => (self.now, slot.attempt),
                };
                slot.is = Is::Out(Lease {
                    identity: handle,
                    due,
                    delivered,
                    attempt,
                });
            }
            // Not read: it will go on as its row says.
            _ => row.expect("it is of a row").due = Some(due),
        }
    }

    pub(super) fn give_back(&mut self, which: usize) {
        let Some(handle) = self.handle(which) else {
            return;
        };
        let place = handle.offset.get();
        let slot = self.model.slots.get(&place);
        let is_mine = handle.incarnation.get() == self.model.run
            && slot.is_some_and(|slot| handle.generation == Generation::new(slot.generation));
        let expected = match slot.map(|slot| &slot.is) {
            _ if handle.epoch.get() != self.model.epoch => GiveBack::Over,
            _ if self.model.is_settled(place) && self.model.ordered => GiveBack::Over,
            _ if self.model.is_settled(place) => GiveBack::Stored,
            Some(Is::Out(_)) if is_mine => GiveBack::Ready,
            Some(Is::Staged(_)) if is_mine => GiveBack::Wait,
            _ => GiveBack::Over,
        };
        assert_eq!(self.queue.give_back(&handle), expected);
        if expected == GiveBack::Ready {
            let slot = self.model.slots.get_mut(&place).expect("it is out");
            slot.generation += 1;
            self.make_ready(place);
        }
    }
}
