//! What a folder says of its owner: rows beside the seals.

use bytes::{BufMut, Bytes};
use kv_restore::SnapshotId;
use pop_model::{
    CodecError, StoredValue,
    codec::{reader::Reader, value::write_bytes, value::write_option},
};

/// The key of [`Owner`].
pub(super) const OWNER: Bytes = Bytes::from_static(b"owner");
/// The key of [`Retired`].
pub(super) const RETIRED: Bytes = Bytes::from_static(b"retired");
/// The key of the last [`Retired`] that was taken back.
pub(super) const UNDONE: Bytes = Bytes::from_static(b"undone");
/// The key of [`Begun`].
pub(super) const BEGUN: Bytes = Bytes::from_static(b"begun");
/// The key of [`Filling`].
pub(super) const FILLING: Bytes = Bytes::from_static(b"filling");

/// Whose the content of a folder is. A folder that was never filled from elsewhere nor
/// handed over has none: its epoch is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owner {
    /// Goes up with each handover.
    pub(crate) epoch: u64,
    /// The last content from elsewhere that was taken as this folder's own.
    pub(crate) adopted: Option<SnapshotId>,
}

/// That the content of a folder has another owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retired {
    /// Where it went, as the new owner called itself.
    pub to: String,
    /// When, in milliseconds since 1970.
    pub at_unix_ms: i64,
    /// The epoch of the new owner.
    pub epoch: u64,
    /// What went.
    pub snapshot: SnapshotId,
    /// What lets the new owner begin.
    pub receipt: [u8; 16],
}

/// What a folder is being filled with, or was filled with last, over the data port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filling {
    /// Which snapshot.
    pub(crate) snapshot: SnapshotId,
    /// What was in the folder from there before, and is until the other has come.
    pub(crate) before: Option<SnapshotId>,
    /// The URL of its source, as it was typed.
    pub(crate) from: String,
}

impl StoredValue for Filling {
    const WHAT: &'static str = "source of a bootstrap";

    fn write(&self, out: &mut Vec<u8>) {
        out.put_u128(self.snapshot.0);
        write_option(out, self.before, |out, before| out.put_u128(before.0));
        write_bytes(out, self.from.as_bytes());
    }

    fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        Ok(Self {
            snapshot: snapshot(reader)?,
            before: reader.option("before", snapshot)?,
            from: reader.text("from")?,
        })
    }
}

/// The handovers that a source began last, in that order: a target whose commands are killed
/// again and again may have any of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Begun(Vec<SnapshotId>);

impl Begun {
    const MAX: usize = 256;

    pub(super) fn add(&mut self, snapshot: SnapshotId) {
        self.0.push(snapshot);
        let forgotten = self.0.len().saturating_sub(Self::MAX);
        self.0.drain(..forgotten);
    }

    pub(super) fn has(&self, snapshot: SnapshotId) -> bool {
        self.0.contains(&snapshot)
    }
}

impl StoredValue for Begun {
    const WHAT: &'static str = "begun handovers";

    fn write(&self, out: &mut Vec<u8>) {
        // `add` keeps them few.
        out.put_u32(u32::try_from(self.0.len()).unwrap_or(u32::MAX));
        self.0.iter().for_each(|it| out.put_u128(it.0));
    }

    fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        let count = reader.u32()?;
        (0..count)
            .map(|_| snapshot(reader))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl StoredValue for Owner {
    const WHAT: &'static str = "owner";

    fn write(&self, out: &mut Vec<u8>) {
        out.put_u64(self.epoch);
        write_option(out, self.adopted, |out, adopted| out.put_u128(adopted.0));
    }

    fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        Ok(Self {
            epoch: reader.u64()?,
            adopted: reader.option("adopted", snapshot)?,
        })
    }
}

impl StoredValue for Retired {
    const WHAT: &'static str = "mark of a handover";

    fn write(&self, out: &mut Vec<u8>) {
        write_bytes(out, self.to.as_bytes());
        out.put_i64(self.at_unix_ms);
        out.put_u64(self.epoch);
        out.put_u128(self.snapshot.0);
        out.put_slice(&self.receipt);
    }

    fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        Ok(Self {
            to: reader.text("to")?,
            at_unix_ms: reader.i64()?,
            epoch: reader.u64()?,
            snapshot: snapshot(reader)?,
            receipt: reader.raw()?,
        })
    }
}

fn snapshot(reader: &mut Reader) -> Result<SnapshotId, CodecError> {
    reader.raw().map(|it| SnapshotId(u128::from_be_bytes(it)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        data_encoding::HEXLOWER.encode(bytes)
    }

    #[test]
    fn all_rows_keep_their_bytes() {
        let owner = Owner {
            epoch: 3,
            adopted: Some(SnapshotId(7)),
        };
        let bytes = owner.encode();
        assert_eq!(
            hex(&bytes),
            "010000000000000003010000000000000000000000000000000767ade350"
        );
        assert_eq!(Owner::decode(bytes), Ok(owner));
        let retired = Retired {
            to: "b".into(),
            at_unix_ms: 9,
            epoch: 3,
            snapshot: SnapshotId(7),
            receipt: [5; 16],
        };
        let bytes = retired.encode();
        assert_eq!(
            hex(&bytes),
            "01000000016200000000000000090000000000000003000000000000000000000000000000070505050505050505050505050505050549c65d03"
        );
        assert_eq!(Retired::decode(bytes), Ok(retired));
        let mut begun = Begun::default();
        (1..=2).for_each(|id| begun.add(SnapshotId(id)));
        let bytes = begun.encode();
        assert_eq!(
            hex(&bytes),
            "0100000002000000000000000000000000000000010000000000000000000000000000000295a76f7f"
        );
        assert_eq!(Begun::decode(bytes), Ok(begun));
        let filling = Filling {
            snapshot: SnapshotId(7),
            before: Some(SnapshotId(6)),
            from: "tcp://a:1".into(),
        };
        let bytes = filling.encode();
        assert_eq!(
            hex(&bytes),
            "01000000000000000000000000000000070100000000000000000000000000000006000000097463703a2f2f613a31808df8c0"
        );
        assert_eq!(Filling::decode(bytes), Ok(filling));
    }
}
