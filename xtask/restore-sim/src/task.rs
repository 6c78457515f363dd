//! The task of a receiving session, as the driver of the crate has it.

use std::{sync::Arc, time::Duration};

use crate::{
    net::{Channel, End},
    target::Kept,
    world::{Event, World},
};
use kv_restore::{
    Asked, ErrorKind, Failure, Phase, Request, Resume, Seal, SnapshotRef, Stop, Switch,
    frame::{Body, Part, Row},
    machine::{
        Now, Receiver,
        receiver::{Action, Event as Did, Installed, Opening},
    },
    registry::Completer,
};

/// What was under way, and what it comes to.
#[derive(Debug)]
pub enum Answer {
    Opened(Result<(), Failure>),
    Connected(u32, usize, Result<(), Failure>),
    Charged,
    Loaded(Vec<Row>, Option<Resume>, Result<(), Failure>),
    /// Whether the switch happens, and what is said of it.
    Committed(bool, Result<(), Failure>),
    Panics(Option<bool>),
}

#[derive(Debug)]
pub struct Task {
    pub at: Arc<SnapshotRef>,
    pub request: Request,
    pub core: Receiver,
    pub completer: Option<Completer>,
    pub asked: Asked,
    pub stop_said: bool,
    pub commit_said: bool,
    /// Until when it waits for its turn.
    pub queued: Option<Now>,
    pub op: Option<u64>,
    pub connecting: Option<u64>,
    pub committing: Option<Seal>,
    pub staged: Option<Vec<Row>>,
    pub channel: Option<usize>,
    pub over: bool,
    /// What its handles were told.
    pub told: Option<Result<Installed, ErrorKind>>,
    pub switched: bool,
    /// Something went wrong around it, or bytes of it were changed, by our doing.
    pub disturbed: bool,
    pub corrupted: bool,
    pub largest_chunk: u64,
}

impl Task {
    pub fn deadline(&self) -> Option<Now> {
        match self.queued {
            _ if self.over => None,
            Some(queued) => Some(queued),
            None => self.core.deadline(),
        }
    }

    pub fn is_under_way(&self) -> bool {
        self.op.is_some() || self.connecting.is_some()
    }
}

impl World {
    pub fn task_tick(&mut self, n: usize) {
        let queued = self.tasks.get_mut(n).and_then(|it| it.queued.take());
        if queued.is_some() {
            self.line.retain(|it| *it != n);
            self.end_queued(n, ErrorKind::Busy);
        } else {
            self.task_on(n, Did::Tick);
        }
    }

    /// Ends a session that never got its turn.
    fn end_queued(&mut self, n: usize, kind: ErrorKind) {
        self.line.retain(|it| *it != n);
        if let Some(task) = self.tasks.get_mut(n) {
            task.queued = None;
            task.over = true;
        }
        self.tell(n, Err((Phase::Queued, kind.into())));
    }

    /// Gives the turn to the next in line.
    pub fn next_turn(&mut self) {
        if self.turn.is_none()
            && let Some(n) = self.line.pop_front()
        {
            self.turn = Some(n);
            if let Some(task) = self.tasks.get_mut(n) {
                task.queued = None;
            }
            self.task_on(n, Did::Start);
        }
    }

    /// Tells tasks what was asked of them.
    pub fn signal(&mut self) {
        for n in 0..self.tasks.len() {
            let Some(task) = self.tasks.get_mut(n).filter(|it| !it.over && !it.stop_said) else {
                continue;
            };
            let Some(stop) = *task.asked.stop.borrow() else {
                let commit = *task.asked.commit.borrow() && task.queued.is_none();
                if commit && !std::mem::replace(&mut task.commit_said, true) {
                    self.task_on(n, Did::Commit);
                }
                continue;
            };
            task.stop_said = true;
            if task.queued.is_some() {
                let kind = match stop {
                    Stop::Superseded => ErrorKind::Superseded,
                    Stop::Closed => ErrorKind::Closed,
                    _ => ErrorKind::Cancelled,
                };
                self.end_queued(n, kind);
            } else {
                self.task_on(n, Did::Stop(stop));
            }
        }
        self.next_turn();
    }

    pub fn task_on(&mut self, n: usize, did: Did) {
        let now = self.now;
        let Some(task) = self.tasks.get_mut(n).filter(|it| !it.over) else {
            return;
        };
        let line = format!("task {n}: {did:?}");
        let actions = task.core.handle(now, did);
        self.note(|| line);
        for action in actions {
            self.task_acts(n, action);
        }
    }

