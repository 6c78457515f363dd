//! What a caller holds of a session: its outcome, its progress, and the hand on its life.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use pop_store::Estimate;
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
    /// Rows of these that an earlier session had moved.
    pub rows_before: u64,
    /// Bytes of those.
    pub bytes_before: u64,
    /// About how much all of it is, once a source has said so, if it can. `rows` and `bytes`
    /// may come to more.
    pub about: Option<Estimate>,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            phase: Phase::Queued,
            source: 0,
            attempt: 0,
            rows: 0,
            bytes: 0,
            rows_before: 0,
            bytes_before: 0,
            about: None,
        }
    }
}

/// What the holders of a session want of it.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    pub(crate) stop: watch::Sender<Option<Stop>>,
    pub(crate) commit: watch::Sender<bool>,
    pub(crate) detached: AtomicBool,
}

/// What its task hears of that.
#[derive(Debug)]
pub struct Asked {
    /// It should end.
    pub stop: watch::Receiver<Option<Stop>>,
    /// What it staged should be switched to.
    pub commit: watch::Receiver<bool>,
}

impl Wishes {
    pub(crate) fn asked(&self) -> Asked {
        Asked {
            stop: self.stop.subscribe(),
            commit: self.commit.subscribe(),
        }
    }
}

/// Ends the session when the last handle is gone, unless it is detached.
#[derive(Debug)]
pub(crate) struct Token(pub(crate) Arc<Wishes>);

impl Drop for Token {
    fn drop(&mut self) {
        // Only a flag: what it stands for was said before the last handle could go.
        if !self.0.detached.load(Ordering::Relaxed) {
            ask_to_stop(&self.0.stop, Stop::Cancelled);
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
    /// A look at the session that does not keep it alive.
    #[cfg(feature = "openraft")]
    pub(crate) fn downgrade(&self) -> WeakSession {
        WeakSession {
            id: self.id,
            wishes: Arc::clone(&self.token.0),
            outcome: self.outcome.clone(),
        }
    }

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

    /// Waits until all rows are loaded and only the switch is left. It keeps its place for
    /// [`hold_within`](crate::Options::hold_within).
    ///
    /// # Errors
    ///
    /// The one with which it ended before that.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn staged(&self) -> Result<(), RestoreError> {
        let mut progress = self.progress();
        let phase = progress.wait_for(|it| it.phase >= Phase::Staged).await;
        let over = phase.map_or(true, |it| it.phase == Phase::Ended);
        if over {
            self.outcome().await?;
        }
        Ok(())
    }

    /// Asks for the switch to what is staged; before that it will not wait to be asked. How
    /// it went is the [outcome](Self::outcome): what is installed by now may forbid it, and a
    /// request of a higher epoch or for a newer snapshot may have taken its place.
    pub fn commit(&self) {
        self.token.0.commit.send_replace(true);
    }

    // Belt and braces: the guard publishes before its channel can close.
    fn lost(&self) -> RestoreError {
        let phase = self.progress.borrow().phase;
        let failure = Failure::from(ErrorKind::TaskLost);
        let (at, peer) = (&self.request.at, self.request.source(0));
        RestoreError::new(at, &peer, Some(self.id), phase, failure)
    }

    /// How far it has come, now and as it goes on.
    #[must_use]
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }

    /// Asks it to end. A switch that has begun is brought to its end nevertheless.
    pub fn cancel(&self) {
        ask_to_stop(&self.token.0.stop, Stop::Cancelled);
    }

    /// Lets it go on when the last handle is dropped.
    pub fn detach(&self) {
        self.token.0.detached.store(true, Ordering::Relaxed);
    }
}

/// See [`Session::downgrade`].
#[cfg(feature = "openraft")]
#[derive(Debug)]
pub(crate) struct WeakSession {
    pub(crate) id: SessionId,
    wishes: Arc<Wishes>,
    outcome: watch::Receiver<Option<Outcome>>,
}

#[cfg(feature = "openraft")]
impl WeakSession {
    /// Asks the session to end, and waits until it has.
    pub(crate) async fn end(mut self) {
        ask_to_stop(&self.wishes.stop, Stop::Cancelled);
        // A channel that is closed is a session that is over.
        let _ = self.outcome.wait_for(Option::is_some).await;
    }
}
