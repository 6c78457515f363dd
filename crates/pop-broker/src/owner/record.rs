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
/// The key of the last handover that was begun: a snapshot id.
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
    /// The URL of its source, as it was typed.
    pub(crate) from: String,
}

impl StoredValue for Filling {
    const WHAT: &'static str = "source of a bootstrap";

    fn write(&self, out: &mut Vec<u8>) {
        out.put_u128(self.snapshot.0);
        write_bytes(out, self.from.as_bytes());
    }

    fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        Ok(Self {
            snapshot: snapshot(reader)?,
            from: reader.text("from")?,
        })
    }
}

/// The handover that a source began last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Begun(pub(super) SnapshotId);

impl StoredValue for Begun {
    const WHAT: &'static str = "begun handover";

    fn write(&self, out: &mut Vec<u8>) {
        out.put_u128(self.0.0);
    }

    fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        snapshot(reader).map(Self)
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
        let bytes = Begun(SnapshotId(7)).encode();
        assert_eq!(hex(&bytes), "010000000000000000000000000000000751c31b5d");
        assert_eq!(Begun::decode(bytes), Ok(Begun(SnapshotId(7))));
        let filling = Filling {
            snapshot: SnapshotId(7),
            from: "tcp://a:1".into(),
        };
        let bytes = filling.encode();
        assert_eq!(
            hex(&bytes),
            "0100000000000000000000000000000007000000097463703a2f2f613a31557c8a9e"
        );
        assert_eq!(Filling::decode(bytes), Ok(filling));
    }
}
