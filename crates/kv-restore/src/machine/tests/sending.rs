//! What a sender makes of what a receiver says, and of the time that goes by.

use super::*;
use sender::{Action, Counted, Event, Request};

struct Rig {
    core: Sender,
    now: Duration,
    rows: Vec<Row>,
    sent: Vec<Body>,
    ended: Option<Result<Digest, Failure>>,
    hung_up: bool,
    released: bool,
    // Reads answer at once.
    quick: bool,
    counts: usize,
    charges: Vec<u64>,
}

fn opened(totals: Digest) -> Event {
    Event::Opened(Ok(Some(Counted { totals, all: true })))
}

fn request(credit: u64) -> Request {
    let body = Body::Pull {
        at: Box::new(at()),
        resume: None,
        credit,
        chunk_bytes: 1,
    };
    Request::of(frame(body)).unwrap()
}

impl Rig {
    fn new(request: Request, rows: Vec<Row>) -> Self {
        Self::with(request, rows, Options::default())
    }

    fn with(request: Request, rows: Vec<Row>, options: Options) -> Self {
        let mut rig = Self {
            core: Sender::new(request, options),
            now: second(100),
            rows,
            sent: Vec::new(),
            ended: None,
            hung_up: false,
            released: false,
            quick: true,
            counts: 0,
            charges: Vec::new(),
        };
        rig.rows.reverse();
        rig.on(Event::Start);
        rig
    }

    /// One that has three rows and credit for so many bytes.
    fn streaming(credit: u64) -> Self {
        let rows = vec![row(0, "a"), row(0, "b"), row(1, "a")];
        let mut rig = Self::new(request(credit), rows);
        rig.on(opened(Digest::default()));
        rig
    }

    fn on(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for action in self.core.handle(self.now, event) {
                match action {
                    Action::Open => {}
                    Action::Release => self.released = true,
                    Action::Count => self.counts += 1,
                    Action::Read(_) if self.quick => {
                        let row: Vec<_> = self.rows.pop().into_iter().collect();
                        events.push(Event::Read(Ok(Part::of(&row))));
                    }
                    Action::Read(_) => {}
                    Action::Charge(bytes) => {
                        self.charges.push(bytes);
                        events.push(Event::Charged);
                    }
                    Action::Send(frame) => self.sent.push(frame.body),
                    Action::Finish(outcome) => {
                        assert!(self.ended.is_none(), "a session ends once");
                        self.ended = Some(outcome);
                    }
                    Action::Hangup => self.hung_up = true,
                }
            }
        }
    }

    fn hear(&mut self, body: Body) {
        self.on(Event::Received(frame(body)));
    }

    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        let mut ticks = 0;
        while let Some(deadline) = self.core.deadline().filter(|it| *it <= end) {
            self.now = deadline.max(self.now);
            self.on(Event::Tick);
            ticks += 1;
            assert!(ticks < 10_000, "a clock that stands still");
        }
        self.now = end;
    }

    fn chunks(&self) -> usize {
        let is_chunk = |it: &&Body| matches!(it, Body::Chunk { .. });
        self.sent.iter().filter(is_chunk).count()
    }

    #[track_caller]
    fn failed(&self, kind: ErrorKind) {
        match &self.ended {
            Some(Err(failure)) => assert_eq!(failure.kind, kind),
            other => panic!("it should have failed: {other:?}"),
        }
    }
}

// Mutant: CreditIgnored.
#[test]
fn only_what_there_is_credit_for_is_sent() {
    let mut rig = Rig::streaming(1);
    assert_eq!(rig.chunks(), 1);
    rig.hear(ack(1, 1));
    assert_eq!(rig.chunks(), 1);
    rig.hear(ack(1, 1_000));
    assert_eq!(rig.chunks(), 3);
    assert!(matches!(rig.sent.last(), Some(Body::End { seq: 3, .. })));
    assert!(rig.ended.is_none(), "it is not over before it is installed");
    rig.hear(Body::Installed {
        snapshot: SnapshotId(1),
    });
    assert!(matches!(&rig.ended, Some(Ok(totals)) if totals.rows() == 3));
    assert!(rig.hung_up);
}

