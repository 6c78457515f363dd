//! Bytes that were pinned: a fixture is a file of `name: hex` lines in `tests/fixtures/v1`.
//!
//! After a deliberate change of the format, `POP_BLESS=1 cargo test -p pop-store golden`
//! writes them anew; the diff then shows what changed.

use std::{env, fs, path::PathBuf};

use bytes::Bytes;
use data_encoding::HEXLOWER;

/// Compares what is written with the fixture, and returns what that holds, to be read.
pub(crate) fn pinned(kind: &str, written: &[(&str, Bytes)]) -> Vec<Bytes> {
    let path = format!("tests/fixtures/v1/{kind}.hex");
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
    let line = |(name, bytes): &(&str, Bytes)| format!("{name}: {}\n", HEXLOWER.encode(bytes));
    let written: String = written.iter().map(line).collect();
    if env::var_os("POP_BLESS").is_some_and(|bless| bless == "1") {
        fs::write(&path, &written).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap();
    assert_eq!(
        written, golden,
        "{kind} is written differently: the format changed"
    );
    let bytes = |line: &str| {
        let (_, hex) = line.split_once(": ").expect("a line is `name: hex`");
        HEXLOWER
            .decode(hex.as_bytes())
            .expect("lower case hex")
            .into()
    };
    golden.lines().map(bytes).collect()
}
