//! The sending end: reads what there is credit for, and waits until it hears that the
//! content is installed; for that it needs no snapshot any more.

use std::{collections::VecDeque, sync::Arc};

use bytes::{Bytes, BytesMut};
use pop_store::Estimate;

use super::{Now, Options, Stop, earliest, passed};
use crate::{
    Digest, ErrorKind, Failure, Mutant, Resume, SnapshotRef, StreamId, digest,
    frame::{
        AbortCode, Body, Frame, Part,
        rows::{RowsWriter, chunk_bytes},
    },
};

// A receiver may ask for chunks that are smaller than what it takes to keep one.
const UNACKED_MAX: usize = 1_024;

/// What a receiver asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// On which channel.
    pub stream: StreamId,
    /// The snapshot.
    pub at: Arc<SnapshotRef>,
    /// Only what lies behind this.
    pub resume: Option<Resume>,
    /// How many bytes of rows may be under way.
    pub credit: u64,
    /// About how many bytes of rows a chunk should have.
    pub chunk_bytes: u32,
}

impl Request {
    /// What a frame asks for, if it asks for anything.
    #[must_use]
    pub fn of(frame: Frame) -> Option<Self> {
        let Body::Pull {
            at,
            resume,
            credit,
            chunk_bytes,
        } = frame.body
        else {
            return None;
        };
        Some(Self {
            stream: frame.stream,
            at: Arc::new(*at),
            resume,
            credit,
            chunk_bytes: chunk_bytes.clamp(1, Options::CHUNK_BYTES_MAX),
        })
    }
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// The session has its turn.
    Start,
    /// The snapshot is pinned, and the rows up to the resumed start are counted so far; or
    /// it is not here.
    Opened(Result<Option<Counted>, Failure>),
    /// The next rows, none of them at the end.
    Read(Result<Vec<Part>, Failure>),
    /// The rate limit lets the bytes of the last [`Action::Charge`] through.
    Charged,
    /// A frame came.
    Received(Frame),
    /// The channel ended.
    Broken(Failure),
    /// Somebody wants it to end.
    Stop(Stop),
    /// Time went by.
    Tick,
}

/// How far the rows up to a resumed start are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// What they add up to so far.
    pub totals: Digest,
    /// Whether these are all.
    pub all: bool,
}

/// What to do. At most one of `Open`, `Count`, `Read` and `Charge` is under way.
#[derive(Debug)]
pub enum Action {
    /// Pin the snapshot, once there is room for a session.
    Open,
    /// Count some more of the rows up to the resumed start.
    Count,
    /// Read on, about so many bytes.
    Read(usize),
    /// Wait until so many bytes may be sent, or more be counted.
    Charge(u64),
    /// Send a frame on the channel.
    Send(Frame),
    /// The receiver has all rows: let the snapshot and its room go. What the session waits
    /// for from here on is the outcome.
    Release,
    /// The session is over: let the snapshot go.
    Finish(Result<Digest, Failure>),
    /// Nothing is left to be said: drop the channel.
    Hangup,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Fresh,
    Opening,
    Streaming,
    // The receiver has all rows.
    Taken,
    Over,
}

/// What our own side is doing.
#[derive(Debug)]
enum Work {
    Open,
    Count,
    // It waits for the rate limit before it counts on.
    ChargeCount,
    Read,
    Charge(Bytes),
}

/// How far a session has come: whatever of it grows is progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Far {
    /// Rows that were read to be sent.
    pub(crate) rows: u64,
    /// Bytes of those that the rate limit has let through.
    pub(crate) bytes: u64,
    /// The lowest number that the receiver has not acknowledged.
    pub(crate) acked: u64,
    /// Bytes of rows that the receiver has from before, as far as they are counted.
    pub(crate) counted: u64,
}

