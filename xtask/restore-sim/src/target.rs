//! The target: what it holds, what is staged beside it, and the seal.

use std::sync::Arc;

use kv_restore::{
    ErrorKind, Failure, Mutant, Resume, Seal, SnapshotId, SnapshotRef, fence, frame::Row,
    machine::receiver::Opening,
};

/// What outlives a session that did not come to its end.
#[derive(Debug)]
pub struct Kept {
    pub id: SnapshotId,
    pub rows: Vec<Row>,
    pub point: Resume,
    /// Its source left rows out.
    pub corrupted: bool,
}

#[derive(Debug, Default)]
pub struct Target {
    pub rows: Arc<Vec<Row>>,
    pub seal: Option<Seal>,
    /// Rows and seal as a power cut leaves them.
    synced: (Arc<Vec<Row>>, Option<Seal>),
    /// What was last said to be installed.
    pub promised: Option<Seal>,
    /// Which task has a staging open.
    pub staging: Option<usize>,
    /// The last point of a staging.
    pub kept: Option<Kept>,
    /// Nothing works until it is opened anew.
    pub poisoned: bool,
}

impl Target {
    /// What a request meets that wants to open a staging.
    pub fn covered(&self, at: &SnapshotRef) -> Result<Option<Seal>, ErrorKind> {
        fence(at, self.seal.clone())
    }

    /// Makes room, or goes on with what was kept of the same snapshot.
    pub fn open(&mut self, at: &SnapshotRef) -> Result<Opening, Failure> {
        if let Some(seal) = self.covered(at)? {
            return Ok(Opening::Installed(seal));
        }
        self.kept.take_if(|it| it.id != at.id);
        Ok(match &self.kept {
            Some(kept) => Opening::Resumed(kept.point.clone()),
            None => Opening::Fresh,
        })
    }

    pub fn publish(&mut self, rows: Vec<Row>, seal: Seal) -> Result<(), String> {
        if let Some(old) = &self.seal {
            let (before, after) = ((old.epoch, old.applied), (seal.epoch, seal.applied));
            if after < before {
                return Err(format!(
                    "I9: {before:?} is installed and goes back to {after:?}"
                ));
            }
        }
        self.rows = Arc::new(rows);
        self.seal = Some(seal);
        if !Mutant::SwitchNotSynced.is_on() {
            self.synced = (Arc::clone(&self.rows), self.seal.clone());
        }
        self.kept = None;
        Ok(())
    }

    /// Opens it after a crash, which takes what was not synced.
    pub fn reopen(&mut self) {
        (self.rows, self.seal) = self.synced.clone();
        self.poisoned = false;
        self.staging = None;
    }
}
