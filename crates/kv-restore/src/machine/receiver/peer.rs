//! What the source says and does, and what we say to it: the question, how far we are, and
//! whom we turn to when it is lost.

use super::{
    Action, Chunk, Link, Receiver, Stage,
    intake::{Intake, Taken},
};
use crate::{
    Damage, ErrorKind, Failure, Mutant,
    frame::{AbortCode, Body, Frame},
    machine::Now,
};

impl Receiver {
    pub(super) fn connect(&mut self, now: Now, out: &mut Vec<Action>) {
        self.link = Link::Connecting;
        self.peer = Some(now + self.options.connect_within);
        self.repeat = None;
        out.push(Action::Connect {
            attempt: self.attempt,
            source: self.source(),
        });
    }

    pub(super) fn connected(
        &mut self,
        now: Now,
        attempt: u32,
        result: Result<(), Failure>,
        out: &mut Vec<Action>,
    ) {
        if self.link != Link::Connecting || attempt != self.attempt || self.stage != Stage::Open {
            return;
        }
        match result {
            Ok(()) => {
                self.link = Link::Pulling;
                self.peer = Some(now + self.options.first_frame_within);
                let pending = self.pending_bytes();
                self.intake.begin_stream(pending);
                self.repeat(now, out);
            }
            Err(failure) => self.broken(now, attempt, failure, out),
        }
    }

    pub(super) fn received(&mut self, now: Now, frame: Frame, out: &mut Vec<Action>) {
        if frame.stream.session != self.session {
            // A leftover of an older session.
            out.extend(frame.unknown().map(Action::Send));
            return;
        }
        if matches!(self.stage, Stage::Over | Stage::Told) {
            match frame.body {
                // Both know.
                Body::Abort { .. } if self.stage == Stage::Over => out.push(Action::Hangup),
                Body::Abort { .. } => {}
                _ if Mutant::LastWordSaidOnce.is_on() => {}
                _ => self.say_last_word(out),
            }
            return;
        }
        if frame.stream.attempt != self.attempt
            || !matches!(self.link, Link::Pulling | Link::Streaming)
        {
            return;
        }
        self.link = Link::Streaming;
        match frame.body {
            Body::Offer { totals, about } => {
                let about = totals.map(|it| it.estimate()).or(about);
                self.about = about.or(self.about);
            }
            Body::Alive { limited } => self.limited = limited,
            Body::Chunk { seq, rows, crc } => {
                self.limited = false;
                let bytes = u64::try_from(rows.len()).unwrap_or(u64::MAX);
                let taken = self.intake.chunk(seq, rows, crc);
                self.taken(now, taken, bytes, out);
            }
            Body::End { seq, totals } => {
                let taken = self.intake.end(seq, &totals, self.at.totals.as_ref());
                self.taken(now, taken, 0, out);
            }
            Body::Abort { code, text } => {
                let kind = match code {
                    AbortCode::SourceGone => ErrorKind::SourceGone,
                    AbortCode::ResumeMismatch => ErrorKind::Corrupt(Damage::Resume),
                    code => ErrorKind::PeerAborted(code),
                };
                // It needs no answer: that side is over.
                self.link = Link::Down;
                if code == AbortCode::ResumeMismatch && self.may_begin_anew() {
                    return self.begin_anew(now, out);
                }
                self.lost(now, Failure::new(kind, text), out);
            }
            Body::Pull { .. } | Body::Ack { .. } | Body::Installed { .. } => {
                let failure = Failure::new(ErrorKind::Protocol, "a frame that only receivers send");
                self.refuse(now, failure, out);
            }
        }
    }

    /// Whether what an earlier session left is all that stands against this source.
    fn may_begin_anew(&self) -> bool {
        self.begun
            // A target that gives out the same rows again would do so for ever.
            && !self.anew
            && self.stage == Stage::Open
            && self.loading.is_none()
            && self.queue.is_empty()
    }

    /// Throws away what an earlier session left, and has everything moved.
    fn begin_anew(&mut self, now: Now, out: &mut Vec<Action>) {
        (self.begun, self.anew) = (false, true);
        self.intake = Intake::new(&self.at, self.options.window_bytes);
        self.attempt += 1;
        self.stage = Stage::Opening;
        (self.peer, self.repeat) = (None, None);
        self.local = Some(now + self.options.open_within);
        out.push(Action::Open);
    }