/// The state of one sending session.
#[derive(Debug)]
pub struct Sender {
    request: Request,
    seeds: Vec<u64>,
    options: Options,
    stage: Stage,
    work: Option<Work>,
    credit: u64,
    rows: u64,
    sent: u64,
    next: u64,
    // What was sent and not acknowledged, with its number.
    unacked: VecDeque<(u64, Body)>,
    unacked_bytes: u64,
    // Before a resumed start, in bytes.
    counted: u64,
    // The memory of a chunk that was acknowledged, for the next one.
    spent: Option<BytesMut>,
    // The oldest of them when we last looked: if it is still there, it may be lost.
    stale: Option<u64>,
    totals: Digest,
    about: Option<Estimate>,
    ended: bool,
    local: Option<Now>,
    peer: Option<Now>,
    // Until when the receiver must have taken something, or said the outcome.
    taken: Option<Now>,
    repeat: Option<Now>,
    tombstone: Option<Now>,
    last_word: Option<Body>,
}

impl Sender {
    /// A session that has done nothing yet.
    #[must_use]
    pub fn new(request: Request, options: Options) -> Self {
        Self {
            seeds: request
                .at
                .keyspaces
                .iter()
                .map(|it| digest::seed(it))
                .collect(),
            credit: request.credit,
            request,
            options,
            stage: Stage::Fresh,
            work: None,
            rows: 0,
            sent: 0,
            next: 0,
            unacked: VecDeque::new(),
            unacked_bytes: 0,
            counted: 0,
            spent: None,
            stale: None,
            totals: Digest::default(),
            about: None,
            ended: false,
            local: None,
            peer: None,
            taken: None,
            repeat: None,
            tombstone: None,
            last_word: None,
        }
    }

    /// About how much the snapshot has, to be told to the receiver: before
    /// [`Event::Opened`].
    pub fn set_about(&mut self, about: Option<Estimate>) {
        self.about = about;
    }

    /// What it was asked for.
    #[must_use]
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// What the rows that were read add up to, and those before a resumed start.
    #[must_use]
    pub fn totals(&self) -> Digest {
        self.totals
    }

    /// How far it has come.
    pub(crate) fn far(&self) -> Far {
        Far {
            rows: self.rows,
            bytes: self.sent,
            acked: self.unacked.front().map_or(self.next, |(seq, _)| *seq),
            counted: self.counted,
        }
    }

    /// How many bytes of rows it keeps, because they may have to be sent again.
    #[must_use]
    pub fn pending_bytes(&self) -> u64 {
        self.unacked_bytes
    }

