//! Reading a pinned snapshot in the order in which it is sent.

use std::sync::Arc;

use pop_store::{Estimate, Keyspace, Scan, Snapshot};

use crate::{
    Digest, ErrorKind, Failure, Position, Resume,
    digest::{above, seed},
    frame::Part,
    machine::sender::Counted,
};

// A chunk of rows without bytes must end somewhere, too.
const ROWS_MAX: usize = 16 << 10;
// How much is counted in one go.
const COUNTED_BYTES: usize = 1 << 20;

/// Walks the rows of some keyspaces, and pins the snapshot as long as it lives.
#[derive(Debug)]
pub(crate) struct Cursor {
    snapshot: Arc<dyn Snapshot>,
    keyspaces: Arc<[Keyspace]>,
    place: u16,
    scan: Scan,
    // What the rows before a resumed start add up to, as far as they are counted.
    before: Digest,
}

impl Cursor {
    pub(crate) fn new(snapshot: Arc<dyn Snapshot>, keyspaces: Arc<[Keyspace]>) -> Self {
        Self {
            snapshot,
            keyspaces,
            place: 0,
            scan: Scan::all().with_entries_max(ROWS_MAX),
            before: Digest::default(),
        }
    }

    /// About how much all of it is, if its store can say so.
    pub(crate) async fn estimate(&self) -> Option<Estimate> {
        let (rows, bytes) = (0, Some(0));
        let mut all = Estimate { rows, bytes };
        for keyspace in self.keyspaces.iter() {
            // For a percentage alone nothing is to fail.
            all = all + self.snapshot.estimate(*keyspace).await.ok().flatten()?;
        }
        Some(all)
    }

    /// The next rows, about `bytes_max` of them; none at the end.
    pub(crate) async fn read(&mut self, bytes_max: usize) -> Result<Vec<Part>, Failure> {
        let failed =
            |it| Failure::of_store(ErrorKind::PeerAborted(crate::AbortCode::SourceError), it);
        while let Some(keyspace) = self.keyspaces.get(usize::from(self.place)) {
            let scan = self.scan.clone().with_bytes_max(bytes_max);
            let rows = self.snapshot.rows(*keyspace, scan).await.map_err(failed)?;
            if let Some((last, _)) = rows.last() {
                self.scan.start = above(last);
                let keyspace = self.place;
                return Ok(vec![Part { keyspace, rows }]);
            }
            self.place += 1;
            self.scan = Scan::all().with_entries_max(ROWS_MAX);
        }
        Ok(Vec::new())
    }

    /// Counts the next rows up to a resumed start, and goes behind that once they are all.
    pub(crate) async fn count(&mut self, resume: &Resume) -> Result<Counted, Failure> {
        let parts = self.read(COUNTED_BYTES).await?;
        let first = parts
            .first()
            .and_then(|it| self.keyspaces.get(usize::from(it.keyspace)));
        let seed = first.map(|it| seed(it.name())).unwrap_or_default();
        let mut all = parts.is_empty();
        for row in parts.iter().flat_map(Part::rows) {
            let position = Position {
                keyspace: row.keyspace,
                key: row.entry.key.clone(),
            };
            if position > resume.after {
                self.go_behind(&resume.after);
                all = true;
                break;
            }
            self.before.add_to(seed, &row.entry);
        }
        let totals = self.before;
        Ok(Counted { totals, all })
    }

    fn go_behind(&mut self, position: &Position) {
        self.place = position.keyspace;
        self.scan.start = above(&position.key);
    }
}
