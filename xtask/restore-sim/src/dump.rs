//! The task of a sending session, as the driver of the crate has it; and what a source that
//! is out of order does.

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use kv_restore::{
    AbortCode, Digest, ErrorKind, Failure, SessionId, StreamId,
    frame::{Body, Frame, Part, Row},
    machine::{
        Now, Sender,
        sender::{Action, Counted, Event as Did, Request},
    },
};
use pop_store::{Entry, Keyspace};

use crate::{
    net::{Channel, End},
    plan::{Bug, snapshot},
    world::{Event, World},
};

const KEYSPACES: [Keyspace; 2] = [Keyspace::new("a"), Keyspace::new("b")];

#[derive(Debug)]
pub enum Answer {
    Opened(Result<Option<Counted>, Failure>),
    Read(Result<(), Failure>, usize),
    Charged,
    Panics,
}

#[derive(Debug)]
pub struct Dump {
    pub core: Sender,
    pub channel: usize,
    pub source: usize,
    pub over: bool,
    /// How many chunks and ends it has sent.
    sent: u64,
    /// It has no snapshot any more.
    pub released: bool,
    pub finished: Option<Result<Digest, ErrorKind>>,
    rows: Arc<Vec<Row>>,
    read: usize,
    // How many rows before a resumed start are counted, and what they add up to.
    counted: usize,
    before: Digest,
    op: Option<u64>,
    bug: Option<Bug>,
}

impl Dump {
    pub fn deadline(&self) -> Option<Now> {
        if self.over {
            None
        } else {
            self.core.deadline()
        }
    }

    pub fn is_under_way(&self) -> bool {
        self.op.is_some()
    }

    fn stream(&self) -> StreamId {
        self.core.request().stream
    }
}

impl World {
    pub fn dump_hears(&mut self, channel: usize, content: Result<Frame, Failure>) {
        let Some(state) = self.channels.get(channel) else {
            return;
        };
        let (source, dump) = (state.source, state.dump);
        match (dump, content) {
            (Some(n), Ok(frame)) => self.dump_gets(n, frame),
            (Some(n), Err(failure)) => {
                self.close(channel, End::Source, true);
                self.dump_on(n, Did::Broken(failure));
            }
            (None, Ok(frame)) => self.dump_begins(channel, source, frame),
            (None, Err(_)) => self.close(channel, End::Source, true),
        }
    }

    fn dump_begins(&mut self, channel: usize, source: usize, frame: Frame) {
        let stream = frame.stream;
        let bug = self.plan.bugs.get(source).copied().flatten();
        let bug = bug.filter(|_| !self.calm);
        if bug.is_some() {
            self.disturb(channel);
            self.corrupt(channel);
        }
        let asks = matches!(frame.body, Body::Pull { .. } | Body::Ack { .. });
        if bug == Some(Bug::Talk) && asks {
            let body = Body::Alive { limited: false };
            return self.send(channel, End::Receiver, Frame { stream, body });
        }
        let Some(request) = Request::of(frame) else {
            let body = Body::Abort {
                code: AbortCode::UnknownSession,
                text: String::new(),
            };
            self.send(channel, End::Receiver, Frame { stream, body });
            return self.close(channel, End::Source, false);
        };
        if bug == Some(Bug::Silent) {
            return;
        }
        let id = usize::try_from(request.at.id.0).unwrap_or(0);
        let rows = self.plan.rows.get(id.wrapping_sub(1)).cloned();
        let rows = with_bug(rows.unwrap_or_default(), bug);
        let options = self.plan.options.clone();
        self.dumps.push(Dump {
            core: Sender::new(request, options),
            channel,
            source,
            over: false,
            sent: 0,
            released: false,
            finished: None,
            rows,
            read: 0,
            counted: 0,
            before: Digest::default(),
            op: None,
            bug,
        });
        let n = self.dumps.len() - 1;
        if let Some(state) = self.channels.get_mut(channel) {
            state.dump = Some(n);
        }
        self.dump_on(n, Did::Start);
        if bug == Some(Bug::Oversend) {
            let credit = u64::MAX;
            let body = Body::Ack {
                next: 0,
                credit,
                limited: false,
            };
            self.dump_on(n, Did::Received(Frame { stream, body }));
        }
    }

