//! Which of two requests goes on, and whether what is installed makes one needless.

use std::sync::Arc;

use crate::{ErrorKind, Mutant, PeerId, Seal, SnapshotRef};

/// What a session is asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which snapshot.
    pub at: Arc<SnapshotRef>,
    /// Who has it, the first one to be asked first. At least one.
    pub sources: Arc<[PeerId]>,
    /// Nothing is switched before somebody says so.
    pub hold: bool,
}

impl Request {
    /// The source of this number, or the first one, to be named in an error.
    pub(crate) fn source(&self, number: usize) -> PeerId {
        let source = self.sources.get(number).or_else(|| self.sources.first());
        source.cloned().unwrap_or_else(|| PeerId::new("nobody"))
    }
}

/// What becomes of a request while another one is being worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Both are the same.
    Share,
    /// The running one gives way.
    Preempt,
    /// The running one goes on, and the new one is refused.
    Refuse(ErrorKind),
}

/// Compares two requests; the new one is not of an older epoch.
pub(crate) fn decide(live: &Request, new: &Request) -> Verdict {
    // A new leader overrules an old one also with less: what the old one had may never
    // have been agreed on, and the old one may be dead.
    if new.at.epoch != live.at.epoch {
        return Verdict::Preempt;
    }
    if new == live {
        return Verdict::Share;
    }
    if new.at.applied < live.at.applied && !Mutant::AgeIgnored.is_on() {
        return Verdict::Refuse(ErrorKind::Obsolete);
    }
    Verdict::Preempt
}

/// Holds a request against what is installed: the seal, if it is that very snapshot.
///
/// # Errors
///
/// If it would take the space back.
pub fn fence(at: &SnapshotRef, installed: Option<Seal>) -> Result<Option<Seal>, ErrorKind> {
    let Some(seal) = installed.filter(|_| !Mutant::FenceIgnored.is_on()) else {
        return Ok(None);
    };
    if at.epoch < seal.epoch {
        return Err(ErrorKind::StaleEpoch);
    }
    if at.id == seal.snapshot {
        return Ok(Some(seal));
    }
    if at.epoch == seal.epoch && at.applied <= seal.applied {
        return Err(ErrorKind::Obsolete);
    }
    Ok(None)
}
