//! The receiving side of one space: requests in, sessions out.

mod stats;

use std::{sync::Arc, time::Duration};

use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::Instant,
};
use tracing::Instrument;

pub(crate) use stats::Counts;
pub use stats::RestoreStats;

use crate::{
    Admission, ErrorKind, Failure, Limiter, Mutant, Options, PeerId, Phase, RestoreError,
    SessionId, SnapshotRef, Target,
    admission::Permit,
    driver::{
        Signals,
        receive::{self, Ports},
    },
    machine::Receiver,
    policy::Request,
    registry::{Completer, Entered, Registry},
    session::{Asked, Session},
    transport::Transport,
};

/// Numbers that nobody can foretell and that don't come twice, from the caller.
pub type Chance = Arc<dyn Fn() -> u64 + Send + Sync>;

/// How a restorer works.
#[derive(Clone)]
#[non_exhaustive]
pub struct RestorerOptions {
    /// The bounds of its sessions.
    pub session: Options,
    /// The room for sessions, shared by all restorers that were given clones of it.
    pub admission: Admission,
    /// The rate limit, shared in the same way; none unless one is given.
    pub limiter: Limiter,
    /// Until a session that waits for its turn gives up.
    pub queue_within: Duration,
    /// Until a close stops waiting; a switch that has begun has its own time beside this.
    pub close_within: Duration,
    /// What session ids are made of.
    pub chance: Chance,
}

impl RestorerOptions {
    /// The usual bounds, within the room that `admission` has.
    ///
    /// A restorer runs one session at a time. So it is the restorers with clones of one
    /// admission that wait for each other: a process with many spaces makes one and gives each
    /// of its restorers a clone.
    #[must_use]
    pub fn new(admission: Admission, chance: Chance) -> Self {
        Self {
            session: Options::default(),
            admission,
            limiter: Limiter::none(),
            queue_within: Duration::from_secs(60),
            close_within: Duration::from_secs(10),
            chance,
        }
    }

    /// Sets the bounds of sessions.
    #[must_use]
    pub fn with_session(mut self, session: Options) -> Self {
        self.session = session;
        self
    }

    /// Sets the rate limit, which clones of it share.
    #[must_use]
    pub fn with_limiter(mut self, limiter: Limiter) -> Self {
        self.limiter = limiter;
        self
    }

    /// Sets how long a session waits for its turn.
    #[must_use]
    pub fn with_queue_within(mut self, queue_within: Duration) -> Self {
        self.queue_within = queue_within;
        self
    }
}

impl std::fmt::Debug for RestorerOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RestorerOptions")
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

/// Installs snapshots into one space, one at a time.
///
/// Dropping it ends its session.
pub struct Restorer {
    target: Target,
    transport: Arc<dyn Transport>,
    options: RestorerOptions,
    registry: Registry,
    // Held by the session that may touch the target: a staging is closed before the next
    // one is opened, and a switch that hangs keeps all others out.
    turn: Arc<Semaphore>,
    shutdown: watch::Sender<bool>,
    runtime: Handle,
    epoch: Instant,
}

impl std::fmt::Debug for Restorer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Restorer")
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

/// What a close left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// Nothing: the target is nobody's.
    Clean,
    /// A call of the target that does not return. The target is not to be used by others.
    Stuck,
}

impl Restorer {
    /// A restorer of `target`, which reaches its sources through `transport`. Its sessions
    /// run on `runtime`: where others wait for answers in the same process, on one of its own,
    /// with [`pop_store::run_in_background`] on its threads.
    #[must_use]
    pub fn new(
        target: Target,
        transport: Arc<dyn Transport>,
        options: RestorerOptions,
        runtime: Handle,
    ) -> Self {
        Self {
            target,
            transport,
            options,
            registry: Registry::default(),
            turn: Arc::new(Semaphore::new(1)),
            shutdown: watch::Sender::new(false),
            runtime,
            epoch: Instant::now(),
        }
    }

    /// Installs a snapshot from the first of `sources`, and from the others if it fails.
    ///
    /// A request that equals the one that is being worked on shares its session. A newer
    /// one, or one of a higher epoch, takes its place.
    ///
    /// # Errors
    ///
    /// At once for a request that can't be: of an older epoch, older than what is being
    /// installed, unreadable, or after the close. Everything else is the session's outcome.
    pub fn restore(&self, at: SnapshotRef, sources: &[PeerId]) -> Result<Session, RestoreError> {
        self.enter(at, sources, false)
    }

