//! The rows that are moved: of the size of a lease, or of a message.

use bytes::{BufMut, Bytes, BytesMut};
use pop_store::{Durability, Keyspace, Store, WriteBatch};

pub(super) const ROWS: Keyspace = Keyspace::new("rows");
pub(super) const SEALS: Keyspace = Keyspace::new("seals");
/// Of somebody else, who goes on meanwhile.
pub(super) const OTHERS: Keyspace = Keyspace::new("others");
pub(super) const KEYSPACES: [Keyspace; 3] = [ROWS, SEALS, OTHERS];

pub(super) const KEY_BYTES: usize = 40;
const ROWS_DEFAULT: u64 = 4_700_000;
const VALUE_DEFAULT: u64 = 180;
const ROWS_A_BATCH: usize = 500;

fn number(name: &str, otherwise: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(otherwise, |it| it.parse().expect("a number"))
}

pub(super) fn count() -> u64 {
    number("POP_BENCH_ROWS", ROWS_DEFAULT)
}

pub(super) fn value_bytes() -> usize {
    usize::try_from(number("POP_BENCH_VALUE", VALUE_DEFAULT)).expect("it is small")
}

/// The bytes of all keys and values.
pub(super) fn bytes() -> u64 {
    count() * (KEY_BYTES + value_bytes()) as u64
}

/// A moment, a group and a topic, a queue and an offset, in the order of the moments.
pub(super) fn key(row: u64) -> Bytes {
    let mut key = BytesMut::with_capacity(KEY_BYTES);
    key.put_u64(1_700_000_000_000 + row / 4);
    key.put_slice(b"billing@orders@eu---");
    key.put_u32(u32::try_from(row % 4).expect("it is small"));
    key.put_u64(row / 4);
    key.freeze()
}

/// Text with numbers in it, about half of which compresses away.
pub(super) fn value(row: u64, bytes: usize) -> Bytes {
    let mut text = String::with_capacity(bytes + 64);
    text.push_str("{\"broker\":\"broker-a\",\"group\":\"billing\",\"topic\":\"orders\"");
    let mut state = row.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    while text.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push_str(&format!(",\"f\":{state}"));
    }
    text.truncate(bytes);
    text.into()
}

pub(super) async fn fill(store: &dyn Store) {
    let bytes = value_bytes();
    for first in (0..count()).step_by(ROWS_A_BATCH) {
        let mut batch = WriteBatch::new();
        for row in first..(first + ROWS_A_BATCH as u64).min(count()) {
            batch.put(ROWS, key(row), value(row, bytes));
        }
        let written = store.write(batch, Durability::Buffered).await;
        written.expect("the store takes rows");
    }
}
