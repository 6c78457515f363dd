//! How a session ends: once, with a last word to the source that is said again until that
//! has heard it.

use super::{Action, Installed, Link, Receiver, Stage};
use crate::{
    ErrorKind, Failure, Mutant, Phase,
    frame::Body,
    machine::{Now, Stop},
};

impl Receiver {
    pub(super) fn stop(&mut self, now: Now, stop: Stop, out: &mut Vec<Action>) {
        match self.stage {
            // The outcome of the commit wins: nobody may be told that it did not happen.
            Stage::Committing if !Mutant::StopDuringCommit.is_on() => {}
            Stage::Told => {}
            // That nobody waits any more does not matter to what the sender must hear.
            Stage::Over if stop != Stop::Closed => {}
            Stage::Over => out.push(Action::Hangup),
            _ => {
                let kind = match stop {
                    Stop::Superseded => ErrorKind::Superseded,
                    Stop::Closed => ErrorKind::Closed,
                    Stop::Cancelled | Stop::Withdrawn => ErrorKind::Cancelled,
                };
                self.fail(now, kind.into(), out);
            }
        }
    }

    pub(super) fn stalled(&mut self, now: Now, out: &mut Vec<Action>) {
        let failure = Failure::from(ErrorKind::Stalled);
        if self.stage != Stage::Committing {
            return self.fail(now, failure, out);
        }
        (self.local, self.repeat) = (None, None);
        self.set_last_word(&failure);
        self.say_last_word(out);
        out.push(Action::Finish(Err((Phase::Committing, failure))));
        self.stage = Stage::Told;
    }

    pub(super) fn fail(&mut self, now: Now, failure: Failure, out: &mut Vec<Action>) {
        if self.stage != Stage::Over {
            self.end(now, Err((self.phase(), failure)), out);
        }
    }

    pub(super) fn end(
        &mut self,
        now: Now,
        outcome: Result<Installed, (Phase, Failure)>,
        out: &mut Vec<Action>,
    ) {
        match &outcome {
            Ok(installed) => {
                let snapshot = installed.seal.snapshot;
                self.last_word = Some(Body::Installed { snapshot });
            }
            Err((_, failure)) => self.set_last_word(failure),
        }
        self.queue.clear();
        self.loading = None;
        if matches!(self.link, Link::Pulling | Link::Streaming) {
            self.say_last_word(out);
        }
        out.push(Action::Finish(outcome));
        self.over(now, out);
    }

    pub(super) fn over(&mut self, now: Now, out: &mut Vec<Action>) {
        self.stage = Stage::Over;
        (self.local, self.peer, self.repeat) = (None, None, None);
        if matches!(self.link, Link::Pulling | Link::Streaming) {
            self.tombstone = Some(now + self.options.tombstone);
        } else {
            out.push(Action::Hangup);
        }
    }

    fn set_last_word(&mut self, failure: &Failure) {
        self.last_word = Some(Body::Abort {
            code: failure.kind.code(),
            text: failure.detail.clone(),
        });
    }

    pub(super) fn say_last_word(&self, out: &mut Vec<Action>) {
        if let Some(body) = self.last_word.clone() {
            self.send(body, out);
        }
    }
}
