//! What Raft hands around in place of the rows.

use std::sync::Arc;

use pop_store::Snapshot;
use serde::{Deserialize, Serialize};

use crate::{Offer, PeerId, Session, SnapshotId};

/// Names a snapshot and who has it; a follower turns it into the rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    // Not every format has numbers of 128 bits.
    id: [u64; 2],
    source: String,
}

impl Reference {
    pub(super) fn new(id: [u64; 2], source: &PeerId) -> Self {
        let source = source.as_str().to_owned();
        Self { id, source }
    }

    /// Which snapshot.
    #[must_use]
    pub fn snapshot(&self) -> SnapshotId {
        let [high, low] = self.id;
        SnapshotId(u128::from(high) << 64 | u128::from(low))
    }

    /// Who has it.
    #[must_use]
    pub fn source(&self) -> PeerId {
        PeerId::new(self.source.as_str())
    }
}

/// A snapshot, as openraft holds it: at its source a view that is pinned and on offer as long
/// as this is held, at a follower what was staged of it.
#[derive(Debug)]
pub struct RaftSnapshot {
    pub(super) reference: Reference,
    pub(super) held: Held,
}

#[derive(Debug)]
pub(super) enum Held {
    Pinned(#[expect(dead_code, reason = "held")] Arc<Pinned>),
    /// Dropped, it leaves the content as it was.
    Staged(Session),
    /// Nothing was moved, since the content is as new already.
    Nothing,
}

/// A view and its offer, shared by those who send it.
#[derive(Debug)]
pub(super) struct Pinned {
    pub(super) reference: Reference,
    pub(super) view: Arc<dyn Snapshot>,
    #[expect(dead_code, reason = "held")]
    pub(super) offer: Offer,
}

impl RaftSnapshot {
    /// What the follower needs. Keep the snapshot until it has answered.
    #[must_use]
    pub fn reference(&self) -> &Reference {
        &self.reference
    }
}
