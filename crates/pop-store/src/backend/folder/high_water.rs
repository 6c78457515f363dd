//! How far a store was synced, kept outside the engine's log.
//!
//! An engine that finds its log damaged may recover by leaving off the end, and can't know
//! that the end had been promised. So the store numbers its groups, each group carries its
//! number into the engine, and this file keeps the number of the last group that was synced.
//! A history that ends before it is refused at open.
//!
//! The file itself is synced when the store is closed and not with every group, which would
//! double the cost of a sync. A killed process loses nothing of it. After a power cut it may
//! be older by what the system had not written back (some 30 seconds on Linux): then a cut
//! of those last groups goes unnoticed. It is never ahead of what was synced.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
};

use crate::backend::engine::record;

// Two slots in different sectors, written in turn: a torn write leaves the other one whole.
const SLOT_BYTES: usize = 512;
const FILE_BYTES: usize = 2 * SLOT_BYTES;
const RECORD_BYTES: usize = 13;

/// The number of the last group that was synced.
#[derive(Debug)]
pub struct HighWater {
    file: File,
    sequence: u64,
    slot: usize,
}

impl HighWater {
    /// Makes the file, with nothing synced; over one that an unfinished creation left.
    pub(crate) fn create(path: &Path) -> io::Result<()> {
        let record = record::seal_number(0);
        let mut content = vec![0; FILE_BYTES];
        for slot in content.chunks_exact_mut(SLOT_BYTES) {
            if let Some(place) = slot.get_mut(..record.len()) {
                place.copy_from_slice(&record);
            }
        }
        let mut file = File::create(path)?;
        file.write_all(&content)?;
        // In the store's folder its name is synced with the marker, which comes after it.
        file.sync_all()
    }

    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        let mut content = Vec::new();
        file.read_to_end(&mut content)?;
        let newest = content
            .chunks(SLOT_BYTES)
            .enumerate()
            .filter_map(|(slot, bytes)| {
                Some((record::unseal_number(bytes.get(..RECORD_BYTES)?)?, slot))
            })
            .max();
        match newest {
            Some((sequence, slot)) => Ok(Self {
                file,
                sequence,
                slot,
            }),
            None => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "neither record is whole",
            )),
        }
    }

    /// The number as it was found, or last recorded.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Records that group `sequence` and all before it are synced.
    pub(crate) fn record(&mut self, sequence: u64) -> io::Result<()> {
        let slot = (self.slot + 1) % 2;
        let place = u64::try_from(slot * SLOT_BYTES).map_err(io::Error::other)?;
        self.file.seek(SeekFrom::Start(place))?;
        self.file.write_all(&record::seal_number(sequence))?;
        self.sequence = sequence;
        self.slot = slot;
        Ok(())
    }

    /// Makes the last record durable.
    pub(crate) fn seal(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }
}
