//! Snapshots of an engine that shows nothing but the present.
//!
//! While a snapshot is open, the writer keeps for it what each key was before it is written
//! for the first time since: its *pre-image*, the value or that there was none. What a
//! snapshot shows is the present, with the pre-images over it.
//!
//! Nothing is locked between a write and a read, and yet no read shows a later moment:
//!
//! - The writer keeps the pre-images of a group before it applies the group ([`keep`]).
//! - A reader reads the present first and the pre-images after that ([`read`]).
//!
//! So a key of which the reader finds no pre-image had not been written when its present was
//! read, since whatever wrote it would have kept that before. And the first pre-image of a
//! key stays, so one that is found is of the moment of the snapshot.
//!
//! Pre-images are held in memory, up to a bound over all snapshots of a store. Those beyond
//! it go into a space of the engine that is nobody's keyspace: one for each snapshot, dropped
//! with it, and swept by the next open like any other that a crash left. They are written
//! with the group that they are of, or before it. They never move from one to the other.

mod keep;
mod read;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use parking_lot::RwLock;

pub(super) use self::keep::Watched;
use super::{Space, layout::Layout};
use crate::{Error, ErrorKind, Result};

/// What a key was: its value, or `None` if it was not there.
type PreImage = Option<Bytes>;

// A node of a map and two handles of bytes, about.
const ROW_COST: u64 = 128;
const ABSENT: u8 = 0;
const PRESENT: u8 = 1;

/// The content of a store as of one moment: what was written over since.
pub(super) struct PreImages {
    name: &'static str,
    /// The spaces of that moment. While it is held, the writer drops none of them.
    layout: Arc<Layout>,
    /// Where those are for which memory has no room.
    scratch: Space,
    room: Arc<Room>,
    kept: RwLock<Kept>,
}

#[derive(Default)]
struct Kept {
    rows: BTreeMap<Space, BTreeMap<Bytes, PreImage>>,
    bytes: u64,
    /// Whether the scratch space is there.
    spilled: bool,
    /// Why the snapshot can't be read any more.
    ended: Option<(ErrorKind, String)>,
}

/// The memory that all snapshots of a store share.
#[derive(Debug)]
struct Room {
    // Only counts: what is kept is guarded by the lock of its snapshot.
    taken: AtomicU64,
    bytes_max: u64,
}

impl Room {
    fn take(&self, bytes: u64) -> bool {
        // One thread takes, so nothing is taken between the look and the addition.
        if self.taken.load(Ordering::Relaxed) + bytes > self.bytes_max {
            return false;
        }
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        true
    }

    fn give_back(&self, bytes: u64) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl PreImages {
    fn covers(&self, space: &Space) -> bool {
        self.layout.spaces().any(|it| it == space)
    }

    /// Keeps a pre-image in memory, if there is room.
    fn keep(&self, space: &Space, key: &Bytes, image: &PreImage) -> bool {
        let bytes = key.len() + image.as_ref().map_or(0, Bytes::len);
        let bytes = bytes as u64 + ROW_COST;
        if !self.room.take(bytes) {
            return false;
        }
        let mut kept = self.kept.write();
        kept.bytes += bytes;
        let rows = kept.rows.entry(space.clone()).or_default();
        rows.insert(key.clone(), image.clone());
        true
    }

    /// Has every later read fail with the kind of `cause`.
    fn end(&self, cause: &Error) {
        tracing::warn!(store = self.name, %cause, "a snapshot ends, so that writes go on");
        let mut kept = self.kept.write();
        self.room.give_back(kept.bytes);
        *kept = Kept {
            spilled: kept.spilled,
            ended: Some((cause.kind(), cause.to_string())),
            ..Kept::default()
        };
    }

    fn check(&self, kept: &Kept) -> Result<()> {
        let Some((kind, cause)) = &kept.ended else {
            return Ok(());
        };
        Err(
            Error::new(*kind, self.name, "snapshot").with_detail(format!(
                "it has ended, because what was written over could not be kept for it: {cause}; \
             take another one"
            )),
        )
    }

    /// Where the pre-image of a key is in the scratch space. No name has a zero.
    fn scratch_key(space: &Space, key: &[u8]) -> Bytes {
        [space.name().as_bytes(), &[0], key].concat().into()
    }

    fn encode(image: &PreImage) -> Bytes {
        match image {
            None => Bytes::from_static(&[ABSENT]),
            Some(value) => [&[PRESENT], &value[..]].concat().into(),
        }
    }

    fn decode(&self, row: &Bytes) -> Result<PreImage> {
        match row.first() {
            Some(&ABSENT) => Ok(None),
            Some(&PRESENT) => Ok(Some(row.slice(1..))),
            _ => Err(Error::new(ErrorKind::Corrupt, self.name, "snapshot")
                .with_detail("what was kept for it is damaged; take another one")),
        }
    }
}

impl Drop for PreImages {
    fn drop(&mut self) {
        self.room.give_back(self.kept.get_mut().bytes);
    }
}

impl fmt::Debug for PreImages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreImages")
            .field("scratch", &self.scratch)
            .finish_non_exhaustive()
    }
}