    fn taken(
        &mut self,
        now: Now,
        taken: Result<Taken, Failure>,
        bytes: u64,
        out: &mut Vec<Action>,
    ) {
        match taken {
            Ok(Taken::Rows(rows)) => {
                self.pace.got(bytes);
                let after = self.intake.resume();
                self.queue.push_back(Chunk { rows, bytes, after });
                self.repeat(now, out);
                self.pump(now, out);
            }
            Ok(Taken::End) => {
                self.repeat(now, out);
                self.pump(now, out);
            }
            Ok(Taken::Again) => self.repeat(now, out),
            Err(failure) => self.refuse(now, failure, out),
        }
    }

    /// The source broke the rules, and that ends the session. Once all rows are here and add
    /// up it can say what it likes: the switch may have begun, and its outcome wins.
    fn refuse(&mut self, now: Now, failure: Failure, out: &mut Vec<Action>) {
        if self.intake.is_complete() && !Mutant::SourceEndsCommit.is_on() {
            self.link = Link::Down;
        } else {
            self.fail(now, failure, out);
        }
    }

    pub(super) fn broken(
        &mut self,
        now: Now,
        attempt: u32,
        failure: Failure,
        out: &mut Vec<Action>,
    ) {
        if attempt != self.attempt || matches!(self.link, Link::Down | Link::Pausing) {
            return;
        }
        if self.stage == Stage::Over {
            out.push(Action::Hangup);
            return;
        }
        if Mutant::EarlyEndIsSuccess.is_on() && self.link == Link::Streaming {
            self.intake.claim_complete();
            self.pump(now, out);
        }
        if self.intake.is_complete() || self.stage == Stage::Told {
            // All is here; the sender is not needed for the rest.
            self.link = Link::Down;
            return;
        }
        self.lost(now, failure, out);
    }

    /// This source is lost: turn to the next one, or to it again, or give up.
    pub(super) fn lost(&mut self, now: Now, failure: Failure, out: &mut Vec<Action>) {
        if self.intake.is_complete() || self.stage != Stage::Open {
            self.link = Link::Down;
            return;
        }
        let elsewhere = matches!(
            failure.kind,
            ErrorKind::Transport
                | ErrorKind::Idle
                | ErrorKind::TooSlow
                | ErrorKind::SourceGone
                | ErrorKind::PeerAborted(_)
        );
        let again = match failure.kind {
            // It will not have it later.
            ErrorKind::SourceGone => 0,
            _ => self.options.reconnects,
        };
        let allowed = again.saturating_add(self.sources - 1);
        if !elsewhere || self.in_vain >= allowed {
            return self.fail(now, failure, out);
        }
        self.attempt += 1;
        self.in_vain += 1;
        if self.attempt < self.sources {
            return self.connect(now, out);
        }
        // It was asked before: whoever refuses at once is not asked in a loop.
        let doublings = self.in_vain.saturating_sub(self.sources);
        let pause = self.options.reconnect_after;
        let pause = pause.saturating_mul(1 << doublings.min(6));
        self.link = Link::Pausing;
        (self.peer, self.repeat) = (Some(now + pause), None);
    }

    /// Says what the sender may have missed: the question, or how far we are.
    pub(super) fn repeat(&mut self, now: Now, out: &mut Vec<Action>) {
        let body = match self.link {
            Link::Pulling => Body::Pull {
                at: Box::new((*self.at).clone()),
                resume: self.intake.resume(),
                credit: self.intake.credit(),
                chunk_bytes: self.options.chunk_bytes,
            },
            Link::Streaming => Body::Ack {
                next: self.intake.next(),
                credit: self.intake.credit(),
                limited: self.is_limited(),
            },
            Link::Down | Link::Pausing | Link::Connecting => return,
        };
        if !Mutant::NoKeepAlive.is_on() || self.loading.is_none() && self.stage == Stage::Open {
            self.send(body, out);
        }
        self.repeat = Some(now + self.options.repeat_every);
    }

    pub(super) fn send(&self, body: Body, out: &mut Vec<Action>) {
        let stream = self.stream();
        out.push(Action::Send(Frame { stream, body }));
    }
}
