//! Where a snapshot lands: a store, and the seals that say what it holds.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use pop_store::{Entry, Error, Keyspace, Outcome, Scan, Staging, Store};

use crate::{
    ErrorKind, Failure, Resume, Seal, SnapshotId, SnapshotRef, Switch,
    digest::above,
    driver::{let_go, shielded, swept},
    fence,
    frame::Part,
};

mod point;
pub(crate) mod seal;

/// A store that snapshots are installed into.
///
/// With a keyspace for seals it remembers which snapshot each space holds, written with the
/// content at one synced moment: what is installed is not copied again, and an older epoch
/// can't take a space back. Without one every request is a copy.
#[derive(Clone, Debug)]
pub struct Target {
    store: Arc<dyn Store>,
    seals: Option<Keyspace>,
    begun: Option<Resume>,
}

impl Target {
    /// The store, without seals.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            seals: None,
            begun: None,
        }
    }

    /// Keeps seals in this keyspace, which belongs to no space.
    #[must_use]
    pub fn with_seals(mut self, seals: Keyspace) -> Self {
        self.seals = Some(seals);
        self
    }

    /// The next staging of the store holds all rows up to here already, from a session that
    /// another process did not bring to its end. A source with other rows there refuses, and
    /// the session fails as [`Damage::Resume`](crate::Damage::Resume).
    ///
    /// It is for stores that can't resume by themselves. One that
    /// [can](pop_store::Capabilities::resumable_replace) says itself what it holds, and this is
    /// not looked at.
    #[must_use]
    pub fn resuming(mut self, begun: Resume) -> Self {
        self.begun = Some(begun);
        self
    }

    /// What a space holds, as the store says and not as anybody remembers.
    ///
    /// # Errors
    ///
    /// Those of the store; `Corrupt` for a seal that can't be read.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn installed(&self, space: &str) -> Result<Option<Seal>, Error> {
        let Some(seals) = self.seals else {
            return Ok(None);
        };
        let bytes = self.store.get(seals, space.as_bytes()).await?;
        let read = |bytes| seal::decode(bytes).map_err(|detail| self.corrupt(detail));
        bytes.map(read).transpose()
    }

    /// Of which snapshot an earlier session left rows, if the next one can go on with them: it
    /// does so when it is asked for that very snapshot, and throws them away when it is not.
    ///
    /// # Errors
    ///
    /// Those of the store.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn begun(&self) -> Result<Option<SnapshotId>, Error> {
        let name = self.store.resumable().await?;
        Ok(name.and_then(point::snapshot))
    }

    fn corrupt(&self, detail: &str) -> Error {
        Error::new(
            pop_store::ErrorKind::Corrupt,
            self.store.name(),
            "installed",
        )
        .with_detail(format!("the seal can't be read: {detail}"))
    }

    /// The keyspaces of a snapshot as this store knows them, or what is wrong with them.
    pub(crate) fn keyspaces(&self, at: &SnapshotRef) -> Result<Vec<Keyspace>, String> {
        if let Some(flaw) = at.flaw() {
            return Err(flaw.to_owned());
        }
        let known = |name: &String| {
            let mut all = self.store.keyspaces().iter().copied();
            let found = all.find(|it| it.name() == name && Some(*it) != self.seals);
            found.ok_or_else(|| format!("the target has no keyspace {name} for it"))
        };
        at.keyspaces.iter().map(known).collect()
    }

    /// Holds the request against what is installed.
    async fn covered(
        &self,
        at: &SnapshotRef,
        unreadable: ErrorKind,
    ) -> Result<Option<Seal>, Failure> {
        let installed = self.installed(&at.space).await;
        let installed = installed.map_err(|it| Failure::of_store(unreadable, it))?;
        Ok(fence(at, installed)?)
    }

    /// Makes room, unless the snapshot is installed already.
    pub(crate) async fn open(&self, at: &SnapshotRef, keep: Keep) -> Result<Room, Failure> {
        if let Some(seal) = self.covered(at, ErrorKind::Begin).await? {
            return Ok(Room::Needless(seal));
        }
        let keyspaces = self
            .keyspaces(at)
            .map_err(|flaw| Failure::new(ErrorKind::Protocol, flaw))?;
        let mut staged = keyspaces.clone();
        staged.extend(self.seals);
        let (staging, begun) = self
            .begin(at, &staged)
            .await
            .map_err(|it| Failure::of_store(ErrorKind::Begin, it))?;
        let load = Load {
            target: self.clone(),
            staging: Some(staging),
            keyspaces,
            keep,
        };
        Ok(Room::Made(load, begun))
    }

    /// Opens a staging, and says how far an earlier session filled it.
    async fn begin(
        &self,
        at: &SnapshotRef,
        staged: &[Keyspace],
    ) -> Result<(Box<dyn Staging>, Option<Resume>), Error> {
        if !self.store.capabilities().resumable_replace {
            return Ok((self.store.begin_replace(staged).await?, self.begun.clone()));
        }
        let name = point::name(at);
        let resumed = self.store.resume_replace(staged, name.clone()).await?;
        let Some(found) = resumed.point else {
            return Ok((resumed.staging, None));
        };
        if let Some(begun) = point::decode(found) {
            tracing::info!(totals = %begun.totals, "going on with an earlier session");
            return Ok((resumed.staging, Some(begun)));
        }
        tracing::warn!("the point of an earlier session can't be read: all is moved again");
        resumed.staging.abort().await?;
        let anew = self.store.resume_replace(staged, name).await?;
        Ok((anew.staging, None))
    }
}

