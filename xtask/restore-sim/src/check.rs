//! The invariants, I1 to I16 of `docs/RESTORE.md`, as far as they can be broken here.

use kv_restore::{
    ErrorKind, Installed, Request, RestoreError, Seal, Switch, frame::Row, registry::Entered,
};

use crate::world::World;

// What a chunk may have beyond what was asked for: its last row, and the heads of all rows.
const CHUNK_BEYOND: u64 = 200;

impl World {
    /// After every step.
    pub fn check(&mut self) {
        self.check_waits();
        self.check_handles();
    }

    /// I1: whoever lives waits for something that will come. I11: memory is bounded.
    fn check_waits(&mut self) {
        let mut violation = None;
        for (n, task) in self.tasks.iter().enumerate().filter(|(_, it)| !it.over) {
            if task.deadline().is_none() && !task.is_under_way() {
                violation = Some(format!("I1: task {n} waits for nothing: {:?}", task.core));
            }
            let bound = self.plan.options.window_bytes + task.largest_chunk;
            if task.core.pending_bytes() > bound {
                let pending = task.core.pending_bytes();
                violation = Some(format!(
                    "I11: task {n} holds {pending} bytes, the bound is {bound}"
                ));
            }
        }
        for (n, dump) in self.dumps.iter().enumerate().filter(|(_, it)| !it.over) {
            if dump.deadline().is_none() && !dump.is_under_way() {
                violation = Some(format!("I1: dump {n} waits for nothing: {:?}", dump.core));
            }
            let chunk = u64::from(self.plan.options.chunk_bytes) + CHUNK_BEYOND;
            let bound = self.plan.options.window_bytes + chunk;
            let pending = dump.core.pending_bytes();
            if pending > bound {
                violation = Some(format!(
                    "I11: dump {n} keeps {pending} bytes, the bound is {bound}"
                ));
            }
        }
        if let Some(violation) = violation {
            self.fail(violation);
        }
    }

    /// I2: each handle is answered in its time. I3: the slot holds nobody who has ended.
    fn check_handles(&mut self) {
        let now = self.now;
        self.handles.retain(|it| it.session.ended().is_none());
        if let Some(late) = self.handles.iter().find(|it| it.until <= now) {
            let id = late.session.id();
            return self.fail(format!("I2: who waits for {id} was not answered"));
        }
        if let Some(live) = self.registry.live() {
            let told = self.live_task().and_then(|n| self.tasks.get(n));
            if told.is_none_or(|it| it.told.is_some()) {
                self.fail(format!("I3: {live} is in the slot and has ended"));
            }
        }
    }

    /// I3, I9, I15: what a request was given.
    pub fn check_entered(
        &mut self,
        live: Option<usize>,
        request: &Request,
        entered: &Result<Entered, RestoreError>,
    ) {
        let kind = entered.as_ref().err().map(RestoreError::kind);
        if request.at.epoch < self.epoch {
            if kind != Some(ErrorKind::StaleEpoch) {
                self.fail(format!(
                    "I9: a higher epoch has spoken, and it was {kind:?}"
                ));
            }
            return;
        }
        let Some(live) = live.and_then(|n| self.tasks.get(n)) else {
            if let Err(error) = entered {
                self.fail(format!("I14: refused without a reason: {error}"));
            }
            return;
        };
        let (old, new) = (&live.at, &request.at);
        let stops = live.asked.stop.borrow().is_some();
        let expected = if new.epoch == old.epoch && new.applied < old.applied {
            Some(ErrorKind::Obsolete)
        } else {
            None
        };
        let shared = match entered {
            Ok(Entered::Shared(session)) => Some((session.id(), session.ended().is_some())),
            _ => None,
        };
        let same = live.request == *request && !stops;
        let id = live.core.stream().session;
        if kind != expected {
            self.fail(format!("I9: expected {expected:?}, and it was {kind:?}"));
        } else if same != shared.is_some() || shared.is_some_and(|it| it.0 != id) {
            self.fail(format!(
                "I15: the same request is {same}, and it shares {shared:?}"
            ));
        } else if shared.is_some_and(|it| it.1) {
            self.fail("I3: a session that has ended was handed out".to_owned());
        }
    }

    /// A row is loaded only if it is the next one of the snapshot.
    pub fn check_load(&mut self, n: usize, rows: &[Row]) {
        self.check_staging(n, "load");
        let Some(task) = self.tasks.get(n) else {
            return;
        };
        let loaded = task.staged.as_ref().map_or(0, Vec::len);
        let id = usize::try_from(task.at.id.0).unwrap_or(0);
        let Some(all) = self.plan.rows.get(id.wrapping_sub(1)) else {
            return;
        };
        let next = all.get(loaded..loaded + rows.len());
        // A source that leaves rows out can't be noticed before the end.
        if next != Some(rows) && !is_within(rows, all) {
            self.fail(format!(
                "task {n} loads what is not the snapshot's: {rows:?}"
            ));
        } else if next != Some(rows) && !task.corrupted {
            self.fail(format!("task {n} loads other rows than the next: {rows:?}"));
        }
    }

