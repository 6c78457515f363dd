//! Reading a pinned snapshot in the order in which it is sent.

use std::sync::Arc;

use pop_store::{Keyspace, Scan, Snapshot};

use crate::{
    Digest, ErrorKind, Failure, Position, Resume,
    digest::{above, seed},
    frame::Row,
};

// A chunk of rows without bytes must end somewhere, too.
const ROWS_MAX: usize = 16 << 10;

/// Walks the rows of some keyspaces, and pins the snapshot as long as it lives.
#[derive(Debug)]
pub(crate) struct Cursor {
    snapshot: Arc<dyn Snapshot>,
    keyspaces: Arc<[Keyspace]>,
    place: u16,
    scan: Scan,
}

impl Cursor {
    pub(crate) fn new(snapshot: Arc<dyn Snapshot>, keyspaces: Arc<[Keyspace]>) -> Self {
        Self {
            snapshot,
            keyspaces,
            place: 0,
            scan: Scan::all().with_entries_max(ROWS_MAX),
        }
    }

    /// The next rows, about `bytes_max` of them; none at the end.
    pub(crate) async fn read(&mut self, bytes_max: usize) -> Result<Vec<Row>, Failure> {
        let failed =
            |it| Failure::of_store(ErrorKind::PeerAborted(crate::AbortCode::SourceError), it);
        while let Some(keyspace) = self.keyspaces.get(usize::from(self.place)) {
            let scan = self.scan.clone().with_bytes_max(bytes_max);
            let entries = self.snapshot.scan(*keyspace, scan).await.map_err(failed)?;
            if let Some(last) = entries.last() {
                self.scan.start = above(&last.key);
                let keyspace = self.place;
                let row = |entry| Row { keyspace, entry };
                return Ok(entries.into_iter().map(row).collect());
            }
            self.place += 1;
            self.scan = Scan::all().with_entries_max(ROWS_MAX);
        }
        Ok(Vec::new())
    }

    /// Goes to a resumed start, and says what the rows up to it add up to here.
    pub(crate) async fn resume(&mut self, resume: &Resume) -> Result<Digest, Failure> {
        let mut before = Digest::default();
        loop {
            let rows = self.read(1 << 20).await?;
            let Some(first) = rows.first() else {
                return Ok(before);
            };
            let keyspace = self.keyspaces.get(usize::from(first.keyspace));
            let seed = keyspace.map(|it| seed(it.name())).unwrap_or_default();
            for row in &rows {
                let position = Position {
                    keyspace: row.keyspace,
                    key: row.entry.key.clone(),
                };
                if position > resume.after {
                    self.go_behind(&resume.after);
                    return Ok(before);
                }
                before.add_to(seed, &row.entry);
            }
        }
    }

    fn go_behind(&mut self, position: &Position) {
        self.place = position.keyspace;
        self.scan.start = above(&position.key);
    }
}
