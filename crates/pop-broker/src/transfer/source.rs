//! Where a content comes from: anything that a session can pull from.

use std::{sync::Arc, time::Duration};

use kv_restore::{
    Admission, Dumper, Failure, Limiter, Offer, Options, PeerId, Seal, SnapshotId, SnapshotRef,
    Target, digest,
    transport::{LocalTransport, Transport},
};
use pop_store::{Snapshot, Store, StoreExt, table::META};

use super::file::BackupFile;
use crate::{
    owner::{self, NotOwner},
    space::{SEALS, SpaceMeta, snapshot_ref},
};

const PEER: &str = "source";
/// How often a transfer whose connection breaks is taken up again.
const RECONNECTS: u32 = 10;

/// A snapshot that is on offer, as long as this lives.
pub struct Source {
    at: SnapshotRef,
    peer: PeerId,
    transport: Arc<dyn Transport>,
    session: Options,
    limiter: Option<Limiter>,
    // Whatever keeps the snapshot: an offer of this process, a connection.
    _kept: Box<dyn Send>,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source")
            .field("at", &self.at)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

/// A store or a backup that can't be offered.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] pop_store::Error),
    /// Its content has another owner, or may have one.
    #[error("{0}. To copy what is left here all the same, add --not-owned")]
    NotOwner(NotOwner),
    /// It can't be served.
    #[error("the source can't be served: {}", .0.detail)]
    Offer(Failure),
}

/// Whose content is to be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// That of a folder that may be served. What was handed over is older than what its new
    /// owner has.
    Owner,
    /// That of any folder. The copy does not pass for the owner's.
    Anybody,
}

impl Source {
    /// A snapshot that somebody else serves: `kept` is dropped with the source.
    #[must_use]
    pub fn remote(
        at: SnapshotRef,
        peer: PeerId,
        transport: Arc<dyn Transport>,
        kept: Box<dyn Send>,
    ) -> Self {
        Self {
            at,
            peer,
            transport,
            session: patient().with_reconnects(RECONNECTS),
            limiter: None,
            _kept: kept,
        }
    }

    /// The content of a store that nobody else has open, for a folder with this seal, if it
    /// is for one.
    ///
    /// As long as no broker was on it the snapshot has the same id, so that a copy that was
    /// cut can go on.
    ///
    /// # Errors
    ///
    /// Those of the store, and `NotOwner`.
    pub async fn of_store(
        store: &Arc<dyn Store>,
        now_unix_ms: i64,
        over: Option<&Seal>,
        whose: Whose,
    ) -> Result<Self, SourceError> {
        // What a killed broker wrote last is durable before its copy is: otherwise a power
        // cut could take it from under a snapshot that is called the same.
        store.sync().await?;
        let snapshot = store.snapshot().await?;
        // A broker draws an incarnation at each start, and each restore leaves a seal.
        let id = digest(snapshot.as_ref(), &[META, SEALS]).await?.sum();
        let standing = owner::standing(store).await?;
        if let (Whose::Owner, Err(error)) = (whose, standing.admit()) {
            return Err(SourceError::NotOwner(error));
        }
        let epoch = standing.content_epoch();
        let meta = SpaceMeta::copy(store.name(), now_unix_ms);
        let at = snapshot_ref(SnapshotId(id), epoch, &meta);
        Self::offer(store.as_ref(), snapshot, above(at, over))
    }

    /// The content of a backup, for a folder with this seal.
    ///
    /// # Errors
    ///
    /// If its keyspaces are not those of a broker.
    pub async fn of_backup(
        file: &BackupFile,
        totals: kv_restore::Digest,
        over: Option<&Seal>,
    ) -> Result<Self, SourceError> {
        let snapshot = file.snapshot().await?;
        let at = file.at().clone().with_totals(totals);
        Self::offer(file, snapshot, above(at, over))
    }

    fn offer(
        store: &dyn Store,
        snapshot: Arc<dyn Snapshot>,
        at: SnapshotRef,
    ) -> Result<Self, SourceError> {
        let limiter = Limiter::none();
        let dumper = Dumper::new(local_options(), Admission::new(1), limiter.clone());
        let offer: Offer = dumper
            .offer(at.clone(), store, snapshot)
            .map_err(SourceError::Offer)?;
        let transport = LocalTransport::new(PeerId::new("target"));
        let peer = PeerId::new(PEER);
        transport.add(peer.clone(), dumper);
        Ok(Self {
            session: local_options(),
            limiter: Some(limiter),
            ..Self::remote(at, peer, Arc::new(transport), Box::new(offer))
        })
    }

    /// Which snapshot it is.
    #[must_use]
    pub fn at(&self) -> &SnapshotRef {
        &self.at
    }

    pub(super) fn peer(&self) -> &PeerId {
        &self.peer
    }

    pub(super) fn session(&self) -> Options {
        self.session.clone()
    }

    /// What limits how fast it is read, if that is in this process.
    pub(super) fn limiter(&self) -> Option<&Limiter> {
        self.limiter.as_ref()
    }

    pub(super) fn transport(&self) -> Arc<dyn Transport> {
        Arc::clone(&self.transport)
    }
}

/// Bounds of a command, which has nothing else to do: whatever its own disk takes, it takes. A
/// peer that is silent is given up as soon as by anybody.
fn patient() -> Options {
    let mut options = Options::default();
    let hour = Duration::from_secs(60 * 60);
    (options.open_within, options.commit_within) = (hour, hour);
    options.load_within = hour / 6;
    options
}

/// The same where both ends are in this process.
pub(super) fn local_options() -> Options {
    let mut options = patient();
    options.tombstone = Duration::from_secs(1);
    // Who limits a command limits what it does to this machine.
    options.limit_counting = true;
    options
}

/// What a store was filled with.
///
/// # Errors
///
/// Those of the store.
pub async fn installed(store: &Arc<dyn Store>) -> pop_store::Result<Option<Seal>> {
    let target = Target::new(Arc::clone(store)).with_seals(SEALS);
    target.installed(crate::space::SPACE).await
}

/// A snapshot that an operator puts in the place of whatever a folder was filled with, also
/// of itself: so it has another name than that and counts as newer.
fn above(mut at: SnapshotRef, over: Option<&Seal>) -> SnapshotRef {
    if let Some(seal) = over {
        at.id.0 ^= seal.snapshot.0.rotate_left(1) ^ u128::MAX;
        let applied = at.applied.max(seal.applied.saturating_add(1));
        let epoch = at.epoch.max(seal.epoch);
        at = at.at(epoch, applied);
    }
    at
}

#[cfg(test)]
mod tests {
    use kv_restore::{Digest, Epoch, fence};

    use super::*;

    // Mutant: the id or the place in order stays as it was.
    #[test]
    fn what_an_operator_puts_in_place_is_never_called_installed_or_obsolete() {
        let first = snapshot_ref(SnapshotId(7), Epoch(0), &SpaceMeta::copy("fjall", 0));
        let mut at = above(first.clone(), None);
        assert_eq!(at, first);
        for epoch in [0, 3, 1] {
            let seal = Seal::of(&at.at(Epoch(epoch), 5), Digest::default());
            at = above(first.clone(), Some(&seal));
            assert_eq!(fence(&at, Some(seal)), Ok(None));
        }
    }
}
