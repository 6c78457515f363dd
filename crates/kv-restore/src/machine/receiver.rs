//! The receiving end: asks, checks every row before it is loaded, switches, and tells.
//!
//! Each wait has a clock: for the peer while it owes us something, for our own side while
//! it is the slow one. What a chunk must pass is in `intake`.

use std::{collections::VecDeque, sync::Arc};

use super::{Now, Options, Stop, earliest, pace::Pace, passed};
use crate::{
    Digest, ErrorKind, Failure, Mutant, Phase, Resume, Seal, SessionId, SnapshotRef, StreamId,
    frame::{AbortCode, Body, Frame, Row},
};

mod intake;

use intake::{Intake, Taken};

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// The session has its turn.
    Start,
    /// The target made room, or needs none.
    Opened(Result<Opening, Failure>),
    /// The channel of this attempt is there.
    Connected(u32, Result<(), Failure>),
    /// A frame came.
    Received(Frame),
    /// The channel of this attempt ended.
    Broken(u32, Failure),
    /// The rate limit lets the bytes of the last [`Action::Charge`] through.
    Charged,
    /// The rows of the last [`Action::Load`] are loaded.
    Loaded(Result<(), Failure>),
    /// The switch is asked for: see [`Receiver::holding`].
    Commit,
    /// The target was switched. Only an answer counts: until then nobody knows.
    Committed(Result<(), Failure>),
    /// Somebody wants it to end.
    Stop(Stop),
    /// Time went by.
    Tick,
}

/// What the target said when it was asked for room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opening {
    /// It has the snapshot already.
    Installed(Seal),
    /// It made room, and there is nothing in it.
    Fresh,
    /// It has the rows up to here, from an earlier session.
    Resumed(Resume),
}

/// What to do. At most one of `Open`, `Charge`, `Load` and `Commit` is under way.
#[derive(Debug)]
pub enum Action {
    /// Ask what is installed, and make room in the target: other room, if it made some before.
    Open,
    /// Drop the channel, if there is one, and open the one of this attempt to that source.
    Connect {
        /// Which channel of the session.
        attempt: u32,
        /// Which of the session's sources.
        source: usize,
    },
    /// Send a frame on the channel.
    Send(Frame),
    /// Wait until so many bytes may be loaded.
    Charge(u64),
    /// Load rows.
    Load {
        /// The rows.
        rows: Vec<Row>,
        /// Behind them everything is to survive the process, together with this.
        point: Option<Resume>,
    },
    /// Switch the target.
    Commit(Seal),
    /// The session has this outcome. Give staging and permits back and then tell; while a
    /// commit is under way tell at once, and give them back when it has answered.
    Finish(Result<Installed, (Phase, Failure)>),
    /// Nothing is left to be said: drop the channel.
    Hangup,
}

/// A session that came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Installed {
    /// What the target holds.
    pub seal: Seal,
    /// It held it before, and nothing was moved.
    pub already: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Fresh,
    Opening,
    Open,
    // All is loaded, and the switch is not asked for.
    Held,
    Committing,
    // Waiters were told that the commit hangs.
    Told,
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Down,
    Connecting,
    Pulling,
    Streaming,
}

/// Rows that wait to be loaded.
#[derive(Debug)]
struct Chunk {
    rows: Vec<Row>,
    bytes: u64,
    // Where a transfer would go on behind them.
    after: Option<Resume>,
}

/// The state of one receiving session.
#[derive(Debug)]
pub struct Receiver {
    at: Arc<SnapshotRef>,
    session: SessionId,
    sources: u32,
    options: Options,
    stage: Stage,
    hold: bool,
    link: Link,
    attempt: u32,
    intake: Intake,
    queue: VecDeque<Chunk>,
    // Loaded, or being loaded, since the last point.
    since_point: u64,
    // The bytes that are being loaded.
    loading: Option<u64>,
    // Until when our own work must answer, the peer must, and when we repeat ourselves.
    local: Option<Now>,
    peer: Option<Now>,
    repeat: Option<Now>,
    pace: Pace,
    // The target had rows of an earlier session, and they were thrown away.
    begun: bool,
    anew: bool,
    // The source waits for its own rate limit.
    limited: bool,
    tombstone: Option<Now>,
    last_word: Option<Body>,
}

impl Receiver {
    /// A session that has done nothing yet. It may turn to `sources` sources, at least one.
    #[must_use]
    pub fn new(at: Arc<SnapshotRef>, session: SessionId, sources: usize, options: Options) -> Self {
        Self {
            intake: Intake::new(&at, options.window_bytes),
            pace: Pace::new(options.rate_min, options.rate_span),
            at,
            session,
            sources: u32::try_from(sources.max(1)).unwrap_or(u32::MAX),
            options,
            stage: Stage::Fresh,
            hold: false,
            link: Link::Down,
            attempt: 0,
            queue: VecDeque::new(),
            since_point: 0,
            begun: false,
            anew: false,
            limited: false,
            loading: None,
            local: None,
            peer: None,
            repeat: None,
            tombstone: None,
            last_word: None,
        }
    }

