//! The records of `pop@0`, pinned: what is written is what the fixtures hold, and what they
//! hold is what is read.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::{
    Keyspace,
    backend::engine::{
        checkpoint::{Checkpoint, Mark},
        layout::Layout,
        record::{seal_number, unseal_number},
    },
    golden::pinned,
};

// Catches: another version, another order of bytes.
#[test]
fn sealed_numbers_keep_their_bytes() {
    let samples = [("zero", 0), ("some", 0x0123_4567), ("last", u64::MAX)];
    let golden = pinned(
        "sealed_number",
        &samples.map(|(name, it)| (name, seal_number(it))),
    );
    for ((name, number), bytes) in samples.into_iter().zip(golden) {
        assert_eq!(unseal_number(&bytes), Some(number), "{name}");
    }
}

// Catches: generation before name, another order of its bytes, generations from 0 up.
#[test]
fn layouts_keep_their_bytes() {
    let mut some = Layout::default();
    for name in ["log", "lease", "log"] {
        some.advance(Keyspace::new(name));
    }
    let samples = [("empty", Layout::default()), ("some", some)];
    let written = samples.each_ref().map(|(name, it)| (*name, it.encode()));
    for ((name, layout), bytes) in samples.into_iter().zip(pinned("layout", &written)) {
        assert_eq!(Layout::decode(&bytes), Some(layout), "{name}");
    }
}

// Catches: name and point swapped, generation and files swapped, another byte for a keyspace
// without rows.
#[test]
fn checkpoints_of_staged_loads_keep_their_bytes() {
    let mark = |generation, files, last: Option<&'static str>| Mark {
        generation,
        files,
        last: last.map(Bytes::from),
    };
    let checkpoint = |marks| Checkpoint {
        name: Bytes::from("name"),
        point: Bytes::from("a point"),
        marks,
    };
    let some = BTreeMap::from([
        ("lease".to_owned(), mark(2, 0, Some(""))),
        ("log".to_owned(), mark(0x0102, 3, Some("key"))),
        ("meta".to_owned(), mark(1, 0, None)),
    ]);
    let samples = [
        ("empty", checkpoint(BTreeMap::new())),
        ("some", checkpoint(some)),
    ];
    let written = samples.each_ref().map(|(name, it)| (*name, it.encode()));
    let golden = pinned("staging_checkpoint", &written);
    for ((name, checkpoint), bytes) in samples.into_iter().zip(golden) {
        assert_eq!(Checkpoint::decode(&bytes), Some(checkpoint), "{name}");
    }
}
