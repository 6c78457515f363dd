//! How far the content has come, as Raft counts: two rows that are written with the entries,
//! and the seal of the last install. The later one counts, so that a switch need not touch
//! the rows, and rows that are older than what is installed do no harm.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};
use openraft::{
    RaftTypeConfig,
    entry::RaftEntry,
    type_config::alias::{LogIdOf, SnapshotMetaOf, StoredMembershipOf},
};
use pop_store::{Keyspace, Snapshot, Store, WriteBatch};
use serde::{Serialize, de::DeserializeOwned};

use super::Space;
use crate::target::seal;

const VERSION: u8 = 1;

// The rows of a space, before its name.
const LOG_ID: u8 = b'l';
const MEMBERSHIP: u8 = b'm';

/// Where they are read.
#[derive(Clone, Copy)]
pub(super) enum Place<'a> {
    Store(&'a dyn Store),
    View(&'a dyn Snapshot),
}

impl Place<'_> {
    async fn get(self, keyspace: Keyspace, key: &[u8]) -> io::Result<Option<Bytes>> {
        let value = match self {
            Self::Store(store) => store.get(keyspace, key).await,
            Self::View(view) => view.get(keyspace, key).await,
        };
        value.map_err(io::Error::other)
    }
}

/// How far the content has come there.
pub(super) async fn read<C: RaftTypeConfig>(
    place: Place<'_>,
    space: &Space,
) -> io::Result<SnapshotMetaOf<C>> {
    let mut applied = SnapshotMetaOf::<C>::default();
    if let Some(seal) = place.get(space.seals, space.name.as_bytes()).await? {
        let seal = seal::decode(seal).map_err(io::Error::other)?;
        applied = decode(&seal.meta)?;
    }
    if let Some(row) = place.get(space.applied, &key(LOG_ID, space)).await? {
        let log_id: LogIdOf<C> = decode(&row)?;
        applied.last_log_id = applied.last_log_id.max(Some(log_id));
    }
    if let Some(row) = place.get(space.applied, &key(MEMBERSHIP, space)).await? {
        let membership: StoredMembershipOf<C> = decode(&row)?;
        if membership.log_id() > applied.last_membership.log_id() {
            applied.last_membership = membership;
        }
    }
    Ok(applied)
}

/// Puts into a batch that an entry was applied.
pub(super) fn mark<C: RaftTypeConfig>(
    space: &Space,
    batch: &mut WriteBatch,
    entry: &C::Entry,
) -> io::Result<()> {
    let log_id = entry.log_id();
    batch.put(space.applied, key(LOG_ID, space), encode(&log_id)?);
    if let Some(membership) = entry.get_membership() {
        let membership = StoredMembershipOf::<C>::new(Some(log_id), membership);
        batch.put(space.applied, key(MEMBERSHIP, space), encode(&membership)?);
    }
    Ok(())
}

fn key(what: u8, space: &Space) -> Bytes {
    let mut key = BytesMut::with_capacity(1 + space.name.len());
    key.put_u8(what);
    key.put_slice(space.name.as_bytes());
    key.freeze()
}

pub(super) fn encode(value: &impl Serialize) -> io::Result<Bytes> {
    let mut bytes = vec![VERSION];
    serde_json::to_writer(&mut bytes, value).map_err(io::Error::other)?;
    Ok(bytes.into())
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    match bytes.split_first() {
        Some((&VERSION, json)) => serde_json::from_slice(json).map_err(io::Error::other),
        _ => Err(io::Error::other(
            "how far Raft has come was written by a later version: use that one",
        )),
    }
}