#[test]
fn s35_what_is_not_acknowledged_is_sent_again() {
    let mut rig = Rig::streaming(1);
    let sent = rig.chunks();
    rig.wait(second(3));
    assert!(rig.chunks() > sent);
    let repeated = rig.sent.iter().filter_map(|it| match it {
        Body::Chunk { seq, .. } => Some(*seq),
        _ => None,
    });
    assert!(repeated.eq(vec![0; rig.chunks()]));
}

// Mutant: the size that is asked for is what is read.
#[test]
fn a_chunk_has_the_smaller_of_the_sizes_of_both_sides() {
    for (asked, own, read) in [(1_000, 10, 10), (10, 1_000, 10)] {
        let body = Body::Pull {
            at: Box::new(at()),
            resume: None,
            credit: 1,
            chunk_bytes: asked,
        };
        let request = Request::of(frame(body)).unwrap();
        let mut core = Sender::new(request, Options::default().with_chunk_bytes(own));
        core.handle(second(1), Event::Start);
        let actions = core.handle(second(1), opened(Digest::default()));
        let bytes = actions.into_iter().find_map(|it| match it {
            Action::Read(bytes) => Some(bytes),
            _ => None,
        });
        assert_eq!(bytes, Some(read));
    }
}

#[test]
fn s57_the_same_question_twice_is_one_dump() {
    let mut rig = Rig::streaming(1);
    let pull = Body::Pull {
        at: Box::new(at()),
        resume: None,
        credit: 1,
        chunk_bytes: 1,
    };
    rig.hear(pull);
    assert_eq!(rig.chunks(), 1);
    assert!(rig.ended.is_none());
}

#[test]
fn s58_another_snapshot_in_the_same_session_is_refused() {
    let mut rig = Rig::streaming(1);
    let mut other = at();
    other.id = SnapshotId(2);
    rig.hear(Body::Pull {
        at: Box::new(other),
        resume: None,
        credit: 1,
        chunk_bytes: 1,
    });
    rig.failed(ErrorKind::Protocol);
}

// Mutant: NoPeerDeadline.
#[test]
fn s61_a_receiver_that_disappears_ends_the_dump_in_its_time() {
    let mut rig = Rig::streaming(1);
    rig.wait(second(29));
    assert!(rig.ended.is_none());
    rig.wait(second(2));
    rig.failed(ErrorKind::Idle);
    rig.wait(second(61));
    assert!(rig.hung_up, "nothing is left of it");

    let mut rig = Rig::streaming(1);
    rig.on(Event::Broken(ErrorKind::Transport.into()));
    rig.failed(ErrorKind::Transport);
    assert!(rig.hung_up);
}

#[test]
fn s49_s52_a_receiver_that_is_busy_and_says_so_is_waited_for() {
    let mut rig = Rig::streaming(1_000);
    for _ in 0..600 {
        rig.wait(second(1));
        rig.hear(ack(4, 1_000));
    }
    assert!(rig.ended.is_none());
}

// Mutants: NoTakenDeadline; the clock begins anew with each word; only once.
#[test]
fn s51_a_receiver_that_lives_and_takes_nothing_is_ended_and_one_that_takes_little_is_not() {
    let lives = |rig: &mut Rig, seconds: u64, word: Body| {
        for _ in 0..seconds {
            rig.wait(second(1));
            rig.hear(word.clone());
        }
    };
    for (next, credit) in [(0, 1), (1, 1)] {
        // It does not have what it asked for; it has, and asks for nothing more.
        let mut rig = Rig::streaming(1);
        rig.hear(ack(next, credit));
        lives(&mut rig, 890, ack(next, credit));
        assert!(rig.ended.is_none());
        lives(&mut rig, 20, ack(next, credit));
        rig.failed(ErrorKind::TooSlow);
        let slow = AbortCode::TooSlow;
        assert!(matches!(rig.sent.last(), Some(Body::Abort { code, .. }) if *code == slow));
    }
    let mut rig = Rig::streaming(1);
    for n in 1..20 {
        lives(&mut rig, 800, ack(1, n));
    }
    assert!(rig.ended.is_none());
    // Nobody knows how low its operator has set its limit.
    let mut rig = Rig::streaming(1);
    let limited = Body::Ack {
        next: 1,
        credit: 1,
        limited: true,
    };
    lives(&mut rig, 9_000, limited);
    assert!(rig.ended.is_none());
    lives(&mut rig, 901, ack(1, 1));
    rig.failed(ErrorKind::TooSlow);
}