/// What a target did for a session.
pub(crate) enum Room {
    /// It made room, in which the rows up to here are already.
    Made(Load, Option<Resume>),
    /// It holds the snapshot.
    Needless(Seal),
}

/// Whether a content that is let go of may be gone on with. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keep {
    forgotten: Arc<AtomicBool>,
}

impl Keep {
    /// What was loaded is to be thrown away.
    pub(crate) fn forget(&self) {
        // Read by the drop that follows in the same task.
        self.forgotten.store(true, Ordering::Relaxed);
    }

    fn is_forgotten(&self) -> bool {
        self.forgotten.load(Ordering::Relaxed)
    }
}

/// A content on its way. Dropped, it leaves the target as it was, and at most a point to go
/// on from.
#[derive(Debug)]
pub(crate) struct Load {
    target: Target,
    // `None` only once it is published.
    staging: Option<Box<dyn Staging>>,
    keyspaces: Vec<Keyspace>,
    keep: Keep,
}

impl Drop for Load {
    fn drop(&mut self) {
        // Here, because a panic of a call may be what drops it: a second one that got out
        // would end the process.
        if let Some(staging) = &mut self.staging
            && self.keep.is_forgotten()
        {
            shielded(|| staging.forget_checkpoint());
        }
        let_go(self.staging.take());
    }
}

impl Load {
    /// Loads rows; behind them everything is to outlive the process, where the store can.
    pub(crate) async fn rows(
        &mut self,
        parts: Vec<Part>,
        point: Option<Resume>,
    ) -> Result<(), Failure> {
        for part in parts {
            let keyspace = self.keyspaces.get(usize::from(part.keyspace));
            if let (Some(staging), Some(keyspace)) = (&mut self.staging, keyspace) {
                let loaded = staging.load_rows(*keyspace, part.rows).await;
                loaded.map_err(|it| Failure::of_store(ErrorKind::Staging, it))?;
            }
        }
        match point {
            Some(point) if self.target.store.capabilities().resumable_replace => {
                self.checkpoint(&point).await
            }
            _ => Ok(()),
        }
    }

    async fn checkpoint(&mut self, point: &Resume) -> Result<(), Failure> {
        let Some(staging) = &mut self.staging else {
            return Ok(());
        };
        let made = staging.checkpoint(point::encode(point)).await;
        made.map_err(|it| Failure::of_store(ErrorKind::Staging, it))
    }

    async fn load(&mut self, keyspace: Keyspace, entries: Vec<Entry>) -> Result<(), Error> {
        match &mut self.staging {
            Some(staging) => staging.load(keyspace, entries).await,
            None => Ok(()),
        }
    }

    /// Switches the target to what was loaded, together with its seal.
    pub(crate) async fn commit(mut self, at: &SnapshotRef, seal: &Seal) -> Result<(), Failure> {
        let refused = ErrorKind::Commit(Switch::NotDone);
        let not_done = |it| Failure::of_store(refused, it);
        // While this staging is open no other one can be published, so that nothing comes
        // between this look and the switch.
        if self.target.covered(at, refused).await?.is_some() {
            return Err(ErrorKind::Obsolete.into());
        }
        if let Some(seals) = self.target.seals {
            let loaded = self.load_seals(seals, &at.space, seal).await;
            loaded.map_err(not_done)?;
        }
        let Some(staging) = self.staging.take() else {
            return Err(ErrorKind::TaskLost.into());
        };
        let Err(error) = staging.publish().await else {
            return Ok(());
        };
        if error.outcome() == Outcome::InDoubt {
            // Only the store that is opened anew knows: what this one shows may not be synced.
            return Err(Failure::of_store(ErrorKind::Commit(Switch::InDoubt), error));
        }
        if error.kind() == pop_store::ErrorKind::NoSpace {
            // The room of what was loaded is needed: any other staging ends it. Whatever
            // becomes of that, the first error is the one that is told.
            swept(self.target.store.begin_replace(&[])).await;
        }
        Err(not_done(error))
    }

    /// Loads the seal, and those of other spaces with it, in the order of their keys: the
    /// keyspace is replaced as a whole.
    async fn load_seals(&mut self, seals: Keyspace, space: &str, seal: &Seal) -> Result<(), Error> {
        let mut own = Some(Entry {
            key: Bytes::copy_from_slice(space.as_bytes()),
            value: seal::encode(seal),
        });
        let mut scan = Scan::all().with_entries_max(8);
        loop {
            let entries = self.target.store.scan(seals, scan.clone()).await?;
            let Some(last) = entries.last() else {
                return self.load(seals, own.into_iter().collect()).await;
            };
            scan.start = above(&last.key);
            for other in entries {
                if other.key.as_ref() >= space.as_bytes()
                    && let Some(own) = own.take()
                {
                    self.load(seals, vec![own]).await?;
                }
                if other.key != space.as_bytes() {
                    self.load(seals, vec![other]).await?;
                }
            }
        }
    }
}