    /// When it wants an [`Event::Tick`] at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Now> {
        earliest([
            self.local,
            self.peer,
            self.taken,
            self.repeat,
            self.tombstone,
        ])
    }

    /// Takes what happened and says what to do about it.
    pub fn handle(&mut self, now: Now, event: Event) -> Vec<Action> {
        let mut out = Vec::new();
        let heard = matches!(event, Event::Received(_));
        match event {
            Event::Start if self.stage == Stage::Fresh => {
                self.stage = Stage::Opening;
                self.work(Work::Open, now, &mut out, Action::Open);
                self.repeat = Some(now + self.options.repeat_every);
            }
            Event::Start => {}
            Event::Opened(result) => self.opened(now, result, &mut out),
            Event::Read(result) => self.read(now, result, &mut out),
            Event::Charged => self.charged(now, &mut out),
            Event::Received(frame) => self.received(now, frame, &mut out),
            Event::Broken(failure) => {
                self.end(now, Err(failure), None, &mut out);
                out.push(Action::Hangup);
            }
            Event::Stop(stop) => self.stop(now, stop, &mut out),
            Event::Tick => self.tick(now, &mut out),
        }
        self.set_clocks(now, heard);
        out
    }

    fn work(&mut self, work: Work, now: Now, out: &mut Vec<Action>, action: Action) {
        self.local = match work {
            Work::Open => Some(now + self.options.open_within),
            // Each part has its own time: however much it is, it comes to its end.
            Work::Count | Work::Read => Some(now + self.options.load_within),
            // The limit may be as low as its operator likes.
            Work::ChargeCount | Work::Charge(_) => None,
        };
        self.work = Some(work);
        out.push(action);
    }

    fn opened(
        &mut self,
        now: Now,
        result: Result<Option<Counted>, Failure>,
        out: &mut Vec<Action>,
    ) {
        if self.stage != Stage::Opening {
            return;
        }
        (self.work, self.local) = (None, None);
        let before = match result {
            Ok(Some(counted)) if !counted.all => {
                let all = counted.totals.bytes();
                let more = all.saturating_sub(self.counted);
                self.counted = all;
                if !self.options.limit_counting {
                    return self.work(Work::Count, now, out, Action::Count);
                }
                return self.work(Work::ChargeCount, now, out, Action::Charge(more));
            }
            Ok(Some(counted)) => counted.totals,
            Ok(None) => return self.fail(now, ErrorKind::SourceGone.into(), out),
            Err(failure) => return self.fail_reading(now, failure, out),
        };
        let wanted = self.request.resume.as_ref().map(|resume| resume.totals);
        if before != wanted.unwrap_or_default() && !Mutant::ResumeNotCompared.is_on() {
            let kind = ErrorKind::Corrupt(crate::Damage::Resume);
            return self.fail(now, kind.into(), out);
        }
        self.totals = before;
        self.stage = Stage::Streaming;
        self.offer(out);
        self.pump(now, out);
    }

    fn offer(&self, out: &mut Vec<Action>) {
        let totals = self.request.at.totals;
        let about = self.about;
        self.send(Body::Offer { totals, about }, out);
    }

    /// Gives our own side its next work, if it has none and there is credit.
    fn pump(&mut self, now: Now, out: &mut Vec<Action>) {
        let has_credit = self.sent < self.credit || Mutant::CreditIgnored.is_on();
        // What may have to be sent again is kept, and a receiver that says that it takes
        // everything and takes nothing must not fill our memory.
        let has_room = self.unacked_bytes < self.options.window_bytes
            && self.unacked.len() < UNACKED_MAX
            || self.unacked.is_empty()
            || Mutant::FlightNotBounded.is_on();
        let may_send = has_credit && has_room;
        if self.stage == Stage::Streaming && self.work.is_none() && !self.ended && may_send {
            // What the receiver asks for, and no more than this side reads in one go.
            let bytes = self.request.chunk_bytes.min(self.options.chunk_bytes);
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            self.work(Work::Read, now, out, Action::Read(bytes));
        }
    }

    fn read(&mut self, now: Now, result: Result<Vec<Part>, Failure>, out: &mut Vec<Action>) {
        if self.stage != Stage::Streaming || !matches!(self.work, Some(Work::Read)) {
            return;
        }
        (self.work, self.local) = (None, None);
        let parts = match result {
            Ok(parts) => parts,
            Err(failure) => return self.fail_reading(now, failure, out),
        };
        let count: usize = parts.iter().map(|it| it.rows.len()).sum();
        if count == 0 {
            self.ended = true;
            let (seq, totals) = (self.next, self.totals);
            self.enqueue(Body::End { seq, totals }, out);
            return;
        }
        self.rows += u64::try_from(count).unwrap_or(u64::MAX);
        // An eighth more at most: what is kept until it is acknowledged is counted by its length.
        let mut writer = RowsWriter::new(chunk_bytes(&parts), self.spent.take());
        for part in &parts {
            let seed = self.seeds.get(usize::from(part.keyspace));
            writer.add(part, seed.copied().unwrap_or_default(), &mut self.totals);
        }
        let rows = writer.finish();
        let bytes = u64::try_from(rows.len()).unwrap_or(u64::MAX);
        self.work(Work::Charge(rows), now, out, Action::Charge(bytes));
    }

    fn charged(&mut self, now: Now, out: &mut Vec<Action>) {
        let rows = match self.work.take() {
            Some(Work::Charge(rows)) => rows,
            Some(Work::ChargeCount) => return self.work(Work::Count, now, out, Action::Count),
            other => return self.work = other,
        };
        self.sent += u64::try_from(rows.len()).unwrap_or(u64::MAX);
        let (seq, crc) = (self.next, crc32c::crc32c(&rows));
        self.enqueue(Body::Chunk { seq, rows, crc }, out);
        self.pump(now, out);
    }

    fn enqueue(&mut self, body: Body, out: &mut Vec<Action>) {
        self.unacked_bytes += bytes_of(&body);
        self.unacked.push_back((self.next, body.clone()));
        self.next += 1;
        self.send(body, out);
    }

    fn received(&mut self, now: Now, frame: Frame, out: &mut Vec<Action>) {
        if frame.stream != self.request.stream {
            out.extend(frame.unknown().map(Action::Send));
            return;
        }
        if self.stage == Stage::Over {
            match frame.body {
                // Both know.
                Body::Abort { .. } | Body::Installed { .. } => out.push(Action::Hangup),
                _ => self.say_last_word(out),
            }
            return;
        }
        match frame.body {
            Body::Ack {
                next,
                credit,
                limited,
            } => {
                let taken = self.acked(now, next, credit, out);
                // With all rows it owes the outcome alone: neither credit nor its limit puts
                // that off.
                if (taken || limited) && self.stage == Stage::Streaming {
                    self.taken = None;
                }
            }
            Body::Pull { at, resume, .. } => {
                if *at != *self.request.at || resume != self.request.resume {
                    return self.fail(now, protocol("another snapshot in the same session"), out);
                }
                if self.stage == Stage::Streaming {
                    self.offer(out);
                }
            }
            Body::Installed { .. } if self.ended => {
                self.end(now, Ok(self.totals), None, out);
                out.push(Action::Hangup);
            }
            Body::Abort { code, text } => {
                let failure = Failure::new(ErrorKind::PeerAborted(code), text);
                self.end(now, Err(failure), None, out);
                out.push(Action::Hangup);
            }
            _ => self.fail(now, protocol("a frame that only senders send"), out),
        }
    }

    /// Whether the receiver took something, or asks for more.
    fn acked(&mut self, now: Now, next: u64, credit: u64, out: &mut Vec<Action>) -> bool {
        if next > self.next {
            self.fail(now, protocol("what was not sent is acknowledged"), out);
            return false;
        }
        let before = (self.unacked.len(), self.credit);
        while self.unacked.front().is_some_and(|(seq, _)| *seq < next)
            && let Some((_, body)) = self.unacked.pop_front()
        {
            self.unacked_bytes -= bytes_of(&body);
            if let Body::Chunk { rows, .. } = body {
                self.spent = rows.try_into_mut().ok();
            }
        }
        self.credit = self.credit.max(credit);
        let taken = before != (self.unacked.len(), self.credit);
        if self.stage == Stage::Streaming && self.ended && self.unacked.is_empty() {
            (self.stage, self.taken) = (Stage::Taken, None);
            out.push(Action::Release);
        }
        self.pump(now, out);
        taken
    }

    fn stop(&mut self, now: Now, stop: Stop, out: &mut Vec<Action>) {
        let kind = match stop {
            _ if self.stage == Stage::Over => return out.push(Action::Hangup),
            Stop::Withdrawn => ErrorKind::SourceGone,
            Stop::Closed => ErrorKind::Closed,
            Stop::Superseded => ErrorKind::Superseded,
            Stop::Cancelled => ErrorKind::Cancelled,
        };
        self.fail(now, kind.into(), out);
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Action>) {
        if passed(self.tombstone, now) {
            self.tombstone = None;
            out.push(Action::Hangup);
        } else if passed(self.local, now) && !Mutant::NoLocalDeadline.is_on() {
            match self.work {
                Some(Work::Open) => self.fail(now, ErrorKind::Busy.into(), out),
                _ => self.fail_reading(now, ErrorKind::Stalled.into(), out),
            }
        } else if passed(self.peer, now) && !Mutant::NoPeerDeadline.is_on() {
            let detail = format!("the receiver said nothing for {:?}", self.options.idle);
            self.fail(now, Failure::new(ErrorKind::Idle, detail), out);
        } else if passed(self.taken, now) && !Mutant::NoTakenDeadline.is_on() {
            let detail = match self.stage {
                Stage::Taken => "the receiver has all rows and does not say the outcome",
                _ => "the receiver lives and takes nothing",
            };
            self.fail(now, Failure::new(ErrorKind::TooSlow, detail), out);
        } else if passed(self.repeat, now) {
            self.repeat(now, out);
        }
    }

    /// Says what the receiver may have missed, or that we live.
    fn repeat(&mut self, now: Now, out: &mut Vec<Action>) {
        self.repeat = Some(now + self.options.repeat_every);
        let oldest = self.unacked.front();
        let limited = matches!(
            self.work,
            Some(Work::Charge(_) | Work::ChargeCount | Work::Count)
        );
        let alive = Body::Alive { limited };
        let is_stale = oldest.is_some_and(|(seq, _)| self.stale == Some(*seq));
        let body = match oldest {
            Some((_, body)) if is_stale => body.clone(),
            _ => alive.clone(),
        };
        self.stale = oldest.map(|(seq, _)| *seq);
        if !Mutant::NoKeepAlive.is_on() || body != alive {
            self.send(body, out);
        }
    }

    fn send(&self, body: Body, out: &mut Vec<Action>) {
        let stream = self.request.stream;
        out.push(Action::Send(Frame { stream, body }));
    }

    fn fail_reading(&mut self, now: Now, failure: Failure, out: &mut Vec<Action>) {
        self.end(now, Err(failure), Some(AbortCode::SourceError), out);
    }

    fn fail(&mut self, now: Now, failure: Failure, out: &mut Vec<Action>) {
        let code = failure.kind.code();
        self.end(now, Err(failure), Some(code), out);
    }

    /// Ends, and tells the receiver if there is something to tell.
    fn end(
        &mut self,
        now: Now,
        outcome: Result<Digest, Failure>,
        tell: Option<AbortCode>,
        out: &mut Vec<Action>,
    ) {
        if self.stage == Stage::Over {
            return;
        }
        self.stage = Stage::Over;
        self.work = None;
        self.unacked.clear();
        self.unacked_bytes = 0;
        self.spent = None;
        (self.local, self.peer, self.taken, self.repeat) = (None, None, None, None);
        if let Some(code) = tell {
            let text = outcome.as_ref().err().map(|it| it.detail.clone());
            self.last_word = Some(Body::Abort {
                code,
                text: text.unwrap_or_default(),
            });
            self.say_last_word(out);
            self.tombstone = Some(now + self.options.tombstone);
        }
        out.push(Action::Finish(outcome));
    }

    fn say_last_word(&self, out: &mut Vec<Action>) {
        if let Some(body) = self.last_word.clone() {
            self.send(body, out);
        }
    }

    /// The clocks of the receiver run while our own side has nothing to do: one until it says
    /// anything, and one until it takes something, or once it has all rows says the outcome.
    fn set_clocks(&mut self, now: Now, heard: bool) {
        let owes = self.stage == Stage::Streaming && self.work.is_none();
        let waiting = owes || self.stage == Stage::Taken;
        let within = match self.stage {
            Stage::Taken => self.options.outcome_within,
            _ => self.options.taken_within,
        };
        self.taken = waiting.then(|| self.taken.unwrap_or(now + within));
        self.peer = match (waiting, self.peer) {
            (false, _) => None,
            (true, Some(until)) if !heard => Some(until),
            (true, _) => Some(now + self.options.idle),
        };
    }
}

/// The bytes of rows that a frame keeps in memory.
fn bytes_of(body: &Body) -> u64 {
    match body {
        Body::Chunk { rows, .. } => u64::try_from(rows.len()).unwrap_or(u64::MAX),
        _ => 0,
    }
}

fn protocol(detail: &str) -> Failure {
    Failure::new(ErrorKind::Protocol, detail)
}