    /// I7: only who has a staging open touches it.
    pub fn check_staging(&mut self, n: usize, what: &str) {
        if self.target.staging != Some(n) {
            let owner = self.target.staging;
            self.fail(format!(
                "I7: {what} of task {n}, and the staging is {owner:?}'s"
            ));
        }
    }

    /// What is held is switched to only when it was asked for.
    pub fn check_asked(&mut self, n: usize) {
        let waits = |it: &crate::task::Task| it.request.hold && !*it.asked.commit.borrow();
        if self.tasks.get(n).is_some_and(waits) {
            self.fail(format!("I16: task {n} switches, and nobody asked for it"));
        }
    }

    /// What a session says of itself is so.
    pub fn check_outcome(&mut self, n: usize, outcome: &Result<Installed, ErrorKind>) {
        let Some(task) = self.tasks.get(n) else {
            return;
        };
        let id = usize::try_from(task.at.id.0).unwrap_or(0);
        let violation = match outcome {
            Ok(installed) => {
                let rows = self.plan.rows.get(id.wrapping_sub(1));
                let sealed = self.target.seal.as_ref() == Some(&installed.seal);
                if !sealed || installed.seal.snapshot != task.at.id {
                    Some("I5: Ok, and the seal says something else".to_owned())
                } else if rows.is_none_or(|rows| **rows != *self.target.rows) {
                    Some("I8: Ok, and the rows are not those of the snapshot".to_owned())
                } else {
                    self.installed += 1;
                    self.target.promised = Some(installed.seal.clone());
                    None
                }
            }
            Err(kind) => self.wrong_reason(n, *kind),
        };
        if let Some(violation) = violation {
            self.fail(format!("task {n}: {violation}"));
        }
    }

    /// I5, after a crash: what was said to be there is there, or what was installed since.
    pub fn check_promised(&mut self) {
        let place = |it: &Seal| (it.epoch, it.applied);
        let promised = self.target.promised.as_ref().map(place);
        let found = self.target.seal.as_ref().map(place);
        if found < promised {
            self.fail(format!(
                "I5: {promised:?} was installed, and a crash left {found:?}"
            ));
        }
    }

    fn wrong_reason(&self, n: usize, kind: ErrorKind) -> Option<String> {
        let task = self.tasks.get(n)?;
        let doubt = ErrorKind::Commit(Switch::InDoubt);
        if task.switched && kind != doubt && kind != ErrorKind::TaskLost {
            return Some(format!("I6: {kind:?}, and the target was switched"));
        }
        if matches!(kind, ErrorKind::Corrupt(_)) && !task.corrupted {
            return Some(format!("{kind:?}, and nothing was changed on the way"));
        }
        let from_outside = matches!(
            kind,
            ErrorKind::Superseded
                | ErrorKind::Cancelled
                | ErrorKind::Closed
                | ErrorKind::Busy
                | ErrorKind::Obsolete
                | ErrorKind::StaleEpoch
        );
        // Nobody decided.
        let left_alone = task.request.hold && kind == ErrorKind::Stalled;
        if !from_outside && !left_alone && !task.disturbed {
            return Some(format!("it failed undisturbed: {kind:?}"));
        }
        None
    }

    /// I13: the sender learns how it ended, also if one frame got lost.
    pub fn check_dump(&mut self, n: usize) {
        let Some(dump) = self.dumps.get(n) else {
            return;
        };
        let Some(channel) = self.channels.get(dump.channel) else {
            return;
        };
        let told = self.tasks.get(channel.task).and_then(|it| it.told.as_ref());
        let installed = matches!(told, Some(Ok(_)));
        match dump.finished {
            Some(Ok(_)) if !installed => {
                self.fail(format!("I13: dump {n} ended Ok, its receiver: {told:?}"));
            }
            Some(Err(ErrorKind::Idle)) if installed && channel.lost <= 1 && !channel.cut => {
                self.fail(format!("I13: dump {n} was not told of the success"));
            }
            _ => {}
        }
    }

    /// A closed registry refuses.
    pub fn check_closed(&mut self) {
        let request = Request {
            at: std::sync::Arc::new(crate::plan::snapshot(1, 99)),
            sources: [crate::plan::peer(0)].into(),
            hold: false,
        };
        let id = kv_restore::SessionId(u128::from(self.next_id()));
        let refused = self.registry.enter(request, id);
        if !matches!(&refused, Err(error) if error.kind() == ErrorKind::Closed) {
            self.fail(format!("closed, and it answered {refused:?}"));
        }
    }

    /// I10, I13: nothing is left of any session.
    pub fn check_quiet(&mut self) {
        let handles = self.handles.len();
        let tasks = self.tasks.iter().filter(|it| !it.over).count();
        let dumps = self.dumps.iter().filter(|it| !it.over).count();
        let left = (
            handles,
            tasks,
            dumps,
            self.turn,
            self.line.len(),
            self.target.staging,
        );
        if left != (0, 0, 0, None, 0, None) || self.registry.live().is_some() {
            self.fail(format!(
                "I10: left over: handles, tasks, dumps, turn, line, staging: {left:?}"
            ));
        }
    }
}

fn is_within(rows: &[Row], all: &[Row]) -> bool {
    rows.iter().all(|row| all.contains(row))
}