    fn task_acts(&mut self, n: usize, action: Action) {
        self.note(|| format!("task {n}   {action:?}"));
        match action {
            Action::Open => self.open(n),
            Action::Connect { attempt, source } => self.connect(n, attempt, source),
            Action::Send(frame) => {
                if let Some(channel) = self.tasks.get(n).and_then(|it| it.channel) {
                    self.send(channel, End::Source, frame);
                }
            }
            Action::Charge(_) => self.under_way(n, Duration::from_millis(1), Answer::Charged),
            Action::Load { rows, point } => {
                let rows = rows.iter().flat_map(Part::rows);
                self.load(n, rows.collect(), point);
            }
            Action::Commit(seal) => self.commit(n, seal),
            Action::Finish(outcome) => self.task_ends(n, outcome),
            Action::Hangup => {
                let Some(task) = self.tasks.get_mut(n) else {
                    return;
                };
                // A commit that is under way is waited for, whatever is said meanwhile.
                task.over = task.committing.is_none();
                if let Some(channel) = task.channel.take() {
                    self.close(channel, End::Receiver, false);
                }
            }
        }
    }

    fn under_way(&mut self, n: usize, wait: Duration, answer: Answer) {
        let op = self.next_id();
        if let Some(task) = self.tasks.get_mut(n) {
            task.op = Some(op);
        }
        self.after(
            wait,
            Event::Task {
                task: n,
                op,
                answer,
            },
        );
    }

    /// How long a call takes, beside its bound only if it is to hang.
    fn takes(&mut self, n: usize, bound_ms: u64) -> Duration {
        let odds = self.odds();
        let ms = if self.lucky(odds.hang) {
            self.spoil(n);
            bound_ms + 100 + self.random.below(40_000)
        } else if self.lucky(odds.slow) {
            self.random.below(bound_ms * 9 / 10)
        } else {
            self.random.below(5)
        };
        Duration::from_millis(ms)
    }

    fn spoil(&mut self, n: usize) {
        if let Some(task) = self.tasks.get_mut(n) {
            task.disturbed = true;
        }
    }

    fn goes_wrong(&mut self, n: usize, kind: ErrorKind) -> Option<Result<(), Failure>> {
        let odds = self.odds();
        let wrong = self.lucky(odds.refuse) || self.target.poisoned;
        wrong.then(|| {
            self.spoil(n);
            Err(kind.into())
        })
    }

    fn panics(&mut self, n: usize) -> bool {
        let odds = self.odds();
        let panics = self.lucky(odds.panic);
        if panics {
            self.spoil(n);
        }
        panics
    }

    fn open(&mut self, n: usize) {
        if self.tasks.get(n).is_some_and(|it| it.staged.is_some()) {
            // What it went on with is thrown away.
            self.target.kept = None;
            self.target.staging = None;
        }
        let wait = self.takes(n, 8_000);
        let answer = match self.goes_wrong(n, ErrorKind::Begin) {
            _ if self.panics(n) => Answer::Panics(None),
            Some(wrong) => Answer::Opened(wrong),
            None => Answer::Opened(Ok(())),
        };
        self.under_way(n, wait, answer);
    }

    fn connect(&mut self, n: usize, attempt: u32, source: usize) {
        let wait = self.takes(n, 3_000);
        let op = self.next_id();
        let Some(task) = self.tasks.get_mut(n) else {
            return;
        };
        let peer = task.request.sources.get(source).cloned();
        let place = (0..crate::plan::SOURCES).find(|it| Some(crate::plan::peer(*it)) == peer);
        task.connecting = Some(op);
        if let Some(channel) = task.channel.take() {
            self.close(channel, End::Receiver, false);
        }
        let place = place.unwrap_or(0);
        let up = self.up.get(place).copied().unwrap_or(false);
        if !up {
            self.spoil(n);
        }
        let result = if up {
            Ok(())
        } else {
            Err(ErrorKind::Transport.into())
        };
        let answer = match self.panics(n) {
            true => Answer::Panics(None),
            false => Answer::Connected(attempt, place, result),
        };
        self.after(
            wait,
            Event::Task {
                task: n,
                op,
                answer,
            },
        );
    }

    fn load(&mut self, n: usize, rows: Vec<Row>, point: Option<Resume>) {
        self.check_load(n, &rows);
        let wait = self.takes(n, 8_000);
        let answer = match self.goes_wrong(n, ErrorKind::Staging) {
            _ if self.panics(n) => Answer::Panics(None),
            Some(wrong) => Answer::Loaded(rows, None, wrong),
            None => Answer::Loaded(rows, point, Ok(())),
        };
        self.under_way(n, wait, answer);
    }

