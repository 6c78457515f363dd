//! The target: what it holds, what is staged beside it, and the seal.

use std::sync::Arc;

use kv_restore::{ErrorKind, Seal, SnapshotRef, fence, frame::Row};

#[derive(Debug, Default)]
pub struct Target {
    pub rows: Arc<Vec<Row>>,
    pub seal: Option<Seal>,
    /// Which task has a staging open.
    pub staging: Option<usize>,
    /// Nothing works until it is opened anew.
    pub poisoned: bool,
}

impl Target {
    /// What a request meets that wants to open a staging.
    pub fn covered(&self, at: &SnapshotRef) -> Result<Option<Seal>, ErrorKind> {
        fence(at, self.seal.clone())
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
        Ok(())
    }

    pub fn reopen(&mut self) {
        self.poisoned = false;
        self.staging = None;
    }
}