    fn dump_gets(&mut self, n: usize, mut frame: Frame) {
        let Some(dump) = self.dumps.get(n) else {
            return;
        };
        if dump.bug == Some(Bug::LeaveOut)
            && let Body::Ack { next, .. } = &mut frame.body
            && dump.core.totals().rows() > 0
        {
            *next += 1;
        }
        self.dump_on(n, Did::Received(frame));
    }

    pub fn dump_loses(&mut self, channel: usize) {
        if let Some(n) = self.channels.get(channel).and_then(|it| it.dump) {
            let closed = Failure::new(ErrorKind::Transport, "closed");
            self.dump_on(n, Did::Broken(closed));
        }
        self.close(channel, End::Source, false);
    }

    pub fn dump_tick(&mut self, n: usize) {
        self.dump_on(n, Did::Tick);
    }

    fn dump_on(&mut self, n: usize, did: Did) {
        let now = self.now;
        let Some(dump) = self.dumps.get_mut(n).filter(|it| !it.over) else {
            return;
        };
        let line = format!("dump {n}: {did:?}");
        let actions = dump.core.handle(now, did);
        self.note(|| line);
        for action in actions {
            self.dump_acts(n, action);
        }
    }

    fn dump_acts(&mut self, n: usize, action: Action) {
        self.note(|| format!("dump {n}   {action:?}"));
        match action {
            Action::Open => {
                let counted = self.dumps.get(n).map(|it| Counted {
                    totals: Digest::default(),
                    all: it.core.request().resume.is_none(),
                });
                self.dump_works(n, |wrong| Answer::Opened(wrong.map_or(Ok(counted), Err)));
            }
            Action::Count => {
                let counted = self.dumps.get_mut(n).map(count);
                self.dump_works(n, |wrong| Answer::Opened(wrong.map_or(Ok(counted), Err)));
            }
            Action::Read(bytes) => {
                self.dump_works(n, |wrong| Answer::Read(wrong.map_or(Ok(()), Err), bytes));
            }
            Action::Charge(_) => {
                let op = self.next_id();
                if let Some(dump) = self.dumps.get_mut(n) {
                    dump.op = Some(op);
                }
                let answer = Answer::Charged;
                let wait = Duration::from_millis(1);
                self.after(
                    wait,
                    Event::Dump {
                        dump: n,
                        op,
                        answer,
                    },
                );
            }
            Action::Send(frame) => self.dump_says(n, frame),
            Action::Release => self.dump_releases(n),
            Action::Finish(outcome) => self.dump_ends(n, outcome),
            Action::Hangup => self.dump_hangs_up(n),
        }
    }

    /// Begins a call of the source's store.
    fn dump_works(&mut self, n: usize, answer: impl FnOnce(Option<Failure>) -> Answer) {
        let odds = self.odds();
        let op = self.next_id();
        if self.dumps.get(n).is_some_and(|it| it.released) {
            self.fail(format!("I10: dump {n} reads what it gave back"));
        }
        let Some(channel) = self.dumps.get_mut(n).map(|it| {
            it.op = Some(op);
            it.channel
        }) else {
            return;
        };
        let ms = if self.lucky(odds.hang) {
            self.disturb(channel);
            8_100 + self.random.below(40_000)
        } else if self.lucky(odds.slow) {
            self.random.below(7_200)
        } else {
            self.random.below(5)
        };
        let panics = self.lucky(odds.panic);
        let wrong = self.lucky(odds.refuse);
        if panics || wrong {
            self.disturb(channel);
        }
        let answer = match panics {
            true => Answer::Panics,
            false => answer(wrong.then(|| ErrorKind::Staging.into())),
        };
        let wait = Duration::from_millis(ms);
        self.after(
            wait,
            Event::Dump {
                dump: n,
                op,
                answer,
            },
        );
    }

