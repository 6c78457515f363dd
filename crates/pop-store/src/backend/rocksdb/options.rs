//! The settings of RocksDB, and why.

use rocksdb::{
    BlockBasedOptions, Cache, DBCompressionType, DBRecoveryMode, LogLevel, Options, WriteOptions,
};

const CACHE_BYTES: usize = 64 << 20;
// In memtables. Bounds what an open reads again: idle spaces are flushed to let old logs go.
const LOGS_MAX: u64 = 4;
// Spreads the writing of tables, instead of one long stall at their end.
const BYTES_PER_SYNC: u64 = 1 << 20;
// Unpacking a block costs its tables before its first byte: the source of a transfer, which
// reads all, spent a third of its time on them with blocks of 4 KiB. RocksDB's guide to its
// set-up takes this size too.
const BLOCK_BYTES: usize = 16 << 10;
// Half of what a restore spends on a row is its compression. LZ4's acceleration, which RocksDB
// takes as a level below zero, saves a third of that for files a tenth larger (508 and 565 MB
// of a gigabyte of leases); 8 makes them another tenth larger and saves next to nothing.
const LZ4_LEVEL_STAGED: i32 = -4;
// RocksDB's default; LZ4 has no use for it.
const ZLIB_WINDOW_BITS: i32 = -14;
// A table with this many deletes in a stretch of that many entries is compacted soon:
// scans of due work step over what was deleted before them.
const DELETES_WINDOW: usize = 4_096;
const DELETES_IN_WINDOW: usize = 2_048;
const DELETES_RATIO: f64 = 0.5;

/// One cache for all spaces.
pub(super) fn cache() -> Cache {
    // Zero lets it estimate the size of an entry by itself.
    Cache::new_hyper_clock_cache(CACHE_BYTES, 0)
}

/// The database, whose spaces gather so much in memory.
pub(super) fn database(memtable_bytes: u64) -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    // A torn end of the log is cut, and nothing is read beyond it.
    options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
    // Else a log that was synced and is missing or shorter passes unseen.
    options.set_track_and_verify_wals_in_manifest(true);
    // Spaces are flushed together, so that they agree after a log error too.
    options.set_atomic_flush(true);
    options.set_max_total_wal_size(memtable_bytes.saturating_mul(LOGS_MAX));
    options.set_bytes_per_sync(BYTES_PER_SYNC);
    // Files are deleted on background threads and not under a reader.
    options.set_avoid_unnecessary_blocking_io(true);
    options.set_log_level(LogLevel::Warn);
    options.set_keep_log_file_num(4);
    options.set_stats_dump_period_sec(0);
    options
}

/// A space.
pub(super) fn space(cache: &Cache, memtable_bytes: u64) -> Options {
    let mut options = table(cache);
    options.set_write_buffer_size(usize::try_from(memtable_bytes).unwrap_or(usize::MAX));
    options.set_bottommost_compression_type(DBCompressionType::Zstd);
    options.add_compact_on_deletion_collector_factory(
        DELETES_WINDOW,
        DELETES_IN_WINDOW,
        DELETES_RATIO,
    );
    options
}

/// A sorted file that a space takes over. Like the space's own, but packed quickly instead of
/// tightly: it is fast to make, and compaction may pack it tighter later.
pub(super) fn sorted_file(cache: &Cache) -> Options {
    let mut options = table(cache);
    options.set_compression_options(ZLIB_WINDOW_BITS, LZ4_LEVEL_STAGED, 0, 0);
    options
}

/// What all tables have in common.
fn table(cache: &Cache) -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(cache);
    table.set_block_size(BLOCK_BYTES);
    table.set_bloom_filter(10.0, false);
    let mut options = Options::default();
    options.set_block_based_table_factory(&table);
    options.set_compression_type(DBCompressionType::Lz4);
    options
}

/// A write, which is refused instead of made to wait if `no_slowdown`.
pub(super) fn write(sync: bool, no_slowdown: bool) -> WriteOptions {
    let mut options = WriteOptions::default();
    options.set_sync(sync);
    options.set_no_slowdown(no_slowdown);
    options
}