    fn commit(&mut self, n: usize, seal: Seal) {
        self.check_staging(n, "commit");
        self.check_asked(n);
        let odds = self.odds();
        let wait = self.takes(n, 20_000);
        let happens = self.random.chance(1, 2);
        let in_doubt = self.lucky(odds.doubt);
        let not_done = ErrorKind::Commit(Switch::NotDone);
        let answer = match self.goes_wrong(n, not_done) {
            _ if self.panics(n) => Answer::Panics(Some(happens)),
            Some(wrong) => Answer::Committed(false, wrong),
            None if in_doubt => {
                self.spoil(n);
                let doubt = ErrorKind::Commit(Switch::InDoubt).into();
                Answer::Committed(happens, Err(doubt))
            }
            None => Answer::Committed(true, Ok(())),
        };
        if let Some(task) = self.tasks.get_mut(n) {
            task.committing = Some(seal);
        }
        self.under_way(n, wait, answer);
    }

    pub fn task_answers(&mut self, n: usize, op: u64, answer: Answer) {
        let Some(task) = self.tasks.get_mut(n) else {
            return;
        };
        if task.op == Some(op) {
            task.op = None;
        } else if task.connecting == Some(op) {
            task.connecting = None;
        } else {
            // It was given up; what it holds is dropped with its answer.
            return;
        }
        match answer {
            Answer::Opened(result) => self.opened(n, result),
            Answer::Connected(attempt, source, result) => {
                if result.is_ok() {
                    self.channels.push(Channel::new(n, attempt, source));
                    let channel = self.channels.len() - 1;
                    if let Some(task) = self.tasks.get_mut(n) {
                        task.channel = Some(channel);
                    }
                }
                self.task_on(n, Did::Connected(attempt, result));
            }
            Answer::Charged => self.task_on(n, Did::Charged),
            Answer::Loaded(rows, point, result) => {
                self.check_staging(n, "load");
                if let Some(task) = self.tasks.get_mut(n)
                    && let Some(staged) = &mut task.staged
                {
                    staged.extend(rows);
                    if let Some(point) = point {
                        self.target.kept = Some(Kept {
                            id: task.at.id,
                            rows: staged.clone(),
                            point,
                            corrupted: task.corrupted,
                        });
                    }
                }
                self.task_on(n, Did::Loaded(result));
            }
            Answer::Committed(happens, result) => {
                self.switch(n, happens);
                if matches!(&result, Err(it) if it.kind == ErrorKind::Commit(Switch::InDoubt)) {
                    self.target.poisoned = true;
                }
                let told = self.tasks.get(n).is_some_and(|it| it.told.is_some());
                if told {
                    self.release(n);
                }
                self.task_on(n, Did::Committed(result));
                if let Some(task) = self.tasks.get_mut(n).filter(|it| it.channel.is_none()) {
                    task.over |= task.told.is_some();
                }
            }
            Answer::Panics(happens) => {
                if let Some(happens) = happens {
                    self.switch(n, happens);
                }
                self.note(|| format!("task {n} panics"));
                self.drop_task(n);
            }
        }
    }

    fn opened(&mut self, n: usize, result: Result<(), Failure>) {
        let Some(task) = self.tasks.get_mut(n) else {
            return;
        };
        let opened = match result {
            Ok(()) => self.target.open(&task.at),
            Err(failure) => Err(failure),
        };
        let begun = match &opened {
            Ok(Opening::Fresh) => Some(Vec::new()),
            Ok(Opening::Resumed(_)) => self.target.kept.as_ref().map(|it| {
                // What an earlier source left out, this one's rows don't add up to.
                task.corrupted |= it.corrupted;
                task.disturbed |= it.corrupted;
                it.rows.clone()
            }),
            _ => None,
        };
        if begun.is_some() {
            task.staged = begun;
            match self.target.staging.replace(n) {
                None => {}
                Some(other) => {
                    self.fail(format!("I7: task {other} has a staging open, and {n} too"))
                }
            }
        }
        self.task_on(n, Did::Opened(opened));
    }

