//! A seal as a value of the store: version, fields, checksum.

use bytes::{BufMut, Bytes, BytesMut};

use crate::{
    Epoch, Seal, SnapshotId,
    frame::{
        FrameError,
        wire::{Reader, put_bytes, put_digest},
    },
};

const VERSION: u8 = 1;

pub(super) fn encode(seal: &Seal) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(VERSION);
    bytes.put_u128(seal.snapshot.0);
    bytes.put_u64(seal.epoch.0);
    bytes.put_u64(seal.applied);
    put_digest(&mut bytes, &seal.totals);
    put_bytes(&mut bytes, &seal.meta);
    let sum = crc32c::crc32c(&bytes);
    bytes.put_u32(sum);
    bytes.freeze()
}

pub(crate) fn decode(bytes: Bytes) -> Result<Seal, &'static str> {
    let (content, sum) = bytes.split_last_chunk::<4>().ok_or("it is cut off")?;
    if crc32c::crc32c(content) != u32::from_be_bytes(*sum) {
        return Err("its checksum does not match");
    }
    let content = bytes.slice(..content.len());
    match content.first() {
        Some(&VERSION) => read(content).map_err(|_| "it is cut off"),
        _ => Err("it was written by a later version: use that one"),
    }
}

fn read(content: Bytes) -> Result<Seal, FrameError> {
    let mut reader = Reader::new(content);
    reader.u8()?;
    let seal = Seal {
        snapshot: SnapshotId(reader.u128()?),
        epoch: Epoch(reader.u64()?),
        applied: reader.u64()?,
        totals: reader.digest()?,
        meta: reader.bytes()?,
    };
    reader.end()?;
    Ok(seal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seal() -> Seal {
        let at = crate::SnapshotRef::new("space", SnapshotId(7), &["a"]).at(Epoch(3), 9);
        Seal::of(
            &at.with_meta(Bytes::from_static(b"meta")),
            crate::Digest::default(),
        )
    }

    #[test]
    fn a_seal_comes_back_as_it_was_written() {
        assert_eq!(decode(encode(&seal())), Ok(seal()));
    }

    #[test]
    fn a_seal_keeps_its_bytes() {
        let hex: String = encode(&seal())
            .iter()
            .map(|it| format!("{it:02x}"))
            .collect();
        assert_eq!(
            hex,
            "0100000000000000000000000000000007000000000000000300000000000000090000000000000000000000000000000000000000000000000000000000000000000000046d6574614cddc628"
        );
    }

    // Mutant: the checksum is not compared.
    #[test]
    fn a_damaged_or_later_seal_is_refused() {
        let bytes = encode(&seal());
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(damaged.into()).is_err());
        }
        for end in 0..bytes.len() {
            assert!(decode(bytes.slice(..end)).is_err());
        }
    }
}