    pub fn dump_answers(&mut self, n: usize, op: u64, answer: Answer) {
        let Some(dump) = self.dumps.get_mut(n) else {
            return;
        };
        if dump.op.take_if(|it| *it == op).is_none() || dump.over {
            return;
        }
        match answer {
            Answer::Opened(result) => {
                dump.read = start(dump);
                self.dump_on(n, Did::Opened(result));
            }
            Answer::Read(Ok(()), bytes) => {
                let rows = read(dump, bytes);
                self.dump_on(n, Did::Read(Ok(Part::of(&rows))));
            }
            Answer::Read(Err(failure), _) => self.dump_on(n, Did::Read(Err(failure))),
            Answer::Charged => self.dump_on(n, Did::Charged),
            Answer::Panics => {
                dump.over = true;
                let channel = dump.channel;
                self.note(|| format!("dump {n} panics"));
                self.close(channel, End::Source, true);
            }
        }
    }

    fn dump_says(&mut self, n: usize, mut frame: Frame) {
        let Some(dump) = self.dumps.get_mut(n) else {
            return;
        };
        if let Body::Chunk { seq, .. } | Body::End { seq, .. } = &frame.body {
            dump.sent = dump.sent.max(*seq + 1);
        }
        let (channel, bug) = (dump.channel, dump.bug);
        let mut closes = false;
        match (bug, &mut frame.body) {
            (Some(Bug::LeaveOut), Body::Chunk { seq, .. }) => match seq.checked_sub(1) {
                Some(before) => *seq = before,
                None => return,
            },
            (Some(Bug::LeaveOut), Body::End { seq, .. }) => *seq = seq.saturating_sub(1),
            (Some(Bug::Flip), Body::Chunk { rows, .. }) => {
                let mut damaged = BytesMut::from(&rows[..]);
                if let Some(last) = damaged.last_mut() {
                    *last ^= 1;
                }
                *rows = damaged.freeze();
            }
            (Some(Bug::CloseEarly), Body::Chunk { .. } | Body::End { .. }) => closes = true,
            _ => {}
        }
        let goes_on = match &frame.body {
            Body::End { seq, .. } if bug == Some(Bug::GoesOn) => Some((frame.stream, *seq + 1)),
            _ => None,
        };
        // Without its last word: what closes early says no end.
        if !(closes && matches!(frame.body, Body::End { .. })) {
            self.send(channel, End::Receiver, frame);
        }
        if let Some((stream, seq)) = goes_on {
            let rows = Bytes::new();
            let body = Body::Chunk { seq, rows, crc: 0 };
            self.send(channel, End::Receiver, Frame { stream, body });
        }
        if closes {
            self.close(channel, End::Source, false);
            if let Some(dump) = self.dumps.get_mut(n) {
                dump.over = true;
            }
        }
    }

    fn dump_releases(&mut self, n: usize) {
        if let Some(dump) = self.dumps.get_mut(n) {
            dump.released = true;
        }
    }

    fn dump_ends(&mut self, n: usize, outcome: Result<Digest, Failure>) {
        if let Some(dump) = self.dumps.get_mut(n) {
            dump.op = None;
            dump.finished = Some(outcome.map_err(|failure| failure.kind));
        }
        self.check_dump(n);
    }

    fn dump_hangs_up(&mut self, n: usize) {
        if let Some(dump) = self.dumps.get_mut(n) {
            dump.over = true;
            let channel = dump.channel;
            self.close(channel, End::Source, false);
        }
    }