    /// The same session, which switches nothing before [`Event::Commit`].
    #[must_use]
    pub fn holding(mut self) -> Self {
        self.hold = true;
        self
    }

    /// How far it has come.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.stage {
            Stage::Fresh => Phase::Queued,
            Stage::Opening => Phase::Opening,
            Stage::Open if self.intake.is_complete() => Phase::Verifying,
            Stage::Open if self.link == Link::Streaming => Phase::Receiving,
            Stage::Open => Phase::Pulling,
            Stage::Held => Phase::Staged,
            Stage::Committing | Stage::Told => Phase::Committing,
            Stage::Over => Phase::Ended,
        }
    }

    /// What the rows that were received add up to.
    #[must_use]
    pub fn totals(&self) -> Digest {
        self.intake.totals()
    }

    /// How often it turned to a source, not counting the first time.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// What it installs.
    #[must_use]
    pub fn at(&self) -> Arc<SnapshotRef> {
        Arc::clone(&self.at)
    }

    /// Its channel.
    #[must_use]
    pub fn stream(&self) -> StreamId {
        StreamId {
            session: self.session,
            attempt: self.attempt,
        }
    }

    /// Which of its sources it turned to last.
    #[must_use]
    pub fn source(&self) -> usize {
        usize::try_from(self.attempt % self.sources).unwrap_or(0)
    }

    /// How many bytes of rows are received and not loaded.
    #[must_use]
    pub fn pending_bytes(&self) -> u64 {
        // What waits for the rate limit is still in the queue.
        let loading = self.loading.filter(|_| self.local.is_some());
        self.queue.iter().map(|it| it.bytes).sum::<u64>() + loading.unwrap_or(0)
    }

    /// When it wants an [`Event::Tick`] at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Now> {
        earliest([
            self.local,
            self.peer,
            self.repeat,
            self.pace.due(),
            self.tombstone,
        ])
    }

    /// Takes what happened and says what to do about it.
    pub fn handle(&mut self, now: Now, event: Event) -> Vec<Action> {
        let mut out = Vec::new();
        let heard = matches!(event, Event::Received(_) | Event::Loaded(_));
        match event {
            Event::Start => self.start(now, &mut out),
            Event::Opened(result) => self.opened(now, result, &mut out),
            Event::Connected(attempt, result) => self.connected(now, attempt, result, &mut out),
            Event::Received(frame) => self.received(now, frame, &mut out),
            Event::Broken(attempt, failure) => self.broken(now, attempt, failure, &mut out),
            Event::Charged => self.charged(now, &mut out),
            Event::Loaded(result) => self.loaded(now, result, &mut out),
            Event::Commit => self.commit(now, &mut out),
            Event::Committed(result) => self.committed(now, result, &mut out),
            Event::Stop(stop) => self.stop(now, stop, &mut out),
            Event::Tick => self.tick(now, &mut out),
        }
        self.set_clocks(now, heard);
        out
    }

    fn start(&mut self, now: Now, out: &mut Vec<Action>) {
        if self.stage == Stage::Fresh {
            self.stage = Stage::Opening;
            self.local = Some(now + self.options.open_within);
            out.push(Action::Open);
        }
    }

    fn opened(&mut self, now: Now, result: Result<Opening, Failure>, out: &mut Vec<Action>) {
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

    fn connect(&mut self, now: Now, out: &mut Vec<Action>) {
        self.link = Link::Connecting;
        self.peer = Some(now + self.options.connect_within);
        self.repeat = None;
        out.push(Action::Connect {
            attempt: self.attempt,
            source: self.source(),
        });
    }

    fn connected(
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

    fn received(&mut self, now: Now, frame: Frame, out: &mut Vec<Action>) {
        if frame.stream.session != self.session {
            // A leftover of an older session: its sender must learn that nobody listens.
            if !matches!(frame.body, Body::Abort { .. }) {
                let body = Body::Abort {
                    code: AbortCode::UnknownSession,
                    text: String::new(),
                };
                out.push(Action::Send(Frame { body, ..frame }));
            }
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
            Body::Offer { .. } => {}
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
                    AbortCode::ResumeMismatch => ErrorKind::Corrupt(crate::Damage::Resume),
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
                self.fail(now, failure, out);
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
            Err(failure) => self.fail(now, failure, out),
        }
    }

    /// Gives our own side its next work, if it has none.
    fn pump(&mut self, now: Now, out: &mut Vec<Action>) {
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

    fn commit(&mut self, now: Now, out: &mut Vec<Action>) {
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

    fn charged(&mut self, now: Now, out: &mut Vec<Action>) {
        if self.stage == Stage::Open
            && self.loading.is_some()
            && self.local.is_none()
            && let Some(Chunk { rows, bytes, after }) = self.queue.pop_front()
        {
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

    fn loaded(&mut self, now: Now, result: Result<(), Failure>, out: &mut Vec<Action>) {
        let Some(bytes) = self.loading.take().filter(|_| self.stage == Stage::Open) else {
            return;
        };
        self.local = None;
        if let Err(failure) = result {
            return self.fail(now, failure, out);
        }
        self.intake.free(bytes);
        if self.link == Link::Streaming && !self.intake.is_complete() {
            self.repeat(now, out);
        }
        self.pump(now, out);
    }

    fn committed(&mut self, now: Now, result: Result<(), Failure>, out: &mut Vec<Action>) {
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

    fn stop(&mut self, now: Now, stop: Stop, out: &mut Vec<Action>) {
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

    fn broken(&mut self, now: Now, attempt: u32, failure: Failure, out: &mut Vec<Action>) {
        if attempt != self.attempt || self.link == Link::Down {
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
    fn lost(&mut self, now: Now, failure: Failure, out: &mut Vec<Action>) {
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
        let attempts = self.options.reconnects.saturating_add(self.sources - 1);
        if !elsewhere || self.attempt >= attempts {
            return self.fail(now, failure, out);
        }
        self.attempt += 1;
        self.connect(now, out);
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Action>) {
        if passed(self.tombstone, now) {
            self.tombstone = None;
            out.push(Action::Hangup);
            return;
        }
        if passed(self.local, now) && !Mutant::NoLocalDeadline.is_on() {
            return self.stalled(now, out);
        }
        if passed(self.peer, now) && !Mutant::NoPeerDeadline.is_on() {
            let what = match self.link {
                Link::Connecting => "it could not be connected",
                Link::Pulling => "it did not answer the first question",
                _ => "it fell silent",
            };
            return self.lost(now, Failure::new(ErrorKind::Idle, what), out);
        }
        if self.pace.is_too_slow(now) && !Mutant::NoRateMin.is_on() {
            return self.lost(now, ErrorKind::TooSlow.into(), out);
        }
        if passed(self.repeat, now) {
            self.repeat(now, out);
        }
    }

    fn stalled(&mut self, now: Now, out: &mut Vec<Action>) {
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

    /// Says what the sender may have missed: the question, or how far we are.
    fn repeat(&mut self, now: Now, out: &mut Vec<Action>) {
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
            },
            Link::Down | Link::Connecting => return,
        };
        if !Mutant::NoKeepAlive.is_on() || self.loading.is_none() && self.stage == Stage::Open {
            self.send(body, out);
        }
        self.repeat = Some(now + self.options.repeat_every);
    }

    fn send(&self, body: Body, out: &mut Vec<Action>) {
        let stream = self.stream();
        out.push(Action::Send(Frame { stream, body }));
    }

    fn fail(&mut self, now: Now, failure: Failure, out: &mut Vec<Action>) {
        if self.stage != Stage::Over {
            self.end(now, Err((self.phase(), failure)), out);
        }
    }

    fn end(
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

    fn over(&mut self, now: Now, out: &mut Vec<Action>) {
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

    fn say_last_word(&self, out: &mut Vec<Action>) {
        if let Some(body) = self.last_word.clone() {
            self.send(body, out);
        }
    }

    /// Whether it is the peer's turn, and nobody else's.
    fn is_waiting_for_peer(&self) -> bool {
        let busy = self.loading.is_some() || !self.queue.is_empty();
        self.stage == Stage::Open
            && self.link == Link::Streaming
            && !self.intake.is_complete()
            && (!busy || Mutant::ClockRunsWhileBusy.is_on())
    }

    /// The clock of the peer runs while it is waited for, and begins anew with what it says
    /// and whenever our own side was the slow one.
    fn set_clocks(&mut self, now: Now, heard: bool) {
        let waiting = self.is_waiting_for_peer();
        if matches!(self.link, Link::Down | Link::Connecting) {
            // Nobody would hear it.
            self.repeat = None;
        }
        if self.link == Link::Streaming || self.link == Link::Down || self.stage != Stage::Open {
            let anew = heard && !Mutant::ClockRunsWhileBusy.is_on();
            self.peer = match (waiting, self.peer) {
                (false, _) => None,
                (true, Some(until)) if !anew => Some(until),
                (true, _) => Some(now + self.options.idle),
            };
        }
        self.pace.run(now, waiting && !self.limited);
    }
}