    /// The commit ends: the switch happened, or not.
    fn switch(&mut self, n: usize, happens: bool) {
        let Some(task) = self.tasks.get_mut(n) else {
            return;
        };
        let (Some(seal), Some(rows)) = (task.committing.take(), task.staged.take()) else {
            return;
        };
        self.target.staging = None;
        if !happens {
            return;
        }
        task.switched = true;
        let told = task.told.clone();
        self.note(|| format!("task {n} has switched the target"));
        if let Some(Err(kind)) = told
            && kind != ErrorKind::Stalled
        {
            self.fail(format!("I6: told {kind:?}, and then the switch happened"));
        }
        if let Err(violation) = self.target.publish(rows, seal) {
            self.fail(violation);
        }
    }

    pub fn task_hears(
        &mut self,
        channel: usize,
        content: Result<kv_restore::frame::Frame, Failure>,
    ) {
        let Some((n, attempt)) = self.channels.get(channel).map(|it| (it.task, it.attempt)) else {
            return;
        };
        match content {
            Ok(frame) => {
                if let Body::Chunk { rows, .. } = &frame.body
                    && let Some(task) = self.tasks.get_mut(n)
                {
                    let bytes = u64::try_from(rows.len()).unwrap_or(u64::MAX);
                    task.largest_chunk = task.largest_chunk.max(bytes);
                }
                self.task_on(n, Did::Received(frame));
            }
            Err(failure) => {
                if let Some(task) = self.tasks.get_mut(n) {
                    task.channel.take_if(|it| *it == channel);
                }
                self.close(channel, End::Receiver, true);
                self.task_on(n, Did::Broken(attempt, failure));
            }
        }
    }

    pub fn task_loses(&mut self, channel: usize) {
        let Some((n, attempt)) = self.channels.get(channel).map(|it| (it.task, it.attempt)) else {
            return;
        };
        let Some(task) = self.tasks.get_mut(n) else {
            return;
        };
        if task.channel.take_if(|it| *it == channel).is_some() {
            let closed = Failure::new(ErrorKind::Transport, "closed");
            self.close(channel, End::Receiver, false);
            self.task_on(n, Did::Broken(attempt, closed));
        }
    }

    fn task_ends(&mut self, n: usize, outcome: Result<Installed, (Phase, Failure)>) {
        let Some(task) = self.tasks.get_mut(n) else {
            return;
        };
        task.connecting = None;
        if let Err((_, failure)) = &outcome
            && failure.spoils_staging()
        {
            self.target.kept.take_if(|it| it.id == task.at.id);
        }
        if task.committing.is_none() {
            task.op = None;
            self.release(n);
        }
        self.tell(n, outcome);
    }

    /// Gives staging and turn back.
    fn release(&mut self, n: usize) {
        if let Some(task) = self.tasks.get_mut(n) {
            task.staged = None;
        }
        self.target.staging.take_if(|it| *it == n);
        self.turn.take_if(|it| *it == n);
    }

    fn tell(&mut self, n: usize, outcome: Result<Installed, (Phase, Failure)>) {
        let Some(task) = self.tasks.get_mut(n) else {
            return;
        };
        let told = outcome.clone().map_err(|(_, failure)| failure.kind);
        if let Some(before) = task.told.replace(told.clone()) {
            return self.fail(format!("I2: task {n} ends twice: {before:?}, {told:?}"));
        }
        if let Some(completer) = task.completer.take() {
            completer.finish(outcome);
        }
        self.check_outcome(n, &told);
    }

    /// The task is gone, whatever it was doing.
    pub fn drop_task(&mut self, n: usize) {
        self.release(n);
        self.line.retain(|it| *it != n);
        let Some(task) = self.tasks.get_mut(n) else {
            return;
        };
        task.over = true;
        (task.op, task.connecting, task.queued, task.committing) = (None, None, None, None);
        let channel = task.channel.take();
        if let Some(completer) = task.completer.take() {
            task.told = Some(Err(ErrorKind::TaskLost));
            drop(completer);
        }
        if let Some(channel) = channel {
            self.close(channel, End::Receiver, true);
        }
    }

    /// A crash in the middle of a commit: it happened, or not.
    pub fn crash_task(&mut self, n: usize) {
        let happens = self.random.chance(1, 2);
        self.switch(n, happens);
        self.drop_task(n);
    }

    pub fn disturb(&mut self, channel: usize) {
        if let Some(n) = self.channels.get(channel).map(|it| it.task) {
            self.spoil(n);
        }
    }

    pub fn corrupt(&mut self, channel: usize) {
        if let Some(n) = self.channels.get(channel).map(|it| it.task)
            && let Some(task) = self.tasks.get_mut(n)
        {
            task.corrupted = true;
        }
    }
}
