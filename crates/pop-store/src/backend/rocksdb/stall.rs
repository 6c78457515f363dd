//! Writes that meet a stall: RocksDB wants its flushes and compactions to catch up first.
//!
//! A stall ends by itself, mostly within milliseconds, and a caller who is refused for it can
//! do nothing but ask again. So it is waited out on the writer's thread, and refused only when
//! it goes on: then the disk is too slow for what is asked of it, and callers must hear of it.

use std::{thread, time::Duration};

use rocksdb::{ErrorKind as RocksKind, WriteBatch, properties};

use super::{Database, error, options};
use crate::{Result, backend::engine::pace};

// Below what clients wait for an answer, 3 s by default.
const WAIT_MAX: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Writes the batch that `batch` makes, once more for each try.
pub(super) fn write(
    database: &Database,
    batch: impl Fn() -> Result<WriteBatch>,
    sync: bool,
) -> Result<()> {
    let stalled = match database.write_opt(batch()?, &options::write(sync, true)) {
        Err(error) if error.kind() == RocksKind::Incomplete => error,
        written => return written.map_err(error::write_failed),
    };
    let until = pace::now() + WAIT_MAX;
    while is_stopped(database) {
        if pace::now() >= until {
            return Err(error::write_failed(stalled));
        }
        rest();
    }
    // What is left is a delay, which RocksDB bounds by the size of the batch.
    let written = database.write_opt(batch()?, &options::write(sync, false));
    written.map_err(error::write_failed)
}

#[expect(
    clippy::disallowed_methods,
    reason = "waits for a real disk, on the writer's own thread"
)]
fn rest() {
    thread::sleep(LOOK_EVERY);
}

fn is_stopped(database: &Database) -> bool {
    let stopped = database.property_int_value(properties::IS_WRITE_STOPPED);
    // A property that can't be read is no reason to wait: the write says what is wrong.
    matches!(stopped, Ok(Some(1)))
}
