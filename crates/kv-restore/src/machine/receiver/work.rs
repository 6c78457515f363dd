//! What our own side does: it makes room, loads what came, and switches to it.

use super::{Action, Chunk, Installed, Link, Opening, Receiver, Stage};
use crate::{Damage, ErrorKind, Failure, Mutant, Seal, frame::rows, machine::Now};

impl Receiver {
    pub(super) fn start(&mut self, now: Now, out: &mut Vec<Action>) {
        if self.stage == Stage::Fresh {
            self.stage = Stage::Opening;
            self.local = Some(now + self.options.open_within);
            out.push(Action::Open);
        }
    }

    pub(super) fn opened(
        &mut self,
        now: Now,
        result: Result<Opening, Failure>,
        out: &mut Vec<Action>,
    ) {
        if self.stage != Stage::Opening {
            return;
        }
        match result {
            Ok(Opening::Fresh) => self.open(now, out),
            Ok(Opening::Resumed(begun)) => {
                self.intake.begin_behind(begun);
                self.begun = true;
                self.open(now, out);
            }
            Ok(Opening::Installed(seal)) => {
                let already = true;
                self.end(now, Ok(Installed { seal, already }), out);
            }
            Err(failure) => self.fail(now, failure, out),
        }
    }

    fn open(&mut self, now: Now, out: &mut Vec<Action>) {
        self.stage = Stage::Open;
        self.local = None;
        self.connect(now, out);
    }

    /// Gives our own side its next work, if it has none.
    pub(super) fn pump(&mut self, now: Now, out: &mut Vec<Action>) {
        if self.stage != Stage::Open || self.loading.is_some() {
            return;
        }
        if let Some(Chunk { bytes, .. }) = self.queue.front() {
            // The limit may be as low as its operator likes, so that nothing bounds this.
            self.loading = Some(*bytes);
            out.push(Action::Charge(*bytes));
        } else if self.intake.is_complete() {
            self.stage = Stage::Held;
            self.local = Some(now + self.options.hold_within);
            if !self.hold || Mutant::NotHeld.is_on() {
                self.switch(now, out);
            }
        }
    }

    pub(super) fn charged(&mut self, now: Now, out: &mut Vec<Action>) {
        if self.stage == Stage::Open
            && self.is_limited()
            && let Some(Chunk { rows, bytes, after }) = self.queue.pop_front()
        {
            let rows = match rows::parts(&rows) {
                Ok(rows) => rows,
                // It was read before, when it came.
                Err(error) => {
                    let kind = ErrorKind::Corrupt(Damage::Chunk);
                    return self.fail(now, Failure::new(kind, error.to_string()), out);
                }
            };
            self.local = Some(now + self.options.load_within);
            self.since_point += bytes;
            let due = self.since_point >= self.options.checkpoint_bytes;
            let point = after.filter(|_| due);
            if point.is_some() {
                self.since_point = 0;
            }
            out.push(Action::Load { rows, point });
        }
    }

    pub(super) fn loaded(&mut self, now: Now, result: Result<(), Failure>, out: &mut Vec<Action>) {
        let Some(bytes) = self.loading.take().filter(|_| self.stage == Stage::Open) else {
            return;
        };
        self.local = None;
        if let Err(failure) = result {
            return self.fail(now, failure, out);
        }
        self.intake.free(bytes);
        self.in_vain = 0;
        if self.link == Link::Streaming && !self.intake.is_complete() {
            self.repeat(now, out);
        }
        self.pump(now, out);
    }

    pub(super) fn commit(&mut self, now: Now, out: &mut Vec<Action>) {
        self.hold = false;
        if self.stage == Stage::Held {
            self.switch(now, out);
        }
    }

    fn switch(&mut self, now: Now, out: &mut Vec<Action>) {
        self.stage = Stage::Committing;
        self.local = Some(now + self.options.commit_within);
        out.push(Action::Commit(Seal::of(&self.at, self.intake.totals())));
    }

    pub(super) fn committed(
        &mut self,
        now: Now,
        result: Result<(), Failure>,
        out: &mut Vec<Action>,
    ) {
        match self.stage {
            Stage::Committing => {
                let seal = Seal::of(&self.at, self.intake.totals());
                let already = false;
                match result {
                    Ok(()) => self.end(now, Ok(Installed { seal, already }), out),
                    Err(failure) => self.fail(now, failure, out),
                }
            }
            Stage::Told => self.over(now, out),
            _ => {}
        }
    }
}