    /// A receiver that no code of ours is: it lives and does not go.
    pub fn leech_begins(&mut self, source: usize, takes: bool) {
        if !self.up.get(source).copied().unwrap_or(false) {
            return;
        }
        self.channels.push(Channel::new(usize::MAX, 0, source));
        let channel = self.channels.len() - 1;
        let stream = StreamId {
            session: SessionId(u128::from(self.next_id())),
            attempt: 0,
        };
        let body = Body::Pull {
            at: Box::new(snapshot(1, 1)),
            resume: None,
            credit: 1,
            chunk_bytes: 1,
        };
        self.dump_begins(channel, source, Frame { stream, body });
        self.leech_lives(channel, takes);
    }

    pub fn leech_lives(&mut self, channel: usize, takes: bool) {
        let Some(n) = self.channels.get(channel).and_then(|it| it.dump) else {
            return;
        };
        let Some(dump) = self.dumps.get(n).filter(|it| !it.over) else {
            return;
        };
        let (stream, sent) = (dump.stream(), dump.sent);
        let (next, credit) = if takes { (sent, u64::MAX) } else { (0, 1) };
        // Its own limit is an excuse as long as it takes rows.
        let limited = takes && self.random.chance(1, 2);
        let body = Body::Ack {
            next,
            credit,
            limited,
        };
        self.dump_on(n, Did::Received(Frame { stream, body }));
        let repeat = self.plan.options.repeat_every;
        self.after(repeat, Event::Leech { channel, takes });
    }

    /// A source dies, with all that it was sending.
    pub fn crash_source(&mut self, source: usize) {
        if let Some(up) = self.up.get_mut(source) {
            *up = false;
        }
        for channel in 0..self.channels.len() {
            if self
                .channels
                .get(channel)
                .is_some_and(|it| it.source == source && it.open == [true; 2])
            {
                self.disturb(channel);
                self.close(channel, End::Source, true);
            }
        }
        for dump in self.dumps.iter_mut().filter(|it| it.source == source) {
            dump.over = true;
        }
        let back = Duration::from_millis(500 + self.random.below(9_000));
        self.after(back, Event::SourceBack(source));
    }
}

fn with_bug(rows: Arc<Vec<Row>>, bug: Option<Bug>) -> Arc<Vec<Row>> {
    let mut changed = (*rows).clone();
    match bug {
        Some(Bug::Swap) if changed.len() > 1 => changed.swap(0, 1),
        Some(Bug::Outsider) => changed.push(Row {
            keyspace: 9,
            entry: Entry {
                key: "outside".into(),
                value: "the snapshot".into(),
            },
        }),
        _ => return rows,
    }
    Arc::new(changed)
}

/// Where a resumed dump goes on.
fn start(dump: &Dump) -> usize {
    let Some(resume) = &dump.core.request().resume else {
        return 0;
    };
    let after = (resume.after.keyspace, &resume.after.key);
    let place = |row: &Row| (row.keyspace, &row.entry.key) <= after;
    dump.rows.iter().take_while(|row| place(row)).count()
}

/// Counts two more of the rows before that.
fn count(dump: &mut Dump) -> Counted {
    let start = start(dump);
    let rows = dump.rows.iter().take(start).skip(dump.counted).take(2);
    for row in rows {
        if let Some(keyspace) = KEYSPACES.get(usize::from(row.keyspace)) {
            dump.before.add(*keyspace, &row.entry);
        }
    }
    dump.counted += 2;
    Counted {
        totals: dump.before,
        all: dump.counted >= start,
    }
}

/// The next rows of one keyspace.
fn read(dump: &mut Dump, bytes_max: usize) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut bytes = 0;
    for row in dump.rows.iter().skip(dump.read) {
        if bytes >= bytes_max || rows.last().is_some_and(|it| it.keyspace != row.keyspace) {
            break;
        }
        bytes += row.entry.key.len() + row.entry.value.len();
        rows.push(row.clone());
    }
    dump.read += rows.len();
    rows
}
