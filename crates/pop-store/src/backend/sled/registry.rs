//! Which space has which prefix in the one tree.
//!
//! Under the prefix zero: `s` and a name hold the id of a space, `d` and an id say that the
//! content of a dropped space is still to be deleted, `n` holds the next id. Ids are not
//! used twice, so what a crash leaves of a dropped space is never seen in another.

use std::collections::{BTreeMap, BTreeSet};

use sled::{Batch, Db};

use super::{NAME, error};
use crate::{Error, ErrorKind, Result, backend::engine::Space};

const PREFIX: [u8; 4] = [0; 4];
const SPACE: u8 = b's';
const DROPPED: u8 = b'd';
const NEXT: u8 = b'n';

/// The spaces, as they are stored.
#[derive(Debug)]
pub(super) struct Registry {
    ids: BTreeMap<Space, u32>,
    dropped: BTreeSet<u32>,
    next: u32,
}

impl Registry {
    pub(super) fn load(db: &Db) -> Result<Self> {
        let mut registry = Self {
            ids: BTreeMap::new(),
            dropped: BTreeSet::new(),
            next: 1,
        };
        for entry in db.scan_prefix(PREFIX) {
            let (key, value) = entry.map_err(error::read_failed)?;
            registry.read(&key, &value).ok_or_else(|| {
                Error::new(ErrorKind::Corrupt, NAME, "open").with_detail(format!(
                    "the record {} of a space is damaged: restore the folder from a backup",
                    key.escape_ascii()
                ))
            })?;
        }
        Ok(registry)
    }

    fn read(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        let (kind, rest) = key.get(PREFIX.len()..)?.split_first()?;
        match *kind {
            SPACE => {
                let space = Space::from_name(std::str::from_utf8(rest).ok()?)?;
                self.ids.insert(space, number(value)?);
            }
            DROPPED => {
                self.dropped.insert(number(rest)?);
            }
            NEXT => self.next = number(value)?,
            _ => return None,
        }
        Some(())
    }

    pub(super) fn spaces(&self) -> Vec<Space> {
        self.ids.keys().cloned().collect()
    }

    pub(super) fn find(&self, space: &Space) -> Option<u32> {
        self.ids.get(space).copied()
    }

    /// The prefix of an open space.
    pub(super) fn id(&self, space: &Space) -> Result<u32> {
        self.find(space).ok_or_else(|| {
            Error::new(ErrorKind::Invalid, NAME, "open")
                .with_detail(format!("space {space} is not open"))
        })
    }

    pub(super) fn has_dropped(&self) -> bool {
        !self.dropped.is_empty()
    }

    /// The dropped spaces whose content may still be there.
    pub(super) fn dropped(&self) -> Vec<u32> {
        self.dropped.iter().copied().collect()
    }

    pub(super) fn add(&mut self, space: &Space, batch: &mut Batch) {
        let id = self.next;
        self.next += 1;
        self.ids.insert(space.clone(), id);
        batch.insert(key(SPACE, space.name().as_bytes()), &id.to_be_bytes());
        batch.insert(key(NEXT, b""), &self.next.to_be_bytes());
    }

    pub(super) fn drop_space(&mut self, space: &Space, batch: &mut Batch) {
        if let Some(id) = self.ids.remove(space) {
            self.dropped.insert(id);
            batch.remove(key(SPACE, space.name().as_bytes()));
            batch.insert(key(DROPPED, &id.to_be_bytes()), b"");
        }
    }

    /// The content of a dropped space is gone.
    pub(super) fn forget(&mut self, id: u32, batch: &mut Batch) {
        self.dropped.remove(&id);
        batch.remove(key(DROPPED, &id.to_be_bytes()));
    }
}

fn key(kind: u8, rest: &[u8]) -> Vec<u8> {
    [&PREFIX[..], &[kind], rest].concat()
}

fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}
