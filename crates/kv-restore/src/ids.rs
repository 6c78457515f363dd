//! What is moved, by whom and how far: the names of sessions and snapshots.

use std::{fmt, sync::Arc};

use bytes::Bytes;

use crate::Digest;

/// One attempt of one receiver to install one snapshot; never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u128);

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The content of a space as of one moment. Whoever holds it may serve it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotId(pub u128);

impl fmt::Debug for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Which leader or owner speaks: a higher one overrules a lower one, whatever it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A peer, as the transport calls it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(Arc<str>);

impl PeerId {
    /// The peer of this name or address.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name or address.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which snapshot a session installs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotRef {
    /// The name of the space: a whole store, or a named set of its keyspaces.
    pub space: String,
    /// The content.
    pub id: SnapshotId,
    /// Who says that it should be installed.
    pub epoch: Epoch,
    /// How far the content has come, in the counting of whoever made it.
    pub applied: u64,
    /// The keyspaces of the space. Nothing outside them is sent or touched.
    pub keyspaces: Vec<String>,
    /// What the rows add up to, if it is known beforehand.
    pub totals: Option<Digest>,
    /// Opaque to this crate; kept with the seal of the installed content.
    pub meta: Bytes,
}

impl SnapshotRef {
    /// The longest name of a space.
    pub const SPACE_BYTES_MAX: usize = 128;
    /// The most keyspaces of a space.
    pub const KEYSPACES_MAX: usize = 256;
    /// The most bytes of `meta`.
    pub const META_BYTES_MAX: usize = 64 << 10;

    /// A snapshot of these keyspaces, of the first epoch, about which nothing else is known.
    #[must_use]
    pub fn new(space: &str, id: SnapshotId, keyspaces: &[&str]) -> Self {
        Self {
            space: space.to_owned(),
            id,
            epoch: Epoch(0),
            applied: 0,
            keyspaces: keyspaces.iter().map(|&it| it.to_owned()).collect(),
            totals: None,
            meta: Bytes::new(),
        }
    }

    /// The same snapshot, as this epoch has come this far.
    #[must_use]
    pub fn at(mut self, epoch: Epoch, applied: u64) -> Self {
        (self.epoch, self.applied) = (epoch, applied);
        self
    }

    /// The same snapshot, whose rows add up to this.
    #[must_use]
    pub fn with_totals(mut self, totals: Digest) -> Self {
        self.totals = Some(totals);
        self
    }

    /// The same snapshot, with bytes of the caller's own.
    #[must_use]
    pub fn with_meta(mut self, meta: Bytes) -> Self {
        self.meta = meta;
        self
    }

    /// What is wrong with it, if anything is.
    pub(crate) fn flaw(&self) -> Option<&'static str> {
        if self.space.is_empty() || self.space.len() > Self::SPACE_BYTES_MAX {
            return Some("the name of the space has 1 to 128 bytes");
        }
        if self.keyspaces.is_empty() || self.keyspaces.len() > Self::KEYSPACES_MAX {
            return Some("a space has 1 to 256 keyspaces");
        }
        if self.meta.len() > Self::META_BYTES_MAX {
            return Some("meta has at most 64 KiB");
        }
        let fits = |name: &String| !name.is_empty() && name.len() <= 32;
        if !self.keyspaces.iter().all(fits) {
            return Some("the name of a keyspace has 1 to 32 bytes");
        }
        let mut names: Vec<_> = self.keyspaces.iter().collect();
        names.sort_unstable();
        names.dedup();
        (names.len() != self.keyspaces.len()).then_some("a keyspace is named twice")
    }
}

/// Where a row lies: rows are sent in this order, keyspaces as the snapshot lists them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Which of the snapshot's keyspaces.
    pub keyspace: u16,
    /// The key in it.
    pub key: Bytes,
}

/// Where a broken transfer goes on, and what must lie before that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resume {
    /// The last row that was received.
    pub after: Position,
    /// What all rows up to it add up to. A source with other rows there must refuse.
    pub totals: Digest,
}

/// What a space holds: written with the content, at the same synced moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seal {
    /// The content.
    pub snapshot: SnapshotId,
    /// The epoch that installed it.
    pub epoch: Epoch,
    /// How far it has come.
    pub applied: u64,
    /// What its rows add up to.
    pub totals: Digest,
    /// The caller's own bytes, from the snapshot's reference.
    pub meta: Bytes,
}

impl Seal {
    /// The seal of a snapshot whose rows were counted.
    #[must_use]
    pub fn of(at: &SnapshotRef, totals: Digest) -> Self {
        Self {
            snapshot: at.id,
            epoch: at.epoch,
            applied: at.applied,
            totals,
            meta: at.meta.clone(),
        }
    }
}

/// One channel of a session: a session that is resumed opens the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// The session.
    pub session: SessionId,
    /// Which of its channels, from 0.
    pub attempt: u32,
}
