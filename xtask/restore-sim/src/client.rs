//! Those who ask, cancel and let go; and what becomes of the processes around them.

use std::{sync::Arc, time::Duration};

use kv_restore::{
    Epoch, ErrorKind, Request, Session, SessionId,
    machine::Receiver,
    registry::{Entered, Registry},
};

use crate::{
    plan::{SOURCES, Step, peer, snapshot},
    task::Task,
    world::World,
};

// Longer than all bounds of a session one after another: with a source that closes after each
// chunk, which has a row at least, and one that does not send any and is given up after two
// spans of the minimum rate, some 75 s for each of 14 rows.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1_500);
const TRIES: u64 = 3;

/// Somebody who waits.
#[derive(Debug)]
pub struct Handle {
    pub session: Session,
    pub until: Duration,
}

impl World {
    pub fn client(&mut self, step: Step) {
        self.note(|| format!("client: {step:?}"));
        match step {
            Step::Request {
                snapshot: id,
                epoch,
                sources,
                count,
                hold,
            } => {
                let sources = sources.iter().take(count).map(|it| peer(*it));
                self.request(Request {
                    at: Arc::new(snapshot(id, epoch)),
                    sources: sources.collect(),
                    hold,
                });
            }
            Step::Commit => {
                if let Some(handle) = self.some_handle() {
                    handle.session.commit();
                }
            }
            Step::Repeat => {
                let last = self.tasks.last().map(|it| it.request.clone());
                if let Some(last) = last {
                    self.request(last);
                }
            }
            Step::Cancel => {
                if let Some(handle) = self.some_handle() {
                    handle.session.cancel();
                }
            }
            Step::Drop => {
                if !self.handles.is_empty() {
                    let n = self.random.index(self.handles.len());
                    self.handles.swap_remove(n);
                }
            }
            Step::Crash => self.crash(),
            Step::SourceCrash(source) => self.crash_source(source),
            Step::Leech { source, takes } => self.leech_begins(source, takes),
            Step::Close => {
                self.registry.close();
                self.check_closed();
                // What was closed is let go of, before somebody else may touch the target.
                self.signal();
                self.forget();
            }
        }
    }

    fn some_handle(&mut self) -> Option<&Handle> {
        if self.handles.is_empty() {
            return None;
        }
        let n = self.random.index(self.handles.len());
        self.handles.get(n)
    }

    /// The process dies: every task of it, whatever it was doing.
    fn crash(&mut self) {
        for n in 0..self.tasks.len() {
            if self.tasks.get(n).is_some_and(|it| !it.over) {
                self.crash_task(n);
            }
        }
        self.forget();
        self.turn = None;
        self.line.clear();
        self.target.reopen();
        self.check_promised();
    }

    fn forget(&mut self) {
        self.registry = Registry::default();
        self.epoch = Epoch(0);
    }

    pub fn request(&mut self, request: Request) {
        let live = self.live_task();
        let id = SessionId(u128::from(self.next_id()));
        let entered = self.registry.enter(request.clone(), id);
        self.check_entered(live, &request, &entered);
        self.epoch = self.epoch.max(request.at.epoch);
        match entered {
            Ok(Entered::Shared(session)) => self.wait_for(session),
            Ok(Entered::Started(session, completer, asked)) => {
                let core = Receiver::new(
                    Arc::clone(&request.at),
                    id,
                    request.sources.len(),
                    self.plan.options.clone(),
                );
                let core = if request.hold { core.holding() } else { core };
                self.wait_for(session);
                self.tasks.push(Task {
                    at: Arc::clone(&request.at),
                    request,
                    core,
                    completer: Some(completer),
                    asked,
                    stop_said: false,
                    commit_said: false,
                    queued: Some(self.now + self.plan.queue_within),
                    op: None,
                    connecting: None,
                    committing: None,
                    staged: None,
                    channel: None,
                    over: false,
                    told: None,
                    switched: false,
                    disturbed: false,
                    corrupted: false,
                    largest_chunk: 0,
                });
                self.line.push_back(self.tasks.len() - 1);
            }
            Err(error) => self.note(|| format!("refused: {error}")),
        }
    }

    fn wait_for(&mut self, session: Session) {
        let until = self.now + ANSWERED_WITHIN;
        self.handles.push(Handle { session, until });
    }

    /// The task of the session that the registry would share.
    pub fn live_task(&self) -> Option<usize> {
        let live = self.registry.live()?;
        self.tasks
            .iter()
            .position(|it| it.core.stream().session == live)
    }

    /// Without faults a request succeeds, and then nothing is left.
    pub fn finish(&mut self) {
        self.check_quiet();
        self.calm = true;
        self.up = [true; SOURCES];
        if self.target.poisoned {
            self.crash();
        }
        for attempt in 0..TRIES {
            if self.has_failed() {
                return;
            }
            let request = Request {
                at: Arc::new(snapshot(3, 50 + attempt)),
                sources: [peer(0)].into(),
                hold: false,
            };
            self.request(request);
            self.signal();
            let session = self.handles.last().map(|it| it.session.clone());
            self.until_quiet();
            match session.and_then(|it| it.ended()) {
                Some(Ok(_)) => return self.check_quiet(),
                Some(Err(error)) if error.kind() == ErrorKind::Busy => {}
                other => return self.fail(format!("I14: without faults it ended so: {other:?}")),
            }
        }
        self.fail("I14: it never got its turn".to_owned());
    }
}
