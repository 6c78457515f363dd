//! Which part of which store is the content of a state machine.

use std::sync::Arc;

use pop_store::{Keyspace, Store};

use crate::{Epoch, SnapshotId, SnapshotRef, Target};

/// The content of one state machine, and where is written what it is.
#[derive(Clone, Debug)]
pub struct Space {
    pub(super) store: Arc<dyn Store>,
    pub(super) name: String,
    pub(super) keyspaces: Vec<Keyspace>,
    pub(super) seals: Keyspace,
    pub(super) applied: Keyspace,
}

impl Space {
    /// The content is `keyspaces` of `store`, and no other group's. `name` is the same on all
    /// nodes of the group.
    ///
    /// `seals` says which snapshot is installed, `applied` how far entries are applied since.
    /// Both belong to no space, and may be shared by the groups of a store.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        name: impl Into<String>,
        keyspaces: &[Keyspace],
        seals: Keyspace,
        applied: Keyspace,
    ) -> Self {
        Self {
            store,
            name: name.into(),
            keyspaces: keyspaces.to_vec(),
            seals,
            applied,
        }
    }

    pub(super) fn target(&self) -> Target {
        Target::new(Arc::clone(&self.store)).with_seals(self.seals)
    }

    pub(super) fn at(&self, id: SnapshotId, epoch: Epoch, applied: u64) -> SnapshotRef {
        let names: Vec<_> = self.keyspaces.iter().map(|it| it.name()).collect();
        SnapshotRef::new(&self.name, id, &names).at(epoch, applied)
    }
}
