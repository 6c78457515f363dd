//! What of a broker moves to another store, whatever moves it: a backup, a restore, a
//! migration, the start of a new node.
//!
//! The *space* is all keyspaces of the product. Beside it lies one more, with the seals: what
//! a folder was filled with belongs to the folder and does not move.

use bytes::Bytes;
use kv_restore::{Epoch, Seal, SnapshotId, SnapshotRef};
use pop_store::{
    Keyspace,
    table::{self, BODY, DUE, LEASE, LOG, META, PROGRESS, QUARANTINE, RETAINED, RETRY, TIMER},
};
use serde::{Deserialize, Serialize};

/// The name of a broker's space.
pub const SPACE: &str = "broker";

/// What a folder was filled with, and by whom. Not part of the space.
pub const SEALS: Keyspace = Keyspace::new("seals");

/// Every keyspace that a broker's store is opened with.
pub const KEYSPACES: [Keyspace; 11] = [
    META, LOG, BODY, LEASE, DUE, PROGRESS, RETRY, RETAINED, TIMER, QUARANTINE, SEALS,
];

/// The version of [`SpaceMeta`] that this program writes and reads.
const META_VERSION: u32 = 1;

/// What travels with a snapshot and is kept in the seal of what was installed; JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceMeta {
    /// The version of this record.
    pub format: u32,
    /// The version of the program that took the snapshot.
    pub program: String,
    /// The store that it was taken from.
    pub store: String,
    /// When it was taken, in milliseconds since 1970.
    pub taken_at_unix_ms: i64,
    /// The SHA-256 of the receipt of a source that serves no more, in hexadecimal. Without one
    /// the snapshot is a copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover: Option<String>,
}

/// Meta that this program can't read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetaError {
    /// It is no meta of a broker.
    #[error("it does not hold a broker's content: {0}")]
    Foreign(#[source] serde_json::Error),
    /// It was written by another version.
    #[error(
        "it has version {0}, this program reads version {META_VERSION}: use the program that wrote it"
    )]
    Version(u32),
}

impl SpaceMeta {
    /// The meta of a copy, taken by this program.
    #[must_use]
    pub fn copy(store: &str, taken_at_unix_ms: i64) -> Self {
        Self {
            format: META_VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            store: store.to_owned(),
            taken_at_unix_ms,
            handover: None,
        }
    }

    /// The bytes that travel.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        // Strings and numbers alone: nothing in it can fail to be written.
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote. Fields that are not known are skipped.
    ///
    /// # Errors
    ///
    /// If it is of something else or of another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, MetaError> {
        let meta: Self = serde_json::from_slice(bytes).map_err(MetaError::Foreign)?;
        match meta.format {
            META_VERSION => Ok(meta),
            other => Err(MetaError::Version(other)),
        }
    }
}

/// A broker's content as of one moment.
#[must_use]
pub fn snapshot_ref(id: SnapshotId, epoch: Epoch, meta: &SpaceMeta) -> SnapshotRef {
    let names = table::KEYSPACES.map(Keyspace::name);
    SnapshotRef::new(SPACE, id, &names)
        .at(epoch, 0)
        .with_meta(meta.to_bytes())
}

/// The name of what a seal says was installed.
///
/// # Errors
///
/// If it is not a broker's content.
pub(crate) fn of_seal(seal: &Seal) -> Result<SnapshotRef, MetaError> {
    let meta = SpaceMeta::from_bytes(&seal.meta)?;
    Ok(snapshot_ref(seal.snapshot, seal.epoch, &meta).at(seal.epoch, seal.applied))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Mutant: a keyspace is left out of the space, or the seals are in it.
    #[test]
    fn all_keyspaces_of_the_product_move_and_the_seals_stay() {
        let (seals, product) = KEYSPACES.split_last().unwrap();
        assert_eq!((*seals, product), (SEALS, table::KEYSPACES.as_slice()));
        let at = snapshot_ref(SnapshotId(7), Epoch(1), &SpaceMeta::copy("fjall", 3));
        assert_eq!(
            at.keyspaces,
            table::KEYSPACES.map(|it| it.name().to_owned())
        );
    }

    #[test]
    fn meta_keeps_its_bytes_and_reads_back() {
        let mut meta = SpaceMeta::copy("fjall", 1_700_000_000_000);
        meta.program = "0.1.0".into();
        let bytes = meta.to_bytes();
        let expected =
            r#"{"format":1,"program":"0.1.0","store":"fjall","taken_at_unix_ms":1700000000000}"#;
        assert_eq!(bytes, expected.as_bytes());
        assert_eq!(SpaceMeta::from_bytes(&bytes).unwrap(), meta);
    }

    // Mutant: the version is not looked at.
    #[test]
    fn meta_of_something_else_or_of_another_version_is_refused() {
        let later = SpaceMeta {
            format: 2,
            ..SpaceMeta::copy("fjall", 0)
        };
        let refused = SpaceMeta::from_bytes(&later.to_bytes());
        assert!(matches!(refused, Err(MetaError::Version(2))));
        assert!(matches!(
            SpaceMeta::from_bytes(b"raft"),
            Err(MetaError::Foreign(_))
        ));
    }
}
