//! Why a session ended without success: in which phase, and whether trying again helps.

use std::{fmt, sync::Arc};

use crate::{PeerId, SessionId, SnapshotId, SnapshotRef, frame::AbortCode, frame::FrameError};

/// How far a session has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// It waits for its turn.
    Queued,
    /// The target makes room.
    Opening,
    /// The source was asked and has not answered.
    Pulling,
    /// Rows come in and are loaded.
    Receiving,
    /// Everything came in and was compared; the rest is being loaded.
    Verifying,
    /// All is loaded, and whoever asked for it decides.
    Staged,
    /// The target is being switched.
    Committing,
    /// It is over.
    Ended,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Queued => "waiting for its turn",
            Self::Opening => "opening the staging",
            Self::Pulling => "asking the source",
            Self::Receiving => "receiving rows",
            Self::Verifying => "loading the last rows",
            Self::Staged => "waiting to be switched",
            Self::Committing => "switching the target",
            Self::Ended => "ended",
        })
    }
}

/// What was found damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Damage {
    /// Bytes of a chunk.
    Chunk,
    /// Keys are not strictly ascending.
    Order,
    /// A row outside the snapshot's keyspaces.
    Boundary,
    /// The rows don't add up to what the source says.
    Totals,
    /// The source has other rows before the resumed start.
    Resume,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Chunk => "a chunk was changed on the way",
            Self::Order => "keys are not in order",
            Self::Boundary => "a row lies outside the snapshot",
            Self::Totals => "the rows don't add up",
            Self::Resume => "the source has other rows before the resumed start",
        })
    }
}

/// What is known of a switch that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Switch {
    /// The old content is in use and stays.
    NotDone,
    /// A reopen of the store will show one of the two, whole.
    InDoubt,
}

/// What a caller does about it; [`RestoreError::retry`] says it shorter.
///
/// Whoever tells an operator what to do has to do so of each kind, and is to be told by the
/// compiler of a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// It did not get its turn in time; no staging was opened.
    Busy,
    /// The target could not make room.
    Begin,
    /// The source could not be reached, or the connection broke.
    Transport,
    /// The call or the peer broke the rules.
    Protocol,
    /// What came is not what the source holds.
    Corrupt(Damage),
    /// The source was silent for too long.
    Idle,
    /// The source went on, but too slowly.
    TooSlow,
    /// The other side gave up.
    PeerAborted(AbortCode),
    /// The source does not have the snapshot, or no longer.
    SourceGone,
    /// The target could not take the rows.
    Staging,
    /// The target's disk is full. Its old content is in use, and what was loaded is thrown
    /// away for the room that it takes: free some space.
    NoSpace,
    /// The target could not be switched.
    Commit(Switch),
    /// What is installed, or being installed, is newer.
    Obsolete,
    /// A higher epoch has spoken.
    StaleEpoch,
    /// A later request took its place.
    Superseded,
    /// Nobody waits for it any more.
    Cancelled,
    /// The restorer was closed.
    Closed,
    /// Work of this side did not answer in time. After `Committing` the switch may still
    /// happen; the next session waits for it.
    Stalled,
    /// Its task was lost: a panic below it, or the end of the runtime.
    TaskLost,
}

impl ErrorKind {
    /// One word for it, for counts and logs. It stays as it is.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Begin => "begin",
            Self::Transport => "transport",
            Self::Protocol => "protocol",
            Self::Corrupt(_) => "corrupt",
            Self::Idle => "idle",
            Self::TooSlow => "too-slow",
            Self::PeerAborted(AbortCode::SourceError) => "source-error",
            Self::PeerAborted(_) => "peer-aborted",
            Self::SourceGone => "source-gone",
            Self::Staging => "staging",
            Self::NoSpace => "no-space",
            Self::Commit(_) => "commit",
            Self::Obsolete => "obsolete",
            Self::StaleEpoch => "stale-epoch",
            Self::Superseded => "superseded",
            Self::Cancelled => "cancelled",
            Self::Closed => "closed",
            Self::Stalled => "stalled",
            Self::TaskLost => "task-lost",
        }
    }

    /// What the other side is told.
    pub(crate) fn code(self) -> AbortCode {
        match self {
            Self::Busy | Self::Begin => AbortCode::Busy,
            Self::Transport | Self::Protocol | Self::PeerAborted(_) => AbortCode::Protocol,
            Self::Corrupt(Damage::Resume) => AbortCode::ResumeMismatch,
            Self::Corrupt(_) => AbortCode::Corrupt,
            Self::Idle => AbortCode::Idle,
            Self::TooSlow => AbortCode::TooSlow,
            Self::SourceGone => AbortCode::SourceGone,
            Self::Staging | Self::NoSpace => AbortCode::Staging,
            Self::Commit(_) => AbortCode::Commit,
            Self::Obsolete | Self::StaleEpoch => AbortCode::Obsolete,
            Self::Superseded => AbortCode::Superseded,
            Self::Cancelled => AbortCode::Cancelled,
            Self::Closed => AbortCode::Closing,
            Self::Stalled | Self::TaskLost => AbortCode::Stalled,
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("too much is going on"),
            Self::Begin => f.write_str("the target can't make room"),
            Self::Transport => f.write_str("the connection to the source failed"),
            Self::Protocol => f.write_str("protocol error"),
            Self::Corrupt(damage) => write!(f, "corrupt, {damage}"),
            Self::Idle => f.write_str("the source was silent for too long"),
            Self::TooSlow => f.write_str("the source is too slow"),
            Self::PeerAborted(code) => write!(f, "the other side gave up: {code}"),
            Self::SourceGone => f.write_str("the source does not have the snapshot"),
            Self::Staging => f.write_str("the target can't take the rows"),
            Self::NoSpace => f.write_str("the target's disk is full"),
            Self::Commit(Switch::NotDone) => {
                f.write_str("the target can't be switched, the old content is in use")
            }
            Self::Commit(Switch::InDoubt) => {
                f.write_str("the switch of the target is in doubt until it is reopened")
            }
            Self::Obsolete => f.write_str("a newer content is there"),
            Self::StaleEpoch => f.write_str("a higher epoch has spoken"),
            Self::Superseded => f.write_str("a later request took its place"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::Closed => f.write_str("the restorer is closed"),
            Self::Stalled => f.write_str("the target did not answer in time"),
            Self::TaskLost => f.write_str("the task of the session was lost"),
        }
    }
}

