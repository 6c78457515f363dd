//! What a chunk must pass before a row of it is loaded, and what all rows add up to.

use bytes::Bytes;

use crate::{
    Damage, Digest, ErrorKind, Failure, Mutant, Position, Resume, SnapshotRef, digest,
    frame::{FrameError, rows::RowsReader},
};

/// What became of a chunk or an end.
#[derive(Debug)]
pub(super) enum Taken {
    /// It is in order, with all its rows.
    Rows(Bytes),
    /// Everything came, and adds up.
    End,
    /// It came before.
    Again,
}

#[derive(Debug)]
pub(super) struct Intake {
    seeds: Vec<u64>,
    window: u64,
    // Of this stream: the next number, how many bytes came, how many were loaded since it
    // began, and how many of an earlier one were not.
    next: u64,
    received: u64,
    loaded: u64,
    owed: u64,
    // Of the whole session.
    last: Option<Position>,
    totals: Digest,
    begun: Digest,
    complete: bool,
}

impl Intake {
    pub(super) fn new(at: &SnapshotRef, window: u64) -> Self {
        Self {
            seeds: at.keyspaces.iter().map(|it| digest::seed(it)).collect(),
            window,
            next: 0,
            received: 0,
            loaded: 0,
            owed: 0,
            last: None,
            totals: Digest::default(),
            begun: Digest::default(),
            complete: false,
        }
    }

    /// All rows up to here came before the session began.
    pub(super) fn begin_behind(&mut self, begun: Resume) {
        self.last = Some(begun.after);
        self.totals = begun.totals;
        self.begun = begun.totals;
    }

    pub(super) fn begun(&self) -> Digest {
        self.begun
    }

    /// A stream begins while so many bytes of an earlier one are not yet loaded.
    pub(super) fn begin_stream(&mut self, pending: u64) {
        (self.next, self.received, self.loaded) = (0, 0, 0);
        self.owed = pending;
        if Mutant::ResumeForgetsTotals.is_on() {
            self.totals = Digest::default();
        }
    }

    /// So many bytes are loaded, and as many more may come.
    pub(super) fn free(&mut self, bytes: u64) {
        self.loaded = self.loaded.saturating_add(bytes);
    }

    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// How many bytes may come on this stream: what is received and not loaded, also of an
    /// earlier stream, stays within the window.
    pub(super) fn credit(&self) -> u64 {
        let room = self.window.saturating_add(self.loaded);
        room.saturating_sub(self.owed)
    }

    pub(super) fn totals(&self) -> Digest {
        self.totals
    }

    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// What [`Mutant::EarlyEndIsSuccess`] does.
    pub(super) fn claim_complete(&mut self) {
        self.complete = true;
    }

    /// Where another stream would go on.
    pub(super) fn resume(&self) -> Option<Resume> {
        Some(Resume {
            after: self.last.clone()?,
            totals: self.totals,
        })
    }

    pub(super) fn chunk(&mut self, seq: u64, rows: Bytes, crc: u32) -> Result<Taken, Failure> {
        if seq < self.next && !Mutant::DuplicatesApplied.is_on() {
            return Ok(Taken::Again);
        }
        if seq > self.next && !Mutant::GapAccepted.is_on() {
            return Err(protocol("a chunk is missing"));
        }
        if self.complete {
            return Err(protocol("a chunk after the end"));
        }
        if self.received >= self.credit() && !Mutant::CreditIgnored.is_on() {
            return Err(protocol("more was sent than asked for"));
        }
        if crc32c::crc32c(&rows) != crc && !Mutant::ChecksumNotChecked.is_on() {
            return Err(ErrorKind::Corrupt(Damage::Chunk).into());
        }
        self.received += u64::try_from(rows.len()).unwrap_or(u64::MAX);
        self.check(&rows)?;
        self.next = seq + 1;
        Ok(Taken::Rows(rows))
    }