// Mutants: it is let go with the end, before that is acknowledged; the clock of rows runs on;
// none runs; it begins anew with more credit, or with each word of a limit.
#[test]
fn a_source_lets_its_snapshot_go_when_the_receiver_has_all_of_it_and_waits_for_the_outcome() {
    let mut rig = Rig::streaming(1_000);
    rig.hear(ack(3, 1_000));
    assert!(matches!(rig.sent.last(), Some(Body::End { seq: 3, .. })));
    assert!(!rig.released);
    rig.hear(ack(4, 1_000));
    assert!(rig.released);
    let switches = |rig: &mut Rig, seconds: u64| {
        for n in 0..seconds {
            rig.wait(second(1));
            rig.hear(Body::Ack {
                next: 4,
                credit: 1_000 + n,
                limited: n % 2 == 0,
            });
        }
    };
    switches(&mut rig, 7_100);
    assert!(rig.ended.is_none(), "a switch may take long");
    rig.hear(Body::Installed {
        snapshot: SnapshotId(1),
    });
    assert!(matches!(&rig.ended, Some(Ok(totals)) if totals.rows() == 3));

    let mut rig = Rig::streaming(1_000);
    rig.hear(ack(4, 1_000));
    switches(&mut rig, 7_201);
    rig.failed(ErrorKind::TooSlow);
}

// Mutant: nobody is waited for there.
#[test]
fn a_receiver_that_disappears_before_it_says_the_outcome_is_not_waited_for() {
    let mut rig = Rig::streaming(1_000);
    rig.hear(ack(4, 1_000));
    rig.wait(second(31));
    rig.failed(ErrorKind::Idle);
}

// Mutant: FlightNotBounded.
#[test]
fn s47_a_receiver_that_takes_everything_and_nothing_gets_a_window_and_no_more() {
    let mut big = row(0, "a");
    big.entry.value = vec![0; 3 << 20].into();
    let rows = (0..9).map(|n| {
        big.entry.key = vec![n].into();
        big.clone()
    });
    let mut rig = Rig::new(request(u64::MAX), rows.collect());
    rig.on(opened(Digest::default()));
    // Eight MiB and the chunk that goes beyond.
    assert_eq!(rig.chunks(), 3);
    assert!(rig.core.pending_bytes() > 9 << 20);
    rig.hear(ack(1, u64::MAX));
    assert_eq!(rig.chunks(), 4);
}

// F1. Mutant: what waits for room is said to be unreadable.
#[test]
fn f1_a_source_that_has_no_room_says_that_it_is_busy() {
    let mut rig = Rig::new(request(1), Vec::new());
    rig.wait(second(61));
    rig.failed(ErrorKind::Busy);
    let busy = AbortCode::Busy;
    assert!(matches!(rig.sent.last(), Some(Body::Abort { code, .. }) if *code == busy));
}

// Mutants: all of it has one deadline; it counts against the minimum rate.
#[test]
fn s71_however_much_lies_before_a_resumed_start_it_is_counted_to_its_end() {
    let mut totals = Digest::default();
    totals.add_to(0, &row(0, "a").entry);
    let mut request = request(1);
    request.resume = Some(Resume {
        after: Position {
            keyspace: 0,
            key: "a".into(),
        },
        totals,
    });
    let mut rig = Rig::new(request, vec![row(0, "b")]);
    let so_far = |totals| Event::Opened(Ok(Some(Counted { totals, all: false })));
    rig.on(so_far(Digest::default()));
    for n in 1..=20 {
        assert_eq!(rig.counts, n);
        rig.sent.clear();
        rig.wait(second(50));
        let lives = Body::Alive { limited: true };
        assert!(rig.sent.len() > 40 && rig.sent.iter().all(|it| *it == lives));
        rig.on(so_far(Digest::default()));
    }
    rig.on(opened(totals));
    assert_eq!(rig.chunks(), 1);
    // A part that hangs has a bound nevertheless.
    let mut request = rig.core.request().clone();
    request.credit = 1;
    let mut rig = Rig::new(request, Vec::new());
    rig.on(so_far(Digest::default()));
    rig.wait(second(61));
    rig.failed(ErrorKind::Stalled);
}