/// Whether trying again can help, and what it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retry {
    /// The same request, at once.
    Now,
    /// The same request, after a pause: see [`Backoff`](crate::Backoff).
    Later,
    /// A request for another snapshot.
    NewerSnapshot,
    /// Not before somebody has done something about it.
    Never,
}

/// Why something failed, before it is known whose session it was.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What kind.
    pub kind: ErrorKind,
    /// What exactly, if there is more to say.
    pub detail: String,
    /// What the store said.
    pub source: Option<Arc<pop_store::Error>>,
}

impl Failure {
    /// A failure of this kind, with what exactly is wrong.
    pub fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            source: None,
        }
    }

    /// A failure of this kind that a store reported; a full disk is a kind of its own.
    #[must_use]
    pub fn of_store(kind: ErrorKind, error: pop_store::Error) -> Self {
        let is_full = error.kind() == pop_store::ErrorKind::NoSpace;
        Self {
            kind: if is_full { ErrorKind::NoSpace } else { kind },
            detail: error.to_string(),
            source: Some(Arc::new(error)),
        }
    }
}

impl Failure {
    /// Whether what was loaded is to be thrown away, and no later session goes on with it:
    /// it may be wrong, or is not needed, or its room is.
    #[must_use]
    pub fn spoils_staging(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::Corrupt(_)
                | ErrorKind::Protocol
                | ErrorKind::Obsolete
                | ErrorKind::StaleEpoch
                | ErrorKind::Superseded
                | ErrorKind::NoSpace
        )
    }
}

impl From<ErrorKind> for Failure {
    fn from(kind: ErrorKind) -> Self {
        Self::new(kind, "")
    }
}

impl From<FrameError> for Failure {
    fn from(error: FrameError) -> Self {
        let kind = match error {
            FrameError::Checksum => ErrorKind::Corrupt(Damage::Chunk),
            _ => ErrorKind::Protocol,
        };
        Self::new(kind, error.to_string())
    }
}

/// A session that did not come to its end. The target has its old content, unless the kind
/// says otherwise.
#[derive(Clone, Debug)]
pub struct RestoreError(Box<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    phase: Phase,
    session: Option<SessionId>,
    space: String,
    snapshot: SnapshotId,
    peer: PeerId,
    failure: Failure,
}

impl RestoreError {
    pub(crate) fn new(
        at: &SnapshotRef,
        peer: &PeerId,
        session: Option<SessionId>,
        phase: Phase,
        failure: Failure,
    ) -> Self {
        Self(Box::new(Inner {
            phase,
            session,
            space: at.space.clone(),
            snapshot: at.id,
            peer: peer.clone(),
            failure,
        }))
    }

    /// What kind it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.failure.kind
    }

    /// How far the session had come.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.0.phase
    }

    /// Which session it was; `None` if the request was refused before there was one.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        self.0.session
    }

    /// Which snapshot was to be installed.
    #[must_use]
    pub fn snapshot(&self) -> SnapshotId {
        self.0.snapshot
    }

    /// From whom.
    #[must_use]
    pub fn peer(&self) -> &PeerId {
        &self.0.peer
    }

    /// What exactly is wrong, if there is more to say than the kind does.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.0.failure.detail
    }

    /// Whether trying again can help.
    #[must_use]
    pub fn retry(&self) -> Retry {
        use pop_store::ErrorKind as Store;
        match self.kind() {
            ErrorKind::SourceGone | ErrorKind::Obsolete => Retry::NewerSnapshot,
            ErrorKind::Corrupt(Damage::Resume) => Retry::Now,
            ErrorKind::Busy
            | ErrorKind::Transport
            | ErrorKind::Corrupt(_)
            | ErrorKind::Idle
            | ErrorKind::TooSlow
            | ErrorKind::PeerAborted(_)
            | ErrorKind::NoSpace
            | ErrorKind::Stalled
            | ErrorKind::TaskLost => Retry::Later,
            ErrorKind::Begin | ErrorKind::Staging | ErrorKind::Commit(Switch::NotDone) => {
                match self.0.failure.source.as_ref().map(|error| error.kind()) {
                    None | Some(Store::Unavailable) => Retry::Later,
                    Some(_) => Retry::Never,
                }
            }
            ErrorKind::Protocol
            | ErrorKind::Commit(Switch::InDoubt)
            | ErrorKind::StaleEpoch
            | ErrorKind::Superseded
            | ErrorKind::Cancelled
            | ErrorKind::Closed => Retry::Never,
        }
    }
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner {
            phase,
            session,
            space,
            snapshot,
            peer,
            failure,
        } = &*self.0;
        write!(
            f,
            "restore of {space} from {peer} failed while {phase}: {}",
            failure.kind
        )?;
        if !failure.detail.is_empty() {
            write!(f, ": {}", failure.detail)?;
        }
        write!(f, " (snapshot {snapshot}")?;
        if let Some(session) = session {
            write!(f, ", session {session}")?;
        }
        f.write_str(")")
    }
}

impl std::error::Error for RestoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let source = self.0.failure.source.as_deref()?;
        Some(source)
    }
}