    /// Counts all rows of a chunk, or none: what is wrong with one leaves nothing counted.
    fn check(&mut self, chunk: &[u8]) -> Result<(), Failure> {
        let unreadable =
            |error: FrameError| Failure::new(ErrorKind::Corrupt(Damage::Chunk), error.to_string());
        let mut reader = RowsReader::new(chunk).map_err(unreadable)?;
        let mut totals = self.totals;
        let before = self.last.as_ref();
        let mut last = before.map(|it| (it.keyspace, it.key.as_ref()));
        while let Some(row) = reader.next().map_err(unreadable)? {
            let seed = match self.seeds.get(usize::from(row.keyspace)) {
                Some(seed) => *seed,
                None if Mutant::BoundaryNotChecked.is_on() => 0,
                None => return Err(ErrorKind::Corrupt(Damage::Boundary).into()),
            };
            let at = (row.keyspace, row.key);
            if last.is_some_and(|last| last >= at) && !Mutant::OrderNotChecked.is_on() {
                return Err(ErrorKind::Corrupt(Damage::Order).into());
            }
            totals.add_encoded(seed, row.encoded, row.key.len() + row.value.len());
            last = Some(at);
        }
        // A copy, which keeps no chunk in memory.
        self.last = last.map(|(keyspace, key)| Position {
            keyspace,
            key: Bytes::copy_from_slice(key),
        });
        self.totals = totals;
        Ok(())
    }

    /// `expected` is what the request said, if it said anything.
    pub(super) fn end(
        &mut self,
        seq: u64,
        totals: &Digest,
        expected: Option<&Digest>,
    ) -> Result<Taken, Failure> {
        if seq < self.next {
            return Ok(Taken::Again);
        }
        if seq > self.next && !Mutant::GapAccepted.is_on() {
            return Err(protocol("the last chunk is missing"));
        }
        let adds_up = *totals == self.totals && expected.is_none_or(|it| it == totals);
        if !adds_up && !Mutant::TotalsNotChecked.is_on() {
            let detail = format!("received {}, the source has {totals}", self.totals);
            return Err(Failure::new(ErrorKind::Corrupt(Damage::Totals), detail));
        }
        self.next = seq + 1;
        self.complete = true;
        Ok(Taken::End)
    }
}

fn protocol(detail: &str) -> Failure {
    Failure::new(ErrorKind::Protocol, detail)
}

#[cfg(test)]
mod tests {
    use pop_store::Entry;

    use super::*;
    use crate::{
        SnapshotId,
        frame::{Part, Row, rows::RowsWriter},
    };

    fn row(keyspace: u16, key: &'static [u8]) -> Row {
        Row {
            keyspace,
            entry: Entry {
                key: Bytes::from_static(key),
                value: Bytes::new(),
            },
        }
    }

    fn chunk(rows: &[Row]) -> (Bytes, u32) {
        let mut writer = RowsWriter::new(0, None);
        for part in Part::of(rows) {
            writer.add(&part, 0, &mut Digest::default());
        }
        let bytes = writer.finish();
        let crc = crc32c::crc32c(&bytes);
        (bytes, crc)
    }

    // Mutants: rows are counted one by one; the last row of the chunk before is forgotten.
    #[test]
    fn a_chunk_whose_middle_is_wrong_leaves_nothing_counted() {
        let at = SnapshotRef::new("space", SnapshotId(1), &["rows"]);
        let mut intake = Intake::new(&at, u64::MAX);
        let (first, crc) = chunk(&[row(0, b"a"), row(0, b"b")]);
        intake.chunk(0, first, crc).expect("it is in order");
        let before = intake.resume();
        let wrong = [
            vec![row(0, b"c"), row(0, b"c")],
            vec![row(0, b"c"), row(1, b"d")],
            vec![row(0, b"b"), row(0, b"c")],
        ];
        for rows in wrong {
            let (rows, crc) = chunk(&rows);
            intake.chunk(1, rows, crc).expect_err("it is wrong");
            assert_eq!(intake.resume(), before, "as if it had not come");
        }
    }
}
