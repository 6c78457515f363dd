//! The receiving end: asks, checks every row before it is loaded, switches, and tells.
//!
//! Each wait has a clock: for the peer while it owes us something, for our own side while
//! it is the slow one. Here are its state and its clocks; what our own side does is in
//! `work`, what the source says in `peer`, what a chunk must pass in `intake`, and how it
//! ends in `end`.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use pop_store::Estimate;

use super::{Now, Options, Stop, earliest, pace::Pace, passed};
use crate::{
    Digest, ErrorKind, Failure, Mutant, Phase, Resume, Seal, SessionId, SnapshotRef, StreamId,
    frame::{Body, Frame, Part},
};

mod end;
mod intake;
mod peer;
mod work;

use intake::Intake;

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
        rows: Vec<Part>,
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
    // Until the source is turned to again.
    Pausing,
    Connecting,
    Pulling,
    Streaming,
}

/// Rows that wait to be loaded, as they came: what is kept of each beside its bytes would be
/// more than the memory that small ones were given credit for.
#[derive(Debug)]
struct Chunk {
    rows: Bytes,
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
    // How often a source was lost since rows were last loaded.
    in_vain: u32,
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
    // What a source said about how much it is.
    about: Option<Estimate>,
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
            in_vain: 0,
            queue: VecDeque::new(),
            since_point: 0,
            about: None,
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

    /// What those rows add up to that came before the session began.
    #[must_use]
    pub fn begun(&self) -> Digest {
        self.intake.begun()
    }

    /// About how much all of it is: what the request or a source says.
    #[must_use]
    pub fn about(&self) -> Option<Estimate> {
        self.at.totals.map(|it| it.estimate()).or(self.about)
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
        let loading = self.loading.filter(|_| !self.is_limited());
        self.queue.iter().map(|it| it.bytes).sum::<u64>() + loading.unwrap_or(0)
    }

    /// Whether it waits for its own rate limit.
    fn is_limited(&self) -> bool {
        self.loading.is_some() && self.local.is_none()
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
                Link::Pausing => return self.connect(now, out),
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
        if matches!(self.link, Link::Down | Link::Pausing | Link::Connecting) {
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
