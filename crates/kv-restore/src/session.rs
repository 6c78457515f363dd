//! What a caller holds of a session: its outcome, its progress, and the hand on its life.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::watch;

use crate::{
    ErrorKind, Failure, Phase, RestoreError, SessionId,
    machine::Stop,
    policy::Request,
    registry::{Outcome, ask_to_stop},
};

/// How far a session has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// What it is doing.
    pub phase: Phase,
    /// Which of its sources it turned to last.
    pub source: usize,
    /// How often it turned to a source again.
    pub attempt: u32,
    /// Rows that came and were in order.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            phase: Phase::Queued,
            source: 0,
            attempt: 0,
            rows: 0,
            bytes: 0,
        }
    }
}

/// Ends the session when the last handle is gone, unless it is detached.
#[derive(Debug)]
pub(crate) struct Token {
    stop: Arc<watch::Sender<Option<Stop>>>,
    detached: Arc<AtomicBool>,
}

impl Token {
    pub(crate) fn new(
        stop: Arc<watch::Sender<Option<Stop>>>,
        detached: Arc<AtomicBool>,
    ) -> Arc<Self> {
        Arc::new(Self { stop, detached })
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        // Only a flag: what it stands for was said before the last handle could go.
        if !self.detached.load(Ordering::Relaxed) {
            ask_to_stop(&self.stop, Stop::Cancelled);
        }
    }
}

/// A share in a session. When the last one is dropped the session is cancelled, unless one
/// of them was [detached](Self::detach).
#[derive(Clone, Debug)]
pub struct Session {
    id: SessionId,
    request: Request,
    token: Arc<Token>,
    outcome: watch::Receiver<Option<Outcome>>,
    progress: watch::Receiver<Progress>,
}

impl Session {
    pub(crate) fn new(
        id: SessionId,
        request: Request,
        token: Arc<Token>,
        outcome: watch::Receiver<Option<Outcome>>,
        progress: watch::Receiver<Progress>,
    ) -> Self {
        Self {
            id,
            request,
            token,
            outcome,
            progress,
        }
    }

    /// Which session it is.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// How it ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<Outcome> {
        self.outcome.borrow().clone()
    }

    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// The one with which it ended, for each that waits.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing; dropping the last handle cancels the session.
    pub async fn outcome(&self) -> Outcome {
        let mut outcome = self.outcome.clone();
        match outcome.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or_else(|| Err(self.lost())),
            Err(_) => Err(self.lost()),
        }
    }

    // Belt and braces: the guard publishes before its channel can close.
    fn lost(&self) -> RestoreError {
        let phase = self.progress.borrow().phase;
        let failure = Failure::from(ErrorKind::TaskLost);
        let (at, peer) = (&self.request.at, self.request.first());
        RestoreError::new(at, peer, Some(self.id), phase, failure)
    }

    /// How far it has come, now and as it goes on.
    #[must_use]
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }

    /// Asks it to end. A switch that has begun is brought to its end nevertheless.
    pub fn cancel(&self) {
        ask_to_stop(&self.token.stop, Stop::Cancelled);
    }

    /// Lets it go on when the last handle is dropped.
    pub fn detach(&self) {
        self.token.detached.store(true, Ordering::Relaxed);
    }
}
