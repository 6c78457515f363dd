//! About how much a family holds, from what RocksDB keeps of its tables and of what is in
//! memory.
//!
//! Its own estimate takes two entries off for each delete. Of a row that was short-lived only
//! the delete is left, so that a queue would seem to hold far less than it does: here a delete
//! is no row, and what it deleted may still be counted as one.

use rocksdb::{AsColumnFamilyRef, properties};

use super::{Database, error};
use crate::{Estimate, Result};

/// What a key in a table has beside the key: its sequence number and its kind.
const KEY_TAIL_BYTES: u64 = 8;

pub(super) fn of(database: &Database, family: &impl AsColumnFamilyRef) -> Result<Option<Estimate>> {
    let number = |name| {
        let value = database.property_int_value_cf(family, name);
        value.map_err(error::read_failed)
    };
    let tables = database.property_value_cf(family, properties::AGGREGATED_TABLE_PROPERTIES);
    let Some(tables) = tables.map_err(error::read_failed)? else {
        return Ok(None);
    };
    let (mut rows, mut bytes) = in_tables(&tables);
    let mut in_memory: u64 = 0;
    for (entries, deletes) in [
        (
            properties::NUM_ENTRIES_ACTIVE_MEM_TABLE,
            properties::NUM_DELETES_ACTIVE_MEM_TABLE,
        ),
        (
            properties::NUM_ENTRIES_IMM_MEM_TABLES,
            properties::NUM_DELETES_IMM_MEM_TABLES,
        ),
    ] {
        let (entries, deletes) = (number(entries)?, number(deletes)?);
        in_memory += entries.unwrap_or(0).saturating_sub(deletes.unwrap_or(0));
    }
    // An empty one has its room, too.
    if in_memory > 0 {
        rows += in_memory;
        bytes += number(properties::CUR_SIZE_ALL_MEM_TABLES)?.unwrap_or(0);
    }
    let bytes = Some(bytes);
    Ok(Some(Estimate { rows, bytes }))
}

/// How many rows the tables have, and the bytes of their keys and values.
fn in_tables(properties: &str) -> (u64, u64) {
    let value = |name: &str| {
        let mut all = properties.split(';').filter_map(|it| it.split_once('='));
        let found = all.find(|(key, _)| key.trim() == name);
        let value = found.and_then(|(_, value)| value.trim().parse::<u64>().ok());
        value.unwrap_or(0)
    };
    let entries = value("# entries");
    let keys = value("raw key size").saturating_sub(entries.saturating_mul(KEY_TAIL_BYTES));
    let rows = entries.saturating_sub(value("# deletions"));
    (rows, keys + value("raw value size"))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Mutants: the tail of the keys is counted; deletes are rows.
    #[test]
    fn what_rocksdb_says_of_its_tables_is_read() {
        let said = "# data blocks=1; # entries=10; # deletions=4; raw key size=180; \
                    raw average key size=18.000000; raw value size=1000; data block size=0";
        assert_eq!(in_tables(said), (6, 1_100));
        assert_eq!(in_tables(""), (0, 0));
        assert_eq!(in_tables("another; form = of it"), (0, 0));
    }
}
