//! What a state machine asks about its snapshots.

use std::{
    fmt, io,
    sync::{Arc, Weak},
};

use openraft::{
    RaftSnapshotBuilder, RaftTypeConfig,
    type_config::alias::{SnapshotMetaOf, SnapshotOf},
};
use parking_lot::Mutex;
use pop_store::{Durability, WriteBatch};
use tokio::runtime::Handle;

use super::{
    RaftSnapshot, Reference, Space,
    applied::{self, Place},
    receive::Moving,
    reference::{Held, Pinned},
};
use crate::{
    Dumper, Epoch, PeerId, Restorer, RestorerOptions, restorer::Chance, transport::Transport,
};

/// The snapshots of one state machine. Clones share everything: one is the state machine's,
/// one is where the messages of other nodes arrive.
pub struct Snapshots<C: RaftTypeConfig> {
    pub(super) inner: Arc<Inner<C>>,
}

pub(super) struct Inner<C: RaftTypeConfig> {
    pub(super) space: Space,
    node: PeerId,
    dumper: Dumper,
    chance: Chance,
    pub(super) restorer: Restorer,
    // What others are sent is theirs as long as they hold it, and not longer.
    latest: Mutex<Weak<Pinned>>,
    /// See [`Snapshots::receive`].
    pub(super) moving: Arc<tokio::sync::Mutex<Option<Moving<C>>>>,
}

impl<C: RaftTypeConfig> Clone for Snapshots<C> {
    fn clone(&self) -> Self {
        let inner = Arc::clone(&self.inner);
        Self { inner }
    }
}

impl<C: RaftTypeConfig> fmt::Debug for Snapshots<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshots")
            .field("space", &self.inner.space)
            .field("node", &self.inner.node)
            .finish_non_exhaustive()
    }
}

impl<C: RaftTypeConfig> Snapshots<C> {
    /// The snapshots of `space` on the node that others reach as `node`: it offers them with
    /// `dumper`, and fetches those of others through `transport`, on `runtime`.
    #[must_use]
    pub fn new(
        space: Space,
        node: PeerId,
        dumper: Dumper,
        transport: Arc<dyn Transport>,
        options: RestorerOptions,
        runtime: Handle,
    ) -> Self {
        let chance = Arc::clone(&options.chance);
        let restorer = Restorer::new(space.target(), transport, options, runtime);
        Self {
            inner: Arc::new(Inner {
                space,
                node,
                dumper,
                chance,
                restorer,
                latest: Mutex::default(),
                moving: Arc::default(),
            }),
        }
    }

    /// How far the content has come, as it is stored.
    ///
    /// # Errors
    ///
    /// Those of the store, and of rows that can't be read.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn applied(&self) -> io::Result<SnapshotMetaOf<C>> {
        let space = &self.inner.space;
        applied::read::<C>(Place::Store(space.store.as_ref()), space).await
    }

    /// Puts into `batch`, which holds the effect of `entry`, that it was applied. Every entry
    /// is to be marked, also one without an effect.
    ///
    /// # Errors
    ///
    /// If openraft's types can't be written as JSON.
    pub fn mark(&self, batch: &mut WriteBatch, entry: &C::Entry) -> io::Result<()> {
        applied::mark::<C>(&self.inner.space, batch, entry)
    }

    /// Builds snapshots of the content as it is when it is asked to.
    #[must_use]
    pub fn builder(&self) -> Builder<C> {
        Builder(self.clone())
    }

    /// The content as of now; or as of a moment ago, if that is being sent to somebody.
    ///
    /// # Errors
    ///
    /// Those of the store, and of rows that can't be read.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing pinned by it.
    pub async fn current(&self) -> io::Result<Option<SnapshotOf<C, RaftSnapshot>>> {
        let latest = self.inner.latest.lock().upgrade();
        let pinned = match latest {
            Some(pinned) => pinned,
            None => self.pin().await?,
        };
        let snapshot = self.snapshot(pinned).await?;
        Ok(Some(snapshot).filter(|it| it.meta.last_log_id.is_some()))
    }

    /// Switches to what [`receive`](Self::receive) has staged.
    ///
    /// # Errors
    ///
    /// If the switch fails. The node is to be opened anew, and then holds the old content or
    /// the new one.
    ///
    /// # Cancel safety
    ///
    /// Once the switch began it comes to its end.
    pub async fn install(
        &self,
        meta: &SnapshotMetaOf<C>,
        snapshot: RaftSnapshot,
    ) -> io::Result<()> {
        let Held::Staged(session) = snapshot.held else {
            // At a start Raft may give back what it was given.
            let is_there = self.applied().await?.last_log_id >= meta.last_log_id;
            return match is_there {
                true => Ok(()),
                false => Err(io::Error::other(
                    "nothing of this snapshot is staged: let `receive` have what arrives",
                )),
            };
        };
        session.commit();
        session.outcome().await.map_err(io::Error::other)?;
        Ok(())
    }

    async fn pin(&self) -> io::Result<Arc<Pinned>> {
        let Inner {
            space,
            node,
            dumper,
            chance,
            latest,
            ..
        } = &*self.inner;
        let view = space.store.snapshot().await.map_err(io::Error::other)?;
        let reference = Reference::new([chance(), chance()], node);
        // What it is beside its rows every follower hears from Raft.
        let at = space.at(reference.snapshot(), Epoch(0), 0);
        let offer = dumper.offer(at, space.store.as_ref(), Arc::clone(&view));
        let offer = offer.map_err(|it| io::Error::other(it.detail))?;
        let pinned = Arc::new(Pinned {
            reference,
            view,
            offer,
        });
        *latest.lock() = Arc::downgrade(&pinned);
        Ok(pinned)
    }

    async fn snapshot(&self, pinned: Arc<Pinned>) -> io::Result<SnapshotOf<C, RaftSnapshot>> {
        let place = Place::View(pinned.view.as_ref());
        let meta = applied::read::<C>(place, &self.inner.space).await?;
        let reference = pinned.reference.clone();
        let held = Held::Pinned(pinned);
        let snapshot = RaftSnapshot { reference, held };
        Ok(SnapshotOf::<C, _> { meta, snapshot })
    }
}

/// Builds snapshots for openraft.
#[derive(Debug)]
pub struct Builder<C: RaftTypeConfig>(Snapshots<C>);

impl<C: RaftTypeConfig> RaftSnapshotBuilder<C> for Builder<C> {
    type SnapshotData = RaftSnapshot;

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf<C, RaftSnapshot>> {
        let Self(snapshots) = self;
        // What was sent before may be older than the log that is left after this one.
        let pinned = snapshots.pin().await?;
        // Raft throws away the log up to here, so that what was applied must not depend on it.
        let store = &snapshots.inner.space.store;
        let synced = store.write(WriteBatch::new(), Durability::Synced).await;
        synced.map_err(io::Error::other)?;
        snapshots.snapshot(pinned).await
    }
}
