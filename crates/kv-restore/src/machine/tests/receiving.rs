//! What a receiver makes of what a source sends, and of the time that goes by.

use super::*;
use receiver::{Action, Event, Installed, Opening};

type Ended = Result<Installed, (Phase, Failure)>;

/// A receiver, and what became of it so far.
struct Rig {
    core: Receiver,
    now: Duration,
    loaded: Vec<Row>,
    sent: Vec<Body>,
    loads: usize,
    commits: usize,
    connects: Vec<usize>,
    ended: Option<Ended>,
    hung_up: bool,
    // Loads answer at once.
    quick: bool,
    // The rate limit lets nothing through by itself.
    limited: bool,
}

impl Rig {
    fn new(options: Options, sources: usize) -> Self {
        let mut rig = Self {
            core: Receiver::new(Arc::new(at()), SESSION, sources, options),
            now: second(100),
            loaded: Vec::new(),
            sent: Vec::new(),
            loads: 0,
            commits: 0,
            connects: Vec::new(),
            ended: None,
            hung_up: false,
            quick: true,
            limited: false,
        };
        rig.on(Event::Start);
        rig
    }

    /// One that was connected and has asked.
    fn pulling() -> Self {
        let mut rig = Self::new(Options::default().with_reconnects(0), 1);
        rig.on(Event::Opened(Ok(Opening::Fresh)));
        rig.on(Event::Connected(0, Ok(())));
        assert!(matches!(rig.sent.as_slice(), [Body::Pull { .. }]));
        rig
    }