// Mutants: what is counted is free, or never is; all of it is charged again with each part;
// it is no progress.
#[test]
fn s53_what_is_counted_before_a_resumed_start_goes_by_the_rate_limit_where_that_is_wanted() {
    let resume = Resume {
        after: Position {
            keyspace: 0,
            key: "c".into(),
        },
        totals: Digest::default(),
    };
    let mut request = request(1);
    request.resume = Some(resume);
    for limit_counting in [true, false] {
        let options = Options {
            limit_counting,
            ..Options::default()
        };
        let mut rig = Rig::with(request.clone(), Vec::new(), options);
        let mut totals = Digest::default();
        for key in ["a", "b", "c"] {
            rig.on(Event::Opened(Ok(Some(Counted { totals, all: false }))));
            totals.add_to(0, &row(0, key).entry);
        }
        let bytes = totals.bytes() / 3;
        assert_eq!(rig.core.far().counted, 2 * bytes);
        let charges = if limit_counting {
            vec![0, bytes, bytes]
        } else {
            Vec::new()
        };
        assert_eq!((rig.charges, rig.counts), (charges, 3));
    }
}

// Mutants: NoLocalDeadline, NoKeepAlive.
#[test]
fn a_busy_source_says_that_it_lives_and_one_that_hangs_gives_up() {
    let mut rig = Rig::streaming(1);
    rig.quick = false;
    rig.hear(ack(1, 100));
    rig.sent.clear();
    rig.wait(second(59));
    assert!(rig.sent.len() > 50);
    assert!(
        rig.sent
            .iter()
            .all(|it| *it == Body::Alive { limited: false })
    );
    rig.wait(second(2));
    rig.failed(ErrorKind::Stalled);
    let source = AbortCode::SourceError;
    assert!(matches!(rig.sent.last(), Some(Body::Abort { code, .. }) if *code == source));
}

#[test]
fn s46_s60_a_snapshot_that_is_not_here_or_no_longer_is_said_at_once() {
    let gone = |rig: &Rig| {
        rig.failed(ErrorKind::SourceGone);
        let gone = AbortCode::SourceGone;
        assert!(matches!(rig.sent.last(), Some(Body::Abort { code, .. }) if *code == gone));
    };
    let mut rig = Rig::new(request(1), Vec::new());
    rig.on(Event::Opened(Ok(None)));
    gone(&rig);
    let mut rig = Rig::streaming(1);
    rig.on(Event::Stop(Stop::Withdrawn));
    gone(&rig);
}

#[test]
fn s63_a_read_that_fails_ends_the_dump_and_the_receiver_is_told() {
    let mut rig = Rig::streaming(1);
    rig.quick = false;
    rig.hear(ack(1, 100));
    rig.on(Event::Read(Err(ErrorKind::Staging.into())));
    rig.failed(ErrorKind::Staging);
    let source = AbortCode::SourceError;
    assert!(matches!(rig.sent.last(), Some(Body::Abort { code, .. }) if *code == source));
    // Its answer may be lost, and is said again.
    let count = rig.sent.len();
    rig.hear(ack(1, 100));
    assert_eq!(rig.sent.len(), count + 1);
}

// Mutant: ResumeNotCompared.
#[test]
fn s72_other_rows_before_a_resumed_start_are_refused() {
    let mut before = Digest::default();
    before.add_to(0, &row(0, "a").entry);
    let mut request = request(1);
    request.resume = Some(Resume {
        after: Position {
            keyspace: 0,
            key: "a".into(),
        },
        totals: before,
    });
    let mut rig = Rig::new(request, Vec::new());
    rig.on(opened(Digest::default()));
    rig.failed(ErrorKind::Corrupt(Damage::Resume));
}

#[test]
fn an_acknowledgement_of_what_was_not_sent_is_refused() {
    let mut rig = Rig::streaming(1);
    rig.hear(ack(9, 1));
    rig.failed(ErrorKind::Protocol);
    let mut rig = Rig::streaming(1);
    rig.hear(Body::Installed {
        snapshot: SnapshotId(1),
    });
    rig.failed(ErrorKind::Protocol);
}
