//! A message that retention took out of the log, kept for the groups that refer to it.

use bytes::{BufMut, Bytes};

use crate::{
    CodecError, GroupId, StoredValue, SubscriptionEpoch,
    codec::{reader::Reader, value::write_bytes},
};

/// Who refers to a message: a group, by a lease row or a retry entry of this epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// The group.
    pub group: GroupId,
    /// The epoch of its reference. What a reset made void must not let go of what a
    /// delivery after the reset refers to.
    pub epoch: SubscriptionEpoch,
}

/// One message, whoever refers to it: the last holder takes it along.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retained {
    /// Who refers to it.
    pub holders: Vec<Holder>,
    /// Its row as it was in the log. A body in chunks stays where it is and belongs to
    /// this row from then on.
    pub row: Bytes,
}

impl StoredValue for Retained {
    const WHAT: &'static str = "retained message";

    fn write(&self, out: &mut Vec<u8>) {
        out.put_u32(u32::try_from(self.holders.len()).expect("limits keep every list short"));
        for holder in &self.holders {
            out.put_u64(holder.group.get());
            out.put_u64(holder.epoch.get());
        }
        write_bytes(out, &self.row);
    }

    fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        let count = reader.u32()?;
        // A forged count allocates nothing ahead.
        let mut holders = Vec::new();
        for _ in 0..count {
            holders.push(Holder {
                group: GroupId::new(reader.u64()?),
                epoch: SubscriptionEpoch::new(reader.u64()?),
            });
        }
        Ok(Self {
            holders,
            row: reader.bytes()?,
        })
    }

    fn size_hint(&self) -> usize {
        8 + 16 * self.holders.len() + self.row.len()
    }
}