    fn on(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for action in self.core.handle(self.now, event) {
                match action {
                    Action::Open => {}
                    Action::Connect { source, .. } => self.connects.push(source),
                    Action::Send(frame) => self.sent.push(frame.body),
                    Action::Charge(_) if self.limited => {}
                    Action::Charge(_) => events.push(Event::Charged),
                    Action::Load { rows, .. } => {
                        self.loads += 1;
                        self.loaded.extend(rows.iter().flat_map(Part::rows));
                        if self.quick {
                            events.push(Event::Loaded(Ok(())));
                        }
                    }
                    Action::Commit(_) => self.commits += 1,
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

    /// Lets time go by, from one deadline to the next.
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

    #[track_caller]
    fn failed(&self, kind: ErrorKind) {
        match &self.ended {
            Some(Err((_, failure))) => assert_eq!(failure.kind, kind),
            other => panic!("it should have failed: {other:?}"),
        }
    }

    fn last(&self) -> Option<&Body> {
        self.sent.last()
    }
}

fn refused(bodies: Vec<Body>, kind: ErrorKind, loaded: usize) {
    let mut rig = Rig::pulling();
    for body in bodies {
        rig.hear(body);
    }
    rig.failed(kind);
    assert_eq!(
        rig.loaded.len(),
        loaded,
        "a row that was refused is not loaded"
    );
    assert_eq!(rig.commits, 0);
    // The other side is told, and told again if it asks.
    assert!(matches!(rig.last(), Some(Body::Abort { .. })));
    let count = rig.sent.len();
    rig.hear(Body::Alive { limited: false });
    assert_eq!(rig.sent.len(), count + 1);
}

#[test]
fn s32_an_empty_snapshot_is_installed() {
    let mut rig = Rig::pulling();
    rig.hear(Script::new().end());
    assert_eq!((rig.commits, rig.loads), (1, 0));
    rig.on(Event::Committed(Ok(())));
    assert!(matches!(&rig.ended, Some(Ok(it)) if it.seal.totals.rows() == 0));
}

// Mutant: DuplicatesApplied.
#[test]
fn s34_a_chunk_that_comes_twice_is_loaded_once_and_acknowledged_twice() {
    let (mut rig, mut script) = (Rig::pulling(), Script::new());
    let chunk = script.chunk(&[row(0, "k")]);
    rig.hear(chunk.clone());
    rig.hear(chunk.clone());
    assert_eq!(rig.loaded.len(), 1);
    let acks = |rig: &Rig| {
        let is_ack = |it: &&Body| matches!(it, Body::Ack { next: 1, .. });
        rig.sent.iter().filter(is_ack).count()
    };
    let before = acks(&rig);
    rig.hear(chunk);
    assert_eq!(acks(&rig), before + 1);
    rig.hear(script.end());
    assert_eq!(rig.commits, 1);
}

// Mutant: GapAccepted.
#[test]
fn s36_a_missing_chunk_and_an_end_before_the_last_chunk_are_refused() {
    let mut script = Script::new();
    let (_, second) = (script.chunk(&[row(0, "a")]), script.chunk(&[row(0, "b")]));
    refused(vec![second], ErrorKind::Protocol, 0);
    refused(vec![script.end()], ErrorKind::Protocol, 0);
}

// Mutant: LastWordSaidOnce.
#[test]
fn s37_an_end_that_is_repeated_is_answered_from_the_tombstone() {
    let (mut rig, script) = (Rig::pulling(), Script::new());
    rig.hear(script.end());
    rig.on(Event::Committed(Ok(())));
    rig.sent.clear();
    rig.hear(script.end());
    let snapshot = SnapshotId(1);
    assert_eq!(rig.sent, [Body::Installed { snapshot }]);
    rig.wait(second(61));
    assert!(rig.hung_up, "and then no more");
}

#[test]
fn s38_a_frame_of_an_older_session_is_answered_and_changes_nothing() {
    let (mut rig, mut script) = (Rig::pulling(), Script::new());
    let stream = StreamId {
        session: SessionId(6),
        attempt: 0,
    };
    let body = script.chunk(&[row(0, "old")]);
    rig.on(Event::Received(Frame { stream, body }));
    assert!(rig.loaded.is_empty());
    let unknown = AbortCode::UnknownSession;
    assert!(matches!(rig.last(), Some(Body::Abort { code, .. }) if *code == unknown));
    rig.hear(Script::new().end());
    assert_eq!(rig.commits, 1);
}

// Mutant: ChecksumNotChecked.
#[test]
fn s40_a_chunk_with_a_flipped_bit_is_refused_before_it_is_loaded() {
    let Body::Chunk { seq, rows, crc } = Script::new().chunk(&[row(0, "k")]) else {
        panic!("a chunk is a chunk");
    };
    let mut damaged = rows.to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    let chunk = Body::Chunk {
        seq,
        rows: damaged.into(),
        crc,
    };
    refused(vec![chunk], ErrorKind::Corrupt(Damage::Chunk), 0);
}

// Mutant: OrderNotChecked.
#[test]
fn s41_keys_out_of_order_are_refused_within_and_across_chunks() {
    let order = ErrorKind::Corrupt(Damage::Order);
    refused(
        vec![Script::new().chunk(&[row(0, "b"), row(0, "a")])],
        order,
        0,
    );
    refused(
        vec![Script::new().chunk(&[row(0, "a"), row(0, "a")])],
        order,
        0,
    );
    refused(
        vec![Script::new().chunk(&[row(1, "a"), row(0, "b")])],
        order,
        0,
    );
    let mut script = Script::new();
    let chunks = vec![script.chunk(&[row(0, "b")]), script.chunk(&[row(0, "a")])];
    refused(chunks, order, 1);
}

// Mutant: BoundaryNotChecked.
#[test]
fn s42_a_row_outside_the_snapshot_is_refused() {
    let chunk = Script::new().chunk(&[row(2, "k")]);
    refused(vec![chunk], ErrorKind::Corrupt(Damage::Boundary), 0);
}

// Mutant: TotalsNotChecked.
#[test]
fn s43_a_chunk_that_the_source_dropped_without_a_gap_is_noticed_at_the_end() {
    let mut script = Script::new();
    let first = script.chunk(&[row(0, "a")]);
    script.chunk(&[row(0, "b")]);
    script.seq = 1;
    let totals = ErrorKind::Corrupt(Damage::Totals);
    refused(vec![first, script.end()], totals, 1);
}

#[test]
fn s43_totals_that_the_request_named_are_held_against_what_came() {
    let mut expected = Digest::default();
    expected.add_to(0, &row(0, "other").entry);
    let request = Arc::new(at().with_totals(expected));
    let mut core = Receiver::new(request, SESSION, 1, Options::default());
    for event in [
        Event::Start,
        Event::Opened(Ok(Opening::Fresh)),
        Event::Connected(0, Ok(())),
    ] {
        core.handle(second(1), event);
    }
    let actions = core.handle(second(1), Event::Received(frame(Script::new().end())));
    let corrupt = |it: &Action| matches!(it, Action::Finish(Err((_, failure))) if failure.kind == ErrorKind::Corrupt(Damage::Totals));
    assert!(actions.iter().any(corrupt));
}

// Mutant: EarlyEndIsSuccess.
#[test]
fn s44_a_channel_that_closes_before_the_end_is_no_success() {
    let (mut rig, mut script) = (Rig::pulling(), Script::new());
    rig.hear(script.chunk(&[row(0, "k")]));
    rig.on(Event::Broken(0, ErrorKind::Transport.into()));
    rig.failed(ErrorKind::Transport);
    assert_eq!(rig.commits, 0);
}

#[test]
fn s45_s46_a_source_that_gives_up_ends_the_session_with_its_reason() {
    let abort = |code| Body::Abort {
        code,
        text: String::new(),
    };
    for (code, kind) in [
        (
            AbortCode::SourceError,
            ErrorKind::PeerAborted(AbortCode::SourceError),
        ),
        (AbortCode::SourceGone, ErrorKind::SourceGone),
        (
            AbortCode::ResumeMismatch,
            ErrorKind::Corrupt(Damage::Resume),
        ),
    ] {
        let mut rig = Rig::pulling();
        rig.hear(abort(code));
        rig.failed(kind);
    }
}

// Mutant: CreditIgnored.
#[test]
fn s47_more_than_was_asked_for_is_refused() {
    let options = Options::default().with_window_bytes(10);
    let mut rig = Rig::new(options, 1);
    rig.quick = false;
    rig.on(Event::Opened(Ok(Opening::Fresh)));
    rig.on(Event::Connected(0, Ok(())));
    let mut script = Script::new();
    rig.hear(script.chunk(&[row(0, "a")]));
    rig.hear(script.chunk(&[row(0, "b")]));
    rig.failed(ErrorKind::Protocol);
}

// Mutant: NoPeerDeadline.
#[test]
fn s48_a_source_that_is_silent_is_given_up_at_the_bound() {
    let mut rig = Rig::new(Options::default(), 1);
    rig.on(Event::Opened(Ok(Opening::Fresh)));
    rig.wait(second(11));
    rig.failed(ErrorKind::Idle);

    let mut rig = Rig::pulling();
    rig.wait(second(9));
    assert!(rig.ended.is_none());
    rig.wait(second(2));
    rig.failed(ErrorKind::Idle);

    let (mut rig, mut script) = (Rig::pulling(), Script::new());
    rig.hear(script.chunk(&[row(0, "k")]));
    rig.wait(second(29));
    assert!(rig.ended.is_none());
    rig.wait(second(2));
    rig.failed(ErrorKind::Idle);
    assert!(matches!(
        rig.last(),
        Some(Body::Abort {
            code: AbortCode::Idle,
            ..
        })
    ));
}

// Mutants: ClockRunsWhileBusy, NoKeepAlive.
#[test]
fn s49_the_clock_of_the_source_stands_still_while_rows_are_loaded_and_it_hears_that_we_live() {
    let (mut rig, mut script) = (Rig::pulling(), Script::new());
    rig.quick = false;
    rig.hear(script.chunk(&[row(0, "k")]));
    rig.sent.clear();
    rig.wait(second(59));
    assert!(rig.ended.is_none());
    assert!(rig.sent.len() > 50, "{} acks in 59 s", rig.sent.len());
    rig.on(Event::Loaded(Ok(())));
    rig.wait(second(29));
    assert!(rig.ended.is_none(), "it has all its time from here on");
    rig.wait(second(2));
    rig.failed(ErrorKind::Idle);
}

#[test]
fn s50_a_transfer_that_goes_on_is_never_too_long() {
    let (mut rig, mut script) = (Rig::pulling(), Script::new());
    for n in 0..100 {
        let mut big = row(0, &format!("{n:03}"));
        big.entry.value = vec![0; 1 << 20].into();
        rig.hear(script.chunk(&[big]));
        rig.wait(second(14));
    }
    rig.hear(script.end());
    rig.on(Event::Committed(Ok(())));
    assert!(matches!(rig.ended, Some(Ok(_))));
}

// Mutant: NoRateMin.
#[test]
fn s51_a_trickle_is_ended_by_the_minimum_rate() {
    let (mut rig, mut script) = (Rig::pulling(), Script::new());
    for n in 0..12 {
        rig.hear(script.chunk(&[row(0, &format!("{n:03}"))]));
        rig.wait(second(29));
    }
    rig.failed(ErrorKind::TooSlow);
}

// Mutant: NoKeepAlive.
#[test]
fn s52_a_commit_that_takes_long_is_no_silence_and_its_success_counts() {
    let mut rig = Rig::pulling();
    rig.hear(Script::new().end());
    rig.sent.clear();
    rig.wait(second(200));
    assert!(rig.ended.is_none());
    assert!(rig.sent.len() > 190);
    rig.on(Event::Committed(Ok(())));
    assert!(matches!(rig.ended, Some(Ok(_))));
}

// Mutant: the time to repeat stays, and passes again and again.
#[test]
fn a_source_that_leaves_after_its_last_row_leaves_no_clock_that_runs_for_it() {
    let mut rig = Rig::pulling();
    rig.quick = false;
    rig.hear(Script::new().end());
    rig.on(Event::Broken(0, ErrorKind::Transport.into()));
    rig.wait(second(200));
    assert!(rig.core.deadline().is_some_and(|it| it > rig.now));
    rig.on(Event::Committed(Ok(())));
    assert!(matches!(rig.ended, Some(Ok(_))));
    assert!(rig.hung_up);
}

// Mutant: SourceEndsCommit. F20: told that it failed, and switched.
#[test]
fn f20_a_source_that_goes_on_after_its_end_does_not_end_the_switch() {
    let late = |script: &mut Script| {
        [
            script.chunk(&[row(1, "z")]),
            Body::End {
                seq: 9,
                totals: Digest::default(),
            },
            ack(0, 0),
        ]
    };
    for nth in 0..3 {
        let (mut rig, mut script) = (Rig::pulling(), Script::new());
        rig.hear(script.end());
        script.seq = 1;
        rig.hear(late(&mut script)[nth].clone());
        assert!(rig.ended.is_none(), "the outcome of the switch wins");
        rig.on(Event::Committed(Ok(())));
        assert!(matches!(rig.ended, Some(Ok(_))));
        assert!(rig.loaded.is_empty() && rig.hung_up);
    }
}

// Mutant: turn to it again at once.
#[test]
fn s56_a_source_that_refuses_at_once_is_asked_again_after_pauses_that_grow() {
    let mut rig = Rig::new(Options::default().with_reconnects(9), 2);
    rig.on(Event::Opened(Ok(Opening::Fresh)));
    let refuse = |rig: &mut Rig| {
        let attempt = rig.core.attempt();
        rig.on(Event::Connected(attempt, Err(ErrorKind::Transport.into())));
    };
    refuse(&mut rig);
    assert_eq!(
        rig.connects,
        [0, 1],
        "who was not asked yet is asked at once"
    );
    let mut pauses = Vec::new();
    for n in 3..12 {
        refuse(&mut rig);
        // The end of the channel before is not another failure.
        rig.on(Event::Broken(
            rig.core.attempt(),
            ErrorKind::Transport.into(),
        ));
        let from = rig.now;
        while rig.connects.len() < n {
            rig.wait(Duration::from_millis(100));
        }
        pauses.push((rig.now - from).as_millis());
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 6400, 6400]);
    refuse(&mut rig);
    rig.failed(ErrorKind::Transport);
}

// Catches: reconnects that are counted over the whole of a transfer; pauses that stay long.
#[test]
fn a_transfer_that_goes_on_between_its_breaks_may_break_any_number_of_times() {
    let mut rig = Rig::new(Options::default().with_reconnects(2), 1);
    rig.on(Event::Opened(Ok(Opening::Fresh)));
    let mut script = Script::new();
    for attempt in 0..1_000 {
        rig.on(Event::Connected(attempt, Ok(())));
        script.seq = 0;
        let body = script.chunk(&[row(0, &format!("{attempt:04}"))]);
        let stream = StreamId { attempt, ..STREAM };
        rig.on(Event::Received(Frame { stream, body }));
        rig.on(Event::Broken(attempt, ErrorKind::Transport.into()));
        rig.wait(second(1));
    }
    assert!(rig.ended.is_none(), "{:?}", rig.ended);
    assert_eq!(rig.loaded.len(), 1_000);
    assert_eq!(rig.connects.len(), 1_001, "each after the shortest pause");
    // From here on nothing comes: two more, and it is over.
    for more in 0..2 {
        let attempt = rig.core.attempt();
        rig.on(Event::Connected(attempt, Ok(())));
        rig.on(Event::Broken(attempt, ErrorKind::Transport.into()));
        assert_eq!(rig.ended.is_none(), more == 0, "{:?}", rig.ended);
        rig.wait(second(1));
    }
    rig.failed(ErrorKind::Transport);
}

// Catches: signs of life that count as if they were rows.
#[test]
fn a_source_that_only_says_that_it_lives_between_its_breaks_is_given_up() {
    let mut rig = Rig::new(Options::default().with_reconnects(3), 1);
    rig.on(Event::Opened(Ok(Opening::Fresh)));
    let mut attempts = 0;
    while rig.ended.is_none() {
        let attempt = rig.core.attempt();
        let stream = StreamId { attempt, ..STREAM };
        rig.on(Event::Connected(attempt, Ok(())));
        for body in [
            Body::Offer {
                totals: None,
                about: None,
            },
            Body::Alive { limited: true },
        ] {
            rig.on(Event::Received(Frame { stream, body }));
        }
        rig.on(Event::Broken(attempt, ErrorKind::Transport.into()));
        rig.wait(second(10));
        attempts += 1;
        assert!(attempts < 10, "it is asked for ever");
    }
    assert_eq!(attempts, 4);
}

// Mutant: whoever does not have it is asked again.
#[test]
fn s46_a_source_that_does_not_have_it_is_asked_once() {
    let mut rig = Rig::new(Options::default().with_reconnects(9), 2);
    rig.on(Event::Opened(Ok(Opening::Fresh)));
    for attempt in 0..2 {
        rig.on(Event::Connected(attempt, Ok(())));
        let stream = StreamId { attempt, ..STREAM };
        let body = Body::Abort {
            code: AbortCode::SourceGone,
            text: String::new(),
        };
        rig.on(Event::Received(Frame { stream, body }));
    }
    rig.failed(ErrorKind::SourceGone);
    assert_eq!(rig.connects, [0, 1]);
}

// Mutant: NoLocalDeadline.
#[test]
fn f17_who_waits_for_a_commit_that_hangs_is_told_and_the_source_is_let_go() {
    let mut rig = Rig::pulling();
    rig.hear(Script::new().end());
    rig.wait(second(301));
    rig.failed(ErrorKind::Stalled);
    assert!(!rig.hung_up, "the switch is still waited for");
    assert!(matches!(rig.last(), Some(Body::Abort { .. })));
    rig.on(Event::Committed(Ok(())));
    rig.wait(second(61));
    assert!(rig.hung_up);
}

// Mutant: NoLocalDeadline.
#[test]
fn s03_an_open_and_a_load_that_hang_are_given_up() {
    let mut rig = Rig::new(Options::default(), 1);
    rig.wait(second(61));
    rig.failed(ErrorKind::Stalled);
    assert!(rig.hung_up);
    // Its late answer changes nothing.
    rig.on(Event::Opened(Ok(Opening::Fresh)));
    assert!(rig.connects.is_empty());

    let mut rig = Rig::pulling();
    rig.quick = false;
    rig.hear(Script::new().chunk(&[row(0, "k")]));
    rig.wait(second(61));
    rig.failed(ErrorKind::Stalled);
}

// Mutant: StopDuringCommit.
#[test]
fn s25_a_stop_ends_every_phase_but_the_commit() {
    for steps in 0..5 {
        let mut rig = Rig::new(Options::default(), 1);
        let script = &mut Script::new();
        let events = [
            Event::Opened(Ok(Opening::Fresh)),
            Event::Connected(0, Ok(())),
            Event::Received(frame(script.chunk(&[row(0, "k")]))),
            Event::Received(frame(script.end())),
        ];
        for event in events.into_iter().take(steps) {
            rig.on(event);
        }
        rig.on(Event::Stop(Stop::Cancelled));
        if steps < 4 {
            rig.failed(ErrorKind::Cancelled);
        } else {
            assert!(rig.ended.is_none());
            rig.on(Event::Committed(Ok(())));
            assert!(matches!(rig.ended, Some(Ok(_))));
        }
    }
}

// Mutants: ResumeForgetsTotals; a reconnect that asks for everything again.
#[test]
fn s24_a_broken_transfer_goes_on_behind_its_last_row_at_the_next_source() {
    let mut rig = Rig::new(Options::default(), 2);
    rig.on(Event::Opened(Ok(Opening::Fresh)));
    rig.on(Event::Connected(0, Ok(())));
    let mut script = Script::new();
    rig.hear(script.chunk(&[row(0, "a"), row(0, "b")]));
    rig.on(Event::Broken(0, ErrorKind::Transport.into()));
    assert_eq!(rig.connects, [0, 1]);
    rig.on(Event::Connected(1, Ok(())));
    let Some(Body::Pull {
        resume: Some(resume),
        ..
    }) = rig.last()
    else {
        panic!("it resumes: {:?}", rig.last());
    };
    assert_eq!(resume.after.key, "b");
    assert_eq!(resume.totals, script.totals);
    script.seq = 0;
    let stream = StreamId {
        attempt: 1,
        ..STREAM
    };
    let chunk = script.chunk(&[row(1, "a")]);
    for body in [chunk, script.end()] {
        rig.on(Event::Received(Frame { stream, body }));
    }
    rig.on(Event::Committed(Ok(())));
    assert_eq!(rig.loaded.len(), 3);
    assert!(matches!(&rig.ended, Some(Ok(it)) if it.seal.totals == script.totals));
}

/// What an earlier session left: the rows of the script, the last of which has this key.
fn begun_up_to(key: &'static str, script: &Script) -> Resume {
    Resume {
        after: Position {
            keyspace: 0,
            key: key.into(),
        },
        totals: script.totals,
    }
}

// Mutants: the first question asks for everything; what was there before does not count.
#[test]
fn s24_a_target_that_was_begun_by_another_process_gets_what_lies_behind() {
    let mut script = Script::new();
    script.chunk(&[row(0, "a"), row(0, "b")]);
    script.seq = 0;
    let begun = begun_up_to("b", &script);
    let mut rig = Rig::new(Options::default(), 1);
    rig.on(Event::Start);
    rig.on(Event::Opened(Ok(Opening::Resumed(begun))));
    rig.on(Event::Connected(0, Ok(())));
    let asked = |it: &Body| matches!(it, Body::Pull { resume: Some(it), .. } if it.after.key == "b" && it.totals == script.totals);
    assert!(rig.last().is_some_and(asked));
    rig.hear(script.chunk(&[row(1, "a")]));
    rig.hear(script.end());
    rig.on(Event::Committed(Ok(())));
    assert_eq!(rig.loaded.len(), 1);
    assert!(matches!(&rig.ended, Some(Ok(it)) if it.seal.totals == script.totals));
}

// Mutant: fail for what an earlier session left.
#[test]
fn s72_what_an_earlier_session_left_of_other_rows_is_thrown_away_once() {
    let mut script = Script::new();
    script.chunk(&[row(0, "a")]);
    let begun = begun_up_to("a", &script);
    let mut rig = Rig::new(Options::default(), 1);
    rig.on(Event::Start);
    rig.on(Event::Opened(Ok(Opening::Resumed(begun))));
    rig.on(Event::Connected(0, Ok(())));
    let mismatch = || Body::Abort {
        code: AbortCode::ResumeMismatch,
        text: String::new(),
    };
    rig.hear(mismatch());
    assert!(rig.ended.is_none());
    rig.on(Event::Opened(Ok(Opening::Fresh)));
    rig.on(Event::Connected(1, Ok(())));
    let asked = |it: &Body| matches!(it, Body::Pull { resume: None, .. });
    assert!(rig.last().is_some_and(asked));
    let stream = StreamId {
        attempt: 1,
        ..STREAM
    };
    let body = mismatch();
    rig.on(Event::Received(Frame { stream, body }));
    assert!(
        matches!(&rig.ended, Some(Err((_, it))) if it.kind == ErrorKind::Corrupt(Damage::Resume))
    );
}

// Mutant: a session may begin anew as often as it is told to.
#[test]
fn a_target_that_gives_out_the_refused_rows_again_ends_the_session() {
    let mut script = Script::new();
    script.chunk(&[row(0, "a")]);
    let begun = begun_up_to("a", &script);
    let mut rig = Rig::new(Options::default(), 1);
    rig.on(Event::Start);
    for attempt in 0..2 {
        assert!(rig.ended.is_none());
        rig.on(Event::Opened(Ok(Opening::Resumed(begun.clone()))));
        rig.on(Event::Connected(attempt, Ok(())));
        let stream = StreamId { attempt, ..STREAM };
        let body = Body::Abort {
            code: AbortCode::ResumeMismatch,
            text: String::new(),
        };
        rig.on(Event::Received(Frame { stream, body }));
    }
    assert!(
        matches!(&rig.ended, Some(Err((_, it))) if it.kind == ErrorKind::Corrupt(Damage::Resume))
    );
}

// Mutant: the window begins anew, or counts what was loaded of the earlier stream twice.
#[test]
fn what_an_earlier_stream_left_to_load_counts_against_the_window_of_the_next() {
    let options = Options::default().with_window_bytes(10);
    let mut rig = Rig::new(options, 2);
    rig.quick = false;
    rig.on(Event::Opened(Ok(Opening::Fresh)));
    rig.on(Event::Connected(0, Ok(())));
    rig.hear(Script::new().chunk(&[row(0, "a")]));
    rig.on(Event::Broken(0, ErrorKind::Transport.into()));
    rig.on(Event::Connected(1, Ok(())));
    assert!(matches!(rig.last(), Some(Body::Pull { credit: 0, .. })));
    let stream = StreamId {
        attempt: 1,
        ..STREAM
    };
    let body = Body::Alive { limited: false };
    rig.on(Event::Received(Frame { stream, body }));
    rig.on(Event::Loaded(Ok(())));
    assert!(matches!(
        rig.last(),
        Some(Body::Ack {
            next: 0,
            credit: 10,
            ..
        })
    ));
}

// Mutant: the flag says whether it loads.
#[test]
fn a_source_is_told_of_a_wait_for_the_rate_limit_and_not_of_a_load() {
    let mut rig = Rig::pulling();
    (rig.quick, rig.limited) = (false, true);
    rig.hear(Script::new().chunk(&[row(0, "a")]));
    let limited = |rig: &Rig| match rig.last() {
        Some(Body::Ack { limited, .. }) => *limited,
        other => panic!("it should say how far it is: {other:?}"),
    };
    rig.wait(second(2));
    assert!(limited(&rig));
    rig.on(Event::Charged);
    rig.wait(second(2));
    assert!(!limited(&rig));
}

#[test]
fn a_source_that_sends_damage_is_not_tried_again() {
    let mut rig = Rig::new(Options::default(), 2);
    rig.on(Event::Opened(Ok(Opening::Fresh)));
    rig.on(Event::Connected(0, Ok(())));
    rig.hear(Script::new().chunk(&[row(9, "k")]));
    rig.failed(ErrorKind::Corrupt(Damage::Boundary));
    assert_eq!(rig.connects, [0]);
}