    /// Like [`restore`](Self::restore), but the session switches nothing by itself: once it
    /// [is staged](Session::staged) whoever holds it [decides](Session::commit).
    ///
    /// # Errors
    ///
    /// As with [`restore`](Self::restore).
    pub fn stage(&self, at: SnapshotRef, sources: &[PeerId]) -> Result<Session, RestoreError> {
        self.enter(at, sources, true)
    }

    fn enter(
        &self,
        at: SnapshotRef,
        sources: &[PeerId],
        hold: bool,
    ) -> Result<Session, RestoreError> {
        let request = Request {
            at: Arc::new(at),
            sources: sources.into(),
            hold,
        };
        self.check(&request)
            .inspect_err(|_| self.registry.counts().refused())?;
        let id = u128::from((self.options.chance)()) << 64 | u128::from((self.options.chance)());
        match self.registry.enter(request, SessionId(id))? {
            Entered::Shared(session) => Ok(session),
            Entered::Started(session, completer, asked) => {
                self.start(completer, asked);
                Ok(session)
            }
        }
    }

    fn check(&self, request: &Request) -> Result<(), RestoreError> {
        let known = self.target.keyspaces(&request.at);
        known.map(drop).map_err(|flaw| {
            let failure = Failure::new(ErrorKind::Protocol, flaw);
            let peer = request.source(0);
            RestoreError::new(&request.at, &peer, None, Phase::Queued, failure)
        })
    }

    fn start(&self, completer: Completer, asked: Asked) {
        let at = Arc::clone(&completer.request().at);
        let sources = completer.request().sources.len();
        let span = tracing::info_span!(
            "restore",
            session = %completer.session(),
            space = at.space,
            snapshot = %at.id,
            epoch = %at.epoch,
            applied = at.applied,
        );
        let options = self.options.session.clone();
        let mut core = Receiver::new(Arc::clone(&at), completer.session(), sources, options);
        if completer.request().hold {
            core = core.holding();
        }
        let ports = Ports {
            target: self.target.clone(),
            transport: Arc::clone(&self.transport),
            limiter: self.options.limiter.clone(),
            epoch: self.epoch,
        };
        let permits = permits(
            Arc::clone(&self.turn),
            self.options.admission.clone(),
            Arc::clone(&at),
        );
        let queue_within = self.options.queue_within;
        let signals = Signals::new(asked.stop, self.shutdown.subscribe());
        let commit = asked.commit;
        // If the runtime is gone the future is dropped, and the guard in it tells.
        self.runtime.spawn(
            async move {
                let queued = receive::queue(permits, queue_within, signals, completer);
                if let Some((permits, signals, completer)) = queued.await {
                    let session =
                        receive::Session::new(core, ports, permits, signals, commit, completer);
                    session.run().await;
                }
            }
            .instrument(span),
        );
    }

    /// The session that runs.
    #[must_use]
    pub fn live(&self) -> Option<SessionId> {
        self.registry.live()
    }

    /// Ends the session and refuses all further requests. A switch that has begun is brought
    /// to its end.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the restorer is closed and nobody waits for its session.
    pub async fn close(&self) -> Closed {
        self.registry.close();
        self.shutdown.send_replace(true);
        let within = self.options.close_within + self.options.session.commit_within;
        match tokio::time::timeout(within, self.turn.acquire()).await {
            Ok(_) => Closed::Clean,
            Err(_) => Closed::Stuck,
        }
    }
}

impl Drop for Restorer {
    fn drop(&mut self) {
        self.registry.close();
    }
}

type Permits = (Permit, Option<OwnedSemaphorePermit>);

/// The turn first, so that who waits for its own space takes no room from others.
async fn permits(turn: Arc<Semaphore>, admission: Admission, at: Arc<SnapshotRef>) -> Permits {
    let turn = match Mutant::TurnNotTaken.is_on() {
        true => None,
        // It fails only once the semaphore is closed, which nothing does.
        false => turn.acquire_owned().await.ok(),
    };
    (admission.enter(&at).await, turn)
}
