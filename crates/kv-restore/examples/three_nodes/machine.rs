//! A state machine on a store: each entry is `key=value`, and all about snapshots is passed on.

use std::{io, sync::Arc};

use futures::{Stream, TryStreamExt};
use kv_restore::{
    Dumper, PeerId, RestorerOptions,
    raft::{Builder, RaftSnapshot, Snapshots, Space},
    transport::Transport,
};
use openraft::{
    EntryPayload, OptionalSend,
    storage::{EntryResponder, RaftStateMachine},
    type_config::alias::{LogIdOf, SnapshotMetaOf, SnapshotOf, StoredMembershipOf},
};
use pop_store::{Durability, Keyspace, Store, WriteBatch};

openraft::declare_raft_types!(
    /// Requests and answers are texts.
    pub(crate) Types
);

/// The content of the state machine.
pub(crate) const ROWS: Keyspace = Keyspace::new("rows");
/// Which snapshot is installed.
pub(crate) const SEALS: Keyspace = Keyspace::new("seals");
/// How far entries are applied.
pub(crate) const APPLIED: Keyspace = Keyspace::new("applied");

/// The state machine of one node.
#[derive(Debug)]
pub(crate) struct Machine {
    store: Arc<dyn Store>,
    snapshots: Snapshots<Types>,
}

impl Machine {
    /// The state machine whose content is in `store`.
    #[must_use]
    pub(crate) fn new(
        store: Arc<dyn Store>,
        node: PeerId,
        dumper: Dumper,
        transport: Arc<dyn Transport>,
        options: RestorerOptions,
    ) -> Self {
        let space = Space::new(Arc::clone(&store), "kv", &[ROWS], SEALS, APPLIED);
        let runtime = tokio::runtime::Handle::current();
        let snapshots = Snapshots::new(space, node, dumper, transport, options, runtime);
        Self { store, snapshots }
    }

    /// Where snapshots of other nodes arrive.
    #[must_use]
    pub(crate) fn snapshots(&self) -> Snapshots<Types> {
        self.snapshots.clone()
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotData = RaftSnapshot;
    type SnapshotBuilder = Builder<Types>;

    async fn applied_state(
        &mut self,
    ) -> io::Result<(Option<LogIdOf<Types>>, StoredMembershipOf<Types>)> {
        let applied = self.snapshots.applied().await?;
        Ok((applied.last_log_id, applied.last_membership))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<Types>>> + Unpin + OptionalSend,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            let mut batch = WriteBatch::new();
            if let EntryPayload::Normal(text) = &entry.payload {
                let (key, value) = text.split_once('=').unwrap_or((text, ""));
                batch.put(ROWS, key.to_owned().into(), value.to_owned().into());
            }
            self.snapshots.mark(&mut batch, &entry)?;
            // What a crash loses of these Raft applies again.
            let written = self.store.write(batch, Durability::Buffered).await;
            written.map_err(io::Error::other)?;
            if let Some(responder) = responder {
                responder.send("done".to_owned());
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Builder<Types> {
        self.snapshots.builder()
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMetaOf<Types>,
        snapshot: RaftSnapshot,
    ) -> io::Result<()> {
        self.snapshots.install(meta, snapshot).await
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> io::Result<Option<SnapshotOf<Types, RaftSnapshot>>> {
        self.snapshots.current().await
    }
}
