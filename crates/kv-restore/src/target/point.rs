//! What a target's store remembers of a session that did not come to its end: of which
//! snapshot, and how far it came.

use bytes::{BufMut, Bytes, BytesMut};
use xxhash_rust::xxh3::xxh3_128;

use crate::{
    Position, Resume, SnapshotId, SnapshotRef,
    frame::{
        FrameError,
        wire::{Reader, put_bytes, put_digest},
    },
};

const VERSION: u8 = 1;

/// What the load of a snapshot is called: by its identity, its space and its keyspaces, in
/// their order, because a position counts them.
pub(super) fn name(at: &SnapshotRef) -> Bytes {
    let mut place = BytesMut::new();
    for part in std::iter::once(&at.space).chain(&at.keyspaces) {
        put_bytes(&mut place, part.as_bytes());
    }
    let mut name = BytesMut::new();
    name.put_u8(VERSION);
    name.put_u128(at.id.0);
    name.put_u128(xxh3_128(&place));
    name.freeze()
}

/// Which snapshot a load of that name is of; `None` of a name that is somebody else's.
pub(super) fn snapshot(name: Bytes) -> Option<SnapshotId> {
    let mut reader = Reader::new(name);
    let version = reader.u8().ok()?;
    let (id, _place) = (reader.u128().ok()?, reader.u128().ok()?);
    reader.end().ok()?;
    (version == VERSION).then_some(SnapshotId(id))
}

pub(super) fn encode(point: &Resume) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(VERSION);
    bytes.put_u16(point.after.keyspace);
    put_bytes(&mut bytes, &point.after.key);
    put_digest(&mut bytes, &point.totals);
    bytes.freeze()
}

/// Reads a point back; `None` if it was written by another version, or by nobody. Its
/// checksum is that of the store's record.
pub(super) fn decode(bytes: Bytes) -> Option<Resume> {
    read(bytes).ok().flatten()
}

fn read(bytes: Bytes) -> Result<Option<Resume>, FrameError> {
    let mut reader = Reader::new(bytes);
    if reader.u8()? != VERSION {
        return Ok(None);
    }
    let after = Position {
        keyspace: reader.u16()?,
        key: reader.bytes()?,
    };
    let totals = reader.digest()?;
    reader.end()?;
    Ok(Some(Resume { after, totals }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SnapshotId;

    #[test]
    fn a_point_comes_back_and_another_version_or_a_cut_one_does_not() {
        let point = Resume {
            after: Position {
                keyspace: 7,
                key: "key".into(),
            },
            totals: crate::Digest::default(),
        };
        let bytes = encode(&point);
        assert_eq!(decode(bytes.clone()), Some(point));
        for end in 0..bytes.len() {
            assert_eq!(decode(bytes.slice(..end)), None);
        }
        let mut later = bytes.to_vec();
        later[0] = 2;
        assert_eq!(decode(later.into()), None);
    }

    // Mutant: leave the keyspaces out of the name.
    #[test]
    fn a_name_tells_snapshots_spaces_and_keyspaces_apart() {
        let at = |id, space, keyspaces: &[&str]| {
            name(&SnapshotRef::new(space, SnapshotId(id), keyspaces))
        };
        let names = [
            at(1, "s", &["a", "b"]),
            at(2, "s", &["a", "b"]),
            at(1, "t", &["a", "b"]),
            at(1, "s", &["b", "a"]),
            at(1, "s", &["a"]),
            at(1, "s", &["ab"]),
        ];
        assert_eq!(snapshot(names[1].clone()), Some(SnapshotId(2)));
        assert_eq!(snapshot(names[1].slice(1..)), None);
        for (at, name) in names.iter().enumerate() {
            assert!(name.len() <= pop_store::Resumed::NAME_BYTES_MAX);
            assert!(!names[..at].contains(name));
        }
    }
}
