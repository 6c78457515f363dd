//! The one slot of a space, and the guard through which alone a session ends.
//!
//! A session that has ended has no representation here: [`Completer`] empties the slot and
//! tells the waiters under one lock, whichever way its task goes: a return, a panic, an
//! abort, the end of the runtime. So nobody can be handed a session that is over, and nobody
//! waits for one. No code of a store or a transport runs under the lock.

use std::sync::{Arc, Weak, atomic::Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    Epoch, ErrorKind, Failure, Mutant, Phase, Progress, RestoreError, SessionId,
    machine::{Stop, receiver::Installed},
    policy::{Request, Verdict, decide},
    restorer::{Counts, RestoreStats},
    session::{Asked, Session, Token, Wishes},
};

/// How a session ended.
pub type Outcome = Result<Installed, RestoreError>;

/// The slot of one space. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    slot: Arc<Mutex<Slot>>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Slot {
    live: Option<Live>,
    // The highest that has spoken. What it asked for may have failed or been there already;
    // a lower one is overruled nevertheless.
    epoch: Epoch,
    closed: bool,
}

#[derive(Debug)]
struct Live {
    id: SessionId,
    request: Request,
    token: Weak<Token>,
    wishes: Arc<Wishes>,
    outcome: watch::Receiver<Option<Outcome>>,
    progress: watch::Receiver<Progress>,
}

/// What a request was given.
#[derive(Debug)]
pub enum Entered {
    /// A share in the session that runs for the same request.
    Shared(Session),
    /// A session of its own, and what its task needs.
    Started(Session, Completer, Asked),
}

impl Registry {
    /// Gives a request a session, the one that runs or one of its own with this id. A
    /// session that has to give way is told to.
    ///
    /// # Errors
    ///
    /// If no source is named, a higher epoch has spoken, the session that runs is newer, or the
    /// registry is closed.
    pub fn enter(&self, request: Request, id: SessionId) -> Result<Entered, RestoreError> {
        let fail = |failure: Failure| {
            self.counts.refused();
            let (at, peer) = (&request.at, request.source(0));
            RestoreError::new(at, &peer, None, Phase::Queued, failure)
        };
        let refuse = |kind: ErrorKind| fail(kind.into());
        if request.sources.is_empty() {
            return Err(fail(Failure::new(
                ErrorKind::Protocol,
                "no source is named",
            )));
        }
        let mut slot = self.slot.lock();
        if slot.closed {
            return Err(refuse(ErrorKind::Closed));
        }
        if request.at.epoch < slot.epoch && !Mutant::EpochIgnored.is_on() {
            return Err(refuse(ErrorKind::StaleEpoch));
        }
        slot.epoch = request.at.epoch;
        if let Some(live) = &slot.live {
            match decide(&live.request, &request) {
                Verdict::Refuse(kind) => return Err(refuse(kind)),
                Verdict::Share => {
                    if let Some(session) = live.share() {
                        return Ok(Entered::Shared(session));
                    }
                }
                Verdict::Preempt => {}
            }
            ask_to_stop(&live.wishes.stop, Stop::Superseded);
        }
        let (outcome_tx, outcome) = watch::channel(None);
        let (progress_tx, progress) = watch::channel(Progress::default());
        let wishes = Arc::new(Wishes::default());
        let asked = wishes.asked();
        let token = Arc::new(Token(Arc::clone(&wishes)));
        let live = Live {
            id,
            request: request.clone(),
            token: Arc::downgrade(&token),
            wishes,
            outcome,
            progress,
        };
        let session = live.session(token);
        slot.live = Some(live);
        drop(slot);
        self.counts.begun(id);
        let completer = Completer {
            id,
            request,
            slot: Arc::clone(&self.slot),
            counts: Arc::clone(&self.counts),
            outcome: outcome_tx,
            progress: progress_tx,
            done: false,
        };
        Ok(Entered::Started(session, completer, asked))
    }

    /// Refuses all further requests and tells the running session to end.
    pub fn close(&self) {
        let mut slot = self.slot.lock();
        slot.closed = true;
        if let Some(live) = &slot.live {
            ask_to_stop(&live.wishes.stop, Stop::Closed);
        }
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// What became of the requests so far.
    #[must_use]
    pub fn stats(&self) -> RestoreStats {
        self.counts.read()
    }

    /// The session that runs.
    #[must_use]
    pub fn live(&self) -> Option<SessionId> {
        self.slot.lock().live.as_ref().map(|live| live.id)
    }
}

/// The first reason to stop is the one that counts.
pub(crate) fn ask_to_stop(stop: &watch::Sender<Option<Stop>>, why: Stop) {
    stop.send_if_modified(|stop| {
        let first = stop.is_none();
        if first {
            *stop = Some(why);
        }
        first
    });
}

impl Live {
    /// Another handle, unless the last one is gone and it is being cancelled.
    fn share(&self) -> Option<Session> {
        let token = self.token.upgrade().or_else(|| {
            let goes_on = self.wishes.detached.load(Ordering::Relaxed);
            goes_on.then(|| Arc::new(Token(Arc::clone(&self.wishes))))
        })?;
        // What was asked to end is not a session to share.
        let ends = self.wishes.stop.borrow().is_some();
        (!ends).then(|| self.session(token))
    }

    fn session(&self, token: Arc<Token>) -> Session {
        Session::new(
            self.id,
            self.request.clone(),
            token,
            self.outcome.clone(),
            self.progress.clone(),
        )
    }
}

/// The duty to end a session, once.
#[derive(Debug)]
pub struct Completer {
    id: SessionId,
    request: Request,
    slot: Arc<Mutex<Slot>>,
    counts: Arc<Counts>,
    outcome: watch::Sender<Option<Outcome>>,
    progress: watch::Sender<Progress>,
    done: bool,
}

impl Completer {
    /// Whose end it is.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.id
    }

    /// What the session was asked to do.
    #[must_use]
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Says how far the session has come.
    pub fn progress(&self, progress: Progress) {
        self.counts.is_at(self.id, &progress);
        self.progress.send_if_modified(|last| {
            let changed = *last != progress;
            *last = progress;
            changed
        });
    }

    /// Ends the session: the slot is emptied and the waiters are told.
    pub fn finish(mut self, outcome: Result<Installed, (Phase, Failure)>) {
        let peer = self.request.source(self.progress.borrow().source);
        let outcome = outcome.map_err(|(phase, failure)| {
            RestoreError::new(&self.request.at, &peer, Some(self.id), phase, failure)
        });
        self.publish(outcome);
    }

    fn publish(&mut self, outcome: Outcome) {
        if std::mem::replace(&mut self.done, true) {
            return;
        }
        // Whoever hears of an end finds it counted.
        self.counts.ended(self.id, &outcome);
        // One critical section: whoever holds the lock sees a session that lives, or none.
        let mut slot = self.slot.lock();
        let is_ours = slot.live.as_ref().is_some_and(|live| live.id == self.id);
        if is_ours && !Mutant::SlotNotEmptied.is_on() {
            slot.live = None;
        }
        self.outcome.send_replace(Some(outcome));
    }
}

impl Drop for Completer {
    fn drop(&mut self) {
        if Mutant::GuardWithoutDrop.is_on() {
            return;
        }
        let phase = self.progress.borrow().phase;
        let failure = Failure::from(ErrorKind::TaskLost);
        let (at, peer) = (&self.request.at, self.request.source(0));
        self.publish(Err(RestoreError::new(
            at,
            &peer,
            Some(self.id),
            phase,
            failure,
        )));
    }
}
