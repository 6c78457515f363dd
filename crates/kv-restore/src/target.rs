//! Where a snapshot lands: a store, and the seals that say what it holds.

use std::sync::Arc;

use pop_store::{Entry, Error, Keyspace, Scan, Staging, Store, WriteBatch};

use crate::{
    ErrorKind, Failure, Resume, Seal, SnapshotRef, Switch, digest::above, fence, frame::Row,
};

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
    #[must_use]
    pub fn resuming(mut self, begun: Resume) -> Self {
        self.begun = Some(begun);
        self
    }

    pub(crate) fn begun(&self) -> Option<&Resume> {
        self.begun.as_ref()
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
    async fn covered(&self, at: &SnapshotRef) -> Result<Option<Seal>, Failure> {
        let installed = self.installed(&at.space).await;
        let installed = installed.map_err(|it| Failure::of_store(ErrorKind::Begin, it))?;
        Ok(fence(at, installed)?)
    }

    /// Makes room, unless the snapshot is installed already.
    pub(crate) async fn open(&self, at: &SnapshotRef) -> Result<Result<Load, Seal>, Failure> {
        if let Some(seal) = self.covered(at).await? {
            return Ok(Err(seal));
        }
        let keyspaces = self
            .keyspaces(at)
            .map_err(|flaw| Failure::new(ErrorKind::Protocol, flaw))?;
        let mut staged = keyspaces.clone();
        staged.extend(self.seals);
        let staging = self.store.begin_replace(&staged).await;
        let staging = staging.map_err(|it| Failure::of_store(ErrorKind::Begin, it))?;
        Ok(Ok(Load {
            target: self.clone(),
            staging,
            keyspaces,
        }))
    }
}

/// A content on its way. Dropped, it leaves the target as it was.
#[derive(Debug)]
pub(crate) struct Load {
    target: Target,
    staging: Box<dyn Staging>,
    keyspaces: Vec<Keyspace>,
}

impl Load {
    pub(crate) async fn rows(&mut self, rows: Vec<Row>) -> Result<(), Failure> {
        let (mut batch, mut bytes, mut place) = (Vec::new(), 0, None);
        for row in rows {
            let size = row.entry.key.len() + row.entry.value.len();
            let full = batch.len() == WriteBatch::KEYS_MAX || bytes + size > WriteBatch::BYTES_MAX;
            if place != Some(row.keyspace) || full {
                self.entries(place, std::mem::take(&mut batch)).await?;
                bytes = 0;
            }
            place = Some(row.keyspace);
            bytes += size;
            batch.push(row.entry);
        }
        self.entries(place, batch).await
    }

    async fn entries(&mut self, place: Option<u16>, entries: Vec<Entry>) -> Result<(), Failure> {
        let Some(keyspace) = place.and_then(|it| self.keyspaces.get(usize::from(it))) else {
            return Ok(());
        };
        let loaded = self.staging.load(*keyspace, entries).await;
        loaded.map_err(|it| Failure::of_store(ErrorKind::Staging, it))
    }

    /// Switches the target to what was loaded, together with its seal.
    pub(crate) async fn commit(mut self, at: &SnapshotRef, seal: &Seal) -> Result<(), Failure> {
        let not_done = |it| Failure::of_store(ErrorKind::Commit(Switch::NotDone), it);
        // While this staging is open no other one can be published, so that nothing comes
        // between this look and the switch.
        if self.target.covered(at).await?.is_some() {
            return Err(ErrorKind::Obsolete.into());
        }
        if let Some(seals) = self.target.seals {
            self.carry_seals(seals, &at.space).await.map_err(not_done)?;
            let entry = Entry {
                key: at.space.clone().into_bytes().into(),
                value: seal::encode(seal),
            };
            let loaded = self.staging.load(seals, vec![entry]).await;
            loaded.map_err(not_done)?;
        }
        let Err(error) = self.staging.publish().await else {
            return Ok(());
        };
        // Whether it happened is what the store says now, if it still says anything.
        let doubt = matches!(
            error.kind(),
            pop_store::ErrorKind::InDoubt | pop_store::ErrorKind::Poisoned
        );
        if !doubt {
            return Err(not_done(error));
        }
        match self.target.installed(&at.space).await {
            Ok(Some(found)) if found == *seal => Ok(()),
            _ => Err(Failure::of_store(ErrorKind::Commit(Switch::InDoubt), error)),
        }
    }

    /// The seals of other spaces go along: the keyspace is replaced as a whole.
    async fn carry_seals(&mut self, seals: Keyspace, space: &str) -> Result<(), Error> {
        let mut scan = Scan::all().with_entries_max(8);
        loop {
            let entries = self.target.store.scan(seals, scan.clone()).await?;
            let Some(last) = entries.last() else {
                return Ok(());
            };
            scan.start = above(&last.key);
            let others = entries.into_iter().filter(|it| it.key != space.as_bytes());
            for other in others {
                self.staging.load(seals, vec![other]).await?;
            }
        }
    }
}
